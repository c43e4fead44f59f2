"""Tables, pass marks and figure of tier 8b, from its lines of results alone."""

import numpy as np

from papers.drawing import canvas, finish
from papers.E165_g2po.report_8a import STYLE
from papers.E165_g2po.tier_8b import ARMS, SPLITS
from papers.stats import Lines, Mark, by_seed, document, minutes, show, t_value, table

LAST = 5  # iterations whose rollouts are averaged for "success at equal CPU-seconds"


class Trainings:
    """One split at one rescaling: lines by arm and seed, those seeds only that every arm has."""

    def __init__(self, lines: Lines, variant: str, rescale: bool) -> None:
        here = [x for x in lines if x["variant"] == variant and x["rescale"] == rescale]
        self.arms = [arm for arm in ARMS if any(x["arm"] == arm for x in here)]
        by_arm = [{x["seed"] for x in here if x["arm"] == arm} for arm in self.arms]
        self.seeds = sorted(set.intersection(*by_arm)) if by_arm else []
        self.of = {(x["arm"], x["seed"]): x for x in here}

    def get(self, field: str, arm: str) -> np.ndarray:
        return np.array([self.of[arm, seed][field] for seed in self.seeds], dtype=np.float64)

    def gap(self, field: str, arm: str, other: str = "grpo") -> np.ndarray:
        return self.get(field, arm) - self.get(field, other)

    def equal_cpu(self, arm: str) -> tuple[np.ndarray, np.ndarray]:
        """Success of rollouts when the first arm has finished: mean of the last iterations, and over all so far."""
        late, area = [], []
        for seed in self.seeds:
            budget = min(self.of[other, seed]["cpu"][-1] for other in self.arms)
            line = self.of[arm, seed]
            reached = max(1, int(np.searchsorted(line["cpu"], budget + 1e-9, side="right")))
            late.append(np.mean(line["curve"][max(0, reached - LAST) : reached]))
            area.append(np.mean(line["curve"][:reached]))
        return np.array(late), np.array(area)


def cell(x: np.ndarray) -> str:
    return f"{x[0]:.3f} (one seed)" if len(x) == 1 else show(by_seed(x))


def report(lines: Lines) -> str:
    """Markdown of the whole tier, pass marks first."""
    parts = []
    for variant in dict.fromkeys(x["variant"] for x in lines):
        for rescale, scale in ((True, "unit RMS"), (False, "as it comes")):
            if (found := Trainings(lines, variant, rescale)).seeds:
                start = cell(found.get("before", found.arms[0]))
                parts += [f"### {variant}, {scale}, {len(found.seeds)} seeds; before RL: {start}", _table(found)]
    return document(
        "## Tier 8b: a 0.1M-parameter transformer in household",
        f"{len(lines)} trainings, {minutes(lines):.0f} CPU-minutes, the pre-training of a split "
        "with its first. Means over seeds with 95 % t intervals; the arms of a seed share start, tasks and held-out "
        "panel (256 tasks, sampled).",
        [mark for name in SPLITS for mark in pass_marks(Trainings(lines, name, True), name)],
        *parts,
    )


def _table(found: Trainings) -> str:
    def versus(arm: str) -> str:
        gap = found.gap("final", arm)
        return "-" if arm == "grpo" else cell(gap) + (f", t {t_value(gap):.1f}" if len(gap) > 1 else "")

    return table(
        found.arms,
        ("estimator", str),
        ("held-out success", lambda arm: cell(found.get("final", arm))),
        ("minus GRPO, paired", versus),
        ("rollouts at equal CPU", lambda arm: cell(found.equal_cpu(arm)[0])),
        ("their mean so far", lambda arm: cell(found.equal_cpu(arm)[1])),
        ("steps", lambda arm: cell(found.get("length", arm))),
        ("silent groups", lambda arm: found.get("silent_groups", arm).mean(), ".2f"),
        ("CPU-s", lambda arm: np.mean([found.of[arm, s]["cpu"][-1] for s in found.seeds]), ".0f"),
    )


def pass_marks(found: Trainings, name: str) -> list[Mark]:
    """What specs/E165 section 8b promises; the aliased split is expected to fail."""
    if len(found.seeds) < 2 or not {"grpo", "gigpo", "g2po"} <= set(found.arms):
        return []
    marks = []
    for other, points in (("grpo", 0.15), ("gigpo", 0.04)):
        gap = found.gap("final", "g2po", other)
        promise = f"held-out success at least {points:.2f} above {STYLE[other][0]}, paired t > 2"
        marks.append(Mark(name, promise, by_seed(gap), bool(gap.mean() >= points and t_value(gap) > 2)))
    steps, share = found.gap("length", "g2po"), found.get("credit_share", "g2po")
    promise = "reading, estimating and filing under 2 % of an iteration's time"
    return [
        *marks,
        Mark(name, "no more steps than GRPO", by_seed(steps), bool(steps.mean() <= 0)),
        Mark(name, promise, by_seed(share), bool(share.mean() < 0.02)),
    ]


def figure(lines: Lines) -> object:
    """Success of rollouts against process time at unit RMS, a panel per split, moving mean of five iterations."""
    names = list(dict.fromkeys(x["variant"] for x in lines))
    fig, axes = canvas((4 * len(names), 3.2), 1, len(names), sharey=True, squeeze=False)
    for axis, name in zip(axes[0], names, strict=True):
        found = Trainings(lines, name, True)
        for arm in found.arms if found.seeds else ():
            label, colour, dash = STYLE[arm]
            every = [found.of[arm, seed] for seed in found.seeds]
            width = min(LAST, len(every[0]["curve"]))
            curves = np.array([np.convolve(x["curve"], np.ones(width) / width, "valid") for x in every])
            cpu = np.mean([x["cpu"] for x in every], axis=0)[width - 1 :]
            axis.plot(cpu, curves.mean(axis=0), color=colour, linestyle=dash, label=label, linewidth=1.6)
            axis.fill_between(cpu, curves.min(axis=0), curves.max(axis=0), color=colour, alpha=0.08, linewidth=0)
        axis.set(title=f"{name} (band: all seeds)", xlabel="CPU-seconds of RL")
        finish(axis, font=None)
    axes[0][0].set(ylabel="success of rollouts", ylim=(0, 1))
    if axes[0][0].get_legend_handles_labels()[0]:
        finish(axes[0][0], grid=False)
    return fig
