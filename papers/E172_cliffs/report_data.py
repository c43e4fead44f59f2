"""Table and figure of the tier on released potentials, from its lines of results alone."""

from collections.abc import Sequence
from typing import Any

from clew.methods.cliffs import statistics
from papers.drawing import canvas
from papers.stats import Line, document, table

ABSENT = "# E172 on released potentials\n\nDid not run: ../shared/data/cliffs/paths.jsonl.gz is absent.\n"


def report(lines: Sequence[Line]) -> str:
    """Markdown: what is listed, what the rule finds, and what the mended form would make of it."""
    if not lines:
        return ABSENT
    listed, found = ([(x["path"], p) for x in lines for p in x[field]] for field in ("listed", "found"))
    more = [f"{path} at token {p}" for path, p in found if (path, p) not in listed]
    missed = [f"{path} at token {p}" for path, p in listed if (path, p) not in found]
    false, hit = sum(x["false expected"] for x in lines), len(listed) - len(missed)
    return document(
        "# E172 on released potentials",
        f"{len(lines)} wrong solutions of {lines[0]['model']}, {sum(x['tokens'] for x in lines):,} tokens, 64 "
        "continuations from each place; potentials as the authors released them.",
        f"- the published rule finds {hit} of {len(listed)} listed cliffs"
        + (f"; missed: {', '.join(missed)}" if missed else "")
        + f"\n- it finds {len(found) - hit} more: {', '.join(more) or 'none'}"
        + f"\n- were nothing but noise there, {false:.2f} positions would fire by chance at these potentials (exact)",
        _table(lines),
        "`chance`: of the token at temperature 1, between these bounds by its listed entropy and rank (nothing is "
        "listed for the one more). `tested`: whether it could fall by more than .1, so that the mended form samples "
        "there; the authors' sampler (T .7, top-p .8, top-k 20) raises the chance of a likely token. `p adjusted`: of "
        '"the drop is at most .1", score test, over all positions tested, on the batches that fired: selection has '
        "inflated these. The mended form asks a fresh batch, which cannot be drawn here, so that the places around "
        "decide. `around`: potentials of up to five places on either side, pooled, neither of the two that fired nor "
        "any beyond the next position, with the same test's p, adjusted likewise; `kept`: that is at most .05.",
    )


def tested(row: Line) -> str:
    """Whether the mended form would sample at a position: not where the token is so likely that it cannot fall."""
    low, high = row["chance"]
    if low >= 1 - statistics.MARGIN:
        return "no"
    return "yes" if high < 1 - statistics.MARGIN else "if its chance is below .9"


def sure(lines: Sequence[Line], field: str = "p near") -> dict[tuple[str, int], float]:
    """Adjusted p-values of the positions that are tested, over all of them together.

    ``p near`` is that of the places around, which decides: ``p`` is of the batches that made the position fire.
    """
    rows = [(path, x) for path, x in cliffs(lines) if tested(x) != "no"]
    adjusted = statistics.adjusted([x[field] for _, x in rows]).tolist()
    return {(path, x["position"]): q for (path, x), q in zip(rows, adjusted, strict=True)}


def cliffs(lines: Sequence[Line]) -> list[tuple[str, Line]]:
    return [(line["path"], x) for line in lines for x in line["cliffs"]]


def _table(lines: Sequence[Line]) -> str:
    fired, near = sure(lines, "p"), sure(lines)
    rows = [
        {**x, "path": path, "q": fired.get((path, x["position"])), "around": near.get((path, x["position"]), 1.0)}
        for path, x in cliffs(lines)
    ]
    return table(
        rows,
        ("solution", "path"),
        ("token", "position"),
        ("text", lambda x: f"`{x['token'].strip()}`"),
        ("type", lambda x: x["type"] or "not listed"),
        ("chance", lambda x: "{:.3f} to {:.3f}".format(*x["chance"]) if x["listed"] else "?"),
        ("drop, 95 %", lambda x: f"{x['before'] - x['after']:.2f} [{x['low']:.2f}, {x['high']:.2f}]"),
        ("tested", tested),
        ("p adjusted", lambda x: "" if x["q"] is None else f"{x['q']:.2g}"),
        ("around", lambda x: f"{x['near before']:.2f} to {x['near after']:.2f} (p {x['around']:.2g})"),
        ("kept", lambda x: "yes" if x["around"] <= statistics.LEVEL else "no"),
    )


def figure(lines: Sequence[Line]) -> Any:
    """Drops of the positions found, with intervals; blue where the places around bear them out."""
    rows, kept = cliffs(lines), sure(lines)
    fig, axis = canvas((6, 2.6))
    for i, (name, x) in enumerate(rows):
        colour = "#0072B2" if kept.get((name, x["position"]), 1.0) <= statistics.LEVEL else "#999999"
        drop = x["before"] - x["after"]
        axis.errorbar(drop, i, xerr=[[drop - x["low"]], [x["high"] - drop]], fmt="o", color=colour, capsize=2)
    axis.set_yticks(range(len(rows)), [f"{name.removesuffix('_path_0')} {x['position']}" for name, x in rows])
    axis.axvline(statistics.MARGIN, color="black", lw=0.8, ls=":")
    axis.set_xlabel("drop of the potential (blue: the places around bear it out)")
    return fig
