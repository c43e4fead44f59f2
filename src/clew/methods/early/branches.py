"""The arms of the audit: thinking resampled, cut short and answered, or swapped for another run's. All are forks.

``study`` plans them and reads them back. Each place is a cursor with what is forced there; outcomes are packed beside
the runs (DESIGN.md rule 10), so that an interrupted line goes on where it was and any sample can be made a run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from clew.core.errors import BadInput
from clew.harness.fork.continuations import Continuations, Samples, Start
from clew.methods.early.curves import I64, Draws
from clew.methods.early.thinking import Trace, closing
from clew.store.run import pace

Arm = Literal["resampled", "forced", "swapped", "cuts"]
SHARES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
Told = Callable[[int], None] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How much is sampled.

    shares: where the thinking is cut, as shares of it; the first is 0. n: continuations from each place. pairs: most
    pairs of prompts whose thinking is swapped. swaps: answers of each pair. cut_samples: answers on each side of a
    stance cut.
    """

    shares: tuple[float, ...] = SHARES
    n: int = 8
    pairs: int = 100
    swaps: int = 4
    cut_samples: int = 100

    def __post_init__(self) -> None:
        rising = all(a < b for a, b in zip(self.shares, self.shares[1:], strict=False))
        if len(self.shares) < 2 or self.shares[0] != 0 or self.shares[-1] > 1 or not rising:
            raise BadInput(f"cuts at {self.shares}", remedy="Give rising shares from 0 to at most 1, as 0,.2,.5,1.")
        if self.n < 2 or min(self.pairs, self.swaps, self.cut_samples) < 1:
            raise BadInput(f"{self}", remedy="Sample at least 2 continuations of each place, and 1 of all else.")


@dataclass(slots=True)
class Arms:
    """Some runs' thinking, what continues them, and the places that are sampled.

    traces, outcomes: of the runs that are sampled from, outcome 1, 0 or None. others: further runs with their outcomes,
    which are only read. cuts: places of stance cuts, as (index of the run, tokens kept before, tokens kept after).
    """

    traces: list[Trace]
    outcomes: list[float | None]
    hands: Continuations
    sizes: Sizes = Sizes()
    seed: int = 0
    cuts: list[tuple[int, int, int]] = field(default_factory=list)
    others: list[tuple[Trace, float]] = field(default_factory=list)

    @property
    def prompts(self) -> I64:
        return np.unique(np.array([one.prompt for one in self.traces]), return_inverse=True)[1].astype(np.int64)

    @property
    def answers(self) -> bool:
        """Whether answers can be forced: thinking and answer are parts of one reply."""
        return self.traces[0].kind not in ("calls", "reply")

    @property
    def close(self) -> tuple[int, ...] | str:
        return closing(self.traces)

    def resumed(self) -> list[list[Start]]:
        """Where thinking is resampled: [shares][runs]."""
        return [[one.resumed(one.kept(b)) for one in self.traces] for b in self.sizes.shares]

    def forced(self) -> list[list[Start]]:
        """Where an answer is forced: [shares][runs]."""
        close = self.close
        return [[one.answered(one.kept(b), close) for one in self.traces] for b in self.sizes.shares]

    def pairs(self) -> list[tuple[int, int]]:
        """(recipient, donor): runs of different prompts and opposite outcomes, each run a recipient at most once."""
        rng = np.random.default_rng(self.seed)
        sides = [[i for i, value in enumerate(self.outcomes) if value == side] for side in (0.0, 1.0)]
        mixed = [[side[i] for i in rng.permutation(len(side))] for side in sides]
        found: list[tuple[int, int]] = []
        if not all(mixed):
            return found
        for turn in range(max(map(len, mixed))):
            for mine, others in (mixed, mixed[::-1]):
                if turn < len(mine):
                    donors = [others[(turn + k) % len(others)] for k in range(min(len(others), 8))]
                    donor = next((d for d in donors if self.traces[d].prompt != self.traces[mine[turn]].prompt), None)
                    if donor is not None:
                        found.append((mine[turn], donor))
        return found[: self.sizes.pairs]

    def swapped(self) -> list[Start]:
        """Where the answer begins after another run's thinking: one place for each of ``pairs``."""
        close = self.close
        return [self.traces[mine].given(self.traces[donor], close) for mine, donor in self.pairs()]

    def around(self) -> list[tuple[Start, Start]]:
        """Forced answers before and after each stance cut."""
        pick, close = self.traces, self.close
        return [(pick[i].answered(a, close), pick[i].answered(b, close)) for i, a, b in self.cuts]

    def planned(self, saving: bool = False) -> list[tuple[Arm, list[Start], int]]:
        """Every arm with its places and the continuations of each; ``saving``: forced answers alone."""
        flat = [start for row in self.forced() for start in row] if self.answers else []
        if saving:
            return [("forced", flat, self.sizes.n)]
        resumed = [start for row in self.resumed() for start in row]
        arms: list[tuple[Arm, list[Start], int]] = [("resampled", resumed, self.sizes.n)]
        if self.answers:
            arms += [("forced", flat, self.sizes.n), ("swapped", self.swapped(), self.sizes.swaps)]
        if self.cuts:
            arms.append(("cuts", [s for pair in self.around() for s in pair], self.sizes.cut_samples))
        return arms

    def cost(self, saving: bool = False) -> dict[str, float]:
        """Continuations still to be made, the tokens they take if each is as long as what the run went on with, and
        dollars and seconds at what the runs took per token (0 where that is not recorded).

        ``most_seconds`` takes each continuation for a whole run: forking, judging and reading the prompt cost the same
        however few tokens are left, and with small models they are most of it. The truth lies between, on a machine as
        busy as then; probes come on top.
        """
        by_run = {one.run.id: one for one in self.traces}
        count, tokens = 0, 0.0
        for arm, starts, n in self.planned(saving):
            for start in dict.fromkeys(starts):
                missing = self.hands.missing(arm, [start], n)
                one = by_run[start.run]
                after = (
                    one.run.tokens
                    if one.kind == "calls"
                    else one.length - (start.token if arm == "resampled" else one.stop)
                )
                count, tokens = count + missing, tokens + missing * max(after, 1)
        runs = [one.run for one in self.traces]
        spent, used = sum(run.cost for run in runs), sum(run.tokens for run in runs)
        rate, each = pace(runs), 1 / used if used else 0.0
        seconds = tokens * rate
        return {
            "continuations": count,
            "tokens": tokens,
            "dollars": tokens * spent * each,
            "seconds": seconds,
            "most_seconds": max(seconds, count * rate * used / len(runs)),
        }

    def sample(self, saving: bool = False, told: Told = None) -> dict[Arm, dict[Start, Samples]]:
        """Sample what is missing, arm by arm; each place is written down as it is done."""
        return {arm: self.hands.sample(arm, starts, n, told) for arm, starts, n in self.planned(saving)}

    def draws(self, made: dict[Start, Samples], places: Sequence[Sequence[Start]]) -> Draws:
        """Outcomes of samples at places [places][runs], counted."""
        shape = (len(places), len(self.traces))
        hits, n = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        for b, row in enumerate(places):
            for i, start in enumerate(row):
                values = made[start].outcomes
                hits[b, i], n[b, i] = int((values > 0.5).sum()), int(np.isfinite(values).sum())
        return Draws(hits, n, self.prompts)
