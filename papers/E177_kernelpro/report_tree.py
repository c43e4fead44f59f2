"""Table and pass marks of tier tree, from its lines of results alone."""

from collections.abc import Sequence
from typing import Any

from papers.drawing import canvas
from papers.E177_kernelpro.report_search import REACHED, SEEDS
from papers.stats import Line, Mark, document, mark, markdown, over, share


def marks(lines: Sequence[Line], tables: Sequence[Line]) -> list[Mark]:
    spent, best = (
        {arm: over([x[field] for x in lines if (x["kind"], x["name"]) == ("K6", arm)]) for arm in ("log", "linear")}
        for field in ("share", "best")
    )
    even = best["log"].estimate >= best["linear"].estimate
    out = [
        mark("K6", "linear reward spends >= 60 % of visits on the lucky branch", spent["linear"], least=0.6),
        mark("K6", "log reward <= 45 %", spent["log"], most=0.45),
        Mark("K6", "final best not worse with log reward", f"{best['log']} against {best['linear']}", even),
    ]
    for line in tables:
        trees, greedy = (reached(line, arm) for arm in ("mcts", "greedy"))
        promise = "tree search reaches .9 of the best in 1.3 x as many seeds as greedy"
        told = f"{share(trees, SEEDS)} against {share(greedy, SEEDS)}"
        out.append(Mark("K7", promise, told, trees / max(1, greedy) >= 1.3))
    return out


def reached(line: Line, arm: str) -> int:
    return sum(best >= REACHED * line["top"] for best in line["bests"][arm])


def report(lines: Sequence[Line]) -> str:
    tables = [x for x in lines if x["kind"] == "K7"]
    told = []
    for line in tables:
        alone = ", ".join(f"{name} {speed:.2f}" for name, speed in line["alone"].items())
        told.append(f"Packed product: {line['size']} builds, best {line['top']:.2f}; each change alone: {alone}.")
    rows = [
        [arm, str(over(bests)), share(reached(line, arm), SEEDS)]
        for line in tables
        for arm, bests in line["bests"].items()
    ]
    return document(
        "## Tier tree: the reward of the tree search, and whether a tree is needed",
        marks(lines, tables),
        *told,
        markdown("search | best after 60 tries | seeds that reach .9 of the best", rows),
    )


def figure(lines: Sequence[Line]) -> Any:
    """Left: visits on the lucky branch by reward. Right: best speed-up of each search."""
    fig, (left, right) = canvas((8, 3), 1, 2, font=10, layout=None)
    for place, arm in enumerate(("log", "linear")):
        left.boxplot([x["share"] for x in lines if x["name"] == arm], positions=[place])
    left.set_xticks([0, 1], ["log", "linear"])
    left.set_ylabel("share of visits on the lucky branch")
    for line in (x for x in lines if x["kind"] == "K7"):
        right.boxplot(list(line["bests"].values()))
        right.set_xticks(range(1, len(line["bests"]) + 1), list(line["bests"]))
        right.axhline(REACHED * line["top"], color="0.6", linewidth=0.8)
    right.set_ylabel("best speed-up after 60 tries")
    return fig
