"""One family for GRPO, GiGPO, HGPO, GAGPO, GraphGPO and G2PO: A = sum_k w_k Norm(X_k; reference set S_k).

Every estimator is a list of ``Term``s (``presets.py``): a target X per step, a reference set S of steps it is compared
with, a normaliser, a weight. specs/E165 section 4 has the table of the published members.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from clew.core.errors import BadInput, check_choice
from clew.credit.state_values import Value, distance, values
from clew.credit.steps import F64, Bools, Ints, Steps

Target = Literal["outcome", "return", "next", "gain", "td", "gae", "path", "invalid", "given"]
Scope = Literal["node", "history", "group", "batch"]
Norm = Literal["none", "mean", "std", "rank"]


class Term(NamedTuple):
    """One summand of an advantage. U is the return-to-go of a state (``values.py``), r the reward of the step.

    target:
      ``outcome`` episode return R        ``return`` return-to-go G_t
      ``next``    r + gamma U(next)       ``gain``   r + gamma U(next) - gamma U(cur): G2PO's V(next) - V(cur)
      ``td``      r + gamma U(next) - U(cur)         ``gae`` sum_k (gamma trace)^k td_{t+k}
      ``path``    omega^d(next), d the fewest moves to success        ``invalid`` -1 for an invalid action, else 0
      ``given``   ``Steps.given``, found elsewhere
    scope: rows of the same node, of the same last ``history`` states, of the same group, or all.
    norm: ``mean`` subtracts the mean, ``std`` also divides by the standard deviation (``ddof``), ``rank`` gives centred
    ranks in (-1, 1) with ties averaged.
    """

    name: str
    target: Target
    scope: Scope
    norm: Norm = "std"
    weight: float = 1.0
    value: Value = "mean"
    lam: float = 1.0  # of value "solve": 0 occurrence mean, 1 Bellman solve
    gamma: float = 0.95
    trace: float = 0.95  # lambda of GAE
    omega: float = 0.1
    history: int = 1
    once: bool = False  # statistics count each run once, not each of its rows
    min_size: int = 2  # smaller reference sets say nothing
    ddof: int = 1
    penalty: float = 0.0  # subtracted from X of invalid actions before normalising (quirk Q2)
    success: float | None = None  # released G2PO: X of the last step is this if R equals it, else 0 (quirk Q1)
    guard: bool = (
        True  # a reference set of equal values says nothing; off: released behaviour, NaN for a single row (Q3)
    )


EPS = 1e-6  # added to every standard deviation, as in the released code of all members
_SAME = 1e-9  # relative spread below which computed values count as equal


@dataclass(frozen=True, slots=True)
class Diagnostics:
    """What to look at before trusting an advantage.

    nodes: of the merged graph, with at least one step. singleton_steps, singleton_nodes: share of steps in nodes seen
    once, share of such nodes (they differ widely; the first is the one that matters). node_size: mean steps per node.
    rms: term name -> root mean square of its weighted contribution over all rows. zero_rows: share of rows whose
    advantage is 0 or absent. correlation: (name, name) -> Pearson correlation of two terms over rows.
    silent_groups: share of groups in which no term found a difference. present: bool [n], rows that have an advantage.
    """

    nodes: int
    singleton_steps: float
    singleton_nodes: float
    node_size: float
    rms: dict[str, float]
    zero_rows: float
    correlation: dict[tuple[str, str], float]
    silent_groups: float
    present: Bools

    def to_json(self) -> dict[str, object]:
        flat = {f: getattr(self, f) for f in ("nodes", "singleton_steps", "singleton_nodes", "node_size")}
        pairs = {f"{a}~{b}": c for (a, b), c in self.correlation.items()}
        return flat | {
            "rms": self.rms,
            "zero_rows": self.zero_rows,
            "correlation": pairs,
            "silent_groups": self.silent_groups,
            "absent_rows": float(1 - self.present.mean()) if len(self.present) else 0.0,
        }


def advantages(
    steps: Steps,
    spec: Sequence[Term],
    *,
    rescale: Literal["rms"] | None = None,
    share: bool = False,
    times: Ints | None = None,
) -> tuple[F64, Diagnostics]:
    """Advantage of every step under a list of terms.

    Args:
        steps: columns of one or several groups.
        spec: the terms; those of weight 0 are not computed.
        rescale: ``rms`` divides by the root mean square over the rows that have an advantage, which takes the effective
            step size out of a comparison of estimators.
        share: divide each row's weights by their sum over its non-zero terms (HGPO).
        times: int64 [n], how often the trainer's batch holds each row; statistics count it so often (quirk Q4).

    Returns:
        float64 [n], 0 where ``Diagnostics.present`` is False, and the diagnostics. A row is absent when its group is
        silent (no term but a plain penalty found a difference in it) or no term's reference set holds it.

    Raises:
        BadInput: empty spec, two terms of one name, or a parameter that is not known or out of range.
    """
    _check(spec)
    check_choice("rescale", rescale, (None, "rms"))
    parts, defined = {}, np.zeros(len(steps), dtype=bool)
    signal = np.zeros(len(steps.groups), dtype=bool)
    weights = np.zeros(len(steps))
    for term in spec:
        if term.weight == 0:
            continue
        part, known = _contribution(steps, term, times)
        parts[term.name] = term.weight * part
        if share:
            weights += np.where(part != 0, term.weight, 0.0)
        if term.target != "invalid":
            defined |= known
            signal[steps.group[part != 0]] = True
    present = defined & signal[steps.group]
    total = np.zeros(len(steps))
    for part in parts.values():
        total = total + part
    total = np.where(present, total / (weights + EPS) if share else total, 0.0)
    if rescale == "rms" and present.any():
        size = _rms(total[present])
        total = total / size if size > 0 else total
    return total, _diagnose(steps, parts, total, present, signal)


def _check(spec: Sequence[Term]) -> None:
    if not spec or len({t.name for t in spec}) < len(spec):
        remedy = "Start from a preset in clew.credit.presets."
        raise BadInput("an estimator needs terms with distinct names", remedy=remedy)
    for t in spec:
        for name, known in (("target", Target), ("scope", Scope), ("norm", Norm), ("value", Value)):
            check_choice(f"term {t.name!r}: {name}", getattr(t, name), get_args(known))
        for name, low, high in (("gamma", 0, 1), ("lam", 0, 1), ("trace", 0, 1), ("omega", 0, 1), ("history", 1, 99)):
            value = getattr(t, name)
            if not isinstance(value, int | float) or not low <= value <= high:
                raise BadInput(f"term {t.name!r}: {name}={value!r}", remedy=f"Choose {name} in [{low}, {high}].")
        if not isinstance(t.weight, int | float) or not math.isfinite(t.weight):
            raise BadInput(f"term {t.name!r}: weight={t.weight!r}", remedy="Choose a finite number.")


def _contribution(steps: Steps, term: Term, times: Ints | None) -> tuple[F64, Bools]:
    x = _target(steps, term)
    if term.penalty:
        x = x - term.penalty * ~steps.valid
    if term.norm == "none":
        return np.nan_to_num(x), ~np.isnan(x)
    sets = _reference(steps, term)
    return normalise(x, sets, term, once=steps.t == 0 if term.once else None, times=times)


def _target(steps: Steps, term: Term) -> F64:
    if term.target == "outcome":
        return steps.outcome
    if term.target == "return":
        return steps.returns(term.gamma)
    if term.target == "invalid":
        return -(~steps.valid).astype(np.float64)
    if term.target == "path":
        return _path(steps, term)
    if term.target == "given":
        if steps.given is None:
            remedy = "Set Steps.given, as clew.methods.grade.graded does."
            raise BadInput("these steps carry no target of their own", remedy=remedy)
        return steps.given
    cur, after = values(steps, term.value, term.gamma, term.lam)
    onward = steps.reward + term.gamma * after
    if term.success is not None:
        ending = np.where(steps.outcome == term.success, term.success, 0.0)
        onward = np.where(steps.last, ending, onward)
    if term.target == "next":
        return onward
    if term.target == "gain":
        return onward - term.gamma * cur
    td = onward - cur
    if term.target == "td":
        return td
    known = np.where(np.isnan(td), 0.0, td)
    gae = steps.with_rewards(known, steps.outcome).returns(term.gamma * term.trace)
    return np.where(np.isnan(td), np.nan, gae)


def _path(steps: Steps, term: Term) -> F64:
    """omega^d(next) times the largest return of the group; NaN in groups without a success.

    A success is a run with the group's largest return, if that is positive.
    """
    best = np.full(len(steps.groups), -np.inf)
    np.maximum.at(best, steps.group, steps.outcome)
    top = best[steps.group]
    _, after = distance(steps, (steps.outcome == top) & (top > 0))
    return top * term.omega**after


def _reference(steps: Steps, term: Term) -> Ints:
    if term.scope == "node":
        return steps.state
    if term.scope == "history":
        return steps.history(term.history)
    return steps.group if term.scope == "group" else np.zeros(len(steps), dtype=np.int64)


def normalise(
    x: F64, sets: Ints, term: Term, once: Bools | None = None, times: Ints | None = None
) -> tuple[F64, Bools]:
    """Compare each x with its reference set.

    sets: int64 [n], -1 or NaN in x leave a row out. once, times: which rows, and how often, the statistics count.

    Returns:
        float64 [n], 0 where nothing can be said, and bool [n], whether the row's set says something: it has
        ``min_size`` counted rows and, under ``guard``, they are not all equal.
    """
    inside = (sets >= 0) & ~np.isnan(x)
    ids = np.where(inside, sets, 0)
    size = int(ids.max(initial=0)) + 1
    weight = inside.astype(np.float64)
    if times is not None:
        weight = weight * times
    if once is not None:
        weight = weight * once
    safe = np.where(inside, x, 0.0)
    count = np.bincount(ids, weight, minlength=size)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.bincount(ids, weight * safe, minlength=size) / count
        centred = safe - mean[ids]
        known = inside & (count[ids] >= term.min_size)
        if term.guard:
            known &= ~_flat(safe, ids, weight > 0, size)[ids]
        if term.norm == "mean":
            out = centred
        elif term.norm == "rank":
            out = _ranks(safe, ids, weight)
        else:
            var = np.bincount(ids, weight * centred**2, minlength=size) / np.maximum(count - term.ddof, 0)
            out = centred / (np.sqrt(var)[ids] + EPS)
    return np.where(known, out, 0.0), known


def _flat(x: F64, ids: Ints, counted: Bools, size: int) -> Bools:
    """Whether a set's values are all equal: exactly, or to rounding where they were computed."""
    low, high = np.full(size, np.inf), np.full(size, -np.inf)
    np.minimum.at(low, ids[counted], x[counted])
    np.maximum.at(high, ids[counted], x[counted])
    flat: Bools = high - low <= _SAME * np.maximum(np.abs(low), np.abs(high))
    return flat


def _ranks(x: F64, ids: Ints, weight: F64) -> F64:
    """Centred ranks 2 (rank - 1/2) / count - 1 within each set; ties share the mean rank."""
    order = np.lexsort((x, ids))
    sorted_ids, sorted_x, w = ids[order], x[order], weight[order]
    before = np.cumsum(w) - w
    new_set = np.concatenate([[True], sorted_ids[1:] != sorted_ids[:-1]]) if len(x) else np.zeros(0, bool)
    new_tie = new_set | np.concatenate([[True], sorted_x[1:] != sorted_x[:-1]]) if len(x) else new_set
    set_of, tie_of = np.cumsum(new_set) - 1, np.cumsum(new_tie) - 1
    base = before[new_set][set_of]
    middle = before[new_tie] + np.bincount(tie_of, w) / 2
    out = np.zeros(len(x))
    with np.errstate(invalid="ignore", divide="ignore"):
        out[order] = 2 * (middle[tie_of] - base) / np.bincount(set_of, w)[set_of] - 1
    return out


def _rms(x: npt.ArrayLike) -> float:
    values_ = np.asarray(x, np.float64)
    return float(np.sqrt(np.mean(values_**2))) if values_.size else 0.0


def _diagnose(steps: Steps, parts: dict[str, F64], total: F64, present: Bools, signal: Bools) -> Diagnostics:
    count = np.bincount(steps.state, minlength=steps.nodes)
    count = count[count > 0]
    n = max(len(steps), 1)
    names = list(parts) if len(steps) else []
    correlation = {}
    for i, a in enumerate(names):
        for b in names[i + 1 :]:
            x, y = parts[a] - parts[a].mean(), parts[b] - parts[b].mean()
            scale = float(np.sqrt((x @ x) * (y @ y)))
            correlation[a, b] = float(x @ y) / scale if scale > 0 else 0.0
    with_steps = np.unique(steps.group)
    return Diagnostics(
        nodes=len(count),
        singleton_steps=float((count == 1).sum() / n),
        singleton_nodes=float((count == 1).mean()) if len(count) else 0.0,
        node_size=len(steps) / max(len(count), 1),
        rms={name: _rms(part) for name, part in parts.items()},
        zero_rows=float((total == 0).mean()) if len(steps) else 0.0,
        correlation=correlation,
        silent_groups=float(1 - signal[with_steps].mean()) if len(with_steps) else 0.0,
        present=present,
    )
