"""Do the rules of recorded runs survive compaction? Every run's history is compacted once by each stack.

``clew audit decay RUNS --rule`` calls it. A history is what the agent was about to be asked with before its last reply.
The budget is a share of it, and the summariser an oracle, which repeats the rule whenever it reads the rule: what is
lost was cut away by the stack. It must never ask a model, nor count a run that was never told the rule.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from clew.audit.compaction.own_stack import stack as stack_of
from clew.audit.compaction.stacks import Session
from clew.audit.compaction.structural import Oracle
from clew.audit.design import rate
from clew.core.records import Report
from clew.core.values import Message
from clew.harness.context.compaction import size
from clew.harness.context.pins import Pins, orphans, texts_of
from clew.store import Run


class History(NamedTuple):
    """What a run was about to be asked with before its last reply."""

    run: str
    messages: tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class Survival:
    """One rule in one stack.

    kept, pinned: share of the runs whose next request still holds the rule word for word, without a pin and with it;
    None where the stack gave up in every run. unseen, later: runs that lost it before the summariser saw it, or after.
    torn: runs left with a tool's result without its call, or a call without its result. failed: runs in which the stack
    gave up. worst: a run that lost it, the longest; empty where none did.
    """

    stack: str
    version: str
    rule: str
    kept: Report | None
    pinned: Report | None
    unseen: int
    later: int
    torn: int
    failed: int
    worst: str


def histories(runs: Iterable[Run], rule: str) -> tuple[list[History], Counter[str]]:
    """The histories that hold a rule word for word, and how many runs do not serve, by reason."""
    found, left = list[History](), Counter[str]()
    for run in runs:
        paths = (run.conversation(index) for index in run.store.conversations(run.id))
        messages = [node.message for node in max(paths, key=len, default=[])]
        last = max((i for i, message in enumerate(messages) if message.role == "assistant"), default=0)
        told = tuple(messages[:last])
        if not told:
            left["without a reply"] += 1
        elif not any(rule in message.text for message in told):
            left["never told the rule in these words"] += 1
        else:
            found.append(History(run.id, told))
    return found, left


def survival(
    name: str, rule: str, told: Sequence[History], share: float, each: Callable[[], None] = lambda: None
) -> Survival:
    """One stack over histories that hold the rule; at least one.

    Args:
        name: of an installed stack, or ``file.py:function``.
        share: the budget of tokens, as a share of each history.
        each: called after each history.

    Raises:
        UnknownName: no stack has that name. BadInput: a stack of the user's own failed.
    """
    stack = stack_of(name)
    kept = pinned = unseen = later = torn = failed = 0
    lost = list[History]()
    for history in told:
        budget, oracle = max(1, int(share * size(history.messages))), Oracle(rule)
        try:
            there, apart = _compacted(stack.open(budget, oracle, None), history, rule)
            held, _ = _compacted(stack.open(budget, Oracle(rule), Pins([rule])), history, rule)
        except RuntimeError:  # Inspect gives up where a strategy cannot reach the budget
            failed += 1
        else:
            kept, pinned = kept + there, pinned + held
            torn += apart
            unseen += not there and not oracle.saw
            later += not there and oracle.saw
            if not there:
                lost.append(history)
        each()
    n = len(told) - failed
    design = f"{n} histories compacted once to {share:.0%} of their length, Wilson interval"
    plain, held_fast = (rate(rule, hits, n, design=design) if n else None for hits in (kept, pinned))
    worst = max(lost, key=lambda history: size(history.messages)).run if lost else ""
    return Survival(name, stack.version, rule, plain, held_fast, unseen, later, torn, failed, worst)


def _compacted(session: Session, history: History, rule: str) -> tuple[bool, bool]:
    """Whether the next request holds the rule word for word, and whether it has torn messages."""
    sent = session.feed(history.messages)
    there = any(rule in text for message in sent for text in texts_of(message, session.form))
    return there, bool(orphans(sent, session.form))
