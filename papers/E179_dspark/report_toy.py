"""Table, pass marks and figure of tier toy, from its lines of results alone."""

import numpy as np

from papers.drawing import canvas, finish
from papers.E179_dspark.tier_toy import BIASED, POLICIES
from papers.stats import Lines, Mark, document, minutes, over, table, values

EXACT, SEEN = 1e-12, 0.05
NAMES = ("anticipating", "scheduler", "Algorithm 1")


def pass_marks(lines: Lines) -> list[Mark]:
    paper = next(x for x in lines if x["kind"] == "paper")
    found = ", ".join(f"{name} {paper[name]:.12f}" for name in NAMES)
    met = all(abs(paper[n] - (0.85 if n in BIASED else 0.7)) <= EXACT for n in NAMES)
    sanctioned = [x["tv"] for x in lines if x["kind"] != "paper" and x["policy"] not in BIASED]
    worst, many = max(sanctioned), len(sanctioned)
    promise = "total variation distance to the target at most 1e-12 under every sanctioned policy"
    out = [
        Mark("T1, the paper's counter-example", "chance of A .85 if anticipating, else .70, to 1e-12", found, met),
        Mark("T1, exactness", promise, f"at most {worst:.1e} in {many} enumerations", worst <= EXACT),
    ]
    for name in BIASED:
        tv, promise = values(lines, "tv", policy=name), "the same test shows a bias of at least .05"
        told = f"{tv.max():.3f} at most, {int((tv >= SEEN).sum())} of {len(tv)} games at {SEEN} or more"
        out.append(Mark(f"T1, power, {name}", promise, told, bool(tv.max() >= SEEN)))
    return out


def report(lines: Lines) -> str:
    """Markdown of the tier, pass marks first."""
    tv = {name: values(lines, "tv", policy=name) for name in (*POLICIES, "scheduler, 1 back", "scheduler, 2 back")}
    return document(
        "## Tier toy: exact laws by enumeration",
        f"{len(lines)} cells, {minutes(lines):.1f} CPU-minutes. Two requests, three words, blocks "
        "of three (three rounds: two words, blocks of two), steps per second that fall in jags, a perfect head; no "
        "sampling. Distance of the joint law of the first tokens of both requests to the target's; of the biased "
        "policies the mean over games with its 95 % bootstrap interval.",
        pass_marks(lines),
        table(
            [name for name in tv if len(tv[name])],
            ("policy", str),
            ("rounds enumerated", lambda name: "3" if "back" in name and name[11].isdigit() else "1"),
            ("games", lambda name: len(tv[name])),
            (
                "total variation distance",
                lambda name: str(over(tv[name])) if name in BIASED else f"{tv[name].max():.1e} at most",
            ),
        ),
    )


def figure(lines: Lines) -> object:
    """Distance of every game by policy, logarithmic."""
    fig, axis = canvas((7, 3))
    for i, name in enumerate(POLICIES):
        tv, colour = np.maximum(values(lines, "tv", policy=name), 1e-18), "#D55E00" if name in BIASED else "#0072B2"
        axis.plot(tv, np.full(len(tv), i), "o", color=colour, alpha=0.5, markersize=4)
    axis.axvline(EXACT, color="#000000", linestyle=":", linewidth=1)
    axis.set(xscale="log", xlabel="total variation distance to the target")
    axis.set_yticks(range(len(POLICIES)), POLICIES)
    axis.invert_yaxis()
    finish(axis, font=None)
    return fig
