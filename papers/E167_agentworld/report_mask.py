"""Table, pass marks and figure of tier mask, from its lines of results alone."""

from __future__ import annotations

from papers.drawing import canvas, finish, whiskers
from papers.E167_agentworld.counting import Wanted, gain, share
from papers.stats import Lines, Mark, document, mark, markdown, minutes, select

NAMES = {"all": "all answers", "same": "masked, the same runs", "more": "masked, more runs"}
NOTES = 0.5
OTHERS: Wanted = lambda one: one["class"] != "0"  # noqa: E731  # no echo
ECHOES: Wanted = lambda one: one["class"] == "0"  # noqa: E731


def pass_marks(lines: Lines) -> list[Mark]:
    """The thresholds of specs/E167, E2, as they stood before anything was run."""
    every, same, more = (select(lines, arm=arm, share=NOTES) for arm in NAMES)
    out = []
    if every and more:
        told = "at equal tokens with loss at least .03 more of the answers that are no echo"
        out.append(mark("E2", told, gain(more, every, OTHERS), least=0.03))
    if every and same:
        ratio = sum(line["weighing"] for line in same) / sum(line["weighing"] for line in every)
        found = gain(same, every, OTHERS)
        told = f"with at most .75 of the tokens with loss at most .01 less; they are {ratio:.2f}"
        out.append(Mark("E2", told, found, bool(ratio <= 0.75 and found.estimate >= -0.01)))
    plain = [select(lines, arm=arm, share=0.0) for arm in ("same", "all")]
    if all(plain):
        out.append(Mark("control", "without notes masking gains", gain(*plain, OTHERS), None))
    return out


def report(lines: Lines) -> str:
    """Markdown of the tier, pass marks first."""
    rows = []
    for notes in (NOTES, 0.0):
        for arm, name in NAMES.items():
            own = select(lines, arm=arm, share=notes)
            if own:
                means = [sum(line[field] for line in own) / len(own) for field in ("learnt", "read", "weighing")]
                told = [f"{means[0]:.0f}", f"{means[1] / 1e3:.0f}k", f"{means[2] / 1e3:.0f}k"]
                rows.append([notes, name, len(own), *told, share(own, OTHERS), share(own, ECHOES)])
    return document(
        "## Tier mask: echoes left out of the loss",
        f"Runs of the shell with notes, which the shell repeats. {minutes(lines):.1f} CPU-minutes.",
        pass_marks(lines),
        markdown("notes | learnt | seeds | runs | tokens read | with loss | exact, no echo | exact, echoes", rows),
    )


def figure(lines: Lines) -> object:
    """Exact answers that are no echo, by arm."""
    fig, axis = canvas((5, 2.2))
    kinds = [(arm, notes) for notes in (NOTES, 0.0) for arm in NAMES if select(lines, arm=arm, share=notes)]
    found = [share(select(lines, arm=arm, share=notes), OTHERS) for arm, notes in kinds]
    whiskers(axis, range(len(kinds)), found, fmt="o", along="x")
    names = [f"{NAMES[arm]}{'' if notes else ', no notes'}" for arm, notes in kinds]
    axis.set(xlabel="exact, of the answers that are no echo", yticks=range(len(kinds)), yticklabels=names)
    axis.invert_yaxis()
    finish(axis, font=None)
    return fig
