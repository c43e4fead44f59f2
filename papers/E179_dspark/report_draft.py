"""Tables, pass marks and figure of tier T4 (and T5), from its lines of results alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from clew.core.records import Report
from papers.drawing import canvas
from papers.E179_dspark.drafting import LABELS
from papers.E179_dspark.small import DOMAINS
from papers.stats import Mark, interval, markdown, select, t_interval, text

Line = dict[str, Any]


def rate(emitted: np.ndarray, rounds: np.ndarray) -> np.ndarray:
    return emitted.sum(axis=-1) / rounds.sum(axis=-1)


def gain(e: np.ndarray, r: np.ndarray, e0: np.ndarray, r0: np.ndarray) -> np.ndarray:
    return rate(e, r) / rate(e0, r0)


def prompts(
    lines: Sequence[Line], arm: str, block: int, seeds: set[int] | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Tokens and rounds of all prompts of all seeds, in the same order for every arm."""
    found = [x for x in select(lines, arm=arm, block=block) if seeds is None or x["seed"] in seeds]
    return (np.array([v for x in found for v in x[f]]) for f in ("emitted", "rounds"))  # type: ignore[return-value]


def seeds_of(lines: Sequence[Line], *arms: str, block: int) -> set[int]:
    return set.intersection(*({x["seed"] for x in select(lines, arm=a, block=block)} for a in arms))


def tau(lines: Sequence[Line], arm: str, block: int) -> dict[int, float]:
    """Accepted length by seed, bonus included."""
    return {x["seed"]: sum(x["emitted"]) / sum(x["rounds"]) for x in select(lines, arm=arm, block=block)}


def compare(lines: Sequence[Line], arm: str, base: str, block: int) -> tuple[Report, Report] | None:
    """Ratio of accepted lengths: over seeds (Student), and over prompts of all seeds (paired bootstrap)."""
    both = seeds_of(lines, arm, base, block=block)
    if not both:
        return None
    a, b = tau(lines, arm, block), tau(lines, base, block)
    over_seeds = t_interval("", np.array([a[s] / b[s] for s in sorted(both)]))
    e, r = prompts(lines, arm, block, both)
    e0, r0 = prompts(lines, base, block, both)
    return over_seeds, interval("", gain, e, r, e0, r0, unit="prompts")


def conditional(lines: Sequence[Line], arm: str, block: int, domain: int | None = None) -> np.ndarray:
    """Chance that token k is accepted given that those before it were, [seeds, block]."""
    rows = []
    for x in select(lines, arm=arm, block=block):
        reached = np.array(x["reached"])
        total = reached.sum(0) if domain is None else reached[domain]
        rows.append(total[1:] / total[:-1])
    return np.array(rows)


def gap(lines: Sequence[Line], block: int) -> np.ndarray:
    """Accepted length of D3 less that of D0, by seed."""
    a, b = tau(lines, "D3", block), tau(lines, "D0", block)
    return np.array([a[s] - b[s] for s in sorted(a.keys() & b.keys())])


def pass_marks(lines: Sequence[Line]) -> list[Mark]:
    marks = []
    for arm, base, least in (("D3", "D0", 1.12), ("D3", "D1", 1.03), ("D2", "D0", 1.0), ("D1", "D0", 1.0)):
        if found := compare(lines, arm, base, 7):
            over_seeds, over_prompts = found
            met = over_seeds.estimate >= least and min(over_seeds.low, over_prompts.low) > 1
            told = f"over seeds {text(over_seeds)} ({over_seeds.n} seeds), over prompts {text(over_prompts)}"
            promise = f"accepted length at least {least} x, both intervals above 1" if least > 1 else "longer"
            marks.append(Mark("T4", f"{arm} against {base}, block 7: {promise}", told, met))
    short, long = gap(lines, 3), gap(lines, 15)
    if len(short) and len(long):
        many = min(len(short), len(long))
        wider = t_interval("", long[:many] - short[:many])
        marks.append(Mark("T4", "D3 - D0 larger at block 15 than at 3", wider, wider.low > 0))
    d0, d1, d3, d5 = (conditional(lines, arm, 7) for arm in ("D0", "D1", "D3", "D5"))
    if len(d0) and len(d1) and len(d3):
        many = min(len(d0), len(d1), len(d3))
        suffix = t_interval("", (d3[:many] - d0[:many])[:, 1:].mean(1))
        second = t_interval("", (d3[:many] - d1[:many])[:, 1])
        marks.append(Mark("T5", "D3 >= D0 + 0.05, mean over positions 2 to 7", suffix, suffix.estimate >= 0.05))
        marks.append(Mark("T5", "D3 >= D1 + 0.03 at position 2", second, second.estimate >= 0.03))
    if len(d5):
        slope = t_interval("", np.polyfit(np.arange(1, 8), d5.T, 1)[0])
        marks.append(Mark("T5", "D5 flat or rising (slope per position)", slope, slope.estimate >= 0))
    return marks


def report(lines: Sequence[Line]) -> str:
    """Markdown of the tier, pass marks first."""
    many = len({x["seed"] for x in lines})
    each = len(lines[0]["rounds"]) if lines else 0
    parts = [
        "## Tier T4: accepted length; T5: acceptance by position",
        f"{len(lines)} cells, {many} seeds x {each} prompts (as many of each domain), "
        f"{sum(x['cpu_s'] for x in lines) / 60:.1f} CPU-minutes to measure and "
        f"{sum(x['trained']['cpu_s'] for x in lines) / 60:.1f} to train. Accepted length (tokens a round, recovered or "
        "bonus token included) in expectation over the target's own decode loop at temperature 1.",
        "\n".join(f"- {mark}" for mark in pass_marks(lines)),
        *_lengths(lines),
        *_positions(lines),
    ]
    return "\n\n".join(parts) + "\n"


def _arms(lines: Sequence[Line], block: int) -> list[str]:
    return [arm for arm in LABELS if select(lines, arm=arm, block=block)]


def _lengths(lines: Sequence[Line]) -> list[str]:
    parts = []
    for block in sorted({x["block"] for x in lines}):
        rows = []
        for arm in _arms(lines, block):
            found = tau(lines, arm, block)
            e, r = prompts(lines, arm, block)
            domain = [
                f"{_domain(lines, arm, block, d):.2f}" for d in range(len(DOMAINS))
            ]  # fmt: skip
            versus = compare(lines, arm, "D0", block) if arm != "D0" else None
            told = ["", ""] if versus is None else [text(versus[0]), text(versus[1])]
            steps = {x["trained"]["steps"] for x in select(lines, arm=arm, block=block)}
            seeds = " ".join(f"{v:.3f}" for v in found.values())
            whole = text(interval("", rate, e, r, unit="prompts"))
            rows.append([f"{arm} {LABELS[arm]}", whole, seeds, *domain, *told, "/".join(map(str, sorted(steps)))])
        head = ["arm", "accepted length", "by seed", *DOMAINS, "x D0 (seeds)", "x D0 (prompts)", "steps"]
        parts += [f"### Blocks of {block}", markdown(head, rows)]
    return parts


def _domain(lines: Sequence[Line], arm: str, block: int, domain: int) -> float:
    total = sum(np.array(x["reached"])[domain] for x in select(lines, arm=arm, block=block))
    return float(total.sum() / total[0])


def _positions(lines: Sequence[Line]) -> list[str]:
    rows = []
    for arm in _arms(lines, 7):
        found = conditional(lines, arm, 7)
        rows.append([f"{arm} {LABELS[arm]}", *(f"{v:.3f}" for v in found.mean(0))])
        for d, name in enumerate(DOMAINS):
            if arm in ("D0", "D3"):
                rows.append([f"{arm} {name}", *(f"{v:.3f}" for v in conditional(lines, arm, 7, d).mean(0))])
    head = ["conditional acceptance, means over seeds", *(str(k) for k in range(1, 8))]
    return ["### By position, blocks of 7", markdown(head, rows)]


def figure(lines: Sequence[Line]) -> Any:
    """Left: conditional acceptance by position at block 7. Right: accepted length by block, every seed."""
    fig, (left, right) = canvas((9, 3.2), 1, 2)
    colours = dict(
        zip(LABELS, ("#000000", "#0072B2", "#E69F00", "#D55E00", "#CC79A7", "#009E73", "#56B4E9"), strict=True)
    )
    for arm in _arms(lines, 7):
        left.plot(
            np.arange(1, 8), conditional(lines, arm, 7).mean(0), color=colours[arm], marker=".", label=LABELS[arm]
        )
    left.set(xlabel="position in the block", ylabel="accepted, given those before")
    for arm in ("D0", "D3"):
        for seed in sorted({x["seed"] for x in lines}):
            points = sorted((b, tau(lines, arm, b)[seed]) for b in (3, 7, 15) if seed in tau(lines, arm, b))
            if points:
                label = LABELS[arm] if seed == 0 else ""
                right.plot(*zip(*points, strict=True), color=colours[arm], marker=".", linewidth=1, label=label)
    right.set(xlabel="block", ylabel="accepted length")
    for axis in (left, right):
        axis.grid(alpha=0.25)
        axis.legend(frameon=False, fontsize=7)
    return fig
