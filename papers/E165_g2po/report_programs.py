"""Tables, pass marks and figure of tier programs, from its lines of results alone."""

from collections.abc import Callable

import numpy as np

from clew.core.records import Report
from papers.drawing import canvas, finish
from papers.E165_g2po.tier_programs import ARMS, SIZES
from papers.stats import Lines, Mark, Results, by_seed, document, minutes, pooled, show, table

TOLD = {
    "g2po": "G2PO, independent runs",
    "g2po-tree": "G2PO over trees",
    "g2po-lot": "control: G2PO, rewards by lot",
}
COLOURS = {"g2po": "C0", "g2po-tree": "C2", "g2po-lot": "C7"}
NATS = 1e-4  # the trainer's own bound on logprobs that are computed twice
TITLE = "## Tier programs: a foreign program as the agent of a training"


class Found:
    """Trainings by arm, of those seeds that every arm has. ``arms``: in the order of the tables."""

    def __init__(self, lines: Lines) -> None:
        trained = [line for line in lines if line["kind"] == "train"]
        self.arms = [arm for arm in ARMS if any(line["arm"] == arm for line in trained)]
        kinds = [{line["seed"] for line in trained if line["arm"] == arm} for arm in self.arms]
        starts = {line["seed"] for line in lines if line["kind"] == "start"}
        self.seeds = sorted(set.intersection(*kinds, *([starts] if starts else []))) if kinds else []
        self.lines = [line for line in trained if line["seed"] in self.seeds]
        self.results = Results(self.lines)
        of = {line["seed"]: line["success"] for line in lines if line["kind"] == "start"}
        self.before = np.array([of.get(seed, np.nan) for seed in self.seeds])

    def get(self, field: str, arm: str) -> np.ndarray:
        return self.results.get(field, arm=arm)

    def gain(self, arm: str) -> Report:
        """Held-out success after less before, of the same tasks."""
        return by_seed(self.get("after", arm) - self.before)

    def versus(self, arm: str, other: str) -> Report:
        return by_seed(self.get("after", arm) - self.get("after", other))

    def total(self, field: str) -> int:
        return int(sum(line[field] for line in self.lines))


def report(lines: Lines) -> str:
    """Markdown of the tier, pass marks first."""
    found = Found(lines)
    if not found.seeds:
        return document(TITLE, "no seed has all arms yet")
    started = bool(np.isfinite(found.before).all())

    def after(arm: str) -> str:
        return show(by_seed(found.get("after", arm)))

    def gain(arm: str) -> str:
        return show(found.gain(arm), "+.3f") if started else "-"

    def mean(field: str) -> Callable[[str], float]:
        return lambda arm: float(found.get(field, arm).mean())

    def share(part: str) -> Callable[[str], float]:
        def of(arm: str) -> float:
            spent = [line["cpu"] for line in found.results.of(arm=arm)]
            parts = [_own(cpu) if part == "rest" else cpu[part] for cpu in spent]
            return float(sum(parts) / sum(cpu["sandbox"] + cpu["starting"] + cpu["own"] for cpu in spent))

        return of

    learnt = table(
        found.arms,
        ("arm", lambda arm: TOLD[arm]),
        ("held-out success after", after),
        ("gain", gain),
        ("minus control", lambda arm: _less(found, arm, "g2po-lot")),
        ("silent groups", mean("silent_groups"), ".2f"),
        ("runs", mean("runs"), ".0f"),
        ("tokens sampled", mean("tokens"), ",.0f"),
    )
    dear = table(
        found.arms,
        ("arm", lambda arm: TOLD[arm]),
        ("CPU-s a run", lambda arm: _each(found, arm, "cpu"), ".3f"),
        ("wall s a run", lambda arm: _each(found, arm, "wall"), ".3f"),
        ("programs, commands, judge", share("sandbox"), ".0%"),
        ("making sandboxes", share("starting"), ".0%"),
        ("model", share("engine"), ".0%"),
        ("harness, HTTP, snapshots, trainer", share("rest"), ".0%"),
    )
    before = f"Before: {show(by_seed(found.before))}. " if started else ""
    size = SIZES[found.lines[0]["variant"]]
    each = f"{size['iterations']} iterations of {size['tasks']} tasks with {size['rollouts']} runs each"
    return document(
        TITLE,
        f"{len(found.seeds)} seeds, {len(found.lines)} trainings of {each}, {minutes(lines):.0f} CPU-minutes in all. "
        f"Success on {size['panel']} held-out tasks, one sampled run each. {before}Means over seeds with 95 % t "
        "intervals, arms and before and after paired by seed.",
        pass_marks(found) if started else [],
        learnt,
        "### What it cost",
        dear,
        "### Whether the rows are the tokens",
        _tokens(found),
    )


def _own(cpu: dict[str, float]) -> float:
    return cpu["own"] - cpu["engine"]


def _less(found: Found, arm: str, other: str) -> str:
    return show(found.versus(arm, other), "+.3f") if arm != other and other in found.arms else "-"


def _each(found: Found, arm: str, what: str) -> float:
    """CPU-seconds or seconds of a training, for each of its runs."""
    spent = [line["cpu"] for line in found.results.of(arm=arm)]
    total = sum(c["wall"] if what == "wall" else c["sandbox"] + c["starting"] + c["own"] for c in spent)
    return float(total / found.get("runs", arm).sum())


def _tokens(found: Found) -> str:
    true, known = pooled(found.total("true_rows"), found.total("rows")), pooled(*_known(found))
    return (
        f"{found.total('true_rows'):,} of {found.total('rows'):,} rows ({show(true)}), with {found.total('replies'):,} "
        "sampled replies in them, hold what the engine was given and gave, token by token. Of "
        f"{found.total('repeats'):,} requests that repeat a history, {found.total('matched'):,} ({show(known)}) repeat "
        f"the recorded one to its last message; {found.total('anew'):,} of the model's replies were tokenised anew. "
        f"Logprobs computed by the trainer differ from the recorded ones by at most "
        f"{max(line['mismatch'] for line in found.lines):.1e} nats."
    )


def _known(found: Found) -> tuple[int, int]:
    return found.total("matched"), found.total("repeats")


def pass_marks(found: Found) -> list[Mark]:
    """What was promised before the first line of results was there."""
    marks = [
        Mark(TOLD[arm], "learns: gain in held-out success above 0 by its interval", it, it.low > 0)
        for arm, it in ((arm, found.gain(arm)) for arm in found.arms if arm != "g2po-lot")
    ]
    if "g2po-lot" in found.arms:
        lot, gap = found.gain("g2po-lot"), found.versus("g2po", "g2po-lot")
        marks += [
            Mark(
                TOLD["g2po-lot"], "the effect vanishes: the interval of its gain holds 0", lot, lot.low <= 0 <= lot.high
            ),
            Mark("G2PO less the control", "above 0 by its interval", gap, gap.low > 0),
        ]
    true, known = pooled(found.total("true_rows"), found.total("rows")), pooled(*_known(found))
    worst = max(line["mismatch"] for line in found.lines)
    return [
        *marks,
        Mark("rows are token-true", "all of them", true, true.estimate == 1),
        Mark("histories known to their last message", "all of them", known, known.estimate == 1),
        Mark("replies tokenised anew", "none", str(found.total("anew")), found.total("anew") == 0),
        Mark("logprobs of sampler and trainer", f"within {NATS:g} nats", f"{worst:.1e}", worst <= NATS),
    ]


def figure(lines: Lines) -> object:
    """Success of rollouts by iteration, mean over seeds, all seeds as a band."""
    found = Found(lines)
    fig, axis = canvas((5, 3.2))
    for arm in found.arms if found.seeds else ():
        curves = np.array([line["curve"] for line in found.results.of(arm=arm)])
        at = np.arange(1, curves.shape[1] + 1)
        axis.plot(at, curves.mean(axis=0), color=COLOURS[arm], label=TOLD[arm], linewidth=1.6)
        axis.fill_between(at, curves.min(axis=0), curves.max(axis=0), color=COLOURS[arm], alpha=0.08, linewidth=0)
    axis.set(xlabel="iteration", ylabel="success of rollouts", ylim=(0, 1))
    finish(axis)
    return fig
