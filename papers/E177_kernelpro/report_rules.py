"""Tables and pass marks of the tiers detector and cuda, from their lines of results alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from clew.audit.design import wilson
from papers.E177_kernelpro.tier_detector import DETECTOR as TOOLS
from papers.stats import Mark, markdown

Line = dict[str, Any]


class Sheet(NamedTuple):
    """The report and the figure of a tier."""

    report: Any
    figure: Any


def keep(figure: Any, path: Path) -> None:
    """Write a figure, the same bytes for the same lines, and close it."""
    import matplotlib.pyplot as plt

    plt.rcParams["svg.hashsalt"] = "E177"
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def share(hits: int, n: int) -> str:
    low, high = wilson(hits, n)
    return f"{hits} of {n}, {hits / max(n, 1):.3f} [{low:.3f}, {high:.3f}]"


def detector(lines: Sequence[Line]) -> str:
    builds = [x for x in lines if x["kind"] == "build"]
    table: Counter[tuple[bool, bool]] = Counter()
    rows, wrong = [], []
    for x in builds:
        slow, hit = x["label"] != "none", any(rule in TOOLS for rule in x["fired"])
        table[slow, hit] += 1
        if slow != hit:
            wrong.append(f"{x['name']} ({x['label']}): {', '.join(x['fired']) or 'nothing fired'}")
    for kind in sorted({x["label"] for x in builds}):
        some = [x for x in builds if x["label"] == kind]
        fired = Counter(rule for x in some for rule in x["fired"])
        rows.append([kind, str(len(some)), ", ".join(f"{rule} {n}" for rule, n in fired.most_common())])
    found, all_slow = table[True, True], table[True, True] + table[True, False]
    fired = table[True, True] + table[False, True]
    marks = [
        Mark("K1 recall", ">= .9 on 20 or more fall-backs", share(found, all_slow), found >= 0.9 * all_slow),
        Mark("K1 precision", ">= .9 of 40 or more builds", share(found, fired), found >= 0.9 * fired),
    ]
    pairs = [x for x in lines if x["kind"] == "pair"]
    blind, pair_rows = 0, []
    for x in pairs:
        slow, fast = x["slow"], x["fast"]
        ratio = slow["seconds"] / fast["seconds"]
        busy = (slow["instructions"] / slow["seconds"]) / (fast["instructions"] / fast["seconds"])
        blind += ratio >= 2 and abs(busy - 1) < 0.15
        pair_rows.append([x["name"], x["against"], f"{ratio:.2f}", f"{busy:.2f}"])
    twice = sum(x["slow"]["seconds"] >= 2 * x["fast"]["seconds"] for x in pairs)
    marks.append(
        Mark("K2", "pairs twice as slow or more whose instructions a second differ by less than 15 %",
             f"{share(blind, twice)} of the pairs that are twice as slow", twice > 0 and blind == twice)
    )  # fmt: skip
    parts = [
        "## Tier detector: slow paths that no utilisation figure shows",
        f"{len(builds)} labelled builds, {len(pairs)} pairs; 95 % Wilson intervals. A build counts as found where one "
        f"of {', '.join(TOOLS)} fires.",
        "\n".join(f"- {mark}" for mark in marks),
        markdown(["slow path", "builds", "rules that fire"], rows),
        "Misjudged: " + ("; ".join(wrong) or "none") + ".",
        markdown(["slow", "fast", "seconds, slow over fast", "instructions a second, slow over fast"], pair_rows),
    ]
    return "\n\n".join(parts) + "\n"


def detector_figure(lines: Sequence[Line], path: Path) -> None:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 4))
    for x in lines:
        if x["kind"] == "pair":
            ratio = x["slow"]["seconds"] / x["fast"]["seconds"]
            busy = (x["slow"]["instructions"] / x["slow"]["seconds"]) / (
                x["fast"]["instructions"] / x["fast"]["seconds"]
            )
            axes.plot(busy, ratio, "o", color="tab:blue")
            axes.annotate(x["name"], (busy, ratio), fontsize=7, xytext=(4, 2), textcoords="offset points")
    axes.axvspan(0.85, 1.15, color="0.9")
    axes.axhline(2, color="0.6", linewidth=0.8)
    axes.set(xlabel="instructions a second, slow path over fast", ylabel="seconds, slow path over fast", yscale="log")
    keep(figure, path)


def cuda(lines: Sequence[Line]) -> str:
    if not lines:
        return "Tier cuda did not run: it needs nvcc and nvdisasm (a CUDA toolkit; no GPU).\n"
    right = sum(x["faulty"] and not x["sound"] for x in lines)
    rows = [
        [x["name"], x["rule"], "fires" if x["faulty"] else "silent", "fires" if x["sound"] else "silent"] for x in lines
    ]
    mark = Mark("K9", "10 of 10 pairs told apart without a GPU", share(right, len(lines)), right == len(lines))
    return (
        "## Tier cuda: static rules on compiled CUDA\n\nnvcc -arch=sm_80, ptxas -v and nvdisasm; nothing was run.\n\n"
        f"- {mark}\n\n" + markdown(["pair", "rule", "on the faulty kernel", "on the sound one"], rows) + "\n"
    )


def cuda_figure(lines: Sequence[Line], path: Path) -> None:
    import matplotlib.pyplot as plt

    names = [x["name"] for x in lines]
    figure, axes = plt.subplots(figsize=(6, 3))
    for place, kind in enumerate(("faulty", "sound")):
        axes.bar([i + 0.4 * place for i in range(len(names))], [int(x[kind]) for x in lines], 0.4, label=kind)
    axes.set(ylabel="the rule fires", yticks=[0, 1])
    axes.set_xticks([i + 0.2 for i in range(len(names))], names, rotation=45, ha="right", fontsize=7)
    axes.legend()
    keep(figure, path)


DETECTOR, CUDA = Sheet(detector, detector_figure), Sheet(cuda, cuda_figure)
