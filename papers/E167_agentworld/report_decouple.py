"""Tables, pass marks and figure of tier decouple, from its lines of results alone."""

from collections.abc import Callable

import numpy as np

from clew.core.records import Report
from papers.drawing import canvas, finish
from papers.E167_agentworld.tier_decouple import ARMS
from papers.stats import Lines, Mark, Results, by_seed, document, minutes, show, table

TOLD = {
    "rich": "real, rich results",
    "faithful": "simulated, faithful",
    "stingy": "simulated, stingy by instruction",
    "faulty": "simulated, 10 % of another page",
    "poor": "control: real, poor results",
}
COLOURS = {"rich": "C0", "faithful": "C1", "stingy": "C2", "faulty": "C3", "poor": "C7"}


class Found:
    """Values by arm, of those seeds that every arm has. ``arms``: in the order of the tables."""

    def __init__(self, lines: Lines) -> None:
        self.arms = [arm for arm in ARMS if any(line["arm"] == arm for line in lines)]
        by_arm = [{line["seed"] for line in lines if line["arm"] == arm} for arm in self.arms]
        self.seeds = sorted(set.intersection(*by_arm)) if by_arm else []
        self.results = Results([line for line in lines if line["seed"] in self.seeds])

    def test(self, arm: str, which: str, when: str = "after") -> np.ndarray:
        """Success, or opened pages, on a test set; ``mixture`` is both in equal shares."""
        if which == "mixture":
            return (self.test(arm, "rich", when) + self.test(arm, "poor", when)) / 2
        return self.results.get(when, which, arm=arm)

    def gap(self, arm: str, other: str, which: str) -> Report:
        return by_seed(self.test(arm, which) - self.test(other, which))


def report(lines: Lines) -> str:
    """Markdown of the tier, both test sets always."""
    found = Found(lines)
    if not found.seeds:
        return document("## Tier decouple: an agent's training apart from its world", "no seed has all arms yet")

    def cell(which: str) -> Callable[[str], str]:
        return lambda arm: show(by_seed(found.test(arm, which)))

    def minus(which: str) -> Callable[[str], str]:
        return lambda arm: show(found.gap(arm, "rich", which))

    def own(name: str) -> Callable[[str], str]:
        def shown(arm: str) -> str:
            return "-" if arm in ("rich", "poor") else show(by_seed(found.results.get(name, arm=arm)))

        return shown

    start = ", ".join(f"{kind} {show(by_seed(found.test('rich', kind, 'before')))}" for kind in ("rich", "poor"))
    trained = table(
        found.arms,
        ("trained in", lambda arm: TOLD[arm]),
        ("test rich", cell("rich")),
        ("test poor", cell("poor")),
        ("mixture", cell("mixture")),
        ("opens, rich", cell("rich_opens")),
        ("opens, poor", cell("poor_opens")),
        ("actions", lambda arm: found.results.get("actions", arm=arm).mean(), ".0f"),
        ("fidelity in training", own("fidelity")),
        ("leaks of a run", own("leaks")),
        ("runs without an answer of the world", own("failed")),
    )
    versus = table(
        [arm for arm in found.arms if arm != "rich"],
        ("minus trained in real, rich", lambda arm: TOLD[arm]),
        *((which, minus(which)) for which in ("rich", "poor", "mixture")),
    )
    n = len(found.seeds)
    return document(
        "## Tier decouple: an agent's training apart from its world",
        f"{n} seeds, {len(found.results.all)} trainings, {minutes(found.results.all):.0f} CPU-minutes, with the start "
        "and the model of the world that all share. Success on 200 held-out questions on other tables of "
        "the real world, one sampled run each; means over seeds with 95 % t intervals, arms paired by seed. "
        f"Before RL: {start}.",
        pass_marks(found),
        trained,
        versus,
    )


def pass_marks(found: Found) -> list[Mark]:
    """What specs/E167 section 6, E6, promises, written before the data; the control is ours."""
    if len(found.seeds) < 2 or found.arms != list(ARMS):
        return []
    poor, rich = found.gap("stingy", "rich", "poor"), found.gap("stingy", "rich", "rich")
    opens, base = ((found.test(arm, "rich_opens") + found.test(arm, "poor_opens")) / 2 for arm in ("stingy", "rich"))
    faults, control = found.gap("faulty", "faithful", "mixture"), found.gap("stingy", "poor", "poor")
    told = f"{show(by_seed(opens))} against {show(by_seed(base))}"
    name = "decouple"
    return [
        Mark(name, "stingy at least 8 points above real rich on poor", poor, bool(poor.estimate >= 0.08)),
        Mark(name, "stingy at most 4 points below real rich on rich", rich, bool(rich.estimate >= -0.04)),
        Mark(name, "opened pages per task more than 1.5 x", told, bool(opens.mean() > 1.5 * base.mean())),
        Mark(name, "faulty no better than faithful on the mixture", faults, bool(faults.estimate <= 0)),
        Mark(
            "control",
            "trained in the real world with poor results, the gain of stingy on poor is gone (at most 8 points left)",
            control,
            bool(control.estimate < 0.08),
        ),
    ]


def figure(lines: Lines) -> object:
    """Success on both test sets after training, a dot per seed and the mean as a bar."""
    found = Found(lines)
    fig, axes = canvas((7, 3), 1, 2, sharey=True, squeeze=False)
    for axis, which in zip(axes[0], ("rich", "poor"), strict=True):
        for place, arm in enumerate(found.arms if found.seeds else ()):
            y = found.test(arm, which)
            axis.bar(place, y.mean(), color=COLOURS[arm], alpha=0.4)
            axis.plot([place] * len(y), y, "o", color=COLOURS[arm], markersize=3)
        axis.set(title=f"test: {which} results", xticks=range(len(found.arms)), ylim=(0, 1))
        axis.set_xticklabels(found.arms, rotation=30)
        finish(axis, font=None)
    axes[0][0].set(ylabel="success")
    return fig
