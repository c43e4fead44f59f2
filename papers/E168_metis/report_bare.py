"""Table and figure of tier bare, from its lines of results alone."""

from papers.drawing import canvas, finish, whiskers
from papers.E168_metis.stream import STREAMS
from papers.E168_metis.tier_bare import CONDITIONS, PILOT
from papers.stats import Lines, by_seed, document, markdown, minutes, values

FIELDS = ("success", "turns", "tokens", "unsubmitted")


def report(lines: Lines) -> str:
    """Markdown of the tier."""
    rows = []
    for families in STREAMS:
        for condition in CONDITIONS:
            means = [by_seed(values(lines, field, families=families, condition=condition)) for field in FIELDS]
            rows.append([str(families), condition, *means, PILOT.get((families, condition), "")])
    return document(
        "## Tier bare: the player alone, and with all that a memory could say",
        f"Recorded runs. {len(lines) // len(rows)} seeds of 200 tasks, Student's intervals over seeds; "
        f"{minutes(lines):.1f} CPU-minutes.",
        markdown("families | condition | success | turns | tokens | no answer | pilot", rows),
    )


def figure(lines: Lines) -> object:
    """Success by condition."""
    fig, axis = canvas((5, 2.6))
    for at, families in enumerate(STREAMS):
        found = [by_seed(values(lines, "success", families=families, condition=c)) for c in CONDITIONS]
        places = [x + 0.15 * at for x in range(len(CONDITIONS))]
        whiskers(axis, places, found, fmt="o", label=f"{families} families", color=f"C{at}")
    axis.set(ylabel="success", xticks=range(len(CONDITIONS)), xticklabels=CONDITIONS)
    finish(axis)
    return fig
