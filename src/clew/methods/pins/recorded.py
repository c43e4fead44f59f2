"""Do the rules of recorded runs survive compaction? Every run's history is compacted once by each stack.

``clew audit decay RUNS --rule`` calls it. A history is what the agent was about to be asked with before its last reply.
The budget is a share of it, and the summariser an oracle, which repeats the rule whenever it reads the rule: what is
lost was cut away by the stack. Where a model writes the summaries, what was lost after it had seen the rule is its own
doing. It must never count a run that was never told the rule, nor a history that the stack left as it was.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from clew.core.comparisons import Comparisons
from clew.core.records import Report
from clew.core.values import Message
from clew.harness.context.compaction import size
from clew.harness.context.pins import Pins, orphans, texts_of
from clew.methods.compare.design import rate
from clew.methods.pins.own_stack import stack as stack_of
from clew.methods.pins.stacks import Session
from clew.methods.pins.structural import Oracle, cause
from clew.store import Run


class History(NamedTuple):
    """What a run was about to be asked with before its last reply."""

    run: str
    messages: tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class Survival:
    """One rule in one stack.

    kept, pinned: share of the compacted runs whose next request still holds the rule word for word, without a pin and
    with it; None where no run was compacted. unseen, later: runs that lost it before the summariser saw it, or after.
    unknown: runs in which a stack of the user's own lost it and wrote a summary without asking for one, so that nobody
    knows whether it had seen the rule. torn: runs left with a tool's result without its call, or a call without its
    result. failed: runs in which the stack gave up. whole: runs whose history the stack left as it was. worst: a run
    that lost it, the longest; empty where none did.
    """

    stack: str
    version: str
    rule: str
    kept: Report | None
    pinned: Report | None
    unseen: int
    later: int
    unknown: int
    torn: int
    failed: int
    whole: int
    worst: str

    @property
    def checks(self) -> Comparisons:
        """The histories, of which those could have lost the rule that were compacted."""
        n = self.kept.n if self.kept is not None else 0
        why = "the stack gave up in each" if self.failed and not self.whole else "the stack left each as it was"
        return Comparisons("histories", n + self.whole + self.failed, n, why_not=f"{why}, so none could lose the rule")


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
    name: str,
    rule: str,
    told: Sequence[History],
    share: float,
    each: Callable[[], None] = lambda: None,
    summariser: Callable[[str], Oracle] = Oracle,
) -> Survival:
    """One stack over histories that hold the rule; at least one.

    Args:
        name: of an installed stack, or ``file.py:function``.
        share: the budget of tokens, as a share of each history.
        each: called after each history.
        summariser: makes the one of a history, of the rule; default: the oracle.

    Raises:
        UnknownName: no stack has that name. BadInput: a stack of the user's own failed.
    """
    stack = stack_of(name)
    kept = pinned = torn = failed = whole = 0
    lost, causes = list[History](), Counter[str]()
    for history in told:
        budget, oracle = max(1, int(share * size(history.messages))), summariser(rule)
        try:
            session = stack.open(budget, oracle, None)
            there, apart, cut = _compacted(session, history, rule)
            held, _, _ = _compacted(stack.open(budget, summariser(rule), Pins([rule])), history, rule)
        except RuntimeError:  # Inspect gives up where a strategy cannot reach the budget
            failed += 1
        else:
            whole += not cut
            kept, pinned = kept + (cut and there), pinned + (cut and held)
            torn += apart
            if cut and not there:
                lost.append(history)
                causes[cause(session, oracle)] += 1
        each()
    n = len(told) - failed - whole
    design = f"{n} histories compacted once to {share:.0%} of their length, Wilson interval"
    plain, held_fast = (rate(rule, hits, n, design=design) if n else None for hits in (kept, pinned))
    worst = max(lost, key=lambda history: size(history.messages)).run if lost else ""
    why = (causes["unseen"], causes["later"], causes["unknown"])
    return Survival(name, stack.version, rule, plain, held_fast, *why, torn, failed, whole, worst)


def _compacted(session: Session, history: History, rule: str) -> tuple[bool, bool, bool]:
    """Whether the next request holds the rule word for word, whether it has torn messages, and whether the stack has
    taken anything away."""
    sent = session.feed(history.messages)
    texts = [text for message in sent for text in texts_of(message, session.form)]
    there = any(rule in text for text in texts)
    whole = set(texts)
    missing = (m.text for m in history.messages if m.text and m.text not in whole)
    cut = any(not any(said in text for text in texts) for said in missing)
    return there, bool(orphans(sent, session.form)), cut
