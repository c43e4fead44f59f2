"""A home of its own for a program that the gateway records, made beside the store, and the variables that name it.

``clew gateway --home`` makes one: empty, or with what a folder of the user's holds, apart from credentials, since what
the home holds at the beginning is recorded. The user's folder is never changed, and never the home of the program.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from clew.core.errors import BadInput

FRESH = "fresh"
MOST, LARGEST, MANY = 256 << 20, 64 << 20, 50_000  # bytes of all files and of one, and how many there may be
# files that hold a credential whatever is in them, by name or by the end of their path
_NAMES = frozenset(
    {
        ".credentials.json",
        "auth.json",
        "credentials",
        "credentials.json",
        ".netrc",
        ".git-credentials",
        "oauth_creds.json",
    }
)
_ENDS = (".pem", ".key", ".p12", "gh/hosts.yml", ".docker/config.json", ".kube/config")
_FOLDERS = frozenset({".ssh", ".gnupg", ".password-store"})
# variables that would lead a program past its home
_ELSEWHERE = ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME", "CODEX_HOME", "CLAUDE_CONFIG_DIR")


def fresh_home(store: Path, name: str) -> Path:
    """A place for the home of a run, beside the store, that is not there yet."""
    kept = store.resolve().parent / f"{store.name}.homes"
    places = (kept / (name if not i else f"{name}-{i + 1}") for i in range(10_000))
    return next(place for place in places if not place.exists())


def made_home(place: Path, given: str, environment: Mapping[str, str]) -> list[str]:
    """Make a home at ``place``: empty where ``given`` is FRESH, else with what that folder holds.

    Returns:
        The paths that were left out, since they hold credentials.

    Raises:
        BadInput: the folder is none, is a root or the user's own home, or holds too much.
    """
    (place / "tmp").mkdir(parents=True)
    if given == FRESH:
        (place / "home").mkdir()
        return []
    source = Path(given).resolve()
    remedy = "Put what the program needs of your home into a folder of its own and name that, or write --home fresh."
    if not source.is_dir():
        raise BadInput(f"--home {given} is no folder", remedy=remedy)
    if source in (Path("/"), Path.home().resolve()):
        raise BadInput(f"--home {given} is a root or your own home, which would be recorded", remedy=remedy)
    try:
        return sorted(_copied(source, place / "home", environment, remedy))
    except OSError as error:
        raise BadInput(f"--home {given} cannot be copied: {error}"[:300], remedy=remedy) from None


def at_home(place: str | Path, variables: Mapping[str, str]) -> dict[str, str]:
    """The variables of a program whose home and temporary files lie at ``place``."""
    kept = {name: value for name, value in variables.items() if name not in _ELSEWHERE}
    return kept | {"HOME": os.fspath(Path(place, "home")), "TMPDIR": os.fspath(Path(place, "tmp"))}


def _copied(source: Path, into: Path, environment: Mapping[str, str], remedy: str) -> Iterator[str]:
    """Copy a folder without credentials; gives the paths that were left out."""
    from clew.exchange.portable import Credentials

    credentials = Credentials.of_environment(environment)
    count = total = 0
    for here, folders, files in os.walk(source):
        inside = Path(here).relative_to(source)
        yield from (f"{inside / name}/" for name in folders if name in _FOLDERS)
        folders[:] = [name for name in folders if name not in _FOLDERS]
        (into / inside).mkdir(parents=True, exist_ok=True)
        linked = [name for name in folders if Path(here, name).is_symlink()]
        for name in [*files, *linked]:
            path, to = Path(here, name), into / inside / name
            seen = path.lstat()
            count, total = count + 1, total + seen.st_size
            if count > MANY or total > MOST or seen.st_size > LARGEST:
                told = f"--home {source} holds more than {MOST >> 20} MiB, a file of more than {LARGEST >> 20} MiB"
                raise BadInput(f"{told}, or more than {MANY:,} files", remedy=remedy)
            if stat.S_ISLNK(seen.st_mode):
                os.symlink(os.readlink(path), to)
            elif stat.S_ISREG(seen.st_mode):
                if name in _NAMES or str(inside / name).endswith(_ENDS) or credentials.first_in_file(path.read_bytes()):
                    yield str(inside / name)
                else:
                    shutil.copy2(path, to)
    for here, _, _ in os.walk(source):
        if (copy := into / Path(here).relative_to(source)).is_dir():
            shutil.copystat(here, copy)
