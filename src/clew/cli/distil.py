"""clew distil: supervised data from runs, with or without their recoveries."""

from __future__ import annotations

from pathlib import Path

import click

from clew.cli.shared import common
from clew.core.errors import BadInput


@click.command(short_help="Build supervised data from solved runs, with or without their recoveries.")
@click.argument("runs", nargs=-1)
@click.argument("out")
@click.option(
    "--keep-recoveries/--erase-loops",
    "keep",
    default=True,
    show_default=True,
    help="Keep detours and the way back, or cut out every return to an earlier state.",
)
@click.option("--all", "everything", is_flag=True, help="Runs that were not solved as well.")
@common.json_option
@common.store_option
def command(runs: tuple[str, ...], out: str, keep: bool, everything: bool, as_json: bool, store_path: str) -> None:
    """Write one conversation for each chosen run to OUT, a .jsonl file in OpenAI's format: what was seen from the user,
    what was done by the assistant. Each line names its run and steps, so that `clew coverage OUT` can look them up.

    A run is solved where its reward is positive. With --erase-loops the data has perfect solutions only; specs/E163
    shows what a model loses by that.

    \b
    clew distil world=maze demos.jsonl
    clew distil 'world=household return>0' --erase-loops golden.jsonl
    """
    from clew.audit import trails
    from clew.exchange import openai_jsonl
    from clew.exchange.distil import demonstration

    if not out.endswith(openai_jsonl.SUFFIXES):
        raise BadInput(
            f"{out!r} is no .jsonl file", remedy="Put the file to write last, as in: clew distil RUNS OUT.jsonl"
        )
    store = common.open_store(store_path)
    chosen = {run.id: run for run in common.some(store, runs)}
    wanted = [path for path in trails(chosen.values()) if everything or path.solved]
    if not wanted:
        raise BadInput("none of these runs was solved", remedy="Choose others, or take all of them with --all.")
    made = [demonstration(chosen[path.run], not keep) for path in wanted]
    written = openai_jsonl.write(Path(out), made)
    acts, kept = sum(len(path.actions) for path in wanted), sum(len(it.messages) for it in made) // 2
    if as_json:
        common.print_json({"file": out, "runs": written, "acts": acts, "kept": kept})
    else:
        click.echo(f"{out}: {written} of {len(chosen)} runs, {kept} of {acts} acts")
