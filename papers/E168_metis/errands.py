"""One task played, in either of two ways that come to the same: recorded in a store, or bare.

The streams of E168 call ``bare`` for most of what they count: a run that is recorded, judged and recalled from a store
takes several times as long (tier ``store`` measures it and holds the two against each other). Draws by lot, answers
and rewards are those of the recorded run of the same seed.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, NamedTuple

import numpy as np

from clew.core.keys import derive, uniforms
from clew.core.records import Call, action_of
from clew.core.values import Observation, Task, ToolCall
from clew.harness import Runner
from clew.worlds.apps import Apps, AppsWorld
from papers.E168_metis.player import Errand, Outcome

Agent = Callable[[Errand], Awaitable[Outcome]]


class Step(NamedTuple):
    """A call of the world and what it answered; an answer that is no JSON object is {"error": text}.

    seq: the number of its Call in the run.
    """

    name: str
    given: dict[str, Any]
    seen: dict[str, Any]
    seq: int = 0


class Played(NamedTuple):
    """What is known of a task once it was played.

    end: what it came to, see ``end_of``. inside: calls that tools made. run: its id; bare, none.
    """

    task: Task
    outcome: Outcome
    reward: float
    steps: tuple[Step, ...]
    end: bytes
    inside: int = 0
    run: str = ""

    def at(self, seq: int) -> str:
        """A Call of the run, as provenance names it."""
        return f"{self.run}@{seq}"


def seed_of(task: Task, seed: int) -> int:
    """The seed of a task's run in a collection of this seed."""
    return derive(seed, 0, task.id, 0)


class Bare:
    """Stands where a LiveRun stands and keeps no record. Its numbers by lot are those of the run of that seed."""

    def __init__(self, taskset: Apps, task: Task, seed: int) -> None:
        self.task, self.world, self.steps, self.inside = task, taskset.open(task), list[Step](), 0
        self._seed, self._seq, self.done = seed, 1, False  # Call 0 opens the world

    async def act(self, call: ToolCall) -> Observation:
        seen = self.world.step(call)
        self.done = seen.done
        self.steps.append(step_of(call, seen.text, self._seq))
        self._seq += 1
        return seen

    async def draw(self, name: str) -> float:
        number = derive(self._seed, self._seq)
        self._seq += 1
        return float(uniforms(np.array([number], np.uint64), np.zeros(1, np.uint64))[0])

    async def recall(self) -> None:
        """Count one Call, as a recall from a memory is one."""
        self._seq += 1

    def note(self, text: str, /, **data: Any) -> None:
        self._seq += 1
        self.inside += data["calls"] if text == "tool" else 0


def bare(taskset: Apps, task: Task, agent: Agent, seed: int) -> Played:
    """Play a task without a record."""
    run = Bare(taskset, task, seed_of(task, seed))
    outcome = finished(agent(run))
    reward = taskset.verdict(task, run.world)["reward"]
    return Played(task, outcome, reward, tuple(run.steps), end_of(run.world), run.inside)


def finished(work: Awaitable[Outcome]) -> Outcome:
    """What work gives that waits for nothing."""
    assert isinstance(work, Coroutine)
    try:
        work.send(None)
    except StopIteration as end:
        outcome: Outcome = end.value
        return outcome
    raise RuntimeError("a bare errand waited for something")


def end_of(world: AppsWorld) -> bytes:
    """What a task came to: rows that were changed and the answer; not who was logged in."""
    changed = sorted((*what, sorted(ids)) for what, ids in world.changed.items())
    return json.dumps([changed, str(world.answer)]).encode()


def recorded(runner: Runner, taskset: Apps, task: Task, seed: int) -> Played:
    """Play a task with the runner's agent, as a run of its store."""
    (run,) = runner.collect([task], 1, seed).runs
    acts = [call for call in run.calls if call.kind == "act"]
    told = json.loads(next(call.text for call in run.calls if call.action == "explored"))
    outcome = Outcome(**{**told, "refused": tuple(told["refused"])})
    inside = sum(json.loads(call.text)["calls"] for call in run.calls if (call.kind, call.action) == ("note", "tool"))
    world = taskset.open(task)
    for call in acts:
        world.step(action_of(call))
    return Played(task, outcome, float(run.reward or 0.0), steps_of(acts), end_of(world), inside, run.id)


def steps_of(calls: Iterable[Call]) -> tuple[Step, ...]:
    """The tool calls among the Calls of a run."""
    acts = [(call, action_of(call)) for call in calls if call.kind == "act"]
    return tuple(step_of(act, call.text, call.seq) for call, act in acts if isinstance(act, ToolCall))


def step_of(act: ToolCall, text: str, seq: int = 0) -> Step:
    """A step from what was sent and what came back."""
    if text.startswith("error: "):
        return Step(act.name, json.loads(act.arguments), {"error": text.removeprefix("error: ")}, seq)
    found = json.loads(text)
    return Step(act.name, json.loads(act.arguments), found if isinstance(found, dict) else {"error": "no object"}, seq)


def trial(taskset: Apps, task: Task, tool: Callable[..., object], most: int = 40) -> tuple[bytes | None, int]:
    """The end state that a tool alone brings a fresh world of a task to, and the characters it wrote and read.

    None where the tool gave no answer. For checks before a tool is admitted.
    """
    world, spent, made = taskset.open(task), len(task.prompt), 0

    def api(name: str, **given: Any) -> dict[str, Any]:
        nonlocal made
        made += 1
        if made > most or name not in ("login", "fetch", "change"):
            raise RuntimeError("more calls than a tool may make")
        call = ToolCall(f"t{made}", name, json.dumps(given, sort_keys=True))
        return step_of(call, world.step(call).text).seen

    try:
        answer = tool(task.prompt, api)
    except Exception:
        return None, spent
    if answer is None or world.over:
        return None, spent
    world.step(ToolCall("t", "submit", json.dumps({"answer": str(answer)})))
    return end_of(world), spent + len(str(answer))


def tasks_of(taskset: Apps, seed: int, n: int) -> list[Task]:
    """The stream of a seed."""
    return taskset.sample(n, derive(seed, "stream"))


def words_cost(texts: Iterable[str]) -> int:
    """Tokens of texts, four characters each."""
    return sum(map(len, texts)) // 4
