"""A copy of the working folder for each of several programs, mounted where the folder is.

``clew gateway --fork -n 2`` starts its programs so: recorded replies name absolute paths, and a copy elsewhere would be
left alone while the folder itself is changed. The folder is never touched.
"""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from collections.abc import Sequence
from pathlib import Path

from clew.core.errors import BadInput

MOST = 2 << 30  # bytes of a folder that is copied
# pairs of folders up to a word "--", what is mounted and over what; then where to start, and the program, which gets
# none of the powers that mounting took
_ENTER = """
while [ "$1" != -- ]; do mount --bind "$1" "$2" || exit 125; shift 2; done
cd "$2" && shift 2 || exit 125
[ "$(id -u)" = 0 ] || ! command -v setpriv > /dev/null || exec setpriv --ambient-caps=-all --inh-caps=-all -- "$@"
exec "$@"
"""


def own_folders(names: Sequence[str], store: Path) -> dict[str, Path]:
    """A fresh copy of the working folder for each name, beside the store.

    Raises:
        BadInput: the folder is too large, or nothing can be mounted here.
    """
    here, kept = Path.cwd(), store.absolute().parent / f"{store.name}.forks"
    remedy = "Start the forks one by one, each in a copy of its own, or share this folder with --one-folder."
    check_mounts(remedy)
    left_out = {kept.resolve(), *(p.resolve() for p in store.absolute().parent.glob(f"{store.name}*"))}
    if _size(here, left_out) > MOST:
        raise BadInput(f"{here} holds more than {MOST >> 30} GiB, too much to copy for each fork", remedy=remedy)

    def ignored(folder: str, found: list[str]) -> set[str]:
        return {n for n in found if (p := Path(folder, n)).resolve() in left_out or not _copied(p)}

    copies = {name: kept / name for name in names}
    for copy in copies.values():
        shutil.copytree(here, copy, symlinks=True, ignore=ignored)
    return copies


def check_mounts(remedy: str) -> None:
    """Refuse what needs a folder mounted over another where none can be.

    Raises:
        BadInput: user namespaces are off on this machine.
    """
    if subprocess.run(in_own_folder(Path.cwd(), ["true"]), capture_output=True).returncode:
        raise BadInput("no folder can be mounted for a fork: user namespaces are off here", remedy=remedy)


def in_own_folder(
    copy: Path,
    program: Sequence[str],
    over: str = "",
    start: str = "",
    first: Sequence[tuple[Path, str]] = (),
) -> list[str]:
    """The command that runs a program where its copy stands in the place of a folder: ``over``, or the working one.

    Args:
        start: folder that the program is started in, as it is called with the copy in place; default: ``over``.
        first: further folders that are put in the place of others, before that.
    """
    over = over or str(Path.cwd())
    pairs = [word for one, other in (*first, (copy, over)) for word in (str(one.absolute()), other)]
    return [*_unshared(), "sh", "-c", _ENTER, "clew", *pairs, "--", start or over, *program]


def _unshared() -> list[str]:
    return ["unshare", "--mount"] + ([] if os.geteuid() == 0 else ["--map-current-user", "--keep-caps"])


def _copied(path: Path) -> bool:
    mode = path.lstat().st_mode
    return stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode)


def _size(folder: Path, left_out: set[Path]) -> int:
    total = 0
    for place, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if Path(place, name).resolve() not in left_out]
        total += sum(Path(place, name).lstat().st_size for name in files)
        if total > MOST:
            break
    return total
