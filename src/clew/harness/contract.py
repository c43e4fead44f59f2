"""The contracts of what runs take from outside: executors, schemes of tools and agents, as checks that anyone can run.

    from clew.harness.contract import check_executor
    with mine(n=2) as executor:
        check_executor(executor)

Each raises AssertionError with a sentence on what is broken.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping

from clew.core.doors import ToolScheme
from clew.core.errors import BadInput
from clew.harness.executors import Executor
from clew.harness.loading import agent_ref, load_agent
from clew.harness.runner import Runner
from clew.harness.tools import Tool
from clew.models.fakes import Markov
from clew.store.run import Run
from clew.worlds.toys import Counter


def check_executor(executor: Executor, seed: int = 7) -> None:
    """Collect and fork runs by an executor: they are those that the running event loop would have made.

    Two collections are made one after another, so a session must leave the executor ready for the next.
    """
    seen: list[str] = []
    taskset, model = Counter(low=2, high=3, steps=8), Markov("up\nup\ndown\nstop", order=1, tokens=True)
    here = Runner("clew.harness.agents:player", taskset, model)
    there = Runner("clew.harness.agents:player", taskset, model, executor=executor)
    tasks = taskset.sample(2, seed=seed)
    for _ in range(2):
        usual, runs = (one.collect(tasks, n=2, seed=seed).runs for one in (here, there))
        assert _keys(runs) == _keys(usual), "runs differ from those of this process"
        assert [run.reward for run in runs] == [run.reward for run in usual], "verdicts differ from this process's"
    more = there.collect(tasks, n=2, seed=seed + 1, on_run=lambda run: seen.append(run.id)).runs
    assert sorted(seen) == sorted(run.id for run in more), "on_run is not called once with each run"
    meant = here.fork(usual[0], at=usual[0].at(step=1), n=2, seed=seed)
    made = there.fork(runs[0], at=runs[0].at(step=1), n=2, seed=seed)
    assert _keys(made) == _keys(meant), "forks differ from those of this process"
    assert there.store.verify() == [], "what was handed over does not fit together"


def _keys(runs: Iterable[Run]) -> list[list[bytes]]:
    return [[call.key for call in run.calls] for run in runs]


def check_tools(scheme: ToolScheme[Tool], rest: str) -> list[str]:
    """Open tools of a scheme, and once more from what a record keeps of them.

    Args:
        rest: what stands behind the colon of a reference that can be opened here.

    Returns:
        Names of the tools.
    """
    tools = scheme.tools(rest)
    assert tools, f"{rest!r} opens no tool"
    specs = [tool.spec for tool in tools]
    origin = tools[0].origin
    assert isinstance(origin, Mapping), "a record could not keep where the tools are from: origin is no mapping"
    assert all(tool.origin == origin for tool in tools), "the tools of one reference have several origins"
    assert list(origin["names"]) == [spec.name for spec in specs], "origin does not name the tools"
    word, _, again = str(origin["ref"]).partition(":")
    assert word, "the reference in origin has no scheme"
    found = scheme.tools(again, specs, origin)
    assert [tool.spec for tool in found] == specs, "tools made from a record are told otherwise"
    assert all(tool.origin == origin for tool in found), "tools made from a record have another origin"
    flags = [[(tool.idempotent, tool.parallel) for tool in made] for made in (tools, found)]
    assert flags[0] == flags[1], "tools made from a record may be repeated or run at once where the first may not"
    assert all(file.endswith(".py") for file in scheme.files(again)), "files gives what is no Python file"
    refused: BadInput | None = None
    try:
        scheme.tools("")
    except BadInput as error:
        refused = error
    assert refused is not None, "a reference that names nothing is accepted"
    assert refused.remedy, "a reference that names nothing is refused without a remedy"
    return [spec.name for spec in specs]


def check_agent(name: str) -> None:
    """Load an agent of ``clew.agents`` by its name, and again as records name it."""
    agent = load_agent(name)
    assert inspect.iscoroutinefunction(agent), f"{name} is no async function"
    assert next(iter(inspect.signature(agent).parameters), ""), f"{name} takes no run"
    ref = agent_ref(agent)
    assert load_agent(ref) is agent, f"records name {name} {ref}, which is another agent"
