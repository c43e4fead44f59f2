"""Tables, pass marks and figure of tier 8b, from its lines of results alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from papers.drawing import canvas
from papers.E165_g2po.report_8a import STYLE
from papers.E165_g2po.tier_8b import ARMS, SPLITS
from papers.stats import Mark, markdown, t_interval, t_value

Line = dict[str, Any]
LAST = 5  # iterations whose rollouts are averaged for "success at equal CPU-seconds"


class Trainings:
    """One split at one rescaling: lines by arm and seed, those seeds only that every arm has."""

    def __init__(self, lines: Sequence[Line], variant: str, rescale: bool) -> None:
        here = [x for x in lines if x["variant"] == variant and x["rescale"] == rescale]
        self.arms = [arm for arm in ARMS if any(x["arm"] == arm for x in here)]
        by_arm = [{x["seed"] for x in here if x["arm"] == arm} for arm in self.arms]
        self.seeds = sorted(set.intersection(*by_arm)) if by_arm else []
        self.of = {(x["arm"], x["seed"]): x for x in here}

    def get(self, field: str, arm: str) -> np.ndarray:
        return np.array([self.of[arm, seed][field] for seed in self.seeds], dtype=np.float64)

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
    if len(x) == 1:
        return f"{x[0]:.3f} (one seed)"
    found = t_interval("", x)
    return f"{found.estimate:.3f} [{found.low:.3f}, {found.high:.3f}]"


def report(lines: Sequence[Line]) -> str:
    """Markdown of the whole tier, pass marks first."""
    parts = [
        "## Tier 8b: a 0.1M-parameter transformer in household",
        f"{len(lines)} trainings, {sum(x['cpu_s'] for x in lines) / 60:.0f} CPU-minutes, the pre-training of a split "
        "with its first. Means over seeds with 95 % t intervals; the arms of a seed share start, tasks and held-out "
        "panel (256 tasks, sampled).",
    ]
    marks = [f"- {mark}" for name in SPLITS for mark in pass_marks(Trainings(lines, name, True), name)]
    parts += ["\n".join(marks)] if marks else []
    for variant in dict.fromkeys(x["variant"] for x in lines):
        for rescale in (True, False):
            found = Trainings(lines, variant, rescale)
            if found.seeds:
                scale = "unit RMS" if rescale else "as it comes"
                start = cell(found.get("before", found.arms[0]))
                parts += [f"### {variant}, {scale}, {len(found.seeds)} seeds; before RL: {start}", _table(found)]
    return "\n\n".join(parts) + "\n"


def _table(found: Trainings) -> str:
    rows = []
    for arm in found.arms:
        final, late, area = found.get("final", arm), *found.equal_cpu(arm)
        gap = final - found.get("final", "grpo")
        versus = "-" if arm == "grpo" else cell(gap) + (f", t {t_value(gap):.1f}" if len(gap) > 1 else "")
        rest = [cell(found.get("length", arm)), f"{found.get('silent_groups', arm).mean():.2f}"]
        cost = [f"{np.mean([found.of[arm, s]['cpu'][-1] for s in found.seeds]):.0f}"]
        rows.append([arm, cell(final), versus, cell(late), cell(area), *rest, *cost])
    head = [
        "estimator",
        "held-out success",
        "minus GRPO, paired",
        "rollouts at equal CPU",
        "their mean so far",
        "steps",
    ]
    return markdown([*head, "silent groups", "CPU-s"], rows)


def pass_marks(found: Trainings, name: str) -> list[Mark]:
    """What specs/E165 section 8b promises; the aliased split is expected to fail."""
    if len(found.seeds) < 2 or not {"grpo", "gigpo", "g2po"} <= set(found.arms):
        return []
    marks = []
    for other, points in (("grpo", 0.15), ("gigpo", 0.04)):
        gap = found.get("final", "g2po") - found.get("final", other)
        met = bool(gap.mean() >= points and t_value(gap) > 2)
        promise = f"held-out success at least {points:.2f} above {STYLE[other][0]}, paired t > 2"
        marks.append(Mark(f"{name}", promise, t_interval("", gap), met))
    steps = found.get("length", "g2po") - found.get("length", "grpo")
    marks.append(Mark(name, "no more steps than GRPO", t_interval("", steps), bool(steps.mean() <= 0)))
    share = found.get("credit_share", "g2po")
    promise = "reading, estimating and filing under 2 % of an iteration's time"
    marks.append(Mark(name, promise, t_interval("", share), bool(share.mean() < 0.02)))
    return marks


def figure(lines: Sequence[Line]) -> Any:
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
        axis.set_title(f"{name} (band: all seeds)")
        axis.set_xlabel("CPU-seconds of RL")
        axis.grid(alpha=0.25)
    axes[0][0].set_ylabel("success of rollouts")
    axes[0][0].set_ylim(0, 1)
    if axes[0][0].get_legend_handles_labels()[0]:
        axes[0][0].legend(frameon=False, fontsize=8)
    return fig
