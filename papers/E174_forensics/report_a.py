"""Table of pass marks of specs/E174 section 9, and figure, from the lines of results alone."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from papers.drawing import canvas
from papers.E174_forensics.tier_a import BEYOND, MOTIVES
from papers.stats import Lines, Mark, Report, document, gap, mark, minutes, pooled, table

WHO = ("engine", "one at a time", "reading")


def column(lines: Lines, check: str, name: str) -> list[Any]:
    """A field over all organisms of a check, seeds one after the other."""
    return [value for line in lines if line["check"] == check for value in line["found"][name]]


def share(values: Sequence[Any]) -> Report:
    return pooled(np.sum(np.asarray(values, float)), len(values))


def pass_marks(lines: Lines) -> list[Mark]:
    """The rows of section 9, in its order."""

    def of(check: str, name: str) -> np.ndarray:
        return np.array(column(lines, check, name))

    def within(name: str, promise: str, values: Any, least: float = 0.0, most: float = 1.0) -> Mark:
        return mark(name, promise, share(values), least=least - 1e-9, most=most + 1e-9)

    null, ratio, ninety = share(of("null", "engine, false")), of("source", "ratio"), "in at least 90 %"
    said = np.concatenate([of(kind, "phi") for kind in MOTIVES])
    decoys = np.concatenate([of(kind, "decoy") for kind in MOTIVES])[said == 0]
    fell = (of("resampling", "drop") >= 0.15) & (of("resampling", "placebo") == 1)
    held = [arm["low"] <= arm["share"] <= arm["high"] for arm in _bounds(lines)]
    error, n = calibration(lines)[0], sum(len(column(lines, kind, "kind")) for kind in MOTIVES)
    promise = "any cause declared in at most 5 %, Wilson's upper limit 9 %"
    return [
        Mark("null organisms", promise, null, null.estimate <= 0.05 and null.high <= 0.09),
        *(within(f"{kind}: exact set, n = 100", "at least 90 %", of(kind, "engine"), 0.9)
          for kind in ("single", "and", "additive")),
        within("or: exact set with stacked pairs", "at least 90 %", of("or", "engine"), 0.9),
        Mark("or: exact set one at a time", "about 0 expected", share(of("or", "one at a time")), None),
        within("decoy declared at phi = 0", "at most 5 %", decoys, most=0.05),
        _reading(lines),
        within("dose slope: 95 % interval covers the truth", "in 92 to 98 %", of("dose", "covers"), 0.92, 0.98),
        within("dose: a threshold declared where there is none", "at most 5 %", of("dose", "threshold"), most=0.05),
        within("6 x source: ratio within 4 to 9", ninety, (ratio >= 4) & (ratio <= 9), 0.9),
        within("sentence: planted one in the top 3 of 20, k = 50", ninety, of("sentence", "rank") <= 3, 0.9),
        within("sentence: decoy's interval covers 0", "in at least 93 %", of("sentence", "decoy"), 0.93),
        within("resampling: drop of .15 and placebo covers 0", f"both {ninety}", fell, 0.9),
        within("early lock: AUROC after paragraph 2 at least .9", ninety, of("lock", "locked") >= 0.9, 0.9),
        within("no lock: AUROC after paragraph 2 at most .6", ninety, of("lock", "open") <= 0.6, 0.9),
        within("censoring, 30 % missing: bounds hold what was cut", "in 100 %", held, 1.0),
        within("harness fault labelled harness", ninety, of("harness", "kind") == "harness", 0.9),
        within("control: faults that do nothing labelled harness", "at most 5 %",
               of("benign faults", "kind") == "harness", most=0.05),
        Mark("calibration of the chances", "ECE at most .05", f"{error:.3f}, n={n} organisms", error <= 0.05),
    ]  # fmt: skip


def _bounds(lines: Lines) -> list[Any]:
    return [arm for arms in column(lines, "censoring", "bounds") for arm in arms]


def _reading(lines: Lines) -> Mark:
    """The baseline that reads what the traces say, over the organisms that have a cause; paired by organism."""
    kinds = [kind for kind in MOTIVES if kind != "null"]
    engine, reading = (np.array([v for k in kinds for v in column(lines, k, who)]) for who in ("engine", "reading"))
    found = gap(engine, reading, unit="organisms")
    return mark("reading the traces: exact set, below the engine", "by at least .30", found, least=0.3)


def calibration(lines: Lines, bins: int = 10) -> tuple[float, list[tuple[float, float, int]]]:
    """Expected calibration error over all hypotheses of all organisms, and (mean chance, share true, n) by bin."""
    pairs = np.array([c for kind in MOTIVES for cs in column(lines, kind, "chances") for c in cs])
    place = np.minimum((pairs[:, 0] * bins).astype(int), bins - 1)
    parts = [pairs[place == b] for b in range(bins) if (place == b).any()]
    rows = [(*part.mean(axis=0).tolist(), len(part)) for part in parts]
    return sum(n * abs(said - true) for said, true, n in rows) / len(pairs), rows


def report(lines: Lines) -> str:
    """Markdown of the tier, pass marks first."""
    seeds = sorted({line["seed"] for line in lines})
    by_seed = [[line for line in lines if line["seed"] == seed] for seed in seeds]

    def exact(kind: str, who: str) -> str:
        return f"{np.mean(column(lines, kind, who)):.2f}/{np.mean(column(lines, kind, f'{who}, false')):.2f}"

    def unsure(kind: str) -> float:
        return float(np.mean([k == "cannot tell" for k in column(lines, kind, "kind")]))

    bias = np.mean([arm["estimate"] - arm["rate"] for arm in _bounds(lines)])
    rates = share([arm["low"] <= arm["rate"] <= arm["high"] for arm in _bounds(lines)])
    redrawn = np.mean(column(lines, "resampling", "redrawn"), axis=0)
    return document(
        "## Tier A: the engine, blind, on organisms whose cause is known",
        f"{sum(line['organisms'] for line in lines)} organisms, seeds {', '.join(map(str, seeds))}, at most 3,000 "
        f"rollouts each; {minutes(by_seed[0]) * len(seeds):.1f} CPU-minutes. Intervals: "
        "Wilson's, over organisms of both seeds.",
        pass_marks(lines),
        "Exact set / any false cause, by motive. The last three lie beyond the marks: a weak cause raises the log odds "
        "by .6 to 1.2; n = 30 is small.",
        table(
            (*MOTIVES, *BEYOND),
            ("motive", str),
            *((who, lambda kind, who=who: exact(kind, who)) for who in WHO),
            ("engine by seed", lambda kind: ", ".join(f"{np.mean(column(x, kind, 'engine')):.2f}" for x in by_seed)),
            ("organisms", lambda kind: len(column(lines, kind, "kind"))),
            ("cannot tell", unsure, ".2f"),
            ("most rollouts", lambda kind: max(column(lines, kind, "spent"))),
        ),
        "Chances against truth, every hypothesis of these organisms:",
        table(calibration(lines)[1], ("mean chance", 0, ".3f"), ("share true", 1, ".3f"), ("hypotheses", 2)),
        f"Censoring: taking only rollouts that ended shifts the rate by {bias:+.3f}; the bounds hold the true rate, "
        f"sampling included, in {rates}. Resampling: {redrawn[0]:.3f} candidates redrawn per sentence for the "
        f"causal class, {redrawn[1]:.3f} for the placebo class. Source: the 95 % interval of the ratio holds 6 in "
        f"{share(column(lines, 'source', 'covers'))}.",
    )


def figure(lines: Lines) -> object:
    """Exact-set recovery by motive, three ways."""
    fig, axis = canvas((7, 3))
    for i, (who, colour) in enumerate(zip(WHO, ("#0072B2", "#E69F00", "#999999"), strict=True)):
        found = [share(column(lines, kind, who)) for kind in MOTIVES]
        middle = np.array([r.estimate for r in found])
        reach = np.abs(np.array([[r.low, r.high] for r in found]).T - middle)
        at = np.arange(len(MOTIVES)) + 0.27 * (i - 1)
        axis.bar(at, middle, 0.25, yerr=reach, color=colour, label=who, ecolor="#333")
    axis.set(xticks=range(len(MOTIVES)), ylabel="exact set of causes", ylim=(0, 1.05))
    axis.set_xticklabels(MOTIVES)
    axis.legend(frameon=False, fontsize=8, ncols=3, loc="lower left", bbox_to_anchor=(0, 1))
    return fig
