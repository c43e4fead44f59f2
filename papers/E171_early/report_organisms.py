"""The report of the tier organisms: marks of specs/E171 section 9, and a verdict for each organism."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from papers.E171_early.organisms import LENGTH
from papers.experiment import Line
from papers.stats import Mark, document, mark, pooled, table

EXPECTED = {
    "E": "decided at the prompt", "L": "open until then", "C50": "predictable but computed in the trace",
    "C12": "predictable but computed in the trace", "M": "open until then", "F": "open until then",
}  # fmt: skip


def report(lines: Sequence[Line]) -> str:
    some = [line for line in lines if line["organism"] != "A"]
    marks = [found for line in some for found in of(line)] + list(across(some)) + list(causal(lines))
    shown = table(
        some,
        ("organism", _name),
        ("seed", "seed"),
        ("AUROC h0", lambda x: _figure(x["h0"])),
        ("prompt alone", lambda x: _figure(max((x["prompt"], x["places"]), key=lambda r: r[0]))),
        ("first word", lambda x: _figure(x["word"])),
        ("flips resampled", lambda x: "/".join(f"{f[0]:.2f}" for f in _five(x["flips"]))),
        (
            "flips forced",
            lambda x: "/".join(f"{f[0]:.2f}" for f in _five(x["saving"]["risks"])) if x.get("saving") else "",
        ),
        ("s0", lambda x: _figure(x["fixed"])),
        ("swap", lambda x: _figure(x["swap"])),
        ("half settled at", lambda x: f"{x['time'][0] * LENGTH:.0f}" if x["time"] else "not defined"),
        ("verdict", "verdict"),
    )
    return document("# E171, tier organisms: what the audit says of known mechanisms", shown, marks)


def _name(line: Line) -> str:
    return f"{line['organism']} (tau {line['tau']})" if line["organism"] == "L" else str(line["organism"])


def _five(values: Sequence[Any]) -> list[Any]:
    return [values[int(k)] for k in np.linspace(0, len(values) - 1, 5)]


def _figure(found: Sequence[float]) -> str:
    return f"{found[0]:.2f} [{found[1]:.2f}, {found[2]:.2f}]"


def _said(line: Line, what: str, promise: str, found: Sequence[float] | str, met: bool) -> Mark:
    return Mark(
        f"{_name(line)} seed {line['seed']}, {what}", promise, found if isinstance(found, str) else _figure(found), met
    )


def of(line: Line) -> Iterator[Mark]:
    """The marks of one organism at one seed."""
    kind, h0, swap = line["organism"], line["h0"], line["swap"]
    yield _said(line, "verdict", EXPECTED[kind], line["verdict"], line["verdict"] == EXPECTED[kind])
    shuffled = line["shuffled"]
    yield _said(line, "shuffled labels", ".5 +- .03", shuffled, abs(shuffled[0] - 0.5) <= 0.03)
    if kind == "E":
        yield _said(line, "AUROC h0", "at least .98", h0, h0[0] >= 0.98)
        yield _said(line, "first word", "at most .55", line["word"], line["word"][0] <= 0.55)
        yield _said(line, "swap flips", "at most .02", swap, swap[0] <= 0.02)
        n = sum(line["cuts"].values())
        text = f"{line['performative']} of {n} ({line['cuts']['equivalent']} equivalent)"
        yield _said(line, "performative stance changes", "at least .95", text, line["performative"] / n >= 0.95)
    if kind == "L":
        yield _said(line, "AUROC h0", ".45 to .57", h0, 0.45 <= h0[0] <= 0.57)
        yield _said(line, "swap flips", "at least .95", swap, swap[0] >= 0.95)
        flips = [flip[0] for flip in line["flips"]]
        early, late = flips[: line["tau"]], flips[line["tau"] :]
        text = f"{min(early):.2f} to {max(early):.2f}; {max(late):.2f} at most"
        good = min(early) >= 0.4 and max(early) <= 0.6 and max(late) <= 0.05
        yield _said(line, "flips", ".4 to .6 before the coin, at most .05 after it", text, good)
    if kind in ("C50", "C12"):
        beyond = h0[0] - max(line["prompt"][0], line["places"][0])
        yield _said(line, "AUROC h0 - AUROC prompt", "at most .05", f"{beyond:+.3f}", beyond <= 0.05)
        yield _said(line, "swap flips", "at least .9", swap, swap[0] >= 0.9)
    if kind == "M":
        fixed = line["fixed"]
        yield _said(line, "early fraction", ".5 +- .07", fixed, abs(fixed[0] - 0.5) <= 0.07)


def across(lines: Sequence[Line]) -> Iterator[Mark]:
    """The commitment time over all organisms that have one, and verdicts."""
    right = [_timed(line) for line in lines if line["organism"] in ("E", "L")]
    if right:
        promise = "within one token in at least .9 (tau 0: not defined, as nothing is open), tau 0, 3, 6, 9"
        yield mark("commitment time", promise, pooled(sum(right), len(right)), least=0.9)
    good = [line["verdict"] == EXPECTED[line["organism"]] for line in lines]
    yield mark("verdicts", "right for every organism", pooled(sum(good), len(good)), least=1.0)


def _timed(line: Line) -> bool:
    if line["organism"] == "E":
        return line["time"] is None
    return line["time"] is not None and abs(line["time"][0] * LENGTH - line["tau"]) <= 1


def causal(lines: Sequence[Line]) -> Iterator[Mark]:
    """The patch arm: h0 of the prompt's last token, at the best layer."""
    for line in lines:
        if "patched" not in line:
            continue
        shares = {name: hits / n for name, (hits, n) in line["patched"].items()}
        best = max(value for name, value in shares.items() if name.startswith("h0"))
        text = ", ".join(f"{name} {value:.2f}" for name, value in shares.items())
        kind = line["organism"]
        if kind == "L":
            yield _said(line, "patched h0", "changes at most .1", text, best <= 0.1)
        elif kind == "E":
            yield _said(line, "patched h0", "changes at least .8 at the best layer", text, best >= 0.8)
        else:
            yield _said(line, "patched h0", "ours: changes at least .8 where h0 does decide", text, best >= 0.8)


def figure(lines: Sequence[Line]) -> Any:
    """Flips after each share of the thinking, resampled and forced, of the first seed."""
    from papers.drawing import canvas, finish

    first = [line for line in lines if line["seed"] == 0 and line["organism"] != "A"]
    if not first:
        return None
    drawn, axes = canvas((8, 3.4), 1, 2)
    for axis, title in zip(np.ravel(axes), ("thinking resampled", "forced answers"), strict=False):
        for line in first:
            rows = line["flips"] if title.startswith("thinking") else (line.get("saving") or {}).get("risks", [])
            if rows:
                axis.plot(line["at"], [row[0] for row in rows], marker="o", ms=3, label=_name(line))
        axis.set_title(title)
        axis.set_xlabel("share of the thinking that is kept")
        axis.set_ylabel("outcomes differ")
    finish(*np.ravel(axes))
    return drawn
