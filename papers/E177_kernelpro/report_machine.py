"""Tables and pass marks of the tiers wall and machine, from their lines of results alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from papers.E177_kernelpro.report_rules import Sheet, keep, share
from papers.stats import Mark, markdown

Line = dict[str, Any]


def wall(lines: Sequence[Line]) -> str:
    cheats, honest, equal = ([x for x in lines if x["kind"] == kind] for kind in ("cheat", "honest", "equal"))
    caught, kept = sum(bool(x["refused"]) for x in cheats), sum(bool(x["refused"]) for x in honest)
    gains = sum(x["gain"] for x in equal)
    marks = [
        Mark("K5", "every cheat refused", share(caught, len(cheats)), caught == len(cheats)),
        Mark("K5", "at most 1 of 30 honest builds refused", share(kept, len(honest)), kept <= 1),
        Mark("K10", "at most 2 % of equal builds look faster", share(gains, len(equal)), gains <= 0.02 * len(equal)),
    ]
    rows = [[x["name"], x["arm"], x["refused"] or "LET THROUGH"] for x in cheats]
    spread = np.quantile([x["ratio"] for x in equal], [0.025, 0.5, 0.975])
    return "\n\n".join([
        "## Tier wall: what is refused, and what equal times look like",
        "\n".join(f"- {mark}" for mark in marks),
        f"{len(equal)} timings of a build against itself, beside other work on the machine: ratios {spread[1]:.3f} "
        f"[{spread[0]:.3f}, {spread[2]:.3f}] (median and 95 % of them).",
        markdown(["kernel", "cheat", "why it was refused"], rows),
    ]) + "\n"  # fmt: skip


def wall_figure(lines: Sequence[Line], path: Path) -> None:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 3))
    equal = [x for x in lines if x["kind"] == "equal"]
    axes.hist([x["ratio"] for x in equal], bins=40)
    axes.axvline(1.02, color="tab:red", linewidth=0.8)
    axes.set(xlabel="ratio of the times of one build and itself", ylabel="timings")
    keep(figure, path)


def machine(lines: Sequence[Line]) -> str:
    sticks, tuned = ([x for x in lines if x["kind"] == kind] for kind in ("yardstick", "tuned"))
    right = sum(x["bound"] == x["wanted"] for x in sticks)
    mark = Mark(
        "K8", "4 of 4 yardsticks in their class, on two machines", f"{right} of {len(sticks)} on one machine", False
    )
    rows = [
        [x["name"], x["wanted"], x["bound"], "yes" if x["agreed"] else "no",
         ", ".join(f"{k} {v:.3g}" for k, v in x["metrics"].items())]
        for x in sticks
    ]  # fmt: skip
    table = []
    for x in tuned:
        final = x["final"]
        cells = []
        for against in ("over_plain", "over_compiler"):
            found = final[against]
            cells.append(found if isinstance(found, str) else f"{found[0]:.2f} [{found[1]:.2f}, {found[2]:.2f}]")
        table.append([x["name"], *cells, str(len(x["tries"])), final["build"]])
    parts = [
        "## Tier machine: the bottleneck of known loads, and what tuning is worth here",
        f"{sticks[0]['machine'] if sticks else 'this machine'}; CPU time.",
        f"- {mark}",
        markdown(["load", "its bottleneck", "said", "measurement agrees", "shares of the ceilings"], rows),
        markdown(["kernel", "over the plain build", "over -O3 -march=native -ffast-math", "tries", "build"], table),
    ]
    for x in (x for x in lines if x["kind"] == "blas"):
        parts.append(
            f"Product of 256 x 256 in float32: best packed build {x['ours'] * 1e6:.0f} us, NumPy's BLAS "
            f"({x['library']}, one thread) {x['blas'] * 1e6:.0f} us: {x['ours'] / x['blas']:.2f} times its time."
        )
    return "\n\n".join(parts) + "\n"


def machine_figure(lines: Sequence[Line], path: Path) -> None:
    import matplotlib.pyplot as plt

    tuned = [x for x in lines if x["kind"] == "tuned" and not isinstance(x["final"]["over_compiler"], str)]
    figure, axes = plt.subplots(figsize=(7, 3))
    for place, (against, label) in enumerate(
        (("over_plain", "plain build"), ("over_compiler", "-O3 -march=native -ffast-math"))
    ):
        found = np.array([x["final"][against] for x in tuned])
        at = np.arange(len(tuned)) + 0.4 * place
        axes.bar(at, found[:, 0], 0.4, yerr=np.abs(found[:, 1:].T - found[:, 0]), label=f"over the {label}")
    axes.set_xticks(np.arange(len(tuned)) + 0.2, [x["name"] for x in tuned], rotation=45, ha="right", fontsize=7)
    axes.set(yscale="log", ylabel="speed-up")
    axes.axhline(1, color="0.6", linewidth=0.8)
    axes.legend(fontsize=7)
    keep(figure, path)


WALL, MACHINE = Sheet(wall, wall_figure), Sheet(machine, machine_figure)
