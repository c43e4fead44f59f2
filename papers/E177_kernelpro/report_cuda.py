"""Table and pass mark of tier cuda, from its lines of results alone."""

from collections.abc import Sequence
from typing import Any

from papers.drawing import canvas
from papers.stats import Line, Mark, document, share, table


def report(lines: Sequence[Line]) -> str:
    if not lines:
        return "Tier cuda did not run: it needs nvcc and nvdisasm (a CUDA toolkit; no GPU).\n"
    right = sum(x["faulty"] and not x["sound"] for x in lines)
    return document(
        "## Tier cuda: static rules on compiled CUDA",
        "nvcc -arch=sm_80, ptxas -v and nvdisasm; nothing was run.",
        [Mark("K9", "10 of 10 pairs told apart without a GPU", share(right, len(lines)), right == len(lines))],
        table(
            lines,
            ("pair", "name"),
            ("rule", "rule"),
            ("on the faulty kernel", lambda x: "fires" if x["faulty"] else "silent"),
            ("on the sound one", lambda x: "fires" if x["sound"] else "silent"),
        ),
    )


def figure(lines: Sequence[Line]) -> Any:
    """Where each rule fires."""
    names = [x["name"] for x in lines]
    fig, axes = canvas((6, 3), font=10, layout=None)
    for place, kind in enumerate(("faulty", "sound")):
        axes.bar([i + 0.4 * place for i in range(len(names))], [int(x[kind]) for x in lines], 0.4, label=kind)
    axes.set(ylabel="the rule fires", yticks=[0, 1])
    axes.set_xticks([i + 0.2 for i in range(len(names))], names, rotation=45, ha="right", fontsize=7)
    axes.legend()
    return fig
