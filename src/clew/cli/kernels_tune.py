"""clew kernels tune: search for a faster build of a kernel, led by the diagnosis."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from clew.cli.shared import common, run_options


@click.command("tune", short_help="Search for a faster build of a C kernel, led by what the measurements say.")
@click.argument("kernel")
@click.option("--search", type=click.Choice(["guided", "greedy", "random", "mcts"]), default="guided",
              show_default=True, help="guided: changes that the diagnosis recommends come first.")  # fmt: skip
@click.option("--budget", default=24, show_default=True, type=click.IntRange(1), help="Builds to try.")
@click.option("--model", "ref", help="Writes new source instead of changing flags and macros; see `clew models`.")
@click.option("--sandbox", type=click.Choice(["bubblewrap", "rlimits", "none"]),
              help="Where compiler and builds run.  [default: bubblewrap with --model, else none]")  # fmt: skip
@click.option("--seed", default=0, show_default=True)
@click.option("--name", default="", help="Names the run: the same line run again goes on where it stopped.")
@run_options.model_options
@run_options.sampling_options
@common.json_option
@common.store_option
def command(
    kernel: str, search: str, budget: int, ref: str | None, sandbox: str | None, seed: int, name: str, as_json: bool,
    store_path: str, **options: Any,
) -> None:  # fmt: skip
    """Search for a faster build of KERNEL: a bundled one, or a Python file that defines one.

    Every try is built, checked on several shapes and seeds against a float64 reference, and timed in turn with the best
    so far; a gain counts where its interval lies above 1.02. The search is a run in the store: `clew show` follows it,
    `clew fork RUN@CALL` goes on from any try.

    Bundled: dot, stencil, softmax, layernorm, gemm, transpose.

    \b
    clew kernels tune softmax
    clew kernels tune my_kernel.py --search mcts --budget 60
    clew kernels tune softmax --model http://localhost:8000/v1#qwen3 --budget 12
    """
    from clew.coding.kernels.world import Kernels, tries_of
    from clew.core.errors import BadInput
    from clew.harness import Runner

    sandbox = sandbox or ("bubblewrap" if ref else "none")
    if ref and sandbox == "none":
        raise BadInput("source that a model writes runs in a sandbox only", remedy="Leave --sandbox out.")
    taskset = Kernels(sandbox="" if sandbox == "none" else sandbox)
    task = taskset.find(str(Path(kernel).resolve()) if kernel.endswith(".py") else kernel)
    config = {"search": search, "budget": budget, "coder": "model" if ref else "catalogue"}
    model = run_options.load_model(ref, options) if ref else None
    store = common.open_store(store_path, create=True)
    runner = Runner(
        "clew.coding.kernels.world:tuner", taskset, model, store, config, sampling=run_options.sampling(options)
    )
    with run_options.interruptible("clew resume"), common.progress() as bar:
        job = bar.add_task(f"tuning {task.id}", total=budget, note="")
        taskset.on_try = lambda: bar.advance(job)
        groups = runner.collect([task], 1, seed, name=name)
    run_options.refuse_failure(groups)
    run = groups.runs[0]
    tries = [told for _, told in tries_of(run)]
    final = json.loads(run.calls[-2].text)
    if as_json:
        common.print_json({"run": run.id, "tries": tries, "final": final})
        return
    report(run.id, tries, final)


def report(run: str, tries: list[dict[str, Any]], final: dict[str, Any]) -> None:
    """The timeline of tries, and what the best is worth."""
    rows, best = [], 1.0
    for number, told in enumerate(tries, 1):
        best = max(best, told["speed"]) if told.get("gain") else best
        note = told.get("why") or ", ".join(line.partition(" (")[0] for line in told.get("findings", ()))
        rows.append((str(number), f"{told['speed']:.2f}" + "*" * bool(told.get("gain")), told["build"], note))
    common.print_table(("try", "speed", "build", "what it suffers from, or failed at"), rows)
    click.echo("* faster than the best before it, by an interval above 1.02; speeds are over the plain build\n")
    click.echo(f"best: {final['build']}")
    for name, other in (("plain", "the plain build"), ("compiler", "-O3 -march=native -ffast-math")):
        found = final[f"over_{name}"]
        if isinstance(found, str):
            click.echo(f"  against {other}: {found}")
        else:
            click.echo(f"  {found[0]:.2f} [{found[1]:.2f}, {found[2]:.2f}] times as fast as {other}")
    click.echo(f"follow it: clew show {run}")
