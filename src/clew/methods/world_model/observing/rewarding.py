"""The reward of an answer that a model gives for a world: extract, canonicalise, class of content, rule, rubric.

Pure functions, called by trainings and measures. What counts of a reply is its marked observation alone, so that the
thought and any praise around it reach no judge. Praise inside of it fails the rule, and a judge is shown the rest: a
reply must never gain by speaking of itself (arXiv 2606.24597; what praise gains otherwise is in specs/E167, 3.4).
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

from clew.methods.world_model.content_kinds import Content, content_of, form_of, words_of
from clew.methods.world_model.fidelity import canonical_text
from clew.methods.world_model.prompting import extract, extract_done

PARTS = ("format", "factuality", "consistency", "realism", "quality")
RULE = 0.1  # share of the rule in the reward, where one applies; the rubric has the rest
LONGEST = 20_000  # characters of an observation that are read
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|[\x00-\x08\x0b-\x1f\x7f]")
_SENTENCE = re.compile(r"(?<=[.!?])[ \t]+|\n")
_PRAISE = re.compile(
    r"\b(?:success(?:ful(?:ly)?)?|perfect(?:ly)?|flawless(?:ly)?|excellent|as (?:requested|expected)|well done|"
    r"high[- ]quality|accurate(?:ly)?|faithful(?:ly)?|realistic(?:ally)?|great|happy to help|score|rating|rubric|judge|"
    r"ground truth|(?:this|the) (?:prediction|response|output|observation|simulation) (?:is|matches|follows))\b",
    re.IGNORECASE,
)


class Judged(NamedTuple):
    """What a rubric reads. ``said`` is the observation without praise; ``before``, the words told before it."""

    said: str
    truth: str
    content: Content
    before: Collection[str]
    form: Collection[str]


Rubric = Callable[[Judged], Mapping[str, float] | None]
"""Five scores from 1 to 5, by the names in PARTS; None where it cannot say, which counts as nothing."""


class Reward(NamedTuple):
    """The reward of a reply, 0 to 1, and how it came about. ``rule``: None where none applies. ``why``: of a 0."""

    value: float
    rule: float | None = None
    rubric: float | None = None
    content: Content | None = None
    said: str = ""
    why: str = ""


def canonical(text: str) -> str:
    """An observation as it is compared: without escape sequences of terminals, white space as single blanks, JSON with
    sorted keys."""
    return canonical_text(_ESCAPES.sub(_kept_space, text[:LONGEST]))


def _kept_space(found: re.Match[str]) -> str:
    return "\n" if found[0] in "\x0b\x0c\r" else ""


def without_praise(said: str, truth: str) -> str:
    """An observation without sentences that praise it or speak to a judge; those that the truth holds too stay."""
    known = " ".join(truth.lower().split())
    kept = [
        part for part in _SENTENCE.split(said) if " ".join(part.lower().split()) in known or not _PRAISE.search(part)
    ]
    return "\n".join(kept).strip()


def rule_of(said: str, truth: str, content: Content, form: Collection[str] = ()) -> float | None:
    """What can be checked: 1 where a determined observation is the truth, or a runtime one has its form; else 0.

    None for stored content, which nobody could know.
    """
    if content == "stored":
        return None
    if canonical(said) == canonical(truth):
        return 1.0
    return float(content == "runtime" and form_of(canonical(said), form) == form_of(canonical(truth), form))


def programmed_rubric(judged: Judged) -> dict[str, float]:
    """Five scores from 1 to 5 without a model.

    format: as many words stand where the truth's form has them. factuality: F1 of the words. consistency: the share of
    its words that were told before, are the truth's, or belong to the world's form. realism: the same without the
    truth, runtime values let pass. quality: its length beside the truth's.
    """
    said, truth = words_of(judged.said), words_of(judged.truth)
    shapes = [Counter(form_of(text, judged.form).split()) for text in (judged.said, judged.truth)]
    told = set(judged.before) | set(judged.form)
    known = [word in told or word in truth for word in said]
    real = [word in told or bool(re.search(r"[0-9]", word)) for word in said]
    found = {
        "format": _f1(*shapes),
        "factuality": _f1(Counter(said), Counter(truth)),
        "consistency": sum(known) / len(known) if known else float(not truth),
        "realism": sum(real) / len(real) if real else float(not truth),
        "quality": min(len(said), len(truth)) / max(len(said), len(truth), 1) if said or truth else 1.0,
    }
    return {part: 1 + 4 * found[part] for part in PARTS}


def _f1(one: Counter[str], two: Counter[str]) -> float:
    both, all_of = (one & two).total(), one.total() + two.total()
    return 2 * both / all_of if all_of else 1.0


def reward(
    reply: str,
    truth: str,
    before: Collection[str],
    form: Collection[str] = (),
    rubric: Rubric = programmed_rubric,
    done: bool | None = None,
) -> Reward:
    """The reward of a model's whole reply.

    The rubric's mean, 1 to 5, counts as its share of 5; where a rule applies it has a tenth. A reply without a marked
    observation, or one that its rubric cannot judge, gets 0 from that part. One that says the episode ends where it
    does not, or does not say so where it does, fails the rule, of stored content too: that can be known.

    Args:
        truth: what the world answered. before: the words told before, its action included. form: of the world's form.
        done: whether the episode ended with it; None where nobody knows.
    """
    said = extract(reply)
    if said is None:
        return Reward(0.0, why="the reply has no marked observation")
    if len(said) > LONGEST:
        return Reward(0.0, why=f"the observation is longer than {LONGEST:,} characters")
    content = content_of(canonical(truth), before, form)
    rule = rule_of(said, truth, content, form)
    if done is not None and extract_done(reply) != done:
        rule = 0.0
    bare = canonical(without_praise(said, truth))
    scores = rubric(Judged(bare, canonical(truth), content, before, form))
    judged = _mean(scores)
    total = judged if rule is None else (1 - RULE) * judged + RULE * rule
    return Reward(total, rule, judged, content, bare, "" if scores is not None else "the rubric could not judge it")


def observation(reply: str, answer: object, columns: Mapping[str, Any] | None = None) -> float:
    """The reward of a reply on a row that `clew world turns` wrote, 0 to 1; for ``--reward observation``.

    Args:
        answer: what the world answered. columns: ``messages``, all that was told before it, and ``form``.
    """
    told = columns or {}
    before = {word for one in told.get("messages") or () for word in words_of(str(one["content"]))}
    return reward(reply, str(answer), before, frozenset(told.get("form") or ()), done=told.get("done")).value


def _mean(scores: Mapping[str, float] | None) -> float:
    """The mean of the five parts as a share of the best; 0 where one is missing or is no score."""
    values = [float((scores or {}).get(part, math.nan)) for part in PARTS]
    return sum(values) / (5 * len(values)) if all(1 <= value <= 5 for value in values) else 0.0


def scores_in(text: str) -> dict[str, float] | None:
    """Five scores from what a judging model says, one on a line as ``format: 4``; None where any is missing or odd.

    Of several scores of one part the last one counts. Nothing but whole numbers from 1 to 5 is read.
    """
    found = dict(
        re.findall(
            r"(?m)^[^\w\n]{0,8}([a-z]{1,16})[^\w\n]{0,8}[:=][^\w\n]{0,8}([1-5])[^\w\n]{0,8}$", text[:LONGEST].lower()
        )
    )
    return {part: float(found[part]) for part in PARTS} if set(found) >= set(PARTS) else None
