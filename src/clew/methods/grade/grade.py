"""Progress advantage: the grader hidden in a KL-regularised policy (arXiv 2606.26080, specs/E173).

For a policy that is optimal under reward minus beta KL(policy || reference), beta log(policy / reference) of an action
is its advantage Q - V, with stochastic transitions too (Prop. 1). So two checkpoints grade every token of a trajectory;
by the chain rule the sum over a step's tokens grades the step. Over a trajectory the sum is return minus V(start) minus
luck: it grades what was decided, and where the world is random it predicts the outcome less well than the outcome's
own luck would. Sums grow with length (on-policy each step's expectation is beta KL, not 0), so ``auroc`` has company:
``residual`` takes the length out, and the length alone is a baseline to print.

Exactness needs the optimum. Checkpoints of other recipes, or without a KL term, give an approximation: measure it
(papers/E173_progress), choose the aggregation on other tasks than those reported (``select``), print its optimism.

Layout: T action tokens of any number of trajectories end to end, S steps as ``spans`` [S, 2] (start, stop) into them,
``owner`` [S] the trajectory of each step, non-decreasing.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from clew.core.comparisons import Comparisons
from clew.core.errors import BadInput, need
from clew.core.stats import auroc
from clew.credit.steps import F64, Ints

TokenAgg = Literal["sum", "mean", "last", "min", "max"]
StepAgg = Literal["sum", "mean", "last", "min", "max", "bottom10"]
Mode = Literal["ratio", "separate"]
Rule = Literal["min", "min_cumulative", "drop"]
TOKEN_AGGS: tuple[TokenAgg, ...] = get_args(TokenAgg)
STEP_AGGS: tuple[StepAgg, ...] = get_args(StepAgg)
RULES: tuple[Rule, ...] = get_args(Rule)
FEW = 5  # tasks below which no interval is given


class Grades(NamedTuple):
    """token: float64 [T], beta times the log-ratio. step: [S]. run: [trajectories]."""

    token: F64
    step: F64
    run: F64


def grade(
    policy: npt.ArrayLike,
    ref: npt.ArrayLike,
    spans: npt.ArrayLike,
    owner: npt.ArrayLike | None = None,
    *,
    token_agg: TokenAgg = "sum",
    step_agg: StepAgg = "sum",
    mode: Mode = "ratio",
    beta: float = 1.0,
) -> Grades:
    """Token, step and trajectory scores from the logprobs (nats) that two models give the same tokens.

    Args:
        policy, ref: float [T].
        spans: int [S, 2]. An empty span, a step whose tokens were cut off, scores 0 and still counts as a step.
        owner: int [S], 0 to n - 1; default: all of one trajectory. A trajectory without steps scores 0.
        token_agg: from tokens to a step. ``sum`` is the theorem's; the others have none behind them.
        step_agg: from steps to a trajectory; ``bottom10`` is the mean of the lowest ceil(10 %).
        mode: ``ratio`` aggregates the log-ratio. ``separate``, as the authors' code does, aggregates each model's
            logprobs and subtracts: the same for sum, mean and last, while min and max then compare different tokens.
        beta: KL coefficient; it orders nothing, but sets the scale (``calibrate_beta``).

    Raises:
        BadInput: shapes that do not fit, logprobs that are not finite, or an unknown aggregation or mode.
    """
    p, r, where, whose = _checked(policy, ref, spans, owner)
    if mode not in get_args(Mode):
        raise BadInput(f"mode={mode!r}", remedy="Use ratio or separate.")
    token = beta * (p - r)
    step = fold(token, where, token_agg)
    if mode == "separate":
        step = beta * (fold(p, where, token_agg) - fold(r, where, token_agg))
    return Grades(token, step, over_steps(step, whose, step_agg))


def _checked(
    policy: npt.ArrayLike, ref: npt.ArrayLike, spans: npt.ArrayLike, owner: npt.ArrayLike | None
) -> tuple[F64, F64, Ints, Ints]:
    p, r = np.asarray(policy, np.float64), np.asarray(ref, np.float64)
    where = np.asarray(spans, np.int64).reshape(-1, 2)
    whose = np.zeros(len(where), np.int64) if owner is None else np.asarray(owner, np.int64)
    inside = not len(where) or (where.min() >= 0 and where.max() <= len(p) and bool(np.all(where[:, 0] <= where[:, 1])))
    if p.shape != r.shape or p.ndim != 1 or whose.shape != (len(where),) or np.any(np.diff(whose) < 0) or not inside:
        raise BadInput(
            f"policy {p.shape}, ref {r.shape}, spans {where.shape}, owner {whose.shape} do not fit",
            remedy="Give logprobs [T] of the same tokens, spans [S, 2] within them, owners [S] that do not decrease.",
        )
    for name, x in (("policy", p), ("ref", r)):
        if not np.isfinite(x).all():
            at = int(np.flatnonzero(~np.isfinite(x))[0])
            raise BadInput(f"the {name} logprob of token {at} is {x[at]}", remedy="Score the tokens again.")
    return p, r, where, whose


def fold(x: F64, spans: Ints, how: str) -> F64:
    """One number per span of ``x``; 0 for an empty one."""
    if how not in TOKEN_AGGS:
        raise BadInput(f"token aggregation {how!r}", remedy=f"Known: {', '.join(TOKEN_AGGS)}.")
    if not len(spans):
        return np.zeros(0)
    padded, empty = np.append(x, 0.0), spans[:, 0] == spans[:, 1]
    if how == "last":
        out = padded[spans[:, 1] - 1]
    else:
        reduce: Any = {"min": np.minimum, "max": np.maximum}.get(how, np.add)
        out = reduce.reduceat(padded, spans.ravel())[::2]
        if how == "mean":
            out = out / np.maximum(spans[:, 1] - spans[:, 0], 1)
    return np.where(empty, 0.0, out)


def over_steps(step: F64, owner: Ints, how: str) -> F64:
    """One number per trajectory from its steps' scores."""
    if how not in STEP_AGGS:
        raise BadInput(f"step aggregation {how!r}", remedy=f"Known: {', '.join(STEP_AGGS)}.")
    n = int(owner.max(initial=-1)) + 1
    starts, stops = (np.searchsorted(owner, np.arange(n), side) for side in ("left", "right"))
    if how != "bottom10":
        return fold(step, np.stack([starts, stops], 1), how)
    ordered = step[np.lexsort((step, owner))]
    few = np.ceil(0.1 * (stops - starts)).astype(np.int64)
    return fold(ordered, np.stack([starts, starts + few], 1), "mean")


def calibrate_beta(advantage: npt.ArrayLike) -> float:
    """The beta at which E_ref[exp(A / beta)] = 1, from advantages of actions that the reference chose (specs/E173, T1).

    Gives scores in units of reward: pass advantages known in them, as from Monte-Carlo forks.

    Args:
        advantage: float [n], of actions drawn from the reference policy.

    Raises:
        BadInput: no such beta exists: the mean is not negative, or no advantage is positive.
    """
    brentq, logsumexp = need("scipy.optimize", "stats").brentq, need("scipy.special", "stats").logsumexp
    a = np.asarray(advantage, np.float64)
    if not len(a) or not np.isfinite(a).all() or a.mean() >= 0 or a.max() <= 0:
        remedy = "Under the reference their mean is below 0 and some are above; draw the actions from the reference."
        raise BadInput(f"no beta fits {len(a)} advantages", remedy=remedy)
    size = float(np.abs(a).max())

    def gap(log_t: float) -> float:
        return float(logsumexp(math.exp(log_t) * a / size) - math.log(len(a)))

    low, high = -1.0, 1.0
    while gap(low) >= 0:
        low -= 1.0
    while gap(high) <= 0:
        high += 1.0
    return size / math.exp(float(brentq(gap, low, high, xtol=1e-12)))


def drift(policy: npt.ArrayLike, ref: npt.ArrayLike, budget: float = 0.1) -> float:
    """Mean log-ratio per token, nats: on the policy's own tokens an estimate of its KL from the reference.

    Warns where it exceeds ``budget``: a policy far from its reference tells style from style, not good from bad
    (specs/E173, section 5).
    """
    gaps = np.asarray(policy, np.float64) - np.asarray(ref, np.float64)
    found = float(gaps.mean()) if gaps.size else 0.0
    if found > budget:
        warnings.warn(
            f"the policy finds the tokens {found:.3g} nats likelier than the reference, past the budget of {budget:g}: "
            "an earlier checkpoint may grade better",
            stacklevel=2,
        )
    return found


def pick(score: npt.ArrayLike, group: npt.ArrayLike) -> Ints:
    """Best of n: the index of the highest score in each group, in the order of the groups' numbers; ties go to the
    first. score: float [n]; group: int [n]."""
    s, g = np.asarray(score, np.float64), np.asarray(group, np.int64)
    order = np.lexsort((np.arange(len(s)), -s, g))
    first = np.concatenate([[True], np.diff(g[order]) > 0]) if len(s) else np.zeros(0, bool)
    return np.asarray(order[first], np.int64)


def blame(step: npt.ArrayLike, rule: Rule = "min") -> int:
    """Index of the step that a failed trajectory is laid to; the first where no step is negative.

    ``min``: the lowest score. ``min_cumulative``: where the running sum is lowest. ``drop``: the largest fall from the
    step before (the first step falls from 0).

    Raises:
        BadInput: no step, or an unknown rule.
    """
    s = np.asarray(step, np.float64)
    if not s.size or rule not in RULES:
        raise BadInput(f"rule {rule!r} on {s.size} steps", remedy=f"Give steps, and one of {', '.join(RULES)}.")
    if s.min() >= 0:
        return 0
    series = {"min": s, "min_cumulative": np.cumsum(s), "drop": np.diff(s, prepend=0.0)}[rule]
    return int(np.argmin(series))


def residual(score: npt.ArrayLike, length: npt.ArrayLike) -> F64:
    """``score`` minus its least-squares fit by length and length squared, both float [n]: what length cannot say."""
    s, n = np.asarray(score, np.float64), np.asarray(length, np.float64)
    n = (n - n.mean()) / (n.std() or 1.0) if len(n) else n
    columns = np.stack([np.ones(len(n)), n, n**2], 1)
    return np.asarray(s - columns @ np.linalg.lstsq(columns, s, rcond=None)[0], np.float64)


class Selection(NamedTuple):
    """What ``select`` chose: its name, its worth on the data it was chosen on, what that promises too much (mean over
    splits of chosen half minus other half), the worth of a choice on tasks it has not seen, and every option's worth.
    """

    name: str
    found: float
    optimism: float
    honest: float
    table: dict[str, float]


def select(
    options: Mapping[str, npt.ArrayLike],
    success: npt.ArrayLike,
    task: npt.ArrayLike,
    by: Literal["auroc", "pick"] = "auroc",
    splits: int = 50,
    seed: int = 0,
) -> Selection:
    """Choose the score of the highest worth, and say how much of that is the choosing.

    Worth is the AUROC, or the success of each task's best run (``pick``).

    The best of many scores looks good on noise: of 30 on 50 trajectories, .65 where .50 is true. So the tasks are cut
    in halves, ``splits`` times: chosen on one half, looked at on the other.

    Args:
        options: name -> float [n], one score per trajectory. success: bool [n]. task: int [n]; the halves share none.

    Raises:
        BadInput: no options, or all successes or all failures.
    """
    y, group = np.asarray(success, bool), np.unique(np.asarray(task), return_inverse=True)[1]
    if not options or y.all() or not y.any():
        raise BadInput(
            f"nothing to choose by: {len(options)} options, {int(y.sum())} of {len(y)} runs succeeded",
            remedy="Choose on runs of which some succeeded and some failed.",
        )
    names = list(options)
    scores = [np.asarray(options[name], np.float64) for name in names]

    def worth(s: F64, inside: npt.NDArray[np.bool_]) -> float:
        if by == "pick":
            return float(y[inside][pick(s[inside], group[inside])].mean())
        return auroc(s[inside], y[inside])

    found = [worth(s, np.ones(len(y), bool)) for s in scores]
    best, rng = int(np.argmax(found)), np.random.default_rng(seed)
    gaps, honest = [], []
    for _ in range(splits):
        half = rng.permutation(group.max() + 1)[group] * 2 <= group.max()
        if len({*y[half]}) == 2 == len({*y[~half]}):
            inner = [worth(s, half) for s in scores]
            chosen = int(np.argmax(inner))
            honest.append(worth(scores[chosen], ~half))
            gaps.append(inner[chosen] - honest[-1])
    nan = float("nan")
    mean_gap, mean_honest = (float(np.mean(gaps)), float(np.mean(honest))) if gaps else (nan, nan)
    return Selection(names[best], found[best], mean_gap, mean_honest, dict(zip(names, found, strict=True)))


def cells(
    policy: npt.ArrayLike, ref: npt.ArrayLike, spans: npt.ArrayLike, owner: npt.ArrayLike, mode: Mode = "ratio"
) -> dict[str, F64]:
    """The trajectory scores of all 30 aggregations, named ``token/step``: the options of ``select``."""
    out: dict[str, F64] = {}
    for token in TOKEN_AGGS:
        found = grade(policy, ref, spans, owner, token_agg=token, mode=mode)
        whose = np.asarray(owner, np.int64)
        out |= {f"{token}/{step}": over_steps(found.step, whose, step) for step in STEP_AGGS}
    return out


def by_task(
    statistic: Callable[[F64], float], task: npt.ArrayLike, resamples: int = 1000, seed: int = 0, level: float = 0.95
) -> tuple[float, float, float]:
    """Estimate and percentile bootstrap interval over tasks.

    Args:
        statistic: from weights float [n] of the trajectories (how often each counts) to a number; NaNs are left out.
        task: int [n].
    """
    group = np.unique(np.asarray(task), return_inverse=True)[1]
    count, rng = int(group.max(initial=-1)) + 1, np.random.default_rng(seed)
    estimate = float(statistic(np.ones(len(group))))
    drawn = [
        float(statistic(np.bincount(rng.integers(0, count, count), minlength=count)[group].astype(np.float64)))
        for _ in range(resamples)
    ]
    kept = [x for x in drawn if math.isfinite(x)]
    if not kept:
        return estimate, estimate, estimate
    low, high = np.percentile(kept, [50 * (1 - level), 50 * (1 + level)])
    return estimate, min(float(low), estimate), max(float(high), estimate)


def within_task(score: npt.ArrayLike, success: npt.ArrayLike, task: npt.ArrayLike) -> tuple[F64, F64, F64]:
    """Of each task, the pairs of a run that succeeded and one that failed: those in which the first scores higher, ties
    counting half; all; and those that are not ties. float64 [tasks] each, in the order of the tasks' names.

    What the theorem speaks of: scores of different tasks differ by what the tasks are, too.
    """
    s, y, names = np.asarray(score, np.float64), np.asarray(success, bool), np.unique(np.asarray(task))
    out = np.zeros((3, len(names)))
    for i, name in enumerate(names):
        mine = np.asarray(task) == name
        gap = s[mine & y][:, None] - s[mine & ~y][None, :]
        out[:, i] = (gap > 0).sum() + (gap == 0).sum() / 2, gap.size, (gap != 0).sum()
    return out[0], out[1], out[2]


class Share(NamedTuple):
    """An estimate with its percentile bootstrap interval over tasks; no interval of fewer than ``FEW`` tasks."""

    estimate: float
    low: float | None
    high: float | None

    def told(self, sign: str = "") -> str:
        """As text; ``sign`` "+" writes both signs."""
        if self.low is None or self.high is None:
            return f"{self.estimate:{sign}.3f} (fewer than {FEW} tasks: no interval)"
        return f"{self.estimate:{sign}.3f} [{self.low:{sign}.3f}, {self.high:{sign}.3f}]"


def share_of(part: F64, every: F64, resamples: int = 1000, seed: int = 0, level: float = 0.95) -> Share:
    """sum(part) / sum(every), as of ``within_task``, over the tasks that have any. The parts of two scores subtracted
    give their paired difference."""
    kept = every > 0
    part, every = part[kept], every[kept]
    estimate = float(part.sum() / every.sum()) if len(every) else float("nan")
    if len(every) < FEW:
        return Share(estimate, None, None)
    drawn = np.random.default_rng(seed).integers(0, len(every), (resamples, len(every)))
    shares = part[drawn].sum(axis=1) / every[drawn].sum(axis=1)
    low, high = np.percentile(shares, [50 * (1 - level), 50 * (1 + level)])
    return Share(estimate, float(low), float(high))


@dataclass(frozen=True, slots=True)
class Ordering:
    """How scores order the runs of one task, a run that succeeded above one that failed.

    comparisons: the pairs of such runs; those could differ that the score does not call equal. within: of each score,
    the share of pairs in the right order. as_good: simpler scores that order no fewer pairs, by how much more.
    """

    comparisons: Comparisons
    within: dict[str, Share]
    as_good: dict[str, Share]

    @property
    def told(self) -> list[str]:
        """The verdict in sentences."""
        if not self.comparisons.tested:
            return [f"whether the score tells success from failure at a task was {self.comparisons.verdict('')}"]
        found = self.within["score"]
        better = found.low is not None and found.low > 0.5
        how = "orders" if better else "is not shown to order"
        lines = [f"the score {how} runs of a task better than chance: {found.told()} ({self.comparisons})"]
        for name, gap in self.as_good.items():
            more = "orders them better" if gap.low is not None and gap.low > 0 else "orders them as well, or better"
            lines.append(f"{name} {more}: {gap.told('+')}")
        return lines


def ordering(scores: Mapping[str, npt.ArrayLike], success: npt.ArrayLike, task: npt.ArrayLike) -> Ordering:
    """How scores order runs of one task, and whether a simpler one does it as well.

    Args:
        scores: name -> float [n]; "score" is the one in question, names that end in "alone" the simpler ones.
        success: bool [n]. task: [n].
    """
    won = np.asarray(success, bool)
    right, pairs, apart = within_task(scores["score"], won, task)
    why = "the score is equal in each of them" if pairs.sum() else "no task has both"
    if not len(won):
        why = "no run has a reward"
    elif won.all() or not won.any():
        why = f"{int(won.sum())} of {len(won)} judged runs succeeded"
    what = "pairs of a run that succeeded and one that failed at the same task"
    seen = Comparisons(what, int(pairs.sum()), int(apart.sum()), why_not=why)
    if not pairs.sum():
        return Ordering(seen, {}, {})
    parts = {name: within_task(score, won, task)[0] for name, score in scores.items()}
    gaps = {name: share_of(part - right, pairs) for name, part in parts.items() if name.endswith("alone")}
    as_good = {name: gap for name, gap in gaps.items() if gap.estimate >= 0}
    return Ordering(seen, {name: share_of(part, pairs) for name, part in parts.items()}, as_good)


@dataclass(frozen=True, slots=True)
class Picking:
    """What it is worth to take each group's run with the highest score.

    comparisons: the groups; those could gain in which rewards and scores both differ. gain: mean reward of the picked
    run less that of its group, over groups.
    """

    comparisons: Comparisons
    gain: Share

    @property
    def told(self) -> str:
        """The verdict in a sentence."""
        sure = self.gain.low is not None and self.gain.low > 0
        how = "picking by the score gains" if sure else "that picking gains is not shown:"
        done = f"{how} {self.gain.told('+')} ({self.comparisons})"
        return self.comparisons.verdict(done).replace("not tested", "what picking gains was not tested")


def picking(score: npt.ArrayLike, reward: npt.ArrayLike, group: npt.ArrayLike) -> Picking:
    """What ``pick`` gains. score, reward: float [n]; group: int [n]."""
    s, r, names = np.asarray(score, np.float64), np.asarray(reward, np.float64), np.unique(np.asarray(group))
    each = [np.flatnonzero(np.asarray(group) == name) for name in names]
    could = sum(bool(np.ptp(r[mine]) and np.ptp(s[mine])) for mine in each)
    gain = np.array([r[mine[s[mine].argmax()]] - r[mine].mean() for mine in each])
    what, why = "groups, the picked run against all of its group,", "in no group do rewards and scores both differ"
    return Picking(Comparisons(what, len(each), could, why_not=why), share_of(gain, np.ones(len(gain))))


__all__ = ["RULES", "STEP_AGGS", "TOKEN_AGGS", "Grades", "Selection", "auroc", "blame", "by_task", "calibrate_beta"]
__all__ += ["cells", "drift", "grade", "pick", "residual", "select", "share_of", "within_task"]
__all__ += ["Ordering", "Picking", "Share", "ordering", "picking"]
