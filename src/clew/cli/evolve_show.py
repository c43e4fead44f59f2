"""clew evolve show: how a search stands or ended, from its log alone; also while it goes on."""

from __future__ import annotations

from pathlib import Path

import click

from clew.cli.shared import common, option
from clew.cli.shared.next_lines import command_line
from clew.core.errors import BadInput

HTML_HELP = "Write tree, curves and tables to this file as one page of HTML."
NODE_HELP = "Print the workspace of this node alone, as JSON.  [default: the best]"


@click.command("show", short_help="Show how a search stands, from its log alone.")
@click.argument("folder", type=click.Path(path_type=Path))
@option(
    "--html", "html", type=click.Path(path_type=Path, dir_okay=False), default=None, not_with="--node", help=HTML_HELP
)
@option("--node", type=click.IntRange(0), default=None, metavar="N", help=NODE_HELP)
@common.json_option
def command(folder: Path, html: Path | None, node: int | None, as_json: bool) -> None:
    """Show a search of `clew evolve`, from the folder that holds its log.

    \b
    clew evolve show .clew/evolve/desk
    clew evolve show .clew/evolve/desk --html search.html
    clew evolve show .clew/evolve/desk --node 12
    """
    from clew.view.evolution import search_history, search_page, theory_page

    if (folder / theory_page.LOG).is_file():
        _theories(folder, html, as_json)
        return
    found = search_history.history(folder)
    if node is not None:
        if node >= len(found.twigs):
            raise BadInput(f"there is no node {node}", remedy=f"Nodes are 0 to {len(found.twigs) - 1}.")
        common.end_with_json(found.archive.workspace(node))
    if html is not None:
        html.parent.mkdir(parents=True, exist_ok=True)
        html.write_text(search_page.page(f"Search {folder.name}", found), encoding="utf-8")
    if as_json:
        common.end_with_json(search_history.told(found))
    for name, text in search_page.facts_of(found):
        common.echo(f"{name:<22}{text}")
    if found.epochs:
        common.echo()
        common.print_table(search_page.HEADS, [search_page.row(epoch) for epoch in found.epochs])
    if found.twigs:
        best = found.twigs[found.best]
        common.echo(f"\nnode {found.best} is the best: utility {best.utility:.2f} by {best.counts} outcomes that count")
        for role, genome in found.archive.workspace(found.best).items():
            common.echo(f"--- {role}\n{search_page.text_of(genome)}")
    if html is not None:
        common.echo(f"\nwrote {html}")
    else:
        common.echo(f"\nNext: {command_line('evolve show', folder, html='search.html')}")


def _theories(folder: Path, html: Path | None, as_json: bool) -> None:
    """A search for theories."""
    from clew.view.evolution import theory_page

    state = theory_page.theories(folder)
    if html is not None:
        html.parent.mkdir(parents=True, exist_ok=True)
        html.write_text(theory_page.page(f"Theories {folder.name}", state), encoding="utf-8")
    ranked = state.ranked()[: theory_page.ROWS] if state.observations else []
    if as_json:
        told = [{"loss": loss, "theory": form.told} for form, loss in ranked]
        ended = None if state.ended is None else dict(state.ended)
        common.end_with_json({"ended": ended, "designs": len(state.observations), "theories": told})
    common.echo(f"{len(state.observations)} designs, {state.participants} people, {state.revisions} revisions")
    common.print_table(["loss", "a theory that"], [[f"{loss:.4f}", form.words] for form, loss in ranked])
    common.echo(theory_page.words(state))
    if html is not None:
        common.echo(f"wrote {html}")
    else:
        common.echo(f"Next: {command_line('evolve show', folder, html='theories.html')}")
