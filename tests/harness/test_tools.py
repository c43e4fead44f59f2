"""What a model calls wrongly comes back to it as an error that names what is wrong, is recorded, and ends nothing."""

from __future__ import annotations

import json
from typing import Any, Literal, TypedDict

import pytest

from clew.core.registry import build, register
from clew.core.values import Message, Observation, StopReason, Task, ToolCall, ToolSpec
from clew.harness import LiveRun, Runner, tool
from clew.harness.agents import tool_user
from clew.models.fakes import Scripted
from clew.worlds.finder import Finder
from clew.worlds.records_api import Records
from clew.worlds.shell import Shell

for name, maker in {"shell": Shell, "records": Records, "finder": Finder}.items():
    register("tasksets", name, maker)


class Place(TypedDict):
    city: str
    zip: int


def repeat(word: str, n: int = 1) -> str:
    """Repeats a word."""
    return word * n


def take(
    n: int | None = None,
    x: float = 0.0,
    yes: bool = False,
    way: Literal["up", "down"] = "up",
    many: list[int] | None = None,
    place: Place | None = None,
    pair: tuple[str, int] = ("", 0),
) -> str:
    """Takes all kinds of arguments."""
    return repr([n, x, yes, way, many, place, pair])


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ('{"n": "3"}', 'argument n must be integer or null, not "3"'),
        ('{"n": 3.0}', "argument n must be integer or null, not 3.0"),
        ('{"n": true}', "argument n must be integer or null, not true"),
        ('{"x": "3"}', 'argument x must be number, not "3"'),
        ('{"x": NaN}', "NaN is no finite number"),
        ('{"x": -1e999}', "is no finite number"),
        ('{"yes": 1}', "argument yes must be boolean, not 1"),
        ('{"way": "left"}', 'argument way must be one of "up", "down", not "left"'),
        ('{"many": [1, "2"]}', "argument many"),
        ('{"place": {"city": "Oslo", "zip": "0150"}}', "argument place"),
        ('{"pair": [1, "a"]}', "argument pair.0 must be string, not 1"),
        ('{"m": 1}', 'no argument "m"'),
        ("[1]", "the arguments must be an object"),
        ("{bad", "the arguments are not JSON"),
        ("[" * 100_000, "the arguments are not JSON: nested too deep"),
        ('{"n": ' + '{"a":' * 400 + "1" + "}" * 400 + "}", "argument n"),
    ],
)
def test_arguments_that_do_not_fit_are_refused_by_name(given: str, named: str) -> None:
    seen = tool(take).call(ToolCall("id", "take", given))
    assert isinstance(seen, Observation)
    assert seen.text.startswith("error: take: ")
    assert named in seen.text
    assert seen.call_id == "id"
    assert len(seen.text) < 400


def test_arguments_that_fit_come_as_they_were_written() -> None:
    given = {"n": 3, "x": 2, "yes": True, "way": "down", "many": [1], "place": {"city": "Oslo", "zip": 150},
             "pair": ["a", 1]}  # fmt: skip
    seen = tool(take).call(ToolCall("", "take", json.dumps(given)))
    assert isinstance(seen, Observation)
    assert seen.text == repr(list(given.values()))


def test_a_required_argument_that_is_left_out_is_named() -> None:
    seen = tool(repeat).call(ToolCall("", "repeat", ""))
    assert isinstance(seen, Observation)
    assert seen.text == 'error: repeat: the call lacks "word"'


def test_a_tool_that_there_is_not_comes_back_as_an_error_and_the_run_goes_on() -> None:
    wrong = (ToolCall("a", "reapeat", '{"word": "x"}'), ToolCall("b", "repeat", '{"word": "x", "n": "3"}'))
    model = Scripted([Message("assistant", "", calls=wrong), "I see."])
    runner = Runner(tool_user, None, model, tools=[repeat])
    run = runner.collect([Task("t", "go")], n=1).runs[0]
    acts = [c for c in run.calls if c.kind == "act"]
    assert acts[0].text == "error: there is no tool 'reapeat'; the tools are repeat"
    assert acts[1].text == 'error: repeat: argument n must be integer, not "3"'
    assert run.stop is StopReason.RETURNED
    assert [n.message.text for n in run.conversation() if n.message.role == "tool"] == [a.text for a in acts]
    runner.replay(run)
    fork = runner.fork(run, run.calls[-2].seq)[0]
    runner.replay(fork)
    assert runner.store.verify() == []


def test_beside_a_world_without_tools_an_unknown_tool_does_not_reach_the_world() -> None:
    async def agent(run: LiveRun) -> None:
        seen = await run.act(ToolCall("a", "reapeat", "{}"))
        assert seen.text.startswith("error: there is no tool")
        await run.act("up")
        await run.act("stop")

    runner = Runner(agent, build("tasksets", "counter(restores='reenact')"), None, tools=[repeat])
    run = runner.collect(runner.taskset.sample(1), n=1).runs[0]  # type: ignore[union-attr]
    assert run.stop is StopReason.DONE
    assert [c.state != b"" for c in run.calls if c.kind == "act"] == [False, True, True]
    fork = runner.fork(run, 3)[0]
    assert fork.stop is StopReason.DONE
    runner.replay(fork)
    assert runner.store.verify() == []


WORLDS = [
    *("household", "house", "maze", "counter", "shop", "sums", "clerk", "desk", "apps"),
    *("shell", "records", "finder"),
]


@pytest.mark.parametrize("world", WORLDS)
def test_no_world_fails_at_a_tool_call_that_makes_no_sense(world: str) -> None:
    taskset = build("tasksets", world)
    for arguments in ("{}", "{bad", "[" * 100_000, '{"item": {"a": [1e999]}, "count": "x"}'):
        opened = taskset.open(taskset.sample(1)[0])
        for name in ("no_such_tool", *(spec.name for spec in opened.tools)):
            if not opened.observe().done:
                seen = opened.step(ToolCall("id", name, arguments))
                assert seen.call_id == "id"


def test_a_tool_of_one_s_own_schema_is_checked_by_it() -> None:
    spec = ToolSpec("pick", "", {"type": "object", "properties": {"k": {"type": "integer", "minimum": 1}}})

    def pick(**given: Any) -> str:
        return str(given)

    from clew.harness.tools import Tool

    made = Tool(spec, pick)
    assert made.call(ToolCall("", "pick", '{"k": 1}')) == Observation("{'k': 1}", call_id="")
    assert made.call(ToolCall("", "pick", '{"k": 0}')) == Observation(
        "error: pick: argument k breaks minimum 1: 0", call_id=""
    )
