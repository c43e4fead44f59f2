"""Tables, pass marks and figure of tier speed, from its lines of results alone."""

import numpy as np

from papers.drawing import canvas, finish
from papers.E179_dspark.tier_speed import ARMS
from papers.stats import Line, Lines, Mark, Report, document, interval, mark, mean, minutes, select, show, table

# T7: over generate, over the engine's plain decoding, over the better of assisted generation and lookup; of L4 d128.
LARGE = (("generate", 1.4), ("plain", 1.25), ("best", 1.1))
SMALL = (("generate", 1.15),)
RIVALS = ("assisted 7", "assisted 20", "generate lookup")


def _targets(lines: Lines) -> list[str]:
    return sorted({x["target"] for x in lines})


def _speeds(chosen: list[Line], clock: str) -> dict[str, np.ndarray]:
    """Tokens per second [prompts] by arm."""
    return {arm: np.array([x[arm]["tokens"] / x[arm][clock] for x in chosen]) for arm in ARMS if chosen}


def _over(speeds: dict[str, np.ndarray], arm: str, other: str) -> Report:
    """Ratio of time per token on the same prompts, the geometric mean over prompts, with its interval."""
    if other == "best":
        other = max(RIVALS, key=lambda name: float(np.log(speeds[name]).mean()))
    return interval("", lambda x: np.exp(mean(x)), np.log(speeds[arm] / speeds[other]), unit="prompts")


def pass_marks(lines: Lines) -> list[Mark]:
    out = []
    for target in _targets(lines):
        speeds = _speeds(select(lines, target=target, temperature=1.0), "cpu")
        if speeds:
            arm = max(("DSpark", "DSpark scheduled"), key=lambda name: float(np.log(speeds[name]).mean()))
            name = f"T7, {target}, {arm}, temperature 1, process time"
            for other, least in SMALL if target == "small" else LARGE:
                rival = "the better of assisted and lookup" if other == "best" else other
                out.append(mark(name, f"at least {least} x {rival}", _over(speeds, arm, other), least=least))
    return out


def report(lines: Lines) -> str:
    """Markdown of the tier, pass marks first."""
    settings = [(target, temperature) for target in _targets(lines) for temperature in (1.0, 0.0)]
    parts = [_table(select(lines, target=t, temperature=h), t, h) for t, h in settings]
    return document(
        "## Tier speed: one request at a time",
        f"{len(lines)} prompts, {minutes(lines):.1f} CPU-minutes; replies of 128 tokens, one "
        "thread, all arms in turn on each prompt, in one process. Tokens per second of process time and of "
        "wall time, means over prompts; ratios of process time are geometric means over prompts with their 95 % "
        "bootstrap interval.",
        pass_marks(lines),
        *parts,
    )


def _table(chosen: list[Line], target: str, temperature: float) -> str:
    if not chosen:
        return ""
    cpu, wall = (_speeds(chosen, clock) for clock in ("cpu", "wall"))
    tau = {arm: [x["tau"][arm] for x in chosen if arm in x["tau"]] for arm in ARMS}
    made = table(
        ARMS,
        ("arm", str),
        ("per CPU-second", lambda arm: cpu[arm].mean(), ".0f"),
        ("per second", lambda arm: wall[arm].mean(), ".0f"),
        ("over generate", lambda arm: show(_over(cpu, arm, "generate"), ".2f")),
        ("over plain", lambda arm: show(_over(cpu, arm, "plain"), ".2f")),
        ("tokens a round", lambda arm: f"{np.mean(tau[arm]):.2f}" if tau[arm] else ""),
    )
    return f"Target {target}, temperature {temperature:g}, {len(chosen)} prompts:\n\n{made}"


def figure(lines: Lines) -> object:
    """Speed of every arm over generate, prompt by prompt, at temperature 1."""
    targets = _targets(lines)
    fig, axes = canvas((3.5 * len(targets) + 1, 3), 1, len(targets), squeeze=False)
    for axis, target in zip(axes[0], targets, strict=True):
        speeds = _speeds(select(lines, target=target, temperature=1.0), "cpu")
        for i, arm in enumerate(ARMS):
            ratios = speeds[arm] / speeds["generate"]
            axis.plot(ratios, np.full(len(ratios), i), "o", color="#0072B2", alpha=0.4, markersize=3)
        axis.axvline(1, color="#000000", linestyle=":", linewidth=1)
        axis.set_yticks(range(len(ARMS)), ARMS)
        axis.invert_yaxis()
        axis.set_xlabel(f"speed over generate, target {target}")
        finish(axis, font=None)
    return fig
