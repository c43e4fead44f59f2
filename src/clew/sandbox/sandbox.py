"""A sandbox for untrusted code: bubblewrap, rlimits and a system call filter; fresh namespaces for each run.

The verifier gate and the kernel tuner call it. A run sees the system's programs (read-only), the interpreter, an empty
work folder and /tmp; it sees no network, no home folder and no other process. Nothing of a run may outlive it: its
processes share a pid namespace that ends with it, and its files lie in memory. As root the command runs under an
unprivileged real uid of its own, since the kernel binds no process limit to root.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import os
import re
import shlex
import shutil
import signal
import stat
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Literal

from clew.core.errors import BadInput, MissingExtra, WorldError
from clew.sandbox import namespace
from clew.sandbox.archives import pack, safe
from clew.sandbox.doors import checked
from clew.sandbox.monitor import PAGE, Seen
from clew.sandbox.room import Left

MIB = 1 << 20
Isolation = Literal["bubblewrap", "rlimits"]
TOOLS = {
    "bubblewrap": ("bwrap", "prlimit", "sh", "tar"),
    "rlimits": ("prlimit", "sh", "tar", "timeout"),
}
MET = {128 + signal.SIGXCPU: "cpu", 128 + signal.SIGXFSZ: "file_size"}  # limits that a command met at the kernel
LONG = 60.0  # seconds
INSTALL = "Run apt-get install bubblewrap util-linux (dnf, pacman: the same names)."
_uids = itertools.count(os.getpid() * 37)


@dataclass(frozen=True, slots=True)
class Limits:
    """What a run may use. A bound that is reached ends the run.

    wall, cpu: seconds, CPU summed over its processes. memory: bytes resident in all of them together, looked at every
    10 ms, and after a second at each hundredth of the run's age, at most every 100 ms; the kernel holds each single one
    below twice that and 256 MiB of private memory. processes: threads count.
    file_size: bytes of one file. disk: bytes of the work folder, and of /tmp. open_files: of one process. output: bytes
    of stdout, and of stderr.
    """

    wall: float = 10.0
    cpu: float = 10.0
    memory: int = 512 * MIB
    processes: int = 64
    file_size: int = 32 * MIB
    disk: int = 64 * MIB
    open_files: int = 256
    output: int = MIB

    def __post_init__(self) -> None:
        for bound in fields(self):
            value = getattr(self, bound.name)
            if not 0 < value < 2**60:
                raise BadInput(f"limit {bound.name} is {value}", remedy="Every limit is a positive, finite number.")


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a run ended.

    code: exit status, 128 + n where signal n ended the command; None where it was ended for reaching a limit. limit:
    the limit it reached, empty for none; with a code: one that it met and went on (``disk``: no space was left;
    ``file_size``, ``cpu``: the kernel's signal ended it). stdout, stderr: what arrived, up to the limit. files: what
    was asked for with ``keep``, by path in the work folder; ``refused``: what of it was not taken out, and why.
    peak: bytes of memory at the fullest look. isolation: what held it.
    """

    code: int | None
    limit: str
    stdout: bytes
    stderr: bytes
    files: Mapping[str, bytes]
    refused: tuple[str, ...]
    seconds: float
    cpu: float
    peak: int
    isolation: Isolation

    @property
    def ok(self) -> bool:
        """Exit status 0, and no limit was met."""
        return self.code == 0 and not self.limit

    def __str__(self) -> str:
        if self.code is None:
            return f"ended: limit {self.limit} reached after {self.seconds:.2f} s"
        met = f", met the limit {self.limit}" if self.limit else ""
        return ("ok" if self.ok else f"exit {self.code}{met}") + f" after {self.seconds:.2f} s"


class Sandbox:
    """Runs commands, each in fresh namespaces and folders.

    Args:
        limits: of every run, where it names none of its own.
        readable: folders and files of this machine that are visible at their own path, read-only, with the Python below
            a virtual environment; programs in their ``bin`` are found in this order, before the system's. Default: the
            Python environment and installation of this process.
        links: further paths inside, by path the one that it leads to, as ``{"/app": "/box"}``; bubblewrap only.
        isolation: ``rlimits`` is weaker and has to be asked for: limits on CPU, memory, time, file size and output, a
            folder of its own that is deleted after; but the network, the file system as this user may use it and other
            processes are within reach, and neither disk nor processes are bounded.

    Raises:
        MissingExtra: bubblewrap is not installed. WorldError: this machine cannot enforce the limits.
    """

    def __init__(
        self,
        limits: Limits | None = None,
        readable: Sequence[str | Path] | None = None,
        isolation: Isolation = "bubblewrap",
        links: Mapping[str, str] | None = None,
    ) -> None:
        if isolation not in TOOLS:
            raise BadInput(f"no isolation is called {isolation!r}", remedy=f"Known: {', '.join(TOOLS)}.")
        self.limits, self.isolation = limits or Limits(), isolation
        self.readable, self.links = tuple(_visible(readable)), tuple(sorted((links or {}).items()))
        for path, _ in self.links:
            hidden = any(one.is_relative_to(path) for one in self.readable)
            if not path.startswith("/") or path.count("/") != 1 or path[1:] in namespace.TAKEN or hidden:
                raise BadInput(f"{path} cannot be a link in a sandbox", remedy="Name a folder of the root, as /app.")
        for tool in (*TOOLS[isolation], *(("setpriv",) if os.geteuid() == 0 else ())):
            if shutil.which(tool) is None:
                raise MissingExtra(f"{tool} is not installed, which the sandbox is made of", remedy=INSTALL)
        if isolation == "bubblewrap":
            _prove(os.geteuid())

    def run(
        self,
        command: Sequence[str] | str,
        files: Mapping[str, bytes | str | Path] | bytes | None = None,
        *,
        limits: Limits | None = None,
        stdin: bytes | str = b"",
        env: Mapping[str, str] | None = None,
        keep: Sequence[str] = (),
        folder: Path | None = None,
        doors: Mapping[int, Path] | None = None,
        on_output: Callable[[str, bytes], None] | None = None,
        cancel: int | None = None,
    ) -> Verdict:
        """Run a command (a string goes to ``sh -c``) in a fresh work folder that holds ``files``.

        Args:
            files: contents, text or paths by relative path; or all of them as a tar of ``archives.pack``.
            limits: instead of the sandbox's.
            stdin: what it reads.
            env: variables beside PATH, HOME, TMPDIR and LANG; nothing of this process's environment is passed on.
            keep: relative paths of files or folders that are handed back; ``.`` is all of them.
            folder: one of this machine that the command works in and changes, in place of a fresh one; ``own_folder``
                gives it over first. HOME is then /tmp, so that programs leave nothing of theirs in it. ``Limits.disk``
                bounds what it holds.
            doors: unix stream sockets of this machine by port: 127.0.0.1:PORT inside leads there. A connection is reset
                where nobody listens at the socket; 128 are open at a time, and further ones wait.
            on_output: is given ``stdout`` or ``stderr`` and each piece of it as it comes, in the thread of the run; an
                error of it ends the run.
            cancel: a descriptor that becomes readable when the run shall be given up.

        Raises:
            BadInput: a name leads outside, or the files are larger than the work folder, or a door is none.
            WorldError: the namespaces could not be made, or a door could not be opened.
        """
        bounds, argv = limits or self.limits, ["sh", "-c", command] if isinstance(command, str) else list(command)
        if not argv or any("\0" in part for part in argv):
            raise BadInput("the command is empty or holds a NUL", remedy="Give a program and its arguments.")
        if folder is not None and (files or keep or self.isolation != "bubblewrap"):
            raise BadInput("a command in a folder of this machine", remedy="Needs bubblewrap, and no files or keep.")
        if doors and self.isolation != "bubblewrap":
            raise BadInput("doors of a command without a network of its own", remedy="Doors need bubblewrap.")
        packed = files if isinstance(files, bytes) else pack(files) if files else b""
        if len(packed) > bounds.disk:
            remedy = "Give fewer files, or raise Limits.disk."
            raise BadInput(f"the files take {len(packed)} bytes, the work folder has {bounds.disk}", remedy=remedy)
        wanted = [name if name == "." else safe(name) for name in keep]
        order = namespace.Order(
            argv, packed, stdin.encode() if isinstance(stdin, str) else stdin, dict(env or {}), wanted,
            bounds.wall, bounds.cpu, bounds.memory, bounds.processes, bounds.file_size, bounds.disk,
            bounds.open_files, bounds.output, self.readable, _uid() if folder is None else _owner(folder), folder,
            checked(doors or {}), self.links, on_output,
        )  # fmt: skip
        seen, code, left = self._performed(order, cancel)
        limit = seen.limit or ("disk" if left.full else MET.get(code, ""))
        out, err = bytes(seen.streams["stdout"]), bytes(seen.streams["stderr"])
        ended = None if seen.limit else code
        used = seen.seconds, seen.cpu, seen.peak
        return Verdict(ended, limit, out, err, left.files, left.refused, *used, self.isolation)

    def _performed(self, order: namespace.Order, cancel: int | None) -> tuple[Seen, int, Left]:
        if self.isolation != "bubblewrap":
            return namespace.bare(order, cancel)
        performed = namespace.bubble(order, cancel)
        with _lock:
            _spent[0] += performed[0].cpu
        return performed

    async def arun(self, command: Sequence[str] | str, files: Mapping[str, bytes | str | Path] | bytes | None = None,
                   *, limits: Limits | None = None, stdin: bytes | str = b"", env: Mapping[str, str] | None = None,
                   keep: Sequence[str] = (), folder: Path | None = None,
                   doors: Mapping[int, Path] | None = None,
                   on_output: Callable[[str, bytes], None] | None = None) -> Verdict:  # fmt: skip
        """As ``run``, in a thread; a cancelled task ends the run before it returns.

        A run that may take longer than ``LONG`` seconds has a thread of its own, so that many agents at work leave the
        event loop's few threads to others.
        """
        read, write = os.pipe()
        try:
            how = functools.partial(self.run, limits=limits, stdin=stdin, env=env, keep=keep, folder=folder)
            job = functools.partial(how, command, files, doors=doors, on_output=on_output, cancel=read)
            pool = _long if (limits or self.limits).wall > LONG else None
            work = asyncio.ensure_future(asyncio.get_running_loop().run_in_executor(pool, job))
            try:
                return await asyncio.shield(work)
            except asyncio.CancelledError:
                os.write(write, b"x")
                await asyncio.wait([work])
                raise
        finally:
            os.close(read)
            os.close(write)

    def __repr__(self) -> str:
        return f"Sandbox(isolation={self.isolation!r})"


_long = ThreadPoolExecutor(4096, "clew-sandbox")  # starts a thread where none is idle
_spent, _lock = [0.0], threading.Lock()


def spent() -> float:
    """CPU-seconds of all commands that this process has run under bubblewrap: the kernel does not count them among its
    children's, since they are not waited for by it."""
    return _spent[0]


def _python() -> list[Path]:
    """The Python of this process. Clew itself too, where it was installed to be edited: every pytest of that
    environment loads its plug-in."""
    return [Path(sys.prefix), Path(sys.base_prefix), Path(__file__).parents[1]]


def _visible(readable: Sequence[str | Path] | None) -> list[Path]:
    """Folders to show, in the order in which their programs are found: as given, and then the Pythons that virtual
    environments among them were made of.

    Raises:
        BadInput: a path does not exist, or would show everything.
    """
    chosen = [Path(p).expanduser().absolute() for p in (readable if readable is not None else _python())]
    for path in chosen:
        if path == Path("/") or not path.exists():
            raise BadInput(f"{path} cannot be shown in a sandbox", remedy="Name folders or files that exist.")
    return [*dict.fromkeys([*chosen, *(base for path in chosen for base in _base(path))])]


def _base(folder: Path) -> list[Path]:
    """The Python that a virtual environment was made of, where that is none of the system's nor the home folder."""
    with suppress(OSError, UnicodeDecodeError):
        told = re.search(r"^home *= *(/\S.*?) *$", (folder / "pyvenv.cfg").read_text()[:4096], re.MULTILINE)
        base = Path(told[1]).parent if told else Path("/usr")
        wide = base.is_relative_to("/usr") or Path.home().is_relative_to(base)
        if not wide and any(base.glob("bin/python3*")):
            return [base]
    return []


def _uid() -> int:
    """As root: a uid that nobody has, of those which systemd gives to services for their lifetime; else one's own."""
    return 61184 + next(_uids) % 4336 if os.geteuid() == 0 else os.geteuid()


def own_folder(folder: Path) -> None:
    """Give a folder and all in it to the user that commands of a sandbox run as, so that they can change it.

    As root this is an unprivileged uid; for others it is themselves, and nothing is done. No link is followed.
    """
    if os.geteuid() != 0:
        return
    uid = _uid()
    os.chown(folder, uid, uid)
    for place, folders, files, fd in os.fwalk(folder, topdown=False, follow_symlinks=False):
        del place
        for name in (*folders, *files):  # a link to a folder is named among the folders
            os.chown(name, uid, uid, dir_fd=fd, follow_symlinks=False)
        os.fchown(fd, uid, uid)


def _owner(folder: Path) -> int:
    """The uid under which a command changes a folder.

    Raises:
        BadInput: it belongs to root or to somebody else.
    """
    seen = folder.lstat()
    if not stat.S_ISDIR(seen.st_mode) or seen.st_uid == 0 or (os.geteuid() != 0 and seen.st_uid != os.geteuid()):
        raise BadInput(
            f"{folder} is not a folder that a sandbox may change", remedy="Give it over by own_folder first."
        )
    return seen.st_uid


@functools.cache
def _prove(uid: int) -> None:
    """Once a process: what the kernel says of a run's bounds, from within.

    Raises:
        WorldError: a bound does not hold.
    """
    limits = Limits(wall=20.0, processes=7, open_files=31, file_size=MIB)
    sandbox = object.__new__(Sandbox)
    sandbox.limits, sandbox.readable, sandbox.links, sandbox.isolation = limits, (), (), "bubblewrap"
    verdict = sandbox.run("(cat /proc/self/status /proc/self/limits; stat -f -c 'Size %S %b' . /tmp /dev/shm)")
    text = verdict.stdout.decode(errors="replace")
    said = [" ".join(line.split()) for line in text.splitlines()]
    uids = next((line.split()[1:] for line in said if line.startswith("Uid:")), ["0"])
    wanted = {
        "system call filter": "Seccomp: 2" in said,
        "no new privileges": "NoNewPrivs: 1" in said,
        "no capabilities": "CapEff: 0000000000000000" in said and "CapPrm: 0000000000000000" in said,
        "an unprivileged uid": "0" not in uids,
        "processes": any(line.startswith(f"Max processes {7 + bool(uid)} {7 + bool(uid)} ") for line in said),
        "open files": any(line.startswith("Max open files 31 31 ") for line in said),
        "file size": any(line.startswith(f"Max file size {MIB} {MIB} ") for line in said),
        "disk": sum(line == f"Size {PAGE} {limits.disk // PAGE}" for line in said) == 3,
    }
    if broken := [name for name, holds in wanted.items() if not holds]:
        error = shlex.quote(verdict.stderr.decode(errors="replace")[:200])
        remedy = "A kernel from 5.14 with namespaces is needed; Sandbox(isolation='rlimits') is the weaker way."
        raise WorldError(f"the sandbox cannot enforce: {', '.join(broken)} ({verdict}, {error})", remedy=remedy)
