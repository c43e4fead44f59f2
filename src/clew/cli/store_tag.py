"""clew store tag: give runs a name."""

from __future__ import annotations

import click

from clew.cli.shared import common, option


@click.command(short_help="Give runs a name by which they are found and kept; list tags.")
@click.argument("name", required=False)
@click.argument("runs", nargs=-1)
@option("-d", "--delete", is_flag=True, help="Remove the tag instead.")
@common.output_options
def command(name: str | None, runs: tuple[str, ...], delete: bool, as_json: bool, store_path: str) -> None:
    """Give the chosen runs the tag NAME; without NAME, list all tags. `clew store gc` never removes a tagged run.

    \b
    clew store tag                         # lists tags
    clew store tag keep 4fzk2w 7ab3kd
    clew store tag solved 'return>0.5'
    clew store tag -d keep 4fzk2w
    """
    store = common.open_store(store_path)
    if name is not None:
        if not runs:
            raise click.UsageError("name the runs to tag, as in: clew store tag keep 4fzk2w")
        for run in common.some(store, runs):
            (store.untag if delete else store.tag)(run.id, name)
        store.commit()
    tags = store.tags()
    shown = {key: value for key, value in tags.items() if name is None or key == name}
    if as_json:
        common.print_json(shown)
    elif shown:
        common.print_table(("tag", "runs"), [(key, " ".join(value)) for key, value in shown.items()])
    else:
        click.echo("no tags" if name is None else f"no run has the tag {name!r} now")
