"""Doors of a sandboxed run: ports of its own loopback that lead to unix sockets of this machine, and to nothing else.

``sandbox/namespace.py`` makes them for ``Sandbox.run(doors=...)``. Nothing of ours runs beside the command: a process
of this machine (``sandbox/door_program.py``) enters the run's network namespace alone, listens there on 127.0.0.1, and
connects to the named sockets from where it came. The command sees an ordinary server. It cannot see that process,
which shares neither its processes nor its files, nor the socket's path, and no program has to be in the sandbox for it.
The process counts for none of the run's limits. It is one of its own, so that a command which opens all the connections
that it may takes no descriptor, memory or time from the caller. A door must never outlive its run.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from clew.core.errors import BadInput
from clew.sandbox.monitor import readable

PROGRAM = Path(__file__).with_name("door_program.py")
START = 30.0  # seconds in which the process has come to listen
END = 5.0  # seconds in which it has handed on what the run sent last
LONGEST = 107  # bytes that the path of a unix socket may have


def checked(doors: Mapping[int, Path]) -> dict[int, Path]:
    """The same doors, with whole paths.

    Raises:
        BadInput: a port is none, or a path is too long for a unix socket.
    """
    found = {port: Path(path).absolute() for port, path in doors.items()}
    for port, path in found.items():
        if not 0 < port < 1 << 16:
            raise BadInput(f"a door at port {port}", remedy="Name ports from 1 to 65535.")
        if len(os.fsencode(path)) > LONGEST or b"\0" in os.fsencode(path):
            problem = f"the path of a door's unix socket has {len(os.fsencode(path))} bytes"
            raise BadInput(problem, remedy=f"Put the socket where its path has at most {LONGEST}.")
    return found


class Doors:
    """The doors of one run. Made before the run, so that the process starts beside it; ``close`` ends the process.

    Without doors it does nothing.
    """

    def __init__(self, doors: Mapping[int, Path]) -> None:
        self._child: subprocess.Popen[bytes] | None = None
        if not doors:
            return
        self._told = json.dumps({port: os.fspath(path) for port, path in doors.items()}).encode()
        self._ours, theirs = socket.socketpair()
        with theirs:
            try:
                self._child = subprocess.Popen(
                    [sys.executable, "-I", "-S", os.fspath(PROGRAM)],
                    stdin=theirs.fileno(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                    env={}, cwd="/", start_new_session=True,
                )  # fmt: skip
            except BaseException:
                self._ours.close()
                raise

    def open(self, first: int) -> str:
        """Listen in the network of a run, which is that of its first process; what went wrong, empty for nothing."""
        if self._child is None:
            return ""
        try:
            with open(f"/proc/{first}/ns/net", "rb") as network:
                socket.send_fds(self._ours, [self._told], [network.fileno()])
            said = self._ours.recv(500) if readable([self._ours.fileno()], START) else b"no answer"
        except (BrokenPipeError, ConnectionResetError):
            said = b""
        except OSError as error:
            return str(error)
        return "" if said == b"ready" else said.decode(errors="replace") or "their process ended"

    def close(self) -> None:
        """End the process, when it has handed on what the run sent last."""
        if self._child is None:
            return
        self._ours.close()
        try:
            self._child.wait(END)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
        self._child = None
