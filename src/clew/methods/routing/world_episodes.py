"""Whole tasks of a world, answered by a pool behind candidate heads: what stage 2 of the fast router is scored on.

``clew route evolve`` hands it to ``evolution``, which knows nothing of worlds. A candidate is a change of a router's
head in few directions, so that the search has few numbers to find. The runs of a search are kept in memory alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from clew.core.aio import run_sync
from clew.core.errors import BadInput
from clew.core.values import Task
from clew.harness import Runner
from clew.methods.routing.evolution import Masks, Score, Seeds
from clew.methods.routing.measuring import NO_SAMPLE
from clew.methods.routing.question_space import Space, vectors
from clew.methods.routing.reward_matrix import F64, Matrix
from clew.models.compose.policy import Policy
from clew.models.compose.routed import Routed
from clew.models.compose.router import Head, Router

WIDTH = 16  # directions in which a head is changed
SHARP = 5.0  # times the spread of the scores: how sure a softmax over them is, for the rehearsal of single steps


@dataclass(frozen=True, slots=True)
class Change:
    """What a change of a router's head means.

    A change is float64 [W, width + 1]: weights in the main directions of some texts, and a constant. One unit of it
    is the spread of the router's own scores over these texts.
    """

    router: Router
    space: Space
    constant: float
    spread: float

    @classmethod
    def of(
        cls, router: Router, texts: Sequence[str], seed: int = 0, width: int = WIDTH, h: F64 | None = None
    ) -> Change:
        """In the main directions of ``texts``, which are transcripts as the router reads them.

        Args:
            h: their vectors, float64 [Q, dim], where they are known.
        """
        h = vectors(texts, router.features) if h is None else h
        scores = h @ router.head.weights.astype(np.float64).T
        spread = float(np.ptp(scores, axis=1).mean()) or 1.0
        space = Space.of(h, seed, width, router.features.centred)
        return cls(router, space, float(np.median(h[:, 0])) or 1.0, spread)

    @property
    def none(self) -> F64:
        """The change that changes nothing."""
        return np.zeros((len(self.router.workers), len(self.space.basis) + 1))

    def router_of(self, change: F64) -> Router:
        """The router with its head changed."""
        more = self.spread * self.space.unfold(change[:, :-1], change[:, -1], self.constant)
        return replace(self.router, head=Head((self.router.head.weights + more).astype(np.float32)))

    def single(self, found: Matrix, h: F64 | None = None) -> Score:
        """Expected reward of one call at the questions of a measured pool, of changes float64 [C, W, width + 1].

        Args:
            h: vectors of the questions, float64 [Q, dim], where they are known.

        Raises:
            BadInput: the pool was measured with other models than the router's.
        """
        refs = [worker.ref for worker in self.router.workers]
        if sorted(found.workers) != sorted(refs):
            told = f"the pool was measured with {', '.join(found.workers)}, and the router has {', '.join(refs)}"
            raise BadInput(told, remedy="Name the pool that the router was fitted to.")
        means = found.means[:, [found.workers.index(ref) for ref in refs]]
        h = vectors(found.texts, self.router.features) if h is None else h
        base = h @ self.router.head.weights.astype(np.float64).T / self.spread
        x = np.concatenate([self.space(h), np.ones((len(h), 1))], 1)

        def score(changes: F64) -> F64:
            scores = SHARP * (base + np.einsum("qd,cwd->cqw", x, changes))
            shares = np.exp(scores - scores.max(2, keepdims=True))
            return np.asarray((shares / shares.sum(2, keepdims=True) * means).sum(2).mean(1))

        return score


@dataclass(slots=True)
class WorldEpisodes:
    """Episodes of a search, for ``evolution.evolve``; and the validation set.

    Args:
        change: of whose router the heads are. routed: that router with its models, under the operator's policy.
        runner: makes the runs; called for each portion, with a store of its own. tasks: to draw from. fixed: of the
            validation set. ended: called after each run.
    """

    change: Change
    routed: Routed
    runner: Callable[[], Runner]
    tasks: Sequence[Task]
    fixed: Sequence[Task]
    ended: Callable[[], None] = lambda: None

    def __call__(self, heads: F64, seeds: Seeds, masks: Masks) -> F64:
        """Rewards float64 [C, n]: every candidate has the same tasks and luck; NaN where a run failed."""
        tasks = [self.tasks[int(seed % np.uint64(len(self.tasks)))] for seed in seeds]
        return np.stack([self._performed(head, tasks, int(seeds[0] >> np.uint64(1)), masks) for head in heads])

    def validate(self, head: F64) -> float:
        """Mean reward over the validation set, with the whole pool.

        Raises:
            BadInput: no task of it could be performed.
        """
        rewards = self._performed(head, self.fixed, 0, np.ones((len(self.fixed), len(head)), bool))
        if np.isnan(rewards).all():
            raise BadInput("no task of the validation set could be performed", remedy="Try `clew run` on the world.")
        return float(np.nanmean(rewards))

    def _performed(self, head: F64, tasks: Sequence[Task], seed: int, masks: Masks) -> F64:
        runner, routed = self.runner(), self.routed.by(self.change.router_of(head))
        out = np.full(len(tasks), np.nan)
        portions: dict[tuple[bool, ...], list[int]] = {}
        for i, mask in enumerate(masks.tolist()):
            portions.setdefault(tuple(mask), []).append(i)

        async def portion(mask: tuple[bool, ...], rows: list[int]) -> None:
            allowed = tuple(name for name, may in zip(routed.router.names, mask, strict=True) if may)
            narrowed = routed.under(Policy(allow=allowed))
            async for group in runner.stream([tasks[i] for i in rows], 1, seed, model=narrowed):
                for run in group:
                    self.ended()
                    if run.stop not in NO_SAMPLE and run.reward is not None:
                        out[rows[run.row.order[1]]] = run.reward

        async def every() -> None:
            await asyncio.gather(*(portion(mask, rows) for mask, rows in portions.items()))

        run_sync(every())
        return out
