"""Rewards by name: the scorers in the box, functions in files, and functions at hand, each with its weight.

``Dataset`` calls ``rewards``. A reference reads ``exact``, ``numeric(tolerance=0.1)``, ``reward.py:score``, and with a
weight ``0.2*length.py:short``.
"""

from __future__ import annotations

import hashlib
import inspect
import math
import os
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from clew.core.errors import BadInput, ClewError, MissingExtra, UnknownName
from clew.core.registry import parse_ref
from clew.core.sources import file_of, gone, load_file, load_named, placed
from clew.exchange.dataset import functions
from clew.exchange.dataset.given import Given, Reward, Verdict, row_of
from clew.exchange.dataset.model_judge import ModelJudge
from clew.harness.loading import agent_ref
from clew.methods.world_model.observing.rewarding import observation
from clew.sandbox.sandbox import Sandbox
from clew.worlds.scorers.json_schema import json_schema
from clew.worlds.scorers.mathematics import Mathematics
from clew.worlds.scorers.numeric import numeric
from clew.worlds.scorers.texts import exact, regex
from clew.worlds.scorers.unit_tests import unit_tests

Function = Callable[..., Any]
BOX: Mapping[str, Function] = {
    "exact": exact, "numeric": numeric, "regex": regex, "json_schema": json_schema, "unit_tests": unit_tests,
    "observation": observation,
}  # fmt: skip
MADE: Mapping[str, Function] = {"mathematics": Mathematics, "judge": ModelJudge}  # hold a process, or a model
NAMES = (*BOX, *MADE)
TAKEN = ("reward", "undecided", "env")  # names that a verdict has already
WEIGHT = re.compile(r"\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*\*\s*(.+)", re.DOTALL)
HOW = f"Write one of {', '.join(NAMES)}, or path/file.py:FUNCTION, with a weight before it as in 0.2*exact."


def references(given: object) -> list[tuple[float, str, Function | None]]:
    """Weight, reference and, where one is at hand, function of each reward that was given.

    Raises:
        BadInput: it is neither a name, a function, a pair of weight and one of these, nor a list of them.
    """
    if isinstance(given, str) or callable(given) or _is_pair(given):
        given = [given]
    if not isinstance(given, Sequence) or not given:
        raise BadInput("no reward was given", remedy=HOW)
    return [_reference(one) for one in given]


def _is_pair(given: object) -> bool:
    return isinstance(given, tuple) and len(given) == 2 and isinstance(given[0], (int, float))


def _reference(given: object) -> tuple[float, str, Function | None]:
    weight = 1.0
    if isinstance(given, tuple) and _is_pair(given):
        weight, given = float(given[0]), given[1]
    if isinstance(given, str):
        found = WEIGHT.fullmatch(given)
        if found:
            weight, given = weight * float(found[1]), found[2]
        if not math.isfinite(weight):
            raise BadInput(f"the weight {weight} of {given!r} is not finite", remedy=HOW)
        return weight, _absolute(given.strip()), None
    if not callable(given):
        raise BadInput(f"{given!r} is no reward", remedy=HOW)
    return weight, agent_ref(given), given


def _absolute(ref: str) -> str:
    """A file's reference with its whole path, by which another process finds it."""
    head, bracket, rest = ref.partition("(")
    place, _, name = head.rpartition(":")
    if place.endswith(".py"):
        return f"{os.path.abspath(place)}:{name}{bracket}{rest}"
    if head.endswith(".py"):
        raise BadInput(f"{ref} is a file, and no function in it is named", remedy=f"Write {ref}:FUNCTION.")
    return ref


def written(weight: float, ref: str) -> str:
    """A reward as one types it."""
    return ref if weight == 1 else f"{weight:g}*{ref}"


def source_of(ref: str, function: Function | None = None) -> str:
    """Digest (hex) of the source that a reference means: of the file where it names one, else of the function.

    Raises:
        UnknownName: the file is not there.
    """
    if file := file_of(ref):
        try:
            return hashlib.blake2b(Path(placed(file)).read_bytes(), digest_size=8).hexdigest()
        except OSError as error:
            remedy = f"Put it back, or name the one to use instead with --reward. {gone(file)}".strip()
            raise UnknownName(f"the reward {ref} is not to be had: {error.strerror}", remedy=remedy) from error
    if function is not None:
        try:
            return hashlib.blake2b(inspect.getsource(function).encode(), digest_size=8).hexdigest()
        except (OSError, TypeError):
            return ""
    return ""


def rewards(
    chosen: Sequence[tuple[float, str, Function | None]], columns: Sequence[str], seconds: float
) -> list[Reward]:
    """Rewards that can be called, each under a name of its own.

    Raises:
        BadInput: one is not to be had, or takes what nothing gives it.
    """
    made, taken = list[Reward](), {*TAKEN}
    for weight, ref, function in chosen:
        name = base = re.sub(r"\W", "_", ref.partition("(")[0].rpartition(":")[2].rpartition(".")[2]) or "score"
        again = 1
        while name in taken:
            again += 1
            name = f"{base}_{again}"
        taken.add(name)
        score = _in_box(ref) if function is None and ":" not in ref.partition("(")[0] else None
        if score is None:
            function = function or _loaded(ref)
            where = _where(ref)
            functions.check(function, where, columns)
            score = functions.scored_by(function, where, seconds)
        made.append(Reward(name, weight, ref, score, source_of(ref, function)))
    return made


def _where(ref: str) -> str:
    """A function as errors name it: its file without the folders."""
    head = ref.partition("(")[0]
    file = file_of(ref)
    return f"{os.path.basename(file)}:{head.rpartition(':')[2]}" if file else head


def _loaded(ref: str) -> Function:
    name, arguments = parse_ref(ref)
    place, _, thing = name.rpartition(":")
    if place.startswith("<"):
        remedy = "Name the function by its file, as in --reward reward.py:score, or give it in Python again."
        raise UnknownName(
            f"the reward {thing} was written in a notebook or shell and is not to be had here", remedy=remedy
        )
    try:
        found: Any = load_file(place) if place.endswith(".py") else load_named(place)
        for part in thing.split("."):
            found = getattr(found, part)
    except ClewError:
        raise
    except Exception as error:  # whatever the file raises while it is executed
        said = f"{type(error).__name__}: {error}" if not isinstance(error, ImportError) else str(error)
        remedy = f"Write path/file.py:FUNCTION, seen from {Path.cwd()}, and mend what the error names."
        raise UnknownName(f"the reward {ref} cannot be loaded: {said}", remedy=remedy) from error
    return partial(found, **arguments) if arguments else found


def _in_box(ref: str) -> Callable[[Given], Awaitable[Verdict]]:
    name, arguments = parse_ref(ref)
    if name not in NAMES:
        raise UnknownName(f"no reward is called {name!r}", remedy=HOW)
    scorer = MADE[name] if name in MADE else BOX[name]
    if scorer is unit_tests:
        Sandbox()  # now, and not in the first verdict, is the time to hear that there can be none
    try:
        inspect.signature(scorer).bind(*([] if name in MADE else ["", ""]), **arguments)
        made = scorer(**arguments) if name in MADE else partial(scorer, **arguments)
    except TypeError as error:
        takes = [p for p in inspect.signature(scorer).parameters if p not in ("reply", "answer", "columns")]
        raise BadInput(f"{ref!r}: {error}", remedy=f"{name} takes {', '.join(takes)}.") from error
    return _scored(made, ref)


def _scored(scorer: Function, ref: str) -> Callable[[Given], Awaitable[Verdict]]:
    """A scorer of the box as a reward: a row that it cannot judge by is undecided, and ``why`` names it."""

    sees_row = "columns" in inspect.signature(scorer).parameters

    async def score(given: Given) -> Verdict:
        if isinstance(scorer, ModelJudge):
            return await scorer(given)
        if given.answer is None and not _knows(scorer):
            remedy = "Name the column of answers (--answer), or tell the scorer what it compares with."
            return Verdict(None, why=f"{ref} compares with the answer, and {row_of(given)} has none. {remedy}")
        try:
            value = scorer(given.reply, given.answer, **({"columns": given.columns} if sees_row else {}))
            return Verdict(float(await value if inspect.isawaitable(value) else value))
        except MissingExtra:
            raise
        except BadInput as error:
            return Verdict(None, why=f"{ref}, {row_of(given)}: {error.message}. {error.remedy}")

    return score


def _knows(scorer: Function) -> bool:
    """Whether a scorer was told all it needs, so that it can do without the row's answer."""
    told = getattr(scorer, "keywords", {})
    return bool(told.get("schema") or (told.get("pattern") and not told.get("group")))
