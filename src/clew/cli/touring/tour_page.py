"""The page that `clew tour` leaves: what every stop said of one store, with a picture each, in one file of HTML.

Whoever reads nothing else must understand what each method is for. Texts of stops are shown as text, never as HTML.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from clew.cli.shared.next_lines import command_line
from clew.cli.touring.journey import figure_text
from clew.cli.touring.stops import PARTS
from clew.view.report import STYLE, escape

OWN = """
h2 { margin-top: 3rem; border-bottom: 1px solid var(--line); }
article { margin: 1.75rem 0; } h3 { font-size: 1.05rem; margin: 0 0 .25rem; }
article p { margin: .25rem 0; } article svg { max-width: 34rem; display: block; margin: .5rem 0; }
.said { font-weight: 600; } details { margin-top: .25rem; } summary { cursor: pointer; color: var(--dim); }
pre { white-space: pre-wrap; overflow-wrap: anywhere; } a { color: #1f6feb; }
nav { columns: 16rem; margin: 1rem 0; } nav p { margin: 0 0 .2rem; }
"""
WIDE, HIGH, EDGE = 400, 96, 12  # of a picture, in its own units


def page(said: Sequence[Mapping[str, Any]], lacking: Mapping[str, str], store: str, onwards: Mapping[str, str]) -> str:
    """The page.

    Args:
        said: what each stop said, as ``journey.take`` gives it.
        lacking: stops that could not be walked, and why.
        store: as lines name it.
        onwards: lines to type next, and what each is for.
    """
    by_name = {stop["stop"]: stop for stop in said}
    seconds = sum(stop["seconds"] for stop in said)
    parts = []
    for title, stops in PARTS.items():
        told = [one(by_name[stop.name], store) for stop in stops if stop.name in by_name]
        if told:
            parts.append(f"<h2>{escape(title)}</h2>{''.join(told)}")
    if lacking:
        rows = "".join(f"<tr><td>{escape(name)}</td><td>{escape(why)}</td></tr>" for name, why in lacking.items())
        parts.append(f"<h2>What did not run</h2><table>{rows}</table>")
    links = "".join(f'<p><a href="#{escape(it["stop"])}">{escape(it["asks"])}</a></p>' for it in said)
    typed = "".join(f"<p>{escape(purpose)}</p><pre>{escape(line)}</pre>" for line, purpose in onwards.items())
    papers = sum(bool(stop["paper"]) for stop in said)
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>A tour of one store</title>'
        f'<meta name="viewport" content="width=device-width"><style>{STYLE}{OWN}</style></head><body>'
        f"<h1>{papers} methods, one store</h1>"
        f"<p>A small agent was recorded, trained and questioned. Every run is in <code>{escape(store)}</code>, and "
        f"each method below reads the same runs or adds to them. It took {seconds / 60:.0f} minutes on this machine. "
        "A bar is an estimate with its 95 % interval, and the grey one is what it is held against. The figures speak "
        "of these small runs alone. The lines under each are those that made it, and take your own runs as well.</p>"
        f"<nav>{links}</nav>{''.join(parts)}"
        f"<h2>Go on</h2>{typed}</body></html>\n"
    )


def one(stop: Mapping[str, Any], store: str) -> str:
    """A stop: its question, what the method does, the picture, what came out, and the lines."""
    unit, figure, control = stop["unit"], stop["figure"], stop["control"]
    source = f"{stop['paper']}, arXiv {stop['arxiv']}" if stop["paper"] else "Clew's own loop"
    lines = "\n".join(line["typed"] for line in stop["lines"])
    held = f"<p class='dim'>{told(control, unit)}</p>" if control else ""
    place = escape(command_line("view", page=stop["place"], store_path=store))
    design = f" {escape(figure['design'])}." if figure["design"] else ""
    return (
        f'<article id="{escape(stop["stop"])}"><h3>{escape(stop["asks"])}</h3>'
        f"<p>{escape(stop['method'])}. {escape(stop['does'])} <span class='dim'>{escape(source)}</span></p>"
        f"{picture(figure, control, unit)}"
        f"<p class='said'>{told(figure, unit)}</p>{held}"
        f"<p>{escape(stop['means'])}</p>"
        f"<details><summary>{len(stop['lines'])} lines, {stop['seconds']:.0f} s ({stop['cpu']:.0f} s of CPU)</summary>"
        f"<p class='dim'>95 % interval.{design}</p><pre>{escape(lines)}</pre>"
        f"<pre>{place}</pre></details></article>"
    )


def told(of: Mapping[str, Any], unit: str) -> str:
    """A figure and its claim, as HTML."""
    return f"{escape(figure_text(of, unit))} &nbsp; {escape(of['claim'])}"


def picture(figure: Mapping[str, Any], control: Mapping[str, Any] | None, unit: str) -> str:
    """Both intervals on one scale, which holds 0 (and 1, of shares in percent)."""
    shown = [figure] if control is None else [figure, control]
    low: float = min(0.0, *(it["low"] for it in shown))
    high: float = max(1.0 if unit == "%" else 0.0, *(it["high"] for it in shown))
    span = (high - low) or 1.0

    def at(value: float) -> float:
        return EDGE + (WIDE - 2 * EDGE) * (value - low) / span

    def mark(value: float) -> str:
        return f"{value:.0%}" if unit == "%" else f"{value:.3g}"

    drawn = [f'<line x1="{at(0):.1f}" y1="8" x2="{at(0):.1f}" y2="{HIGH - 24}" stroke="var(--line)"/>']
    for row, it in enumerate(shown):
        y, colour = 24 + 28 * row, "#1f6feb" if row == 0 else "var(--dim)"
        drawn.append(
            f'<line x1="{at(it["low"]):.1f}" y1="{y}" x2="{at(it["high"]):.1f}" y2="{y}" stroke="{colour}" '
            f'stroke-width="8" stroke-linecap="round" opacity=".35"/>'
            f'<circle cx="{at(it["estimate"]):.1f}" cy="{y}" r="6" fill="{colour}"/>'
        )
    for value, anchor in ((low, "start"), (high, "end")):
        drawn.append(f'<text x="{at(value):.1f}" y="{HIGH - 6}" text-anchor="{anchor}">{mark(value)}</text>')
    if low < 0 < high:
        drawn.append(f'<text x="{at(0):.1f}" y="{HIGH - 6}" text-anchor="middle">0</text>')
    label = escape("; ".join(f"{figure_text(it, unit)} {it['claim']}" for it in shown))
    return f'<svg viewBox="0 0 {WIDE} {HIGH}" role="img" aria-label="{label}">{"".join(drawn)}</svg>'
