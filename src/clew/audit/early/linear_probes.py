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

from clew.audit.agreement.raters import by_cluster
from clew.core.errors import BadInput, need
from clew.core.records import Report
from clew.core.stats import auroc

F64 = npt.NDArray[np.float64]
FOLDS, FOLD_SEED, RESAMPLES = 5, 42, 500
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
    have both outcomes; the difference to ``auroc`` is what the source alone tells.
    """

    name: str
    scores: F64
    auroc: Report
    balanced: float | None
    within: float | None


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
    x: Any, outcome: npt.ArrayLike, prompts: Sequence[Hashable], make: Make
) -> tuple[F64, npt.NDArray[np.int64]]:
    """Scores of runs by probes that never saw their prompt, and the fold of each: five stratified folds, seed 42.

    Args:
        x: float [runs, width], or texts. outcome: bool [runs]. prompts: equal for runs of one prompt.

    Raises:
        BadInput: an outcome has fewer prompts than there are folds.
    """
    y = np.asarray(outcome, bool)
    group = np.unique(np.asarray(list(prompts), dtype=str), return_inverse=True)[1]
    enough(y, group)
    split = need("sklearn.model_selection", "probes").StratifiedGroupKFold(FOLDS, shuffle=True, random_state=FOLD_SEED)
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
) -> Probe:
    """Fit out of fold and say how well it tells the outcome.

    Raises:
        BadInput: as ``out_of_fold``.
    """
    y = np.asarray(outcome, bool)
    scores, fold = out_of_fold(x, y, prompts, make)
    found = told(name, scores, y, prompts, sources, seed)
    return found._replace(balanced=balanced(scores, y, fold))


def told(
    name: str,
    scores: F64,
    outcome: npt.ArrayLike,
    prompts: Sequence[Hashable],
    sources: Sequence[Hashable] | None = None,
    seed: int = 0,
) -> Probe:
    """How well given scores tell the outcome, with a bootstrap over prompts."""
    y, s = np.asarray(outcome, bool), np.asarray(scores, float)
    group = np.unique(np.asarray(list(prompts), dtype=str), return_inverse=True)[1]
    estimate = auroc(s, y)
    drawn = [auroc(s, y, w) for w in by_cluster(group, RESAMPLES, seed)]
    low, high = np.nanpercentile(drawn, [2.5, 97.5])
    design = f"{len(y)} runs of {int(group.max()) + 1} prompts, out of fold, bootstrap over prompts"
    limits: dict[str, Any] = {"low": min(float(low), estimate), "high": max(float(high), estimate)}
    report = Report(claim=f"AUROC of {name}", estimate=estimate, n=len(y), design=design, **limits)
    return Probe(name, s, report, None, within(s, y, sources))


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
