"""Exact laws of what speculative decoding emits on a toy, by enumeration, and the two policies that are not exact.

Every block that could be drafted, every outcome of its verification: no sampling, float64. The policies are the
engine's own (clew.models.engine.speculation.lengths). ``Anticipating`` and ``own_chance`` are the biased ones, which
show that the test can fail.
"""

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from clew.models.engine.speculation.costs import Costs
from clew.models.engine.speculation.lengths import Scheduler, rate, top

F64 = npt.NDArray[np.float64]
Tokens = tuple[int, ...]
REQUESTS = 2
JAGGED = (1.0, 1.0, 0.97, 0.60, 0.58, 0.57, 0.36, 0.35)  # steps per second at 1 to 8 flattened tokens


class Anticipating(Scheduler):
    """Biased: sizes the batch by the block it sizes (Algorithm 1 of 2607.05147 without its stop)."""

    def choose(self, rows: Any, fresh: Any, chance: F64) -> Any:
        super().choose(rows, fresh, chance)  # so that it knows what the scheduler knows
        survival = chance.cumprod(1)
        sizes = np.sort(survival[survival > self._epsilon])[::-1]
        return top(survival, int(rate(self.costs, len(rows), sizes).argmax()), self._epsilon)


def table(steps_per_second: tuple[float, ...], block: int) -> Costs:
    """A cost table from SPS(B), B = 1, 2, ...; drafting is free, as in the paper's rule."""
    seconds = tuple(1 / x for x in steps_per_second)
    rows = tuple(range(1, REQUESTS + 1))
    return Costs(tuple(range(1, len(seconds) + 1)), seconds, rows, seconds[: len(rows)], (0.0,) * len(rows), block)


@dataclass(frozen=True)
class Game:
    """Target, drafter and chances as functions of (request, tokens so far), all drawn at random and then fixed.

    target, drafter: laws [V]. chance: that the token after these is accepted, as the drafter's head says it; it need
    not be right. own: whether it may look at the token itself, which is forbidden.
    """

    vocabulary: int
    block: int
    target: Callable[[int, Tokens], F64]
    drafter: Callable[[int, Tokens], F64]
    chance: Callable[[int, Tokens], float]
    own: bool = False

    def chances(self, request: int, so_far: Tokens, block: Tokens) -> list[float]:
        return [self.chance(request, (*so_far, *block[: k + self.own])) for k in range(self.block)]


def random_game(seed: int, vocabulary: int = 3, block: int = 3) -> Game:
    """A target drawn at random, a drafter that agrees with it in some contexts, and a perfect head.

    Its chance is 1 less the total variation distance of the two laws.
    """

    def drawn(what: int, request: int, so_far: Tokens) -> np.random.Generator:
        return np.random.default_rng([seed, what, request, *(1 + t for t in so_far)])

    @cache
    def target(request: int, so_far: Tokens) -> F64:
        return drawn(0, request, so_far).dirichlet(np.ones(vocabulary))

    @cache
    def drafter(request: int, so_far: Tokens) -> F64:
        if drawn(2, request, so_far).random() < 0.5:
            return target(request, so_far)
        return drawn(1, request, so_far).dirichlet(np.full(vocabulary, 0.5))

    @cache
    def chance(request: int, so_far: Tokens) -> float:
        return 1.0 - float(0.5 * np.abs(target(request, so_far) - drafter(request, so_far)).sum())

    return Game(vocabulary, block, target, drafter, chance)


def own_chance(game: Game) -> Game:
    """The same game with the drafted token's own probability for its chance."""
    return Game(
        game.vocabulary, game.block, game.target, game.drafter,
        lambda r, t: float(game.drafter(r, t[:-1])[t[-1]]), own=True,
    )  # fmt: skip


def paper_game() -> Game:
    """The counter-example of 2607.05147, appendix A; token 0 is its A; one request."""
    return Game(
        2, 2,
        lambda r, t: np.array([0.7, 0.3]),
        lambda r, t: np.array([0.5, 0.5]),
        lambda r, t: 0.8 if not t else (0.9 if t[0] == 0 else 0.0),
    )  # fmt: skip


def outcomes(game: Game, request: int, so_far: Tokens, block: Tokens, length: int) -> Iterator[tuple[Tokens, float]]:
    """What a verified block emits, and how likely: accepted tokens, then one recovered, or the bonus."""
    left = 1.0
    for k in range(length):
        before = (*so_far, *block[:k])
        p, q = game.target(request, before), game.drafter(request, before)
        accept = min(1.0, p[block[k]] / q[block[k]])
        rest = np.maximum(p - q, 0.0)
        if accept < 1.0:
            for token, share in enumerate(rest / rest.sum()):
                yield (*block[:k], token), left * (1 - accept) * share
        left *= accept
    for token, share in enumerate(game.target(request, (*so_far, *block[:length]))):
        yield (*block[:length], token), left * share


def target_law(game: Game, request: int, so_far: Tokens, tokens: int) -> F64:
    """Exact law [V ** tokens] of a request's first tokens when ``so_far`` are emitted."""
    law = np.zeros((game.vocabulary,) * tokens)
    for rest in product(range(game.vocabulary), repeat=max(tokens - len(so_far), 0)):
        whole = (*so_far, *rest)[:tokens]
        law[whole] = np.prod([game.target(request, whole[:i])[whole[i]] for i in range(len(so_far), len(whole))])
    return law.ravel()


def emitted_law(
    game: Game, policy: Any, tokens: int = 2, rounds: int = 1, fresh: bool = True, requests: int = REQUESTS
) -> F64:
    """Joint law of the first ``tokens`` of each request, [V ** tokens] * requests.

    ``rounds`` rounds are enumerated with the policy's own state; what is missing then comes from the target, which
    is what any exact policy would add.
    """
    total = np.zeros((game.vocabulary**tokens,) * requests)

    def done(texts: tuple[Tokens, ...], weight: float) -> None:
        laws = [target_law(game, r, text[:tokens], tokens) for r, text in enumerate(texts)]
        joint = laws[0]
        for law in laws[1:]:
            joint = np.multiply.outer(joint, law)
        total[...] += weight * joint

    def go(policy: Any, texts: tuple[Tokens, ...], weight: float, left: int) -> None:
        short = [r for r, text in enumerate(texts) if len(text) < tokens]
        if not left or not short or weight == 0.0:
            done(texts, weight)
            return
        rows, new = np.array(short), np.full(len(short), fresh and left == rounds)
        policy = copy.deepcopy(policy)
        if not policy.draft(rows):
            ends = [[(texts[r] + (v,), p) for v, p in enumerate(game.target(r, texts[r]))] for r in short]
            branch(policy, texts, short, ends, weight, left)
            return
        blocks = list(product(range(game.vocabulary), repeat=game.block))
        for drafted in product(blocks, repeat=len(short)):
            likely = weight
            for r, block in zip(short, drafted, strict=True):
                likely *= np.prod([game.drafter(r, texts[r] + block[:i])[block[i]] for i in range(game.block)])
            after = copy.deepcopy(policy)
            chance = np.array([game.chances(r, texts[r], b) for r, b in zip(short, drafted, strict=True)])
            lengths = after.choose(rows, new, chance).tolist()
            ends = []
            for r, block, length in zip(short, drafted, lengths, strict=True):
                merged: dict[Tokens, float] = {}
                for more, p in outcomes(game, r, texts[r], block, length):
                    text = (texts[r] + more)[:tokens]
                    merged[text] = merged.get(text, 0.0) + p
                ends.append(list(merged.items()))
            branch(after, texts, short, ends, likely, left)

    def branch(policy: Any, texts: Any, short: list[int], ends: Any, weight: float, left: int) -> None:
        for chosen in product(*ends):
            now = list(texts)
            for r, (text, _) in zip(short, chosen, strict=True):
                now[r] = text
            go(policy, tuple(now), weight * float(np.prod([p for _, p in chosen])), left - 1)

    go(policy, ((),) * requests, 1.0, rounds)
    return total


def used(policy: Any, block: int, seed: int, rounds: int = 3) -> Any:
    """The policy after some rounds with chances drawn at random, so that what it knows is not what it starts with."""
    draw, rows = np.random.default_rng(seed), np.arange(REQUESTS)
    for _ in range(rounds):
        if policy.draft(rows):
            policy.choose(rows, np.zeros(REQUESTS, bool), draw.random((REQUESTS, block)) ** 0.3)
    return policy


def bias(game: Game, policy: Any, tokens: int = 2, rounds: int = 1, fresh: bool = True) -> float:
    """Total variation distance of the emitted joint law to the target's."""
    laws = [target_law(game, r, (), tokens) for r in range(REQUESTS)]
    emitted = emitted_law(game, policy, tokens, rounds, fresh)
    return float(0.5 * np.abs(emitted - np.multiply.outer(*laws)).sum())
