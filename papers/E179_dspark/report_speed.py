"""Tables, pass marks and figure of tier speed, from its lines of results alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from papers.drawing import canvas
from papers.E179_dspark.tier_speed import ARMS
from papers.stats import Mark, interval, markdown, mean

Line = dict[str, Any]
# T7: over generate, over the engine's plain decoding, over the better of assisted generation and lookup; of L4 d128.
LARGE = (("generate", 1.4), ("plain", 1.25), ("best", 1.1))
SMALL = (("generate", 1.15),)
RIVALS = ("assisted 7", "assisted 20", "generate lookup")


def _speeds(lines: Sequence[Line], target: str, temperature: float, clock: str) -> dict[str, np.ndarray]:
    """Tokens per second [prompts] by arm."""
    chosen = sorted(
        (x for x in lines if (x["target"], x["temperature"]) == (target, temperature)), key=lambda x: int(x["seed"])
    )
    return {arm: np.array([x[arm]["tokens"] / x[arm][clock] for x in chosen]) for arm in ARMS if chosen}


def _over(speeds: dict[str, np.ndarray], arm: str, other: str) -> Any:
    """Ratio of time per token on the same prompts, the geometric mean over prompts, with its interval."""
    if other == "best":
        other = max(RIVALS, key=lambda name: float(np.log(speeds[name]).mean()))
    logs = np.log(speeds[arm] / speeds[other])
    return interval(f"{arm} over {other}", lambda x: np.exp(mean(x)), logs)


def pass_marks(lines: Sequence[Line]) -> list[Mark]:
    out = []
    for target in sorted({x["target"] for x in lines}):
        speeds = _speeds(lines, target, 1.0, "cpu")
        if not speeds:
            continue
        arm = max(("DSpark", "DSpark scheduled"), key=lambda name: float(np.log(speeds[name]).mean()))
        for other, least in SMALL if target == "small" else LARGE:
            found = _over(speeds, arm, other)
            promise = f"at least {least} x {'the better of assisted and lookup' if other == 'best' else other}"
            name = f"T7, {target}, {arm}, temperature 1, process time"
            out.append(Mark(name, promise, found, found.estimate >= least))
    return out


def report(lines: Sequence[Line]) -> str:
    """Markdown of the tier, pass marks first."""
    parts = [
        "## Tier speed: one request at a time",
        f"{len(lines)} prompts, {sum(x['cpu_s'] for x in lines) / 60:.1f} CPU-minutes; replies of 128 tokens, one "
        "thread, all arms in turn on each prompt, in one process. Tokens per second of process time and of "
        "wall time, means over prompts; ratios of process time are geometric means over prompts with their 95 % "
        "bootstrap interval.",
        "\n".join(f"- {mark}" for mark in pass_marks(lines)),
    ]
    for target in sorted({x["target"] for x in lines}):
        for temperature in (1.0, 0.0):
            cpu, wall = (_speeds(lines, target, temperature, clock) for clock in ("cpu", "wall"))
            if not cpu:
                continue
            chosen = [x for x in lines if (x["target"], x["temperature"]) == (target, temperature)]
            rows = []
            for arm in ARMS:
                tau = [x["tau"][arm] for x in chosen if arm in x["tau"]]
                ratios = [_over(cpu, arm, other) for other in ("generate", "plain")]
                told = [f"{r.estimate:.2f} [{r.low:.2f}, {r.high:.2f}]" for r in ratios]
                speed = [f"{cpu[arm].mean():.0f}", f"{wall[arm].mean():.0f}"]
                rows.append([arm, *speed, *told, f"{np.mean(tau):.2f}" if tau else ""])
            head = ["arm", "per CPU-second", "per second", "over generate", "over plain", "tokens a round"]
            parts += [f"Target {target}, temperature {temperature:g}, {len(chosen)} prompts:", markdown(head, rows)]
    return "\n\n".join(parts) + "\n"


def figure(lines: Sequence[Line]) -> Any:
    """Speed of every arm over generate, prompt by prompt, at temperature 1."""
    targets = sorted({x["target"] for x in lines})
    fig, axes = canvas((3.5 * len(targets) + 1, 3), 1, len(targets), squeeze=False)
    for axis, target in zip(axes[0], targets, strict=True):
        speeds = _speeds(lines, target, 1.0, "cpu")
        for i, arm in enumerate(ARMS):
            ratios = speeds[arm] / speeds["generate"]
            axis.plot(ratios, np.full(len(ratios), i), "o", color="#0072B2", alpha=0.4, markersize=3)
        axis.axvline(1, color="#000000", linestyle=":", linewidth=1)
        axis.set_yticks(range(len(ARMS)), ARMS)
        axis.invert_yaxis()
        axis.set_xlabel(f"speed over generate, target {target}")
        axis.grid(alpha=0.25)
    return fig
