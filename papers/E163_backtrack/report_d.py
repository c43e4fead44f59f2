"""Tables, pass marks and figure of tier D, from its lines of results alone."""

from itertools import pairwise

import numpy as np

from papers.drawing import canvas, finish, whiskers
from papers.E163_backtrack.tier_d import SEARCHES, SHARES, TRACES
from papers.stats import Lines, Mark, document, gap, interval, mark, markdown, minutes, over, table, text, times, values

PRINTED = dict(zip(SEARCHES, ("1.11", "1.56", "2.34", "3.89", "1.16", "1.49", "2.42"), strict=True))


def dose(lines: Lines, share: float) -> np.ndarray:
    return values(lines, "h", kind="dose", share=share)


def search(lines: Lines, k: int, many: int) -> list[np.ndarray]:
    """Steps of the agent with golden-SFT habits, and with perfect ones."""
    return [values(lines, field, kind="search", k=k, l=many) for field in ("sft", "rl")]


def pass_marks(lines: Lines) -> list[Mark]:
    erased, base = (values(lines, field, kind="erased") for field in ("h", "base"))
    full, teacher = (values(lines, field, kind="full", n=50) for field in ("h", "teacher"))
    falls = [gap(dose(lines, a), dose(lines, b)) for a, b in pairwise(SHARES)]
    smallest = next((s for s in SHARES if dose(lines, s).mean() < base[0]), None)

    def slope(a: np.ndarray, b: np.ndarray, c: np.ndarray, d: np.ndarray) -> np.ndarray:
        return (a.mean(axis=-1) / b.mean(axis=-1) - c.mean(axis=-1) / d.mean(axis=-1)) / 12

    def twice(a: np.ndarray, b: np.ndarray, c: np.ndarray, d: np.ndarray) -> np.ndarray:
        return (a.mean(axis=-1) / b.mean(axis=-1)) / (c.mean(axis=-1) / d.mean(axis=-1))

    per_l = interval("", slope, *search(lines, 5, 16), *search(lines, 5, 4))
    per_k = [interval("", twice, *search(lines, 10, x), *search(lines, 5, x)) for x in (2, 4, 8)]
    worst = max(abs(x.estimate - 1) for x in per_k)
    longer = "; ".join(f"L = {x}: {r}" for x, r in zip((2, 4, 8), per_k, strict=True))
    steps, below = ", ".join(text(x, 1) for x in falls), "smallest share at which H is below the uniform walker's"
    return [
        mark("D1", "50 full traces: H <= 1.1 x the teacher's", times(full, teacher), most=1.1),
        mark("D2", f"{TRACES} erased traces: H >= 2.5 x the uniform walker's", times(erased, base), least=2.5),
        Mark("D3", "H falls with every larger share of full traces", f"by {steps}", all(x.low > 0 for x in falls)),
        Mark("D3 dose", below, str(smallest), smallest is not None),
        Mark("D4a", "SFT / RL grows by more than .15 per L, 4 to 16", per_l, per_l.estimate > 0.15),
        Mark("D4b", "SFT / RL at K = 10 within 15 % of K = 5", f"{longer}; {worst:.0%} at worst", worst <= 0.15),
    ]


def report(lines: Lines) -> str:
    """Markdown of the tier, pass marks first."""
    full = ((10, "42.1"), (50, "39.0"), (TRACES, "38.3"))
    rows = [[f"{n} full traces", str(over(values(lines, "h", kind="full", n=n))), spec] for n, spec in full]
    rows.append([f"{TRACES} erased traces", str(over(values(lines, "h", kind="erased"))), "781.8"])
    rows += [[f"{share:.0%} of {TRACES} full", str(over(dose(lines, share))), ""] for share in SHARES]
    return document(
        "## Tier D: supervised learning from a trained walker's traces",
        f"{len(lines)} cells, {60 * minutes(lines):.0f} CPU-seconds. (3, 3, 2), H exact, teacher "
        f"{lines[0]['teacher']:.1f}, uniform walker {lines[0]['base']:.0f}; means over seeds with 95 % "
        "bootstrap intervals.",
        pass_marks(lines),
        markdown("data | H of the student | specs/E163", rows),
        "### The agent that refuses used edges, W = 5 (150 mazes per seed)",
        table(
            SEARCHES,
            ("K", 0),
            ("L", 1),
            ("steps, golden SFT", lambda at: str(over(search(lines, *at)[0]))),
            ("steps, perfect", lambda at: str(over(search(lines, *at)[1]))),
            ("ratio", lambda at: str(times(*search(lines, *at)))),
            ("specs/E163", PRINTED.get),
        ),
    )


def figure(lines: Lines) -> object:
    """Left: H of the student against the share of full traces. Right: ratio of the search agents against L."""
    fig, (left, right) = canvas((9, 3.2), 1, 2)
    places = range(len(SHARES))
    whiskers(left, places, [over(dose(lines, x)) for x in SHARES], color="#0072B2", marker="o", markersize=3)
    left.axhline(lines[0]["base"], color="#000000", linestyle="--", linewidth=1, label="uniform walker")
    left.axhline(lines[0]["teacher"], color="#009E73", linestyle=":", linewidth=1, label="teacher")
    left.set_xticks(places, [f"{share:.0%}" for share in SHARES])
    left.set(yscale="log", xlabel=f"share of {TRACES} traces with their retreats", ylabel="exact H of the student")
    for k, colour in ((5, "#0072B2"), (10, "#D55E00")):
        sizes = [many for depth, many in SEARCHES if depth == k]
        found = [times(*search(lines, k, x)) for x in sizes]
        whiskers(right, sizes, found, color=colour, marker="o", markersize=3, label=f"K = {k}")
    right.set(xlabel="parallel edges L", ylabel="steps, golden SFT / perfect")
    finish(left, right)
    return fig
