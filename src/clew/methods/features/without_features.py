"""What a user would try in one line, held against a feature: the prompt's words, and telling the base to do it.

``steered_behaviour`` calls it. If the words of a prompt tell whether the behaviour comes, a feature that is active
there may be no more than a word; if the base does it when it is told to, training added no ability. Nothing here
steers.
"""

from __future__ import annotations

import numpy as np

from clew.core.errors import BadInput, MissingExtra
from clew.core.values import F32
from clew.methods.compare import design
from clew.methods.early import linear_probes as probes
from clew.methods.features.diff_verdict import Finding, Line
from clew.methods.features.steering import Effect, Trial
from clew.methods.features.subjects import I64, Subject


def by_words(found: Finding, subject: Subject, which: I64, outcomes: F32, seed: int = 0) -> None:
    """How well the words of a prompt alone tell whether A shows the behaviour: AUROC of TF-IDF, out of fold.

    Args:
        which: numbers of the prompts. outcomes: of A with nothing written, float32 [which].
    """
    known = ~np.isnan(outcomes)
    texts = [subject.prompts[i].text for i in which[known]]
    try:
        made = probes.probe("the prompt's words (TF-IDF)", texts, outcomes[known] == 1, texts, probes.words, seed=seed)
    except (BadInput, MissingExtra) as error:
        found.caveats.append(f"how well the prompt's words tell the behaviour is not known: {error.message}")
        return
    found.lines.append(Line("AUROC of the prompt's words for A (.5 tells nothing)", made.auroc))


def told_so(found: Finding, trial: Trial, told: Subject) -> None:
    """How often B shows the behaviour at the test prompts when it is told to, and what a feature does beyond that.

    Args:
        told: the same prompts, with the sentence in their system message.
    """
    arm, sign = told.outcomes("B", "test", trial.test), -1 if trial.way == "remove" else 1
    good = arm[~np.isnan(arm)]
    if not len(good):
        found.caveats.append("what B does when it is told to is not known: no outcome")
        return
    rate = design.rate(f"{found.behaviour}, B told so", int(good.sum()), len(good))
    effect = Effect("B told so", arm, trial.plain("test", "B"), sign)
    told_more = effect.report("B told so, less B")
    found.lines += [Line("rate of B told so", rate), Line("B told so, less B", told_more, effect.p)]
    for one in found.tried.values():
        name = one.cell.written
        beyond = Effect(name, one.test.arm, arm, sign)
        found.lines.append(Line(f"A with {name}, less B told so", beyond.report(f"{name} less B told so"), beyond.p))
    if effect.gain("gain").low > 0:
        found.caveats.append(
            f"B shows the behaviour at {rate.estimate:.0%} of the test prompts when it is told to: it had the ability"
            if sign > 0
            else f"B, told so, shows the behaviour at {rate.estimate:.0%} of the test prompts only"
        )
