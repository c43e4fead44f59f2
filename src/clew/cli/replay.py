"""clew replay: run the agent again on its recorded results, without asking a model or a world."""

from __future__ import annotations

from typing import Any, NoReturn

import click

from clew.cli.shared import common
from clew.core.errors import ReplayError, UnknownName


@click.command(short_help="Check that the agent still does what its record says.")
@click.argument("runs", nargs=-1, required=True)
@common.output_options
def command(runs: tuple[str, ...], as_json: bool, store_path: str) -> None:
    """Start the agent again, give it the recorded results, and compare every request and key with the record.

    No model and no world is asked. Where a run diverges, its first differing call is named and the exit code is 2.

    \b
    clew replay 4fzk2w
    clew replay world=household 'return>0.5'
    """
    from clew.harness import Runner

    store = common.open_store(store_path)
    rows: list[dict[str, Any]] = []
    for run in common.some(store, runs):
        try:
            done = Runner.of(store, run, resolve_model=_untouched).replay(run)
            rows.append({"run": run.id, "calls": done.calls, "seconds": done.seconds, "error": None})
        except ReplayError as error:
            rows.append({"run": run.id, "calls": len(run.calls), "seconds": None, "error": str(error)})
    failed = [row for row in rows if row["error"]]
    if as_json:
        common.print_json(rows)
    else:
        for row in rows:
            good = f"{row['calls']} calls equal, {(row['seconds'] or 0) * 1e3:.0f} ms"
            common.echo(f"{row['run']}  {row['error'] or good}", err=bool(row["error"]))
    if failed:
        raise SystemExit(2)


def _untouched(ref: str) -> NoReturn:
    raise UnknownName(f"{ref}: a replay builds no model")
