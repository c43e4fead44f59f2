"""clew resume: continue runs whose process ended before they did."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import click

from clew.cli.shared import common, embedding, option, run_options
from clew.core.errors import BadInput, ClewError

if TYPE_CHECKING:
    from clew.store import Run


@click.command(short_help="Continue runs that were interrupted.")
@click.argument("runs", nargs=-1)
@option("--redo", is_flag=True, help="Repeat calls that were sent and never answered; an action may then happen twice.")
@embedding.embed_option
@run_options.model_options
@common.output_options
def command(runs: tuple[str, ...], redo: bool, as_json: bool, store_path: str, **options: Any) -> None:
    """Finish unfinished runs: the agent first gets its recorded results back, then goes on live.

    Without RUNS: every unfinished run of the store that no live process holds.

    \b
    clew resume
    clew resume 4fzk2w
    """
    from clew.core.errors import LeaseHeld
    from clew.harness import Runner
    from clew.harness.fork.fork_request import lend
    from clew.view.terminal import headline

    store = common.open_store(store_path)
    waiting = [run for run in common.choose(store, runs) if run.stop is None and not run.row.spawned_by]
    finished: list[Run] = []
    held: list[tuple[Run, ClewError]] = []
    failed: list[tuple[Run, ClewError]] = []
    runners: dict[Any, Runner] = {}
    again = run_options.resume_line(options, *runs, redo=redo)
    with run_options.interruptible(again), run_options.watching(len(waiting)) as watch:
        for run in waiting:
            if run.agent.endswith(":relay"):
                failed.append((run, _waits(run)))
                continue
            like = (run.agent, run.taskset, run.model, run.row.config, run.row.settings)
            try:
                if like not in runners:
                    load = partial(run_options.load_model, options=options)
                    runners[like] = Runner.of(
                        store, run, resolve_model=load, embedder=embedding.embedder(options["embed"])
                    )
                    lend(runners[like], load)
                finished.append(runners[like].resume(run, in_doubt="redo" if redo else "stop", on_run=watch))
            except LeaseHeld as error:
                held.append((run, error))
            except ClewError as error:
                failed.append((run, error))
    if as_json:
        ended = [{"run": r.id, "reward": r.reward, "stop": r.stop} for r in finished]
        errors = {run.id: str(why) for run, why in failed}
        common.print_json({"finished": ended, "held": [run.id for run, _ in held], "failed": errors})
    else:
        for run in finished:
            common.echo(headline(run))
        for run, why in (*held, *failed):
            common.say(f"not resumed: {run.id}: {why}")
        if not waiting:
            common.echo("every chosen run has ended" if runs else "no run is unfinished")
    if failed:
        raise SystemExit(2)


def _waits(run: Run) -> ClewError:
    """A run of the gateway's has no agent here: its program is the agent."""
    name = next(iter(run.tags), run.id)
    return BadInput(
        "it records a program that asked the gateway, and goes on when that program asks again",
        remedy=f"Start `clew gateway` with this store, and the program with the base URL http://HOST:PORT/r/{name}/v1.",
    )
