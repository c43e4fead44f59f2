"""A recorded run beside a test: recorded once with the agent's real model, then replayed without any.

The fixture of ``pytest_plugin`` makes one. While it is entered, a gateway listens on the loopback; at its end what was
recorded is written as a portable run, or what differed is raised. A replay must never ask a model.
"""

from __future__ import annotations

import asyncio
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

import uvicorn

from clew.core.errors import ReplayDiverged
from clew.core.net import listen
from clew.core.printable import short, visible
from clew.exchange.portable import Credentials, pack, unpack
from clew.models.dialects import Asked
from clew.models.fakes import Echo
from clew.serve.edge import config
from clew.serve.gateway.programs import endpoints, environment
from clew.serve.gateway.proxy import Gateway
from clew.serve.gateway.session import Session
from clew.serve.gateway.watched import Watched
from clew.store import Keeper, new_id, open_store

MODES = ("exact", "loose")
SHOWN = 800  # characters of what a program that failed wrote last
RECORD = "Record it once with `pytest --clew-record`, or with `clew gateway` and `clew export`."


class Changed(AssertionError):
    """The agent did something else than its record, or there is none."""


class Closed(Gateway):
    """A gateway that answers from the record alone."""

    def open(self, name: str, first: Asked, *, guessed: bool = False) -> Session:
        raise ReplayDiverged(
            "this replay answers only at the address of its run", remedy="Use the whole of OPENAI_BASE_URL."
        )


class Cassette:
    """One recorded run.

    Args:
        path: its file. place: a folder for what is needed meanwhile. inherited: variables for the agent's program; when
            it records, the credential of the upstream is read from them too.
        mode: ``exact`` or ``loose``. record: ask the real model and write the file. upstream: the endpoint for that.

    Raises:
        Changed: there is no such file, or no such mode.
    """

    def __init__(
        self,
        path: Path,
        place: Path,
        inherited: Mapping[str, str],
        *,
        mode: str = "exact",
        record: bool = False,
        upstream: str = "",
    ) -> None:
        if mode not in MODES:
            raise Changed(f"there is no mode {mode!r}; known are {', '.join(MODES)}")
        if not record and not path.is_file():
            raise Changed(f"there is no recorded run {path}. {RECORD}")
        self.path, self.mode, self.record, self.upstream = path, mode, record, upstream
        self._inherited, self._place = dict(inherited), place / f"clew-{new_id()}"
        self.name, self.url, self.environment = "", "", dict[str, str]()
        self._said = ""  # why the program failed, apart from the record

    def __enter__(self) -> Self:
        self._place.mkdir(parents=True)
        self._store: Keeper = open_store(self._place / "runs.db")
        self._watched: Watched | None = None
        gateway: Gateway
        if self.record:
            key = self._inherited.get
            own = {"messages": key("ANTHROPIC_API_KEY")} if not self.upstream else {}
            shared = key("CLEW_API_KEY") or key("OPENAI_API_KEY")
            self.name = self.path.stem
            gateway = Gateway(self._store, endpoints(self.upstream, lambda dialect: own.get(dialect) or shared, {}))
        else:
            told = unpack(self._store, self.path).told
            gateway = Closed(self._store, lambda dialect, name, extra: Echo())
            session = gateway.replay(told.runs[0], partial(Watched, loose=self.mode == "loose"))
            assert isinstance(session, Watched)
            self._watched, self.name = session, session.name
        self._gateway = gateway
        self._serving = Serving(gateway)
        self.environment = environment(self._serving.address, self.name, "", self._inherited)
        self.url = self.environment["OPENAI_BASE_URL"]
        return self

    def start(self, command: Sequence[str], cwd: str | Path | None, env: Mapping[str, str], timeout: float) -> None:
        """Run the agent's program to its end."""
        try:
            done = subprocess.run(
                [str(word) for word in command],
                cwd=cwd,
                env={**self.environment, **env},
                capture_output=True,
                timeout=timeout,
                check=False,
            )
        except subprocess.TimeoutExpired:
            self._said = f"{command[0]} did not end within {timeout:g} s"
        except OSError as error:
            self._said = f"{command[0]} cannot be started: {error.strerror}"
        else:
            last = visible((done.stderr or done.stdout).decode("utf-8", "replace").strip())[-SHOWN:]
            if done.returncode:
                self._said = f"{command[0]} ended with exit code {done.returncode}: {last}"

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        session = self._gateway.sessions.get(self.name)
        run = session.run if session is not None else ""
        self._serving.end()
        try:
            if self._watched is not None and (why := self._watched.verdict()):
                raise Changed(f"{self.path.name} ({self.mode}): {why}") from error
            if self._said:
                raise Changed(f"{self.path.name}: {self._said}")
            if self.record and error is None:
                self._keep(run)
        finally:
            self._store.close()

    def _keep(self, run: str) -> None:
        """Write what was recorded.

        Raises:
            Changed: the program asked nothing, or a credential in what it said stands in the way of replaying it.
        """
        if not run:
            raise Changed(
                f"nothing was asked at {self.url}: does the agent read OPENAI_BASE_URL or ANTHROPIC_BASE_URL?"
            )
        self.path.parent.mkdir(parents=True, exist_ok=True)
        known = Credentials.of_environment(self._inherited)
        told = pack(self._store, [run], self.path, credentials=known).told
        if told.erased:
            self.path.unlink()
            where = short(", ".join(told.erased), 200)
            raise Changed(f"{self.path.name} is not kept: a credential was said, at {where}")


class Serving:
    """A gateway that listens on the loopback, in a thread of its own, until ``end``."""

    def __init__(self, gateway: Gateway) -> None:
        listener = listen("127.0.0.1", 0)
        self.address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        self._server = uvicorn.Server(config(gateway.application(), any_name=False, lifespan="on", log_level="error"))
        work: Callable[[], None] = lambda: asyncio.run(self._server.serve([listener]))  # noqa: E731
        self._thread = threading.Thread(target=work, daemon=True)
        self._thread.start()
        while not self._server.started and self._thread.is_alive():
            time.sleep(0.005)

    def end(self) -> None:
        self._server.should_exit = True
        self._thread.join(20)
