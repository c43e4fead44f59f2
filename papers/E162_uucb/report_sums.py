"""Tables, marks and figure of the tier on `sums`, from its lines of results alone."""

from collections.abc import Sequence
from math import comb

import numpy as np

from papers.drawing import canvas, finish, whiskers
from papers.E162_uucb.tier_sums import ARMS, LEAVES, ROUNDS, SPARE, TASKS
from papers.stats import Line, Lines, Mark, Results, bullets, by_seed, document, mark, markdown, minutes, table, text

COLOURS = ("#000000", "#BBBBBB", "#777777", "#009E73", "#E69F00", "#D55E00", "#0072B2", "#CC79A7")


class Collected(Results):
    """Results by budget and arm, over seeds in order."""

    def mean(self, kind: str, arm: str, field: str) -> np.ndarray:
        """Mean of a field by seed; its median for the repeated times."""
        middle = np.median if field.endswith("_cpu") else np.mean
        return np.array([middle(x[field]) for x in self.of(kind=kind, arm=arm)], dtype=float)

    def ratios(self, kind: str, arm: str) -> np.ndarray:
        """CPU time over that of eight flat rollouts measured just before, every seed and round."""
        found = [np.array(x["collect_cpu"]) / np.array(x["flat_cpu"]) for x in self.of(kind=kind, arm=arm)]
        return np.concatenate(found)


def spread(x: np.ndarray) -> str:
    return f"{np.median(x):.2f} [{x.min():.2f}, {x.max():.2f}]"


def report(lines: Lines) -> str:
    """Markdown, pass marks first."""
    t = Collected(lines)
    return document(
        "# E162 in a real model: trees on `sums`",
        f"{len(lines)} cells, {len(t.of(kind='leaves', arm='flat'))} seeds (each its own model, {TASKS} tasks and "
        f"sampling), {minutes(lines):.1f} CPU-minutes. 95 % t intervals over seeds, paired. A group is dead "
        "where the judge's raw rewards are all equal.",
        marks(t),
        f"## At equal tokens (as many as {LEAVES} flat rollouts take on average)",
        _table(t, "tokens"),
        "No budget is overdrawn knowingly: flat rollouts at equal tokens stop short of it, since a whole one no longer "
        f"fits, and trees fill it. The marks therefore compare with the {LEAVES} flat rollouts that set the budget.",
        "## Dead share at equal tokens, selector minus UUCB, paired",
        table(
            [arm for arm in ARMS if arm != "uucb" and t.of(kind="tokens", arm=arm)],
            ("selector", str),
            ("gap", lambda arm: by_seed(_gap(t, "tokens", arm))),
            ("by seed", lambda arm: " ".join(f"{x:+.2f}" for x in _gap(t, "tokens", arm))),
        ),
        f"## At equal leaves ({LEAVES})",
        _table(t, "leaves"),
        f"## Budget moved: {SPARE:.1%} of all tokens kept for trees whose outcomes are all alike (UUCB)",
        _moves(t),
        f"The learned one has seen {TASKS} other tasks collected with even shares.",
        "## At equal CPU time: flat rollouts given what UUCB took for its tokens",
        _table(t, "time", ("flat",)),
        "## What it costs",
        bullets(_costs(t)),
        f"CPU times are of collecting, with choosing, forking and storing; medians of {ROUNDS} rounds in turn. "
        "Their ratio in the tables is the median over seeds and rounds, with the least and the greatest.",
    )


def marks(t: Collected) -> list[Mark]:
    flat = by_seed(t.mean("leaves", "flat", "dead"))
    drop = by_seed(t.mean("leaves", "flat", "dead") - t.mean("tokens", "uucb", "dead"))
    spent, saving = (
        by_seed(t.mean(kind, "uucb", "tokens") / t.mean("leaves", "flat", "tokens")) for kind in ("tokens", "leaves")
    )
    return [
        mark("mix", f"{LEAVES} flat rollouts leave .50 to .80 of groups dead", flat, least=0.5, most=0.8),
        mark("equal tokens", "UUCB decodes at most their tokens", spent, most=1.0, told=f"{text(spent)} of them"),
        mark("dead groups", "UUCB at least .10 below flat, above 0", drop, least=0.1, above=0),
        mark("saving", f"tokens of {LEAVES} tree leaves at most .6 of flat's", saving, most=0.6),
    ]


def _gap(t: Collected, kind: str, arm: str) -> np.ndarray:
    return t.mean(kind, arm, "dead") - t.mean("tokens", "uucb", "dead")


def _table(t: Collected, kind: str, arms: Sequence[str] = tuple(ARMS)) -> str:
    shown = {"dead groups": "dead", "group std": "std", "mean reward of leaves": "success", "where forks lie": "place"}
    return table(
        [arm for arm in arms if t.of(kind=kind, arm=arm)],
        ("selector", str),
        *((head, lambda arm, field=field: by_seed(t.mean(kind, arm, field))) for head, field in shown.items()),
        ("tokens a task", lambda arm: t.mean(kind, arm, "tokens").mean(), ".0f"),
        ("leaves a task", lambda arm: t.mean(kind, arm, "leaves").mean(), ".1f"),
        (f"CPU time over that of {LEAVES} flat", lambda arm: spread(t.ratios(kind, arm))),
    )


def _moves(t: Collected) -> str:
    rows = []
    for kind, arm, told in (("tokens", "uucb", "none"), ("moved", "even", "even"), ("moved", "learned", "learned")):
        if t.of(kind=kind, arm=arm):
            apart, (tokens, leaves) = _gap(t, kind, arm), (t.mean(kind, arm, f).mean() for f in ("tokens", "leaves"))
            dead, std = (by_seed(t.mean(kind, arm, f)) for f in ("dead", "std"))
            each = " ".join(f"{x:+.2f}" for x in apart)
            rows.append([told, dead, by_seed(apart), each, std, f"{tokens:.0f}", f"{leaves:.1f}"])
    head = "allocator | dead groups | minus not moved, paired | by seed | group std | tokens a task | leaves a task"
    return markdown(head, rows)


def chance_dead(line: Line, leaves: int) -> float:
    """Expected share of dead groups had only ``leaves`` of each group's flat rollouts been made; exact."""
    n = round(line["leaves"])
    alike = [(comb(n - won, leaves) + comb(won, leaves)) / comb(n, leaves) for won in line["won"]]
    return float(np.mean(alike))


def needed(line: Line, dead: float) -> int:
    """The fewest flat rollouts a task that leave at most this share of groups dead; all of the line's, if none do."""
    n = round(line["leaves"])
    return next((k for k in range(2, n + 1) if chance_dead(line, k) <= dead), n)


def _costs(t: Collected) -> list[str]:
    price = by_seed(t.mean("leaves", "uucb", "dead") - t.mean("leaves", "flat", "dead"))
    timed = by_seed(t.mean("time", "flat", "dead") - t.mean("tokens", "uucb", "dead"))
    pairs = zip(t.of(kind="time", arm="flat"), t.of(kind="tokens", arm="uucb"), strict=True)
    fewest = np.array([needed(flat, float(np.mean(tree["dead"]))) for flat, tree in pairs], dtype=float)
    leaves, tokens = t.mean("time", "flat", "leaves"), t.mean("tokens", "uucb", "tokens")
    same = fewest * t.mean("time", "flat", "tokens") / leaves  # tokens of that many flat rollouts
    seconds = fewest * t.mean("time", "flat", "collect_cpu") / leaves
    extra = (t.mean("tokens", "uucb", "collect_cpu") - seconds) / TASKS
    return [
        f"Dead share at equal leaves, UUCB minus flat: {text(price)}.",
        f"Dead share at equal CPU time, flat minus UUCB: {text(timed)}.",
        f"Flat rollouts a task that leave as few groups dead as UUCB at equal tokens: {text(by_seed(fewest), 1)}, "
        f"which take {text(by_seed(same / tokens), 2)} times its tokens (expected over subsets of those at equal CPU "
        "time).",
        f"CPU time that a decoded token must cost beyond what it costs here for a tree to break even: "
        f"{text(by_seed(1e6 * extra / (same - tokens)), 0)} microseconds.",
    ]


def figure(lines: Lines) -> object:
    """Dead share against decoded tokens: flat sampling as a curve, a point per selector and budget."""
    t = Collected(lines)
    fig, axis = canvas((6.5, 3.6))
    flat = t.of(kind="time", arm="flat")
    counts = range(2, min(round(line["leaves"]) for line in flat) + 1)
    each = float(np.mean([line["tokens"] / line["leaves"] for line in flat]))
    curve = [np.mean([chance_dead(line, k) for line in flat]) for k in counts]
    axis.plot([k * each for k in counts], curve, color=COLOURS[0], linewidth=1, label="flat, any number")
    for i, (arm, colour) in enumerate(zip(ARMS, COLOURS, strict=True)):
        for kind, marker in (("tokens", "o"), ("leaves", "s")):
            if t.of(kind=kind, arm=arm):
                beside = t.mean(kind, arm, "tokens").mean() + 5 * (i - len(ARMS) / 2)  # so that none hides another
                how = {"fmt": marker, "color": colour, "label": arm if kind == "tokens" else None}
                whiskers(axis, beside, by_seed(t.mean(kind, arm, "dead")), capsize=2, ms=4, **how)
    axis.set_xlabel("tokens decoded per task (circles: equal tokens, squares: equal leaves; set apart sideways)")
    axis.set(ylabel="share of dead groups", xlim=(0, 2.5 * LEAVES * each), ylim=(0, 1))
    finish(axis, grid=False, loc="upper right")
    return fig
