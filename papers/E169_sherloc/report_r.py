"""Table and pass marks of the repair test, from the lines of tier R alone."""

import numpy as np

from papers.drawing import canvas
from papers.E169_sherloc.tier_r import AGENTS, BUDGET, CONDITIONS
from papers.stats import Lines, Mark, Report, Results, document, mark, over, table, text
from papers.stats import gap as difference


def of(lines: Lines, agent: str, condition: str, field: str = "resolved") -> np.ndarray:
    return np.array([x["results"][f"{agent} {condition}"][field] for x in lines], dtype=np.float64)


def gap(lines: Lines, agent: str, condition: str, against: str = "none", field: str = "resolved") -> Report:
    return difference(*(of(lines, agent, c, field) for c in (condition, against)), unit="bugs")


def pass_marks(lines: Lines) -> list[Mark]:
    oracle = [gap(lines, a, "oracle", "all") for a in AGENTS]
    shuffled, worst = gap(lines, "weak", "shuffled"), min(o.estimate for o in oracle)
    return [
        mark("R1", "weak agent, all: resolved >= +.15", gap(lines, "weak", "all"), least=0.15),
        mark("R2", "strong agent, all: resolved <= 0", gap(lines, "strong", "all"), most=0),
        mark("R3", "strong agent, gated: resolved >= -.01", gap(lines, "strong", "gated"), least=-0.01),
        Mark("R4", "oracle >= all, both agents", "; ".join(map(text, oracle)), worst >= 0),
        mark("R5", "control: shuffled findings do not help the weak agent by .03", shuffled, under=0.03),
    ]


def report(lines: Lines) -> str:
    lines = Results(lines).all

    def runs(at: tuple[str, str], field: str) -> Report:
        return over(of(lines, *at, field), unit="bugs")

    right, inside = (text(over([float(x[f]) for x in lines], unit="bugs")) for f in ("right", "inside"))
    return document(
        "# E169, tier R",
        f"{len(lines)} mutations in {len({x['module'] for x in lines})} modules, budget {BUDGET} test runs. "
        f"First finding: right file {right}, right span {inside}.",
        table(
            [(agent, condition) for agent in AGENTS for condition in CONDITIONS],
            ("agent", 0),
            ("findings", 1),
            ("resolved", lambda at: runs(at, "resolved")),
            ("test runs", lambda at: runs(at, "runs"), ".1f"),
            ("test runs against none", lambda at: gap(lines, *at, field="runs"), ".1f"),
            (
                "share before the bug's line",
                lambda at: runs(at, "before").estimate / max(runs(at, "runs").estimate, 1e-9),
                ".2f",
            ),
        ),
        pass_marks(lines),
    )


def figure(lines: Lines) -> object:
    """Share resolved within so many test runs."""
    fig, both = canvas((8, 3.2), 1, 2, sharey=True, font=10, backend="svg", layout=None)
    budgets = np.arange(1, BUDGET + 1)
    for axes, agent in zip(both, AGENTS, strict=True):
        for condition in CONDITIONS:
            resolved, runs = of(lines, agent, condition), of(lines, agent, condition, "runs")
            axes.plot(budgets, [(resolved * (runs <= b)).mean() for b in budgets], label=condition)
        axes.set(title=agent, xlabel="test runs", ylim=(0, 1.02))
    both[0].set_ylabel("resolved")
    both[1].legend(fontsize="small")
    return fig
