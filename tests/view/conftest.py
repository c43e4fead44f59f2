"""A viewer over a small store, served on a free loopback port, and a client that speaks to it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import numpy as np
import pytest
import uvicorn

from clew.core.records import Annotation
from clew.core.registry import build
from clew.harness import Runner
from clew.models import load
from clew.models.fakes import Markov
from clew.store import Keeper
from clew.view.web import Viewer

WORLD = "counter(low=2, high=3, steps=8)"
MODEL = 'markov(corpus="up\nup\ndown\nstop",order=1,tokens=true)'


def runner(store: Any) -> Runner:
    """Makes small runs: a model with tokens and no weights in a world of a few states."""
    model = Markov(corpus="up\nup\ndown\nstop", order=1, tokens=True)
    return Runner("player", build("tasksets", WORLD), model, store)


def fill(store: Any, tasks: int = 2, n: int = 4, name: str = "evening") -> Any:
    """Some groups of runs with credit, a tag, a training and a report."""
    made = runner(store)
    groups = made.collect(made.taskset.sample(tasks), n=n, name=name, seed=3)
    keeper = made.store
    first = groups.runs[0]
    ask = next(call for call in first.calls if call.kind == "ask")
    grades = np.ones(len(keeper.node(ask.node_out).ids), np.float32)
    grades[0] = np.nan  # the head
    keeper.annotate(
        [
            Annotation("call", "g2po", 0.25, first.id, ask.seq, scope=first.group),
            Annotation("tokens", "grade", None, first.id, ask.seq, values=grades),
        ]
    )
    keeper.tag(first.id, "keep")
    keeper.put_metrics(name, 0, {"success": 0.5, "tokens": 12})
    keeper.put_report(groups.success(), "r1")
    keeper.commit()
    return groups


class Client(httpx.Client):
    """Speaks to one viewer."""

    def json(self, path: str, status: int = 200, **params: Any) -> Any:
        """The JSON of a GET; asked again while the server still makes what it needs."""
        while (answer := self.get(path, params=params)).status_code == 202 != status:
            pass
        assert answer.status_code == status, answer.text
        return answer.json()

    def push(self, path: str, body: Any = None, status: int = 200, **headers: str) -> Any:
        """The JSON of a POST."""
        answer = self.post(path, json={} if body is None else body, headers=headers)
        assert answer.status_code == status, answer.text
        return answer.json()

    @contextmanager
    def events(self) -> Iterator[Iterator[tuple[str, Any]]]:
        """Events as they come, once the server listens."""
        with self.stream("GET", "/api/events", timeout=20) as answer:
            assert answer.headers["content-type"].startswith("text/event-stream")
            lines = answer.iter_lines()
            assert next(lines).startswith("retry")

            def each() -> Iterator[tuple[str, Any]]:
                kind = ""
                for line in lines:
                    if line.startswith("event: "):
                        kind = line[7:]
                    elif line.startswith("data: "):
                        yield kind, json.loads(line[6:])

            yield each()


@contextmanager
def serving(store: Any, **options: Any) -> Iterator[Client]:
    """Serve a viewer; forks load what they name, as `clew view` does."""
    options.setdefault("load", load)
    viewer = Viewer(store, **options)
    config = uvicorn.Config(viewer.application(), port=0, log_level="error", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, name="test-viewer")
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive(), "the viewer did not start"
            threading.Event().wait(0.01)
        with Client(base_url=f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}", timeout=20) as client:
            yield client
    finally:
        server.should_exit = True
        thread.join()


@pytest.fixture(scope="session")
def path(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A store on disk with a few runs; read, not written, by tests."""
    place = tmp_path_factory.mktemp("view") / "store.db"
    from clew.store.sqlite import SQLiteStore

    store: Keeper = SQLiteStore(place)
    fill(store)
    store.close()
    return place


@pytest.fixture(scope="session")
def seen(path: Any) -> Iterator[Client]:
    """A client of a viewer of that store."""
    with serving(path) as client:
        yield client
