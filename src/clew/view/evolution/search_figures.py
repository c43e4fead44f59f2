"""The figures of a search of agents and judges as SVG: its tree, and its judging over the budget.

``search_page`` and the viewer's reports show them. Nothing that a proposer wrote is drawn: nodes are numbers.
"""

from __future__ import annotations

from clew.view.evolution.search_history import History, Twig
from clew.view.report import chart

STEP, LEVEL, EDGE = 13, 30, 22  # pixels between siblings and between generations, and round the tree
WIDE = 1600  # pixels of a tree at most; a wider one is drawn closer
# a figure that stands alone has no page whose colours it could take
ALONE = """<style>:root { --ink: #1f2328; --dim: #656d76; --line: #d0d7de; --paper: #fff; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --dim: #8d96a0; --line: #30363d; --paper: #0d1117; } }
svg { background: var(--paper); } text { fill: var(--dim); font: 12px system-ui, sans-serif; }</style>"""


def curves(found: History) -> str:
    """Shares over outcomes: accepted by the judge of its time, and what each slot's judge has right of the anchor."""
    named = {f"{role}: accepted": curve for role, curve in found.accepted.items()}
    named |= {f"{slot}: anchor items right": curve for slot, curve in found.right.items()}
    return chart(named)


def tree(found: History) -> str:
    """Who descends from whom. Blue: the more, the better by what counts; grey ring: the share of outcomes erased."""
    twigs = found.twigs
    across, depth = _places(twigs)
    far = max(across, default=0)
    step = min(STEP, (WIDE - 2 * EDGE) / far) if far else STEP
    wide = max(2 * EDGE + step * far, 360)
    high = 2 * EDGE + LEVEL * max(depth, default=0) + 22
    at = [(EDGE + step * x, EDGE + LEVEL * y) for x, y in zip(across, depth, strict=True)]
    line = _line_of(twigs, found.best)
    lines, dots = list[str](), list[str]()
    for node, (twig, (x, y)) in enumerate(zip(twigs, at, strict=True)):
        if twig.parent >= 0:
            a, b = at[twig.parent]
            stroke = ("var(--ink)", 2) if node in line else ("var(--line)", 1)
            lines.append(
                f'<line x1="{a:.1f}" y1="{b:.1f}" x2="{x:.1f}" y2="{y:.1f}" stroke="{stroke[0]}" '
                f'stroke-width="{stroke[1]}"/>'
            )
        said = f"node {node}: utility {twig.utility:.2f}, {twig.counts} outcomes count, {twig.stale} erased"
        gone = twig.stale / (twig.stale + twig.counts) if twig.stale else 0.0
        colour = "var(--line)" if not twig.counts else "#1f6feb"
        opacity = 1 if not twig.counts else 0.15 + 0.85 * twig.utility
        ring = f' stroke="var(--dim)" stroke-width="{3 * gone:.1f}"' if gone else ""
        dots.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{7 if node == found.best else 4.5}" fill="var(--paper)"/>'
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{7 if node == found.best else 4.5}" fill="{colour}" '
            f'fill-opacity="{opacity:.2f}"{ring}><title>{said}</title></circle>'
        )
    key = f"{len(twigs)} workspaces; thick: the way to node {found.best}, the best; ring: outcomes that were erased"
    return (
        f'<svg viewBox="0 0 {wide:.0f} {high:.0f}" width="{wide:.0f}" height="{high:.0f}" '
        f'xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{key}">{"".join(lines)}{"".join(dots)}'
        f'<text x="{EDGE}" y="{high - 8:.0f}">{key}</text></svg>'
    )


def alone(svg: str) -> str:
    """A figure as a file of its own, with a size, a name space and colours."""
    head, _, rest = svg.partition(">")
    if "width=" not in head:
        size = head.split('viewBox="', 1)[1].split('"', 1)[0].split()
        head += f' width="{size[2]}" height="{size[3]}"'
    space = "" if "xmlns=" in head else ' xmlns="http://www.w3.org/2000/svg"'
    return f"{head}{space}>{ALONE}{rest}"


def _line_of(twigs: list[Twig], node: int) -> set[int]:
    line = set[int]()
    while node >= 0 and twigs:
        line.add(node)
        node = twigs[node].parent
    return line


def _places(twigs: list[Twig]) -> tuple[list[float], list[int]]:
    """Of each node its place across and its generation; a parent stands over the middle of its children."""
    children: list[list[int]] = [[] for _ in twigs]
    depth = [0] * len(twigs)
    for node, twig in enumerate(twigs):  # parents come before their children
        if twig.parent >= 0:
            children[twig.parent].append(node)
            depth[node] = depth[twig.parent] + 1
    across, last = [0.0] * len(twigs), -1.0
    stack = [(node, False) for node in reversed(range(len(twigs))) if twigs[node].parent < 0]
    while stack:
        node, done = stack.pop()
        if not children[node]:
            last += 1
            across[node] = last
        elif done:
            across[node] = (across[children[node][0]] + across[children[node][-1]]) / 2
        else:
            stack.append((node, True))
            stack += [(child, False) for child in reversed(children[node])]
    return across, depth
