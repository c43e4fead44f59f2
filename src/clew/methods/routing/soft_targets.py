"""The fast router's head: a linear softmax over workers, fitted to soft targets by a KL loss.

Section 3.2 of the Fugu report (arXiv 2606.21228): the target of question i is ``softmax_j(mean reward_ij / tau)``, so
that a few samples say how sure they are. Contest and fit call it; it must never see the questions it is judged on.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from clew.core.errors import BadInput, need
from clew.methods.routing.reward_matrix import F64

TAU = 0.3  # 0.2 to 0.5 were alike in the pilot of the spec
DECAY = 1e-3  # weight of half the squared norm in the loss
STEPS = 60  # most iterations of L-BFGS
STOP = 0.2  # share of the questions that say when to stop


class Fitted(NamedTuple):
    """A head in a question space: weights float64 [W, width], bias float64 [W], and how it came about.

    curve: reward of the greedy choice on the held-out questions after each iteration; the head is of iteration ``at``,
    the first that reaches the best. Iteration 0 has the bias alone, and so asks one worker always.
    """

    weights: F64
    bias: F64
    at: int
    curve: tuple[float, ...]

    def scores(self, x: F64) -> F64:
        """float64 [Q, W] of float64 [Q, width]."""
        scores: F64 = x @ self.weights.T + self.bias
        return scores


def targets(means: F64, tau: float = TAU) -> F64:
    """Soft targets float64 [Q, W] of mean rewards.

    Raises:
        BadInput: ``tau`` is not above 0.
    """
    if not tau > 0:
        raise BadInput(f"tau is {tau}", remedy="Give a temperature above 0, as in 0.3.")
    special = need("scipy.special", "probes")
    soft: F64 = special.softmax(means / tau, axis=1)
    return soft


def apart(n: int, seed: int = 0) -> npt.NDArray[np.bool_]:
    """Which of ``n`` questions say when to stop, bool [n]; none of a single one."""
    held = np.zeros(n, bool)
    held[np.random.default_rng(seed).permutation(n)[: max(1, round(STOP * n))]] = True
    return held & ~held.all()


def fit(x: F64, means: F64, *, tau: float = TAU, seed: int = 0) -> Fitted:
    """Fit the head; a fifth of the questions is held out and says when to stop.

    Args:
        x: float64 [Q, width]. means: mean rewards, float64 [Q, W].
    """
    optimize, special = need("scipy.optimize", "probes"), need("scipy.special", "probes")
    held = apart(len(x), seed)
    learn, p, n = x[~held], targets(means[~held], tau), max(1, int((~held).sum()))
    workers, width = means.shape[1], x.shape[1]
    best = int(means[~held].mean(0).argmax())
    start = np.zeros((workers, width + 1))
    start[:, -1] = np.log(p.mean(0))
    start[best, -1] = start[:, -1].max() + 1e-6  # iteration 0 asks the best single worker

    def loss(flat: F64) -> tuple[float, F64]:
        w = flat.reshape(workers, width + 1)
        log = special.log_softmax(learn @ w[:, :-1].T + w[:, -1], axis=1)
        value = float((p * (np.log(p + 1e-300) - log)).sum() / n + DECAY / 2 * (w[:, :-1] ** 2).sum())
        wrong = (np.exp(log) - p) / n
        slope = np.concatenate([wrong.T @ learn + DECAY * w[:, :-1], wrong.sum(0)[:, None]], axis=1)
        return value, slope.ravel()

    path = [start.copy()]
    optimize.minimize(
        loss,
        start.ravel(),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": STEPS},
        callback=lambda flat: path.append(flat.reshape(workers, width + 1).copy()),
    )
    on = held if held.any() else ~held
    rows = np.arange(int(on.sum()))
    curve = [float(means[on][rows, (x[on] @ w[:, :-1].T + w[:, -1]).argmax(1)].mean()) for w in path]
    at = int(np.argmax(curve))
    return Fitted(path[at][:, :-1], path[at][:, -1], at, tuple(curve))
