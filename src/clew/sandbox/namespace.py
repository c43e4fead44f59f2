"""Runs one command in isolation: the command lines of bubblewrap, setpriv and prlimit, and the shell inside.

``Sandbox.run`` calls ``bubble`` (namespaces) or ``bare`` (rlimits alone). Nothing may be passed in that the order does
not name: no variable, no open file and no folder of this process.
"""

from __future__ import annotations

import functools
import json
import os
import shlex
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from clew.core.errors import BadInput, WorldError
from clew.sandbox import seccomp
from clew.sandbox.archives import collect
from clew.sandbox.doors import Doors
from clew.sandbox.monitor import PAGE, Bounds, Seen, Watched, cpu_clock, end, readable, watch
from clew.sandbox.room import INODE, Left, Room
from clew.sandbox.scratch import Scratch

WORK = "/box"
FOLDERS = (WORK, "/tmp", "/dev/shm")  # those that a run may write to
TAKEN = frozenset(
    ("", "usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "etc", "proc", "dev", "tmp", "box", "run")
)
SLACK = 256 << 20  # bytes of private memory that a process may have beyond twice the memory limit
SHOWN = ("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/alternatives", "/etc/localtime")
CERTIFICATES = ("/etc/ssl/certs", "/etc/ssl/openssl.cnf", "/etc/pki/tls/certs", "/etc/pki/ca-trust/extracted")
OVER = {
    "wall": "wall",
    "cancelled": "cancelled",
    "full": "disk",
    "shut": "doors",
}  # limits reached before the command began
MARK = "CLEW_ROOM"  # variable by which the processes of a run without namespaces are found


@dataclass(frozen=True, slots=True)
class Order:
    """One run, all of it settled: what to run, with which files, within which bounds, showing what, as whom."""

    argv: Sequence[str]
    packed: bytes
    stdin: bytes
    env: dict[str, str]
    keep: Sequence[str]
    wall: float
    cpu: float
    memory: int
    processes: int
    file_size: int
    disk: int
    open_files: int
    output: int
    readable: tuple[Path, ...]
    uid: int
    folder: Path | None = None  # of this machine, in the place of a fresh work folder
    doors: dict[int, Path] = field(default_factory=dict)  # unix sockets of this machine, by port of its loopback
    links: tuple[tuple[str, str], ...] = ()  # further paths, and the paths inside that they lead to
    told: Callable[[str, bytes], None] | None = None  # is given each piece of output as it comes

    def bounds(self) -> Bounds:
        streams = {"stdout": self.output, "stderr": self.output}
        return Bounds(self.wall, self.cpu, self.memory, self.processes, streams)


def script(order: Order, packed: str, stdin: str, work: str, last: str = "") -> str:
    """The shell inside: unpack, say so, wait for the word to go, and become the command.

    Descriptor 0 is a socket to the caller until then. Nothing of ours is left beside the command: no process, and no
    open file through which it could speak in our name.
    """
    lines = [f"cd {shlex.quote(work)}", "said=ready"]
    if order.packed:
        lines.append(f"tar -xf {shlex.quote(packed)} --no-same-owner 2>/dev/null || said=full")
    return "\n".join([*lines, "echo $said >&0", "read go || exit 1", f'exec {last} "$@" <{shlex.quote(stdin)}'])


def bounded(order: Order, processes: int | None) -> list[str]:
    """prlimit, and as root setpriv before it: the rest of the line runs unprivileged and within the kernel's bounds."""
    cpu = max(1, int(order.cpu + 0.999))
    # Memory that may be written counts, not address space: node and other runtimes reserve tens of GB and use little.
    line = ["prlimit", f"--cpu={cpu}:{cpu + 1}", f"--data={2 * order.memory + SLACK}", f"--fsize={order.file_size}"]
    line += [f"--nofile={order.open_files}", "--core=0", "--msgqueue=0", "--memlock=65536"]
    line.append("--sigpending=4096")  # timers count too
    if processes is not None:
        line.append(f"--nproc={processes}")
    if os.geteuid() == 0:
        who = [f"--reuid={order.uid}", f"--regid={order.uid}", "--clear-groups", "--inh-caps=-all", "--no-new-privs"]
        line = ["setpriv", *who, *line]
    return line


@functools.cache
def _system() -> tuple[str, ...]:
    """bwrap's words for the system's folders, as links where they are links."""
    words = ["--ro-bind", "/usr", "/usr"]
    for name in ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"):
        if os.path.islink(name):
            words += ["--symlink", os.readlink(name), name]
        elif os.path.isdir(name):
            words += ["--ro-bind", name, name]
    above = {str(path) for name in CERTIFICATES for path in Path(name).parents if os.path.exists(name)} - {"/", "/etc"}
    for name in sorted(above):  # made by bubblewrap, they would be closed to the command
        words += ["--perms", "0755", "--dir", name]
    for name in (*SHOWN, *CERTIFICATES):
        words += ["--ro-bind-try", name, name]
    return tuple(words)


def _namespaces() -> list[str]:
    words = ["bwrap", "--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try"]
    words += ["--new-session", "--die-with-parent", "--hostname", "sandbox"]
    if os.geteuid() == 0:  # keeps what setpriv needs, which then drops it; without root a user namespace holds the rest
        return [*words, "--cap-drop", "ALL", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    return [*words, "--unshare-user"]


def _data(content: bytes, open_fds: list[int]) -> str:
    """A descriptor, as text, from which these bytes can be read."""
    fd = os.memfd_create("clew")
    open_fds.append(fd)
    with os.fdopen(os.dup(fd), "wb") as file:
        file.write(content)
    os.lseek(fd, 0, os.SEEK_SET)
    return str(fd)


def fresh(order: Order) -> tuple[str, ...]:
    """The folders of a run that lie in memory and end with it."""
    return FOLDERS if order.folder is None else FOLDERS[1:]


def home(order: Order) -> str:
    """Where programs keep what is theirs: in a work folder that stays, they would leave it among the user's files."""
    return WORK if order.folder is None else "/tmp"


def _line(order: Order, status: int, open_fds: list[int]) -> list[str]:
    """The whole command line of a run under bubblewrap."""
    words = [*_namespaces(), "--perms", "0755", "--dir", "/etc", *_system()]
    words += ["--proc", "/proc", "--dev", "/dev"]
    for place in fresh(order):
        words += ["--perms", "1777", "--size", str(order.disk), "--tmpfs", place]
    if order.folder is not None:
        words += ["--bind", str(order.folder), WORK]
    for path in order.readable:
        if any(path != other and path.is_relative_to(other) for other in (Path("/usr"), *order.readable)):
            continue  # there already
        for above in reversed(path.parents[:-1]):  # of a hidden folder only the way is there, and may be walked
            if str(above) != "/tmp":
                words += ["--perms", "0755", "--dir", str(above)]
        words += ["--ro-bind", str(path), str(path)]
    for link, target in order.links:
        words += ["--symlink", target, link]
    who = f"sandbox:x:{order.uid}:{order.uid}::{home(order)}:/bin/sh\n".encode()
    group = f"sandbox:x:{order.uid}:\n".encode()
    for content, place in ((who, "/etc/passwd"), (group, "/etc/group"), (b"127.0.0.1 localhost\n", "/etc/hosts")):
        words += ["--perms", "0444", "--ro-bind-data", _data(content, open_fds), place]
    if order.packed:
        words += ["--perms", "0444", "--ro-bind-data", _data(order.packed, open_fds), "/run/files.tar"]
    if order.stdin:
        words += ["--perms", "0444", "--ro-bind-data", _data(order.stdin, open_fds), "/run/stdin"]
    words += ["--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/"]
    words += ["--seccomp", _data(seccomp.program(), open_fds), "--json-status-fd", str(status), "--"]
    own = int(os.geteuid() != 0)  # in a user namespace its first process counts
    inside = script(order, "/run/files.tar", "/run/stdin" if order.stdin else "/dev/null", WORK)
    return [*words, *bounded(order, order.processes + own), "sh", "-c", inside, "sh", *order.argv]


def _environment(order: Order, home: str, tmp: str) -> dict[str, str]:
    places = [str(path / "bin") for path in order.readable if (path / "bin").is_dir()]
    path = ":".join([*places, "/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin"])
    return {"PATH": path, "HOME": home, "TMPDIR": tmp, "LANG": "C.UTF-8", **order.env}


def _streams(uid: int) -> tuple[dict[str, int], dict[str, int]]:
    """Pipes for stdout and stderr: read ends, write ends. The command may open its ends anew."""
    reads, writes = {}, {}
    for name in ("stdout", "stderr"):
        reads[name], writes[name] = os.pipe()
        if os.geteuid() == 0:
            os.fchown(writes[name], uid, uid)
    return reads, writes


def _start(line: list[str], env: dict[str, str], order: Order, others: Sequence[int], cwd: str | Path) -> _Started:
    """The process of a run, its streams, and our end of the socket on which its shell waits."""
    ours, theirs = socket.socketpair()
    reads, writes = _streams(order.uid)
    try:
        child = subprocess.Popen(
            line,
            stdin=theirs.fileno(),
            stdout=writes["stdout"],
            stderr=writes["stderr"],
            pass_fds=tuple(others),
            env=env,
            cwd=cwd,
            start_new_session=True,
        )
    except BaseException:
        for fd in (ours.detach(), *reads.values()):
            os.close(fd)
        raise
    finally:
        for fd in (theirs.detach(), *writes.values()):
            os.close(fd)
    return _Started(child, reads, ours, time.monotonic())


class _Started(NamedTuple):
    child: subprocess.Popen[bytes]
    reads: dict[str, int]
    ours: socket.socket
    when: float

    def ready(self, order: Order, cancel: int | None) -> str:
        """What the shell says when its files are unpacked: ``ready`` or ``full``; else why it did not come to that,
        empty where it ended."""
        found = readable([self.ours.fileno(), *([cancel] if cancel is not None else [])], order.wall)
        if self.ours.fileno() in found:
            return self.ours.recv(16).decode(errors="replace").strip()
        return "cancelled" if found else "wall"


def bubble(order: Order, cancel: int | None) -> tuple[Seen, int, Left]:
    """Run under bubblewrap; what was seen, the exit status, and what was kept.

    Raises:
        WorldError: bubblewrap could not make the namespaces, or a door could not be opened. BadInput: the files are no
        whole tar.
    """
    with closing(Doors(order.doors)) as doors:
        return _bubble(order, cancel, doors)


def _bubble(order: Order, cancel: int | None, doors: Doors) -> tuple[Seen, int, Left]:
    open_fds: list[int] = []
    told, status = os.pipe()
    try:
        line, env = _line(order, status, open_fds), _environment(order, home(order), "/tmp")
        run = _start(line, env, order, (status, *open_fds), "/")
    except BaseException:
        os.close(told)
        raise
    finally:
        for fd in (status, *open_fds):
            os.close(fd)
    log = _Log(told)

    def members() -> list[Path]:
        root = Path(f"/proc/{log.first()}/root/proc")
        with suppress(OSError):
            return [root / name for name in os.listdir(root) if name.isdigit() and name != "1"]
        return []

    def kill() -> None:
        end([log.first() or run.child.pid])  # with a namespace's first process go all of its others

    try:
        said = run.ready(order, cancel)
        first = log.first() if said in ("ready", "full") else None
        with closing(Room(first, fresh(order), order.disk, order.memory, order.folder)) as room:
            shut = doors.open(first) if said == "ready" and first is not None else ""
            said = "shut" if shut else said
            if said == "ready":
                run.ours.send(b"go\n")
            run.ours.close()
            call = members, kill, room.reached
            watched = Watched(run.child, run.reads, run.when, *call, room.clocks, cancel, order.told)
            seen = watch(watched, order.bounds(), OVER.get(said, ""))
            if shut:
                raise WorldError(f"the doors of a sandboxed command could not be opened: {shut}")
            if said == "full" and not room.full():
                raise _torn(order)
            code = log.code()
            seen.limit = seen.limit or room.ended()
            left = room.left([] if seen.limit else order.keep)
    finally:
        os.close(told)
    if code is None and not seen.limit:
        if log.first() and run.child.returncode:
            code = 128 + signal.SIGKILL  # ended from outside
        else:
            error = bytes(seen.streams["stderr"]).decode(errors="replace").strip()
            problem = f"the sandbox's namespaces could not be made: {error or run.child.returncode}"
            remedy = "Namespaces must be allowed on this machine; Sandbox(isolation='rlimits') is the weaker way."
            raise WorldError(problem, remedy=remedy)
    return seen, code if code is not None else -1, left


def _torn(order: Order) -> BadInput:
    problem = "the files of a sandboxed command cannot be unpacked"
    return BadInput(problem, remedy=f"Give a whole tar, and no file over Limits.file_size ({order.file_size} bytes).")


class _Log:
    """What bubblewrap tells of itself: the pid of the namespace's first process, at the end the exit status."""

    def __init__(self, fd: int) -> None:
        self.fd, self.text = fd, b""

    def _field(self, name: str) -> int | None:
        while readable([self.fd], 0) and (piece := os.read(self.fd, PAGE)):
            self.text += piece
        for line in self.text.splitlines():
            with suppress(ValueError):
                found = json.loads(line)
                if name in found:
                    return int(found[name])
        return None

    def first(self) -> int | None:
        return self._field("child-pid")

    def code(self) -> int | None:
        return self._field("exit-code")


def bare(order: Order, cancel: int | None) -> tuple[Seen, int, Left]:
    """Run with rlimits alone, in a folder that is deleted after; processes are found by their uid or a variable."""
    with Scratch("room") as folder:
        work, tmp = folder / "work", folder / "tmp"
        work.mkdir()
        tmp.mkdir()
        (folder / "files.tar").write_bytes(order.packed)
        (folder / "stdin").write_bytes(order.stdin)
        if os.geteuid() == 0:
            for path in (folder, work, tmp, folder / "files.tar", folder / "stdin"):
                os.chown(path, order.uid, order.uid)
        mark = folder.name
        env = _environment(order, str(work), str(tmp)) | {MARK: mark}
        # A caller that is killed ends nothing here; this does.
        last = f"timeout -s KILL {order.wall + 5:.0f}"
        inside = script(order, str(folder / "files.tar"), str(folder / "stdin"), str(work), last)
        run = _start([*bounded(order, None), "sh", "-c", inside, "sh", *order.argv], env, order, (), folder)

        def members() -> list[Path]:
            return _marked(order.uid, mark)

        def kill() -> None:
            for _ in range(20):  # what forks while it is being looked for is found at the next look
                found = {int(task.name) for task in members()} | (
                    {run.child.pid} if run.child.returncode is None else set()
                )
                end(found)
                if found <= {run.child.pid}:
                    break

        clocks = [clock for clock in [cpu_clock(run.child.pid)] if clock is not None]
        try:
            said = run.ready(order, cancel)
            if said == "ready":
                run.ours.send(b"go\n")
            run.ours.close()
            watched = Watched(run.child, run.reads, run.when, members, kill, str, clocks, cancel, order.told)
            seen = watch(watched, order.bounds(), OVER.get(said, ""))
            if said == "full":
                raise _torn(order)
        finally:
            kill()
            for clock in clocks:
                os.close(clock)
        opened = os.open(work, os.O_RDONLY | os.O_DIRECTORY)
        try:
            files, refused = collect(opened, [] if seen.limit else order.keep, order.disk, order.disk // INODE)
        finally:
            os.close(opened)
        code = run.child.returncode or 0
        return seen, 128 - code if code < 0 else code, Left(files, refused, False)


def _marked(uid: int, mark: str) -> list[Path]:
    """Processes of a run without namespaces: those of its uid as root, else those with its mark in the environment."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            with suppress(OSError):
                task = Path("/proc", name)
                if os.geteuid() == 0:
                    inside = task.stat().st_uid == uid
                else:
                    inside = f"{MARK}={mark}\0".encode() in (task / "environ").read_bytes()
                if inside:
                    found.append(task)
    return found
