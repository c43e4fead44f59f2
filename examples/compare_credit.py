"""Compares five credit estimators on one collection: how large their advantages are, and where they disagree."""

from __future__ import annotations

import itertools

import numpy as np

import clew
from clew import credit


def main() -> None:
    house = clew.taskset("household(rooms=2, goals='open', steps=10)")
    actions = "go kitchen\ngo bathroom\ngo bedroom\nopen fridge\nopen cabinet\nopen drawer\nopen wardrobe\nopen hamper"
    runner = clew.Runner("player", house, clew.model("markov", corpus=actions, order=1, tokens=True))
    groups = runner.collect(house.sample(12), n=16)
    print(
        "success", groups.success(), "| groups with a signal:", sum(group.signal for group in groups), "of", len(groups)
    )

    found = {
        "grpo": credit.grpo(groups),
        "gigpo": credit.gigpo(groups),
        "g2po": credit.g2po(groups),
        "graphgpo": credit.graphgpo(groups),
        "bellman": credit.bellman(groups, lam="auto"),
    }
    for name, c in found.items():
        values = c.value[c.diagnostics.present]
        print(f"{name:>9}: {len(values):4d} of {len(c.value)} steps valued, rms {np.sqrt(np.mean(values**2)):.2f}")
    for (a, x), (b, y) in itertools.combinations(found.items(), 2):
        both = x.diagnostics.present & y.diagnostics.present
        same = np.mean(np.sign(x.value[both]) == np.sign(y.value[both]))
        print(f"{a:>9} / {b:<9} same sign on {same:.0%}")

    print(credit.aliasing(credit.steps(groups)).why)
    worst = clew.Groups(group for group in groups if group.signal).worst()
    print("the worst run lost most at:", {name: str(worst.low_point(name)) for name in found})


if __name__ == "__main__":
    main()
