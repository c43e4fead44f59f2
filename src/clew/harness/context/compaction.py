"""Compaction: a long conversation is continued in a shorter branch; what was decided is recorded, nothing is lost.

A strategy makes few messages of many, within a budget of tokens. Leading system messages are no part of its work, and
messages with tool calls stay together with all their answers, in whatever order those came. The operator's ``Pins``
are put back by construction, whatever the strategy did. In a run, ``Compactor`` stands before each ask:

    compact = Compactor("summarise", budget=2000, pins=Pins(["Refund at most 50 dollars."]))
    while not run.done:
        chat = await compact(chat)
        reply = await chat.ask(run.view)
        await run.act(reply)

The old conversation stays in the record as it was; the branch names what it repeats, and a note ``compaction`` holds
the verifier's verdict. Strategies and their names are those of arXiv 2606.22528 (specs/E164, section 3, item 5).
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from clew.core.errors import BadInput, PinBroken
from clew.core.protocols import Model
from clew.core.values import Message
from clew.harness.context.pins import MESSAGES, Pins, mend, orphans, pairs
from clew.harness.run.live import Conversation

CHARACTERS = 4  # of a token, in the estimate that budgets are counted in
IMAGE = 1000  # tokens of an image in that estimate: endpoints count some 85 to 1,600, by its size
HEAD = "Summary of the conversation so far:\n"
ASK = "Summarise the conversation above in at most {words} words: requests, decisions, facts, work done."
Summariser = Callable[[Sequence[Message], int], Awaitable[str]]
"""Messages and a number of words -> a summary of them, asked to be no longer."""


class Strategy(Protocol):
    """Makes a shorter history of ``history`` (without leading system messages and orphans), if it can in ``budget``."""

    async def __call__(self, history: Sequence[Message], budget: int, summarise: Summariser) -> list[Message]: ...


def size(messages: Sequence[Message]) -> int:
    """Estimated tokens: a quarter of the characters of each message, rounded up, and 1,000 for each image."""
    return sum(
        math.ceil((len(m.text) + len(m.reasoning) + sum(len(c.name) + len(c.arguments) for c in m.calls)) / CHARACTERS)
        + (IMAGE * m.extra.count('"type":"image"') if '"media":[' in m.extra else 0)
        for m in messages
    )


def units(messages: Sequence[Message]) -> list[list[int]]:
    """Indices of messages that stand or fall together, in order: a reply's tool calls with their answers, else one."""
    groups = {min(group): sorted(group) for group in pairs(messages, MESSAGES)}
    inside = set[int]().union(*groups.values())
    return [groups.get(i, [i]) for i in range(len(messages)) if i in groups or i not in inside]


def newest(messages: Sequence[Message], budget: int, most: int | None = None) -> set[int]:
    """Indices of the newest units within ``budget`` tokens and ``most`` messages; the very newest unit in any case."""
    kept: set[int] = set()
    for unit in sorted(units(messages), key=lambda u: -u[-1]):
        more = kept | set(unit)
        if kept and (size([messages[i] for i in more]) > budget or (most is not None and len(more) > most)):
            break
        kept = more
    return kept


@dataclass(frozen=True, slots=True)
class Truncate:
    """Drops the oldest messages."""

    async def __call__(self, history: Sequence[Message], budget: int, summarise: Summariser) -> list[Message]:
        return _only(history, newest(history, budget))


@dataclass(frozen=True, slots=True)
class HeadAndTail:
    """Keeps the first ``head`` units and the newest: what was said first stays for ever, within the budget or not."""

    head: int = 1

    async def __call__(self, history: Sequence[Message], budget: int, summarise: Summariser) -> list[Message]:
        first = {i for unit in units(history)[: self.head] for i in unit}
        rest = [i for i in range(len(history)) if i not in first]
        tail = newest([history[i] for i in rest], budget - size(_only(history, first)))
        return _only(history, first | {rest[i] for i in tail})


@dataclass(frozen=True, slots=True)
class Summarise:
    """One summary of at most ``words`` words in place of all but the last ``keep`` messages."""

    words: int = 200
    keep: int = 4

    async def __call__(self, history: Sequence[Message], budget: int, summarise: Summariser) -> list[Message]:
        kept = newest(history, budget - 2 * self.words, self.keep)
        older = [m for i, m in enumerate(history) if i not in kept]
        if not older:
            return list(history)
        return [Message("user", HEAD + await summarise(older, self.words)), *_only(history, kept)]


@dataclass(frozen=True, slots=True)
class Hierarchical:
    """Summaries of ``chunk`` messages each, then one of these: for histories that no summariser takes at once."""

    words: int = 200
    keep: int = 4
    chunk: int = 8

    async def __call__(self, history: Sequence[Message], budget: int, summarise: Summariser) -> list[Message]:
        kept = newest(history, budget - 2 * self.words, self.keep)
        older = [m for i, m in enumerate(history) if i not in kept]
        if not older:
            return list(history)
        starts = range(0, len(older), self.chunk)
        parts = [await summarise(older[at : at + self.chunk], self.words) for at in starts]
        whole = parts[0]
        if len(parts) > 1:
            whole = await summarise([Message("user", HEAD + part) for part in parts], self.words)
        return [Message("user", HEAD + whole), *_only(history, kept)]


STRATEGIES: dict[str, Callable[[], Strategy]] = {
    "truncate": Truncate,
    "head-and-tail": HeadAndTail,
    "summarise": Summarise,
    "hierarchical": Hierarchical,
}


def strategy(named: str | Strategy) -> Strategy:
    """A strategy by name, or as it is.

    Raises:
        BadInput: no strategy has that name.
    """
    if not isinstance(named, str):
        return named
    if named not in STRATEGIES:
        raise BadInput(f"no strategy is called {named!r}", remedy=f"Known: {', '.join(STRATEGIES)}.")
    return STRATEGIES[named]()


class Verdict(NamedTuple):
    """What the verifier found of a compaction: tokens of the history before and after, messages, and faults."""

    before: int
    after: int
    budget: int
    messages: int
    kept: int
    faults: tuple[str, ...] = ()


async def compacted(
    messages: Sequence[Message],
    how: str | Strategy,
    budget: int,
    summarise: Summariser,
    pins: Pins | None = None,
    *,
    scope: str = "",
    now: float | None = None,
) -> tuple[list[Message], Verdict]:
    """``messages`` compacted, and the verifier's verdict.

    Args:
        budget: tokens of what follows the leading system messages, pins apart.
        scope, now: as in ``Pins.in_force``.

    Raises:
        BadInput: a budget below 1. PinBroken: a pin's text was altered.
    """
    if budget < 1:
        raise BadInput(f"a budget of {budget} tokens", remedy="Give at least 1.")
    system, history = split(bare(messages, pins))
    made = await strategy(how)(history, budget, summarise)
    out = [*system, *mend(made, MESSAGES)]
    out = out if pins is None else pins.apply(out, scope=scope, now=now)
    return out, verify(messages, out, budget, pins, scope=scope, now=now)


def bare(messages: Sequence[Message], pins: Pins | None) -> list[Message]:
    """``messages`` without orphans and, where pins are kept, without any pin: those of before are not compacted."""
    return mend(messages, MESSAGES) if pins is None else Pins().apply(messages)


def split(messages: Sequence[Message]) -> tuple[list[Message], list[Message]]:
    """The leading system messages, and the history that follows."""
    at = next((i for i, m in enumerate(messages) if m.role != "system"), len(messages))
    return list(messages[:at]), list(messages[at:])


def verify(
    before: Sequence[Message],
    after: Sequence[Message],
    budget: int,
    pins: Pins | None = None,
    *,
    scope: str = "",
    now: float | None = None,
) -> Verdict:
    """Judge a compaction by what came out of it."""
    faults = []
    head, old = split(bare(before, pins))
    whole = bare(after, pins)
    new = whole[len(head) :]
    if whole[: len(head)] != head:
        faults.append("a leading system message is gone or changed")
    if size(new) > budget:
        faults.append(f"{size(new)} tokens in a budget of {budget}")
    if found := orphans(after, MESSAGES):
        faults.append(f"{len(found)} tool messages without a partner")
    if pins is not None:
        try:
            pins.check(after, scope=scope, now=now)
        except PinBroken as error:
            faults.append(error.message)
    return Verdict(size(old), size(new), budget, len(before), len(after), tuple(faults))


@dataclass(slots=True)
class Compactor:
    """Keeps a conversation within a budget and its pins in place: call it before each ask, go on with what it gives.

    Args:
        how: a strategy or its name.
        budget: tokens of the history, leading system messages and pins apart; compaction starts above it.
        pins: the operator's rules.
        scope: whose pins are in force here.
        summariser: the model that writes summaries; None: the conversation's own.
        write: a function that writes them instead of a model.
    """

    how: str | Strategy
    budget: int
    pins: Pins | None = None
    scope: str = ""
    summariser: str | Model | None = None
    write: Summariser | None = None

    async def __call__(self, chat: Conversation) -> Conversation:
        """The conversation to ask in: ``chat`` itself where it fits and its pins are whole, else a branch.

        Raises:
            PinBroken: a pin's text was altered, or the strategy's messages could not be mended.
        """
        now = await chat.now() if self.pins is not None and self.pins.expire else None
        messages = [node.message for node in chat.nodes]
        _, history = split(bare(messages, self.pins))
        fits = size(history) <= self.budget
        if fits and self._whole(messages, now):
            return chat
        if fits:
            assert self.pins is not None
            made = self.pins.apply(messages, scope=self.scope, now=now)
            verdict, why = verify(messages, made, self.budget, self.pins, scope=self.scope, now=now), "pins"
        else:
            made, verdict = await compacted(
                messages, self.how, self.budget, self.write or self._writer(chat), self.pins, scope=self.scope, now=now
            )
            why = "compaction"
        if self.pins is not None:
            self.pins.check(made, scope=self.scope, now=now)
        branch = rebuilt(chat, made, why)
        name = self.how if isinstance(self.how, str) else type(self.how).__name__
        told = {**verdict._asdict(), "faults": list(verdict.faults)}
        chat.note(why, **{"from": chat.index, "to": branch.index, "strategy": name, **told})
        return branch

    def _whole(self, messages: Sequence[Message], now: float | None) -> bool:
        if self.pins is None:
            return True
        self.pins.in_force(self.scope, now)  # an altered pin is no matter of mending
        try:
            self.pins.check(messages, scope=self.scope, now=now)
        except PinBroken:
            return False
        return not orphans(messages, MESSAGES)

    def _writer(self, chat: Conversation) -> Summariser:
        async def write(messages: Sequence[Message], words: int) -> str:
            """Ask in a branch of its own, so that every summary is a Call of the run."""
            side = chat.branch(0, model=self.summariser, tools=())
            side.say("user", f"{transcribed(messages)}\n\n{ASK.format(words=words)}")
            return (await side.ask()).text

        return write


def transcribed(messages: Sequence[Message]) -> str:
    """Messages as one text for a summariser, who must not take up any role in them."""
    lines = []
    for m in messages:
        calls = [f"{c.name}({c.arguments})" for c in m.calls]
        lines.append(f"{m.role}: " + " ".join([*([m.text] if m.text else []), *calls]))
    return "\n".join(lines)


def rebuilt(chat: Conversation, messages: Sequence[Message], why: str) -> Conversation:
    """A branch of ``chat`` that says ``messages``; those of before are noted as repeated there, and why."""
    same = 0
    while same < min(len(messages), len(chat.nodes)) and chat.nodes[same].message == messages[same]:
        same += 1
    branch, old = chat.branch(same), {node.message: node for node in chat.nodes[same:]}
    branch.said = same  # an edit names a message of the branch by its place there
    for message in messages[same:]:
        node = branch.say(message.role, message)
        if node is not None and message in old:
            branch.repeats(node, old[message], why)
    return branch


def _only(history: Sequence[Message], kept: set[int]) -> list[Message]:
    return [m for i, m in enumerate(history) if i in kept]
