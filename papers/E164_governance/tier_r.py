"""The cells of tier R: which rules of a real policy survive compaction in 100 real airline runs (tau-bench, GPT-4o).

Each run is imported as it is, cut before its last reply, and compacted once: what the agent would have seen there. The
policy stands where it was delivered (system message), or is moved to the user's first turn or to a tool result.
``without`` is the control: the same runs with no policy at all, in which nothing but quotations can be found.
"""

import asyncio
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path

from clew.core.errors import BadInput
from clew.core.values import Message, ToolCall
from clew.exchange import openai_jsonl
from clew.exchange.transcript import Transcript
from clew.harness.context.compaction import STRATEGIES, compacted, orphans, size, split
from clew.harness.context.pins import Pins
from clew.methods.pins.survival import Write, extractive, load, oracle, surviving
from papers.experiment import Line, each, grid

HERE = Path(__file__).resolve().parent
RULES = HERE / "airline_rules.json"
DATA = HERE.parents[2] / "shared" / "data" / "tau_airline" / "gpt-4o.even-tasks.jsonl.gz"
DELIVERIES = ("system", "user", "tool", "without")
BUDGETS = (0.25, 0.5, 0.75)
SUMMARISERS = ("oracle", "extractive")
cost = 0.7


def cells(quick: bool) -> Iterator[Line]:
    """``quick``: half the history as the budget, one delivery and its control."""
    for delivery in ("user", "without") if quick else DELIVERIES:
        for share in (0.5,) if quick else BUDGETS:
            for how in STRATEGIES:
                who = SUMMARISERS if how in ("summarise", "hierarchical") else "none"
                pinned = (False, True) if delivery != "without" else False
                at = {"delivery": delivery, "budget": share, "strategy": how}
                yield from grid(kind="airline", **at, summariser=who, pinned=pinned, seed=0)


@lru_cache(maxsize=1)
def transcripts(path: Path = DATA) -> tuple[Transcript, ...]:
    """The imported runs.

    Raises:
        BadInput: the file is absent, or a line of it is none.
    """
    if not path.exists():
        raise BadInput(f"{path} is absent", remedy="Tier R needs the shared data; the committed results stand.")
    out = []
    for it in openai_jsonl.read(path):
        if not isinstance(it, Transcript):
            raise it
        out.append(it)
    return tuple(out)


def delivered(it: Transcript, how: str) -> list[Message]:
    """The run up to its last reply, the policy delivered in another way."""
    last = max(i for i, m in enumerate(it.messages) if m.role == "assistant")
    policy, rest = it.messages[0], list(it.messages[1:last])
    if how == "system":
        return [policy, *rest]
    if how == "user":
        return [Message("user", policy.text), *rest]
    if how == "without":
        return rest
    call = ToolCall("call_policy", "policy", "{}")
    return [rest[0], Message("assistant", "", calls=(call,)), Message("tool", policy.text, call_id=call.id), *rest[1:]]


def _cell(setting: Line, seed: int) -> Line:
    rules = load(RULES)
    texts = [rule.text for rule in rules]
    write: Write = oracle(texts) if setting["summariser"] == "oracle" else extractive

    async def summarise(messages: Sequence[Message], words: int) -> str:
        return write(messages, words)

    async def every() -> list[tuple[int, int, int, int, int]]:
        out = []
        for it in transcripts():
            messages = delivered(it, setting["delivery"])
            budget = max(1, int(setting["budget"] * size(split(messages)[1])))
            pins = Pins(texts) if setting["pinned"] else None
            sent, verdict = await compacted(messages, setting["strategy"], budget, summarise, pins)
            exact, slots = surviving(sent, rules)
            over = int(verdict.after > verdict.budget)
            out.append((len(exact), len(slots), len(orphans(sent)), over, size(sent)))
        return out

    exact, slots, torn, over, tokens = zip(*asyncio.run(every()), strict=True)
    return {
        "rules": len(rules), "tasks": [it.task_id for it in transcripts()], "exact": exact, "slots": slots,
        "torn": sum(torn), "over": sum(over), "tokens": sum(tokens) / len(tokens),
        "block": size([Message("system", Pins(texts).block())]) if setting["pinned"] else 0,
    }  # fmt: skip


run = each(_cell)
