"""Tables, pass marks and figure of tier T4 (and T5), from its lines of results alone."""

from typing import Any

import numpy as np

from papers.drawing import canvas, finish
from papers.E179_dspark.drafting import LABELS
from papers.E179_dspark.small import DOMAINS
from papers.stats import Lines, Mark, Report, by_seed, document, interval, mark, markdown, minutes, select, table, text


def rate(emitted: np.ndarray, rounds: np.ndarray) -> np.ndarray:
    return emitted.sum(axis=-1) / rounds.sum(axis=-1)


def gain(e: np.ndarray, r: np.ndarray, e0: np.ndarray, r0: np.ndarray) -> np.ndarray:
    return rate(e, r) / rate(e0, r0)


def prompts(lines: Lines, arm: str, block: int, seeds: Any = None) -> list[np.ndarray]:
    """Tokens and rounds of all prompts of all seeds, in the same order for every arm."""
    found = [x for x in select(lines, arm=arm, block=block) if seeds is None or x["seed"] in seeds]
    return [np.array([v for x in found for v in x[f]]) for f in ("emitted", "rounds")]


def tau(lines: Lines, arm: str, block: int) -> dict[int, float]:
    """Accepted length by seed, bonus included."""
    return {x["seed"]: sum(x["emitted"]) / sum(x["rounds"]) for x in select(lines, arm=arm, block=block)}


def compare(lines: Lines, arm: str, base: str, block: int) -> tuple[Report, Report] | None:
    """Ratio of accepted lengths: over seeds (Student), and over prompts of all seeds (paired bootstrap)."""
    a, b = tau(lines, arm, block), tau(lines, base, block)
    both = sorted(a.keys() & b.keys())
    if not both:
        return None
    sides = [*prompts(lines, arm, block, both), *prompts(lines, base, block, both)]
    return by_seed([a[s] / b[s] for s in both]), interval("", gain, *sides, unit="prompts")


def conditional(lines: Lines, arm: str, block: int, domain: int | None = None) -> np.ndarray:
    """Chance that token k is accepted given that those before it were, [seeds, block]."""
    reached = [np.array(x["reached"]) for x in select(lines, arm=arm, block=block)]
    totals = [x.sum(0) if domain is None else x[domain] for x in reached]
    return np.array([total[1:] / total[:-1] for total in totals])


def gap(lines: Lines, block: int) -> np.ndarray:
    """Accepted length of D3 less that of D0, by seed."""
    a, b = tau(lines, "D3", block), tau(lines, "D0", block)
    return np.array([a[s] - b[s] for s in sorted(a.keys() & b.keys())])


def paired(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Differences of the seeds that both have."""
    many = min(len(a), len(b))
    return a[:many] - b[:many]


def pass_marks(lines: Lines) -> list[Mark]:
    marks = []
    for arm, base, least in (("D3", "D0", 1.12), ("D3", "D1", 1.03), ("D2", "D0", 1.0), ("D1", "D0", 1.0)):
        if found := compare(lines, arm, base, 7):
            seeds, over_prompts = found
            met = seeds.estimate >= least and min(seeds.low, over_prompts.low) > 1
            told = f"over seeds {text(seeds)} ({seeds.n} seeds), over prompts {text(over_prompts)}"
            promise = f"accepted length at least {least} x, both intervals above 1" if least > 1 else "longer"
            marks.append(Mark("T4", f"{arm} against {base}, block 7: {promise}", told, met))
    if len(wider := paired(gap(lines, 15), gap(lines, 3))):
        marks.append(mark("T4", "D3 - D0 larger at block 15 than at 3", by_seed(wider), above=0))
    d0, d1, d3, d5 = (conditional(lines, arm, 7) for arm in ("D0", "D1", "D3", "D5"))
    if len(d0) and len(d1) and len(d3):
        suffix, second = by_seed(paired(d3, d0)[:, 1:].mean(1)), by_seed(paired(d3, d1)[:, 1])
        marks.append(mark("T5", "D3 >= D0 + 0.05, mean over positions 2 to 7", suffix, least=0.05))
        marks.append(mark("T5", "D3 >= D1 + 0.03 at position 2", second, least=0.03))
    if len(d5):
        slope = by_seed(np.polyfit(np.arange(1, 8), d5.T, 1)[0])
        marks.append(mark("T5", "D5 flat or rising (slope per position)", slope, least=0))
    return marks


def report(lines: Lines) -> str:
    """Markdown of the tier, pass marks first."""
    many, each = len({x["seed"] for x in lines}), len(lines[0]["rounds"]) if lines else 0
    training = minutes(x["trained"] for x in lines)
    parts = [part for block in sorted({x["block"] for x in lines}) for part in _lengths(lines, block)]
    return document(
        "## Tier T4: accepted length; T5: acceptance by position",
        f"{len(lines)} cells, {many} seeds x {each} prompts (as many of each domain), "
        f"{minutes(lines):.1f} CPU-minutes to measure and {training:.1f} to train. Accepted length (tokens a round, "
        "recovered or bonus token included) in expectation over the target's own decode loop at temperature 1.",
        pass_marks(lines),
        *parts,
        "### By position, blocks of 7",
        _positions(lines),
    )


def _arms(lines: Lines, block: int) -> list[str]:
    return [arm for arm in LABELS if select(lines, arm=arm, block=block)]


def _lengths(lines: Lines, block: int) -> list[str]:
    def versus(arm: str, which: int) -> Report | str:
        found = compare(lines, arm, "D0", block) if arm != "D0" else None
        return found[which] if found else ""

    def domain(arm: str, d: int) -> float:
        total = sum(np.array(x["reached"])[d] for x in select(lines, arm=arm, block=block))
        return float(total.sum() / total[0])

    def steps(arm: str) -> str:
        return "/".join(map(str, sorted({x["trained"]["steps"] for x in select(lines, arm=arm, block=block)})))

    return [
        f"### Blocks of {block}",
        table(
            _arms(lines, block),
            ("arm", lambda arm: f"{arm} {LABELS[arm]}"),
            ("accepted length", lambda arm: interval("", rate, *prompts(lines, arm, block), unit="prompts")),
            ("by seed", lambda arm: " ".join(f"{v:.3f}" for v in tau(lines, arm, block).values())),
            *((name, lambda arm, d=d: domain(arm, d), ".2f") for d, name in enumerate(DOMAINS)),
            ("x D0 (seeds)", lambda arm: versus(arm, 0)),
            ("x D0 (prompts)", lambda arm: versus(arm, 1)),
            ("steps", steps),
        ),
    ]


def _positions(lines: Lines) -> str:
    rows = []
    for arm in _arms(lines, 7):
        rows.append([f"{arm} {LABELS[arm]}", *(f"{v:.3f}" for v in conditional(lines, arm, 7).mean(0))])
        for d, name in enumerate(DOMAINS if arm in ("D0", "D3") else ()):
            rows.append([f"{arm} {name}", *(f"{v:.3f}" for v in conditional(lines, arm, 7, d).mean(0))])
    return markdown(["conditional acceptance, means over seeds", *map(str, range(1, 8))], rows)


def figure(lines: Lines) -> object:
    """Left: conditional acceptance by position at block 7. Right: accepted length by block, every seed."""
    fig, (left, right) = canvas((9, 3.2), 1, 2)
    palette = ("#000000", "#0072B2", "#E69F00", "#D55E00", "#CC79A7", "#009E73", "#56B4E9")
    colours = dict(zip(LABELS, palette, strict=True))
    for arm in _arms(lines, 7):
        y = conditional(lines, arm, 7).mean(0)
        left.plot(np.arange(1, 8), y, color=colours[arm], marker=".", label=LABELS[arm])
    left.set(xlabel="position in the block", ylabel="accepted, given those before")
    for arm in ("D0", "D3"):
        found = {block: tau(lines, arm, block) for block in (3, 7, 15)}
        for seed in sorted({x["seed"] for x in lines}):
            if points := [(block, by[seed]) for block, by in found.items() if seed in by]:
                how = {"color": colours[arm], "label": "" if seed else LABELS[arm]}
                right.plot(*zip(*points, strict=True), marker=".", linewidth=1, **how)
    right.set(xlabel="block", ylabel="accepted length")
    finish(left, right, font=7)
    return fig
