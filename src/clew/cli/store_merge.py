"""clew store merge: copy other stores into this one."""

from __future__ import annotations

import click

from clew.cli.shared import common


@click.command(short_help="Copy everything that other stores hold into this one.")
@click.argument("others", nargs=-1, required=True)
@common.output_options
def command(others: tuple[str, ...], as_json: bool, store_path: str) -> None:
    """Copy everything that the stores OTHERS hold into this one. Run ids are globally unique, so nothing collides; a
    second merge changes nothing.

    \b
    clew store merge laptop.db cluster.db
    """
    sources = [common.open_store(path) for path in others]
    store = common.open_store(store_path, create=True)
    taken = {source.path: store.merge(source) for source in sources}
    if as_json:
        common.print_json(taken)
        return
    for path, counts in taken.items():
        new = ", ".join(f"{count} {kind}" for kind, count in counts.items() if count)
        click.echo(f"{path}: {new or 'nothing new'}")
