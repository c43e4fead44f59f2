"""Table and pass marks of the repair test, from the lines of tier R alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from clew.audit.design import bootstrap
from clew.core.records import Report
from papers.drawing import canvas
from papers.E169_sherloc.tier_r import AGENTS, BUDGET, CONDITIONS
from papers.stats import Mark, difference, markdown, mean, text

Line = dict[str, Any]
F64 = npt.NDArray[np.float64]


def of(lines: Sequence[Line], agent: str, condition: str, field: str = "resolved") -> F64:
    return np.array([x["results"][f"{agent} {condition}"][field] for x in lines], dtype=np.float64)


def gap(lines: Sequence[Line], agent: str, condition: str, against: str = "none", field: str = "resolved") -> Report:
    x, y = of(lines, agent, condition, field), of(lines, agent, against, field)
    return bootstrap(f"{agent}, {condition} - {against}", difference, x, y, design="paired bootstrap", unit="bugs")


def pass_marks(lines: Sequence[Line]) -> list[Mark]:
    weak, strong, gated = gap(lines, "weak", "all"), gap(lines, "strong", "all"), gap(lines, "strong", "gated")
    oracle = [gap(lines, a, "oracle", "all") for a in AGENTS]
    shuffled = gap(lines, "weak", "shuffled")
    return [
        Mark("R1", "weak agent, all: resolved >= +.15", weak, weak.estimate >= 0.15),
        Mark("R2", "strong agent, all: resolved <= 0", strong, strong.estimate <= 0),
        Mark("R3", "strong agent, gated: resolved >= -.01", gated, gated.estimate >= -0.01),
        Mark("R4", "oracle >= all, both agents", "; ".join(map(text, oracle)), min(o.estimate for o in oracle) >= 0),
        Mark("R5", "control: shuffled findings do not help the weak agent by .03", shuffled, shuffled.estimate < 0.03),
    ]


def report(lines: Sequence[Line]) -> str:
    lines = sorted(lines, key=lambda x: x["seed"])
    rows = []
    for agent in AGENTS:
        for condition in CONDITIONS:
            parts = [of(lines, agent, condition, f) for f in ("resolved", "runs", "before")]
            resolved, runs, before = (bootstrap(condition, mean, x, unit="bugs") for x in parts)
            saved = gap(lines, agent, condition, field="runs")
            share = before.estimate / max(runs.estimate, 1e-9)
            rows.append([agent, condition, text(resolved), text(runs, 1), text(saved, 1), f"{share:.2f}"])
    right, inside = (
        bootstrap(f, mean, np.array([x[f] for x in lines], float), unit="bugs") for f in ("right", "inside")
    )
    modules = len({x["module"] for x in lines})
    head = ["agent", "findings", "resolved", "test runs", "test runs against none", "share before the bug's line"]
    return (
        "\n\n".join(
            [
                f"# E169, tier R\n\n{len(lines)} mutations in {modules} modules, budget {BUDGET} test runs. "
                f"First finding: right file {text(right)}, right span {text(inside)}.",
                markdown(head, rows),
                "\n".join(f"- {mark}" for mark in pass_marks(lines)),
            ]
        )
        + "\n"
    )


def figure(lines: Sequence[Line]) -> Any:
    """Share resolved within so many test runs."""
    plot, both = canvas((8, 3.2), 1, 2, sharey=True, font=10, backend="svg", layout=None)
    budgets = np.arange(1, BUDGET + 1)
    for axes, agent in zip(both, AGENTS, strict=True):
        for condition in CONDITIONS:
            resolved, runs = of(lines, agent, condition), of(lines, agent, condition, "runs")
            axes.plot(budgets, [(resolved * (runs <= b)).mean() for b in budgets], label=condition)
        axes.set(title=agent, xlabel="test runs", ylim=(0, 1.02))
    both[0].set_ylabel("resolved")
    both[1].legend(fontsize="small")
    return plot
