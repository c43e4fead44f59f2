"""Program: listens on loopback ports in a sandbox's network and leads each connection to a unix socket outside of it.

``sandbox/doors.py`` starts one for each run that has doors, as ``python -I -S door_program.py``, with a socket as its
standard input. There it takes the paths by port as JSON and a descriptor of the network namespace, enters it, listens,
and answers ``ready`` or what went wrong. When that socket is closed it hands on what the run has sent and ends.

It imports nothing but the standard library, and must never open, run or connect to anything but the named sockets.
Bytes are handed on as they come and kept nowhere: what is held is bounded by ``MOST`` connections of two ``PIECE``.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import selectors
import socket
import struct
import time
from contextlib import suppress

MOST = 128  # connections at a time; further ones wait until one has ended
PIECE = 1 << 16  # bytes read at once, and the size asked for each buffer of a connection's socket
TURN = 16  # pieces of one connection before others have their turn
WAIT = 0.05  # seconds between two tries where the outside takes no further connection
PATIENCE = 30.0  # seconds of such tries
LAST = 1.0  # seconds in which what a run sent before its end is handed on
NEW_USER, NEW_NET, OWNER = 0x10000000, 0x40000000, 0xB701  # CLONE_NEWUSER, CLONE_NEWNET, NS_GET_USERNS


def enter(net: int) -> None:
    """Go over to a network namespace, and first to the user namespace that it belongs to, where this is another.

    Raises:
        OSError: the kernel does not allow it.
    """
    call = ctypes.CDLL(None, use_errno=True).setns
    own, owner = os.stat("/proc/self/ns/user"), fcntl.ioctl(net, OWNER)
    for fd, kind in ((owner, NEW_USER), (net, NEW_NET)):
        there = os.fstat(fd)
        if (there.st_dev, there.st_ino) != (own.st_dev, own.st_ino) and call(fd, kind) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    os.close(owner)


def listening(port: int) -> socket.socket:
    """A listening socket whose connections have small buffers and hand on small pieces at once.

    Raises:
        OSError: the port is taken.
    """
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
        server.setsockopt(socket.SOL_SOCKET, option, PIECE)
    server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    server.bind(("127.0.0.1", port))
    server.listen(MOST)
    server.setblocking(False)
    return server


class Pair:
    """A connection from within and its other half outside. Side 0 is within; ``held[side]`` came from that side."""

    def __init__(self, within: socket.socket, path: str) -> None:
        self.path, self.until = path, time.monotonic() + PATIENCE
        self.ends = [within]
        self.held = [memoryview(b""), memoryview(b"")]
        self.done = [False, False]  # nothing more comes from that side

    def connected(self) -> bool:
        """Whether the outside has taken the connection; False where it has no room for it yet.

        Raises:
            OSError: nobody is there, or the outside had no room for ``PATIENCE`` seconds.
        """
        outside = socket.socket(socket.AF_UNIX)
        try:
            outside.setblocking(False)
            outside.connect(self.path)
        except BlockingIOError:
            outside.close()
            if time.monotonic() > self.until:
                raise
            return False
        except OSError:
            outside.close()
            raise
        self.ends.append(outside)
        return True

    def move(self, side: int) -> None:
        """Hand on what came from a side, and its end, as far as that goes without waiting."""
        source, target = self.ends[side], self.ends[1 - side]
        with suppress(BlockingIOError):
            for _ in range(TURN):
                if not self.held[side]:
                    if self.done[side]:
                        return
                    self.held[side] = memoryview(source.recv(PIECE))
                    if not self.held[side]:
                        self.done[side] = True
                        target.shutdown(socket.SHUT_WR)
                        return
                self.held[side] = self.held[side][target.send(self.held[side]) :]

    def awaited(self, side: int) -> int:
        """The events of a side's socket on which the pair waits."""
        read = 0 if self.done[side] or self.held[side] else selectors.EVENT_READ
        return read | (selectors.EVENT_WRITE if self.held[1 - side] else 0)

    def owed(self) -> bool:
        """Whether something from within may still have to be handed on."""
        return not self.done[0] or bool(self.held[0])

    def over(self) -> bool:
        return all(self.done) and not any(self.held)

    def close(self, broken: bool) -> None:
        """Close both halves. Broken off, each side sees a reset: half a body must not look like a whole one."""
        for end in self.ends:
            if broken:
                with suppress(OSError):
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("@ii", 1, 0))
            end.close()


class Forwarder:
    """All doors of a run, served in one loop until ``control`` is closed."""

    def __init__(self, control: socket.socket, doors: dict[socket.socket, str]) -> None:
        self.control, self.doors = control, doors
        self.poll = selectors.DefaultSelector()
        self.pairs, self.waiting = set[Pair](), set[Pair]()
        self.open = False
        self.poll.register(control, selectors.EVENT_READ)

    def serve(self) -> None:
        ends = float("inf")
        while time.monotonic() < ends:
            self._doors(len(self.pairs) < MOST)
            if ends < float("inf") and not any(pair.owed() for pair in self.pairs):
                return
            for key, _ in self.poll.select(WAIT if self.waiting or ends < float("inf") else None):
                if key.fileobj is self.control:
                    self.poll.unregister(self.control)
                    ends = time.monotonic() + LAST
                elif isinstance(key.data, str):
                    self._accept(key.fileobj, key.data)  # type: ignore[arg-type]
                elif key.data in self.pairs:  # not closed by what its other half had
                    self._turn(key.data)
            for pair in list(self.waiting):
                self._connect(pair)

    def _doors(self, wanted: bool) -> None:
        """Take connections, or leave them waiting."""
        if wanted != self.open:
            for server, path in self.doors.items():
                if wanted:
                    self.poll.register(server, selectors.EVENT_READ, path)
                else:
                    self.poll.unregister(server)
            self.open = wanted

    def _accept(self, server: socket.socket, path: str) -> None:
        while len(self.pairs) < MOST:
            try:
                within, _ = server.accept()
            except OSError:  # none waits any more, or it has gone meanwhile
                return
            within.setblocking(False)
            pair = Pair(within, path)
            self.pairs.add(pair)
            self._connect(pair)

    def _connect(self, pair: Pair) -> None:
        try:
            if not pair.connected():
                self.waiting.add(pair)
                return
        except OSError:
            self._drop(pair, True)
            return
        self.waiting.discard(pair)
        self._turn(pair)

    def _turn(self, pair: Pair) -> None:
        try:
            for side in (0, 1):
                pair.move(side)
        except OSError:
            self._drop(pair, True)
            return
        if pair.over():
            self._drop(pair, False)
            return
        for side, end in enumerate(pair.ends):
            self._await(end, pair.awaited(side), pair)

    def _await(self, end: socket.socket, events: int, pair: Pair) -> None:
        known = self.poll.get_map().get(end)
        if not events:
            if known is not None:
                self.poll.unregister(end)
        elif known is None:
            self.poll.register(end, events, pair)
        elif known.events != events:
            self.poll.modify(end, events, pair)

    def _drop(self, pair: Pair, broken: bool) -> None:
        for end in pair.ends:
            self._await(end, 0, pair)
        pair.close(broken)
        self.pairs.discard(pair)
        self.waiting.discard(pair)


def main() -> None:
    control = socket.socket(fileno=os.dup(0))
    told, fds, _, _ = socket.recv_fds(control, 1 << 20, 1)
    if not fds:  # the run came to nothing
        return
    try:
        enter(fds[0])
        doors = {listening(int(port)): path for port, path in json.loads(told).items()}
    except OSError as error:
        control.sendall(str(error).encode())
        return
    forwarder = Forwarder(control, doors)
    control.sendall(b"ready")
    forwarder.serve()


if __name__ == "__main__":
    main()
