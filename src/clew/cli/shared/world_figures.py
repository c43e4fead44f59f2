"""Figures of a model of a world as `clew world fit` and `clew world eval` print them: a share is never told alone.

Each share has its number of answers and an interval in which tasks are drawn whole. Answers that failed count as wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clew.core.records import Report
    from clew.methods.world_model.observing.open_loop import Outcome

HEADS = ("content", "answers", "exact", "same form", "words F1", "copying")


def share_of(claim: str, values: Sequence[float], tasks: Sequence[str]) -> Report:
    """A mean with an interval over tasks; Wilson's where all tasks have one share, which has no spread to draw: over
    tasks, or over answers where there is one task."""
    from dataclasses import replace

    from clew.methods.compare import design

    n, many = len(set(tasks)), len(values)
    if n > 1:
        made = design.clustered(claim, list(values), list(tasks), unit="tasks")
        if made.low < made.high:
            return made
    else:
        made = design.rate(claim, round(sum(values)), many)  # replaced below but for its claim and count
        made = replace(made, estimate=sum(values) / many)
    units = n if n > 1 else many
    low, high = design.wilson(made.estimate * units, float(units))
    text = f"{many} answers, {n} tasks with one share, Wilson interval over {'tasks' if n > 1 else 'answers'}"
    return replace(made, low=max(0.0, min(low, made.estimate)), high=min(1.0, max(high, made.estimate)), design=text)


def measures(found: Sequence[Outcome]) -> dict[str, dict[str, Report]]:
    """Of all answers and of each class of content: exact, form, words, and what repeating the last answer would do."""
    from clew.methods.world_model.observing.open_loop import by_content

    out: dict[str, dict[str, Report]] = {}
    for name, part in by_content(found).items():
        tasks = [one.task for one in part]
        columns = {"exact": [one.exact for one in part], "form": [one.form for one in part]}
        scores = {"words": [one.words for one in part], "copying": [float(one.copied) for one in part]}
        columns_all = {**{k: list(map(float, v)) for k, v in columns.items()}, **scores}
        out[name] = {key: share_of(f"{name}: {key}", values, tasks) for key, values in columns_all.items()}
    return out


def fidelity_rows(found: Sequence[Outcome]) -> tuple[tuple[str, ...], list[tuple[object, ...]]]:
    """Heads and rows of a table of the measures."""
    from clew.methods.world_model.observing.open_loop import by_content

    sizes = {name: len(part) for name, part in by_content(found).items()}
    rows: list[tuple[object, ...]] = []
    for name, one in measures(found).items():
        shown = [f"{r.estimate:.2f} [{r.low:.2f}, {r.high:.2f}]" for r in one.values()]
        rows.append((name, sizes[name], *shown))
    return HEADS, rows


def beside_table(found: Sequence[Outcome], hits: Sequence[bool]) -> dict[str, Report]:
    """What a table of the commonest answers has exact, and of the answers that it misses, what the model has.

    Args:
        hits: of each answer, whether the table has it.
    """
    tasks = [one.task for one in found]
    claim = "a table of the commonest answer to each action, without a model, has"
    told = {claim: share_of(claim, list(map(float, hits)), tasks)}
    missed = [one for one, hit in zip(found, hits, strict=True) if not hit]
    if missed:
        claim = f"of the {len(missed)} answers that it misses, the model has"
        told[claim] = share_of(claim, [float(one.exact) for one in missed], [one.task for one in missed])
    return told


def figures(found: Sequence[Outcome]) -> dict[str, Any]:
    """The measures as JSON, with failures by reason and what the answers took."""
    from clew.cli.shared.run_options import numbers
    from clew.methods.world_model.observing.open_loop import failures

    told = {name: {key: numbers(r) for key, r in one.items()} for name, one in measures(found).items()}
    return {"answers": len(found), "fidelity": told, "failures": failures(found), "spent": spent(found)}


def spent(found: Sequence[Outcome]) -> dict[str, float]:
    """Tokens read and written, US dollars, and the seconds that the model took, summed over all answers."""
    return {
        "asked_tokens": sum(one.asked for one in found),
        "written_tokens": sum(one.written for one in found),
        "dollars": sum(one.cost for one in found),
        "model_seconds": round(sum(one.seconds for one in found), 3),
    }
