"""Progress advantages of recorded runs: two models' logprobs become values of tokens, steps and runs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import numpy as np

from clew.core.keys import value_digest
from clew.core.protocols import Model
from clew.core.reading import Grouped, Record
from clew.core.records import Annotation
from clew.core.values import F32
from clew.credit import presets
from clew.credit.filing import Credit, Rescale, assign
from clew.credit.presets import Mode as Norm
from clew.credit.steps import F64, Ask, Ints, as_groups, steps
from clew.methods.grade.grade import Grades, Mode, TokenAgg, fold, grade

Replies = Literal["sampled", "all"]


class Reading(NamedTuple):
    """Runs as ``grade`` takes them: logprobs [T] of action tokens, spans [S, 2], owners [S], all runs end to end.

    asks: for each step its asks and, for each, which tokens of the reply's node the actions are. lost: steps some of
    whose tokens neither model scored; their spans are empty.
    """

    policy: F64
    ref: F64
    spans: Ints
    owner: Ints
    asks: tuple[tuple[tuple[Ask, Ints], ...], ...]
    runs: tuple[str, ...]
    lost: int

    @property
    def length(self) -> Ints:
        """Action tokens of each run, int64 [runs]."""
        return np.bincount(self.owner, self.spans[:, 1] - self.spans[:, 0], len(self.runs)).astype(np.int64)


def read(
    runs: Sequence[Record], policy: Mapping[Ask, F32], ref: Mapping[Ask, F32], replies: Replies = "sampled"
) -> Reading:
    """Join two models' logprobs of the runs' replies (as ``harness.scoring.score`` gives them) by step.

    Args:
        replies: ``sampled`` tokens are actions and forced ones context, or ``all`` of every reply, for replies that
            were given: an expert's, another model's, an injected mistake.
    """
    p, r, spans, owner, asks = list[F32](), list[F32](), list[tuple[int, int]](), list[int](), list[Any]()
    total = lost = 0
    for number, run in enumerate(runs):
        for step in run.steps:
            parts = list[tuple[Ask, Ints, tuple[F32, F32] | None]]()
            for call in step.asks:
                ask = (call.run, call.seq)
                given = call.head + (call.forced if replies == "sampled" else 0)
                mine, theirs = policy.get(ask), ref.get(ask)
                if mine is None or theirs is None:
                    parts.append((ask, np.zeros(0, np.int64), None))
                    continue
                at = np.arange(given, len(mine))
                at = at[np.isfinite(mine[at]) & np.isfinite(theirs[at])]
                parts.append((ask, at, (mine[at], theirs[at])))
            if not parts:
                continue
            whole = all(values is not None for _, _, values in parts)
            lost += not whole
            start = total
            for _, _, values in parts:
                if whole and values is not None:
                    p.append(values[0])
                    r.append(values[1])
                    total += len(values[0])
            spans.append((start, total))
            owner.append(number)
            asks.append(tuple((ask, at if whole else at[:0]) for ask, at, _ in parts))
    empty = [np.zeros(0, np.float32)]
    return Reading(
        np.concatenate(p or empty).astype(np.float64),
        np.concatenate(r or empty).astype(np.float64),
        np.array(spans, np.int64).reshape(-1, 2),
        np.array(owner, np.int64),
        tuple(asks),
        tuple(run.id for run in runs),
        lost,
    )


def filed(
    found: Reading, grades: Grades, sizes: Mapping[Ask, int], name: str, params: Mapping[str, Any]
) -> list[Annotation]:
    """Values of each ask's tokens (NaN off the actions) and of its step, and of each run.

    Args:
        sizes: tokens of each ask's reply node.
    """
    digest, data = value_digest(params).hex(), json.dumps(params)
    out: dict[tuple[str, Ask], Annotation] = {}
    for (start, stop), score, parts in zip(found.spans.tolist(), grades.step.tolist(), found.asks, strict=True):
        at = start
        for ask, where in parts:
            if start < stop:
                out["call", ask] = Annotation("call", name, score, *ask, params=digest, data=data)
            if len(where):
                row = np.full(sizes[ask], np.nan, np.float32)
                row[where] = grades.token[at : at + len(where)]
                at += len(where)
                out["tokens", ask] = Annotation("tokens", name, None, *ask, params=digest, values=row, data=data)
    rows = [
        Annotation("run", name, float(score), run, params=digest, scope=run, data=data)
        for run, score, n in zip(found.runs, grades.run, found.length, strict=False)
        if n
    ]
    return [*out.values(), *rows]


@lru_cache(maxsize=2)
def _frozen(ref: str) -> Model:
    """A model by reference, loaded once, so that a training's iterations are graded by the same weights."""
    from clew.models import load

    return load(ref)


def graded(
    groups: Grouped,
    *,
    policy: Model | str,
    reference: Model | str,
    token: TokenAgg = "sum",
    mode: Mode = "ratio",
    w: float = 1.0,
    norm: Norm = "std",
    rescale: Rescale = None,
    store: bool = True,
    name: str = "graded",
) -> Credit:
    """GRPO plus ``w`` times each step's progress advantage (arXiv 2606.26080), compared within its group.

    A frozen pair only: a policy that grades itself is rewarded for what it prefers already.

    Args:
        policy, reference: models with ``Scores``, or their references as ``clew.model`` takes them; one tokenizer.
        token, mode: see ``credit.grade.grade``.

    Raises:
        BadInput: see ``harness.scoring.score``.
    """
    from clew.harness import scoring

    columns = steps(groups)
    members = [run for group in as_groups(groups) for run in group]
    runs = {run.id: run for run in members}
    chosen = [runs[run] for run in columns.runs]
    models = [_frozen(m) if isinstance(m, str) else m for m in (policy, reference)]
    plan = scoring.plan(chosen)
    scoring.check(plan, models)
    mine, theirs = (scoring.score(chosen, m, store=store, found=plan) for m in models)
    found = read(chosen, mine, theirs)
    value = fold(found.policy - found.ref, found.spans, token)
    if mode == "separate":
        value = fold(found.policy, found.spans, token) - fold(found.ref, found.spans, token)
    by_ask = {
        parts[0][0]: (v if stop > start else np.nan)
        for v, parts, (start, stop) in zip(value, found.asks, found.spans, strict=True)
    }
    given = np.array([by_ask.get(asks[0], np.nan) if asks else np.nan for asks in columns.asks], np.float64)
    params = {"policy": models[0].ref, "reference": models[1].ref, "token": token, "mode": mode, "w": w, "norm": norm}
    spec = presets.graded(w, norm)
    return assign(groups, name, spec, params, rescale=rescale, store=store, columns=replace(columns, given=given))


__all__ = ["Grades", "Reading", "filed", "grade", "graded", "read"]
