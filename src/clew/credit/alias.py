"""Does a state key hide something? A test whether the merged graph is Markov.

Estimators that pool over a node trust that what follows depends on the node alone. Two tests ask whether facts of the
past (a node visited, an action done, an action done at a node, just before or ever in the run) predict it.

The world: every (node, action) that occurred more than once, by the node it led to and the reward it was paid. What the
judge gave a run beyond the rewards of its steps counts as paid at the last step. Whatever the policy remembers, the
outcome of an action at a node is independent of the run's past unless the node hides a state; conditioning on the
action is what keeps a policy with memory from looking like one. Only where no node, or one that nothing else
leads to, follows the last step of the longest runs of a group, which the horizon may have ended, is that not an
outcome; what such a step was paid is one. A last
step without an action is one action, by which the agent ended its run. A second test asks facts that mean the same in
every group, each over all cells together: an action done before, which finds one cause in many small cells, and the
time (late in the run, at the end of the longest), as a node may hide how many steps are left. A node with more than one
set of admissible actions needs no test: it is aliased.

The policy: every node at which more than one action was chosen. Where the past predicts the choice, the agent goes by
something that the key may not hold, and outcomes that never differed are no proof that it holds all: whoever knows the
hidden state never tries what would betray it.

Two steps of one cell can differ because of something hidden only where their pasts differ, and the states can hide what
decides the reward only where steps that were paid unlike the others are among those compared. Where neither is so,
nothing was tested. The states are called Markov only where both tests had enough to go by and neither found anything.

All measure mutual information, averaged over the facts for the p-value (in the second test the largest, in standard
deviations of what chance does), of the best fact for the effect. Labels
shuffled inside each cell say how well chance would do. On aliased states the order of estimators inverts (specs/E165
section 8a): run this before trusting a graph method.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from clew.core.comparisons import Comparisons
from clew.core.errors import BadInput
from clew.credit.steps import F64, Bools, Ints, Steps, pair

SEEN, ENOUGH = 40, 100  # compared steps to conclude anything from; steps of a test to call its outcomes unexplained
REWARDED = 10  # compared steps that were paid unlike most steps, to conclude anything on rewards from
PAYMENTS = 8  # different payments of a batch above which a cell's are told apart only by its median
COMMON = 64  # actions that are facts of their own over all groups together
EFFECT = 0.02
LEVEL, DOUBT = 0.01, 0.05  # p at which states are called aliased; at which the policy's memory puts Markov in doubt


class Explained(NamedTuple):
    """How far the past predicts a label. steps: those in cells of several labels, the only ones that can be tested.

    p: permutation p-value; 1 where nothing could be tested. effect: share of the labels' entropy in their cells that
    the best fact of the past explains beyond chance, in [0, 1].
    """

    steps: int
    p: float
    effect: float

    def found(self, level: float) -> bool:
        """p at most ``level`` and effect above .02."""
        return self.p <= level and self.effect > EFFECT


@dataclass(frozen=True, slots=True)
class Aliasing:
    """What the detector found.

    found: the past or the time predicts outcomes (p at most .01, effect above .02), or a node has several admissible
    sets.
    p, effect, ambiguous: of the test of the world; ambiguous counts the steps whose (node, action) had more than one
    outcome.
    comparisons: steps held against others of the same (node, action); those could differ whose pasts differ, and none
    where no compared step was paid unlike most steps. rewarded: how many were.
    policy: the test of the policy, over the steps at nodes where more than one action was chosen. shared: the second
    test of the world, by facts that mean the same in every group.
    conflicts: share of steps at nodes with more than one set of admissible actions.
    nodes: the nodes where the past explains most, worst first, as (node, explained nats summed over its steps).
    """

    found: bool
    p: float
    effect: float
    comparisons: Comparisons
    rewarded: int
    ambiguous: int
    conflicts: float
    nodes: tuple[tuple[int, float], ...]
    policy: Explained
    shared: Explained

    @property
    def compared(self) -> int:
        """Steps whose (node, action) occurred at least twice."""
        return self.comparisons.made

    @property
    def verdict(self) -> Literal["aliased", "markov", "not tested", "unknown"]:
        """``unknown`` where what was seen would look the same whether the key hides something or not."""
        if self.found:
            return "aliased"
        if not self.comparisons.tested:
            return "not tested"
        return "unknown" if self._doubt else "markov"

    @property
    def lam(self) -> float:
        """Of value "solve": 1 where the states look Markov, else 0. There ``grpo`` is nearer to the truth than either,
        and ``bellman(lam="auto")`` takes it."""
        return float(self.verdict == "markov")

    @property
    def why(self) -> str:
        """The verdict and its ground, as one sentence."""
        if self.conflicts:
            return f"The states are aliased: {self.conflicts:.0%} of steps are at nodes with several admissible sets."
        if self.found:
            p = min(self.p, self.shared.p)
            return f"The states are aliased: the past or the time predicts what an action leads to (p {p:.3f})."
        if self._doubt:
            return f"Whether the states are Markov {self._doubt}."
        return f"The states look Markov: the past predicts nothing ({self.comparisons})."

    @property
    def _doubt(self) -> str:
        """What is missing to call the states Markov."""
        could, told = self.comparisons.could_differ, "cannot be told"
        if not could:
            return f"was {self.comparisons.verdict('')}"
        if could < SEEN:
            return f"{told}: {could} steps can be compared, and {SEEN} are needed"
        if self.rewarded < REWARDED:
            return f"{told}: {self.rewarded} of these steps were paid unlike most, and {REWARDED} are needed"
        if 0 < self.ambiguous < ENOUGH:
            return f"{told}: {self.ambiguous} steps had uncertain outcomes, and {ENOUGH} are needed"
        if self.policy.found(DOUBT):
            known = f"the past predicts what the agent does (p {self.policy.p:.3f})"
            return f"{told}: {known}, so that it may know what the states hide"
        if self.policy.steps < ENOUGH:
            return f"{told}: {self.policy.steps} steps had a choice of actions, and {ENOUGH} are needed"
        return ""


def aliasing(steps: Steps, shuffles: int = 199, seed: int = 0) -> Aliasing:
    """Test whether the nodes of the merged graph hide a state.

    Args:
        steps: one or several groups; evidence adds up over groups, so pass what you have.
        shuffles: permutations behind the p-values, whose smallest value is 1 / (shuffles + 1).
        seed: of the permutations.

    Raises:
        BadInput: ``shuffles`` is below 99.
    """
    if shuffles < 99:
        raise BadInput(f"shuffles={shuffles} cannot give a p-value below .01", remedy="Use at least 99.")
    acted = np.flatnonzero(steps.action >= 0)
    rows = np.flatnonzero((steps.action >= 0) | steps.last) if len(acted) else acted
    cell = pair(steps.state[rows], steps.action[rows])
    paid = _paid(steps)[rows]
    rng = np.random.default_rng(seed)
    label = pair(_led(steps, rows, cell), _payment(paid, cell))
    world, blame = _explained(steps, rows, cell, label, shuffles, rng)
    policy, _ = _explained(steps, acted, steps.state[acted], steps.action[acted], shuffles, rng)
    shared = _together(steps, rows, cell, label, shuffles, rng)
    conflicts = _conflicts(steps)
    comparisons, rewarded = _comparisons(cell, _pasts(steps)[rows], paid)
    return Aliasing(
        found=world.found(LEVEL) or shared.found(LEVEL) or conflicts > 0,
        p=world.p,
        effect=world.effect,
        comparisons=comparisons,
        rewarded=rewarded,
        ambiguous=world.steps,
        conflicts=conflicts,
        nodes=tuple(sorted(((n, b) for n, b in blame.items() if b > 0), key=lambda x: -x[1])[:10]),
        policy=policy,
        shared=shared,
    )


def _comparisons(cell: Ints, past: Ints, paid: F64) -> tuple[Comparisons, int]:
    """Which steps were compared, which of them could differ, and how many of those were paid unlike most steps.

    Args:
        cell, past, paid: [rows]: the (node, action), the number of the past before it, the payment.
    """
    made, could = np.bincount(cell)[cell] > 1, _several(cell, past)[cell]
    amounts, code = np.unique(paid, return_inverse=True)
    unlike = code != np.bincount(code, minlength=1).argmax()
    rewarded = int((could & unlike).sum())
    why = "no step was repeated after another past"
    if could.any():
        why = "no step that was paid unlike the others was repeated after another past"
    if could.any() and len(amounts) == 1:
        why = "all rewards are equal, so that they cannot show what a state hides"
    what = "steps, each against others of the same state and action,"
    return Comparisons(what, int(made.sum()), int(could.sum()) if rewarded else 0, why_not=why), rewarded


def _pasts(steps: Steps) -> Ints:
    """A number for all that a run did before each row, equal where it is equal; int64 [n]."""
    known: dict[tuple[int, int, int], int] = {}
    out = np.zeros(len(steps), np.int64)
    now = 0
    for row, (t, state, action) in enumerate(
        zip(steps.t.tolist(), steps.state.tolist(), steps.action.tolist(), strict=True)
    ):
        out[row] = now = 0 if t == 0 else now
        now = known.setdefault((now, state, action), len(known) + 1)
    return out


def _paid(steps: Steps) -> F64:
    """What each step was paid: its reward, and at the last step what the run's return holds beyond its rewards."""
    total = np.bincount(steps.run, steps.reward, minlength=len(steps.runs))
    paid = steps.reward + np.where(steps.last, steps.outcome - total[steps.run], 0.0)
    size = float(np.abs(paid).max(initial=0.0)) or 1.0
    return np.asarray(np.round(paid / size, 9) + 0.0, np.float64)  # computed sums differ in their last digits


def _payment(paid: F64, cell: Ints) -> Ints:
    """Payments as labels. Of many different ones, whether one lies above its cell's median: labels that are all
    different could show nothing, however they were shuffled."""
    amounts, code = np.unique(paid, return_inverse=True)
    if len(amounts) <= PAYMENTS:
        return code.astype(np.int64)
    order = np.lexsort((paid, cell))
    size = np.bincount(cell)
    median = paid[order][np.cumsum(size) - size + (size - 1) // 2]
    above: Ints = (paid > median[cell]).astype(np.int64)
    return above


def _led(steps: Steps, rows: Ints, cell: Ints) -> Ints:
    """The node that followed each of ``rows``; of those that the horizon may have cut off before a node that is reached
    otherwise too, the one that followed most of the cell. A world that a limit ends is in a state of its own there."""
    led: Ints = steps.next[rows].copy()
    cut = _cut(steps)[rows]
    unknown = cut & ((led < 0) | ~np.isin(led, led[~cut]))
    if unknown.any() and not unknown.all():
        kept, counts = np.unique(np.stack([cell[~unknown], led[~unknown]]), axis=1, return_counts=True)
        most = np.full(int(cell.max()) + 1, -1)
        order = np.argsort(counts, kind="stable")
        most[kept[0][order]] = kept[1][order]
        led[unknown] = most[cell[unknown]]
    return led


def _explained(
    steps: Steps,
    rows: Ints,
    cell: Ints,
    label: Ints,
    shuffles: int,
    rng: np.random.Generator,
) -> tuple[Explained, dict[int, float]]:
    """How far the past predicts the labels of ``rows`` inside their cells, and node -> nats that it explains there."""
    mean, best, room = np.zeros(shuffles + 1), np.zeros(shuffles + 1), 0.0
    blame: dict[int, float] = {}
    chosen = np.flatnonzero(_several(cell, label)[cell])
    groups = steps.group[rows[chosen]]
    for g in np.unique(groups):
        mine = chosen[groups == g]
        past, where = _past(steps, int(g))
        for members in np.split(mine[np.argsort(cell[mine], kind="stable")], _breaks(np.sort(cell[mine]))):
            information, entropy = _information(past[where[rows[members]]], label[members], shuffles, rng)
            top = information.max(axis=1)
            mean += information.mean(axis=1)
            best += top
            room += entropy
            node = int(steps.state[rows[members[0]]])
            blame[node] = blame.get(node, 0.0) + float(top[0] - top[1:].mean())
    p = float((1 + (mean[1:] >= mean[0] * (1 - 1e-12)).sum()) / (1 + shuffles)) if room else 1.0
    effect = float(np.clip((best[0] - best[1:].mean()) / room, 0, 1)) if room else 0.0
    return Explained(len(chosen), p, effect), blame


def _cut(steps: Steps) -> Bools:
    """Last steps of the longest runs of each group: what ended those may be the horizon, not the state."""
    longest = np.zeros(len(steps.groups), dtype=np.int64)
    np.maximum.at(longest, steps.group, steps.length)
    cut: Bools = steps.last & (steps.length == longest[steps.group])
    return cut


def _several(cell: Ints, label: Ints) -> Bools:
    """Which cells have more than one label; bool [cells]."""
    size = int(cell.max(initial=-1)) + 1
    low, high = np.full(size, np.iinfo(np.int64).max), np.full(size, -1)
    np.minimum.at(low, cell, label)
    np.maximum.at(high, cell, label)
    return high > low


def _conflicts(steps: Steps) -> float:
    known = steps.legal >= 0
    if not known.any():
        return 0.0
    aliased = _several(steps.state[known], steps.legal[known])
    return float(aliased[steps.state[known]].mean())


def _breaks(keys: Ints) -> Ints:
    return np.flatnonzero(keys[1:] != keys[:-1]) + 1


def _past(steps: Steps, group: int) -> tuple[Bools, Ints]:
    """Facts of the past of each row of a group: bool [rows, facts], and row -> its index there.

    A fact says that a node, an action, or the action at the node was the last before the row, or came earlier at all.
    """
    rows = np.flatnonzero(steps.group == group)
    where = np.full(len(steps), -1)
    where[rows] = np.arange(len(rows))
    both = []
    state, action = steps.state[rows], steps.action[rows]
    for column in (state, action, pair(state, action)):
        values, code = np.unique(column, return_inverse=True)
        now = code[:, None] == np.arange(len(values))[None, :]
        before = np.zeros_like(now)
        before[1:] = now[:-1]
        before[steps.t[rows] == 0] = False
        ever = before.copy()
        for part in np.split(np.arange(len(rows)), _breaks(steps.run[rows])):
            ever[part] = np.maximum.accumulate(before[part], axis=0)
        both += [before, ever]
    return np.concatenate(both, axis=1), where


def _together(steps: Steps, rows: Ints, cell: Ints, label: Ints, shuffles: int, rng: np.random.Generator) -> Explained:
    """As ``_explained``, by facts that mean the same in every group, each over all cells together."""
    facts = _shared(steps)
    total, room = np.zeros((shuffles + 1, facts.shape[1])), 0.0
    chosen = np.flatnonzero(_several(cell, label)[cell])
    for members in np.split(chosen[np.argsort(cell[chosen], kind="stable")], _breaks(np.sort(cell[chosen]))):
        if len(members):
            mine = facts[rows[members]]
            varied = np.flatnonzero(mine.any(axis=0) & ~mine.all(axis=0))
            information, entropy = _information(mine[:, varied], label[members], shuffles, rng)
            total[:, varied] += information[:, : len(varied)]
            room += entropy
    spread = total[1:].std(axis=0)
    told = np.flatnonzero(spread > 1e-9)
    if not len(told):
        return Explained(len(chosen), 1.0, 0.0)
    score = (total[:, told] - total[1:, told].mean(axis=0)) / spread[told]
    top, fact = score.max(axis=1), int(told[score[0].argmax()])
    p = float((1 + (top[1:] >= top[0] - 1e-9).sum()) / (1 + shuffles))
    return Explained(len(chosen), p, float(np.clip((total[0, fact] - total[1:, fact].mean()) / room, 0, 1)))


def _shared(steps: Steps) -> Bools:
    """Facts that mean the same in every group, bool [n, facts]: the row lies in the later half of the longest run of
    its group, or at its end; one of the ``COMMON`` commonest actions was the last before the row, or came earlier."""
    longest = np.zeros(len(steps.groups), dtype=np.int64)
    np.maximum.at(longest, steps.group, steps.length - 1)
    end = longest[steps.group]
    actions, count = np.unique(steps.action[steps.action >= 0], return_counts=True)
    now = steps.action[:, None] == actions[np.argsort(-count, kind="stable")[:COMMON]][None, :]
    before = np.zeros_like(now)
    before[1:] = now[:-1]
    before[steps.t == 0] = False
    ever = before.copy()
    for part in np.split(np.arange(len(steps)), _breaks(steps.run)):
        ever[part] = np.maximum.accumulate(before[part], axis=0)
    return np.concatenate([np.stack([2 * steps.t > end, steps.t == end], axis=1), before, ever], axis=1)


def _information(facts: Bools, label: Ints, shuffles: int, rng: np.random.Generator) -> tuple[F64, float]:
    """Mutual information of labels and each fact, in nats times rows; true labels first, then shuffled ones.

    Returns float64 [shuffles + 1, facts], at least one column, and its upper bound, the labels' entropy times rows.
    """
    m = len(label)
    held = facts.sum(axis=0)
    facts = facts[:, (held > 0) & (held < m)]
    held = facts.sum(axis=0)
    code = np.unique(label, return_inverse=True)[1]
    orders = np.stack([np.arange(m), *(rng.permutation(m) for _ in range(shuffles))])
    onehot = (code[orders][:, :, None] == np.arange(int(code.max()) + 1)).astype(np.float64)
    xlogx = np.arange(m + 1) * np.log(np.maximum(np.arange(m + 1), 1))
    total = np.bincount(code)
    entropy = float(xlogx[m] - xlogx[total].sum())
    if not facts.shape[1]:
        return np.zeros((shuffles + 1, 1)), entropy
    both = np.matmul(facts.T.astype(np.float64), onehot).astype(np.int64)  # [shuffles + 1, facts, labels]
    joint = xlogx[both].sum(axis=2) + xlogx[total - both].sum(axis=2)
    information: F64 = joint - xlogx[held] - xlogx[m - held] + entropy
    return information, entropy
