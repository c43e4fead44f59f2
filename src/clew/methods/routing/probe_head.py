"""A head over workers known by what they did at some probe questions, so that one that comes later needs these alone.

``score_j = h U e_j``, where h is a question's vector and e_j the worker's mean reward at each probe question, less that
of the pool (spec of arXiv 2606.21228, 4.4). ``clew route fit --probe`` and ``clew route add`` call it. A worker that is
left out to be judged must not be seen by what judges it, its hyper-parameters included.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from clew.core.errors import BadInput, need
from clew.core.records import Report
from clew.methods.routing import soft_targets
from clew.methods.routing.contest import Held, Read, folds, gain_of, mean_of
from clew.methods.routing.question_space import Space
from clew.methods.routing.reward_matrix import F64, Index, Matrix

Chosen = npt.NDArray[np.bool_]
MOST, FEWEST = 100, 5  # probe questions
LEAST = 3  # workers: one is left out, and two are to be told apart
RIDGES = (1.0, 3.0, 10.0, 30.0)  # in questions
DECAYS = (None, 1.0, 0.1, 0.01)  # of what is learnt beyond the ridge regression; None: nothing is
STEPS = 40  # most iterations of L-BFGS


class ProbeHead(NamedTuple):
    """U float64 [width + 1, P], the last row for a constant; ``middle`` float64 [P] is the known workers' mean reward
    at each probe question. ridge, decay: how it was chosen."""

    u: F64
    middle: F64
    ridge: float
    decay: float | None

    def weights(self, e: F64) -> F64:
        """Heads float64 [W, width + 1] of workers with mean rewards float64 [P, W] at the probe questions."""
        made: F64 = (self.u @ (e - self.middle[:, None])).T
        return made

    def scores(self, x: F64, e: F64) -> F64:
        """float64 [Q, W] of questions float64 [Q, width]."""
        made: F64 = _with_one(x) @ self.weights(e).T
        return made


def chosen(n: int, probes: int, seed: int = 0) -> Index:
    """Numbers of the probe questions among ``n``, drawn by chance, rising.

    Raises:
        BadInput: too many or too few.
    """
    if not FEWEST <= probes <= MOST or probes > n // 2:
        raise BadInput(
            f"{probes} probe questions of {n}", remedy=f"Give {FEWEST} to {min(MOST, max(FEWEST, n // 2))} of them."
        )
    return np.sort(np.random.default_rng(seed).permutation(n)[:probes])


def fit(
    x: F64, means: F64, probes: Index, given: F64 | None = None, tau: float = soft_targets.TAU, seed: int = 0
) -> ProbeHead:
    """Fit U; how much is learnt is chosen by leaving each worker out in turn.

    First a ridge regression from questions to rewards, over the probe questions alone, which knows a worker that it has
    never seen as well as any other. Then U moves from there, by the KL loss to soft targets of all questions. Ridge and
    decay are those with which the pool earns most on a fifth of the questions, when one worker at a time joins by its
    probe answers.

    Args:
        x: questions, float64 [Q, width]. means: mean rewards, float64 [Q, W]. probes: rows of the probe questions.
        given: what is known of each worker there, float64 [P, W]; default: the mean rewards.

    Raises:
        BadInput: fewer than 3 workers.
    """
    if means.shape[1] < LEAST:
        raise BadInput(f"a pool of {means.shape[1]} workers has none to leave out", remedy="Measure 3 workers or more.")
    given = means[probes] if given is None else given
    stop = soft_targets.apart(len(x), seed)

    def left_out(ridge: float, decay: float | None) -> float:
        got = 0.0
        for j in range(means.shape[1]):
            known = np.delete(np.arange(means.shape[1]), j)
            head = _fit(x, means[:, known], probes, given[:, known], ridge, decay, tau, ~stop)
            choice = head.scores(x[stop], given).argmax(1)
            got += float(means[stop][np.arange(int(stop.sum())), choice].mean())
        return got

    ridge = max(RIDGES, key=lambda one: left_out(one, None))
    decay = max(DECAYS, key=lambda one: left_out(ridge, one))
    return _fit(x, means, probes, given, ridge, decay, tau, np.ones(len(x), bool))


def _fit(
    x: F64, means: F64, probes: Index, given: F64, ridge: float, decay: float | None, tau: float, learn: Chosen
) -> ProbeHead:
    """U of the workers in ``means`` with these settings; it learns beyond the probes from the questions ``learn``."""
    middle = given.mean(1)
    e = given - middle[:, None]
    one = _with_one(x[probes])
    penalty = ridge * np.eye(one.shape[1])
    penalty[-1, -1] = 1e-6  # the constant is free
    base: F64 = np.linalg.solve(one.T @ one + penalty, one.T).astype(np.float64)
    if decay is None:
        return ProbeHead(base, middle, ridge, decay)
    optimize, special = need("scipy.optimize", "probes"), need("scipy.special", "probes")
    q, size, _ = np.linalg.svd(e, full_matrices=False)
    q = q[:, size > 1e-9 * max(float(size.max(initial=0.0)), 1e-12)]
    codes, rows = q.T @ e, _with_one(x[learn])
    ready, p = rows @ (base @ e), soft_targets.targets(means[learn], tau)
    n, shape = len(rows), (one.shape[1], q.shape[1])

    def loss(flat: F64) -> tuple[float, F64]:
        times, more = np.exp(flat[0]), flat[1:].reshape(shape)
        log = special.log_softmax(times * ready + rows @ more @ codes, axis=1)
        wrong = (np.exp(log) - p) / n
        value = float((p * (np.log(p + 1e-300) - log)).sum() / n + decay / 2 * (more**2).sum())
        slope = rows.T @ wrong @ codes.T + decay * more
        return value, np.concatenate([[times * (wrong * ready).sum()], slope.ravel()])

    start = np.zeros(1 + shape[0] * shape[1])
    found = optimize.minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": STEPS})
    return ProbeHead(np.exp(found.x[0]) * base + found.x[1:].reshape(shape) @ q.T, middle, ridge, decay)


def _with_one(x: F64) -> F64:
    return np.concatenate([x, np.ones((len(x), 1))], axis=1)


class Joining(NamedTuple):
    """What a pool earns on held-out questions when one worker in turn joins late; means over the workers left out.

    known: of this head with all workers known. joined: by its probe answers alone. ignored: without it. refit: after
    all of its answers were measured and the usual head was fitted anew. gain: joined less ignored. regret: refit less
    joined.
    """

    known: Report
    joined: Report
    ignored: Report
    refit: Report
    gain: Report
    regret: Report


def joining(
    found: Matrix,
    read: Read,
    probes: int,
    *,
    held: Held = "questions",
    tau: float = soft_targets.TAU,
    seed: int = 0,
    shuffled: bool = False,
    told: Callable[[], None] = lambda: None,
) -> Joining:
    """Let each worker of a measured pool join late, on questions that nothing was fitted on.

    Args:
        read: how questions become vectors. probes: how many probe questions. shuffled: each worker has another's
            probe answers, a control. told: called after each worker of each of the 5 folds.

    Raises:
        BadInput: too few workers, questions or probe questions.
    """
    means, workers = found.means, found.means.shape[1]
    if workers < LEAST + 1:
        raise BadInput(f"a pool of {workers} workers has too few to leave one out", remedy="Measure 4 workers or more.")
    whole, joined, ignored, refit = (np.zeros(len(found)) for _ in range(4))
    luck = np.random.default_rng(seed)
    for learn, rest in folds(found, held, seed):
        h = read.by(learn)
        space = Space.of(h[learn], seed, centred=read.centred)
        x, known_x, rows = space(h[rest]), space(h[learn]), np.arange(len(rest))
        at = chosen(len(learn), probes, seed)
        full = soft_targets.fit(known_x, means[learn], tau=tau, seed=seed).scores(x).argmax(1)
        refit[rest] = means[rest][rows, full]
        whose = np.arange(workers)
        if shuffled:
            ring = luck.permutation(workers)
            whose[ring] = np.roll(ring, 1)  # nobody keeps their own
        given = means[learn][at][:, whose]
        every = fit(known_x, means[learn], at, given, tau, seed)
        whole[rest] = means[rest][rows, every.scores(x, given).argmax(1)]
        for j in range(workers):
            others = np.delete(np.arange(workers), j)
            head = fit(known_x, means[learn][:, others], at, given[:, others], tau, seed)
            scores = head.scores(x, given)
            joined[rest] += means[rest][rows, scores.argmax(1)] / workers
            ignored[rest] += means[rest][rows, others[scores[:, others].argmax(1)]] / workers
            told()
    return Joining(
        mean_of("reward with every worker known", whole, seed),
        mean_of("reward after one worker joined by probe questions", joined, seed),
        mean_of("reward without that worker", ignored, seed),
        mean_of("reward after a full fit with that worker", refit, seed),
        gain_of("joined by probe questions less ignored", joined, ignored, seed),
        gain_of("a full fit less joined by probe questions", refit, joined, seed),
    )
