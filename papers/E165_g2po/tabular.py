"""Tier 8a: tabular policies in the house of specs/E165 section 8a, many seeds at once.

Every seed is one house with one task. All seeds advance together as lanes of numpy arrays; each draws its uniforms
from a counter keyed by its own seed, so a seed's numbers do not depend on which others run beside it.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from clew.core.keys import derive, uniforms
from clew.credit.steps import Steps
from clew.worlds.house import House

RUNS = 8  # rollouts of a lane per iteration
ITERATIONS = 120
LR = 2.0  # with the divisor of `ascent`, this puts the clean, rescaled GRPO where specs/E165 section 8a has it (.113)
COLUMNS = ("group", "run", "t", "length", "state", "next", "outcome", "reward", "action", "legal", "valid", "last")
VARIANTS = {"clean": {}, "stoch": {"stoch": 0.1}, "alias": {"alias": True}}


class Houses(NamedTuple):
    """Lanes of ``House.tables``, L of them; S states with success last, A actions, O observations with success last.

    to: int64 [L, S, A]; start: int64 [L]; sees: int64 [S]; seeds: one per lane.
    """

    to: np.ndarray
    start: np.ndarray
    sees: np.ndarray
    slip: float
    horizon: int
    reward: float
    seeds: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, int, int]:
        """Of logits: lanes, observations, actions."""
        return len(self.start), int(self.sees.max()) + 1, self.to.shape[2]

    def kernel(self) -> np.ndarray:
        """float64 [L, S, A, S]: chance of each next state."""
        sure = np.eye(self.to.shape[1])[self.to]
        return (1 - self.slip) * sure + self.slip * sure.mean(axis=2, keepdims=True)

    def policy(self, logits: np.ndarray) -> np.ndarray:
        """Softmax over actions of each true state; float64 [L, S, A]."""
        return softmax(logits)[:, self.sees]


def softmax(logits: np.ndarray) -> np.ndarray:
    e = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def houses(seeds: Sequence[int], variant: str) -> Houses:
    """One house with one task per seed, the same house in all variants."""
    taskset = House(**VARIANTS[variant])
    tables = [taskset.tables(taskset.find(f"rooms-{seed}")) for seed in seeds]
    one = tables[0]
    to = np.stack([t.next for t in tables])
    return Houses(
        to, np.array([t.start for t in tables]), one.observed, one.slip, one.horizon, one.reward, tuple(seeds)
    )


class Exact(NamedTuple):
    """Dynamic programming over the horizon. success: float64 [L]. q [T, L, S, A] and v [T + 1, L, S]: chance of success
    in the steps left. gradient [L, O, A]: of success by the logits."""

    success: np.ndarray
    q: np.ndarray
    v: np.ndarray
    gradient: np.ndarray


def success(house: Houses, logits: np.ndarray, kernel: np.ndarray) -> np.ndarray:
    """Chance of success within the horizon; float64 [L]. ``House.tables(...).success`` is its slow twin."""
    move = np.einsum("lsa,lsan->lsn", house.policy(logits), kernel)
    lanes = np.arange(len(house.start))
    at = np.zeros((len(lanes), 1, move.shape[1]))
    at[lanes, 0, house.start] = 1.0
    for _ in range(house.horizon):
        at = at @ move
    return at[:, 0, -1]


def exact(house: Houses, logits: np.ndarray) -> Exact:
    """Everything about a policy that sampling estimates. ``House.tables(...).gradient`` is its slow twin."""
    kernel, pi = house.kernel(), house.policy(logits)
    lanes, states, actions = house.to.shape
    q = np.zeros((house.horizon, lanes, states, actions))
    v = np.zeros((house.horizon + 1, lanes, states))
    v[-1, :, -1] = 1.0
    for t in reversed(range(house.horizon)):
        q[t] = np.einsum("lsan,ln->lsa", kernel, v[t + 1])
        v[t] = (pi * q[t]).sum(axis=2)
    visits = np.zeros((house.horizon, lanes, states))
    visits[0, np.arange(lanes), house.start] = 1.0
    for t in range(1, house.horizon):
        visits[t] = np.einsum("ls,lsa,lsan->ln", visits[t - 1], pi, kernel)
    by_state = np.einsum("tls,lsa,tlsa->lsa", visits, pi, q - v[:-1, :, :, None])
    gradient = np.zeros_like(logits)
    np.add.at(gradient.transpose(1, 0, 2), house.sees, by_state.transpose(1, 0, 2))
    return Exact(v[0][np.arange(lanes), house.start], q, v, gradient)


class Batch(NamedTuple):
    """Rollouts of all lanes. steps: the columns credit reads, one group per lane; true: int64 [n], true state."""

    steps: Steps
    true: np.ndarray


def rollout(house: Houses, logits: np.ndarray, iteration: int, coin: bool = False) -> Batch:
    """RUNS rollouts per lane.

    ``coin`` is the control without signal: one run in eight is paid by lot, and success does not end a run. (If it did,
    a discounted lottery would still be won sooner by those who succeed.)
    """
    lanes, states, actions = house.to.shape
    lane = np.repeat(np.arange(lanes), RUNS)
    cumulative = house.policy(logits).cumsum(axis=2)
    seeds = np.array([derive(s, "rollout", iteration, r) for s in house.seeds for r in range(RUNS)], np.uint64)
    offsets = np.arange(house.horizon * 3, dtype=np.uint64).reshape(1, house.horizon, 3)
    draws = uniforms(seeds[:, None, None], offsets)
    path = np.empty((len(lane), house.horizon + 1), dtype=np.int64)
    chosen = np.empty((len(lane), house.horizon), dtype=np.int64)
    path[:, 0] = now = house.start[lane]
    for t in range(house.horizon):
        u = draws[:, t]
        chosen[:, t] = action = np.minimum((u[:, :1] > cumulative[lane, now]).sum(axis=1), actions - 1)
        done = np.where(u[:, 1] < house.slip, (u[:, 2] * actions).astype(np.int64), action)
        path[:, t + 1] = now = house.to[lane, now, done]
    reward = house.reward * (path[:, -1] == states - 1)
    if coin:
        reward = house.reward * (uniforms(seeds, np.full(len(seeds), offsets.size, np.uint64)) < 1 / 8)
    over = np.zeros_like(path, bool) if coin else path == states - 1
    return _columns(house, path, chosen, reward, over)


def _columns(house: Houses, path: np.ndarray, chosen: np.ndarray, reward: np.ndarray, over: np.ndarray) -> Batch:
    lanes, seen, _ = house.shape
    length = (~over[:, :-1]).sum(axis=1)
    run, t = np.nonzero(np.arange(house.horizon) < length[:, None])
    group, last = run // RUNS, t == length[run] - 1
    steps = Steps(
        group=group,
        run=run,
        t=t,
        length=length[run],
        state=group * seen + house.sees[path[run, t]],
        next=np.where(over[run, t + 1], -1, group * seen + house.sees[path[run, t + 1]]),
        outcome=reward[run],
        reward=np.where(last, reward[run], 0.0),
        action=chosen[run, t],
        legal=np.full(len(run), -1),
        valid=np.ones(len(run), dtype=bool),
        last=last,
        asks=((),) * len(run),
        groups=tuple(map(str, house.seeds)),
        runs=tuple(map(str, range(len(path)))),
        home=np.repeat(np.arange(lanes), seen),
    )
    return Batch(steps, path[run, t])


Estimate = Callable[[Steps], np.ndarray]


def lane_history(batches: Sequence[Steps], lane: int) -> Steps:
    """One lane's steps of several batches as one ``Steps``, a group per batch: what one learner has seen."""
    size = batches[0].nodes // len(batches[0].groups)
    parts = [{f: getattr(b, f)[b.group == lane] for f in COLUMNS} for b in batches]
    for i, part in enumerate(parts):
        shift = (i - lane) * size
        part["state"] = part["state"] + shift
        part["next"] = np.where(part["next"] < 0, -1, part["next"] + shift)
        part["group"] = np.full(len(part["run"]), i)
        part["run"] = part["run"] - lane * RUNS + i * RUNS
    columns = {f: np.concatenate([part[f] for part in parts]) for f in COLUMNS}
    names = tuple(map(str, range(len(batches))))
    runs = tuple(map(str, range(RUNS * len(batches))))
    home = np.repeat(np.arange(len(batches)), size)
    return Steps(**columns, asks=((),) * len(columns["run"]), groups=names, runs=runs, home=home)


def unit_rms(steps: Steps, advantage: np.ndarray) -> np.ndarray:
    """Each lane's advantages over their root mean square: a lane is one learner's batch."""
    count = np.bincount(steps.group)
    size = np.sqrt(np.bincount(steps.group, advantage**2) / count)
    return advantage / np.where(size > 0, size, 1.0)[steps.group]


def ascent(house: Houses, steps: Steps, advantage: np.ndarray, logits: np.ndarray) -> np.ndarray:
    """Policy gradient sum_t A_t grad log pi(a_t | seen state) / (RUNS x horizon); float64 [L, O, A].

    The divisor is a constant, not the number of steps, which a good policy makes smaller.
    """
    pi = softmax(logits).reshape(-1, house.shape[2])
    weight = advantage / (RUNS * house.horizon)
    taken = np.bincount(steps.state * pi.shape[1] + steps.action, weight, minlength=pi.size).reshape(pi.shape)
    there = np.bincount(steps.state, weight, minlength=len(pi))[:, None]
    return (taken - there * pi).reshape(house.shape)


def learn(
    house: Houses, estimate: Estimate, rescale: bool, lr: float, iterations: int, coin: bool = False
) -> np.ndarray:
    """Plain gradient ascent from the uniform policy. Exact success before each update and after the last;
    float64 [iterations + 1, L]."""
    kernel, logits = house.kernel(), np.zeros(house.shape)
    curve = [success(house, logits, kernel)]
    for i in range(iterations):
        batch = rollout(house, logits, i, coin)
        advantage = estimate(batch.steps)
        if rescale:
            advantage = unit_rms(batch.steps, advantage)
        logits += lr * ascent(house, batch.steps, advantage, logits)
        curve.append(success(house, logits, kernel))
    return np.array(curve)
