"""Ways to choose a worker for a question: the routers and baselines that ``contest`` compares.

Each takes questions with known rewards and gives a function that chooses for questions without. None may look at a
reward of a question it chooses for.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from clew.core.errors import need
from clew.methods.routing import soft_targets
from clew.methods.routing.reward_matrix import F64, Index

Choose = Callable[[F64], Index]
SHRINK = 5.0  # questions' worth of the overall mean in the mean of a cluster
FAMILY_SHRINK = 10.0  # questions' worth of the overall lead in the lead of a family


class Known(NamedTuple):
    """Questions with rewards: ``x`` float64 [Q, width], mean rewards float64 [Q, W], mean costs [Q, W] or None, and the
    temperature of soft targets."""

    x: F64
    means: F64
    prices: F64 | None = None
    seed: int = 0
    tau: float = soft_targets.TAU

    @property
    def overall(self) -> F64:
        overall: F64 = self.means.mean(0)
        return overall

    @property
    def best(self) -> int:
        """The worker that is best over all of these questions."""
        return int(self.overall.argmax())

    @property
    def tie(self) -> F64:
        """Too little to change an order, enough to let equals go to the worker that is better overall."""
        tie: F64 = np.argsort(np.argsort(self.overall)).astype(np.float64) * 1e-9
        return tie


def soft(known: Known) -> Choose:
    """Ours: a linear softmax fitted to soft targets (arXiv 2606.21228, 3.2)."""
    head = soft_targets.fit(known.x, known.means, tau=known.tau, seed=known.seed)
    return lambda x: head.scores(x).argmax(1)


def hard(known: Known) -> Choose:
    """A classifier of the worker with the highest reward; among equals the one that is better overall."""
    label = (known.means + known.tie).argmax(1)
    decide = _classifier(known.x, label)
    return lambda x: decide(x)[0]


def nearest(known: Known) -> Choose:
    """Mean rewards of the nearest questions by cosine, as many as the square root of their number."""
    neighbors = need("sklearn.neighbors", "probes")
    k = min(len(known.x), max(5, round(len(known.x) ** 0.5)))
    model = neighbors.KNeighborsRegressor(k, metric="cosine", algorithm="brute").fit(known.x, known.means)
    return lambda x: (model.predict(x) + known.tie).argmax(1)


def clusters(known: Known) -> Choose:
    """Mean rewards of the cluster a question falls into (as Avengers-Pro does), drawn a little to the overall mean."""
    cluster = need("sklearn.cluster", "probes")
    k = max(2, min(32, len(known.x) // 25))
    model = cluster.KMeans(min(k, len(known.x)), n_init=1, random_state=known.seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # fewer distinct questions than clusters
        of = model.fit_predict(known.x)
    sums = np.zeros((model.n_clusters, known.means.shape[1]))
    np.add.at(sums, of, known.means)
    size = np.bincount(of, minlength=len(sums))[:, None]
    mean = (sums + SHRINK * known.overall) / (size + SHRINK) + known.tie
    return lambda x: mean[model.predict(x)].argmax(1)


def factors(known: Known) -> Choose:
    """Matrix factorisation: rewards less each worker's mean, of low rank; the factors of a question by ridge
    regression on its vector."""
    decomposition, linear = need("sklearn.decomposition", "probes"), need("sklearn.linear_model", "probes")
    rest = known.means - known.overall
    rank = max(1, min(known.means.shape[1] - 1, 4))
    if not rest.any():
        return lambda x: np.full(len(x), known.best)
    with warnings.catch_warnings(), np.errstate(invalid="ignore"):
        warnings.simplefilter("ignore")  # shares of explained variance, where all workers got the same
        model = decomposition.TruncatedSVD(rank, random_state=0)
        u = model.fit_transform(rest)
    ridge = linear.Ridge(1.0).fit(known.x, u)
    return lambda x: (ridge.predict(x).reshape(len(x), -1) @ model.components_ + known.overall + known.tie).argmax(1)


def by_family(means: F64, family: Index) -> F64:
    """Who is best in each family, by its questions' lead over the mean worker, drawn a little to the lead over all.

    Args:
        means: float64 [Q, W] of questions with known rewards. family: theirs, int [Q].

    Returns:
        Scores, float64 [F + 1, W]; the last row is of families that were not seen.
    """
    size = np.bincount(family)
    sums = np.zeros((len(size) + 1, means.shape[1]))
    lead = means - means.mean(1, keepdims=True)
    np.add.at(sums, family, lead)
    n = np.append(size, 0)[:, None]
    scores: F64 = (sums + FAMILY_SHRINK * lead.mean(0)) / (n + FAMILY_SHRINK)
    return scores


def by_words(texts: Sequence[str], means: F64) -> Callable[[Sequence[str]], Index]:
    """Logistic regression on TF-IDF of words and pairs of words, fitted to the questions on which workers disagree.

    The others say nothing of who should answer, and would only teach the better worker overall. Each question weighs
    what the best of its workers earns more than the mean one.
    """
    best = int(means.mean(0).argmax())
    gap = means.max(1) - means.mean(1)
    tie = np.argsort(np.argsort(means.mean(0))) * 1e-9
    label, apart = (means + tie).argmax(1), gap > 1e-9
    if len(np.unique(label[apart])) < 2:
        return lambda rest: np.full(len(rest), best)
    text, linear = need("sklearn.feature_extraction.text", "probes"), need("sklearn.linear_model", "probes")
    words = text.TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, token_pattern=r"(?u)\w+")
    x = words.fit_transform([texts[i] for i in np.flatnonzero(apart).tolist()])
    model = linear.LogisticRegression(max_iter=200).fit(x, label[apart], sample_weight=gap[apart] / gap[apart].mean())
    return lambda rest: np.asarray(model.predict(words.transform(rest)), np.intp)


class Pair(NamedTuple):
    """The strong worker, the weak one, and how likely each question needs the strong one (float64 [Q], an order)."""

    strong: int
    weak: int
    need: F64
    cut: float


def pair(known: Known) -> tuple[int, int]:
    """Strong: the best overall. Weak: the cheapest other, or, where costs are unknown or equal, the second best."""
    others = [w for w in range(known.means.shape[1]) if w != known.best]
    if known.prices is not None and np.ptp(known.prices) > 0:
        costs = known.prices.mean(0)
        return known.best, min(others, key=lambda w: float(costs[w]))
    return known.best, max(others, key=lambda w: float(known.overall[w]))


def threshold(known: Known) -> Callable[[F64], Pair]:
    """RouteLLM's form (arXiv 2406.18665): ask the strong worker where a classifier says that it alone succeeds.

    The cut is the one with the highest reward on a fifth of the questions, which the classifier did not see.
    """
    strong, weak = pair(known)
    held = np.zeros(len(known.x), bool)
    order = np.random.default_rng(known.seed).permutation(len(known.x))
    held[order[: round(soft_targets.STOP * len(order))]] = True
    gain = known.means[:, strong] - known.means[:, weak]
    decide = _classifier(known.x[~held], (gain[~held] > 0).astype(int))
    said = decide(known.x[held])[1]
    rank = np.argsort(-said, kind="stable")
    total = np.concatenate([[0.0], np.cumsum(gain[held][rank])])  # asking the strong one at the first k
    top = len(total) - 1 - int(total[::-1].argmax())  # of equals, the one that asks the strong worker most
    cut = -np.inf if top == len(rank) else float(said[rank[top]])
    return lambda x: Pair(strong, weak, decide(x)[1], cut)


def _classifier(x: F64, label: Index) -> Callable[[F64], tuple[Index, F64]]:
    """Logistic regression: the likeliest label of each question, and the chance of the highest one."""
    kinds = np.unique(label)
    if len(kinds) < 2:
        return lambda x: (np.full(len(x), int(kinds[0]) if len(kinds) else 0), np.zeros(len(x)))
    linear = need("sklearn.linear_model", "probes")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # not quite converged is good enough here
        model = linear.LogisticRegression(C=3.0, max_iter=60).fit(x, label)

    def decide(x: F64) -> tuple[Index, F64]:
        chance = model.predict_proba(x)
        return model.classes_[chance.argmax(1)].astype(np.intp), chance[:, -1]

    return decide


ROUTERS: dict[str, Callable[[Known], Choose]] = {
    "soft targets": soft,
    "hard labels": hard,
    "nearest questions": nearest,
    "clusters": clusters,
    "matrix factors": factors,
}
