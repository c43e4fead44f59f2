"""Tables, pass marks and figure of E162, from its lines of results alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from clew.core.records import Report
from papers.drawing import canvas
from papers.E162_uucb.chain import CLASSES
from papers.E162_uucb.tier_chain import ARMS, LEARNERS, PROMPTS, unbits
from papers.stats import Mark, difference, interval, markdown, mean, ratio, select, text, values

Line = dict[str, Any]
DEPTHS, SEEDS = (8, 16, 32), (2, 4, 8)
MOVES = ("plain", "moved", "learned", "known")


class Lines:
    """Results by setting."""

    def __init__(self, lines: Sequence[Line]) -> None:
        self.all = lines

    def of(self, **setting: Any) -> list[Line]:
        return select(self.all, **setting)

    def mixed(self, arm: str, prompts: str, budget: str = "tokens", kind: str = "grow") -> np.ndarray:
        """Whether each prompt's group was mixed, [seeds x 600]; the order is the same for every arm."""
        return np.concatenate([unbits(x[budget]["mixed"]) for x in self.of(kind=kind, arm=arm, prompts=prompts)])

    def mean(self, arm: str, prompts: str, budget: str, field: str) -> float:
        return float(np.mean([x[budget][field] for x in self.of(kind="grow", arm=arm, prompts=prompts)]))

    def field(self, name: str, **setting: Any) -> np.ndarray:
        return values(self.all, name, **setting)


def over(claim: str, statistic: Any, *samples: np.ndarray) -> Report:
    return interval(claim, statistic, *samples, design=f"{len(samples[0])} prompts, paired bootstrap over prompts")


def report(lines: Sequence[Line]) -> str:
    """Markdown, pass marks first.

    Raises:
        KeyError: a line lacks the equal-leaf or equal-time results (P4).
    """
    table = Lines(lines)
    seeds = len({line["seed"] for line in table.of(kind="grow")})
    parts = [
        "# E162: UUCB on fork chains",
        f"{len(lines)} cells, {seeds} seeds of {PROMPTS} prompts a class, {sum(x['cpu_s'] for x in lines) / 60:.1f} "
        "CPU-minutes. 95 % bootstrap intervals, over prompts unless said; the arms share prompts.",
        "\n".join(f"- {mark}" for mark in marks(table)),
        "## Mixed groups at equal tokens (128 decoded)",
        _budget(table, "tokens"),
        "## Mixed groups at equal leaves (8)",
        _budget(table, "leaves"),
        "## Flat sampling given the CPU time that each selector took for its 128 tokens",
        _timed(table),
        "## Group spread 2 sqrt(q (1 - q)) at equal tokens",
        _spreads(table),
        "## Budget moved to uniform prompts: 5 leaves' worth first, the rest where it is needed",
        _moved(table),
        "## Proxy audit: correlation with the truth, pooled over prompts and within a prompt",
        _audit(table),
        "## Training: 40 hard prompts, 40 updates, 204,800 tokens",
        _learning(table),
    ]
    return "\n\n".join(parts) + "\n"


def marks(table: Lines) -> list[Mark]:
    return [*_theory(table), *_selection(table), *_moving(table), *_proxies(table), *_bounds(table), *_trained(table)]


def _theory(table: Lines) -> list[Mark]:
    out = []
    for name in CLASSES:
        found = table.mixed("flat", name)
        exact = float(np.mean([x["exact"]["8"] for x in table.of(kind="grow", arm="flat", prompts=name)]))
        gap = over("", mean, found - exact)
        error = 3 * float(np.sqrt(exact * (1 - exact) / len(found)))
        out.append(
            Mark(f"P1 {name}", f"flat within 3 SE ({error:.3f}) of {exact:.3f}", gap, abs(gap.estimate) <= error)
        )
    hardest = [x["exact"] for x in table.of(kind="grow", arm="flat", prompts="vhard")]
    eight, four = (np.array([x[n] for x in hardest]) for n in ("8", "4"))
    doubled = interval("", ratio, eight, four)
    out.append(Mark("P1 M(8)/M(4), vhard", "in [1.85, 2.0]", doubled, 1.85 <= doubled.estimate <= 2.0))
    return out


def _selection(table: Lines) -> list[Mark]:
    out = []
    for name, least in (("mid", 1.25), ("hard", 1.7)):
        found = over("", ratio, table.mixed("uucb", name), table.mixed("flat", name))
        met = found.estimate >= least and found.low > 1
        out.append(Mark(f"P2 {name}", f"UUCB / flat at least {least}, interval above 1", found, met))
    for name in ("mid", "hard"):
        found = over("", ratio, table.mixed("uct", name), table.mixed("flat", name))
        out.append(Mark(f"P3 {name}", "UCT / flat at most 1.15", found, found.estimate <= 1.15))
    for name in ("mid", "hard"):
        found = over("", ratio, table.mixed("uucb", name, "leaves"), table.mixed("flat", name, "leaves"))
        out.append(Mark(f"P4 {name}", "printed; at equal leaves UUCB / flat at most 1", found, found.estimate <= 1))
    return out


def _moving(table: Lines) -> list[Mark]:
    out = []
    for arm in ("flat", "uucb"):
        plain, moved = (table.mixed(arm, "mid", which, "move") for which in ("plain", "moved"))
        gain = over("", difference, moved, plain)
        out.append(Mark(f"P5 {arm}", "moving budget gains at least .02", gain, gain.estimate >= 0.02))
    even, learned = (table.mixed("uucb", "all", which, "move") for which in ("moved", "learned"))
    gain = over("", difference, learned, even)
    out.append(Mark("step 6", "a learned forecast moves it better than even shares do", gain, gain.low > 0))
    return out


def _proxies(table: Lines) -> list[Mark]:
    def get(depth: int, seeds: int, field: str, scope: str = "all") -> np.ndarray:
        return np.array([x[scope][field] for x in table.of(kind="proxy", depth=depth, seeds=seeds)])

    whole = interval("", mean, get(16, 8, "pooled proxy"))
    term = interval("", mean, get(16, 8, "pooled coverage"))
    falls = interval("", difference, get(8, 2, "ratio"), get(32, 2, "ratio"))
    middle = float(get(16, 2, "ratio").mean())
    ordered = float(get(8, 2, "ratio").mean()) >= middle >= float(get(32, 2, "ratio").mean()) and falls.low > 0
    return [
        Mark("P6 whole F", "pooled correlation at least .6 with 8 seeds", whole, whole.estimate >= 0.6),
        Mark("P6 coverage term", "pooled correlation at least .6 with 8 seeds", term, term.estimate >= 0.6),
        Mark("P6 depth", "greedy / best falls from depth 8 over 16 to 32", falls, ordered),
    ]


def _bounds(table: Lines) -> list[Mark]:
    bad = interval("", mean, table.field("violations", kind="bounds"))
    least = interval("", mean, table.field("greedy", kind="bounds"))
    raw = np.array([x["raw"] for x in table.of(kind="bounds")])
    counter = interval("", mean, (raw[:, 2] - raw[:, 1]) - (raw[:, 1] - raw[:, 0]))
    second = interval("", difference, raw[:, 1], raw[:, 2] - raw[:, 1])
    assert np.allclose(raw[:, 0], 0.0), counter
    return [
        Mark("P7 F", "no violation of diminishing returns in 1,000 pairs", bad, bad.estimate == 0),
        Mark("P7 greedy", "smallest greedy / best at least 1 - 1/e", least, least.estimate >= 1 - 1 / np.e),
        Mark("P7 raw M", "the second rollout gains more than the first (0)", second, second.estimate > 0),
    ]


def _trained(table: Lines) -> list[Mark]:
    dead = [table.field("dead", kind="learn", arm=arm) for arm in ("flat", "uucb")]
    final = [table.field("final", kind="learn", arm=arm) for arm in ("flat", "uucb")]
    drop = interval("", difference, dead[0], dead[1])
    gain = interval("", ratio, final[1], final[0])
    return [
        Mark("P8 dead groups", "drop of at least .05", drop, drop.estimate >= 0.05 and drop.low > 0),
        Mark("P8 success", "at least 1.15 x flat", gain, gain.estimate >= 1.15 and gain.low > 1),
    ]


def _budget(table: Lines, budget: str) -> str:
    rows = []
    for arm in ARMS:
        found = [text(over("", mean, table.mixed(arm, name, budget))) for name in CLASSES]
        used, leaves = (table.mean(arm, "mid", budget, field) for field in ("used", "n"))
        rows.append([arm, *found, f"{used:.0f}", f"{leaves:.1f}"])
    return markdown(["selector", *CLASSES, "tokens (mid)", "leaves (mid)"], rows)


def _timed(table: Lines) -> str:
    rows = []
    for arm in ARMS:
        if arm != "flat":
            found = [table.mixed(arm, name, "timed").mean() for name in CLASSES]
            own = [table.mixed(arm, name).mean() for name in CLASSES]
            seconds = table.field("cpu_tree", kind="grow", arm=arm, prompts="mid").mean()
            cells = [f"{a:.3f} / {b:.3f}" for a, b in zip(own, found, strict=True)]
            rows.append([arm, *cells, f"{seconds:.2f}", f"{table.mean(arm, 'mid', 'timed', 'n'):.1f}"])
    head = ["selector", *(f"{name}, selector / flat" for name in CLASSES), "CPU s (mid)", "flat's leaves (mid)"]
    return (
        markdown(head, rows) + "\n\nA token of the simulator costs next to nothing, so this is the case in which "
        "choosing costs most beside decoding."
    )


def _spreads(table: Lines) -> str:
    rows = [[arm, *(f"{table.mean(arm, name, 'tokens', 'std'):.3f}" for name in CLASSES)] for arm in ARMS]
    return markdown(["selector", *CLASSES], rows)


def _moved(table: Lines) -> str:
    rows = []
    for prompts in ("mid", "all"):
        for arm in ("flat", "uucb"):
            cells = [text(over("", mean, table.mixed(arm, prompts, which, "move"))) for which in MOVES]
            lines = table.of(kind="move", arm=arm, prompts=prompts)
            used = " / ".join(f"{np.mean([x[which]['used'] for x in lines]):.1f}" for which in MOVES)
            rows.append([prompts, arm, *cells, used])
    head = ["prompts", "selector", "not moved", "even shares", "learned", "learned, prompts seen before"]
    return (
        markdown([*head, "tokens a prompt"], rows) + "\n\nLearned: a logistic regression fitted to 600 other prompts "
        "says which uniform trees are likeliest to become mixed by the next 32 tokens. Seen before: it also knows how "
        "8 flat rollouts of the prompt had ended."
    )


def _audit(table: Lines) -> str:
    rows = []
    for scope in ("all", "uniform"):
        for depth in DEPTHS:
            for seeds in SEEDS:
                found = [x[scope] for x in table.of(kind="proxy", depth=depth, seeds=seeds)]
                fields = ("pooled proxy", "pooled coverage", "within proxy", "within coverage", "ratio")
                cells = [text(interval("", mean, np.array([x[f] for x in found]))) for f in fields]
                rows.append([scope, str(depth), str(seeds), *cells, str(sum(x["prompts"] for x in found))])
    head = ["prompts", "depth", "seed rollouts", "F pooled", "coverage pooled", "F within", "coverage within"]
    return markdown([*head, "greedy / best", "n"], rows) + "\n\nIntervals over seeds."


def _learning(table: Lines) -> str:
    rows = []
    for arm in LEARNERS:
        cells = [text(interval("", mean, table.field(f, kind="learn", arm=arm))) for f in ("before", "final", "dead")]
        tokens = table.field("tokens", kind="learn", arm=arm).mean()
        rows.append([arm, *cells, f"{tokens:,.0f}", str(len(table.of(kind="learn", arm=arm)))])
    head = ["rollouts, baseline", "success before", "success after", "groups without signal", "tokens", "seeds"]
    return markdown(head, rows) + "\n\nIntervals over seeds. Without a named baseline: GRPO over leaves."


def figure(lines: Sequence[Line]) -> Any:
    """Mixed groups by class at equal tokens and equal leaves, and success while training."""
    table = Lines(lines)
    shown = {"flat": "#000000", "random": "#999999", "uct": "#D55E00", "entropy": "#009E73", "uucb": "#0072B2"}
    fig, axes = canvas((11, 3.2), 1, 3)
    for axis, budget, title in zip(axes, ("tokens", "leaves"), ("128 tokens each", "8 leaves each"), strict=False):
        for i, (arm, colour) in enumerate(shown.items()):
            found = [over("", mean, table.mixed(arm, name, budget)) for name in CLASSES]
            middle = np.array([f.estimate for f in found])
            error = np.abs(np.array([[f.low, f.high] for f in found]).T - middle)
            at = np.arange(len(CLASSES)) + 0.16 * (i - 2)
            axis.bar(at, middle, 0.15, color=colour, label=arm, yerr=error, error_kw={"linewidth": 0.8})
        axis.set_xticks(range(len(CLASSES)), list(CLASSES))
        axis.set_title(title)
        axis.set_ylabel("share of mixed groups")
    axes[0].legend(frameon=False, fontsize=8)
    for arm, colour in zip(LEARNERS, ("#000000", "#0072B2", "#56B4E9", "#CC79A7"), strict=True):
        curves = np.array([x["curve"] for x in table.of(kind="learn", arm=arm)])
        axes[2].plot(curves.mean(axis=0), color=colour, label=arm)
        axes[2].fill_between(range(curves.shape[1]), curves.min(axis=0), curves.max(axis=0), color=colour, alpha=0.1)
    axes[2].set_title("training at equal tokens (band: all seeds)")
    axes[2].set_xlabel("update")
    axes[2].set_ylabel("exact success")
    axes[2].legend(frameon=False, fontsize=8)
    return fig
