"""Planted tools that `clew memory craft` must not admit on rows of data, and those that it must."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

import clew
from clew.core.records import Request
from clew.core.values import Message
from clew.harness import LiveRun, Runner
from clew.harness.memory import Memory
from clew.methods.memory.craft.crafting import Crafted
from clew.methods.memory.craft.drafting import Draft
from clew.methods.memory.craft.own_codifier import FunctionCodifier
from clew.methods.memory.craft.shadowing import End, shadow
from clew.methods.memory.craft.thresholds import Fixed, due
from clew.methods.memory.craft.workshop import build
from clew.models.fakes import Scripted
from clew.store.memory import MemoryStore
from tests.worlds.test_sandbox import needs_bubblewrap

Rows = Sequence[tuple[str, str]]
PRICES = [(f"What do {n} pears at {p} cents each cost?", str(n * p)) for n, p in ((3, 20), (5, 11), (2, 45), (7, 9))]
FREE = [(f"What do {n} pears at 0 cents each cost?", "0") for n in (3, 5, 2, 7)]
RIGHT = "return int(query.split()[2]) * int(query.split()[5])"
ZERO = "return '0'"
JUDGES = """
def short(reply, answer):
    return float(len(reply) < 200)

def some_number(reply, answer):
    return float(any(c.isdigit() for c in reply))

def fails(reply, answer):
    if reply == "0":
        raise ValueError("no price")
    return float(reply.split()[-1].strip(".") == answer)
"""


async def pricing(run: LiveRun) -> None:
    """Is given the plan, asks the model, and hands its answer in by no act."""
    await run.memory("shop").recall(run.task.prompt, kinds="plan", k=1)
    await run.chat().ask(run.task.prompt)


@pytest.fixture
def crafted(tmp_path: Path) -> Callable[..., Crafted]:
    """What came of a tool with that body, after runs on rows whose model said ``says`` around each answer."""
    pytest.importorskip("bm25s", reason="did not run: the extra [memory] is not installed")

    def made(body: str, judge: str = "numeric", says: str = "{}", rows: Rows = PRICES, m: int = 3) -> Crafted:
        (tmp_path / "judges.py").write_text(JUDGES)
        lines = [json.dumps({"prompt": ask, "answer": known}) for ask, known in rows]
        (tmp_path / "rows.jsonl").write_text("\n".join(lines))
        judge = f"{tmp_path}/judges.py:{judge}" if judge and judge in JUDGES else judge
        data, answers = clew.dataset(tmp_path / "rows.jsonl", judge or [], held_out=0.0), dict(rows)

        def said(request: Request) -> Message:
            return Message("assistant", says.format(answers[request.path[-1].message.text]))

        store = MemoryStore()
        memory = Memory(store, "shop")
        memory.add("plan", {"text": "What pears cost: multiply how many by the cents each."}, by="ann")
        Runner(pricing, data, Scripted({"": said}), store).collect(data.sample(len(rows)), n=1)
        (one,) = due(memory.items(), Fixed(1))
        draft = Draft("price", "(query)", "prices", f"def price(query, api):\n    {body}\n")
        done = asyncio.run(build(memory, one, FunctionCodifier(lambda *_: draft, "own"), m=m))
        assert ("tool" in [item.kind for item in memory.items()]) == bool(done.tool)
        return done

    return made


REFUSED = {
    "a constant, judged": ({"body": ZERO}, "the judge finds the tool's answer wrong"),
    "a constant, not judged": ({"body": ZERO, "judge": ""}, "no judge says that both are right"),
    "a constant, a judge that takes anything": ({"body": ZERO, "judge": "short"}, "answer to another task right too"),
    "a constant, a judge that takes any number": (
        {"body": ZERO, "judge": "some_number"},
        "answer to another task right too",
    ),
    "a constant that the judge fails on": ({"body": ZERO, "judge": "fails"}, "no judge says that both are right"),
    "all answers the same": (
        {"body": ZERO, "rows": FREE},
        "not tested: on all 4 shadow tasks the text path ended the same ('0')",
    ),
    "one shadow task": ({"body": "return '60'", "rows": PRICES[:1], "m": 1}, "a tool that always ends so passes"),
    "right but for one": ({"body": f"{RIGHT} if '11' not in query else '0'", "m": 4}, "it answered '0'"),
    "runs without an answer": ({"body": ZERO, "judge": "", "says": ""}, "it agreed on 0 of 3"),
}


@needs_bubblewrap
@pytest.mark.parametrize("planted", REFUSED)
def test_a_tool_that_could_not_have_failed_is_not_admitted(crafted, planted):
    how, why = REFUSED[planted]
    done = crafted(**how)
    assert not done.tool
    assert why in done.why, done.why


@needs_bubblewrap
@pytest.mark.parametrize(
    "how",
    [{}, {"judge": ""}, {"says": "That makes {}."}, {"m": 4}],
    ids=["judged", "the same words", "in words", "all"],
)
def test_a_tool_that_is_right_is_admitted(crafted, how):
    done = crafted(RIGHT, **how)
    assert done.tool, done.why
    assert done.shadowed.checks.could_differ == how.get("m", 3)


def test_tasks_that_all_end_the_same_tell_nothing_of_a_tool():
    async def stands(task: int) -> End:
        return End("closed")

    async def works(task: int) -> End:
        return End("closed", moved=True)

    found = asyncio.run(shadow(range(9), stands, stands, 3))
    assert not found
    assert found.why == (
        "not tested: on all 9 shadow tasks the text path ended the same ('closed'): a tool that always ends so passes"
    )
    assert not found.checks.tested
    assert asyncio.run(shadow(range(9), stands, works, 3)), "where the work moves the world, doing nothing differs"
