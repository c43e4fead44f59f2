"""How many proposed tokens the target verifies: policies of lengths, none of which can bias what is emitted.

A length may use a row's chances as far as the tokens before the one it decides on, and anything older; were it to use
more, whether a token is verified would depend on that token, and rejection sampling would not be exact any more
(2607.05147, section 3.2.2). Every policy here is a ``Lengths`` of proposal.py; chances are float64 [n, k].
"""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from clew.core.errors import BadInput, ModelError
from clew.core.registry import parse_ref

if TYPE_CHECKING:
    from clew.models.engine.speculation.costs import Costs
    from clew.models.engine.speculation.proposal import Lengths
    from clew.models.engine.speculation.verification import Drafted

I64 = npt.NDArray[np.int64]
F64 = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
LAG = 2  # rounds between the chances that size a batch and the batch
EPSILON = 1e-6  # a token whose chance to be reached and accepted is lower is not worth a place
PROBE = 64  # rounds without a draft after which one is made to see whether it pays again
EVIDENCE = 32  # drafted blocks by which it is decided whether drafting pays: of many rows, or of many rounds
USUAL = 128  # blocks over which what is usual is averaged
TIMED = 8  # rounds, at least, by which one way is compared with another in tokens per second
LIKELY = 0.5  # least chance of a token that is verified where not all are
RAREST = 64  # how much rarer the ways that lost are tried again, at most
KNOWN = ("none", "fixed(k=3)", "threshold(least=0.7)", "algorithm1", "scheduler", "auto")

log = logging.getLogger(__name__)


class Fixed:
    """The first ``k`` tokens of every block; 0 does not draft at all."""

    def __init__(self, k: int) -> None:
        if k < 0:
            raise BadInput(f"cannot verify {k} tokens", remedy="Give 0 or more.")
        self.k = k

    def draft(self, rows: I64) -> bool:
        return self.k > 0

    def choose(self, rows: I64, fresh: Mask, chance: F64) -> I64:
        return np.full(len(rows), min(self.k, chance.shape[1]), np.int64)


class Threshold:
    """A row's tokens up to the first whose chance is below ``least``."""

    def __init__(self, least: float) -> None:
        if not 0 <= least <= 1:
            raise BadInput(f"a chance of {least} is none", remedy="Give a threshold from 0 to 1.")
        self.least = least

    def draft(self, rows: I64) -> bool:
        return True

    def choose(self, rows: I64, fresh: Mask, chance: F64) -> I64:
        kept = _sound(chance, chance.shape[1]) >= self.least
        return kept.cumprod(1).sum(1).astype(np.int64)


class Algorithm1:
    """Tokens by falling chance to be reached and accepted, until the next does not raise tokens per second.

    2607.05147, algorithm 1: theta = (n + sum of chances taken) / T_verify(n + tokens taken). Stopping at the first
    candidate that does not improve is what keeps it exact; it also stops it before every step of a staircase.
    """

    def __init__(self, costs: Costs) -> None:
        self.costs = _priced(costs)

    def draft(self, rows: I64) -> bool:
        return True

    def choose(self, rows: I64, fresh: Mask, chance: F64) -> I64:
        survival = _sound(chance, self.costs.block).cumprod(1)
        sizes = np.sort(survival[survival > 0])[::-1]
        gain = rate(self.costs, len(rows), sizes, drafting=False)
        worse = np.flatnonzero(gain[1:] <= gain[:-1])
        return top(survival, int(worse[0]) if worse.size else len(sizes))


class Scheduler:
    """Sizes the batch by the chances of two rounds ago, and gives the places to the best tokens of now.

    The number K of tokens verified maximises (n + the K largest products of stale chances) / (T_verify(n + K) +
    T_draft(n)) over all K, so that steps of the cost are crossed (2607.05147, section 3.2.3). A new request counts as
    those of late did, the very first as sure (ours: where all count as sure, sixteen that begin together are verified
    whole, at six times the cost of a plain step on a CPU). Which tokens: the K largest products of the present
    chances, of equals the earlier in the block, then the lower row; none below ``epsilon``.

    Whether to draft at all is decided by the same stale chances: only if the best K promises more tokens per second
    than plain decoding, in the mean over as many rounds as make 32 blocks. After ``probe`` times as many without a
    draft as many are made regardless.

    Args:
        costs: measured on this machine. Drafting is part of them, which the paper leaves out.
        cap: most tokens proposed that are verified in one round.
    """

    def __init__(
        self, costs: Costs, *, lag: int = LAG, epsilon: float = EPSILON, probe: int = PROBE, cap: int | None = None
    ) -> None:
        if lag < 1 or probe < 1:
            raise BadInput(f"lag {lag} and probe {probe}", remedy="Both are numbers of rounds, 1 or more.")
        self.costs, self._epsilon, self._probe, self._cap = _priced(costs), epsilon, probe, cap
        # Products of chances [rows, block] as they were known ``lag`` rounds ago, ..., one round ago; NaN: not known.
        self._known = [np.ones((0, costs.block)) for _ in range(lag)]
        self._usual, self._seen = np.ones(costs.block), 0  # their mean over the blocks of late, and how many these are
        self._gains: list[float] = []  # promised tokens per second by those of plain decoding, of the last rounds
        self._skipped = 0

    def draft(self, rows: I64) -> bool:
        n = len(rows)
        rounds = -(-EVIDENCE // n)
        promised = rate(self.costs, n, self._candidates(rows)).max()
        self._gains = [*self._gains, float(promised * self.costs.plain_seconds(n) / n)][-rounds:]
        pays = float(np.mean(self._gains)) > 1.0
        # Skipped are 1 to probe * rounds; then as many rounds are drafted as are judged together, and it begins anew.
        self._skipped = 0 if pays or self._skipped >= (self._probe + 1) * rounds - 1 else self._skipped + 1
        if pays or self._skipped == 0 or self._skipped > self._probe * rounds:
            return True
        self._turn()
        return False

    def choose(self, rows: I64, fresh: Mask, chance: F64) -> I64:
        survival = _sound(chance, self.costs.block).cumprod(1)
        self._reach(rows)
        for known in self._known:
            known[rows[fresh]] = np.nan
        sizes = self._candidates(rows)
        k = int(rate(self.costs, len(rows), sizes).argmax())
        self._turn()
        self._known[-1][rows] = survival
        self._seen = min(USUAL, self._seen + len(rows))
        self._usual += min(1.0, len(rows) / self._seen) * (survival.mean(0) - self._usual)
        return top(survival, k, self._epsilon)

    def _candidates(self, rows: I64) -> F64:
        """Stale products of these rows that are worth a place, falling; what is usual where there are none."""
        self._reach(rows)
        stale = self._known[0][rows]
        stale = np.where(np.isnan(stale), self._usual, stale)
        return np.sort(stale[stale > self._epsilon])[::-1][: self._cap]

    def _turn(self) -> None:
        """A round is over: what was one round old is a round older."""
        self._known = [*self._known[1:], self._known[-1].copy()]

    def _reach(self, rows: I64) -> None:
        """Of rows not seen before nothing is known."""
        more = int(rows.max(initial=-1)) + 1 - len(self._known[0])
        if more > 0:
            self._known = [np.pad(known, ((0, more), (0, 0)), constant_values=np.nan) for known in self._known]


class Paying:
    """What emitted most tokens per second here of late: no drafts, likely tokens, or whole blocks. Needs no cost table.

    The policy times the engine's own rounds. It first tries each way, for as many rounds as make 32 blocks and at least
    8, and then keeps the fastest. After ``probe`` rounds it tries one of the others again; the pause doubles each time
    the same way stays fastest. Numbers of rows between two powers of 2 are judged apart, because what a verification
    costs depends on them. Times and tokens are those of earlier rounds, so what is emitted keeps the target's law.

    Args:
        block: most tokens the drafter proposes.
        clock: gives seconds.
    """

    def __init__(self, block: int, *, probe: int = PROBE, clock: Callable[[], float] = time.perf_counter) -> None:
        self._ways: tuple[Lengths, ...] = Fixed(0), Threshold(LIKELY), Fixed(block)
        self._clock, self._probe = clock, probe
        self._counts: Drafted | None = None
        self._sizes: dict[int, _Sized] = {}
        self._now: tuple[_Sized, int] | None = None  # rows and way of the round under way
        self._way, self._began = 0, (0.0, 0, 0)

    def watch(self, counts: Drafted) -> None:
        """Learn from these counts, which the engine keeps of a drafter."""
        self._counts, self._now = counts, None

    def draft(self, rows: I64) -> bool:
        if self._counts is None:
            return False
        at = self._clock(), self._counts.rounds, self._counts.emitted
        rounds = at[1] - self._began[1]
        if self._now is not None and rounds:
            sized, way = self._now
            sized.rounds[way].append(((at[0] - self._began[0]) / rounds, rounds, at[2] - self._began[2]))
        most = len(rows).bit_length()
        if most not in self._sizes:
            kept = max(TIMED, EVIDENCE >> (most - 1))
            self._sizes[most] = _Sized([deque(maxlen=kept) for _ in self._ways], self._probe)
        sized = self._sizes[most]
        self._way = sized.way()
        self._now, self._began = (sized, self._way), at
        return self._ways[self._way].draft(rows)

    def choose(self, rows: I64, fresh: Mask, chance: F64) -> I64:
        return self._ways[self._way].choose(rows, fresh, chance)


class _Sized:
    """What came of each way with about so many rows, and which is next.

    ``rounds``: for each way its last rounds, each as seconds for a row, rows, and tokens emitted.
    """

    def __init__(self, rounds: list[deque[tuple[float, int, int]]], probe: int) -> None:
        self.rounds, self._probe, self._pause, self._since, self._best, self._last = rounds, probe, probe, 0, 0, 0

    def way(self) -> int:
        untried = [i for i, known in enumerate(self.rounds) if len(known) < (known.maxlen or 0)]
        if untried:
            return untried[0]
        rates = [self._rate(i) for i in range(len(self.rounds))]
        best = int(np.argmax(rates))
        if best != self._best:
            self._best, self._pause, self._since = best, self._probe, 0
        self._since += 1
        if self._since > self._pause:
            self._since, self._pause = 0, min(2 * self._pause, RAREST * self._probe)
            self._last = next(i for i in _after(self._last, len(rates)) if i != best)
            self.rounds[self._last].clear()
            return self._last
        return best

    def _rate(self, way: int) -> float:
        """Tokens per second for each row; the median of seconds passes over rounds in which others were admitted."""
        seconds, rounds, emitted = zip(*self.rounds[way], strict=True)
        return float(sum(emitted) / sum(rounds) / max(float(np.median(seconds)), EPSILON**2))


def _after(last: int, count: int) -> list[int]:
    return [(last + 1 + i) % count for i in range(count)]


class Held:
    """A policy that is told each position's chances times ``factors`` [block], at most 1: as far as they have held.

    The factors come from rounds before, so a length still depends on nothing it must not.
    """

    def __init__(self, inner: Lengths, block: int) -> None:
        self.inner, self.factors = inner, np.ones(block)

    def draft(self, rows: I64) -> bool:
        return self.inner.draft(rows)

    def choose(self, rows: I64, fresh: Mask, chance: F64) -> I64:
        return self.inner.choose(rows, fresh, np.minimum(chance * self.factors, 1.0))

    def learn(self, counts: Drafted) -> None:
        """Take the factors from what came of earlier drafts: accepted by told, at positions with evidence."""
        known = (counts.reached >= EVIDENCE) & (counts.told > 0)
        self.factors[known] = counts.accepted[known] / counts.told[known]


def rate(costs: Costs, n: int, sizes: F64, drafting: bool = True) -> F64:
    """Tokens per second [K + 1] expected of n rows when 0 to K of ``sizes`` [K], falling chances, are verified."""
    tokens = n + np.concatenate([[0.0], sizes.cumsum()])
    seconds = costs.verify_seconds(n + np.arange(len(sizes) + 1))
    found: F64 = tokens / (seconds + (costs.draft_seconds(n) if drafting else 0.0))
    return found


def top(survival: F64, k: int, epsilon: float = 0.0) -> I64:
    """Tokens per row [n] when the ``k`` largest of ``survival`` [n, block] above ``epsilon`` are taken.

    Products of chances do not rise along a block, and of equals the earlier is taken first, so that each row's tokens
    are taken in order.
    """
    n = len(survival)
    by_place = survival.T.ravel()
    order = np.argsort(-by_place, kind="stable")[:k]
    return np.bincount(order[by_place[order] > epsilon] % n, minlength=n).astype(np.int64)


def policy(text: str, costs: Costs | None, block: int) -> Lengths:
    """A policy by name: one of ``KNOWN``; ``auto`` is the scheduler, ``fixed`` alone verifies whole blocks.

    Without a cost table ``auto`` finds out while serving what pays (``Paying``), and logs that.

    Args:
        costs: of target and drafter on this machine, or None where they were not measured.
        block: most tokens the drafter proposes.

    Raises:
        BadInput: no such policy, a policy that needs the cost table without one, or a table of another block.
    """
    name, arguments = parse_ref(text)
    if costs is not None and costs.block != block:
        raise BadInput(
            f"the costs were measured for blocks of {costs.block} tokens, this drafter proposes {block}",
            remedy="Measure them again with this drafter: `clew serve --profile`.",
        )
    if name in ("scheduler", "auto", "algorithm1") and costs is None:
        if name != "auto":
            raise BadInput(f"{name} needs the costs of this machine", remedy="Measure them: `clew serve --profile`.")
        log.warning("no costs were measured on this machine: what pays is found while serving (clew serve --profile)")
        return Paying(block)
    try:
        if name == "none" and not arguments:
            return Fixed(0)
        if name == "fixed":
            return Fixed(**{"k": block} | arguments)
        if name == "threshold":
            return Threshold(**arguments)
        if name == "algorithm1" and costs is not None:
            return Algorithm1(costs, **arguments)
        if name in ("scheduler", "auto") and costs is not None:
            return Scheduler(costs, **arguments)
    except TypeError as error:
        raise BadInput(f"{text!r}: {error}", remedy=f"Known are {', '.join(KNOWN)}.") from None
    raise BadInput(f"there is no policy {text!r} of lengths", remedy=f"Known are {', '.join(KNOWN)}.")


def _priced(costs: Costs) -> Costs:
    """The costs, with a word in the log where they cannot tell anything apart."""
    if math.isclose(costs.verify[0], costs.verify[-1]):
        log.warning("verification costs the same at every size in this table: every drafted token will be verified")
    return costs


def _sound(chance: F64, block: int) -> F64:
    """The chances, float64 [n, block].

    Raises:
        ModelError: a NaN or a number that is no chance. Verifying the whole block instead would be a choice that
            depends on the block. BadInput: another block than the one the costs were measured for.
    """
    if chance.shape[1] != block:
        raise BadInput(
            f"the drafter proposes {chance.shape[1]} tokens, the costs were measured for {block}",
            remedy="Measure them again with this drafter: `clew serve --profile`.",
        )
    if not ((chance >= 0) & (chance <= 1)).all():
        raise ModelError(
            "the drafter's chances of acceptance are not numbers from 0 to 1",
            remedy="Load an earlier drafter, calibrate it again (clew draft calibrate), or serve with fixed lengths.",
        )
    return chance.astype(np.float64)
