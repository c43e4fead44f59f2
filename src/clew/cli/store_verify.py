"""clew store verify: check the whole record."""

from __future__ import annotations

import click

from clew.cli.shared import common, option


@click.command(short_help="Check that nothing in the store was altered or lost.")
@option("--rebuild", is_flag=True, help="Rebuild the derived tables (lists, search, summaries) first.")
@common.output_options
def command(rebuild: bool, as_json: bool, store_path: str) -> None:
    """Compute every key again and check every rule of the record. Exit code 1 if a fault is found.

    \b
    clew store verify
    clew store verify --store runs.db --rebuild
    """
    store = common.open_store(store_path)
    if rebuild:
        store.rebuild()
    faults = store.verify()
    if as_json:
        common.print_json({"runs": len(store.run_ids()), "faults": [f._asdict() for f in faults]})
    else:
        for fault in faults:
            click.echo(f"{fault.where}: {fault.what}")
        click.echo(f"{len(store.run_ids())} runs, {len(faults) or 'no'} fault{'s' * (len(faults) != 1)}")
    if faults:
        raise SystemExit(1)
