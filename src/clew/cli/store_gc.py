"""clew store gc: remove runs that nothing uses."""

from __future__ import annotations

import click

from clew.cli.shared import common, option


@click.command(short_help="List, or remove, runs that no tag, group, fork or report uses.")
@option("--yes", is_flag=True, help="Remove the runs; without --yes they are only listed.")
@common.output_options
def command(yes: bool, as_json: bool, store_path: str) -> None:
    """List the runs that no tag, group, fork or report uses, and remove them with --yes.

    To keep a run, give it a tag, as in `clew store tag keep RUN`.

    \b
    clew store gc
    clew store gc --yes
    """
    from clew.store import Run
    from clew.view.terminal import headline

    store = common.open_store(store_path)
    garbage = store.gc(dry_run=True)
    if not as_json:
        for name in garbage.runs[:20]:
            click.echo(headline(Run(store, name)))
        if len(garbage.runs) > 20:
            click.echo(f"and {len(garbage.runs) - 20} more")
    if yes:
        store.gc(dry_run=False)
    if as_json:
        sizes = {"calls": garbage.calls, "nodes": len(garbage.nodes), "blobs": len(garbage.blobs)}
        common.print_json({"runs": garbage.runs, **sizes, "removed": yes})
        return
    click.echo(
        f"{'removed' if yes else 'nothing reaches'} {garbage}" + ("" if yes else "; clew store gc --yes removes them")
    )
