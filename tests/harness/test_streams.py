"""Streams of one runner: what one collection is given does not reach another."""

from __future__ import annotations

import asyncio

from clew.core.records import Request
from clew.core.values import Completion, Message, Task
from clew.harness import Runner
from clew.harness.agents import chatter
from clew.harness.trees import grow


class Named:
    """Says its own name, after a moment."""

    version = 0
    renderer = None

    def __init__(self, ref: str) -> None:
        self.ref, self.calls = ref, 0

    async def complete(self, request: Request) -> Completion:
        self.calls += 1
        await asyncio.sleep(0.001)
        return Completion(Message("assistant", self.ref))


TASKS = [Task(f"t{i}", "who are you?") for i in range(4)]


def test_two_streams_with_two_models_at_once_each_use_and_record_their_own() -> None:
    one, two, own = Named("one"), Named("two"), Named("own")
    runner = Runner(chatter, None, own)

    async def both() -> dict[str, list[str]]:
        said: dict[str, list[str]] = {"one": [], "two": []}
        streams = {m.ref: runner.stream(TASKS, 2, model=m) for m in (one, two)}
        for _ in TASKS:
            for name, stream in streams.items():
                for run in await anext(stream):
                    said[name] += [run.model, run.calls[1].setup.model, run.conversation()[-1].message.text]
        for stream in streams.values():
            await stream.aclose()
        return said

    said = asyncio.run(both())
    assert {name: set(words) for name, words in said.items()} == {"one": {"one"}, "two": {"two"}}
    assert (one.calls, two.calls, own.calls) == (8, 8, 0)
    assert runner.model is own


def test_a_stream_that_is_left_early_leaves_the_runner_its_model() -> None:
    other, own = Named("other"), Named("own")
    runner = Runner(chatter, None, own)

    async def leave() -> str:
        stream = runner.stream(TASKS, 1, model=other)
        async for _ in stream:
            break
        kept = runner.model.ref
        await stream.aclose()
        return kept

    assert asyncio.run(leave()) == "own"
    assert runner.collect(TASKS[:1], n=1).runs[0].model == "own"


def test_a_tree_with_another_model_leaves_the_runner_its_own() -> None:
    other, own = Named("other"), Named("own")
    runner = Runner(chatter, None, own)
    seen: list[str] = []
    groups = grow.collect(
        runner, TASKS[:1], grow.Growth(leaves=2, seeds=2), model=other, on_run=lambda run: seen.append(runner.model.ref)
    )
    assert seen == ["own", "own"]
    assert {run.model for run in groups.runs} == {"other"}
    assert own.calls == 0
