"""Tables, pass marks and figure of tier T6, from its lines of results alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from papers.drawing import canvas
from papers.E179_dspark.tier_confidence import SCALED
from papers.stats import Mark, markdown, t_interval, text

Line = dict[str, Any]


def table(lines: Sequence[Line], who: str, how: str, field: str) -> np.ndarray:
    """[seeds, block]"""
    return np.array([line[who][how][field] for line in sorted(lines, key=lambda x: x["seed"])])


def excess(lines: Sequence[Line], who: str, how: str) -> np.ndarray:
    """Calibration error above what a perfect forecaster would show at as many rounds, [seeds, block]."""
    return table(lines, who, how, "ece") - table(lines, who, how, "floor")


def pass_marks(lines: Sequence[Line]) -> list[Mark]:
    auroc = table(lines, "own", "scaled", "auroc").mean(0)
    raw, scaled = (t_interval("", excess(lines, "own", how).mean(1)) for how in ("raw", "scaled"))
    lower = t_interval("", (excess(lines, "own", "scaled") - excess(lines, "own", "raw")).mean(1))
    apart = t_interval("", (excess(lines, "wrong", "scaled") - excess(lines, "own", "scaled")).mean(1))
    wrong = t_interval("", excess(lines, "wrong", "raw").mean(1))
    rounds, least = min(line["rounds"] for line in lines), float(auroc.min())
    repaired = f"logits x {SCALED} (error {text(wrong, 4)}) repaired to within .005 of the well-scaled"
    return [
        Mark("T6", "at least 20,000 held-out rounds", f"{rounds:,}", rounds >= 20_000),
        Mark("T6", "AUROC >= .75 at every position", f"least {least:.3f} (mean of seeds)", least >= 0.75),
        Mark("T6", "mean calibration error scaled, less its floor, <= .015", text(scaled, 4), scaled.estimate <= 0.015),
        Mark("T6", f"and not above raw ({text(raw, 4)}): difference", text(lower, 4), lower.estimate <= 0),
        Mark("T6", repaired, text(apart, 4), abs(apart.estimate) <= 0.005),
    ]


def report(lines: Sequence[Line]) -> str:
    """Markdown of the tier, pass marks first."""
    if not lines:
        return "## Tier T6: confidence\n\nno cells yet\n"
    rows = []
    for name, x in (
        ("rounds that accept so many", np.array([line["share"] for line in lines])),
        ("AUROC", table(lines, "own", "scaled", "auroc")),
        ("error raw", table(lines, "own", "raw", "ece")),
        ("error scaled", table(lines, "own", "scaled", "ece")),
        ("its noise floor", table(lines, "own", "scaled", "floor")),
        ("temperature", np.array([line["own"]["heat"] for line in lines])),
        (f"logits x {SCALED}: error raw", table(lines, "wrong", "raw", "ece")),
        (f"logits x {SCALED}: error scaled", table(lines, "wrong", "scaled", "ece")),
        (f"logits x {SCALED}: temperature", np.array([line["wrong"]["heat"] for line in lines])),
    ):
        rows.append([name, *(f"{v:.4f}" if "error" in name or "floor" in name else f"{v:.3f}" for v in x.mean(0))])
    block = len(rows[0]) - 1
    parts = [
        "## Tier T6: confidence and its calibration",
        f"{len(lines)} seeds, {lines[0]['rounds']:,} held-out rounds each, {lines[0]['fitted_on']:,} to fit on, "
        f"{sum(x['cpu_s'] for x in lines) / 60:.1f} CPU-minutes. Calibration error over 20 bins of the chance that at "
        "least k tokens are accepted; its noise floor is the error of outcomes drawn from the chances themselves.",
        "\n".join(f"- {mark}" for mark in pass_marks(lines)),
        markdown(["mean over seeds, at least k tokens", *(str(k) for k in range(1, block + 1))], rows),
    ]
    return "\n\n".join(parts) + "\n"


def figure(lines: Sequence[Line]) -> Any:
    """Calibration error by position, raw and scaled, own and mis-scaled, with the noise floor."""
    fig, axis = canvas((5, 3.2))
    for who, colour in (("own", "#0072B2"), ("wrong", "#D55E00")):
        for how, line in (("raw", "--"), ("scaled", "-")):
            y = table(lines, who, how, "ece").mean(0)
            label = ("as trained" if who == "own" else f"logits x {SCALED}") + f", {how}"
            axis.plot(np.arange(1, len(y) + 1), y, line, color=colour, marker=".", label=label)
    floor = table(lines, "own", "scaled", "floor").mean(0)
    axis.plot(np.arange(1, len(floor) + 1), floor, ":", color="#000000", label="noise floor")
    axis.set(xlabel="at least k tokens accepted", ylabel="calibration error")
    axis.grid(alpha=0.25)
    axis.legend(frameon=False, fontsize=7)
    return fig
