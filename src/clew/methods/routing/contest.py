"""Routers and baselines on held-out questions: what each earns, what it costs, and whether it beats the best worker.

``clew route report`` and ``clew route fit`` call it. Every policy is fitted on some folds of the questions and chooses
in the others; no policy's score may rest on a question that it was fitted on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np

from clew.core.errors import BadInput, need
from clew.core.records import Report
from clew.methods.compare import design
from clew.methods.routing import policies
from clew.methods.routing.headroom import resamples
from clew.methods.routing.policies import Known
from clew.methods.routing.question_space import Space, vectors
from clew.methods.routing.reward_matrix import F64, Index, Matrix
from clew.methods.routing.soft_targets import TAU

FOLDS = 5
FEWEST = 20  # questions
SINGLE, RANDOM, MIXTURE = "best single", "random", "fixed mixture"
THRESHOLD = "strong or weak"
FAMILY, WORDS = "best of its family", "words of disagreements"
LEARNT = (*policies.ROUTERS, FAMILY, WORDS, THRESHOLD)
REPEATS = 3  # partitions into folds that are averaged over: one may favour a router, or hide it
FAR = 1_000_003  # between the seeds of two partitions
ALPHA = 0.05  # family-wise, of the routers that are tried
Held = Literal["questions", "families"]


class Read(NamedTuple):
    """How questions become vectors: ``by`` gives float64 [Q, dim] of all of them, learnt at most from the questions
    that it is given. centred: see ``Space.of``. repeats: partitions into folds; 1 where learning is dear."""

    by: Callable[[Index], F64]
    centred: bool = False
    repeats: int = 1

    @classmethod
    def fixed(cls, h: F64, centred: bool = False) -> Read:
        """Vectors that nothing is learnt for."""
        return cls(lambda learn: h, centred, REPEATS)


class Arm(NamedTuple):
    """What one way of answering earns on held-out questions.

    calls: of workers for each question. cost: mean US dollars of a question, None where not known. gain: its reward
    less that of the best single worker, question by question; None of that worker itself. p: of no gain, one-sided,
    by Holm's correction over the routers; None of what is no router. hindsight: gain over the worker that turned out
    best over all questions, for routers: among workers that are close, the one chosen on training questions does
    worse than that on the others.
    """

    name: str
    reward: Report
    calls: float
    cost: float | None
    gain: Report | None = None
    p: float | None = None
    hindsight: Report | None = None

    @property
    def wins(self) -> bool:
        """Whether it is a router that beats the best single worker: both intervals above 0, and p after correction."""
        gains = (self.gain, self.hindsight)
        return self.p is not None and self.p < ALPHA and all(gain is not None and gain.low > 0 for gain in gains)


@dataclass(slots=True)
class Choices:
    """Who would be asked, for each held-out question.

    shares: name -> chance of each worker, float64 [Q, W], the mean over partitions into folds. strong, weak: workers of
    the threshold router, int [Q]; need: how much a question needs the strong one, an order, float64 [Q]; of the first.
    """

    shares: dict[str, F64]
    strong: Index
    weak: Index
    need: F64
    single: Index = field(default_factory=lambda: np.zeros(0, np.intp))


def folds(found: Matrix, held: Held, seed: int) -> Iterator[tuple[Index, Index]]:
    """Pairs of questions to learn from and questions held out; with ``families`` no family is in both.

    Raises:
        BadInput: too few questions, or families, to hold any out.
    """
    select = need("sklearn.model_selection", "probes")
    if len(found) < FEWEST:
        raise BadInput(f"{len(found)} questions are too few to hold some out", remedy=f"Measure {FEWEST} or more.")
    # One question asked twice, as in two families, must not be on both sides.
    names, of = np.unique(found.families if held == "families" else found.texts, return_inverse=True)
    if held == "families" and len(names) < 2:
        remedy = "Give a column `family`, or hold out questions."
        raise BadInput("no family can be held out: the questions are of one", remedy=remedy)
    if len(names) < 2:
        raise BadInput("all questions have one text", remedy=f"Measure {FEWEST} different ones or more.")
    for learn, rest in select.KFold(min(FOLDS, len(names)), shuffle=True, random_state=seed).split(names):
        yield np.flatnonzero(np.isin(of, learn)), np.flatnonzero(np.isin(of, rest))


def choices(
    found: Matrix,
    *,
    held: Held = "questions",
    seed: int = 0,
    tau: float = TAU,
    told: Callable[[], None] = lambda: None,
    read: Read | None = None,
) -> Choices:
    """Fit every policy on some folds and let it choose in the others; the mean over several partitions into folds.

    Args:
        tau: temperature of soft targets. told: called after each fold. read: how questions become vectors; default:
            n-grams.
    """
    means, prices = found.means, found.prices
    read = read or Read.fixed(vectors(found.texts))
    shape = means.shape
    family = np.unique(found.families, return_inverse=True)[1].ravel()
    learnt = [name for name in LEARNT if name != FAMILY or not _no_families(found, held)]
    shares = {name: np.zeros(shape) for name in (SINGLE, *learnt)}
    out = Choices(shares, np.zeros(shape[0], np.intp), np.zeros(shape[0], np.intp), np.zeros(shape[0]))
    part, threads = 1 / read.repeats, need("threadpoolctl", "probes").threadpool_limits
    for again in range(read.repeats):
        for learn, rest in folds(found, held, seed + again * FAR):
            h = read.by(learn)
            with threads(limits=1):  # these matrices are small: more threads wait for one another
                space = Space.of(h[learn], seed, centred=read.centred)
                known = Known(space(h[learn]), means[learn], None if prices is None else prices[learn], seed, tau)
                x = space(h[rest])
                shares[SINGLE][rest, known.best] += part
                for name, fit in policies.ROUTERS.items():
                    shares[name][rest, fit(known)(x)] += part
                if FAMILY in shares:
                    scores = policies.by_family(means[learn], family[learn])
                    shares[FAMILY][rest, scores[np.minimum(family[rest], len(scores) - 1)].argmax(1)] += part
                by_words = policies.by_words([found.texts[i] for i in learn], means[learn])
                shares[WORDS][rest, by_words([found.texts[i] for i in rest])] += part
                two = policies.threshold(known)(x)
                if not again:
                    out.strong[rest], out.weak[rest], out.need[rest] = two.strong, two.weak, _rank(two.need, seed)
                shares[THRESHOLD][rest, np.where(two.need > two.cut, two.strong, two.weak)] += part
            told()
    out.single = shares[SINGLE].argmax(1)
    shares[RANDOM] = np.full(shape, 1 / shape[1])
    shares[MIXTURE] = np.tile(shares[next(iter(policies.ROUTERS))].mean(0), (shape[0], 1))
    for w, worker in enumerate(found.workers):
        shares[worker] = np.tile(np.eye(shape[1])[w], (shape[0], 1))
    return out


def _no_families(found: Matrix, held: Held) -> str:
    """Why no worker can be chosen by family; empty where one can."""
    if held == "families":
        return "held-out families were never seen"
    return "" if len(set(found.families)) > 1 else "the questions are of one family, or of none that is known"


def skipped(found: Matrix, held: Held) -> tuple[str, ...]:
    """What of the routers did not run, and why, a sentence each."""
    why = _no_families(found, held)
    return (f"{FAMILY} did not run: {why}",) if why else ()


def _rank(need: F64, seed: int) -> F64:
    """An order as numbers from 0 to 1, so that those of several folds can be compared; equals in an order by chance,
    since that of a file may say much."""
    luck = np.random.default_rng(seed).random(len(need))
    order: F64 = (np.argsort(np.lexsort((luck, need))) + 0.5) / max(1, len(need))
    return order


def earned_by(found: Matrix, made: Choices, name: str) -> F64:
    """What a policy earns at each held-out question, float64 [Q]."""
    got: F64 = (made.shares[name] * found.means).sum(1)
    return got


def arms(found: Matrix, made: Choices, seed: int = 0) -> list[Arm]:
    """What each policy earns, then what several calls of the best single worker do."""
    means, prices = found.means, found.prices
    single = (made.shares[SINGLE] * means).sum(1)
    out, raw = list[Arm](), dict[str, float]()
    top = int(means.mean(0).argmax())
    order = [*found.workers, SINGLE, *(name for name in LEARNT if name in made.shares), MIXTURE, RANDOM]
    for name in order:
        earned = (made.shares[name] * means).sum(1)
        cost = None if prices is None else float((made.shares[name] * prices).sum(1).mean())
        gain = None if name == SINGLE else gain_of(f"{name} less {SINGLE}", earned, single, seed)
        after = None
        if name in LEARNT:
            raw[name] = p_of(earned - single)
            after = gain_of(f"{name} less {found.workers[top]}, best in hindsight", earned, means[:, top], seed)
        out.append(Arm(name, mean_of(f"reward of {name}", earned, seed), 1.0, cost, gain, None, after))
    fixed = dict(zip(raw, design.holm(list(raw.values())), strict=True))
    out = [arm._replace(p=fixed.get(arm.name)) for arm in out]
    return out + _several(found, made.single, single, seed)


def p_of(gain: F64) -> float:
    """One-sided p of no gain: exact McNemar where every gain is -1, 0 or 1, else a paired t test."""
    if np.isin(gain, (-1.0, 0.0, 1.0)).all():
        return design.mcnemar(int((gain > 0).sum()), int((gain < 0).sum()), one_sided=True)
    if not gain.any():
        return 1.0
    if gain.std() == 0:
        return float(gain.mean() <= 0)
    return float(need("scipy.stats", "stats").ttest_1samp(gain, 0.0, alternative="greater").pvalue)


def _several(found: Matrix, single: Index, base: F64, seed: int) -> list[Arm]:
    """Several samples of the best single worker for each question: a majority of answers, and the best of them."""
    deep = found.counts
    at = np.arange(len(found))
    n = deep[at, single]
    if n.min() < 2:
        return []
    out = list[Arm]()
    cost = None
    if found.prices is not None:
        cost = float((found.prices[at, single] * n).mean())
    if found.answers and n.min() >= 3:
        voted = np.array([majority(found, int(q), int(w)) for q, w in zip(at, single, strict=True)])
        gain = gain_of(f"majority of {SINGLE} less one call of it", voted, base, seed)
        out.append(
            Arm("majority of best single", mean_of("reward of a majority", voted, seed), float(n.mean()), cost, gain)
        )
    most = np.nanmax(found.rewards[at, single], 1)
    gain = gain_of(f"best of {SINGLE} less one call of it", most, base, seed)
    name = "best of best single, perfect judge"
    out.append(Arm(name, mean_of("reward of the best sample", most, seed), float(n.mean()), cost, gain))
    return out


def majority(found: Matrix, q: int, w: int, samples: int | None = None) -> float:
    """Reward of the answer that most of the first samples give (default: of all); among equals the one given first."""
    said, got = found.answers[q][w][:samples], found.rewards[q, w][:samples]
    counts: dict[str, list[float]] = {}
    for text, reward in zip(said, got, strict=False):
        counts.setdefault(text, []).append(float(reward))
    return float(np.mean(max(counts.values(), key=len)))


def mean_of(claim: str, values: F64, seed: int) -> Report:
    """The mean of float64 [Q], with its interval over questions."""
    return design.bootstrap(
        claim, lambda x: x.mean(-1), values, seed=seed, resamples=resamples(len(values)), unit="questions"
    )


def gain_of(claim: str, a: F64, b: F64, seed: int) -> Report:
    """The mean of ``a`` less that of ``b``, float64 [Q] each, paired by question, with its interval."""
    text = f"{len(a)} held-out questions, paired, percentile bootstrap over questions"
    return design.bootstrap(claim, lambda x: x.mean(-1), a - b, design=text, seed=seed, resamples=resamples(len(a)))
