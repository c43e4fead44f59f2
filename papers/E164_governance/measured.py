"""The cells of specs/E164 section 5 that were measured, driven again on whatever versions are installed.

Each claim is a list of runs with what was predicted of each, ``lost`` or ``kept``; the summariser is the oracle.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from clew.core.values import Message
from clew.harness.context.pins import Pins, texts_of
from clew.methods.pins.stacks import STACKS, AutoGen, LangChain, LangMem, Session, Summary
from clew.methods.pins.structural import RULE, Oracle, filler, told

SIZES = (512, 1024, 2048)
TIMES = (1.4, 2.0, 3.5, 7.0, 10.7)  # 0.7k to 22k tokens


class Found(NamedTuple):
    """One run: the claim it belongs to, its setting, and what came out. fired: the stack shortened the history."""

    claim: str
    setting: str
    predicted: bool  # that the rule is lost
    lost: bool
    fired: bool
    asked: int


Open = Callable[[Summary, Pins | None], Session]


def drive(
    open_: Open, units: Sequence[Sequence[Message]], stepwise: bool, pins: Pins | None
) -> tuple[list[Any], Oracle, Any]:
    """Feed a history whole or unit by unit; give what is sent last, the oracle and the session."""
    oracle = Oracle()
    session = open_(oracle, pins)
    feeds = units if stepwise else [[m for unit in units for m in unit]]
    sent: list[Any] = []
    for feed in feeds:
        sent = session.feed(feed)
    return sent, oracle, session


def run(
    claim: str, setting: str, open_: Open, units: Sequence[Sequence[Message]], lost: bool, pins: Pins | None,
    stepwise: bool = False,
) -> Found:  # fmt: skip
    sent, oracle, session = drive(open_, units, stepwise, pins)
    texts = [text for m in sent for text in texts_of(m, session.form)]
    fired = len(sent) < sum(map(len, units))
    return Found(claim, setting, lost, not any(RULE in text for text in texts), fired, oracle.calls)


def chat(tokens: float, piece: int = 60) -> list[list[Message]]:
    """The rule as the first message, then a chat."""
    return [told("user"), *filler(tokens, "chat", 1, piece)]


def loop(tokens: float, piece: int = 150) -> list[list[Message]]:
    """The rule as the only message of a user, then tool calls."""
    return [told("user"), *filler(tokens, "tools", 1, piece)]


def measured(pinned: bool = False) -> Iterator[Found]:
    """Every measured cell of section 5."""
    pins = Pins([RULE]) if pinned else None
    yield from _langmem(pins)
    yield from _langchain(pins)
    for kind, settings, lost in (
        ("Buffered", {"buffer_size": 12}, True),
        ("HeadAndTail", {"head_size": 1, "tail_size": 11}, False),
        ("TokenLimited", {}, False),
    ):
        for size in SIZES:

            def open_(summary: Summary, pins: Pins | None, how: Any = (kind, size), more: Any = settings) -> Session:
                return AutoGen(*how, pins, **more)

            name = f"AutoGen {kind} {'drops' if lost else 'keeps'} the rule"
            yield run(name, f"limit {size}, 3 x", open_, chat(3 * size), lost, pins)


def _langmem(pins: Pins | None) -> Iterator[Found]:
    def at(name: str, size: int, times: float, lost: bool, share: float = 0.0, stepwise: bool = False) -> Found:
        more = {"max_tokens_before_summary": int(share * size)} if share else {}
        summed = f"before summary {share} of it, " if share else ""
        setting, units = f"max_tokens {size}, {summed}history {times} x", chat(times * size)
        return run(f"LangMem{name}", setting, lambda s, p: LangMem(size, s, p, **more), units, lost, pins, stepwise)

    def whole(budget: int) -> Open:
        return lambda summary, pins: LangMem(budget, summary, pins)

    for size in SIZES:
        yield from (at(" default, one-shot: lost", size, times, True) for times in TIMES)
    for size, times in ((512, 1.4), (512, 3.5), (1024, 1.4), (1024, 2.0), (1024, 3.5), (2048, 1.4), (2048, 2.0)):
        yield at(" default, turn by turn: lost", size, times, True, stepwise=True)
    name = "LangMem default, a prefix of exactly max_tokens is not trimmed: kept"
    for times, stepwise in ((1.4, False), (1.4, True), (2.0, True)):  # messages of 50 happen to add up to 2048 exactly
        units = chat(times * 2048, 50)
        yield run(name, f"2048, {times} x, {stepwise}", whole(2048), units, False, pins, stepwise)
    name = ", max_tokens_before_summary a half or three quarters, turn by turn: kept"
    for share, size, times in itertools.product((0.5, 0.75), (1024, 2048), (1.1, 1.4, 2.0, 3.5, 5.0)):
        yield at(name, size, times, False, share, stepwise=True)
    for size in SIZES:
        name, setting = "LangMem, the only human message is the first: kept", f"max_tokens {size}, 3 x"
        yield run(name, setting, whole(size), loop(3 * size), False, pins)


def _langchain(pins: Pins | None) -> Iterator[Found]:
    """The region that is summarised is all but the last 20 messages."""

    def at(name: str, region: int, piece: int, lost: bool) -> Found:
        units, setting = chat(region + 20 * piece, piece), f"region {region}, messages of {piece}"
        return run(f"LangChain, {name}", setting, open_, units, lost, pins)

    def open_(summary: Summary, pins: Pins | None) -> Session:
        return LangChain(1000, summary, pins)

    for piece in (60, 150, 300):
        for region in (500, 900, 1500, 2200, 3000, 3400)[piece == 300 :]:
            yield at("region up to 4000 tokens: kept", region, piece, False)
    for piece, region in ((60, 4600), (60, 8000), (150, 4600), (150, 8000), (150, 16000), (300, 4800), (300, 16000)):
        yield at("region above 4000 tokens: lost", region, piece, True)
    name = "LangChain, autonomous loop above 4000 tokens: the summariser is never called"
    for region in (6000, 12000):
        yield run(name, f"region {region}", open_, loop(region + 10 * 150), True, pins)


def versions() -> dict[str, str]:
    """Installed versions of the packages behind the stacks."""
    return {stack.package: stack.version for stack in STACKS.values() if stack.package != "clew" and stack.version}
