"""Backward coverage: whether what follows a mistake ever receives a training signal (specs/E163, sections 3 and 8).

Data made of perfect solutions holds no state that lies behind a mistake, so nothing in it teaches the way back. How
much of that way a data set does teach is counted here, from what a record holds and nothing else:

- A state is a state key of the world, within one task. All runs of a task make one graph of the moves that were seen.
- The distance of a state is the least number of seen moves from it to the end of a solved run of its task; it is
  infinite where none leads there. It is what these runs know, and may be longer than the world's own.
- A mistake is an act after which the distance grew, or which returned to a state of the run without shortening it. In
  a task without a solved run no distance is known, so that no act is called one.
- Only an act that leaves or enters a state which the runs of its task visited more than once can be seen to be one:
  along a way that nothing meets, every act leads nearer to where the way ended.
- A run is off course while its distance is larger than the smallest it has had; the states it is then in are those
  reached after a mistake. A retreat is an act done off course after which the distance is smaller.

States and retreats are counted once each, as (task, state) and (task, state, action), however often they occur.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict, deque
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from clew.core.comparisons import Comparisons
from clew.core.errors import BadInput
from clew.core.records import Report
from clew.methods.compare.design import bootstrap
from clew.store.protocol import rewards

Place = tuple[str, Hashable]  # (task, state)
Act = tuple[str, Hashable, str]  # (task, state, action)
RESAMPLES = 2000


class Trail(NamedTuple):
    """One run: n actions and the n + 1 states around them, whether it was solved, and where it is written.

    ``steps`` are the numbers of the run's steps that the actions are, for those who look them up.
    """

    task: str
    states: tuple[Hashable, ...]
    actions: tuple[str, ...]
    solved: bool
    run: str = ""
    steps: tuple[int, ...] = ()

    def acts(self) -> list[Act]:
        """(task, state, action) of every act, in order."""
        return [(self.task, s, a) for s, a in zip(self.states, self.actions, strict=False)]


class Course(NamedTuple):
    """What a trail's acts and states are: mistake and retreat bool [n], off bool [n + 1]; all False where no
    distance is known."""

    mistake: list[bool]
    retreat: list[bool]
    off: list[bool]


@dataclass(frozen=True, slots=True)
class Coverage:
    """Shares of what lies behind mistakes that receive a signal; ``None`` where there is nothing to cover.

    states, retreats: Reports of the shares, 0 to 1, with a bootstrap interval over tasks. mistakes: acts that are one.
    acts: in all runs; judged: those in tasks with a solved run. comparisons: of the judged, those could be mistakes
    that leave or enter a state that was visited more than once. behind, ways: how many states reached after a mistake,
    and retreats, there are. covered_states, covered_retreats: how many of them have a signal. lost: tasks without a
    solved run, in which no distance is known and none is counted.
    """

    runs: int
    tasks: int
    lost: int
    acts: int
    mistakes: int
    behind: int
    covered_states: int
    ways: int
    covered_retreats: int
    states: Report | None
    retreats: Report | None
    comparisons: Comparisons

    @property
    def judged(self) -> int:
        return self.comparisons.made

    def to_json(self) -> dict[str, Any]:
        """Counts and shares as JSON values; a share is null, or estimate, low, high and n."""

        def share(report: Report | None) -> dict[str, float] | None:
            return {k: getattr(report, k) for k in ("estimate", "low", "high", "n")} if report else None

        return {
            "runs": self.runs,
            "tasks": self.tasks,
            "tasks without a solved run": self.lost,
            "acts": self.acts,
            "acts judged": self.judged,
            "mistakes": self.mistakes if self.comparisons.tested else None,
            "comparisons": self.comparisons.json(),
            "states after a mistake": self.behind,
            "of them with a signal": self.covered_states,
            "retreats": self.ways,
            "retreats with a signal": self.covered_retreats,
            "share of states": share(self.states),
            "share of retreats": share(self.retreats),
        }


def trails(runs: Iterable[Any]) -> list[Trail]:
    """Trails of recorded ``clew.store.Run``s: their completed acts on a world that names its states.

    A run is solved where the judge's reward, else the world's last, is positive. Acts that failed, and acts of tools
    beside the world, are left out, and so is a run of which an act was redacted: it teaches nothing.

    Raises:
        BadInput: no run has such an act.
    """
    runs = list(runs)
    verdicts = rewards(runs[0].store, [run.id for run in runs]) if runs else {}
    found = []
    for run in runs:
        steps = [s for s in run.steps if s.act and s.before and s.act.state and s.before.state and not s.act.error]
        if not steps or any(s.act.redacted or s.before.redacted for s in steps):
            continue
        states = (*(s.before.state for s in steps), steps[-1].act.state)
        reward = verdicts.get(run.id, steps[-1].act.reward)
        task = f"{run.taskset} {run.task_id}"
        actions, numbers = tuple(s.act.action for s in steps), tuple(s.index for s in steps)
        found.append(Trail(task, states, actions, (reward or 0.0) > 0, run.id, numbers))
    if not found:
        raise BadInput(
            "none of these runs acted on a world that names its states",
            remedy="Coverage needs state keys: choose runs of a world such as household or maze (see `clew worlds`).",
        )
    return found


def distances(paths: Iterable[Trail]) -> dict[Place, int]:
    """Seen moves from each state to the end of a solved run of its task; states that lead to none are absent."""
    back: dict[Place, set[Place]] = defaultdict(set)
    found: dict[Place, int] = {}
    for path in paths:
        for before, after in zip(path.states, path.states[1:], strict=False):
            back[path.task, after].add((path.task, before))
        if path.solved:
            found[path.task, path.states[-1]] = 0
    frontier = deque(found)
    while frontier:
        here = frontier.popleft()
        for before in back[here]:
            if before not in found:
                found[before] = found[here] + 1
                frontier.append(before)
    return found


def course(path: Trail, known: Mapping[Place, int]) -> Course:
    """Which acts of a trail are mistakes and retreats, and where it is off course (the rules are the module's)."""
    far = [known.get((path.task, state), math.inf) for state in path.states]
    if all(map(math.isinf, far)):
        nothing = [False] * len(path.actions)
        return Course(nothing, nothing[:], [False] * len(far))
    best = np.minimum.accumulate(far)
    off = [bool(d > least) for d, least in zip(far, best, strict=True)]
    mistake, retreat, seen = [], [], {path.states[0]}
    for i, after in enumerate(path.states[1:]):
        mistake.append(far[i + 1] > far[i] or (after in seen and far[i + 1] >= far[i]))
        retreat.append(off[i] and far[i + 1] < far[i])
        seen.add(after)
    return Course(mistake, retreat, off)


def coverage(paths: Sequence[Trail], signal: Iterable[Act]) -> Coverage:
    """How much of what lies behind the mistakes of ``paths`` a data set teaches.

    Args:
        paths: the runs that say which states lie behind a mistake; those the data was made of, whole.
        signal: (task, state, action) of every act that receives a training signal.
    """
    known, taught = distances(paths), set(signal)
    places = {(task, state) for task, state, _ in taught}
    behind: set[Place] = set()
    ways: set[Act] = set()
    mistakes = judged = could = 0
    visits = Counter((path.task, state) for path in paths for state in path.states)
    for path in paths:
        found = course(path, known)
        if any((path.task, state) in known for state in path.states):
            judged += len(path.actions)
            met = [visits[path.task, state] > 1 for state in path.states]
            could += sum(before or after for before, after in pairwise(met))
        mistakes += sum(found.mistake)
        behind.update((path.task, s) for s, off in zip(path.states[:-1], found.off, strict=False) if off)
        ways.update(act for act, back in zip(path.acts(), found.retreat, strict=True) if back)
    tasks = list(dict.fromkeys(path.task for path in paths))
    why = "no state was visited more than once, so that every act leads nearer to where its run ended"
    if not judged:
        why = "no run of these tasks was solved, so that no distance is known"
    return Coverage(
        runs=len(paths),
        tasks=len(tasks),
        lost=len(tasks) - len({path.task for path in paths if path.solved}),
        acts=sum(len(path.actions) for path in paths),
        mistakes=mistakes,
        behind=len(behind),
        covered_states=len(behind & places),
        ways=len(ways),
        covered_retreats=len(ways & taught),
        states=_share("states reached after a mistake that receive a signal", tasks, behind, behind & places),
        retreats=_share("retreats that receive a signal", tasks, ways, ways & taught),
        comparisons=Comparisons("acts, by the distance before and after,", judged, could, why_not=why),
    )


def _share(claim: str, tasks: Sequence[str], every: set[Any], covered: set[Any]) -> Report | None:
    """Share with a percentile bootstrap over the tasks that have anything to cover; of one task nothing is known."""
    if not every:
        return None
    counts = np.zeros((len(tasks), 2))
    number = {task: i for i, task in enumerate(tasks)}
    for column, lot in enumerate((covered, every)):
        np.add.at(counts[:, column], [number[item[0]] for item in lot], 1)
    counts = counts[counts[:, 1] > 0]
    n, text = len(counts), f"{len(every)} distinct, percentile bootstrap over {len(counts)} tasks"
    if n == 1:
        caveat = ("one task: nothing is known of others",)
        share = len(covered) / len(every)
        return Report(claim=claim, estimate=share, low=0.0, high=1.0, n=1, design=text, caveats=caveat)

    def pooled(hit: np.ndarray, total: np.ndarray) -> np.ndarray:
        share: np.ndarray = hit.sum(axis=-1) / total.sum(axis=-1)
        return share

    return bootstrap(claim, pooled, counts[:, 0], counts[:, 1], design=text, resamples=RESAMPLES)
