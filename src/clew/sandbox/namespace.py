"""Runs one command in isolation: the command lines of bubblewrap, setpriv and prlimit, and the shell inside.

``Sandbox.run`` calls ``bubble`` (namespaces) or ``bare`` (rlimits alone). Nothing may be passed in that the order does
not name: no variable, no open file and no folder of this process.
"""

from __future__ import annotations

import functools
import json
import os
import select
import shlex
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from clew.core.errors import WorldError
from clew.sandbox import seccomp
from clew.sandbox.monitor import PAGE, Bounds, Seen, end, watch

WORK = "/box"
SLACK = 256 << 20  # bytes of address space a process may have beyond twice the memory limit
SHOWN = ("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/alternatives", "/etc/localtime")
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

    def bounds(self) -> Bounds:
        streams = {"stdout": self.output, "stderr": self.output, "out": 2 * self.disk + (1 << 20)}
        return Bounds(self.wall, self.cpu, self.memory, self.processes, streams)


def script(order: Order, packed: str, stdin: str, work: str) -> str:
    """The shell inside: unpack, run, report the space left, pack what is kept. Descriptor 0 leads out."""
    lines = [f"cd {shlex.quote(work)}"]
    if order.packed:
        lines.append(f"tar -xf {shlex.quote(packed)} --no-same-owner 2>/dev/null || {{ echo full >&0; exit 1; }}")
    # The caller ends the run; should it be killed in the moment before bubblewrap follows its parent, this does.
    lines += [f'timeout -s KILL {order.wall + 5:.0f} "$@" <{shlex.quote(stdin)}', "code=$?"]
    lines.append('echo $(stat -f -c %a . "$TMPDIR") >&0')
    if order.keep:
        names = " ".join(shlex.quote(f"./{name}") for name in order.keep)
        lines.append(f"tar -cf - {names} >&0 2>/dev/null")
    return "\n".join([*lines, "exit $code"])


def bounded(order: Order, processes: int | None) -> list[str]:
    """prlimit, and as root setpriv before it: the rest of the line runs unprivileged and within the kernel's bounds."""
    cpu = max(1, int(order.cpu + 0.999))
    line = ["prlimit", f"--cpu={cpu}:{cpu + 1}", f"--as={2 * order.memory + SLACK}", f"--fsize={order.file_size}"]
    line += [f"--nofile={order.open_files}", "--core=0", "--msgqueue=0", "--memlock=65536"]
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
    for name in SHOWN:
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


def _line(order: Order, status: int, open_fds: list[int]) -> list[str]:
    """The whole command line of a run under bubblewrap."""
    words = [*_namespaces(), "--perms", "0755", "--dir", "/etc", *_system()]
    words += ["--proc", "/proc", "--dev", "/dev"]
    for place in (WORK, "/tmp", "/dev/shm"):
        words += ["--perms", "1777", "--size", str(order.disk), "--tmpfs", place]
    for path in order.readable:
        for above in reversed(path.parents[:-1]):  # of a hidden folder only the way is there, and may be walked
            if str(above) != "/tmp":
                words += ["--perms", "0755", "--dir", str(above)]
        words += ["--ro-bind", str(path), str(path)]
    who = f"sandbox:x:{order.uid}:{order.uid}::{WORK}:/bin/sh\n".encode()
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
    places = [str(path / "bin") for path in reversed(order.readable) if (path / "bin").is_dir()]
    path = ":".join([*places, "/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin"])
    return {"PATH": path, "HOME": home, "TMPDIR": tmp, "LANG": "C.UTF-8", **order.env}


def _streams(uid: int) -> tuple[dict[str, int], dict[str, int]]:
    """Pipes for stdout, stderr and what is handed out: read ends, write ends. The command may open its ends anew."""
    reads, writes = {}, {}
    for name in ("stdout", "stderr", "out"):
        reads[name], writes[name] = os.pipe()
        if os.geteuid() == 0:
            os.fchown(writes[name], uid, uid)
    return reads, writes


def bubble(order: Order, cancel: int | None) -> tuple[Seen, int]:
    """Run under bubblewrap; what was seen, and the exit status.

    Raises:
        WorldError: bubblewrap could not make the namespaces.
    """
    open_fds: list[int] = []
    told, status = os.pipe()
    reads, writes = _streams(order.uid)
    try:
        line, env = _line(order, status, open_fds), _environment(order, WORK, "/tmp")
        stdin, out, err = (writes[end] for end in ("out", "stdout", "stderr"))
        child = subprocess.Popen(
            line, stdin=stdin, stdout=out, stderr=err, pass_fds=(status, *open_fds), env=env, cwd="/"
        )
    finally:
        for fd in (status, *writes.values(), *open_fds):
            os.close(fd)
    log = _Log(told)

    def members(seen: Seen) -> list[Path]:
        first = log.first()
        if not first:
            return []
        root = Path(f"/proc/{first}/root/proc")
        with suppress(OSError):  # until the namespaces have a /proc of their own, this one is seen there
            if root.stat().st_dev != Path("/proc").stat().st_dev:
                return [root / name for name in os.listdir(root) if name.isdigit() and name != "1"]
        return []

    def kill(seen: Seen) -> None:
        end([log.first() or child.pid])  # with a namespace's first process go all of its others

    try:
        seen = watch(child, reads, order.bounds(), members, kill, cancel)
        code = log.code()
    finally:
        os.close(told)
    if code is None and not seen.limit:
        if log.first() and child.returncode:
            code = 128 + signal.SIGKILL  # ended from outside
        else:
            said = bytes(seen.streams["stderr"]).decode(errors="replace").strip()
            remedy = "Namespaces must be allowed on this machine; Sandbox(isolation='rlimits') is the weaker way."
            raise WorldError(f"the sandbox's namespaces could not be made: {said or child.returncode}", remedy=remedy)
    return seen, code if code is not None else -1


class _Log:
    """What bubblewrap tells of itself: the pid of the namespace's first process, at the end the exit status."""

    def __init__(self, fd: int) -> None:
        self.fd, self.text = fd, b""

    def _field(self, name: str) -> int | None:
        while select.select([self.fd], [], [], 0)[0] and (piece := os.read(self.fd, PAGE)):
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


def bare(order: Order, cancel: int | None) -> tuple[Seen, int]:
    """Run with rlimits alone, in a folder that is deleted after; processes are found by their uid or a variable."""
    folder = Path(tempfile.mkdtemp(prefix="clew-room-"))
    try:
        work, tmp = folder / "work", folder / "tmp"
        work.mkdir()
        tmp.mkdir()
        (folder / "files.tar").write_bytes(order.packed)
        (folder / "stdin").write_bytes(order.stdin)
        if os.geteuid() == 0:
            for path in (folder, work, tmp, folder / "files.tar", folder / "stdin"):
                os.chown(path, order.uid, order.uid)
        mark = folder.name
        reads, writes = _streams(order.uid)
        env = _environment(order, str(work), str(tmp)) | {MARK: mark}
        inside = script(order, str(folder / "files.tar"), str(folder / "stdin"), str(work))
        line = [*bounded(order, None), "sh", "-c", inside, "sh", *order.argv]
        stdin, out, err = (writes[end] for end in ("out", "stdout", "stderr"))
        child = subprocess.Popen(line, stdin=stdin, stdout=out, stderr=err, env=env, cwd=folder, start_new_session=True)
        for fd in writes.values():
            os.close(fd)

        def members(seen: Seen) -> list[Path]:
            return _marked(order.uid, mark)

        def kill(seen: Seen) -> None:
            for _ in range(20):  # what forks while it is being looked for is found at the next look
                found = {int(task.name) for task in members(seen)} | (
                    {child.pid} if child.returncode is None else set()
                )
                end(found)
                if found <= {child.pid}:
                    break

        try:
            seen = watch(child, reads, order.bounds(), members, kill, cancel)
        finally:
            kill(Seen())
        code = child.returncode or 0
        return seen, 128 - code if code < 0 else code
    finally:
        shutil.rmtree(folder, ignore_errors=True)


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
