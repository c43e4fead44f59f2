"""clew export: hand runs to other programs."""

from __future__ import annotations

import click

from clew.cli.shared import common


@click.command(short_help="Write runs to a file that other programs read.")
@click.argument("file")
@click.argument("runs", nargs=-1)
@click.option("--format", "form", help="openai, parquet, inspect or atif.  [default: by the file's name]")
@common.json_option
@common.store_option
def command(file: str, runs: tuple[str, ...], form: str | None, as_json: bool, store_path: str) -> None:
    """Export chosen runs, all of them if none is chosen, with messages, tool calls, rewards and groups.

    The name says the format: .jsonl for OpenAI-format messages, .parquet, .eval for Inspect, .atif.json for ATIF.

    \b
    clew export solved.jsonl 'return>0.5'
    clew export all.parquet
    """
    from clew.exchange import export, format_of

    format_of(file, form)
    store = common.open_store(store_path)
    chosen = common.some(store, runs)
    with common.progress() as bar:
        job = bar.add_task("exporting", total=len(chosen), note="")
        written = export(store, chosen, file, form, progress=lambda count: bar.update(job, completed=count))
    if as_json:
        common.print_json({"file": file, "runs": written})
    else:
        click.echo(f"{file}: {written} runs")
