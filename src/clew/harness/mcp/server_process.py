"""One MCP server as a process: started when first needed, asked over its standard streams, bounded in all it sends.

``harness.mcp.server_tools`` calls it. The session of the official package ``mcp`` lives in a thread and an event loop
of its own, so that runs in any loop, and synchronous code, can ask. A server is never trusted: a line, a wait and the
number of restarts have bounds. Nothing here reads what a server says of its tools.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Coroutine
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from clew.core.errors import BadInput, WorldError, need
from clew.core.printable import short

if TYPE_CHECKING:
    from mcp import ClientSession, types
    from pydantic import BaseModel

T = TypeVar("T", bound="BaseModel")
MOST_LINE = 16 << 20  # bytes of one message; an image comes in one
KEPT = 2000  # bytes of what it last wrote to standard error
STARTS = 3  # of one server in one process
SECONDS = 60.0  # that a start or a call may take
START = """
import os, sys
names, words = sys.argv[1].split(","), sys.argv[2:]
if missing := [name for name in names if name not in os.environ]:
    sys.exit(f"the variable {missing[0]} that it needs is not set")
usual = ("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER")
os.execvpe(words[0], words, {name: os.environ[name] for name in (*usual, *names) if name in os.environ})
"""
"""Starts a server with the variables that it needs: their values are never seen by this process, nor recorded."""
USAGE = 'Write "mcp:COMMAND ARGUMENTS", before COMMAND perhaps --seconds N or --env NAME (of a variable to hand on).'


class Command(NamedTuple):
    """How a server is started. ``variables``: names of those of our environment that it gets beside the usual ones."""

    words: tuple[str, ...]
    variables: tuple[str, ...] = ()
    seconds: float = SECONDS

    @classmethod
    def parse(cls, text: str) -> Command:
        """A command as one types it.

        Raises:
            BadInput: it is none.
        """
        try:
            words = shlex.split(text)
        except ValueError as error:
            raise BadInput(f"the command {text!r} of an MCP server does not parse: {error}", remedy=USAGE) from error
        variables: list[str] = []
        seconds = SECONDS
        while len(words) > 1 and words[0] in ("--env", "--seconds"):
            name, value, *words = words
            if name == "--env" and not value.isidentifier():
                told = f"--env {value.partition('=')[0]!r} takes a name alone: no value of it may enter a record"
                raise BadInput(told, remedy=USAGE)
            try:
                variables, seconds = ([*variables, value], seconds) if name == "--env" else (variables, float(value))
            except ValueError:
                raise BadInput(f"--seconds {value!r} is no number", remedy=USAGE) from None
        if not words or words[0].startswith("-") or not seconds > 0:
            raise BadInput(f"{text!r} starts no MCP server", remedy=USAGE)
        return cls(tuple(words), tuple(variables), seconds)

    def settled(self) -> str:
        """The command as records keep it: files that are named from the present folder by their whole paths."""
        named = [word if "/" in word or word.endswith((".py", ".js")) else "" for word in self.words]
        words = [os.path.abspath(n) if n and os.path.isfile(n) else w for n, w in zip(named, self.words, strict=True)]
        variables = [part for name in self.variables for part in ("--env", name)]
        seconds = [] if self.seconds == SECONDS else ["--seconds", f"{self.seconds:g}"]
        return shlex.join([*seconds, *variables, *words])

    @property
    def name(self) -> str:
        """The command as errors name it."""
        return short(shlex.join(self.words), 80)


class Server:
    """A server that is asked from any thread or loop; see ``ask``.

    Raises:
        MissingExtra: the package ``mcp`` is not installed.
    """

    def __init__(self, command: Command) -> None:
        need("mcp.client.stdio", "mcp")  # here: CPython 3.11 cannot parse source in two threads, and imports may
        self.command, self.starts = command, 0
        self._lock = threading.Lock()
        self._life: _Life | None = None

    def ask(self, request: types.ClientRequest, result: type[T]) -> Future[T]:
        """Send a request to the server, which is started first where it does not live.

        The future ends in BadInput where it cannot be started, in WorldError where it dies, in TimeoutError where it
        gives no answer within its seconds, and in what the protocol calls an error.
        """
        with self._lock:
            if self._life is None or self._life.ended.is_set():
                if self.starts >= STARTS:
                    told = f"the MCP server {self.command.name} died {STARTS} times"
                    raise WorldError(told, remedy="Run its command by hand to see why.")
                self.starts += 1
                self._life = _Life(self.command)
                weakref.finalize(self, self._life.kill)  # when no tool is left, and as this process ends
            return self._life.submit(request, result)

    def close(self) -> None:
        """End the server's process."""
        with self._lock:
            if self._life is not None:
                self._life.kill()
                self._life.ended.wait(5)


class _Life:
    """One process of a server, from its start to its end."""

    def __init__(self, command: Command) -> None:
        self.command, self.wrote = command, b""
        self.process: asyncio.subprocess.Process | None = None
        self.ended, self._door = threading.Event(), threading.Lock()  # the door: no request enters once it has ended
        self.session: Future[ClientSession] = Future()
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self._run, name="clew-mcp", daemon=True).start()

    def submit(self, request: Any, result: type[T]) -> Future[T]:
        """Send a request in the loop of the session; where that is over, the future holds why it failed or ended."""
        with self._door:
            if not self.ended.is_set():
                return asyncio.run_coroutine_threadsafe(self._ask(request, result), self.loop)
        never: Future[T] = Future()
        never.set_exception(self.session.exception() or self.death())
        return never

    async def _ask(self, request: Any, result: type[T]) -> T:
        session = await asyncio.shield(asyncio.wrap_future(self.session))
        try:
            return await asyncio.wait_for(session.send_request(request, result), self.command.seconds)
        except TimeoutError:
            raise TimeoutError(f"no answer within {self.command.seconds:g} s") from None
        except Exception:
            await asyncio.sleep(0.05)  # until what it said last has been read
            if self.over:
                raise self.death() from None
            raise

    @property
    def over(self) -> bool:
        return self.process is None or self.process.returncode is not None or self.ended.is_set()

    def death(self) -> WorldError:
        """The end of the process as an error; it quotes the last line that the server wrote to standard error."""
        last = self.wrote.decode(errors="replace").strip().rpartition("\n")[2]
        code = self.process.returncode if self.process is not None else None
        told = f"the MCP server {self.command.name} ended" + (f" with exit code {code}" if code is not None else "")
        return WorldError(
            told + (f": {short(last, 200)}" if last else ""), remedy="Run its command by hand to see why."
        )

    def kill(self) -> None:
        """End the process and all that it started."""
        if self.process is not None and self.process.returncode is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, signal.SIGKILL)

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_until_complete(self._live())
        except BaseException as error:
            self._failed(error)
        finally:
            with self._door:
                self.ended.set()
            self.kill()
            self.loop.run_until_complete(_told())
            self.loop.close()

    def _failed(self, error: BaseException) -> None:
        if self.session.done():
            return
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        remedy = "Run the command by hand: it must speak MCP on its standard streams."
        if isinstance(error, OSError) and self.process is None:
            told = f"the MCP server {self.command.name} cannot be started: {error.strerror or error}"
        elif isinstance(error, TimeoutError):
            told = f"the MCP server {self.command.name} did not begin within {self.command.seconds:g} s"
        else:
            told = self.death().message if self.over else f"the MCP server {self.command.name} failed: {error}"
        self.session.set_exception(BadInput(told, remedy=remedy))

    async def _live(self) -> None:
        import anyio
        from mcp import ClientSession
        from mcp.client.stdio import get_default_environment
        from mcp.shared.message import SessionMessage

        pipe = subprocess.PIPE
        names, words = self.command.variables, list(self.command.words)
        inherited: dict[str, str] | None = get_default_environment()
        if names:
            words, inherited = [sys.executable, "-ISc", START, ",".join(names), *words], None
        self.process = process = await asyncio.create_subprocess_exec(
            *words, stdin=pipe, stdout=pipe, stderr=pipe, limit=MOST_LINE, start_new_session=True, env=inherited
        )  # fmt: skip
        deliver, received = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        send, waiting = anyio.create_memory_object_stream[SessionMessage](0)
        work: list[Coroutine[Any, Any, None]] = [
            _read(process, deliver),
            _write(process, waiting),
            self._listen(),
        ]
        reading, *others = (asyncio.ensure_future(one) for one in work)
        try:
            async with ClientSession(received, send) as session:
                await asyncio.wait_for(session.initialize(), self.command.seconds)
                self.session.set_result(session)
                await reading
        finally:
            for task in (reading, *others):
                task.cancel()
            self.kill()
            await process.wait()

    async def _listen(self) -> None:
        assert self.process is not None
        assert self.process.stderr is not None
        while data := await self.process.stderr.read(4096):
            self.wrote = (self.wrote + data)[-KEPT:]


async def _told() -> None:
    """Wait, at most 2 seconds, until those that asked are told what became of it."""
    await asyncio.sleep(0)  # a request that has just entered becomes a task
    if waiting := asyncio.all_tasks() - {asyncio.current_task()}:
        await asyncio.wait(waiting, timeout=2)
    await asyncio.sleep(0)  # what waits for a task in another thread hears of its end a turn of the loop later


async def _read(process: asyncio.subprocess.Process, deliver: Any) -> None:
    """Hand on each message of the server; end where it ends, or where a line is longer than it may be."""
    from mcp import types
    from mcp.shared.message import SessionMessage

    assert process.stdout is not None
    async with deliver:
        with suppress(ValueError):  # a line past the bound
            while line := await process.stdout.readline():
                try:
                    message = types.jsonrpc_message_adapter.validate_json(line, by_name=False)
                except ValueError:
                    continue  # what is no message of the protocol: some servers print to standard output
                await deliver.send(SessionMessage(message))


async def _write(process: asyncio.subprocess.Process, waiting: Any) -> None:
    assert process.stdin is not None
    with suppress(OSError):
        async with waiting:
            async for one in waiting:
                text = one.message.model_dump_json(by_alias=True, exclude_unset=True)
                process.stdin.write(text.encode() + b"\n")
                await process.stdin.drain()
