"""Measures what cliffs lead to: deleting against keeping them, with controls; makes single-token preference pairs
(E172).

``clew audit cliffs`` and ``clew tune --loss cliff-dpo`` call it. Both measurements need further continuations, which
are kept like those of the search. Correct answers must never be compared without their tokens: a continuation that
begins late decodes fewer tokens than one that begins anew.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clew.core.errors import BadInput
from clew.core.keys import derive, value_digest
from clew.core.protocols import Tops
from clew.core.records import Annotation, Report
from clew.harness.fork.continuations import Continuations, Start
from clew.methods.cliffs import statistics
from clew.methods.cliffs.detect import LISTED, Cliff, Found, Told, around, counted
from clew.methods.cliffs.positions import Position, prefix
from clew.methods.cliffs.statistics import F64, RIGHT

PAIR = "cliff-pair"
RESAMPLES = 4000
ARMS = ("delete", "keep", "random delete", "random keep", "restart")


@dataclass(frozen=True, slots=True)
class Effect:
    """Of the first confirmed cliff of each failed run, [arms, cliffs]: share right, and tokens of one continuation.

    Arms: from before the cliff, from after it, the same around another sampled token of the run drawn at random, and
    from the run's first ask.
    """

    cliffs: list[Cliff]
    n: int
    right: F64
    tokens: F64

    def reports(self) -> list[Report]:
        """del@1 - keep@1, its control at random positions, and both against restarting at equal tokens."""
        right = dict(zip(ARMS, self.right, strict=True))
        worth = dict(zip(ARMS, self.right * self.tokens[-1:] / np.maximum(self.tokens, 1.0), strict=True))
        per = "right answers for the tokens of one restart"
        return [
            self._report("del@1 - keep@1", right["delete"] - right["keep"]),
            self._report("control: the same at random positions", right["random delete"] - right["random keep"]),
            self._report(f"delete - random delete, {per}", worth["delete"] - worth["random delete"]),
            self._report(f"delete - restart, {per}", worth["delete"] - worth["restart"]),
        ]

    def _report(self, claim: str, values: F64) -> Report:
        n, mean = len(values), float(values.mean())
        design = f"{n} cliffs, {self.n} fresh continuations an arm, bootstrap over cliffs"
        low, high = -1.0, max(1.0, mean)
        if n > 1:
            picks = np.random.default_rng(0).integers(0, n, (RESAMPLES, n))
            low, high = (float(x) for x in np.percentile(values[picks].mean(axis=1), [2.5, 97.5]))
        why = () if n > 1 else ("one cliff: nothing is known of others",)
        return Report(
            claim=claim, estimate=mean, low=min(low, mean), high=max(high, mean), n=n, design=design, caveats=why
        )


def first_cliffs(found: Found) -> dict[Cliff, Start]:
    """The first confirmed cliff of each run that did not succeed, and where that run was first asked."""
    order = {p: i for i, p in enumerate(found.survey.positions)}
    out: dict[Cliff, Start] = {}
    for run in found.survey.runs:
        asks = {call.seq: call.run for call in run.calls if call.kind == "ask"}
        mine = [c for c in found.confirmed if asks.get(c.position.seq) == c.position.run]
        reward = run.reward
        if mine and reward is not None and reward <= RIGHT:
            seq = min(asks)
            out.setdefault(min(mine, key=lambda c: order[c.position]), Start(asks[seq], seq))
    return out


def effect(found: Found, n: int = 64, told: Told = None) -> Effect | None:
    """Delete or keep the first cliff of each failed run; None where there is no such cliff.

    The random position is one of the other sampled tokens (or steps) of the same run, each alike.
    """
    of, rows = found.survey.of, dict[Cliff, list[Start]]()
    for cliff, first in first_cliffs(found).items():
        if (other := _other(found, cliff)) is not None:
            p = cliff.position
            rows[cliff] = [p.before, p.after, other.before, other.after, first]
    return _measured(of, rows, n, told) if rows else None


def _measured(of: dict[str, Continuations], arms: dict[Cliff, list[Start]], n: int, told: Told) -> Effect | None:
    rows = list(arms.values())
    right, tokens = np.zeros((len(ARMS), len(rows))), np.zeros((len(ARMS), len(rows)))
    for arm in range(len(ARMS)):
        for hands in {id(of[row[arm].run]): of[row[arm].run] for row in rows}.values():
            mine = [i for i, row in enumerate(rows) if of[row[arm].run] is hands]
            made = hands.sample(f"effect {ARMS[arm]}", [rows[i][arm] for i in mine], n, told)
            for i in mine:
                samples = made[rows[i][arm]]
                decided = samples.outcomes[~np.isnan(samples.outcomes)]
                right[arm, i] = float((decided > RIGHT).mean()) if len(decided) else np.nan
                tokens[arm, i] = float(samples.tokens.mean())
    whole: NDArray[np.bool_] = np.asarray(~np.isnan(right).any(axis=0))
    if not whole.any():
        return None
    kept = [c for c, ok in zip(arms, whole, strict=True) if ok]
    return Effect(kept, n, right[:, whole], tokens[:, whole])


def _other(found: Found, cliff: Cliff) -> Position | None:
    """Another sampled position of the cliff's run, by a seed that the cliff fixes."""
    mine = [p for p in found.survey.positions if p.run == cliff.position.run and p != cliff.position]
    where = derive(0, "random position", str(cliff.position.before))
    return mine[where % len(mine)] if mine else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """Which next tokens may be preferred to a cliff token.

    top: of so many likeliest. n: continuations from each. floor: least chance at temperature 1; the source has none
    (0), so that tokens the policy all but never says are pushed too. hard: only those whose potential is at least the
    one before the cliff. kinds: of cliffs; None takes all.
    """

    top: int = 10
    n: int = 64
    floor: float = 0.01
    hard: bool = False
    kinds: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Pairs:
    """Preference pairs: for each cliff the candidates that were preferred, with their potentials."""

    found: Found
    how: Candidates
    items: list[tuple[Cliff, list[dict[str, Any]]]] = field(default_factory=list)
    continuations: int = 0

    def __len__(self) -> int:
        return sum(len(chosen) for _, chosen in self.items)

    def records(self) -> list[dict[str, Any]]:
        """One JSON object a pair: where it is, the ids the model had received, both tokens and their potentials."""
        run = self.found.survey.runs[0]
        return [
            {
                "at": str(cliff.position.before),
                "prompt_ids": prefix(run, cliff.position),
                "rejected": cliff.position.id,
                "kind": cliff.kind,
                "before": cliff.before,
                "after": cliff.after,
                **item,
            }
            for cliff, chosen in self.items
            for item in chosen
        ]

    def annotations(self) -> list[Annotation]:
        """One row per ask, target ``call``; ``data`` lists its pairs. A trainer reads them from the store."""
        settings = [self.found.survey.params, self.how.top, self.how.n, self.how.floor, self.how.hard]
        params = value_digest([*settings, list(self.how.kinds or ())]).hex()
        grouped: dict[tuple[str, int], list[dict[str, Any]]] = {}
        for cliff, chosen in self.items:
            p = cliff.position
            where = {"token": p.token, "rejected": p.id, "kind": cliff.kind}
            grouped.setdefault((p.run, p.seq), []).extend(where | item for item in chosen)
        return [
            Annotation("call", PAIR, float(len(items)), run, seq, params=params, data=json.dumps(items))
            for (run, seq), items in grouped.items()
            if items
        ]

    def file(self) -> None:
        """Put the annotations into the runs' store."""
        store = self.found.survey.runs[0].store
        store.annotate(self.annotations())
        store.commit()


def pairs(found: Found, how: Candidates = Candidates(), told: Told = None) -> Pairs:
    """Single-token pairs (section 5): rejected a confirmed cliff token, chosen each other candidate that is no cliff.

    Raises:
        BadInput: the cliffs are steps, or the model does not list next tokens.
    """
    wanted = [c for c in found.confirmed if how.kinds is None or c.kind in how.kinds]
    of, listed = found.survey.of, list[tuple[Cliff, int, float, Start]]()
    for cliff in wanted:
        p = cliff.position
        model = of[p.run].spec.model
        if p.token < 0 or not isinstance(model, Tops):
            raise BadInput(
                "pairs need cliff tokens and a model that lists its next tokens",
                remedy="Look at tokens, with local weights (--model FOLDER).",
            )
        ids, logprobs = model.top([prefix(found.survey.runs[0], p)], LISTED)[0]
        for i, chance in zip(ids[: how.top], np.exp(logprobs[: how.top]).tolist(), strict=True):
            if i != p.id and chance >= how.floor:
                listed.append((cliff, i, chance, Start(p.run, p.seq, p.token, (i,))))
    potentials = counted(of, "candidate", [start for *_, start in listed], how.n, told)
    search = found.survey.search
    stage, n = ("screen", search.n) if search.detector == "published" else ("fresh", search.fresh)
    befores = counted(of, stage, list(dict.fromkeys(c.position.before for c in wanted)), n)
    made: dict[Cliff, list[dict[str, Any]]] = {c: [] for c in wanted}
    for cliff, i, chance, start in listed:
        p = cliff.position._replace(after=start)
        before, after = around([p], {p.before: befores[p.before], start: potentials[start]})
        falls = bool(statistics.fires(before, after, search.margin, search.level)[0])
        enough = bool(after.n[0]) and (not how.hard or bool(after.potential[0] >= before.potential[0]))
        if not falls and enough:
            made[cliff].append({"chosen": i, "chance": round(chance, 6), "potential": float(after.potential[0])})
    items = [(cliff, chosen) for cliff, chosen in made.items() if chosen]
    return Pairs(found, how, items, len(potentials) * how.n)
