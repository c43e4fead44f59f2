"""Plug-in for pytest: a recorded run of the user's own agent is replayed as a regression test, without a model.

Every pytest of an environment with Clew in it loads this file, so that it imports nothing of Clew before a test asks
for the fixture ``clew_replay``. It reads the environment, since the program under test inherits it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from clew.integrations.cassettes import Cassette

Replays = Callable[..., "Cassette"]


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("clew", "recorded runs of agents (Clew)")
    group.addoption("--clew-record", action="store_true", help="Record runs of agents anew, with their real model.")
    group.addoption("--clew-upstream", default="", help="With --clew-record: endpoint that answers, as http://host/v1.")
    parser.addini("clew_runs", "Folder of recorded runs, from the root of the tests.", default="tests/runs")


@pytest.fixture
def clew_replay(request: pytest.FixtureRequest, tmp_path: Path) -> Replays:
    """Replays a recorded run of an agent and fails if it differs: ``clew_replay("name", ["python", "agent.py"])``.

    Without a command it gives a context manager with ``url`` and ``environment``, for an agent in this process.
    """
    from clew.core.errors import need

    need("uvicorn", "serve")
    need("starlette", "serve")
    from clew.integrations.cassettes import Cassette, Changed

    config = request.config

    def replay(
        name: str,
        command: Sequence[str] | None = None,
        *,
        mode: str = "exact",
        cwd: str | Path | None = None,
        env: dict[str, str] | None = None,
        timeout: float = 120.0,
    ) -> Cassette:
        path = Path(name)
        if path.suffix != ".clew":
            path = config.rootpath / str(config.getini("clew_runs")) / f"{name}.clew"
        record = bool(config.getoption("clew_record"))
        upstream = str(config.getoption("clew_upstream"))
        __tracebackhide__ = True
        try:
            one = Cassette(path, tmp_path, os.environ, mode=mode, record=record, upstream=upstream)
            if command is not None:
                with one:
                    one.start(command, cwd, env or {}, timeout)
        except Changed as why:
            pytest.fail(str(why), pytrace=False)
        return one

    return replay
