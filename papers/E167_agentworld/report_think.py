"""Tables, pass marks and figure of tier think, from its lines of results alone."""

from __future__ import annotations

from papers.E167_agentworld.counting import (
    count,
    curve,
    far,
    gain,
    half_life,
    missed,
    moved,
    same,
    share,
    staying,
    told_half,
    usual,
    ways,
)
from papers.stats import Lines, Mark, document, mark, markdown, minutes, pooled, select

TURNS, HALFWAY = 8, 4
NAMES = {
    "plain": "the past as it was", "long": "the same, three times the passes", "think": "thinks first",
    "told": "told what is true every third turn",
}  # fmt: skip
KINDS = {
    "all": usual,
    "depends on none": same,
    "depends on earlier actions": moved,
    "on three or more": far,
    "missed by the commonest": missed,
}


def pass_marks(lines: Lines) -> list[Mark]:
    """The thresholds of specs/E167, E3 and E8, as they stood before anything was run."""
    plain, longer, think, told = (select(lines, arm=arm) for arm in ("plain", "long", "think", "told"))
    out = list[Mark]()
    if plain and think:
        promise = "thinking gains at least .05 of the answers that depend on three actions or more"
        out.append(mark("E3", f"{promise}, at equal runs", gain(think, plain, far), least=0.05))
    if longer and think:
        out.append(mark("E3", "the same at about equal tokens", gain(think, longer, far), least=0.05))
    if plain and think:
        out.append(Mark("control", "where no earlier action matters it gains", gain(think, plain, same), None))
    if plain and told:
        rise = pooled(*staying(told, HALFWAY)).estimate - pooled(*staying(plain, HALFWAY)).estimate
        found = f"{rise:+.3f} of the episodes after {HALFWAY} turns"
        out.append(Mark("E8", "being told the state again keeps more on the world's way", found, rise > 0))
    return out


def report(lines: Lines) -> str:
    """Markdown of the tier, pass marks first."""
    rows, curves = [], []
    for arm, name in NAMES.items():
        own = select(lines, arm=arm)
        if own:
            read = sum(line["read"] for line in own) / len(own)
            shares = [share(own, wanted) for wanted in KINDS.values()]
            rows.append([name, len(own), f"{read / 1e6:.2f}M", *shares, sum(line["failed"] for line in own)])
            curves.append([name, *curve(own, TURNS), told_half(half_life(own))])
    sizes = ", ".join(f"{count(lines[:1], wanted)} {name}" for name, wanted in KINDS.items()) if lines else "none"
    return document(
        "## Tier think: saying what is true, and being told it",
        f"Answers of one seed: {sizes}. Intervals draw episodes whole. {minutes(lines):.1f} CPU-minutes.",
        pass_marks(lines),
        "Answer by answer, after the true past and the model's own accounts: exact.",
        markdown(["shell", "seeds", "tokens read", *KINDS, "no answer"], rows),
        "Left to itself: the share of episodes still on the world's way after so many turns, and that of answers at "
        "this turn which are the world's whatever came before.",
        markdown(["shell", *(f"turn {t}" for t in range(1, TURNS + 1)), "half-life"], curves),
    )


def figure(lines: Lines) -> object:
    """Episodes still on the world's way, by turn and arm."""
    return ways({name: select(lines, arm=arm) for arm, name in NAMES.items()}, TURNS)
