"""Does a state key hide something? A test whether the merged graph is Markov.

Estimators that pool over a node trust that what follows depends on the node alone. Two tests ask whether facts of the
past (a node visited, an action done, an action done at a node, just before or ever in the run) predict it.

The world: every (node, action) that had more than one outcome. Whatever the policy remembers, the outcome of an action
at a node is independent of the run's past unless the node hides a state; conditioning on the action is what keeps a
policy with memory from looking like one. A node with more than one set of admissible actions needs no test: it is
aliased. The policy: every node at which more than one action was chosen. Where the past predicts the choice, the agent
goes by something that the key may not hold, and outcomes that never differed are no proof that it holds all: whoever
knows the hidden state never tries what would betray it. So the states are called Markov only where both tests had
enough to go by and neither found anything; else the detector cannot tell.

Both measure mutual information, averaged over the facts for the p-value, of the best fact for the effect. Labels
shuffled inside each cell say how well chance would do. On aliased states the order of estimators inverts (specs/E165
section 8a): run this before trusting a graph method.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from clew.core.errors import BadInput
from clew.credit.steps import F64, Bools, Ints, Steps, pair

SEEN, ENOUGH = 40, 100  # compared steps to conclude anything from; steps of a test to call its outcomes unexplained
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

    found: the past predicts outcomes (p at most .01, effect above .02), or a node has several admissible sets.
    p, effect, ambiguous: of the test of the world; ambiguous counts the steps whose (node, action) had more than one
    outcome. compared: steps whose (node, action) occurred at least twice.
    policy: the test of the policy, over the steps at nodes where more than one action was chosen.
    conflicts: share of steps at nodes with more than one set of admissible actions.
    nodes: the nodes where the past explains most, worst first, as (node, explained nats summed over its steps).
    """

    found: bool
    p: float
    effect: float
    compared: int
    ambiguous: int
    conflicts: float
    nodes: tuple[tuple[int, float], ...]
    policy: Explained

    @property
    def verdict(self) -> Literal["aliased", "markov", "unknown"]:
        """``unknown`` where what was seen would look the same whether the key hides something or not."""
        if self.found:
            return "aliased"
        tested = self.ambiguous == 0 or self.ambiguous >= ENOUGH
        free = self.policy.steps >= ENOUGH and not self.policy.found(DOUBT)
        return "markov" if self.compared >= SEEN and tested and free else "unknown"

    @property
    def lam(self) -> float:
        """Knob for value "solve": 1 where nodes look Markov, 0 where they do not or where nothing can be told."""
        return float(self.verdict == "markov")

    @property
    def why(self) -> str:
        """The verdict and its ground, as one sentence."""
        if self.conflicts:
            return f"The states are aliased: {self.conflicts:.0%} of steps are at nodes with several admissible sets."
        if self.found:
            return f"The states are aliased: the past predicts what an action leads to (p {self.p:.3f})."
        if self.verdict == "markov":
            return f"The states look Markov: the past predicts nothing ({self.compared} steps compared)."
        unsure = "Whether the states are Markov cannot be told"
        if self.compared < SEEN:
            return f"{unsure}: {self.compared} steps can be compared, and {SEEN} are needed."
        if 0 < self.ambiguous < ENOUGH:
            return f"{unsure}: {self.ambiguous} steps had uncertain outcomes, and {ENOUGH} are needed."
        if self.policy.found(DOUBT):
            known = f"the past predicts what the agent does (p {self.policy.p:.3f})"
            return f"{unsure}: {known}, so that it may know what the states hide."
        return f"{unsure}: {self.policy.steps} steps had a choice of actions, and {ENOUGH} are needed."


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
    rows = np.flatnonzero((steps.action >= 0) & ~_cut(steps))
    cell = pair(steps.state[rows], steps.action[rows])
    result = np.unique(steps.outcome[rows], return_inverse=True)[1]
    ended = np.where(steps.next[rows] < 0, result, -1)
    paid = np.where(steps.last[rows], -1, np.unique(steps.reward[rows], return_inverse=True)[1])
    rng = np.random.default_rng(seed)
    world, blame = _explained(steps, rows, cell, pair(pair(steps.next[rows], ended), paid), shuffles, rng)
    acted = np.flatnonzero(steps.action >= 0)
    policy, _ = _explained(steps, acted, steps.state[acted], steps.action[acted], shuffles, rng)
    conflicts = _conflicts(steps)
    return Aliasing(
        found=world.found(LEVEL) or conflicts > 0,
        p=world.p,
        effect=world.effect,
        compared=int((np.bincount(cell)[cell] > 1).sum()),
        ambiguous=world.steps,
        conflicts=conflicts,
        nodes=tuple(sorted(((n, b) for n, b in blame.items() if b > 0), key=lambda x: -x[1])[:10]),
        policy=policy,
    )


def _explained(
    steps: Steps, rows: Ints, cell: Ints, label: Ints, shuffles: int, rng: np.random.Generator
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
