"""Which of two runs, or of two replies to one prompt, people prefer: pairs made of labels.

``clew export --pairs`` writes them, ``clew tune --loss dpo --by-labels`` learns from them. Nothing is compared across
tasks or prompts, and a pair about which people disagree evenly is none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

from clew.store.labels import UNSURE, VERDICTS, Label, verdict_set
from clew.store.run import Run

MOST = 100  # pairs of one task or prompt
Key = tuple[str, ...]


class Preference(NamedTuple):
    """One thing preferred to another: two runs of one task (``seq`` is -1), or two replies to the same messages.

    by: whose labels say so. votes: how many authors prefer it, less those who prefer the other; of authors who
    labelled both, else of all. key: what both have in common.
    """

    key: Key
    chosen: Label
    rejected: Label
    by: tuple[str, ...]
    votes: int


class Pairs(NamedTuple):
    """Preferences, and what gave none. tied: pairs that people do not order. left_out: pairs beyond ``MOST`` of one
    task or prompt. single: labelled things that have nothing to be compared with."""

    found: list[Preference]
    tied: int
    left_out: int
    single: int

    def __str__(self) -> str:
        told = [f"{self.tied} that people do not order" if self.tied else ""]
        told += [f"{self.left_out} beyond {MOST} of one task or prompt left out" if self.left_out else ""]
        told += [f"{self.single} labelled alone in their task or prompt" if self.single else ""]
        return "; ".join([f"{len(self.found)} pairs", *filter(None, told)])


def preferences(runs: Iterable[Run], verdicts: Sequence[str] = VERDICTS) -> Pairs:
    """Every pair of labelled runs of one task, and of labelled replies to the same messages, that people order.

    An author who labelled both orders them by stars, or, where these are equal or absent, by verdict. Where no author
    labelled both, a thing whose verdicts lie in the better half of the set is preferred to one in the worse half.
    Labels of spans order nothing.

    Raises:
        BadInput: ``verdicts`` is no set.
    """
    rank = {word: place for place, word in enumerate(w for w in verdict_set(verdicts) if w != UNSURE)}
    things: dict[Key, dict[tuple[str, int], dict[str, Label]]] = {}
    for run in runs:
        for label in run.labels:
            key = _key(run, label)
            if key and label.span is None:
                things.setdefault(key, {}).setdefault((label.run, label.seq), {})[label.by] = label
    found, tied, left_out, single = list[Preference](), 0, 0, 0
    for key, alike in things.items():
        single += len(alike) == 1
        made = [_compared(key, a, b, rank) for a, b in combinations(alike.values(), 2)]
        kept = sorted((pair for pair in made if pair is not None), key=lambda pair: -pair.votes)
        tied += len(made) - len(kept)
        found += kept[:MOST]
        left_out += len(kept[MOST:])
    return Pairs(found, tied, left_out, single)


def _key(run: Run, label: Label) -> Key:
    """What a labelled thing can be compared within; empty for a run of no task, and for a Call that is no reply."""
    if label.seq < 0:
        return ("task", run.taskset, run.task_id) if run.task_id else ("group", run.group) if run.group else ()
    call = run.call(label.seq)
    return ("prompt", call.node_in.hex()) if call.node_out else ()


def _compared(key: Key, a: Mapping[str, Label], b: Mapping[str, Label], rank: Mapping[str, int]) -> Preference | None:
    """The better of two things, by the authors that labelled both, else by what each is called in the mean."""
    both = [by for by in a if by in b]
    votes = {by: _order(a[by], b[by], rank) for by in both}
    total = sum(votes.values())
    if not both and (one := _middle(a, rank)) is not None and (other := _middle(b, rank)) is not None:
        half = (len(rank) - 1) / 2
        total = (one < half < other) - (other < half < one)
        votes = {by: total for by, label in [*a.items(), *b.items()] if label.verdict in rank}
    if total == 0:
        return None
    better, worse = (a, b) if total > 0 else (b, a)
    by = tuple(sorted(name for name, vote in votes.items() if vote * total > 0))
    return Preference(key, next(iter(better.values())), next(iter(worse.values())), by, abs(total))


def _order(a: Label, b: Label, rank: Mapping[str, int]) -> int:
    """1 where an author prefers the first, -1 for the second, 0 for neither."""
    if a.stars is not None and b.stars is not None and a.stars != b.stars:
        return 1 if a.stars > b.stars else -1
    one, other = rank.get(a.verdict), rank.get(b.verdict)
    return 0 if one is None or other is None else (one < other) - (other < one)


def _middle(labels: Mapping[str, Label], rank: Mapping[str, int]) -> float | None:
    """The mean place in the set of what authors say; None where no verdict has a place."""
    places = [rank[label.verdict] for label in labels.values() if label.verdict in rank]
    return sum(places) / len(places) if places else None
