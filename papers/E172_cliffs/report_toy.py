"""Tables, marks and figure of the exact chain, from its lines of results alone."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from papers.drawing import canvas, finish, whiskers
from papers.E172_cliffs.tier_toy import EACH, KINDS, PASSES, PROBLEMS, TRACES, N
from papers.stats import Line, Mark, Results, document, mark, markdown, minutes, over, pooled, show, table, times

DETECTORS = {
    "A": "published, every token",
    "B": "and no token of chance .9 or more",
    "C": "and confirmed on a fresh 64 + 64 (mended)",
    "C, fresh 256": "the same, fresh 256 + 256",
}


class Lines(Results):
    def __init__(self, lines: Sequence[Line]) -> None:
        super().__init__(lines)
        self.detect, self.dpo = self.of(kind="detect"), self.of(kind="dpo")
        self.table = self.of(kind="table")[0]
        self.true = sum(x["true"] for x in self.detect)

    def found(self, detector: str, field: str) -> np.ndarray:
        return self.get(detector, field, kind="detect")

    def hits(self, detector: str) -> tuple[float, float]:
        """True cliffs found, and all that was flagged."""
        hit = self.found(detector, "tp").sum()
        return hit, hit + self.found(detector, "fp").sum()

    def gain(self, which: str, kind: str) -> np.ndarray:
        """Change of exact success in points, by seed."""
        return np.array([100 * (x[which][kind] - x["base"]) for x in self.dpo])

    def gaps(self, field: str, kind: str) -> np.ndarray:
        return np.concatenate([np.array(x[field][kind], float) for x in self.detect])


def report(lines: Sequence[Line]) -> str:
    """Markdown, pass marks first."""
    t = Lines(lines)
    return document(
        "# E172 on a chain whose potential is known",
        f"{len(t.detect)} seeds of {TRACES} solutions (detectors), {len(t.dpo)} seeds of {PROBLEMS} problems x {EACH} "
        f"solutions (Cliff-DPO); {minutes(t.all):.1f} CPU-minutes. 95 % intervals, bootstrap over seeds, shares pooled "
        "with Wilson's.",
        marks(t),
        f"## Detectors ({N} continuations a place)",
        table(
            DETECTORS,
            ("", lambda name: name),
            ("detector", lambda name: DETECTORS[name]),
            ("true", lambda name: t.hits(name)[0], ".0f"),
            ("false", lambda name: t.found(name, "fp").sum(), ".0f"),
            ("precision", lambda name: pooled(*t.hits(name))),
            ("recall", lambda name: pooled(t.hits(name)[0], t.true)),
            ("continuations", lambda name: f"{_spent(t, name):.3f} x"),
        ),
        f"{t.true} true cliffs (drop above .1).",
        f"## What pairs of each kind teach (tabular DPO, beta .1, {PASSES} passes), points of exact success",
        *_dpo(t),
        "## Delete minus keep, fresh continuations, at what A flags",
        table(
            KINDS,
            ("kind", str),
            ("flags", lambda kind: len(t.gaps("del - keep", kind))),
            ("first batch", lambda kind: t.gaps("first batch", kind).mean(), ".3f"),
            ("fresh del@1 - keep@1", lambda kind: over(t.gaps("del - keep", kind), unit="flags")),
        ),
        "The drop that made A fire is inflated by selection (`first batch`); on fresh continuations "
        "deterministic flags show none.",
    )


def _spent(t: Lines, name: str) -> float:
    return float(t.found(name, "rollouts").sum() / t.found("A", "rollouts").sum())


def marks(t: Lines) -> list[Mark]:
    sure, bias = max(x["sure drop"] for x in t.detect), max(x["martingale"] for x in t.detect)
    spent = times(t.found("B", "rollouts"), t.found("A", "rollouts"))
    lost = float((t.found("A", "tp") - t.found("B", "tp")).sum())
    kinds = [x["false by kind"] for x in t.detect]
    false = pooled(sum(k["deterministic"] for k in kinds), sum(sum(k.values()) for k in kinds))
    exact, least, wrong = t.table["null"]["0.5"], t.table["least"], t.table["differences"]
    out = [
        Mark("C1", "V is the mean of what follows, to 1e-12", f"{bias:.1e}", bias < 1e-12),
        Mark("C1", "no token of chance .9 or more drops by more than .1", f"{sure:.3f} at most", sure <= 0.1),
        mark("C2", "precision of B at least .9", pooled(*t.hits("B")), least=0.9),
        Mark("C2", "recall of B equal to A's", f"{lost:.0f} cliffs lost", lost == 0),
        mark("C2", "rollouts of B at most .2 of A's", spent, most=0.2),
        mark("C2", "at least .8 of A's false cliffs are deterministic", false, least=0.8),
        Mark("C3", "M equals brute force", f"{wrong} differences", wrong == 0),
        Mark("C3", "the least count that can fire is 12", str(least), least == 12),
        Mark("C3", "false cliffs at .5 within [2.7e-3, 3.2e-3]", f"{exact:.2e}", 2.7e-3 <= exact <= 3.2e-3),
    ]
    for kind in KINDS:
        gain, low = t.gain("all", kind), kind == "deterministic"
        promise = f"{kind}: {'at most 0' if low else 'above 0'} on every seed"
        out.append(Mark("C4", promise, over(gain), bool((gain <= 0).all() if low else (gain > 0).all())))
    matched = t.gain("matched", "uncertain")
    spread = float(matched.std(ddof=1))
    told = f"{matched.mean():.2f} points, SD {spread:.2f}, n={len(matched)}"
    out.append(Mark("C4", "matched uncertain at least 3 SD of its seeds", told, bool(matched.mean() >= 3 * spread)))
    for kind in KINDS:
        found = over(t.gaps("del - keep", kind), unit="flags")
        if kind == "deterministic":
            out.append(mark("C5", f"{kind}: del@1 - keep@1 below .03", found, under=0.03))
        else:
            out.append(Mark("C5", f"{kind}: del@1 - keep@1 above .1", found, found.estimate > 0.1))
    return out


def _dpo(t: Lines) -> list[str]:
    rows = []
    for kind in KINDS:
        pairs = [x["pairs"][kind] for x in t.dpo]
        cells = [show(over(t.gain(which, kind)), "+.2f") for which in ("all", "matched")]
        rows.append([kind, f"{min(pairs)}-{max(pairs)}", *cells])
    bases = [100 * x["base"] for x in t.dpo]
    fewest = [min(x["pairs"].values()) for x in t.dpo]
    head = f"kind | pairs | all pairs | as many pairs as the fewest ({min(fewest)}-{max(fewest)})"
    return [markdown(head, rows), f"Before: {min(bases):.1f} to {max(bases):.1f} points; n = {len(t.dpo)} seeds."]


def figure(lines: Sequence[Line]) -> Any:
    """Left: precision and recall of the detectors. Right: what pairs of each kind teach."""
    t = Lines(lines)
    fig, (left, right) = canvas((8, 3.2), 1, 2)
    for name, colour in zip(DETECTORS, ("#D55E00", "#E69F00", "#0072B2", "#009E73"), strict=True):
        hit, flagged = t.hits(name)
        left.plot(hit / t.true, hit / max(flagged, 1), "o", color=colour, label=f"{name}: {DETECTORS[name]}")
    left.set(xlim=(0, 1), ylim=(0, 1.05), xlabel="recall", ylabel="precision")
    finish(left, font=7, grid=False, loc="lower right")
    arms = ((-0.15, "all", "#0072B2", "all pairs"), (0.15, "matched", "#999999", "as many of each"))
    for i, kind in enumerate(KINDS):
        for shift, which, colour, name in arms:
            how = {"fmt": "o", "color": colour, "capsize": 2, "label": None if i else name}
            whiskers(right, i + shift, over(t.gain(which, kind)), **how)
    right.axhline(0, color="black", lw=0.8)
    right.set_xticks(range(len(KINDS)), KINDS)
    right.set_ylabel("change of success, points")
    finish(right, font=7, grid=False)
    return fig
