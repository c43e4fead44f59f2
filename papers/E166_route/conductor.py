"""A conductor: a factored policy that writes plans, its structural cold start, and GRPO (specs/E166 section 4.2).

What it writes is text, and ``clew.harness.workflow.parse`` reads it: the three lists have lengths of their own, workers
may be named who do not exist, a subtask may be empty, and a part may read itself or a later one. So it can fail to
parse, in training as in use.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from clew.core.errors import BadInput
from clew.core.keys import derive
from clew.harness.workflow import Part, parse
from clew.methods.routing.reward_matrix import F64
from papers.E166_route import plan_pool, pool
from papers.E166_route.plan_pool import LEFT, PARTS, SUBTASKS, Plan, Simulated, chain, part
from papers.E166_route.pool import Programs

SLOTS = PARTS + 1  # entries that a list may have: one more than a plan may
NAMED, SAID = pool.W + 2, len(SUBTASKS) + 1  # workers that can be named, subtasks that can be said: some do not exist
G, TASKS = 16, 16  # rollouts of a task, tasks of an iteration
CLIP, EPOCHS = 0.2, 2
# Chosen on seeds 100 to 102, which are in no report.
HIDDEN = 128
ITERATIONS = 1000
RATE = 3e-3
ENTROPY = 0.1  # of each choice, falling to 0
COLD_PLANS, COLD_STEPS, COLD_RATE = 256, 100, 1e-2


class Written(NamedTuple):
    """What the policy chose, int. lengths: of the three lists, [n, 3]. workers, subtasks: by entry, [n, SLOTS].
    reads: whether each entry reads each, 0 or 1, [n, SLOTS, SLOTS]."""

    lengths: np.ndarray
    workers: np.ndarray
    subtasks: np.ndarray
    reads: np.ndarray

    def texts(self) -> list[str]:
        """The plans as the language has them."""
        every = zip(*(one.tolist() for one in self), strict=True)
        return [_text(*one) for one in every]


def _text(lengths: list[int], workers: list[int], subtasks: list[int], reads: list[list[int]]) -> str:
    a, b, c = (max(0, length) for length in lengths)
    said = [(*SUBTASKS, "")[number] for number in subtasks[:b]]
    seen = [[j for j, one in enumerate(row) if one] for row in reads[:c]]
    return f"model_id: {workers[:a]}\nsubtasks: {json.dumps(said)}\naccess_list: {seen}"


@lru_cache(maxsize=1 << 16)
def strict(text: str) -> Plan | None:
    """The plan of a text, by Clew's own parser; None where it refuses."""
    try:
        return parse(text, pool.W, PARTS)
    except BadInput:
        return None


@lru_cache(maxsize=1 << 16)
def lenient(text: str) -> Plan | None:
    """A parser that repairs: lists are cut to the shortest, who does not exist is counted from 0 again, an empty
    subtask is the whole program, and what is read but does not come before is passed over."""
    lists = [json.loads(found) for found in re.findall(r": (\[.*\])$", text, re.MULTILINE)]
    rows = list(zip(*lists, strict=False))[:PARTS]
    plan = tuple(
        Part(w % pool.W, said or SUBTASKS[0], tuple(j for j in seen if j < i)) for i, (w, said, seen) in enumerate(rows)
    )
    return plan or None


PARSERS: dict[str, Callable[[str], Plan | None]] = {"strict": strict, "lenient": lenient}

# ---- the policy ----------------------------------------------------------------------------------------------------

LENGTHS = 7  # parts from 0 to 6
OFF = (0, -1, 1)  # by how much the second and the third list are longer than the first
HEADS = (2 * len(OFF), SLOTS * NAMED, SLOTS * SAID, SLOTS * SLOTS)
CUTS = np.cumsum(HEADS)[:-1]


def _log_softmax(z: F64) -> F64:
    z = z - z.max(-1, keepdims=True)
    return z - np.log(np.exp(z).sum(-1, keepdims=True))


def _widen(logs: F64) -> F64:
    """Gradient of a choice's entropy by its scores."""
    p = np.exp(logs)
    return -p * (logs - (p * logs).sum(-1, keepdims=True))


class Chances(NamedTuple):
    """Log chances of every choice, and what the gradient needs."""

    n: F64  # [B, LENGTHS]
    off: F64  # [B, 2, 3]
    worker: F64  # [B, SLOTS, NAMED]
    said: F64  # [B, SLOTS, SAID]
    bit: F64  # logits [B, SLOTS, SLOTS]
    h0: F64
    h1: F64
    x1: F64


class Policy:
    """Two small networks: how many parts, from the program; then everything else, from the program and that number."""

    def __init__(self, width: int, seed: int) -> None:
        rng = np.random.default_rng(derive(seed, "policy"))
        out = sum(HEADS)
        self.weights = {
            "a0": rng.normal(size=(width, HIDDEN)) / width**0.5, "b0": np.zeros((HIDDEN + 1, LENGTHS)),
            "a1": rng.normal(size=(width + LENGTHS, HIDDEN)) / width**0.5, "b1": np.zeros((HIDDEN + 1, out)),
        }  # fmt: skip
        self.m = {name: np.zeros_like(w) for name, w in self.weights.items()}
        self.v = {name: np.zeros_like(w) for name, w in self.weights.items()}
        self.steps = 0

    def first(self, x: F64) -> tuple[F64, F64]:
        h0 = np.concatenate([np.tanh(x @ self.weights["a0"]), np.ones((len(x), 1))], axis=1)
        return _log_softmax(h0 @ self.weights["b0"]), h0

    def chances(self, x: F64, n: np.ndarray) -> Chances:
        """With ``n`` parts, int [B]."""
        logs, h0 = self.first(x)
        x1 = np.concatenate([x, np.eye(LENGTHS)[n]], axis=1)
        h1 = np.concatenate([np.tanh(x1 @ self.weights["a1"]), np.ones((len(x), 1))], axis=1)
        off, worker, said, bit = np.split(h1 @ self.weights["b1"], CUTS, axis=1)
        b = len(x)
        return Chances(
            logs, _log_softmax(off.reshape(b, 2, len(OFF))), _log_softmax(worker.reshape(b, SLOTS, NAMED)),
            _log_softmax(said.reshape(b, SLOTS, SAID)), bit.reshape(b, SLOTS, SLOTS), h0, h1, x1,
        )  # fmt: skip

    def write(self, x: F64, rng: np.random.Generator | None) -> Written:
        """Plans for programs, float64 [B, width]: sampled, or greedily where there is no generator."""

        def pick(logs: F64) -> np.ndarray:
            noise = rng.gumbel(size=logs.shape) if rng else 0.0
            return (logs + noise).argmax(-1)

        n = pick(self.first(x)[0])
        p = self.chances(x, n)
        off = np.array(OFF)[pick(p.off)]
        limit = rng.random(p.bit.shape) if rng else 0.5
        lengths = np.stack([n, n + off[:, 0], n + off[:, 1]], axis=1)
        return Written(lengths, pick(p.worker), pick(p.said), (1 / (1 + np.exp(-p.bit)) > limit).astype(np.int64))

    def score(self, x: F64, made: Written) -> tuple[F64, Callable[[F64], dict[str, F64]]]:
        """Log chance of what was written, float64 [B], and its gradient weighted by float64 [B]."""
        n, b = made.lengths[:, 0], len(x)
        p = self.chances(x, n)
        off = np.searchsorted((-1, 0, 1), made.lengths[:, 1:] - n[:, None])
        off = np.array([1, 0, 2])[off]
        live = [np.arange(SLOTS)[None] < made.lengths[:, i, None] for i in range(3)]
        chosen = [np.eye(c)[v] for c, v in ((len(OFF), off), (NAMED, made.workers), (SAID, made.subtasks))]
        sign = 1 / (1 + np.exp(-p.bit))
        bits = made.reads * p.bit - np.logaddexp(0, p.bit)
        rows = np.arange(b)
        total = (
            p.n[rows, n] + (p.off * chosen[0]).sum((1, 2)) + ((p.worker * chosen[1]).sum(2) * live[0]).sum(1)
            + ((p.said * chosen[2]).sum(2) * live[1]).sum(1) + (bits.sum(2) * live[2]).sum(1)
        )  # fmt: skip

        def slope(gain: F64, entropy: float = 0.0) -> dict[str, F64]:
            g, g2, g3 = gain[:, None], gain[:, None, None], [(gain[:, None] * one)[:, :, None] for one in live]
            z0 = (np.eye(LENGTHS)[n] - np.exp(p.n)) * g + entropy * _widen(p.n)
            wide = [entropy * one[:, :, None] for one in live]
            moved = (
                (chosen[0] - np.exp(p.off)) * g2,
                (chosen[1] - np.exp(p.worker)) * g3[0] + wide[0] * _widen(p.worker),
                (chosen[2] - np.exp(p.said)) * g3[1] + wide[1] * _widen(p.said),
                (made.reads - sign) * g3[2],
            )
            z1 = np.concatenate([one.reshape(b, -1) for one in moved], axis=1)
            out = {"b0": p.h0.T @ z0, "b1": p.h1.T @ z1}
            out["a0"] = x.T @ ((z0 @ self.weights["b0"][:-1].T) * (1 - p.h0[:, :-1] ** 2))
            out["a1"] = p.x1.T @ ((z1 @ self.weights["b1"][:-1].T) * (1 - p.h1[:, :-1] ** 2))
            return out

        return total, slope

    def step(self, slope: dict[str, F64], rate: float) -> None:
        """Adam, upwards."""
        self.steps += 1
        for name, g in slope.items():
            self.m[name] = 0.9 * self.m[name] + 0.1 * g
            self.v[name] = 0.999 * self.v[name] + 0.001 * g**2
            m, v = self.m[name] / (1 - 0.9**self.steps), self.v[name] / (1 - 0.999**self.steps)
            self.weights[name] += rate * m / (np.sqrt(v) + 1e-8)

    def renew(self) -> None:
        """Forget Adam's moments: another stage begins."""
        self.steps = 0
        for kept in (self.m, self.v):
            for name in kept:
                kept[name][:] = 0


# ---- stage 1: a structural cold start ------------------------------------------------------------------------------


def as_written(plans: Sequence[Plan]) -> Written:
    """Plans as choices of the policy."""
    b = len(plans)
    out = Written(
        np.zeros((b, 3), int), *(np.zeros((b, SLOTS), int) for _ in range(2)), np.zeros((b, SLOTS, SLOTS), int)
    )
    for i, plan in enumerate(plans):
        out.lengths[i] = len(plan)
        for t, one in enumerate(plan):
            out.workers[i, t], out.subtasks[i, t] = one.worker, plan_pool.NUMBER[one.subtask]
            out.reads[i, t, list(one.reads)] = 1
    return out


def structures(order: str, rng: np.random.Generator) -> Plan:
    """A plan that somebody wrote by hand for a program of this length, with workers at random."""
    w = rng.integers(0, pool.W, PARTS).tolist()
    k = len(order)
    shapes: list[Plan] = [
        (part(w[0], 0),),
        chain(order, w),
        (part(w[0], 0), part(w[1], plan_pool.CHECK, (0,))),
        (part(w[0], 0), part(w[1], 0), part(w[2], plan_pool.JOIN, (0, 1))),
    ]
    if k > 1:
        shapes += [(part(w[0], 1), part(w[1], LEFT, (0,))), (*chain(order, w), part(w[4], plan_pool.CHECK, (k - 1,)))]
    return shapes[rng.integers(len(shapes))]


def valid(rng: np.random.Generator) -> Plan:
    """Any plan that parses: length, workers, subtasks and what is read at random."""
    return tuple(
        part(int(rng.integers(pool.W)), int(rng.integers(len(SUBTASKS))), [j for j in range(t) if rng.random() < 0.5])
        for t in range(int(rng.integers(1, PARTS + 1)))
    )


def cold(policy: Policy, x: F64, plans: Sequence[Plan]) -> None:
    """Supervised on plans, one for each row of ``x``."""
    made = as_written(plans)
    for _ in range(COLD_STEPS):
        _, slope = policy.score(x, made)
        policy.step(slope(np.full(len(x), 1 / len(x))), COLD_RATE)
    policy.renew()


# ---- stage 2: GRPO -------------------------------------------------------------------------------------------------


class How(NamedTuple):
    """A way of training. start: ``structures``, ``valid`` or ``none``. price: of a call, in the last third of it."""

    start: str = "structures"
    parser: str = "strict"
    iterations: int = ITERATIONS
    price: float = 0.0


def advantages(rewards: F64) -> F64:
    """Group-normalised, float64 [tasks, G] to the same; 0 where a group has but one reward."""
    spread = rewards.std(1, keepdims=True)
    return np.where(spread > 0, (rewards - rewards.mean(1, keepdims=True)) / (spread + 1e-8), 0.0)


def grpo(policy: Policy, x: F64, simulated: Simulated, how: How, seed: int) -> list[dict[str, float]]:
    """Train in place; gives what is logged of each tenth of the iterations.

    Reward: 0 where the plan does not parse, .5 where the answer is wrong, 1 where it is right. No KL term.
    """
    rng = np.random.default_rng(derive(seed, "grpo"))
    log, since = list[dict[str, float]](), list[list[float]]()
    for number in range(1, how.iterations + 1):
        at = np.repeat(rng.integers(0, len(x), TASKS), G)
        rows = x[at]
        made = policy.write(rows, rng)
        plans = [PARSERS[how.parser](text) for text in made.texts()]
        right = simulated.right(plans, at, rng.integers(1, 1 << 40, len(at)))
        calls = np.array([len(plan or ()) for plan in plans])
        parsed = calls > 0
        reward = parsed * (0.5 + 0.5 * right)
        late = number > how.iterations * 2 // 3
        gain = advantages((reward - late * how.price * calls).reshape(TASKS, G)).ravel()
        old = None
        for _ in range(EPOCHS):
            now, slope = policy.score(rows, made)
            old = now if old is None else old
            ratio = np.exp(np.clip(now - old, -20, 20))
            clipped = np.where(gain > 0, ratio > 1 + CLIP, ratio < 1 - CLIP)
            left = ENTROPY * (1 - number / how.iterations)
            policy.step(slope(np.where(clipped, 0, ratio * gain) / len(at), left / len(at)), RATE)
        named = np.bincount(made.workers[np.arange(SLOTS)[None] < made.lengths[:, :1]], minlength=NAMED) + 1e-9
        share = named / named.sum()
        flat = (reward.reshape(TASKS, G).std(1) == 0).mean()
        since.append([reward.mean(), right.mean(), parsed.mean(), calls.mean(), flat, -(share * np.log(share)).sum()])
        if number % max(how.iterations // 10, 1) == 0:
            names = ("reward", "right", "parsed", "calls", "flat groups", "worker entropy")
            log.append(dict(zip(names, np.mean(since, axis=0).round(4).tolist(), strict=True)))
            since = []
    return log


LEARN, HELD = 600, 1000


class School(NamedTuple):
    """The programs of one seed: to learn from, held out, and those of the cold start, which are in neither; as vectors
    too, float64 [Q, width]."""

    learn: Simulated
    held: Simulated
    cold: Programs
    x: F64
    x_held: F64
    x_cold: F64


@lru_cache(maxsize=2)
def school(seed: int) -> School:
    learn, held, other = (
        pool.programs(n, derive(seed, name)) for name, n in (("learn", LEARN), ("held", HELD), ("cold", COLD_PLANS))
    )
    read = plan_pool.ClauseReader(learn, seed)
    return School(Simulated(learn), Simulated(held), other, read(learn), read(held), read(other))


def trained(it: School, how: How, seed: int) -> tuple[Policy, list[dict[str, float]]]:
    """A conductor, and the log of its training."""
    policy, rng = Policy(it.x.shape[1], seed), np.random.default_rng(derive(seed, "cold start"))
    if how.start != "none":
        shape = structures if how.start == "structures" else lambda order, rng: valid(rng)
        cold(policy, it.x_cold, [shape(order, rng) for order in it.cold.orders])
    return policy, grpo(policy, it.x, it.learn, how, seed)
