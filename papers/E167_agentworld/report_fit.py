"""Tables, pass marks and figure of tier fit, from its lines of results alone."""

from __future__ import annotations

from papers.E167_agentworld.counting import (
    count,
    curve,
    half_life,
    knowable,
    made_up,
    missed,
    moved,
    paired,
    same,
    share,
    told_half,
    usual,
    ways,
)
from papers.stats import Lines, Mark, document, mark, markdown, minutes, select

TURNS = 8
KINDS = (
    ("all", usual),
    ("determined, no 503", knowable),
    ("made up by the world", made_up),
    ("depends on earlier actions", moved),
    ("depends on none", same),
    ("missed by the commonest answer", missed),
    ("right after a new pair", paired),
)


def pass_marks(lines: Lines) -> list[Mark]:
    """The thresholds of specs/E167, section 6, as they stood before anything was run.

    In ``records`` the determined answers count, no 503: what the service makes up or holds unseen nobody can know.
    """
    shell, records, out = select(lines, world="shell"), select(lines, world="records"), list[Mark]()
    guesses = (("copied", "repeating the last answer"), ("guessed", "the commonest answer to the action"))
    for name, own, wanted, least in (("shell", shell, usual, 0.85), ("records", records, knowable, 0.80)):
        if own:
            out.append(mark(f"E1 {name}", f"at least {least:.2f} exact", share(own, wanted), least=least))
            for field, told in guesses:
                out.append(mark(f"E1 {name}", f"{told} at most .35", share(own, wanted, field), most=0.35))
    if shell:
        told = "told one turn of the past, at most .60 of the answers that depend on earlier actions"
        out.append(mark("E1 no history", told, share(shell, moved, "exact_last"), most=0.60))
        half = half_life(shell)
        out.append(Mark("E8", "half-life of at least 5 turns", told_half(half), half is None or half >= 5))
    return out


def report(lines: Lines) -> str:
    """Markdown of the tier, pass marks first."""
    rows, curves = [], []
    for world in ("shell", "records"):
        own = select(lines, world=world)
        for name, wanted in KINDS:
            if own and (n := count(own[:1], wanted)):
                fields = [share(own, wanted, field) for field in ("exact", "exact_last", "form", "copied", "guessed")]
                rows.append([world, name, n, *fields])
        if own:
            curves.append([world, *curve(own, TURNS), told_half(half_life(own))])
    taken = [
        f"{line['world']}, seed {line['seed']}: {line['learnt']:,} runs, {line['weights'] / 1e6:.2f}M weights, "
        f"{line['read'] / 1e6:.2f}M tokens, {line['fit_s']:.0f} CPU-seconds, {line['failed']} answers were none"
        for line in lines
    ]
    return document(
        "## Tier fit: two worlds learnt from their runs",
        f"{'; '.join(taken)}. Intervals draw episodes whole. {minutes(lines):.1f} CPU-minutes.",
        pass_marks(lines),
        "Answer by answer, after the true past: exact; exact when told one turn of the past; in the same form; what "
        "repeating the last answer reaches; what the commonest answer to the action reaches. Answers of one seed.",
        markdown("world | answers | n | exact | one turn told | form | repeating | commonest", rows),
        "Left to itself: the share of episodes still on the world's way after so many turns, and that of answers at "
        "this turn which are the world's whatever came before.",
        markdown(["world", *(f"turn {t}" for t in range(1, TURNS + 1)), "half-life"], curves),
    )


def figure(lines: Lines) -> object:
    """Episodes still on the world's way, by turn."""
    return ways({world: select(lines, world=world) for world in ("shell", "records")}, TURNS)
