"""Tables and pass mark of tier machine, from its lines of results alone."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from papers.drawing import canvas
from papers.stats import Line, Mark, document, table


def speed(line: Line, against: str) -> str:
    """How many times as fast, with its interval; or why nothing was timed."""
    found = line["final"][against]
    return found if isinstance(found, str) else "{:.2f} [{:.2f}, {:.2f}]".format(*found)


def report(lines: Sequence[Line]) -> str:
    sticks, tuned, blas = ([x for x in lines if x["kind"] == kind] for kind in ("yardstick", "tuned", "blas"))
    right = sum(x["bound"] == x["wanted"] for x in sticks)
    told = f"{right} of {len(sticks)} on one machine"
    return document(
        "## Tier machine: the bottleneck of known loads, and what tuning is worth here",
        f"{sticks[0]['machine'] if sticks else 'this machine'}; CPU time.",
        [Mark("K8", "4 of 4 yardsticks in their class, on two machines", told, False)],
        table(
            sticks,
            ("load", "name"),
            ("its bottleneck", "wanted"),
            ("said", "bound"),
            ("measurement agrees", lambda x: "yes" if x["agreed"] else "no"),
            ("shares of the ceilings", lambda x: ", ".join(f"{k} {v:.3g}" for k, v in x["metrics"].items())),
        ),
        table(
            tuned,
            ("kernel", "name"),
            ("over the plain build", lambda x: speed(x, "over_plain")),
            ("over -O3 -march=native -ffast-math", lambda x: speed(x, "over_compiler")),
            ("tries", lambda x: len(x["tries"])),
            ("build", lambda x: x["final"]["build"]),
        ),
        *(
            f"Product of 256 x 256 in float32: best packed build {x['ours'] * 1e6:.0f} us, NumPy's BLAS "
            f"({x['library']}, one thread) {x['blas'] * 1e6:.0f} us: {x['ours'] / x['blas']:.2f} times its time."
            for x in blas
        ),
    )


def figure(lines: Sequence[Line]) -> Any:
    """Speed-ups of the tuned kernels with their intervals."""
    tuned = [x for x in lines if x["kind"] == "tuned" and not isinstance(x["final"]["over_compiler"], str)]
    fig, axes = canvas((7, 3), font=10, layout=None)
    labels = {"over_plain": "plain build", "over_compiler": "-O3 -march=native -ffast-math"}
    for place, (against, label) in enumerate(labels.items()):
        found = np.array([x["final"][against] for x in tuned])
        at = np.arange(len(tuned)) + 0.4 * place
        axes.bar(at, found[:, 0], 0.4, yerr=np.abs(found[:, 1:].T - found[:, 0]), label=f"over the {label}")
    axes.set_xticks(np.arange(len(tuned)) + 0.2, [x["name"] for x in tuned], rotation=45, ha="right", fontsize=7)
    axes.set(yscale="log", ylabel="speed-up")
    axes.axhline(1, color="0.6", linewidth=0.8)
    axes.legend(fontsize=7)
    return fig
