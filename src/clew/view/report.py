"""A training as one self-contained page of HTML: figures, learning curve, a run, what to do next."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence

from clew.core.printable import visible
from clew.core.records import Report

Series = Sequence[tuple[float, float]]
COLOURS = ("#1f6feb", "#bf8700", "#8250df")
STYLE = """
:root { color-scheme: light dark; --ink: #1f2328; --dim: #656d76; --line: #d0d7de; --paper: #fff; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --dim: #8d96a0; --line: #30363d; --paper: #0d1117; } }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 56rem;
  margin: 3rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; overflow-wrap: anywhere; } h2 { font-size: 1.1rem; margin-top: 2rem; }
table { border-collapse: collapse; display: block; overflow-x: auto; } td, th { text-align: left; padding: .25rem 1.25rem .25rem 0; }
td { border-top: 1px solid var(--line); font-variant-numeric: tabular-nums; }
pre { overflow-x: auto; padding: 1rem; border: 1px solid var(--line); border-radius: 6px; font-size: .8rem; }
svg { width: 100%; height: auto; } svg text { fill: var(--dim); font-size: 12px; }
.dim { color: var(--dim); }
"""


def escape(text: str) -> str:
    """Text as HTML, its hidden characters visible."""
    return html.escape(visible(text))


def page(
    title: str,
    reports: Mapping[str, Report],
    curves: Mapping[str, Series],
    facts: Mapping[str, str],
    tree: str,
    commands: Mapping[str, str],
) -> str:
    """The page.

    Args:
        reports: a label and a Report each: what was measured, with n and interval.
        curves: name -> (step, share) pairs, shares in [0, 1].
        facts: label -> text, as a table.
        tree: a run drawn as text.
        commands: what each does -> the line to type.
    """
    rows = "".join(
        f"<tr><td>{escape(label)}</td><td>{r.estimate:.1%}</td><td>{r.low:.1%} to {r.high:.1%}</td><td>{r.n}</td>"
        f'<td class="dim">{escape(r.design)}</td></tr>'
        for label, r in reports.items()
    )
    known = "".join(f"<tr><td>{escape(k)}</td><td>{escape(v)}</td></tr>" for k, v in facts.items())
    typed = "".join(f"<p>{escape(k)}</p><pre>{escape(v)}</pre>" for k, v in commands.items())
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{STYLE}</style></head><body>'
        f"<h1>{escape(title)}</h1>"
        f"<table><tr><th></th><th>success</th><th>95 % interval</th><th>n</th><th>design</th></tr>{rows}</table>"
        f"<h2>Learning curve</h2>{chart(curves)}<h2>Figures</h2><table>{known}</table>"
        f"<h2>The run that failed worst</h2><pre>{escape(tree)}</pre><h2>Next</h2>{typed}</body></html>\n"
    )


def chart(curves: Mapping[str, Series], width: int = 760, height: int = 300) -> str:
    """Curves of shares over steps as inline SVG: thin as measured, thick as a running mean of up to 7 points."""
    left, right, top, bottom = 48, 16, 28, 32
    last = max((x for series in curves.values() for x, _ in series), default=1.0) or 1.0

    def at(x: float, y: float) -> str:
        across = left + (width - left - right) * x / last
        return f"{across:.1f},{top + (height - top - bottom) * (1 - y):.1f}"

    parts = []
    for tenth in range(0, 11, 2):
        a, b = at(0, tenth / 10).split(","), at(last, tenth / 10).split(",")
        parts.append(f'<line x1="{a[0]}" y1="{a[1]}" x2="{b[0]}" y2="{b[1]}" stroke="var(--line)"/>')
        parts.append(f'<text x="{left - 8}" y="{float(a[1]) + 4:.0f}" text-anchor="end">{tenth * 10}%</text>')
    for x in sorted({round(last * tick / 4) for tick in range(5)}):
        place = at(x, 0).split(",")[0]
        parts.append(f'<text x="{place}" y="{height - 10}" text-anchor="middle">{x}</text>')
    for i, (name, series) in enumerate(curves.items()):
        colour = COLOURS[i % len(COLOURS)]
        for points, stroke, opacity in ((series, 1, 0.35), (running_mean(series), 2.5, 1)):
            path = " ".join(at(x, y) for x, y in points)
            parts.append(
                f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{stroke}" opacity="{opacity}"/>'
            )
        parts.append(f'<circle cx="{left + 8 + 220 * i}" cy="12" r="5" fill="{colour}"/>')
        parts.append(f'<text x="{left + 18 + 220 * i}" y="16">{escape(name)}</text>')
    label = escape(", ".join(curves))
    return f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{label}">{"".join(parts)}</svg>'


def running_mean(series: Series, window: int = 7) -> list[tuple[float, float]]:
    """Means over up to ``window`` points centred on each; narrower at the ends."""
    out = []
    for i, (x, _) in enumerate(series):
        reach = min(window // 2, i, len(series) - 1 - i)
        part = [y for _, y in series[i - reach : i + reach + 1]]
        out.append((x, sum(part) / len(part)))
    return out
