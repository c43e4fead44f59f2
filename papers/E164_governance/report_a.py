"""Tables, pass marks and figure of tier A, from its lines of results alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from clew.audit.compaction.structural import Finding, verdicts
from papers.drawing import canvas
from papers.stats import Mark, markdown

Line = dict[str, Any]


def grids(lines: Sequence[Line], pinned: bool) -> list[Line]:
    return [line for line in lines if line["kind"] == "grid" and line["pinned"] is pinned]


def pass_marks(lines: Sequence[Line]) -> list[Mark]:
    marks = []
    for line in lines:
        if line["kind"] == "measured" and not line["pinned"]:
            for c in line["claims"]:
                met = c["lost"] == c["predicted"] and c["fired"] == c["n"]
                marks.append(
                    Mark(c["claim"], f"lost {c['predicted']} of {c['n']}", f"lost {c['lost']} of {c['n']}", met)
                )
        elif line["kind"] == "measured":
            lost, n = (sum(c[k] for c in line["claims"]) for k in ("lost", "n"))
            marks.append(Mark("the same runs with the pin", "lost 0", f"lost {lost} of {n}", lost == 0))
    pins = grids(lines, True)
    if pins:
        found = [line["found"] for line in pins]
        sent, kept = sum(f["n"] - f["failed"] for f in found), sum(f["kept"] for f in found)
        marks.append(Mark("pin, whole grid", "kept in every request", f"{kept} of {sent}", kept == sent))
        blocks = sorted({b for line in pins for b in line["blocks"]})
        marks.append(Mark("pin, blocks in a request", "exactly one", str(blocks), blocks == [1]))
        most = max(line["tokens"] for line in pins)
        marks.append(Mark("pin, tokens of the block", "at most 60", str(most), most <= 60))
        torn = sum(f["torn"] for f in found)
        marks.append(Mark("pin, requests with an orphaned tool message", "0", str(torn), torn == 0))
    return marks


def report(lines: Sequence[Line]) -> str:
    """Markdown of the tier, pass marks first."""
    rows, by = [], []
    pins = {line["stack"]: line["found"] for line in grids(lines, True)}
    for line in [line for line in grids(lines, False) if line["stack"] in pins]:
        f, p = line["found"], pins[line["stack"]]
        rows.append([
            line["stack"], f["version"] or "this one", f"{f['kept']} of {f['n'] - f['failed']}",
            str(f["unseen"]), str(f["later"]), str(f["failed"]), str(f["torn"]),
            f"{p['kept']} of {p['n'] - p['failed']}",
        ])  # fmt: skip
        cells = [
            "; ".join(f"{value} {kept}/{n}" for value, (kept, n) in line["by"][field].items())
            for field in ("history", "position", "channel", "mix", "generation")
        ]
        by.append([line["stack"], *cells])
    head = [
        "stack",
        "version",
        "kept",
        "never seen",
        "lost later",
        "gave up",
        "with torn tool messages",
        "kept, pinned",
    ]
    found, held = ([Finding(**line["found"]) for line in grids(lines, pinned)] for pinned in (False, True))
    where = sorted({line["versions"] for line in lines})
    parts = [
        "## Tier A: what stacks do to a rule before any model can neglect it",
        f"Versions: {'; '.join(where)}. Deterministic, so every figure is a count over the grid, not a sample: history "
        "1.1, 2, 5, 10 x the budget of 3,000 tokens; rule first, fourth, in the middle, last; told by system message, "
        "user, memory or tool; chat and tool loop; five generations of compaction. The summariser repeats the rule "
        "whenever it sees it. Kept counts requests to the model; `gave up`: feeds at which the stack raised an error.",
        "\n".join(f"- {mark}" for mark in pass_marks(lines)),
        markdown(head, rows),
        "Verdicts\n\n" + "\n".join(f"- {sentence}" for sentence in verdicts(found, held)),
        markdown(["kept by", "history", "position", "channel", "mix", "generation"], by),
    ]
    return "\n\n".join(parts) + "\n"


def figure(lines: Sequence[Line]) -> Any:
    """Share of requests that still hold the rule, by stack and generation."""
    plain = grids(lines, False)
    fig, axis = canvas((7, 0.3 * len(plain) + 1.2))
    shares = [[kept / n if n else float("nan") for kept, n in line["by"]["generation"].values()] for line in plain]
    width = max(map(len, shares))
    image = axis.imshow(
        [row + [float("nan")] * (width - len(row)) for row in shares], vmin=0, vmax=1, aspect="auto", cmap="cividis"
    )
    axis.set(xlabel="generation", xticks=range(width), xticklabels=range(1, width + 1), yticks=range(len(plain)),
             yticklabels=[line["stack"] for line in plain])  # fmt: skip
    fig.colorbar(image, label="requests with the rule")
    return fig
