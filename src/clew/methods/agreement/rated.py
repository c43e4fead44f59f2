"""What was rated: labelled runs or Calls, with what people say of each, what a judge says, and how long each is.

``held`` compares them. Nothing is filed here. Of one task all things lie in the same half, so that a judge tuned on one
half has seen no task of the other.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import blake2b
from statistics import median_low
from typing import Literal, NamedTuple

from clew.core.errors import BadInput
from clew.core.printable import short
from clew.core.records import Annotation
from clew.methods.agreement.raters import Metric
from clew.store import Run
from clew.store.labels import STARS, UNSURE, VERDICTS, Label, verdict_set
from clew.store.protocol import latest_last
from clew.store.run import sampled

On = Literal["run", "call"]


class Scale(NamedTuple):
    """Categories that are compared: their names, the worst first, and how far they lie apart."""

    name: str
    words: tuple[str, ...]
    metric: Metric
    rating: Callable[[Label], int | None]  # of one label; None where it says nothing on this scale


class Rated(NamedTuple):
    """One labelled thing. people: category by author. consensus: what most of them say. value: the judge's, None where
    it said nothing. lengths: by name. tune: whether it lies in the half to tune a judge on. undecided: whether the
    judge said that it cannot say."""

    place: str
    run: str
    task: str
    kind: str
    people: Mapping[str, int]
    consensus: int | None
    value: float | None
    lengths: Mapping[str, float]
    tune: bool
    undecided: bool = False


def verdict_scale(verdicts: Sequence[str] = VERDICTS) -> Scale:
    """Two categories: the worse and the better half of a set of verdicts; ``unsure`` and a middle word are none."""
    words = [word for word in verdict_set(verdicts) if word != UNSURE]
    half = len(words) // 2
    place = dict.fromkeys(words[:half], 1) | dict.fromkeys(words[len(words) - half :], 0)
    if not half:
        raise BadInput(f"{', '.join(verdicts)} has no two words to compare", remedy="Name two or more besides unsure.")
    names = ("/".join(w for w in words if place.get(w) == n) for n in (0, 1))
    return Scale("verdict", tuple(names), "nominal", lambda label: place.get(label.verdict))


def star_scale() -> Scale:
    """Five ordered categories, of which neighbours count as nearly agreeing."""
    words = tuple(f"{n}★" for n in STARS)
    return Scale("stars", words, "interval", lambda label: None if label.stars is None else label.stars - 1)


def rated(
    runs: Iterable[Run],
    method: str,
    scale: Scale,
    *,
    on: On = "run",
    by: str = "",
    kind: str = "",
    share: float = 0.5,
    params: str = "",
) -> list[Rated]:
    """The labelled runs (or Calls), each with what ``method`` filed on it; things without a label on the scale are left
    out.

    Args:
        by: only this author's labels count.
        kind: the field of the task's data that says its kind; default the world's name.
        share: of the tasks, how many lie in the half to tune on; chosen by a hash of the task.
        params: only values filed under these parameters count, such as those of one version of a judge.
    """
    found: dict[str, Rated] = {}
    for run in runs:
        people: dict[str, dict[str, int]] = {}
        for label in run.labels:
            rating = scale.rating(label)
            wanted = (label.seq < 0) == (on == "run") and label.span is None and (not by or label.by == by)
            if wanted and rating is not None:
                people.setdefault(label.place, {})[label.by] = rating
        if not people:
            continue
        said_of = [a for a in run.annotations(target=on) if a.params == params or not params]
        values = _values(a for a in said_of if a.method == method)
        names = (method, "undecided") if method == "reward" else (method,)
        silent = {a.seq for a in said_of if a.method in names and a.value is None}
        about = (_task(run), _kind(run, kind))
        half = to_tune_on(run, share)
        for place, said in people.items():
            seq = -1 if on == "run" else int(place.rpartition("@")[2])
            lengths = _lengths(run, seq)
            value = values.get(seq)
            most, mute = consensus(said, scale), value is None and seq in silent
            found[place] = Rated(place, run.id, *about, said, most, value, lengths, half, mute)
    return list(found.values())


def to_tune_on(run: Run, share: float) -> bool:
    """Whether a run's task lies in the half to tune a judge on: by a hash of the task, so that all its runs do."""
    task = _task(run).encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(task, digest_size=8).digest()) < share * 2**64


def _task(run: Run) -> str:
    return f"{run.taskset} {run.task_id or run.id}"


def consensus(people: Mapping[str, int], scale: Scale) -> int | None:
    """What most people say: of two categories the more frequent, None where both are as frequent; on an ordered scale
    the median, of two medians the lower."""
    said = sorted(people.values())
    if scale.metric != "nominal":
        return median_low(said)
    return None if 2 * sum(said) == len(said) else int(2 * sum(said) > len(said))


def _values(annotations: Iterable[Annotation]) -> dict[int, float]:
    """A judge's value by Call (-1: the run); of several versions the highest counts, as for rewards."""
    kept = latest_last(annotations)
    return {a.seq: a.value for a in kept if a.value is not None}


def _kind(run: Run, field: str) -> str:
    if not field:
        return run.taskset.partition("(")[0] or run.row.origin
    told = json.loads(run.row.task or "{}").get("data") or {}
    return short(str(told.get(field, "")), 40) if isinstance(told, dict) else ""


def _lengths(run: Run, seq: int) -> dict[str, float]:
    """What simple rules look at: how much was done and said."""
    asks = [c for c in run.calls if c.node_out and seq in (-1, c.seq)]
    said = run.store.node(asks[-1].node_out).message.text if asks else ""
    lengths = {"characters of the last reply": float(len(said)), "tokens": float(sum(map(sampled, asks)))}
    return lengths if seq >= 0 else lengths | {"steps": float(len(run.steps))}


def categories(values: Sequence[float], scale: Scale, threshold: float) -> list[int]:
    """A judge's values as categories: above the threshold is the better half; stars are whole numbers from 1 to 5, or
    values from 0 to 1 that are spread over them.

    Raises:
        BadInput: values that are no stars.
    """
    if scale.name == "verdict":
        return [int(value > threshold) for value in values]
    most = len(scale.words)
    if all(value == int(value) and 1 <= value <= most for value in values):
        return [int(value) - 1 for value in values]
    if all(0 <= value <= 1 for value in values):
        return [min(int(value * most), most - 1) for value in values]
    told = f"the judge's values reach from {min(values):g} to {max(values):g}, which are no stars"
    raise BadInput(told, remedy="Let it give 1 to 5, or 0 to 1; or compare verdicts: --scale verdict --threshold T.")
