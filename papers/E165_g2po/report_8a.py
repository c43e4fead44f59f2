"""Tables, pass marks and figure of tier 8a, from its lines of results alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from papers.drawing import canvas
from papers.E165_g2po.tabular import LR
from papers.E165_g2po.tier_8a import ARMS, EPSILONS, SEEDS, SWEPT, VARIANTS
from papers.stats import Mark, difference, interval, markdown, mean, ratio

Line = dict[str, Any]
SPEC = {  # specs/E165 section 8a: AUC at unit RMS in clean, stoch, alias, and clean without rescaling
    "grpo": (0.113, 0.088, 0.056, 0.085),
    "gigpo": (0.165, 0.124, 0.067, 0.355),
    "ep+nc": (0.463, 0.403, 0.073, 0.556),
    "ep+ec": (0.444, 0.348, 0.081, 0.558),
    "g2po": (0.520, 0.472, 0.068, 0.675),
    "graphgpo": (0.594, 0.524, 0.018, 0.629),
    "gagpo": (0.237, 0.175, 0.057, 0.237),
    "bellman": (0.559, 0.480, 0.029, None),
}


class Table:
    """Results by setting, as arrays over seeds in order."""

    def __init__(self, lines: Sequence[Line]) -> None:
        self._lines = sorted(lines, key=lambda line: line["seed"])

    def get(self, field: str, **setting: Any) -> np.ndarray:
        found = [line[field] for line in self._lines if all(line.get(k) == v for k, v in setting.items())]
        return np.array([np.nan if x is None else x for x in found], dtype=np.float64)

    def learn(self, field: str, arm: str, variant: str = "clean", rescale: bool = True, lr: float = LR) -> np.ndarray:
        return self.get(field, kind="learn", arm=arm, variant=variant, rescale=rescale, lr=lr)


def cell(x: np.ndarray) -> str:
    """Mean and interval over seeds as text."""
    x = x[np.isfinite(x)]
    if not len(x):
        return "-"
    found = interval("", mean, x)
    return f"{found.estimate:.3f} [{found.low:.3f}, {found.high:.3f}]"


def report(lines: Sequence[Line]) -> str:
    """Markdown of the whole tier, pass marks first."""
    table, wide = Table([x for x in lines if x["seed"] < SEEDS]), Table(lines)
    marks = pass_marks(table) + (wide_marks(wide) if len(wide.learn("auc", "grpo")) > SEEDS else [])
    seeds = len(table.learn("auc", "grpo"))
    parts = [
        "## Tier 8a: tabular policies in the house",
        f"{len(lines)} cells, {seeds} seeds (one house each), {sum(x['cpu_s'] for x in lines) / 60:.1f} CPU-minutes. "
        "Means over seeds with 95 % bootstrap intervals; the arms share houses and draws.",
        "\n".join(f"- {mark}" for mark in marks),
        "### AUC of exact success over 120 iterations (what specs/E165 measured in brackets)",
        _auc(table),
        "### Success of the final policy (untrained: .026)",
        _final(table),
        "### Control: one run in eight is paid by lot, and success does not end a run",
        _control(table),
        "### Agreement with the exact policy gradient",
        _cosine(table),
        "### The aliasing detector on batches of 24 houses x 8 runs",
        _detector(table),
    ]
    if len(table.learn("auc", "g2po", lr=2 * LR)):
        parts += ["### AUC against the learning rate (clean, unit RMS)", _rates(table)]
    return "\n\n".join(parts) + "\n"


def pass_marks(table: Table) -> list[Mark]:
    auc = {arm: table.learn("auc", arm) for arm in ("grpo", "gigpo", "g2po")}
    over_gigpo = interval("AUC(G2PO) / AUC(GiGPO), clean", ratio, auc["g2po"], auc["gigpo"])
    over_grpo = interval("AUC(G2PO) / AUC(GRPO), clean", ratio, auc["g2po"], auc["grpo"])
    pairs = [table.get("cosine", kind="cosine", arm=arm, variant="clean", eps=0.9) for arm in ("g2po", "grpo")]
    both = np.isfinite(pairs[0]) & np.isfinite(pairs[1])
    cosine = interval("cosine(G2PO) - cosine(GRPO), eps .9", difference, pairs[0][both], pairs[1][both])
    aliased = [table.learn("auc", arm, "alias") for arm in ("g2po", "grpo")]
    alias = interval("AUC(G2PO) / AUC(GRPO), alias", ratio, *aliased)
    return [
        Mark("PF1a", "at least 2.5 x GiGPO", over_gigpo, over_gigpo.estimate >= 2.5),
        Mark("PF1b", "at least 3.5 x GRPO", over_grpo, over_grpo.estimate >= 3.5),
        Mark("PF2", "cosine at least .15 above GRPO", cosine, cosine.estimate >= 0.15),
        Mark("PF3", "aliased, at most 1.3 x GRPO", alias, alias.estimate <= 1.3),
    ]


def wide_marks(table: Table) -> list[Mark]:
    """PF1 and PF3 again on 240 houses, and where the aliased runs end."""
    clean, aliased, final = (
        [table.learn(field, arm, variant) for arm in ("g2po", "gigpo", "grpo")]
        for field, variant in (("auc", "clean"), ("auc", "alias"), ("final", "alias"))
    )
    over_gigpo = interval("", ratio, clean[0], clean[1])
    over_grpo = interval("", ratio, clean[0], clean[2])
    alias = interval("", ratio, aliased[0], aliased[2])
    ends = interval("", difference, final[0], final[1])
    return [
        Mark("PF1a wide", "at least 2.5 x GiGPO", over_gigpo, over_gigpo.estimate >= 2.5),
        Mark("PF1b wide", "at least 3.5 x GRPO", over_grpo, over_grpo.estimate >= 3.5),
        Mark("PF3 wide", "aliased, at most 1.3 x GRPO", alias, alias.estimate <= 1.3),
        Mark("inversion wide", "aliased, G2PO's final success below GiGPO's", ends, ends.high < 0),
    ]


def _auc(table: Table) -> str:
    rows = []
    for arm in ARMS:
        cells = [table.learn("auc", arm, variant) for variant in VARIANTS]
        cells += [table.learn("auc", arm, variant, rescale=False) for variant in VARIANTS]
        spec = SPEC.get(arm, (None,) * 4)
        beside = [f" ({x:.3f})" if x is not None else "" for x in (*spec, None, None)]
        rows.append([arm, *(cell(x) + b for x, b in zip(cells, beside, strict=True))])
    head = ["estimator", *(f"{v}, unit RMS" for v in VARIANTS), *(f"{v}, as it comes" for v in VARIANTS)]
    return markdown(head, rows)


def _final(table: Table) -> str:
    rows = [[arm, *(cell(table.learn("final", arm, v)) for v in VARIANTS)] for arm in ARMS]
    return markdown(["estimator", *(f"{v}, unit RMS" for v in VARIANTS)], rows)


def _control(table: Table) -> str:
    rows = []
    for arm in ARMS:
        lot = {"kind": "control", "arm": arm}
        auc, final = table.get("auc", **lot), table.get("final", **lot)
        if len(auc):
            start = table.get("untrained", **lot)
            drift = interval("", difference, final, start)
            verdict = "none" if drift.low <= 0 <= drift.high else "DRIFT"
            rows.append(
                [arm, cell(auc), cell(final), f"{drift.estimate:+.3f} [{drift.low:+.3f}, {drift.high:+.3f}]", verdict]
            )
    return markdown(["estimator", "AUC", "final success", "final minus untrained", "effect"], rows)


def _cosine(table: Table) -> str:
    settings = [(v, eps) for v in ("clean", "stoch") for eps in EPSILONS]
    rows = []
    for arm in ARMS:
        found = [table.get("cosine", kind="cosine", arm=arm, variant=v, eps=eps) for v, eps in settings]
        sign = table.get("sign", kind="cosine", arm=arm, variant="clean", eps=0.7)
        if len(sign):
            rows.append([arm, *map(cell, found), cell(sign)])
    head = ["estimator", *(f"cosine, {v}, eps {eps}" for v, eps in settings), "sign right, clean, eps 0.7"]
    return markdown(head, rows)


def _detector(table: Table) -> str:
    rows = []
    for variant in VARIANTS:
        for eps in (1.0, 0.9, 0.7, 0.5):
            at = {"kind": "detector", "variant": variant, "eps": eps}
            found = table.get("found", **at)
            shares = [f"{found.mean():.2f}", cell(table.get("effect", **at)), f"{table.get('lam', **at).mean():.2f}"]
            rows.append([variant, str(eps), str(len(found)), *shares])
    return markdown(["variant", "policy eps", "batches", "called aliased", "effect", "knob chosen"], rows)


def _rates(table: Table) -> str:
    rates = [times * LR for times in (0.5, 1.0, 2.0, 4.0)]
    rows = [[arm, *(cell(table.learn("auc", arm, lr=lr)) for lr in rates)] for arm in SWEPT]
    return markdown(["estimator", *(f"lr {lr:g}" for lr in rates)], rows)


STYLE = {  # Okabe and Ito's colours, told apart by dash as well
    "grpo": ("GRPO", "#000000", "-"),
    "gigpo": ("GiGPO", "#E69F00", (0, (5, 1))),
    "g2po": ("G2PO", "#0072B2", "-"),
    "g2po-undiscounted": ("G2PO, gamma 1", "#56B4E9", (0, (3, 1, 1, 1))),
    "graphgpo": ("GraphGPO", "#D55E00", (0, (1, 1))),
    "bellman": ("Bellman", "#009E73", (0, (4, 2))),
}


def figure(lines: Sequence[Line]) -> Any:
    """Learning curves in the three houses and under the lottery."""
    panels = [(v, {"kind": "learn", "variant": v, "rescale": True, "lr": LR}) for v in VARIANTS]
    panels.append(("control: paid by lot", {"kind": "control", "variant": "clean"}))
    fig, axes = canvas((12, 3.2), 1, 4, sharey=True)
    for axis, (title, setting) in zip(axes, panels, strict=True):
        for arm, (label, colour, dash) in STYLE.items():
            here = [
                x
                for x in lines
                if x.get("arm") == arm and x["seed"] < SEEDS and all(x.get(k) == v for k, v in setting.items())
            ]
            curves = np.array([x["curve"] for x in here])
            iteration = 10 * np.arange(curves.shape[1])
            low, high = np.percentile(
                curves[np.random.default_rng(0).integers(0, len(curves), (1000, len(curves)))].mean(axis=1),
                [2.5, 97.5],
                axis=0,
            )
            axis.plot(iteration, curves.mean(axis=0), color=colour, linestyle=dash, label=label, linewidth=1.6)
            axis.fill_between(iteration, low, high, color=colour, alpha=0.12, linewidth=0)
        axis.set_title(title)
        axis.set_xlabel("iteration")
        axis.grid(alpha=0.25)
    axes[0].set_ylabel("exact success")
    axes[0].set_ylim(0, 1)
    axes[0].legend(frameon=False, fontsize=8)
    return fig
