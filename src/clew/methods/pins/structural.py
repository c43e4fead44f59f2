"""Does a stack keep its rules through compaction? The structural part: deterministic, without a model (specs/E164, 8A).

``clew audit decay`` calls it. A sentinel rule stands in a history that outgrows its budget. The summariser is an
oracle: it repeats the rule whenever it reads the rule, so that a lost rule was cut away by the stack itself. The audit
measures whether the rule was in a summariser's input (``seen``) and whether it is, word for word, in what the model is
sent next (``kept``). It must never ask a model.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Literal, NamedTuple

from clew.core.comparisons import Comparisons
from clew.core.values import Message, ToolCall
from clew.harness.context.compaction import CHARACTERS
from clew.harness.context.pins import TAG, Form, Pins, orphans, texts_of
from clew.methods.pins.own_stack import stack as stack_of
from clew.methods.pins.stacks import Session, Stack

RULE = "Send e-mail only to addresses at acme.example (7F3A9C)."
BUDGET = 3000  # tokens
PIECE = 150  # tokens of one message
HISTORIES = (1.1, 2.0, 5.0, 10.0)  # of the budget
POSITIONS = ("0", "3", "mid", "last")
CHANNELS = ("system", "user", "memory", "tool")
MIXES = ("chat", "tools")
GENERATIONS = 5


class Cell(NamedTuple):
    """One setting of the grid. ``history``: the first feed, as a multiple of the budget."""

    history: float
    position: str
    channel: str
    mix: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one feed led to. torn: messages without their partner in what the model is sent. blocks, tokens: of pins,
    and estimated tokens of the block. error: the stack gave up, and why. cut: the stack has taken something away.
    unknown: a stack of the user's own wrote a summary itself, so that ``seen`` says nothing."""

    stack: str
    cell: Cell
    generation: int
    seen: bool
    asked: int  # summaries so far
    kept: bool
    torn: int = 0
    blocks: int = 0
    tokens: int = 0
    error: str = ""
    cut: bool = True
    unknown: bool = False


class Oracle:
    """A summariser that repeats the rule whenever it sees it. ``calls`` and ``saw`` tell what it was shown."""

    def __init__(self, rule: str = RULE) -> None:
        self.rule, self.calls, self.saw = rule, 0, False

    def __call__(self, text: str) -> str:
        self.calls += 1
        found = self.rule in text
        self.saw |= found
        return "Routine work was asked for and done." + (f" {self.rule}" if found else "")


def cause(session: Session, oracle: Oracle) -> Literal["unseen", "later", "unknown"]:
    """Where a rule was lost: before the summariser saw it, or after; not known where a stack of the user's own wrote a
    text itself, and asked for none."""
    if not oracle.calls and getattr(session, "wrote", False):
        return "unknown"
    return "later" if oracle.saw else "unseen"


def cells(
    histories: Sequence[float] = HISTORIES,
    positions: Sequence[str] = POSITIONS,
    channels: Sequence[str] = CHANNELS,
    mixes: Sequence[str] = MIXES,
) -> list[Cell]:
    """The grid, or a part of it."""
    return [Cell(*setting) for setting in product(histories, positions, channels, mixes)]


def filler(tokens: float, mix: str, first: int = 0, piece: int = PIECE) -> list[list[Message]]:
    """Routine work of about so many tokens, in units: a user's message and its answer by turns, or, after one message
    of the user, tool calls with their results.

    Args:
        first: number of the first unit; an autonomous loop has its one message of the user in unit 0.
    """
    units: list[list[Message]] = []
    length, total, at = piece * CHARACTERS, 0.0, first
    while total < tokens:
        text = f"Item {at}: " + "routine work, nothing else. " * (length // 28)
        if mix == "chat":
            units.append([Message(("user", "assistant")[at % 2], text)])
        elif at == 0:
            units.append([Message("user", text)])
        else:
            call = ToolCall(f"call_{at}", "look_up", json.dumps({"item": at}))
            units.append([Message("assistant", "", calls=(call,)), Message("tool", text, call_id=call.id)])
        total += piece
        at += 1
    return units


def told(channel: str, rule: str = RULE) -> list[Message]:
    """The rule as a channel delivers it."""
    if channel == "tool":
        call = ToolCall("call_policy", "policy", "{}")
        return [Message("assistant", "", calls=(call,)), Message("tool", f"Policy: {rule}", call_id=call.id)]
    if channel == "memory":
        return [Message("user", f"From memory: {rule}")]
    return [Message(channel, rule)]


def first_feed(cell: Cell, budget: int = BUDGET, rule: str = RULE) -> list[Message]:
    """The history in which the rule stands at its position, counted in units from the start."""
    units = filler(cell.history * budget, cell.mix)
    at = {"mid": len(units) // 2, "last": len(units)}.get(cell.position)
    at = min(int(cell.position), len(units)) if at is None else at
    return [m for unit in [*units[:at], told(cell.channel, rule), *units[at:]] for m in unit]


def follow(
    stack: Stack,
    cell: Cell,
    pins: Pins | None = None,
    generations: int = GENERATIONS,
    budget: int = BUDGET,
    summariser: Callable[[], Oracle] = Oracle,
) -> Iterator[Outcome]:
    """One cell through its generations: every further feed is a budget's worth of routine work and a little more."""
    oracle = summariser()
    session = stack.open(budget, oracle, pins)
    fed, given = first_feed(cell, budget), 0
    for generation in range(1, generations + 1):
        try:
            sent = session.feed(fed)
        except RuntimeError as error:  # Inspect gives up where a strategy cannot reach the budget
            yield Outcome(
                stack.name, cell, generation, oracle.saw, oracle.calls, False, error=str(error).split("\n")[0]
            )
            return
        given += sum(len(message.text) for message in fed)
        found = _outcome(stack, cell, generation, oracle, sent, session.form, pins)
        left = sum(len(text) for message in sent for text in texts_of(message, session.form))
        yield replace(found, cut=left < given, unknown=cause(session, oracle) == "unknown")
        fed = [m for unit in filler(1.1 * budget, cell.mix, 1000 * generation) for m in unit]


def _outcome(
    stack: Stack, cell: Cell, generation: int, oracle: Oracle, sent: list[Any], form: Form[Any], pins: Pins | None
) -> Outcome:
    texts = [text for message in sent for text in texts_of(message, form)]
    kept = any(oracle.rule in text for text in texts)
    torn = len(orphans(sent, form))
    if pins is None:
        return Outcome(stack.name, cell, generation, oracle.saw, oracle.calls, kept, torn)
    pins.check(sent, form)
    blocks = [text for text in texts if TAG.search(text)]
    tokens = max((-(-len(text) // CHARACTERS) for text in blocks), default=0)
    return Outcome(stack.name, cell, generation, oracle.saw, oracle.calls, kept, torn, len(blocks), tokens)


def survey(
    stacks: Iterable[str],
    grid: Sequence[Cell] | None = None,
    *,
    pinned: bool = False,
    generations: int = GENERATIONS,
    each: Callable[[], None] = lambda: None,
    summariser: Callable[[], Oracle] = Oracle,
) -> list[Outcome]:
    """Every cell of the grid in every stack.

    Args:
        pinned: with the rule pinned through the stack's adapter.
        each: called after each cell.
        summariser: makes the one of a cell; default: the oracle, so that what is lost was cut away by the stack.

    Raises:
        UnknownName: no stack has that name. BadInput: a stack of the user's own failed. MissingExtra: its framework is
        not installed.
    """
    out: list[Outcome] = []
    for stack in [stack_of(name) for name in stacks]:
        for cell in cells() if grid is None else grid:
            out += follow(stack, cell, Pins([RULE]) if pinned else None, generations, summariser=summariser)
            each()
    return out


@dataclass(frozen=True, slots=True)
class Finding:
    """A stack over the grid: in how many (cell, generation) pairs the rule was still there, and where it was lost.

    lost: pairs in which the summariser never saw the rule (``unseen``) or saw it once and not again (``later``), or in
    which a stack of the user's own wrote a summary itself (``unknown``). cut: pairs in which something was taken away.
    worst: the values of the grid's settings under which most was lost, as text. torn: pairs with torn tool messages.
    """

    stack: str
    version: str
    n: int
    kept: int
    unseen: int
    later: int
    unknown: int
    failed: int
    torn: int
    cut: int
    worst: str

    @property
    def checks(self) -> Comparisons:
        """The requests, of which those could have lost the rule from which something was taken away."""
        why = "it gave up in each" if self.failed == self.n else "it left each history as it was"
        return Comparisons("requests", self.n, self.cut, why_not=f"{why}, so that nothing could lose the rule")

    @property
    def share(self) -> float:
        """Of the pairs in which the stack did not give up; it is a census of the grid and has no interval."""
        return self.kept / max(self.n - self.failed, 1)


def findings(outcomes: Sequence[Outcome]) -> list[Finding]:
    """One for each stack, in the order of the outcomes."""
    out = []
    for name in dict.fromkeys(o.stack for o in outcomes):
        mine = [o for o in outcomes if o.stack == name]
        lost = [o for o in mine if not o.kept and not o.error]
        worst = ""
        if lost:
            shares = []
            for field in Cell._fields:
                counts = Counter(getattr(o.cell, field) for o in mine)
                for value, n in Counter(getattr(o.cell, field) for o in lost).items():
                    shares.append((n / counts[value], f"{field} {value}: {n} of {counts[value]}"))
            worst = max(shares)[1]
        out.append(
            Finding(
                name,
                stack_of(name).version,
                len(mine),
                sum(o.kept for o in mine),
                sum(not o.seen and not o.unknown for o in lost),
                sum(o.seen and not o.unknown for o in lost),
                sum(o.unknown for o in lost),
                sum(bool(o.error) for o in mine),
                sum(o.torn > 0 for o in mine),
                sum(o.cut and not o.error for o in mine),
                worst,
            )
        )
    return out


def verdicts(found: Sequence[Finding], pinned: Sequence[Finding] = ()) -> list[str]:
    """A sentence for each stack that lost the rule: how often, where most, and what the measured lines save; and for
    each that was not tested, because it took nothing away.

    Args:
        pinned: the same stacks with the rule pinned.
    """
    by_name, pins, out = {f.stack: f for f in found}, {f.stack: f for f in pinned}, []
    for f in found:
        name = " ".join([f.stack, f.version]).strip()
        if not f.checks.tested:
            out.append(f"{name}: {f.checks.verdict('')}.")
        if f.kept + f.failed == f.n:
            continue
        how = "mostly before any summariser saw it" if f.unseen >= f.later else "mostly after a summariser had seen it"
        if f.unknown > max(f.unseen, f.later):
            how = "by a summariser of its own, the cause not known"
        said = [f"{name} loses the rule in {_lost(f)}, {how} (worst: {f.worst})"]
        for other in by_name:
            if stack_of(other).saves == f.stack:
                said.append(f"with {stack_of(other).settings} in {_lost(by_name[other])}")
        if f.stack in pins:
            said.append(f"with the pin in {_lost(pins[f.stack])}")
        out.append("; ".join(said) + ".")
    return out


def _lost(f: Finding) -> str:
    return f"{f.unseen + f.later + f.unknown} of {f.n - f.failed} requests"
