"""Cliffs of stored runs: where to look, what the search will cost, sampling, testing, and filing the result (E172).

``clew audit cliffs`` calls it. ``survey`` says which tokens (or steps) of some runs could be cliffs at all and what
sampling them costs. ``detect`` samples continuations before and after each (``harness/fork/continuations.py``), tests
them (``cliffs/statistics.py``) and gives a ``Found``, whose ``annotations`` are values beside the runs: ``potential``
on tokens, ``cliff`` on Calls. A sample must never be paid for twice: samples are kept, so that a stopped search
continues where it was, and a second search costs nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from clew.core.comparisons import Comparisons
from clew.core.errors import BadInput
from clew.core.keys import value_digest
from clew.core.protocols import Tops
from clew.core.records import Annotation, Report
from clew.harness.fork.continuations import Continuations, Start
from clew.methods.cliffs import positions, statistics
from clew.methods.cliffs.positions import Position, prefix
from clew.methods.cliffs.statistics import F64, Counts, Kind
from clew.store import Run
from clew.store.run import pace

CLIFF, POTENTIAL, GAIN = "cliff", "potential", "gain"
LISTED = 20  # next tokens that entropy is summed over, as in the source
Told = Callable[[int], None] | None
"""Called with a number of continuations that were just made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """How cliffs are looked for.

    at: every sampled token, or whole steps (an ask up to the next step's). n: continuations from each place. fresh:
    those of the second, independent batch. margin: the least drop that counts. level: of the test, and of the share of
    false cliffs. detector: see ``audit.cliffs``; ``published`` tests every token after the first, once, and stops after
    20 zeros.
    """

    at: Literal["tokens", "steps"] = "tokens"
    n: int = 64
    fresh: int = 64
    margin: float = statistics.MARGIN
    level: float = statistics.LEVEL
    detector: Literal["mended", "published"] = "mended"

    def __post_init__(self) -> None:
        if min(self.n, self.fresh) < 2 or not 0 <= self.margin < 1 or not 0 < self.level < 0.5:
            raise BadInput(
                f"{self}", remedy="Needs n and fresh of 2 or more, a margin in [0, 1) and a level in (0, .5)."
            )


class Cliff(NamedTuple):
    """A position at which the rule fired. Estimates are of the fresh batch, under ``published`` of the only one.

    kind, entropy (nats), rank: of the token, None where the model does not list next tokens. first: potentials of the
    batch that flagged it. drop with its 95 % interval; p of "at most the margin", q adjusted for all flagged together.
    """

    position: Position
    kind: Kind | None
    entropy: float | None
    rank: int | None
    first: tuple[float, float]
    before: float
    after: float
    drop: float
    low: float
    high: float
    p: float
    q: float
    confirmed: bool


@dataclass(frozen=True, slots=True)
class Survey:
    """What a search will look at. ``positions``: all that were sampled; ``tested``: those that could drop enough."""

    search: Search
    runs: list[Run]
    positions: list[Position]
    tested: list[Position]
    of: dict[str, Continuations]  # by the run that issued the Calls
    left: dict[Start, float]  # tokens that the record has from there to its end

    @property
    def starts(self) -> list[Start]:
        return list(dict.fromkeys(s for p in self.tested for s in (p.before, p.after)))

    def cost(self) -> dict[str, float]:
        """Continuations of the first batch still to be made, the tokens they take if each is as long as what the run
        went on with, US dollars and seconds at what the runs took per token (0 where that is not recorded; see
        ``pace``). The fresh batch comes on top."""
        n = {s: self.of[s.run].missing("screen", [s], self.search.n) for s in self.starts}
        tokens = sum(count * self.left[s] for s, count in n.items())
        spent, used = sum(run.cost for run in self.runs), sum(run.tokens for run in self.runs)
        return {
            "continuations": sum(n.values()),
            "tokens": tokens,
            "dollars": tokens * spent / used if used else 0.0,
            "seconds": tokens * pace(self.runs),
            "each flagged": 2 * self.search.fresh if self.search.detector == "mended" else 0,
        }

    @property
    def params(self) -> str:
        """Digest of the search and of what continues the runs."""
        settings = [x.settings for x in {id(c): c for c in self.of.values()}.values()]
        return value_digest([asdict(self.search), settings]).hex()


def survey(runs: Iterable[Run], of: Callable[[Run], Continuations], search: Search = Search()) -> Survey:
    """Where cliffs of some runs can be.

    Args:
        of: what continues a run; equal runs should get the same object.

    Raises:
        BadInput: a run has no token ids (at tokens), was sampled greedily, or was spawned by another.
    """
    listed, found, owners, left = list(runs), dict[tuple[str, int, int], Position](), dict[str, Continuations](), {}
    for run in listed:
        if run.row.spawned_by:
            raise BadInput(f"run {run.id} was spawned by another", remedy=f"Choose its parent, {run.row.spawned_by}.")
        hands = of(run)
        known = positions.chances(run, hands.spec.model, search.at)
        for position in (positions.tokens if search.at == "tokens" else positions.steps)(run, known):
            found.setdefault((position.run, position.seq, position.token), position)
            owners.setdefault(position.run, hands)
            for start in (position.before, position.after):
                left[start] = float(positions.left(run, start))
    every = list(found.values())
    if not every:
        raise BadInput(
            f"nothing was sampled in these {len(listed)} runs", remedy="Choose runs in which a model was asked."
        )
    if search.detector == "published":
        first = {p.run: p for p in reversed(every)}
        tested = [p for p in every if p is not first[p.run]]  # nothing is sampled before the first token
    else:
        tested = [p for p in every if statistics.can_fall(p.chance, search.margin)]
    return Survey(search, listed, every, tested, owners, left)


@dataclass(frozen=True, slots=True)
class Found:
    """What a search found: potentials of all places that were sampled, and the cliffs, unconfirmed ones included."""

    survey: Survey
    potentials: dict[Start, Counts]
    cliffs: list[Cliff]
    continuations: int

    @property
    def confirmed(self) -> list[Cliff]:
        return [c for c in self.cliffs if c.confirmed]

    @property
    def undecided(self) -> int:
        return sum(int(c.undecided) for c in self.potentials.values())

    def comparisons(self) -> Comparisons:
        """What "no cliff" rests on: a place could have been flagged only where even a fall to no success at all, from
        what was seen before it, would have passed the test (and its second batch)."""
        tested, search = self.survey.tested, self.survey.search
        before, after = around(tested, self.potentials)
        floor = Counts(np.zeros_like(after.right), after.n, after.undecided)
        could = statistics.fires(before, floor, search.margin, search.level)
        if search.detector == "mended":
            rate = before.right / np.maximum(before.n, 1)
            fresh = Counts.all_decided(np.round(rate * search.fresh).astype(np.int64), search.fresh)
            none = Counts.all_decided(np.zeros(len(tested), np.int64), search.fresh)
            could = could & (statistics.p_values(fresh, none, search.margin) <= search.level)
        what = "tokens" if search.at == "tokens" else "steps"
        why = f"none of {len(self.survey.positions)} {what} could lower the chance of success by more than the margin"
        if tested:
            highest = float(np.max(before.right / np.maximum(before.n, 1)))
            why = f"before no place did more than {highest:.0%} of so few decided continuations succeed"
            why += ", from where no fall would be significant; more of them (-n, --fresh) may do" if highest else ""
        able = max(int(could.sum()), len(self.confirmed))
        return Comparisons(f"{what} before and after", len(tested), able, search.margin, "of success", why)

    def replicated(self) -> Report | None:
        """Share of the flagged positions that hold on the fresh batch; None where nothing was flagged or drawn anew."""
        if not self.cliffs or self.survey.search.detector == "published":
            return None
        k, n = len(self.confirmed), len(self.cliffs)
        (low, high), fresh = map(float, statistics.wilson(k, n)), self.survey.search.fresh
        claim = "flagged positions that a fresh batch confirms"
        design = f"{fresh} + {fresh} fresh continuations each, Wilson interval"
        return Report(claim=claim, estimate=k / n, low=low, high=high, n=n, design=design)

    def annotations(self) -> list[Annotation]:
        """Per ask the potential after each sampled place (target ``tokens``), the potential before it, what it gained
        until the next ask, and its cliffs.

        The value of ``cliff`` is minus the largest confirmed drop, so that a run's low point is where it lost most.
        """
        store, params = self.survey.runs[0].store, self.survey.params
        whole: dict[tuple[str, int], float] = {}
        tokens: dict[tuple[str, int], dict[int, float]] = {}
        for start, counts in self.potentials.items():
            if not counts.n:
                continue
            if start.token:
                tokens.setdefault(start[:2], {})[start.token] = float(counts.potential)
            else:
                whole[start[:2]] = float(counts.potential)
        out = [Annotation("call", POTENTIAL, value, run, seq, params=params) for (run, seq), value in whole.items()]
        out += self._gains(whole)
        for (run, seq), values in tokens.items():
            call = store.calls(run, seq, seq + 1)[0]
            row = np.full(len(store.node(call.node_out).ids or ()), np.nan, np.float32)
            for token, value in values.items():
                row[call.head + token - 1] = value
            out.append(Annotation("tokens", POTENTIAL, None, run, seq, params=params, values=row))
        grouped: dict[tuple[str, int], list[Cliff]] = {}
        for cliff in self.cliffs:
            grouped.setdefault((cliff.position.run, cliff.position.seq), []).append(cliff)
        for (run, seq), some in grouped.items():
            drops = [c.drop for c in some if c.confirmed]
            data = json.dumps([described(c) for c in some])
            out.append(Annotation("call", CLIFF, -max(drops) if drops else None, run, seq, params=params, data=data))
        return out

    def _gains(self, whole: Mapping[tuple[str, int], float]) -> Iterator[Annotation]:
        """What each ask, and the act that followed, changed of the potential, where it was sampled on both sides; after
        the last ask of a judged run it is 1 or 0."""
        for run in self.survey.runs:
            seqs = [call.seq for call in run.calls if call.kind == "ask"]
            values = [whole.get((run.id, seq)) for seq in seqs]
            end = None if run.reward is None else float(run.reward > statistics.RIGHT)
            for seq, before, after in zip(seqs, values, [*values[1:], end], strict=True):
                if before is not None and after is not None:
                    yield Annotation("call", GAIN, after - before, run.id, seq, params=self.survey.params)

    def file(self) -> None:
        """Put the annotations into the runs' store."""
        store = self.survey.runs[0].store
        store.annotate(self.annotations())
        store.commit()


def described(cliff: Cliff) -> dict[str, Any]:
    """A cliff as JSON values; null where nothing was decided."""
    p = cliff.position
    where = {"at": str(p.before), "token": p.token, "id": p.id, "chance": round(p.chance, 6)}
    rest = {k: v for k, v in cliff._asdict().items() if k != "position"}
    return where | {k: _plain(v) if isinstance(v, float) else v for k, v in rest.items()}


def _plain(value: float) -> float | None:
    return round(value, 6) if np.isfinite(value) else None


def detect(plan: Survey, told: Told = None) -> Found:
    """Sample and test what a survey lists.

    Raises:
        CannotRestore, ModelError: as ``Continuations.sample``; what was sampled before is kept.
    """
    search = plan.search
    if search.detector == "published":
        return _published(plan, told)
    screen = counted(plan.of, "screen", plan.starts, search.n, told)
    before, after = around(plan.tested, screen)
    hits = [plan.tested[i] for i in np.flatnonzero(statistics.fires(before, after, search.margin, search.level))]
    starts = list(dict.fromkeys(s for p in hits for s in (p.before, p.after)))
    fresh = counted(plan.of, "fresh", starts, search.fresh, told)
    first, second = around(hits, screen), around(hits, fresh)
    p = statistics.p_values(*second, search.margin)
    found = _cliffs(plan, hits, first, second, p, statistics.adjusted(p))
    return Found(plan, screen, found, len(plan.starts) * search.n + len(starts) * search.fresh)


def counted(
    of: dict[str, Continuations], stage: str, starts: Sequence[Start], n: int, told: Told = None
) -> dict[Start, Counts]:
    """Outcomes of ``n`` continuations from each place, counted."""
    by_hands: dict[int, tuple[Continuations, list[Start]]] = {}
    for start in starts:
        hands = of[start.run]
        by_hands.setdefault(id(hands), (hands, []))[1].append(start)
    out: dict[Start, Counts] = {}
    for hands, some in by_hands.values():
        made = hands.sample(stage, some, n, told)
        table = Counts.of([made[start].outcomes for start in some])
        out |= {start: table.take(i) for i, start in enumerate(some)}
    return out


def around(positions: Sequence[Position], potentials: dict[Start, Counts]) -> tuple[Counts, Counts]:
    """Counts [positions] before and after each."""

    def column(places: Sequence[Start]) -> Counts:
        rows = np.array([potentials[s] for s in places], np.int64).reshape(-1, 3)
        return Counts(rows[:, 0], rows[:, 1], rows[:, 2])

    return column([p.before for p in positions]), column([p.after for p in positions])


def _published(plan: Survey, told: Told) -> Found:
    """Every position in order, one batch, run by run, until so many places in a row had no right continuation."""
    n, none = plan.search.n, Counts.all_decided(0, plan.search.n)
    known: dict[Start, Counts] = {}
    made = 0
    for run in dict.fromkeys(p.run for p in plan.tested):
        places = list(dict.fromkeys(s for p in plan.tested if p.run == run for s in (p.before, p.after)))
        for i in range(0, len(places), statistics.EARLY):
            known |= counted(plan.of, "screen", places[i : i + statistics.EARLY], n, told)
            seen = places[: i + statistics.EARLY]
            made += len(places[i : i + statistics.EARLY]) * n
            if len(seen) >= statistics.EARLY and not any(known[s].right for s in seen[-statistics.EARLY :]):
                break
        known |= {s: none for s in places if s not in known}
    before, after = around(plan.tested, known)
    hits = np.flatnonzero(statistics.fires(before, after, plan.search.margin, plan.search.level))
    pair = before.take(hits), after.take(hits)
    p = statistics.p_values(*pair, plan.search.margin)
    positions = [plan.tested[i] for i in hits]
    return Found(plan, known, _cliffs(plan, positions, pair, pair, p, p), made)


def _cliffs(
    plan: Survey, hits: Sequence[Position], first: tuple[Counts, Counts], second: tuple[Counts, Counts], p: F64, q: F64
) -> list[Cliff]:
    before, after = (counts.potential for counts in second)
    low, high = statistics.drop_interval(*second)
    measured = {"before": before, "after": after, "drop": before - after, "low": low, "high": high, "p": p, "q": q}
    keep = (q <= plan.search.level) if plan.search.detector == "mended" else np.ones(len(hits), bool)
    out = []
    for i, position in enumerate(hits):
        kind, entropy, rank = _kind(plan, position)
        searched = float(first[0].potential[i]), float(first[1].potential[i])
        found = {name: float(values[i]) for name, values in measured.items()}
        out.append(Cliff(position, kind, entropy, rank, first=searched, confirmed=bool(keep[i]), **found))
    return out


def _kind(plan: Survey, position: Position) -> tuple[Kind | None, float | None, int | None]:
    model = plan.of[position.run].spec.model
    if position.token < 0 or not isinstance(model, Tops):
        return None, None, None
    ids, logprobs = model.top([prefix(plan.runs[0], position)], LISTED)[0]
    entropy = float(statistics.entropy(logprobs))
    own = float(logprobs[ids.index(position.id)]) if position.id in ids else -np.inf
    rank = statistics.rank(logprobs, own)
    return statistics.kind(entropy, rank), entropy, rank
