"""Linear probes of an outcome, out of fold, with the controls without which their AUROC says nothing (E171).

What is published (specs/E171 section 4.3, after arXiv 2606.25013): ``FIRST``, on the state of the first thinking
token, and ``STATE_A``, on that of the last prompt token. Scaler and principal components are fitted inside the folds
alone, and all runs of one prompt lie in one fold. scikit-learn fits; nothing here samples or reads a model.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from clew.core.errors import BadInput, need
from clew.core.records import Report
from clew.core.stats import auroc
from clew.methods.agreement.raters import by_cluster

F64 = npt.NDArray[np.float64]
FOLDS, RESAMPLES = 5, 500
FOLD_SEEDS = (42, 43, 44)  # 42 is the published one; one division of 60 runs moves an AUROC by .05
SHUFFLES = 50  # of labels, as the control of a probe
WORDS = r"(?u)\S+"  # a word of a prompt is what stands between blanks


class Fitted(Protocol):
    """What scikit-learn calls a classifier with probabilities."""

    def fit(self, x: Any, y: Any) -> object: ...
    def predict_proba(self, x: Any) -> Any: ...


Make = Callable[[], Fitted]


class Probe(NamedTuple):
    """How well something tells the outcome of a run it was not fitted on.

    scores: float [runs], out of fold. auroc: bootstrap over prompts. balanced: accuracy over both outcomes at the
    Youden threshold of the other folds, None where nothing was fitted. within: mean AUROC within sources, where several
    have both outcomes; the difference to ``auroc`` is what the source alone tells. Where it was fitted, all are means
    over several divisions into folds. bar: of shuffled labels, the 95th percentile of their AUROCs.
    """

    name: str
    scores: F64
    auroc: Report
    balanced: float | None
    within: float | None
    bar: float | None = None


def _linear(*steps: Any) -> Fitted:
    made: Fitted = need("sklearn.pipeline", "probes").make_pipeline(*steps)
    return made


def first_token(runs: int, width: int) -> Fitted:
    """The figure's probe: standardise, 100 principal components, logistic regression C=.03 with balanced classes."""
    model, pre = need("sklearn.linear_model", "probes"), need("sklearn.preprocessing", "probes")
    parts = need("sklearn.decomposition", "probes").PCA(max(1, min(100, width, int(runs * (1 - 1 / FOLDS)) - 1)))
    fit = model.LogisticRegression(C=0.03, class_weight="balanced", max_iter=3000)
    return _linear(pre.StandardScaler(), parts, fit)


def state_a() -> Fitted:
    """The other published probe: standardise, logistic regression C=1 by LBFGS, 200 rounds."""
    model, pre = need("sklearn.linear_model", "probes"), need("sklearn.preprocessing", "probes")
    return _linear(pre.StandardScaler(), model.LogisticRegression(C=1.0, max_iter=200))


def random_projection(width: int, seed: int = 0) -> Fitted:
    """A control of capacity: a tenth as many random directions in place of the states."""
    model, pre = need("sklearn.linear_model", "probes"), need("sklearn.preprocessing", "probes")
    drawn = need("sklearn.random_projection", "probes").GaussianRandomProjection(max(2, width // 10), random_state=seed)
    return _linear(pre.StandardScaler(), drawn, model.LogisticRegression(C=1.0, class_weight="balanced", max_iter=1000))


def words(places: bool = False) -> Fitted:
    """A classifier of texts: TF-IDF of words and pairs of words, or with ``places`` which word stands where."""
    text, model = need("sklearn.feature_extraction.text", "probes"), need("sklearn.linear_model", "probes")
    made = (
        text.CountVectorizer(analyzer=by_place, binary=True)
        if places
        else text.TfidfVectorizer(token_pattern=WORDS, ngram_range=(1, 2), min_df=2, sublinear_tf=True)
    )
    return _linear(made, model.LogisticRegression(C=1.0, class_weight="balanced", max_iter=1000))


def by_place(text: str) -> list[str]:
    """The words of a text, each with its place, from both ends."""
    found = text.split()
    return [f"{i}:{word}" for i, word in enumerate(found)] + [
        f"{i - len(found)}:{word}" for i, word in enumerate(found)
    ]


def out_of_fold(
    x: Any, outcome: npt.ArrayLike, prompts: Sequence[Hashable], make: Make, seed: int = FOLD_SEEDS[0]
) -> tuple[F64, npt.NDArray[np.int64]]:
    """Scores of runs by probes that never saw their prompt, and the fold of each: five stratified folds.

    Args:
        x: float [runs, width], or texts. outcome: bool [runs]. prompts: equal for runs of one prompt.

    Raises:
        BadInput: an outcome has fewer prompts than there are folds.
    """
    y = np.asarray(outcome, bool)
    group = np.unique(np.asarray(list(prompts), dtype=str), return_inverse=True)[1]
    enough(y, group)
    split = need("sklearn.model_selection", "probes").StratifiedGroupKFold(FOLDS, shuffle=True, random_state=seed)
    scores, fold = np.zeros(len(y)), np.zeros(len(y), np.int64)
    texts = isinstance(x[0], str)
    unfinished = need("sklearn.exceptions", "probes").ConvergenceWarning  # how many rounds is part of what is published
    for number, (learn, held) in enumerate(split.split(np.zeros(len(y)), y, group)):
        fold[held] = number
        shown, asked = ([x[i] for i in learn], [x[i] for i in held]) if texts else (x[learn], x[held])
        alike = y[learn].all() or not y[learn].any() or (not texts and not np.ptp(shown, axis=0).any())
        scores[held] = 0.5
        if alike:  # one outcome, or one state for all runs, as where all thinking begins with one word
            continue
        with warnings.catch_warnings(), suppress(ValueError):  # no word occurs twice: the texts tell nothing
            warnings.simplefilter("ignore", unfinished)
            model = make()
            model.fit(shown, y[learn])
            scores[held] = model.predict_proba(asked)[:, 1]
    return scores, fold


def enough(y: npt.NDArray[np.bool_], group: npt.NDArray[np.int64]) -> None:
    """Refuse what cannot be divided into folds.

    Raises:
        BadInput: fewer than ten prompts of either outcome.
    """
    have = {side: len(np.unique(group[y == side])) for side in (True, False)}
    least = 2 * FOLDS
    if min(have.values()) < least:
        rarer = min(have, key=lambda side: have[side])
        share = max(have[rarer] / max(len(np.unique(group)), 1), 0.02)
        raise BadInput(
            f"{have[True]} prompts show the outcome and {have[False]} do not; probes need {least} of each",
            remedy=f"Collect about {int(np.ceil(least / share))} prompts, or name an outcome that is less one-sided.",
        )


def probe(
    name: str,
    x: Any,
    outcome: npt.ArrayLike,
    prompts: Sequence[Hashable],
    make: Make,
    sources: Sequence[Hashable] | None = None,
    seed: int = 0,
    fold_seeds: Sequence[int] = FOLD_SEEDS,
) -> Probe:
    """Fit out of fold, for several divisions into folds, and say how well it tells the outcome.

    Raises:
        BadInput: as ``out_of_fold``.
    """
    y = np.asarray(outcome, bool)
    made = [out_of_fold(x, y, prompts, make, one) for one in fold_seeds]
    found = told(name, np.stack([scores for scores, _ in made]), y, prompts, sources, seed)
    shares = [share for scores, fold in made if (share := balanced(scores, y, fold)) is not None]
    return found._replace(balanced=float(np.mean(shares)) if shares else None)


def shuffled(
    name: str, x: np.ndarray, outcome: npt.ArrayLike, prompts: Sequence[Hashable], make: Make, seed: int = 0
) -> Probe:
    """The control of a probe: how well it tells labels that say nothing, shuffled ``SHUFFLES`` times.

    Prompts with equally many runs swap the labels of all their runs, where that mixes at least half of the runs; else
    single runs swap theirs. What is fitted without labels (scaler, components) is fitted once a fold. The interval of
    the AUROC holds 95 % of the shuffles.

    Args:
        make: gives a pipeline of scikit-learn whose last step alone reads the labels.

    Raises:
        BadInput: as ``out_of_fold``.
    """
    y, rng = np.asarray(outcome, bool), np.random.default_rng(seed)
    group = np.unique(np.asarray(list(prompts), dtype=str), return_inverse=True)[1]
    enough(y, group)
    divide = need("sklearn.model_selection", "probes").StratifiedGroupKFold
    unfinished = need("sklearn.exceptions", "probes").ConvergenceWarning
    found, scores, folds = list[float](), np.full(len(y), 0.5), list[Any]()
    for learn, held in divide(FOLDS, shuffle=True, random_state=FOLD_SEEDS[0]).split(x, y, group):
        model: Any = make()
        folds.append((learn, held, model[:-1].fit_transform(x[learn]), model[:-1].transform(x[held]), model[-1]))
    one_thread = need("threadpoolctl", "probes").threadpool_limits(1)  # 250 tiny fits: threads cost five times the time
    with one_thread, warnings.catch_warnings():
        warnings.simplefilter("ignore", unfinished)
        for _ in range(SHUFFLES):
            mixed = _mixed(y, group, rng)
            for learn, held, shown, asked, last in folds:
                alike = mixed[learn].all() or not mixed[learn].any()
                scores[held] = 0.5 if alike else last.fit(shown, mixed[learn]).predict_proba(asked)[:, 1]
            found.append(auroc(scores, mixed))
    low, bar, high = np.percentile(found, [2.5, 95, 97.5])
    design = f"{SHUFFLES} shuffles of the labels of {len(y)} runs, out of fold; the interval holds 95 % of them"
    claim, mean = f"AUROC of {name}", float(np.mean(found))
    report = Report(claim=claim, estimate=mean, low=float(low), high=float(high), n=len(y), design=design)
    return Probe(name, scores, report, None, None, float(bar))


def _mixed(y: npt.NDArray[np.bool_], group: npt.NDArray[np.int64], rng: np.random.Generator) -> npt.NDArray[np.bool_]:
    """Labels in another order: those of whole prompts where enough have equally many runs, else of single runs."""
    sizes = np.bincount(group)
    alike = [np.flatnonzero(sizes == size) for size in np.unique(sizes)]
    if sum(len(names) * sizes[names[0]] for names in alike if len(names) > 1) < len(y) / 2:
        return np.asarray(y[rng.permutation(len(y))])
    out, members = y.copy(), [np.flatnonzero(group == number) for number in range(len(sizes))]
    for names in alike:
        for to, of in zip(names, rng.permutation(names), strict=True):
            out[members[to]] = y[members[of]]
    return out


def told(
    name: str,
    scores: F64,
    outcome: npt.ArrayLike,
    prompts: Sequence[Hashable],
    sources: Sequence[Hashable] | None = None,
    seed: int = 0,
) -> Probe:
    """How well given scores [runs], or those of several divisions into folds [divisions, runs], tell the outcome; the
    bootstrap is over prompts."""
    y, each = np.asarray(outcome, bool), np.atleast_2d(np.asarray(scores, float))
    group = np.unique(np.asarray(list(prompts), dtype=str), return_inverse=True)[1]
    estimate = float(np.mean([auroc(s, y) for s in each]))
    drawn = [np.mean([auroc(s, y, w) for s in each]) for w in by_cluster(group, RESAMPLES, seed)]
    low, high = np.nanpercentile(drawn, [2.5, 97.5])
    design = f"{len(y)} runs of {int(group.max()) + 1} prompts, out of fold, bootstrap over prompts"
    design += f"; mean of {len(each)} divisions into folds" if len(each) > 1 else ""
    limits: dict[str, Any] = {"low": min(float(low), estimate), "high": max(float(high), estimate)}
    report = Report(claim=f"AUROC of {name}", estimate=estimate, n=len(y), design=design, **limits)
    apart = [share for s in each if (share := within(s, y, sources)) is not None]
    return Probe(name, each.mean(0), report, None, float(np.mean(apart)) if apart else None)


def within(scores: F64, y: npt.NDArray[np.bool_], sources: Sequence[Hashable] | None) -> float | None:
    """Mean AUROC within sources that have both outcomes; None where fewer than two sources do."""
    if sources is None:
        return None
    names = np.asarray(list(map(str, sources)))
    found = [auroc(scores[names == name], y[names == name]) for name in np.unique(names)]
    both = [value for value in found if np.isfinite(value)]
    return float(np.mean(both)) if len(both) > 1 else None


def balanced(scores: F64, y: npt.NDArray[np.bool_], fold: npt.NDArray[np.int64]) -> float | None:
    """Balanced accuracy, each fold at the threshold that maximises hit rate less false alarms on the other folds."""
    said = np.zeros(len(y), bool)
    for number in np.unique(fold):
        held, others = fold == number, fold != number
        s, t = scores[others], y[others]
        if t.all() or not t.any():
            return None
        order = np.argsort(-s, kind="stable")
        gain = np.cumsum(np.where(t[order], 1 / t.sum(), -1 / (~t).sum()))
        last = np.append(s[order][1:] != s[order][:-1], True)  # a threshold lies between different scores
        best = int(np.argmax(np.where(last, gain, -np.inf)))
        said[held] = scores[held] >= s[order][best]
    return float(((said & y).sum() / max(y.sum(), 1) + (~said & ~y).sum() / max((~y).sum(), 1)) / 2)


def matched(scores: F64, outcome: npt.ArrayLike, prompts: Sequence[Hashable], seed: int = 0) -> Report | None:
    """AUROC between runs of one prompt, over prompts whose runs differ in the outcome; None where fewer than two do.

    The state before sampling is the same for all runs of a prompt, so what is left to tell there was not decided at the
    prompt.
    """
    y, names = np.asarray(outcome, bool), np.asarray(list(prompts), dtype=str)
    rows = []
    for name in np.unique(names):
        own = names == name
        if y[own].any() and not y[own].all():
            pairs = float(y[own].sum() * (~y[own]).sum())
            rows.append((auroc(scores[own], y[own]) * pairs, pairs))
    if len(rows) < 2:
        return None
    won, pairs_ = np.array(rows).T
    weights = by_cluster(np.arange(len(rows)), RESAMPLES, seed)
    estimate = float(won.sum() / pairs_.sum())
    low, high = np.percentile((weights @ won) / np.maximum(weights @ pairs_, 1e-9), [2.5, 97.5])
    design = f"{len(rows)} prompts whose runs differ in the outcome, bootstrap over prompts"
    limits: dict[str, Any] = {"low": min(float(low), estimate), "high": max(float(high), estimate)}
    return Report(claim="AUROC between runs of one prompt", estimate=estimate, n=len(rows), design=design, **limits)
