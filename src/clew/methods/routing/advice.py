"""Should one route at all? The whole answer for a measured pool, its verdict, and its Reports in the store.

``clew route report`` prints it, ``clew route fit`` asks it first. It says "route by question" of what was shown on
held-out questions alone, and "route by turn" or "orchestrate" of whole runs alone (``whole_runs``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

import numpy as np

from clew.core.comparisons import Comparisons
from clew.core.keys import value_digest
from clew.core.records import Report
from clew.methods.routing import contest
from clew.methods.routing.contest import REPEATS, Arm, Choices, Held, Read
from clew.methods.routing.frontier import Frontier, frontier
from clew.methods.routing.headroom import Headroom, headroom
from clew.methods.routing.reward_matrix import Matrix
from clew.methods.routing.soft_targets import TAU
from clew.methods.routing.whole_runs import KINDS, Simpler, Way
from clew.store import Keeper

Verdict = Literal["not tested", "do not route", "route by question", "route by turn", "orchestrate"]
LEAST = 0.002  # of the range of rewards: a smaller gain of a router does not count
NOT_COMPUTED = (
    "solve, verify, repair was not computed: stored single answers hold no verification by one worker and no repair by "
    "another",
)
NO_RUNS = "routing by turn and workflows were not judged: name whole runs of the same tasks (clew route report --with)"
OF_WAY: dict[str, Verdict] = {"question": "route by question", "turn": "route by turn", "workflow": "orchestrate"}


class Family(NamedTuple):
    """Mean reward of each worker in one family, and how many questions it has."""

    name: str
    n: int
    means: tuple[float, ...]


@dataclass(slots=True)
class Advice:
    """What was found of a pool.

    headroom: None where it cannot be estimated. ours: the arm of the router that ``clew route fit`` would fit. ways:
    what whole runs of several models earn; empty where none were given.
    """

    found: Matrix
    held: Held
    headroom: Headroom | None
    arms: list[Arm]
    made: Choices
    frontier: Frontier
    ways: list[Way] = field(default_factory=list)

    def arm(self, name: str) -> Arm:
        return next(one for one in self.arms if one.name == name)

    @property
    def ours(self) -> Arm:
        return self.arm("soft targets")

    @property
    def best(self) -> Arm:
        """The router that earns most on held-out questions, whether it is proven or not."""
        return max((arm for arm in self.arms if arm.p is not None), key=lambda arm: arm.reward.estimate)

    @property
    def winners(self) -> list[Arm]:
        """Routers that beat the best single worker, the best first."""
        least = _least(self.found)
        won = [arm for arm in self.arms if arm.wins and arm.gain is not None and arm.gain.estimate >= least]
        return sorted(won, key=lambda arm: -arm.reward.estimate)

    @property
    def way(self) -> Way | None:
        """Whole runs that are proven: the least simple of them, since each beats those before; of one kind the best."""
        proven = [way for way in self.ways if way.proven]
        return max(proven, key=lambda way: (KINDS.index(way.kind), way.arm.reward.estimate), default=None)

    @property
    def by_question(self) -> Simpler | None:
        """The router that is proven on held-out questions, and what it earns at each."""
        if verdict(self.compared, bool(self.winners)) != "route by question":
            return None
        name = self.winners[0].name
        return Simpler(name, contest.earned_by(self.found, self.made, name))

    @property
    def verdict(self) -> Verdict:
        return OF_WAY[self.way.kind] if self.way else verdict(self.compared, bool(self.winners))

    @property
    def compared(self) -> Comparisons:
        """The questions, those on which the worker could matter, and the least gain that counts."""
        differ = int((np.ptp(self.found.means, axis=1) > 0).sum())
        why = "every worker earned the same on every question, so that no choice among them can matter"
        return Comparisons("held-out questions", len(self.found), differ, _least(self.found), "of reward", why)

    @property
    def why(self) -> str:
        """The verdict in a sentence."""
        room = self.headroom
        if self.way:
            return _why(self.way)
        if not self.compared.tested:
            return self.compared.why_not
        if not self.winners:
            best = self.best
            assert best.gain is not None
            said = f"no router beats the best single worker on held-out {self.held}: the best, {best.name}, by "
            said += f"{_figure(best.gain)}, averaged over {REPEATS} partitions into folds"
            if room is None:
                return said
            if room.found:
                return f"there is headroom, but {said}"
            return f"{said}; nor does an oracle, cross-fitted by {room.way}: at least {_figure(room.report)}"
        best = self.winners[0]
        assert best.gain is not None
        said = f"{best.name} beats the best single worker by {_figure(best.gain)} on held-out {self.held}"
        said += ", at one call each"
        if room is not None and not room.found:
            said += "; the headroom, a lower bound, does not show it: that oracle knows too little of each question"
        return said

    @property
    def families(self) -> list[Family]:
        """Mean rewards by family, in alphabetical order; one nameless family where none is known."""
        names, means = np.array(self.found.families), self.found.means
        return [
            Family(str(name), int((names == name).sum()), tuple(map(float, means[names == name].mean(0))))
            for name in sorted(set(self.found.families))
        ]

    @property
    def notes(self) -> list[str]:
        """What a reader must know of the figures."""
        out = list(self.found.notes)
        if self.headroom is None:
            out.append(
                "the headroom cannot be estimated: one sample of each pair and no families; measure with -n 4, or give "
                "a column `family`; the verdict rests on the routers alone"
            )
        else:
            out += self.headroom.report.caveats
        out += contest.skipped(self.found, self.held)
        if not self.found.answers:
            out.append("a majority of several answers was not computed: the answers are not known")
        elif self.found.counts.min() < 3:
            out.append("a majority of several answers was not computed: it needs three samples of each pair")
        if self.found.counts.min() < 2:
            out.append("best of several samples was not computed: it needs two samples of each pair")
        if self.found.prices is None:
            out.append("costs are not known for every worker: equal calls stand for equal cost")
        out += [f"{way.arm.name}: {way.about}" for way in self.ways if way.about]
        return [*out, *NOT_COMPUTED, *(() if self.ways else (NO_RUNS,))]


def _why(way: Way) -> str:
    """Why whole runs are the verdict, in a sentence."""
    gain = way.arm.gain
    assert gain is not None
    said = f"{way.arm.name} earns {_figure(gain)} over the best single worker, n={gain.n}, at {way.arm.calls:.1f} calls"
    if way.over is not None:
        said += f", and {_figure(way.over)} over the best simpler way"
    return said + (f", and {_figure(way.equal)} over one worker at equal calls" if way.equal is not None else "")


def _figure(found: Report) -> str:
    return f"{found.estimate:+.3f} [{found.low:+.3f}, {found.high:+.3f}]"


def _least(found: Matrix) -> float:
    """The least gain of a router that counts."""
    return LEAST * float(np.ptp(found.means))


def verdict(compared: Comparisons, won: bool) -> Verdict:
    """``won``: whether a router beats the best single worker on held-out questions.

    The headroom has no say: it is a lower bound, and one of one sample each sees differences between families alone.
    """
    if not compared.tested:
        return "not tested"
    return "route by question" if won else "do not route"


def advise(
    found: Matrix,
    *,
    held: Held = "questions",
    seed: int = 0,
    tau: float = TAU,
    told: Callable[[], None] = lambda: None,
    read: Read | None = None,
) -> Advice:
    """Measure headroom, let routers and baselines compete on held-out questions, and judge.

    Args:
        held: what is held out, questions or whole families. tau: temperature of our router's soft targets. told: called
            after each fold of each partition. read: how questions become vectors; default: n-grams.

    Raises:
        BadInput: too few questions or families. MissingExtra: scikit-learn or scipy is not installed.
    """
    made = contest.choices(found, held=held, seed=seed, tau=tau, told=told, read=read)
    arms = contest.arms(found, made, seed)
    return Advice(found, held, headroom(found, seed), arms, made, frontier(found, made, arms, seed))


def filed(advice: Advice, store: Keeper) -> list[str]:
    """Keep the figures and the verdict as Reports of the store; gives their ids, the verdict's last."""
    runs, caveats = advice.found.runs, tuple(advice.notes)
    reports = [advice.headroom.report] if advice.headroom is not None else []
    reports += [arm.reward for arm in advice.arms]
    reports += [arm.gain for arm in advice.arms if arm.gain is not None]
    reports.append(advice.frontier.saving)
    for way in advice.ways:
        reports += [one for one in (way.arm.reward, way.arm.gain, way.over, way.equal) if one is not None]
    best = advice.way.arm if advice.way else advice.best
    assert best.gain is not None
    claim = f"{advice.verdict}: {best.name} less the best single worker"
    reports.append(replace(best.gain, claim=claim, caveats=caveats))
    ids = [_file(store, replace(report, runs=runs), advice) for report in reports]
    store.commit()
    return ids


def _file(store: Keeper, report: Report, advice: Advice) -> str:
    said = [report.claim, report.n, report.estimate, advice.held]
    return store.put_report(report, f"route-{advice.found.label}-{value_digest(said).hex()[:8]}")
