"""The network of a sandboxed command by host: a proxy outside that lets through the named hosts and ports alone.

``Network`` gives ``Sandbox.run`` a door to the proxy and the variables that programs look for (HTTPS_PROXY). It speaks
HTTP's CONNECT and requests for absolute addresses, and resolves names itself, so that the address which was checked is
the one that is reached. An allowed port of this machine's own loopback has a door of its own, for any protocol. What
was asked for and refused is noted. It must never connect to what ``Hosts`` does not allow, whatever it is asked.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from urllib.parse import urlsplit

import h11

from clew.core.errors import BadInput, WorldError
from clew.sandbox.hosts import LOOPBACK, Hosts, Pair, parsed, written
from clew.sandbox.scratch import Scratch

PORT = 3128  # of the proxy inside; the next one where this is asked for itself
MOST = 32  # connections of a door at a time; further ones wait
HEAD = 1 << 14  # bytes of a request's head
PIECE = 1 << 16  # bytes read at once
PATIENCE = 30.0  # seconds for the head of a request, for a name, and for an address
NOTED = 20  # hosts that are told of
HOP = (b"connection", b"proxy-connection", b"proxy-authorization", b"keep-alive", b"te", b"upgrade", b"host")
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Refused(Exception):
    """A connection that leads nowhere: a status of HTTP, and a sentence."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class Network:
    """A way to some hosts while one command runs: a context with ``doors`` and ``env`` for ``Sandbox.run``.

    Without hosts it gives neither, and does nothing.

    Args:
        hosts: what may be reached. most: bytes that may pass, both ways together.
    """

    def __init__(self, hosts: Hosts, most: int = 1 << 30) -> None:
        self.hosts, self.most = hosts, most
        self.doors, self.env = dict[int, Path](), dict[str, str]()
        self._moved, self._told = 0, dict[str, str]()  # by host and port: that it was reached, or why not

    def __enter__(self) -> Network:
        if not self.hosts:
            return self
        local = {port: pair for pair in self.hosts.pairs for host, port in [pair] if host in LOOPBACK}
        proxy = next(port for port in range(PORT, 1 << 16) if port not in local)
        address = f"http://127.0.0.1:{proxy}"
        for name in ("http_proxy", "https_proxy"):
            self.env |= {name: address, name.upper(): address}
        self.env |= {"no_proxy": ",".join(LOOPBACK), "NO_PROXY": ",".join(LOOPBACK), "NODE_USE_ENV_PROXY": "1"}
        self._scratch = Scratch("network")
        self.doors = {port: self._scratch.path / str(port) for port in (proxy, *local)}
        servers = [(_listening(path), local.get(port)) for port, path in self.doors.items()]
        self._loop = asyncio.new_event_loop()
        self._work = self._loop.create_task(self._serve(servers))
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self.hosts:
            self._loop.call_soon_threadsafe(self._work.cancel)
            self._thread.join()
            self._scratch.close()

    def told(self) -> str:
        """What was reached and what was refused, in brackets; empty where nothing was asked for."""
        said = list(self._told.values())
        more = [f"{len(said) - NOTED} more"] if len(said) > NOTED else []
        return f"(network: {'; '.join([*said[:NOTED], *more, f'allowed: {self.hosts}'])})" if said else ""

    # ---- in a thread of its own --------------------------------------------------------------------------------------

    def _run(self) -> None:
        with suppress(asyncio.CancelledError):
            self._loop.run_until_complete(self._work)
        self._loop.run_until_complete(asyncio.sleep(0.001))  # what was closed is taken down
        self._loop.close()

    async def _serve(self, servers: list[tuple[socket.socket, Pair | None]]) -> None:
        try:
            async with asyncio.TaskGroup() as tasks:
                for server, pair in servers:
                    tasks.create_task(self._accept(server, pair, tasks))
        finally:
            for server, _ in servers:
                server.close()

    async def _accept(self, server: socket.socket, pair: Pair | None, tasks: asyncio.TaskGroup) -> None:
        room, loop = asyncio.Semaphore(MOST), asyncio.get_running_loop()
        while True:
            await room.acquire()
            try:
                connection, _ = await loop.sock_accept(server)
            except OSError:  # no descriptor is left, for now
                room.release()
                await asyncio.sleep(0.1)
                continue
            connection.setblocking(False)
            tasks.create_task(self._one(connection, pair)).add_done_callback(lambda _: room.release())

    async def _one(self, connection: socket.socket, pair: Pair | None) -> None:
        """Serve a connection: to ``pair``, or to what its request asks for."""
        opened = [near := await asyncio.open_connection(sock=connection, limit=PIECE)]
        try:
            if pair is not None:
                opened.append(far := await self._reach(pair))
                await self._join(near, far, True)
            else:
                await self._proxy(near, opened)
        except Refused as error:
            if pair is None:
                near[1].write(_answer(error))
        except (Exception, asyncio.CancelledError):  # broken off, or the command has ended: others go on
            for _, writer in opened:
                writer.transport.abort()
        finally:
            for _, writer in opened:
                writer.close()

    async def _proxy(self, near: Streams, opened: list[Streams]) -> None:
        request, rest = await _head(near[0])
        if request is None:
            return
        tunnel = request.method == b"CONNECT"
        pair, head = (_pair(request.target), b"") if tunnel else _direct(request)
        opened.append(far := await self._reach(pair))
        if tunnel:
            near[1].write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        far[1].write(head + rest)
        await self._join(near, far, tunnel)

    async def _reach(self, pair: Pair) -> Streams:
        """A connection to a pair that is allowed, at an address that is.

        Raises:
            Refused: it is not, or nobody answers there.
        """
        name = written(pair)
        try:
            if pair not in self.hosts:
                raise Refused(403, f"{name} is not allowed")
            far = await self._connected(pair)
        except Refused as error:
            if len(self._told) < 1000:
                self._told[name] = str(error)
            raise Refused(error.status, f"{error}; allowed: {self.hosts}") from None
        self._told[name] = f"{name} was reached"
        return far

    async def _connected(self, pair: Pair) -> Streams:
        name, loop = written(pair), asyncio.get_running_loop()
        try:
            async with asyncio.timeout(PATIENCE):
                found = await loop.getaddrinfo(*pair, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):
            raise Refused(502, f"{name} cannot be found") from None
        known = [*dict.fromkeys(str(one[4][0]) for one in found)]
        allowed = [address for address in known if self.hosts.may(pair, address)]
        if not allowed:
            where = f"{name} leads to {known[0] if known else 'nothing'}, which is no address of the open internet"
            raise Refused(403, f"{where}; it is allowed where it is named itself")
        for address in allowed:
            with suppress(OSError):
                async with asyncio.timeout(PATIENCE):
                    return await asyncio.open_connection(address, pair[1], limit=PIECE)
        raise Refused(502, f"nobody answers at {name}")

    async def _join(self, near: Streams, far: Streams, tunnel: bool) -> None:
        """Pass on what comes, both ways, until both have ended; an answer to a single request ends all."""
        async with asyncio.TaskGroup() as ways:
            there = ways.create_task(self._pass(near[0], far[1]))
            await self._pass(far[0], near[1])
            if not tunnel:
                there.cancel()

    async def _pass(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        while piece := await source.read(PIECE):
            self._moved += len(piece)
            if self._moved > self.most:
                self._told[""] = f"ended after {self.most:,} bytes, which is the most that a command may move"
                raise OSError("the bound of bytes is reached")
            target.write(piece)
            await target.drain()
        target.write_eof()


def _listening(path: Path) -> socket.socket:
    server = socket.socket(socket.AF_UNIX)
    try:
        server.bind(str(path))
    except OSError as error:
        server.close()
        raise WorldError(f"no socket can be made at {path}: {error}", remedy="Let TMPDIR name a short path.") from None
    server.listen(MOST)
    server.setblocking(False)
    return server


async def _head(reader: asyncio.StreamReader) -> tuple[h11.Request | None, bytes]:
    """The head of a request, and what came behind it; None where none came.

    Raises:
        Refused: it is no HTTP, or too long.
    """
    parser = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD)
    try:
        async with asyncio.timeout(PATIENCE):
            while (event := parser.next_event()) is h11.NEED_DATA:
                parser.receive_data(await reader.read(HEAD))
    except h11.RemoteProtocolError as error:
        raise Refused(400, f"the proxy understands HTTP 1.1 alone: {error}") from None
    return (event if isinstance(event, h11.Request) else None), parser.trailing_data[0]


def _pair(target: bytes) -> Pair:
    """Raises Refused where a text is no host and port."""
    try:
        return parsed(target.decode("latin-1"))
    except BadInput as error:
        raise Refused(400, error.message) from None


def _direct(request: h11.Request) -> tuple[Pair, bytes]:
    """Where a request for an absolute address leads, and its head as the server there reads it.

    Raises:
        Refused: it asks for something else.
    """
    target = request.target.decode("latin-1")
    try:
        parts = urlsplit(target)
        port = parts.port or 80
    except ValueError:
        parts, port = urlsplit(""), 0
    if parts.scheme != "http" or not parts.hostname:
        raise Refused(400, "this is a proxy: ask it for http://HOST/PATH, or for a tunnel by CONNECT")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    lines = [request.method + b" " + path.encode("latin-1") + b" HTTP/1.1"]
    lines += [b"Host: " + parts.netloc.rpartition("@")[2].encode("latin-1"), b"Connection: close"]
    lines += [name + b": " + value for name, value in request.headers.raw_items() if name.lower() not in HOP]
    return _pair(f"{host}:{port}".encode("latin-1")), b"\r\n".join([*lines, b"", b""])


def _answer(error: Refused) -> bytes:
    """A refusal as an answer; clients of a tunnel show the words of its first line."""
    said = "".join(letter if " " <= letter <= "~" else "?" for letter in str(error))
    body = f"error: {said}\n"
    lines = [f"HTTP/1.1 {error.status} {said}", "Content-Type: text/plain", f"Content-Length: {len(body)}"]
    return "\r\n".join([*lines, "Connection: close", "", body]).encode()
