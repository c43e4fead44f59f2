"""clew store redact: erase content from the record."""

from __future__ import annotations

import click

from clew.cli.shared import common, option


@click.command(short_help="Erase a message, action or result for good.")
@click.argument("target")
@option("--yes", is_flag=True, help="Do not ask for confirmation.")
@common.output_options
def command(target: str, yes: bool, as_json: bool, store_path: str) -> None:
    """Erase the content of TARGET, a call (run@call) or a message (its node's hex key), and every repetition of the
    same text in related runs. The content cannot be brought back.

    Keys stay, so `clew store verify` still checks the rest. An erased call can no longer be replayed or forked.
    Annotations are not searched for the text.

    \b
    clew store redact 4fzk2w@12
    """
    store = common.open_store(store_path)
    if "@" in target:
        _, place = common.cursor(store, target)
        assert place is not None
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
        click.echo("the content was erased before")
