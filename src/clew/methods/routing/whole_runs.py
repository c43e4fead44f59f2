"""Whole runs of a router, or of an orchestrator, over a measured pool: do several models in one task earn their calls?

``clew route report --with RUNS`` calls it. The runs perform tasks that the pool was measured at. A way of using several
models is proven against the best single worker, against every simpler way that is proven, and at equal calls against
a majority of that worker's own samples. A task that the router was fitted on must never count.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from clew.core.errors import BadInput, BadRecord
from clew.core.records import Report
from clew.methods.compare import design
from clew.methods.routing import contest
from clew.methods.routing.contest import FEWEST, Arm, Choices, gain_of, mean_of
from clew.methods.routing.measuring import NO_SAMPLE, question_of
from clew.methods.routing.reward_matrix import F64, Index, Matrix
from clew.models.compose import fitted_tasks, router
from clew.models.compose.decision import SCHEME
from clew.models.compose.routed import Parts
from clew.store import Run

Kind = Literal["question", "turn", "workflow"]  # from the simplest on
KINDS: tuple[Kind, ...] = ("question", "turn", "workflow")
ORCHESTRATOR = "orchestrator"
ROUND = 0.1  # calls of a single run more than which a way needs a majority of as many to be compared with


class Way(NamedTuple):
    """What one way of using several models in a task earns.

    over: its reward less that of the best simpler way that is proven. equal: less that of a majority of the best single
    worker's samples, as many as cost the same calls. short: why it is not proven; empty where it is. about: what a
    reader must know of the runs. model, agent, config: of the runs.
    """

    kind: Kind
    arm: Arm
    model: str
    agent: str
    config: str
    over: Report | None = None
    equal: Report | None = None
    short: str = ""
    about: str = ""

    @property
    def proven(self) -> bool:
        return not self.short


class Simpler(NamedTuple):
    """The best simpler way that is proven: what it earns at questions, float64, NaN where it is not known."""

    name: str
    earned: F64


@dataclass(slots=True)
class _Seen:
    """Runs of one model, agent and arguments: rewards by question, and what each run asked and cost."""

    model: str
    agent: str
    config: str
    rewards: dict[str, list[float]] = field(default_factory=dict)
    calls: list[int] = field(default_factory=list)
    costs: list[float] = field(default_factory=list)

    @property
    def kind(self) -> Kind:
        """Raises BadInput where neither a router nor the orchestrator performed."""
        if self.agent == ORCHESTRATOR:
            return "workflow"
        if not self.model.startswith(SCHEME):
            said = f"runs of {self.agent} with {self.model} use one model"
            raise BadInput(said, remedy="Give --with runs of route:FOLDER or of the agent orchestrator.")
        return "turn" if max(self.calls) > 1 else "question"


def ways(
    found: Matrix,
    made: Choices,
    runs: Sequence[Run],
    pool: Sequence[Run],
    simpler: Simpler | None = None,
    seed: int = 0,
) -> list[Way]:
    """Judge whole runs, the simplest ways first.

    Args:
        made: of ``contest.choices``: which single worker is chosen for a question. runs: to be judged. pool: the runs
            that ``found`` was read from, which tell how many calls a single worker makes. simpler: the router by
            question that is proven, float64 [Q]; None where none is.

    Raises:
        BadInput: a run uses one model; or fewer than 20 tasks are the pool's and were not fitted on.
    """
    several = len({run.row.taskset for run in pool}) > 1
    single = _calls_of(pool)
    first = [_way(one, found, made, single, seed) for one in _gathered(runs, several)]
    p = design.holm([way.arm.p or 0.0 for way, _ in first])
    out, best = list[Way](), simpler
    for kind in KINDS:
        proven = list[Simpler]()
        for (way, earned), fixed in zip(first, p, strict=True):
            if way.kind == kind:
                judged = _judged(way._replace(arm=way.arm._replace(p=fixed)), earned, best, seed)
                out.append(judged)
                if judged.proven:
                    proven.append(Simpler(way.arm.name, earned))
        best = max(proven, key=lambda one: float(np.nanmean(one.earned)), default=best)
    return out


def _gathered(runs: Iterable[Run], several: bool) -> list[_Seen]:
    out = dict[tuple[str, str, str], _Seen]()
    for run in runs:
        reward = run.reward
        if reward is None or run.stop is None or run.stop in NO_SAMPLE:
            continue
        row = run.row
        one = out.setdefault((row.model, row.agent, row.config), _Seen(row.model, row.agent, row.config))
        one.rewards.setdefault(question_of(run, several), []).append(reward)
        one.calls.append(_asks(run))
        one.costs.append(run.cost)
    if not out:
        raise BadInput("none of the runs of --with was judged", remedy="`clew log` shows which runs have a reward.")
    return list(out.values())


def _asks(run: Run) -> int:
    return sum(call.kind == "ask" for call in run.calls)


def _calls_of(pool: Iterable[Run]) -> dict[str, float]:
    """Mean calls of one run, by worker."""
    calls = dict[str, list[int]]()
    for run in pool:
        calls.setdefault(run.model, []).append(_asks(run))
    return {worker: sum(many) / len(many) for worker, many in calls.items()}


def _way(seen: _Seen, found: Matrix, made: Choices, single: Mapping[str, float], seed: int) -> tuple[Way, F64]:
    """What one way earns, not judged yet; and that by question, float64 [Q], NaN where it does not count."""
    fitted, told = _fitted(seen.model) if seen.kind != "workflow" else (frozenset[str](), "")
    earned = np.full(len(found), math.nan)
    for q, question in enumerate(found.questions):
        if question in seen.rewards and fitted_tasks.mark(question) not in fitted:
            earned[q] = np.mean(seen.rewards[question])
    known = sum(question in seen.rewards for question in found.questions)
    at: Index = np.flatnonzero(~np.isnan(earned))
    label = {"question": "router", "turn": "router, by turn", "workflow": "workflows"}[seen.kind]
    name = f"{label} ({seen.model})"
    if len(at) < FEWEST:
        was = f", the router was fitted on {known - len(at)} of them" if known > len(at) else ""
        raise BadInput(
            f"{name} performed {known} of the pool's tasks{was}: fewer than {FEWEST} can be compared",
            remedy="Measure the pool at a split that nothing was fitted on, and let the router perform the same tasks.",
        )
    means, top = found.means[at], int(found.means[at].mean(0).argmax())
    base = means[np.arange(len(at)), made.single[at]]
    gain = gain_of(f"{name} less the best single worker", earned[at], base, seed)
    after = gain_of(f"{name} less {found.workers[top]}, best in hindsight", earned[at], means[:, top], seed)
    calls, costs = float(np.mean(seen.calls)), float(np.mean(seen.costs))
    cost = costs if found.prices is not None else None
    reward = mean_of(f"reward of {name}", earned[at], seed)
    arm = Arm(name, reward, calls, cost, gain, contest.p_of(earned[at] - base), after)
    notes = [told, f"{known - len(at)} tasks that the router was fitted on are left out" if known > len(at) else ""]
    way = Way(seen.kind, arm, seen.model, seen.agent, seen.config, about="; ".join(filter(None, notes)))
    worth, short = _as_many(found, top, calls / single.get(found.workers[top], 1.0))
    if worth is None:
        return way._replace(short=short), earned
    claim = f"{name} less {found.workers[top]} at equal calls"
    return way._replace(equal=gain_of(claim, earned[at], worth[at], seed)), earned


def _as_many(found: Matrix, worker: int, times: float) -> tuple[F64 | None, str]:
    """What the worker earns at as many calls, float64 [Q]: a majority of its samples; or why that is not known.

    A majority of two is the first of them, so up to two runs' worth of calls one run is the comparison.
    """
    most = math.ceil(times - ROUND)
    if most <= 2:
        return found.means[:, worker], ""
    name = found.workers[worker]
    if not found.answers:
        return None, f"it makes {times:.1f} times the calls, and answers of {name} cannot be put to a vote"
    if found.counts[:, worker].min() < most:
        return None, f"it makes {times:.1f} times the calls: measure the pool with -n {most} for a majority of as many"
    return np.array([contest.majority(found, q, worker, most) for q in range(len(found))]), ""


def _judged(way: Way, earned: F64, best: Simpler | None, seed: int) -> Way:
    over = None
    if best is not None and way.kind != "question":
        both = np.flatnonzero(~np.isnan(earned) & ~np.isnan(best.earned))
        if len(both) >= FEWEST:
            over = gain_of(f"{way.arm.name} less {best.name}", earned[both], best.earned[both], seed)
    short = way.short
    if not way.arm.wins:
        short = "it does not beat the best single worker"
    elif best is not None and way.kind != "question" and over is None:
        short = f"fewer than {FEWEST} tasks are shared with {best.name}"
    elif over is not None and over.low <= 0:
        short = f"it does not beat {best.name}, which is simpler" if best else ""
    elif way.equal is not None and way.equal.low <= 0:
        short = "a majority of the best single worker at equal calls is as good"
    return way._replace(over=over, short=short)


def _fitted(model: str) -> tuple[frozenset[str], str]:
    """Marks of the tasks that a router was fitted on; and a note where they are not known."""
    folder = Parts.of(model).folder
    unknown = f"which tasks {SCHEME}{folder} was fitted on is not known: see that these are others"
    try:
        marks = fitted_tasks.marks(router.load(Path(folder)).about)
    except (BadInput, BadRecord):
        marks = None
    return (frozenset(), unknown) if marks is None else (marks, "")
