"""The simulated pool of specs/E166 7.1, tier A: workers of restricted skill, typed programs as text, several turns.

No worker is a process: an answer is right by a chance that hangs on worker and program, and by luck that is a hash of
worker, prompt and sample, or of worker, task and turn.
"""

from __future__ import annotations

import itertools
import random
from typing import NamedTuple

import numpy as np

from clew.core.keys import derive, uniforms, value_digest
from clew.methods.routing.question_space import Space, vectors
from clew.methods.routing.reward_matrix import F64, Matrix

WORKERS = ("lookup", "math", "code", "generalist", "expensive", "debug")
PRICES = np.array([1.0, 1.0, 1.0, 1.0, 5.0, 2.0])  # of a call, for the report alone
W, OPS = len(WORKERS), ("L", "M", "C")
SHARES = (0.4, 0.5, 0.1)  # of programs with one, two and three operations
SAME = 0.5  # chance that an operation is of the type of the one before
# Chance of one operation, workers by type; the chances of a program's operations multiply.
SKILL = np.array([
    [0.97, 0.25, 0.25], [0.25, 0.97, 0.25], [0.25, 0.25, 0.97],
    [0.62, 0.62, 0.62], [0.80, 0.80, 0.80], [0.50, 0.50, 0.50],
])  # fmt: skip
DEBUGS = 0.85  # chance of the last worker, of a whole program, once the transcript shows a failed attempt
ANCHOR = 0.3  # factor of the chance of a worker that is asked again right after it failed
TURNS = 3
WIDTH = 24  # main directions of the prompts' n-grams that the head reads
NAMES = ("ann", "bob", "cy", "dora", "eve", "finn", "gus", "hal")
SAID = {
    "L": ("look up {name} in the table", "find the entry of {name}", "read the row of {name}"),
    "M": ("add {k} and double it", "multiply it by {k}", "take {k} away and halve it"),
    "C": ("reverse the string and print it", "trace the loop of {k} steps", "run f with x = {k}"),
}


class Programs(NamedTuple):
    """Programs as prompts. counts: operations of each type, int [Q, 3]. keys: hash of each prompt, uint64 [Q].
    orders: the types of their operations as they follow each other, as in "LM"."""

    texts: list[str]
    counts: np.ndarray
    keys: np.ndarray
    orders: list[str]

    @property
    def chances(self) -> F64:
        """Chance of each worker on a first attempt, float64 [Q, W]."""
        return np.exp(self.counts @ np.log(SKILL).T)

    @property
    def families(self) -> list[str]:
        """The types of a program's operations in the order of ``OPS``, as in "LM"."""
        return ["".join(op * n for op, n in zip(OPS, row, strict=True)) for row in self.counts.tolist()]

    def rewards(self, samples: int, first: int = 0) -> F64:
        """Answers as 0 or 1, float64 [Q, W, S]: luck is a hash of worker, prompt and sample."""
        offset = np.arange(W)[:, None] * 1000 + first + np.arange(samples)
        luck = uniforms(self.keys[:, None, None], offset[None].astype(np.uint64))
        return (luck < self.chances[:, :, None]).astype(np.float64)

    def matrix(self, samples: int) -> Matrix:
        """The measured matrix, as ``clew route report`` reads one."""
        rewards = self.rewards(samples)
        names = tuple(f"{i}" for i in range(len(self.texts)))
        return Matrix(
            questions=names, texts=tuple(self.texts), families=tuple(self.families), workers=WORKERS,
            rewards=rewards, costs=np.full(rewards.shape, np.nan), answers=(), runs=(), notes=(),
        )  # fmt: skip


def programs(n: int, seed: int) -> Programs:
    """``n`` programs, each a prompt with a table and a sentence for each operation."""
    rng = random.Random(derive(seed, "programs"))
    texts, orders, counts = [], list[str](), np.zeros((n, len(OPS)), np.int64)
    for row in counts:
        ops = [rng.choice(OPS)]
        for _ in range(rng.choices((0, 1, 2), SHARES)[0]):
            ops.append(ops[-1] if rng.random() < SAME else rng.choice([op for op in OPS if op != ops[-1]]))
        table = ", ".join(f"{name}={rng.randrange(100)}" for name in rng.sample(NAMES, 3))
        steps = ", then ".join(
            rng.choice(SAID[op]).format(name=rng.choice(NAMES), k=rng.randrange(2, 10)) for op in ops
        )
        texts.append(f"user: table: {table}. {steps}.\n")
        orders.append("".join(ops))
        for op in ops:
            row[OPS.index(op)] += 1
    keys = np.array([int.from_bytes(value_digest(text)[:8], "little") for text in texts], np.uint64)
    return Programs(texts, counts, keys, orders)


class Room(NamedTuple):
    """Programs as a head reads them. x: float64 [Q, WIDTH + 1], the last column constant. chances: float64 [Q, W]."""

    programs: Programs
    x: F64
    chances: F64


class Reader(NamedTuple):
    """Prompts as vectors: main directions of their n-grams, each of mean 0, their mean square length 1."""

    space: Space
    middle: F64
    spread: F64

    @classmethod
    def of(cls, found: Programs, seed: int) -> Reader:
        h = vectors(found.texts)
        space = Space.of(h, seed)
        x = space(h)[:, :WIDTH]
        return cls(space, x.mean(0), x.std(0) * WIDTH**0.5)

    def __call__(self, found: Programs) -> Room:
        h = (self.space(vectors(found.texts))[:, :WIDTH] - self.middle) / self.spread
        return Room(found, np.concatenate([h, np.ones((len(h), 1))], axis=1), found.chances)


def opened(weights: F64, bias: F64) -> F64:
    """A head of stage 1 with no weight on what the transcript shows, float64 [W, D].

    A head reads a program, then how many attempts failed (1, 2), then who made the last of them.
    """
    return np.concatenate([weights, bias[:, None], np.zeros((W, D - WIDTH - 1))], axis=1)


D = WIDTH + 1 + (TURNS - 1) + W


class Played(NamedTuple):
    """Episodes: success 0 or 1, calls and price, float64 [C, n]; choice int [C, n, T] (-1 where it had ended) and the
    head's chances at each turn, float64 [C, n, T, W]."""

    success: F64
    calls: F64
    price: F64
    choice: np.ndarray
    shares: F64


def play(
    it: Room, at: np.ndarray, seeds: np.ndarray, heads: F64, masks: np.ndarray, sample: bool, once: bool = False
) -> Played:
    """Programs tried for up to three turns. A failure is shown, and the worker that failed does worse if asked again.

    Args:
        at: which program each episode has, int [n]. seeds: its luck, uint64 [n], one luck for each worker and turn.
        heads: float64 [C, W, D]. masks: bool [n, W]. sample: by the head's chances; otherwise greedily. once: the
            choice of the first turn stands for the others (routing by question).
    """
    c, n = len(heads), len(at)
    base = it.x[at] @ heads[:, :, : WIDTH + 1].transpose(0, 2, 1)
    who, rows, cols = np.zeros((c, n), np.int64), np.arange(c)[:, None], np.arange(n)[None]
    over, success, price, calls = (np.zeros((c, n)) for _ in range(4))
    choices, shares = np.full((c, n, TURNS), -1), np.zeros((c, n, TURNS, W))
    for turn in range(TURNS):
        scores = base
        if turn:
            shown = heads[:, :, WIDTH + turn][:, None] + heads[:, :, WIDTH + TURNS :].transpose(0, 2, 1)[rows, who]
            scores = base + shown
        scores = np.where(masks, scores, -np.inf)
        raised = np.exp(scores - scores.max(2, keepdims=True))
        p = raised / raised.sum(2, keepdims=True)
        if sample:
            u = uniforms(seeds, np.full(n, 500 + turn, np.uint64))[None, :, None]
            new = np.minimum((p.cumsum(2) <= u).sum(2), W - 1)
            new = np.where(masks[cols, new], new, p.argmax(2))  # a sum that rounding left below 1
        else:
            new = scores.argmax(2)
        new = who if turn and once else new
        chance = it.chances[at][cols, new]
        if turn:
            chance = np.where(new == WORKERS.index("debug"), DEBUGS, chance) * np.where(new == who, ANCHOR, 1.0)
        luck = uniforms(seeds[:, None], (turn * W + np.arange(W))[None].astype(np.uint64))
        live = over == 0
        choices[:, :, turn], shares[:, :, turn] = np.where(live, new, -1), p
        calls += live
        price += live * PRICES[new]
        success += live & (luck[cols, new] < chance)
        over, who = success, new
    return Played(success, calls, price, choices, shares)


def proper_subsets() -> np.ndarray:
    """Every part of the pool with two workers or more, but not all, bool [56, W]."""
    parts = [part for k in range(2, W) for part in itertools.combinations(range(W), k)]
    return np.array([[w in part for w in range(W)] for part in parts])
