"""Tables, marks and figure of the exact chain, from its lines of results alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from clew.audit.cliffs import wilson
from clew.core.records import Report
from papers.drawing import canvas
from papers.E172_cliffs.tier_toy import EACH, KINDS, PASSES, PROBLEMS, TRACES, N
from papers.stats import Mark, interval, markdown, mean

Line = dict[str, Any]
DETECTORS = {
    "A": "published, every token",
    "B": "and no token of chance .9 or more",
    "C": "and confirmed on a fresh 64 + 64 (mended)",
    "C, fresh 256": "the same, fresh 256 + 256",
}


class Lines:
    def __init__(self, lines: Sequence[Line]) -> None:
        every = sorted(lines, key=lambda x: x["seed"])
        self.table = next(x for x in every if x["kind"] == "table")
        self.detect = [x for x in every if x["kind"] == "detect"]
        self.dpo = [x for x in every if x["kind"] == "dpo"]
        self.cpu = sum(x["cpu_s"] for x in every)

    def of(self, detector: str, field: str) -> np.ndarray:
        return np.array([x[detector][field] for x in self.detect], float)

    def gain(self, which: str, kind: str) -> np.ndarray:
        """Change of exact success in points, by seed."""
        return np.array([100 * (x[which][kind] - x["base"]) for x in self.dpo])

    def gaps(self, field: str, kind: str) -> np.ndarray:
        return np.concatenate([np.array(x[field][kind], float) for x in self.detect])


def share(claim: str, k: float, n: float) -> Report:
    """A pooled share with Wilson's interval."""
    low, high = wilson(k, max(n, 1))
    return Report(
        claim=claim, estimate=k / max(n, 1), low=float(low), high=float(high), n=int(max(n, 1)), design="pooled, Wilson"
    )


def report(lines: Sequence[Line]) -> str:
    """Markdown, pass marks first."""
    table = Lines(lines)
    parts = [
        "# E172 on a chain whose potential is known",
        f"{len(table.detect)} seeds of {TRACES} solutions (detectors), {len(table.dpo)} seeds of {PROBLEMS} "
        f"problems x {EACH} "
        f"solutions (Cliff-DPO); {table.cpu / 60:.1f} CPU-minutes. 95 % intervals, bootstrap over seeds, shares "
        f"pooled with "
        "Wilson's.",
        "\n".join(f"- {mark}" for mark in marks(table)),
        f"## Detectors ({N} continuations a place)",
        _detectors(table),
        f"## What pairs of each kind teach (tabular DPO, beta .1, {PASSES} passes), points of exact success",
        _dpo(table),
        "## Delete minus keep, fresh continuations, at what A flags",
        _effect(table),
        "The drop that made A fire is inflated by selection (`first batch`); on fresh continuations "
        "deterministic flags show "
        "none.",
    ]
    return "\n\n".join(parts) + "\n"


def marks(t: Lines) -> list[Mark]:
    sure, bias = max(x["sure drop"] for x in t.detect), max(x["martingale"] for x in t.detect)
    precision = share("", t.of("B", "tp").sum(), (t.of("B", "tp") + t.of("B", "fp")).sum())
    spent = interval("", lambda a, b: a.mean(axis=-1) / b.mean(axis=-1), t.of("B", "rollouts"), t.of("A", "rollouts"))
    lost = float((t.of("A", "tp") - t.of("B", "tp")).sum())
    kinds = [x["false by kind"] for x in t.detect]
    false = share("", sum(k["deterministic"] for k in kinds), sum(sum(k.values()) for k in kinds))
    exact = t.table["null"]["0.5"]
    out = [
        Mark("C1", "V is the mean of what follows, to 1e-12", f"{bias:.1e}", bias < 1e-12),
        Mark("C1", "no token of chance .9 or more drops by more than .1", f"{sure:.3f} at most", sure <= 0.1),
        Mark("C2", "precision of B at least .9", precision, precision.estimate >= 0.9),
        Mark("C2", "recall of B equal to A's", f"{lost:.0f} cliffs lost", lost == 0),
        Mark("C2", "rollouts of B at most .2 of A's", spent, spent.estimate <= 0.2),
        Mark("C2", "at least .8 of A's false cliffs are deterministic", false, false.estimate >= 0.8),
        Mark("C3", "M equals brute force", f"{t.table['differences']} differences", t.table["differences"] == 0),
        Mark("C3", "the least count that can fire is 12", str(t.table["least"]), t.table["least"] == 12),
        Mark("C3", "false cliffs at .5 within [2.7e-3, 3.2e-3]", f"{exact:.2e}", 2.7e-3 <= exact <= 3.2e-3),
    ]
    for kind in KINDS:
        gain = t.gain("all", kind)
        low = kind == "deterministic"
        met = bool((gain <= 0).all() if low else (gain > 0).all())
        promise = f"{kind}: {'at most 0' if low else 'above 0'} on every seed"
        out.append(Mark("C4", promise, interval("", mean, gain), met))
    matched = t.gain("matched", "uncertain")
    spread = float(matched.std(ddof=1))
    told = f"{matched.mean():.2f} points, SD {spread:.2f}, n={len(matched)}"
    out.append(Mark("C4", "matched uncertain at least 3 SD of its seeds", told, bool(matched.mean() >= 3 * spread)))
    for kind in KINDS:
        found = interval("", mean, t.gaps("del - keep", kind), design="bootstrap over flags")
        low = kind == "deterministic"
        met = found.estimate < 0.03 if low else found.estimate > 0.1
        out.append(Mark("C5", f"{kind}: del@1 - keep@1 {'below .03' if low else 'above .1'}", found, met))
    return out


def _detectors(t: Lines) -> str:
    rows, true = [], sum(x["true"] for x in t.detect)
    for name, what in DETECTORS.items():
        hit, false = t.of(name, "tp").sum(), t.of(name, "fp").sum()
        spent = t.of(name, "rollouts").sum() / t.of("A", "rollouts").sum()
        precision, recall = share("", hit, hit + false), share("", hit, true)
        rows.append([name, what, f"{hit:.0f}", f"{false:.0f}", _text(precision), _text(recall), f"{spent:.3f} x"])
    note = f"\n\n{true} true cliffs (drop above .1)."
    return markdown(["", "detector", "true", "false", "precision", "recall", "continuations"], rows) + note


def _text(found: Report) -> str:
    return f"{found.estimate:.3f} [{found.low:.3f}, {found.high:.3f}]"


def _dpo(t: Lines) -> str:
    rows = []
    for kind in KINDS:
        pairs = [x["pairs"][kind] for x in t.dpo]
        cells = [interval("", mean, t.gain(which, kind)) for which in ("all", "matched")]
        rows.append(
            [kind, f"{min(pairs)}-{max(pairs)}", *(f"{c.estimate:+.2f} [{c.low:+.2f}, {c.high:+.2f}]" for c in cells)]
        )
    bases = [100 * x["base"] for x in t.dpo]
    fewest = [min(x["pairs"].values()) for x in t.dpo]
    head = ["kind", "pairs", "all pairs", f"as many pairs as the fewest ({min(fewest)}-{max(fewest)})"]
    return markdown(head, rows) + f"\n\nBefore: {min(bases):.1f} to {max(bases):.1f} points; n = {len(t.dpo)} seeds."


def _effect(t: Lines) -> str:
    rows = []
    for kind in KINDS:
        gaps, first = t.gaps("del - keep", kind), t.gaps("first batch", kind)
        found = interval("", mean, gaps, design="bootstrap over flags")
        rows.append([kind, str(len(gaps)), f"{first.mean():.3f}", _text(found)])
    return markdown(["kind", "flags", "first batch", "fresh del@1 - keep@1"], rows)


def figure(lines: Sequence[Line]) -> Any:
    """Left: precision and recall of the detectors. Right: what pairs of each kind teach."""
    t = Lines(lines)
    fig, (left, right) = canvas((8, 3.2), 1, 2)
    true = sum(x["true"] for x in t.detect)
    for name, colour in zip(DETECTORS, ("#D55E00", "#E69F00", "#0072B2", "#009E73"), strict=True):
        hit, false = t.of(name, "tp").sum(), t.of(name, "fp").sum()
        left.plot(hit / true, hit / max(hit + false, 1), "o", color=colour, label=f"{name}: {DETECTORS[name]}")
    left.set(xlim=(0, 1), ylim=(0, 1.05), xlabel="recall", ylabel="precision")
    left.legend(frameon=False, fontsize=7, loc="lower right")
    for i, kind in enumerate(KINDS):
        for shift, which, colour in ((-0.15, "all", "#0072B2"), (0.15, "matched", "#999999")):
            found = interval("", mean, t.gain(which, kind))
            error = [[found.estimate - found.low], [found.high - found.estimate]]
            name = {"all": "all pairs", "matched": "as many of each"}[which] if i == 0 else None
            right.errorbar(i + shift, found.estimate, error, fmt="o", color=colour, capsize=2, label=name)
    right.axhline(0, color="black", lw=0.8)
    right.set_xticks(range(len(KINDS)), KINDS)
    right.set_ylabel("change of success, points")
    right.legend(frameon=False, fontsize=7)
    return fig
