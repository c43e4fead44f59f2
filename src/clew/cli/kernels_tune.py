"""clew kernels tune: search for a faster build of a kernel, led by the diagnosis."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import click

from clew.cli.shared import common, option, run_options

SEARCHES = click.Choice(["guided", "greedy", "random", "mcts"])
SANDBOXES = click.Choice(["bubblewrap", "rlimits", "none"])
SEARCH_HELP = "Search method; guided: changes that the diagnosis recommends come first."
SANDBOX_HELP = "Where compiler and builds run.  [default: bubblewrap with --model, else none]"


@click.command("tune", short_help="Search for a faster build of a C kernel.")
@click.argument("kernel")
@option("--search", type=SEARCHES, default="guided", help=SEARCH_HELP)
@option("--budget", default=24, type=click.IntRange(1), help="Number of builds to try.")
@option("--model", help="Let this model write new source, instead of changing flags and macros.")
@option("--sandbox", type=SANDBOXES, help=SANDBOX_HELP)
@option("--seed", default=0, help="Seed of the search.")
@option("--name", default="", help="Name of the run; the same line continues it where it stopped.")
@run_options.model_options
@run_options.sampling_options
@common.output_options
def command(kernel: str, search: str, budget: int, as_json: bool, store_path: str, **options: Any) -> None:
    """Search for a faster build of KERNEL: a bundled kernel, or a Python file that defines one.

    Every build is checked on several shapes and seeds against a float64 reference, and timed in turn with the best so
    far; a speedup counts if its interval lies above 1.02. The search is a run in the store: `clew show` prints it,
    `clew fork RUN@CALL` continues from any build.

    Bundled: dot, stencil, softmax, layernorm, gemm, transpose.

    \b
    clew kernels tune softmax
    clew kernels tune my_kernel.py --search mcts --budget 60
    clew kernels tune softmax --model http://localhost:8000/v1#qwen3 --budget 12
    """
    from clew.coding.kernels.world import Kernels, tries_of
    from clew.core.errors import BadInput
    from clew.harness import Runner

    ref = options["model"]
    sandbox = options["sandbox"] or ("bubblewrap" if ref else "none")
    if ref and sandbox == "none":
        raise BadInput("source that a model writes runs only in a sandbox", remedy="Leave --sandbox out.")
    taskset = Kernels(sandbox="" if sandbox == "none" else sandbox)
    task = taskset.find(str(Path(kernel).resolve()) if kernel.endswith(".py") else kernel)
    config = {"search": search, "budget": budget, "coder": "model" if ref else "catalogue"}
    model = run_options.load_model(ref, options) if ref else None
    store = common.open_store(store_path, create=True)
    agent, how = "clew.coding.kernels.world:tuner", run_options.sampling(options)
    runner = Runner(agent, taskset, model, store, config, sampling=how)
    with run_options.interruptible("clew resume"), common.bar(f"tuning {task.id}", budget) as move:
        taskset.on_try = partial(move, advance=1)
        groups = runner.collect([task], 1, options["seed"], name=options["name"])
    run_options.refuse_failure(groups)
    run = groups.runs[0]
    tries = [told for _, told in tries_of(run)]
    final = json.loads(run.calls[-2].text)
    if as_json:
        common.print_json({"run": run.id, "tries": tries, "final": final})
        return
    report(run.id, tries, final)


def report(run: str, tries: list[dict[str, Any]], final: dict[str, Any]) -> None:
    """Print the builds in the order in which they were tried, and how much faster the best is."""
    rows, best = [], 1.0
    for number, told in enumerate(tries, 1):
        best = max(best, told["speed"]) if told.get("gain") else best
        note = told.get("why") or ", ".join(line.partition(" (")[0] for line in told.get("findings", ()))
        rows.append((str(number), f"{told['speed']:.2f}" + "*" * bool(told.get("gain")), told["build"], note))
    common.print_table(("try", "speed", "build", "diagnosis, or why it failed"), rows)
    click.echo("* faster than the best so far (interval above 1.02); speeds are relative to the plain build\n")
    click.echo(f"best: {final['build']}")
    for name, other in (("plain", "the plain build"), ("compiler", "-O3 -march=native -ffast-math")):
        found = final[f"over_{name}"]
        if isinstance(found, str):
            click.echo(f"  against {other}: {found}")
        else:
            click.echo(f"  {found[0]:.2f} [{found[1]:.2f}, {found[2]:.2f}] times as fast as {other}")
    click.echo(f"Next: clew show {run}")
