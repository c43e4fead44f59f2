"""A search for theories as one page of HTML: theories against the noise of the data, and the best one against people.

``clew evolve show`` calls it. It follows the log of the search and must never write to its folder.
"""

from __future__ import annotations

from pathlib import Path

from clew.core.errors import BadRecord, UnknownName
from clew.methods.coevolve.archive import ChainedLog
from clew.methods.coevolve.archive.chained_log import read_events
from clew.methods.theories.choice_forms import predicted
from clew.methods.theories.theory_loop import State, ending, sentence
from clew.methods.theories.verdict_words import ADEQUATE
from clew.view.report import STYLE, escape

LOG = "theories.log"
SIDE, EDGE, ROWS = 380, 44, 10  # pixels of the scatter and round it; theories that are listed


def theories(folder: Path) -> State:
    """The state of a search for theories, also while it goes on.

    Raises:
        UnknownName: the folder holds none. BadRecord: its log is damaged.
    """
    path = folder / LOG
    if not path.is_file():
        raise UnknownName(f"no search for theories lies in {folder}", remedy=f"Name a folder that holds {LOG}.")
    log = ChainedLog()
    log.events = read_events(path)
    if not log.events:
        raise BadRecord(f"{LOG} in {folder} holds no whole line", remedy="Run the search again.")
    return State(log)


def words(state: State) -> str:
    """How the search stands, in a sentence or two."""
    if not state.observations:
        return "Nothing was observed yet."
    told = sentence(state.ended or ending(state))
    return told if state.ended is not None else f"So far: {told}"


def page(title: str, state: State) -> str:
    """The page. All texts are escaped."""
    ranked = state.ranked() if state.observations else []
    rows = "".join(f"<tr><td>{loss:.4f}</td><td>{escape(form.words)}</td></tr>" for form, loss in ranked[:ROWS])
    figures = f"{bars(state)}<h2>The best theory against people</h2>{scatter(state)}" if ranked else ""
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{STYLE}</style></head><body>'
        f"<h1>{escape(title)}</h1><p>{escape(words(state))}</p><p class='dim'>{len(state.observations)} designs, "
        f"{state.participants} people, {state.revisions} revisions, {len(state.pool)} theories</p>"
        f"<h2>Theories against the noise of so few people</h2>{figures}"
        f"<h2>Losses</h2><table><tr><th>loss</th><th>a theory that</th></tr>{rows}</table></body></html>\n"
    )


def bars(state: State) -> str:
    """Loss of each theory, the best first; lines at what noise alone leaves and at where a theory is adequate."""
    ranked = [(form, state.loss(form, "vector")) for form, _ in state.ranked()[:ROWS]]
    most = max([loss for _, loss in ranked] + [ADEQUATE * state.noise]) or 1.0
    wide, left, step = 760, 40, 22
    high = step * len(ranked) + 34

    def x(value: float) -> float:
        return left + (wide - left - 20) * value / most

    parts = []
    for i, (form, loss) in enumerate(ranked):
        said = escape(f"{loss:.4f}: {form.words}")
        parts.append(
            f'<rect x="{left}" y="{i * step + 4}" width="{max(1.0, x(loss) - left):.1f}" height="{step - 7}" '
            f'fill="#1f6feb" opacity=".75"><title>{said}</title></rect>'
        )
        parts.append(f'<text x="{left - 6}" y="{i * step + 17}" text-anchor="end">{i + 1}</text>')
    for value in (state.noise, ADEQUATE * state.noise):
        ends = f'x1="{x(value):.1f}" y1="0" x2="{x(value):.1f}" y2="{high - 22}"'
        parts.append(f'<line {ends} stroke="var(--ink)" stroke-dasharray="4 3"/>')
    said = f"dashed: noise alone {state.noise:.4f}, and up to where a theory is adequate, {ADEQUATE * state.noise:.4f}"
    parts.append(f'<text x="{left}" y="{high - 6}">{said}</text>')
    label = f"Losses of {len(ranked)} theories from {ranked[0][1]:.4f}; noise alone {state.noise:.4f}"
    return f'<svg viewBox="0 0 {wide} {high}" role="img" aria-label="{label}">{"".join(parts)}</svg>'


def scatter(state: State) -> str:
    """Share of B in each pair: what the best theory says, across, and what people did, up."""
    best = state.ranked()[0][0]
    size = SIDE - 2 * EDGE

    def at(x: float, y: float) -> tuple[float, float]:
        return EDGE + size * x, SIDE - EDGE - size * y

    parts = []
    for value in (0.0, 0.5, 1.0):
        (x, bottom), (left, y) = at(value, 0), at(0, value)
        parts.append(f'<text x="{x:.0f}" y="{bottom + 18:.0f}" text-anchor="middle">{value:g}</text>')
        parts.append(f'<text x="{left - 8:.0f}" y="{y + 4:.0f}" text-anchor="end">{value:g}</text>')
    (a, b), (c, d) = at(0, 0), at(1, 1)
    parts.append(f'<line x1="{a:.0f}" y1="{b:.0f}" x2="{c:.0f}" y2="{d:.0f}" stroke="var(--line)"/>')
    points = 0
    for seen in state.observations:
        said = predicted(best, seen.design)[0]
        for x, y in zip(said.tolist(), seen.share.tolist(), strict=True):
            place = at(x, y)
            parts.append(f'<circle cx="{place[0]:.1f}" cy="{place[1]:.1f}" r="3" fill="#1f6feb" fill-opacity=".5"/>')
            points += 1
    parts.append(f'<text x="{SIDE / 2:.0f}" y="{SIDE - 6}" text-anchor="middle">share of B, as the theory says</text>')
    label = f"Shares of B of {points} pairs, by the best theory and by people"
    size_of = f'viewBox="0 0 {SIDE} {SIDE}" style="max-width:{SIDE}px"'
    return f'<svg {size_of} role="img" aria-label="{label}">{"".join(parts)}</svg>'
