"""clew import: take in runs that other programs recorded."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import click

from clew.cli.shared import common
from clew.core.errors import BadInput


@click.command("import", short_help="Take in runs that other programs recorded.")
@click.argument("files", nargs=-1, required=True)
@click.option("--format", "form", help="openai, parquet, inspect or atif.  [default: by the file's name]")
@click.option("--skip-bad", is_flag=True, help="Take the good records of a file that also has broken ones.")
@click.option("--name", default="", help="Of the groups; the file's name if it is not given.")
@common.json_option
@common.store_option
def command(
    files: tuple[str, ...], form: str | None, skip_bad: bool, name: str, as_json: bool, store_path: str
) -> None:
    """Import message JSONL in OpenAI's format, Parquet, Inspect .eval logs (extra inspect) or ATIF.

    Runs of one task become a group, so that they can be compared. Nothing of a file is taken if a record is broken.

    \b
    clew import airline.jsonl
    clew import logs/*.eval --skip-bad
    """
    from clew.exchange import format_of, import_file

    for file in files:
        format_of(file, form)
        if not Path(file).is_file():
            raise BadInput(f"there is no file {file}", remedy="Name a file that exists.")
    store = common.open_store(store_path, create=True)
    taken: dict[str, list[str]] = {}
    skipped: list[str] = []
    with common.progress() as bar:
        for file in files:
            moved = partial(_move, bar, bar.add_task(Path(file).name, total=None, note=""))
            taken[file] = import_file(
                store,
                file,
                form,
                skip_bad=skip_bad,
                on_bad=lambda error: skipped.append(str(error)),
                progress=moved,
                name=name,
            )
    if as_json:
        common.print_json({"runs": taken, "skipped": skipped})
        return
    for reason in skipped:
        click.echo(f"skipped: {reason}", err=True)
    for file, runs in taken.items():
        groups = {store.row(run).group for run in runs}
        click.echo(f"{file}: {len(runs)} runs in {len(groups)} groups; look at one: clew show {runs[0]}")


def _move(bar: Any, job: Any, count: int) -> None:
    bar.update(job, completed=count)
