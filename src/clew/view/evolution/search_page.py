"""A search of agents and judges as one self-contained page of HTML, written by ``clew evolve show --html``."""

from __future__ import annotations

import json

from clew.view.evolution.search_figures import curves, tree
from clew.view.evolution.search_history import Epoch, History
from clew.view.report import STYLE, escape

HEADS = ("outcomes", "slot", "judge", "challengers", "anchor items right", "replaced", "erased")


def row(epoch: Epoch) -> tuple[str, ...]:
    """A line of the table of epochs, under ``HEADS``."""
    right = f"{epoch.right} of {epoch.of}" if epoch.of else "not compared"
    replaced = "yes" if epoch.replaced else "no"
    compared = (f"#{epoch.judge}", str(epoch.challengers), right)
    return str(epoch.at), epoch.slot, *compared, replaced, str(epoch.erased)


def page(title: str, found: History) -> str:
    """The page: how the search stands, its figures, its epochs, and the best workspace. All texts are escaped."""
    facts = "".join(f"<tr><td>{escape(name)}</td><td>{escape(value)}</td></tr>" for name, value in facts_of(found))
    heads = "".join(f"<th>{name}</th>" for name in HEADS)
    rows = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row(one)) + "</tr>" for one in found.epochs)
    workspace = found.archive.workspace(found.best) if found.twigs else {}
    genomes = "".join(
        f"<h3>{escape(role)}</h3><pre>{escape(text_of(value))}</pre>" for role, value in workspace.items()
    )
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{STYLE}</style></head><body>'
        f"<h1>{escape(title)}</h1><table>{facts}</table>"
        f"<h2>Accepted, and judged right, over the outcomes spent</h2>{curves(found)}"
        f"<h2>Who descends from whom</h2>{tree(found)}"
        f"<h2>Ends of epochs</h2><table><tr>{heads}</tr>{rows}</table>"
        f"<h2>Workspace {found.best}, the best</h2>{genomes}</body></html>\n"
    )


def facts_of(found: History) -> list[tuple[str, str]]:
    """How the search stands, name and text."""
    archive, end = found.archive, found.archive.ended
    spent = archive.budget.spent
    capped = [f"{spent[name]:,.6g} of {cap:,.6g} {name}" for name, cap in archive.budget.caps.items()]
    free = [f"{amount:,.6g} {name}" for name, amount in spent.items() if name not in archive.budget.caps and amount]
    replaced = sum(epoch.replaced for epoch in found.epochs)
    facts = [
        ("state", "going on, or stopped" if end is None else f"ended: {end['said'] or end['budget'] + ' spent'}"),
        ("spent", ", ".join([*capped, *free])),
        ("workspaces", f"{len(found.twigs)} of {archive.proposals} proposals"),
        ("judges", f"replaced {replaced} times at {archive.checkpoints} checkpoints"),
        ("evidence", f"{archive.evidence.erased} outcomes erased, {archive.evidence.repeated} repeats not counted"),
    ]
    if found.refused:
        often = sorted(found.refused.items(), key=lambda pair: -pair[1])[:3]
        facts.append(("no workspace came of", "; ".join(f"{n} proposals: {why}" for why, n in often)))
    return facts


def text_of(genome: object) -> str:
    """A genome as text: a prompt as it is, anything else as JSON."""
    return genome if isinstance(genome, str) else json.dumps(genome, indent=1, ensure_ascii=False)
