"""Spellings of earlier versions that go on working: the command line turns each into what it is called now."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from clew.cli.shared import common

OLD = {
    **{verb: f"audit {verb}" for verb in ("cliffs", "coverage", "grade")},
    **{verb: f"store {verb}" for verb in ("tag", "merge", "verify", "redact", "gc")},
    "distil": "export --sft",
    "train --loss": "tune",
}
PREFERENCES = ("dpo", "cliff-dpo")


def today(args: Sequence[str]) -> list[str]:
    """The words of a command line with an old spelling replaced by the one of today."""
    first, *rest = args
    if first in OLD:
        return [*OLD[first].split(), *rest]
    if first == "train" and _preference(rest):
        return ["tune", *_tune(rest)]
    return [*args]


def _preference(words: Sequence[str]) -> bool:
    """Whether ``train`` is asked for a loss of preference pairs, which `clew tune` trains on."""
    asked = [word.removeprefix("--loss=") for word in words if word.startswith("--loss=")]
    asked += [value for word, value in itertools.pairwise(words) if word == "--loss"]
    return any(value in PREFERENCES for value in asked)


def _tune(words: Sequence[str]) -> Iterator[str]:
    """What follows ``train``, as ``tune`` takes it: ``--data RUNS`` becomes ``RUNS``; what only collecting runs needs
    was never used here, and goes."""
    train, tune = (common.load_verb(verb).params for verb in ("train", "tune"))
    used = {param.name for param in tune} | {"draft"}
    unused = {option for param in train if param.name not in used for option in param.opts}
    following = iter(words)
    for word in following:
        name, equals, value = word.partition("=")
        if name == "--data":
            yield value if equals else next(following, "")
        elif name in unused and not equals:
            next(following, "")
        elif name not in unused:
            yield word
