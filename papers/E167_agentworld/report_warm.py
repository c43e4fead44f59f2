"""Tables, pass marks and figure of tier warm, from its lines of results alone."""

from collections.abc import Callable

import numpy as np

from clew.core.records import Report
from papers.drawing import band, canvas, finish
from papers.E167_agentworld.tier_warm import ARMS
from papers.stats import Lines, Mark, Results, by_seed, document, minutes, show, table

TOLD = {
    "none": "nothing",
    "warm": "next-observation RL",
    "read": "control: plain LM loss, as many updates",
    "lot": "control: rewards by lot",
}
COLOURS = {"none": "C0", "warm": "C2", "read": "C1", "lot": "C7"}
WIDTH = 5  # iterations whose rollouts are averaged
HALF = 0.5  # success that is to be reached


class Found:
    """Values by arm, of those seeds that every arm has."""

    def __init__(self, lines: Lines) -> None:
        self.arms = [arm for arm in ARMS if any(line["arm"] == arm for line in lines)]
        by_arm = [{line["seed"] for line in lines if line["arm"] == arm} for arm in self.arms]
        self.seeds = sorted(set.intersection(*by_arm)) if by_arm else []
        self.results = Results([line for line in lines if line["seed"] in self.seeds])

    def curves(self, arm: str) -> np.ndarray:
        """Success of rollouts, mean of the last iterations, float64 [seeds, iterations]; of the first few fewer."""
        found = np.array([line["curve"] for line in self.results.of(arm=arm)], dtype=np.float64)
        total = np.concatenate([np.zeros((len(found), 1)), np.cumsum(found, axis=1)], axis=1)
        ends = np.arange(1, found.shape[1] + 1)
        begins = np.maximum(0, ends - WIDTH)
        means: np.ndarray = (total[:, ends] - total[:, begins]) / (ends - begins)
        return means

    def half(self, arm: str) -> np.ndarray:
        """Success about the middle of the budget."""
        curves = self.curves(arm)
        return curves[:, max(0, curves.shape[1] // 2 - 1)]

    def last(self, arm: str) -> np.ndarray:
        return self.curves(arm)[:, -1]

    def reached(self, arm: str) -> np.ndarray:
        """Iterations until half of the rollouts succeed; one more than there are where they never do."""
        above = self.curves(arm) >= HALF
        never = above.shape[1] + 1
        return np.where(above.any(axis=1), above.argmax(axis=1) + 1.0, never)

    def never(self, arm: str) -> int:
        return int((~(self.curves(arm) >= HALF).any(axis=1)).sum())

    def gained(self, arm: str, field: str = "exact") -> np.ndarray:
        """How much more of the world's answers is foreseen after the extra updates."""
        return self.results.get("after", field, arm=arm) - self.results.get("before", field, arm=arm)

    def gap(self, of: Callable[[str], np.ndarray], arm: str, other: str = "none") -> Report:
        return by_seed(of(arm) - of(other))


def report(lines: Lines) -> str:
    """Markdown of the tier."""
    found = Found(lines)
    title = "## Tier warm: what the world answers, before how to act"
    if not found.seeds:
        return document(title, "no seed has all arms yet")
    asked = found.results.get("after", "n", arm=found.arms[0]).mean()
    return document(
        title,
        f"{len(found.seeds)} seeds, {len(found.results.all)} trainings, {minutes(found.results.all):.0f} CPU-minutes "
        f"with the start that all share. Success of rollouts is the mean of {WIDTH} iterations of 64. What is foreseen "
        f"is the exact share of about {asked:.0f} answers on the model's own test runs. 95 % t intervals over seeds, "
        "arms paired by seed.",
        pass_marks(found),
        table(
            found.arms,
            ("before the RL of the agent", lambda arm: TOLD[arm]),
            ("success at half of the budget", lambda arm: show(by_seed(found.half(arm)))),
            ("at the end", lambda arm: show(by_seed(found.last(arm)))),
            ("iterations to .5", lambda arm: show(by_seed(found.reached(arm)), ".1f")),
            ("never", lambda arm: f"{found.never(arm)} of {len(found.seeds)}"),
            ("foreseen before", lambda arm: show(by_seed(found.results.get("before", "exact", arm=arm)))),
            ("after the extra updates", lambda arm: show(by_seed(found.results.get("after", "exact", arm=arm)))),
            ("F1 of words, gain", lambda arm: show(by_seed(found.gained(arm, "words")))),
            ("CPU-s of them", lambda arm: found.results.get("extra_s", arm=arm).mean(), ".0f"),
        ),
        table(
            [arm for arm in found.arms if arm != "none"],
            ("minus none", lambda arm: TOLD[arm]),
            ("success at half of the budget", lambda arm: show(found.gap(found.half, arm))),
            ("at the end", lambda arm: show(found.gap(found.last, arm))),
            ("foreseen", lambda arm: show(by_seed(found.gained(arm)))),
        )
        if "none" in found.arms
        else "",
    )


def pass_marks(found: Found) -> list[Mark]:
    """What specs/E167 section 6, E7, promises, written before the data; the last is ours."""
    if len(found.seeds) < 2 or found.arms != list(ARMS):
        return []
    half, seen = found.gap(found.half, "warm"), by_seed(found.gained("warm"))
    sooner = 1 - found.reached("warm").mean() / found.reached("none").mean()
    told = f"{show(half)} at half; {100 * sooner:.0f} % fewer iterations"
    lot, plain = found.gap(found.half, "lot"), found.gap(found.half, "warm", "read")
    return [
        Mark(
            "warm",
            "at half of the budget 5 points more success than none, or 25 % fewer iterations to half",
            told,
            bool(half.estimate >= 0.05 or sooner >= 0.25),
        ),
        Mark("warm", "foresees at least 5 points more of the world's answers", seen, bool(seen.estimate >= 0.05)),
        Mark("control read", "warm minus as many updates of plain LM loss, at half of the budget", plain, None),
        Mark("control lot", "rewards by lot give less than 5 points at half", lot, bool(lot.estimate < 0.05)),
    ]


def figure(lines: Lines) -> object:
    """Success of rollouts by iteration of the RL of the agent."""
    found = Found(lines)
    fig, axis = canvas((5, 3.2))
    for arm in found.arms if found.seeds else ():
        curves = found.curves(arm)
        at = np.arange(1, curves.shape[1] + 1)
        band(axis, at, [by_seed(curves[:, i]) for i in range(len(at))], alpha=0.1, color=COLOURS[arm], label=TOLD[arm])
    axis.set(xlabel="iteration of RL", ylabel="success of rollouts", ylim=(0, 1))
    finish(axis)
    return fig
