"""The report of the tier matched. The marks are ours, set before any of its cells ran."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from papers.E171_early.report_organisms import _figure, _name
from papers.experiment import Line
from papers.stats import Mark, document, table


def report(lines: Sequence[Line]) -> str:
    shown = table(
        lines,
        ("organism", _called),
        ("seed", "seed"),
        ("prompts, with runs of both outcomes", lambda x: f"{x['prompts']}, {x['mixed']}"),
        ("AUROC first thinking token", lambda x: _figure(x["first"])),
        ("the same between runs of one prompt", lambda x: _figure(x["first matched"])),
        ("last thinking token between runs of one prompt", lambda x: _figure(x["last matched"])),
    )
    marks = [found for line in lines for found in of(line)]
    return document("# E171, tier matched: runs of one prompt that end differently", shown, marks)


def _called(line: Line) -> str:
    return f"{line['organism']} (tau {line['tau']})" if line["organism"] == "L" else _name(line)


def of(line: Line) -> Iterator[Mark]:
    """The marks of one organism at one seed."""
    who, first, last = f"{_called(line)} seed {line['seed']}", line["first matched"], line["last matched"]
    if line["tau"] == 1:
        yield Mark(f"{who}, first token between runs", "at least .95: it is the coin", _figure(first), first[0] >= 0.95)
    else:
        promise = ".5 in the interval, estimate .4 to .6: no coin has fallen"
        met = first[1] <= 0.5 <= first[2] and 0.4 <= first[0] <= 0.6
        yield Mark(f"{who}, first token between runs", promise, _figure(first), met)
    yield Mark(f"{who}, last token between runs", "at least .9: all is settled", _figure(last), last[0] >= 0.9)


def figure(lines: Sequence[Line]) -> None:
    return None
