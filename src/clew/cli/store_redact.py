"""clew store redact: take content out of the record and leave its key."""

from __future__ import annotations

import click

from clew.cli.shared import common


@click.command(short_help="Erase a message, action or result for good; its key stays.")
@click.argument("target")
@click.option("--yes", is_flag=True, help="Do not ask.")
@common.json_option
@common.store_option
def command(target: str, yes: bool, as_json: bool, store_path: str) -> None:
    """Put a tombstone on a Call (run@call) or a node (its hex key), and on the same text where related runs repeat it.

    Keys and chains stay, so `clew store verify` still proves the rest; what was erased can be neither replayed nor
    forked inside. Annotations are not searched.

    \b
    clew store redact 4fzk2w@12
    """
    store = common.open_store(store_path)
    if "@" in target:
        _, place = common.cursor(store, target)
        target = str(place._replace(token=0))
    if not yes:
        click.confirm(
            f"Erase the content of {target} and its repetitions in {store.path} for good?", abort=True, err=True
        )
    places = store.redact(target)
    if as_json:
        common.print_json(places)
        return
    for erased in places:
        click.echo(f"erased {erased}")
    if not places:
        click.echo("it was erased before")
