"""Tables, pass marks and figure of tier 8a, from its lines of results alone."""

import numpy as np

from papers.drawing import canvas, finish
from papers.E165_g2po.tabular import LR
from papers.E165_g2po.tier_8a import ARMS, EPSILONS, SEEDS, SWEPT, VARIANTS
from papers.stats import Lines, Mark, Report, Results, document, gap, mark, markdown, minutes, over, show, table, times

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


class Houses(Results):
    """Results by setting, as arrays over seeds in order."""

    def learn(self, field: str, arm: str, variant: str = "clean", rescale: bool = True, lr: float = LR) -> np.ndarray:
        return self.get(field, kind="learn", arm=arm, variant=variant, rescale=rescale, lr=lr)

    def auc(self, arm: str, other: str, variant: str = "clean") -> Report:
        """Area under the curve of one arm over that of another."""
        return times(self.learn("auc", arm, variant), self.learn("auc", other, variant))


def cell(x: np.ndarray) -> str:
    """Mean and interval over seeds as text."""
    x = x[np.isfinite(x)]
    return show(over(x)) if len(x) else "-"


def report(lines: Lines) -> str:
    """Markdown of the whole tier, pass marks first."""
    t, wide = Houses(x for x in lines if x["seed"] < SEEDS), Houses(lines)
    rates = [times * LR for times in (0.5, 1.0, 2.0, 4.0)]
    swept = [[arm, *(cell(t.learn("auc", arm, lr=lr)) for lr in rates)] for arm in SWEPT]
    shown = len(t.learn("auc", "g2po", lr=2 * LR)) > 0
    return document(
        "## Tier 8a: tabular policies in the house",
        f"{len(lines)} cells, {len(t.learn('auc', 'grpo'))} seeds (one house each), {minutes(lines):.1f} CPU-minutes. "
        "Means over seeds with 95 % bootstrap intervals; the arms share houses and draws.",
        [*pass_marks(t), *(wide_marks(wide) if len(wide.learn("auc", "grpo")) > SEEDS else [])],
        "### AUC of exact success over 120 iterations (what specs/E165 measured in brackets)",
        _auc(t),
        "### Success of the final policy (untrained: .026)",
        table(
            ARMS,
            ("estimator", str),
            *((f"{v}, unit RMS", lambda arm, v=v: cell(t.learn("final", arm, v))) for v in VARIANTS),
        ),
        "### Control: one run in eight is paid by lot, and success does not end a run",
        _control(t),
        "### Agreement with the exact policy gradient",
        _cosine(t),
        "### The aliasing detector on batches of 24 houses x 8 runs",
        _detector(t),
        "### AUC against the learning rate (clean, unit RMS)" if shown else "",
        markdown(["estimator", *(f"lr {lr:g}" for lr in rates)], swept) if shown else "",
    )


def pass_marks(t: Houses) -> list[Mark]:
    pairs = [t.get("cosine", kind="cosine", arm=arm, variant="clean", eps=0.9) for arm in ("g2po", "grpo")]
    both = np.isfinite(pairs[0]) & np.isfinite(pairs[1])
    cosine = gap(pairs[0][both], pairs[1][both])
    return [
        mark("PF1a", "at least 2.5 x GiGPO", t.auc("g2po", "gigpo"), least=2.5),
        mark("PF1b", "at least 3.5 x GRPO", t.auc("g2po", "grpo"), least=3.5),
        mark("PF2", "cosine at least .15 above GRPO", cosine, least=0.15),
        mark("PF3", "aliased, at most 1.3 x GRPO", t.auc("g2po", "grpo", "alias"), most=1.3),
    ]


def wide_marks(t: Houses) -> list[Mark]:
    """PF1 and PF3 again on 240 houses, and where the aliased runs end."""
    ends = gap(*(t.learn("final", arm, "alias") for arm in ("g2po", "gigpo")))
    return [
        mark("PF1a wide", "at least 2.5 x GiGPO", t.auc("g2po", "gigpo"), least=2.5),
        mark("PF1b wide", "at least 3.5 x GRPO", t.auc("g2po", "grpo"), least=3.5),
        mark("PF3 wide", "aliased, at most 1.3 x GRPO", t.auc("g2po", "grpo", "alias"), most=1.3),
        Mark("inversion wide", "aliased, G2PO's final success below GiGPO's", ends, ends.high < 0),
    ]


def _auc(t: Houses) -> str:
    rows = []
    for arm in ARMS:
        cells = [t.learn("auc", arm, variant, rescale) for rescale in (True, False) for variant in VARIANTS]
        spec = SPEC.get(arm, (None,) * 4)
        beside = [f" ({x:.3f})" if x is not None else "" for x in (*spec, None, None)]
        rows.append([arm, *(cell(x) + b for x, b in zip(cells, beside, strict=True))])
    return markdown(["estimator", *(f"{v}, {how}" for how in ("unit RMS", "as it comes") for v in VARIANTS)], rows)


def _control(t: Houses) -> str:
    def of(field: str, arm: str) -> np.ndarray:
        return t.get(field, kind="control", arm=arm)

    drift = {arm: gap(of("final", arm), of("untrained", arm)) for arm in ARMS if len(of("auc", arm))}
    return table(
        drift,
        ("estimator", str),
        ("AUC", lambda arm: cell(of("auc", arm))),
        ("final success", lambda arm: cell(of("final", arm))),
        ("final minus untrained", drift.get, "+.3f"),
        ("effect", lambda arm: "none" if drift[arm].low <= 0 <= drift[arm].high else "DRIFT"),
    )


def _cosine(t: Houses) -> str:
    settings = [(v, eps) for v in ("clean", "stoch") for eps in EPSILONS]

    def of(field: str, arm: str, variant: str = "clean", eps: float = 0.7) -> np.ndarray:
        return t.get(field, kind="cosine", arm=arm, variant=variant, eps=eps)

    rows = [[arm, *(cell(of("cosine", arm, *s)) for s in settings), cell(of("sign", arm))]
            for arm in ARMS if len(of("sign", arm))]  # fmt: skip
    head = ["estimator", *(f"cosine, {v}, eps {eps}" for v, eps in settings), "sign right, clean, eps 0.7"]
    return markdown(head, rows)


def _detector(t: Houses) -> str:
    def of(field: str, at: tuple[str, float]) -> np.ndarray:
        return t.get(field, kind="detector", variant=at[0], eps=at[1])

    return table(
        [(variant, eps) for variant in VARIANTS for eps in (1.0, 0.9, 0.7, 0.5)],
        ("variant", 0),
        ("policy eps", 1),
        ("batches", lambda at: len(of("found", at))),
        ("called aliased", lambda at: of("found", at).mean(), ".2f"),
        ("effect", lambda at: cell(of("effect", at))),
        ("knob chosen", lambda at: of("lam", at).mean(), ".2f"),
    )


STYLE = {  # Okabe and Ito's colours, told apart by dash as well
    "grpo": ("GRPO", "#000000", "-"),
    "gigpo": ("GiGPO", "#E69F00", (0, (5, 1))),
    "g2po": ("G2PO", "#0072B2", "-"),
    "g2po-undiscounted": ("G2PO, gamma 1", "#56B4E9", (0, (3, 1, 1, 1))),
    "graphgpo": ("GraphGPO", "#D55E00", (0, (1, 1))),
    "bellman": ("Bellman", "#009E73", (0, (4, 2))),
}


def figure(lines: Lines) -> object:
    """Learning curves in the three houses and under the lottery."""
    t = Houses(x for x in lines if x["seed"] < SEEDS)
    panels = [(v, {"kind": "learn", "variant": v, "rescale": True, "lr": LR}) for v in VARIANTS]
    panels.append(("control: paid by lot", {"kind": "control", "variant": "clean"}))
    fig, axes = canvas((12, 3.2), 1, 4, sharey=True)
    for axis, (title, setting) in zip(axes, panels, strict=True):
        for arm, (label, colour, dash) in STYLE.items():
            curves = t.get("curve", arm=arm, **setting)
            iteration = 10 * np.arange(curves.shape[1])
            drawn = np.random.default_rng(0).integers(0, len(curves), (1000, len(curves)))
            low, high = np.percentile(curves[drawn].mean(axis=1), [2.5, 97.5], axis=0)
            axis.plot(iteration, curves.mean(axis=0), color=colour, linestyle=dash, label=label, linewidth=1.6)
            axis.fill_between(iteration, low, high, color=colour, alpha=0.12, linewidth=0)
        axis.set(title=title, xlabel="iteration")
        finish(axis, font=None)
    axes[0].set(ylabel="exact success", ylim=(0, 1))
    finish(axes[0], grid=False)
    return fig
