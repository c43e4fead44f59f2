"""Solutions whose potential is known exactly: chains of fillers with five decisions (specs/E172 section 9, V1).

A token multiplies the chance of success by its factor, so that V is a product. A filler is said with chance .999, any
of its three slips halves the chance. A decision has four options, factors 1, U(0, .6), U(.3, 1) and U(.6, 1), and
logits N(0, 1) with 1.5 more on the right option in decisions of kind "off", .6 more in kind "unc"; in half of the
latter the likeliest option is made a wrong one.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from clew.methods.cliffs import statistics

F64 = NDArray[np.float64]
LENGTH, DECISIONS, OPTIONS = 120, 5, 4
SURE, SLIP = 0.999, 0.5


class Chains(NamedTuple):
    """chance, factor [problems, LENGTH, OPTIONS]."""

    chance: F64
    factor: F64

    @property
    def mean(self) -> F64:
        """What a position multiplies the chance of success by, on average, [problems, LENGTH]."""
        return np.asarray((self.chance * self.factor).sum(axis=2))

    @property
    def start(self) -> F64:
        """Exact chance of success, [problems]."""
        return np.asarray(self.mean.prod(axis=1))

    @property
    def entropy(self) -> F64:
        with np.errstate(divide="ignore"):
            return statistics.entropy(np.log(self.chance))


def chains(problems: int, seed: int) -> Chains:
    rng = np.random.default_rng([seed, 172])
    chance = np.zeros((problems, LENGTH, OPTIONS))
    factor = np.ones((problems, LENGTH, OPTIONS))
    chance[:, :, 0], chance[:, :, 1:], factor[:, :, 1:] = SURE, (1 - SURE) / (OPTIONS - 1), SLIP
    for i in range(problems):
        for place in rng.choice(np.arange(1, LENGTH), DECISIONS, replace=False):
            off = rng.random() < 0.5
            logits = rng.normal(size=OPTIONS)
            logits[0] += 1.5 if off else 0.6
            if not off and rng.random() < 0.5:
                best, wrong = int(logits.argmax()), int(rng.integers(1, OPTIONS))
                logits[[best, wrong]] = logits[[wrong, best]]
            weight = np.exp(logits - logits.max())
            chance[i, place] = weight / weight.sum()
            factor[i, place] = 1.0, rng.uniform(0, 0.6), rng.uniform(0.3, 1), rng.uniform(0.6, 1)
    return Chains(chance, factor)


class Traces(NamedTuple):
    """Sampled solutions: problem [n], token [n, LENGTH]; value [n, LENGTH + 1]: V before each token and at the end."""

    problem: NDArray[np.int64]
    token: NDArray[np.int64]
    value: F64

    @property
    def drop(self) -> F64:
        return np.asarray(self.value[:, :-1] - self.value[:, 1:])


def sample(made: Chains, each: int, rng: np.random.Generator) -> Traces:
    """``each`` solutions of every problem."""
    problem = np.repeat(np.arange(len(made.chance)), each)
    edges = made.chance[problem].cumsum(axis=2)
    token = (rng.random((len(problem), LENGTH, 1)) * edges[..., -1:] > edges).sum(axis=2)
    return Traces(problem, token, values(made, problem, token))


def values(made: Chains, problem: NDArray[np.int64], token: NDArray[np.int64]) -> F64:
    """V before each token and at the end, [n, LENGTH + 1]."""
    taken = np.take_along_axis(made.factor[problem], token[..., None], axis=2)[..., 0]
    done = np.concatenate([np.ones((len(token), 1)), taken.cumprod(axis=1)], axis=1)
    ahead = made.mean[problem][:, ::-1].cumprod(axis=1)[:, ::-1]
    return np.asarray(done * np.concatenate([ahead, np.ones((len(token), 1))], axis=1))


def chances(made: Chains, traces: Traces) -> F64:
    """pi of each sampled token, [n, LENGTH]."""
    return np.take_along_axis(made.chance[traces.problem], traces.token[..., None], axis=2)[..., 0]


def kinds(made: Chains, traces: Traces) -> NDArray[np.str_]:
    """The taxonomy's word for each sampled token, [n, LENGTH]."""
    entropy = made.entropy[traces.problem]
    greedy = made.chance.argmax(axis=2)[traces.problem] == traces.token
    out = np.where(entropy <= statistics.BOUNDARY, "other", "sampled-off")
    return np.where(greedy, np.where(entropy <= statistics.BOUNDARY, "deterministic", "uncertain"), out)
