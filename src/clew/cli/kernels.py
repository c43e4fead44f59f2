"""clew kernels: diagnose a compiled kernel, and search for a faster build of one."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from clew.cli.shared import common, option, run_options
from clew.cli.shared.next_lines import command_line
from clew.core.errors import BadInput

if TYPE_CHECKING:
    from clew.coding.kernels.rules import Backend

HELP = """Find out why a kernel is slow, and search for a faster one.

\b
clew kernels explain libfast.so --symbol softmax
clew kernels tune softmax
"""
SHORT = "Find out why a kernel is slow, and search for a faster build."
command = common.Ordered("kernels", help=HELP, short_help=SHORT)
COMPILED = {".c": "gcc -g -O2 -c x.c", ".cpp": "g++ -g -O2 -c x.cpp", ".cc": "g++ -g -O2 -c x.cc"}
COMPILED[".cu"] = "nvcc -cubin -Xptxas -v x.cu 2> x.txt; clew kernels explain x.cubin --ptxas x.txt"
FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
SEARCH_HELP = "Search method; guided: changes that the diagnosis recommends come first."
SANDBOX_HELP = "Where compiler and builds run.  [default: bubblewrap with --model, else none]"


@command.command(short_help="Search for a faster build of a C kernel.")
@click.argument("kernel")
@option("--search", choices="guided greedy random mcts", default="guided", help=SEARCH_HELP)
@option("--budget", default=24, type=click.IntRange(1), help="Number of builds to try.")
@option("--model", help="Let this model write new source, instead of changing flags and macros.")
@option("--sandbox", choices="bubblewrap rlimits none", help=SANDBOX_HELP)
@option("--seed", default=0, help="Seed of the search.")
@option("--name", default="", help="Name of the run; the same line continues it where it stopped.")
@run_options.model_options
@run_options.sampling_options
@common.output_options
def tune(kernel: str, search: str, budget: int, as_json: bool, store_path: str, **options: Any) -> None:
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
    with run_options.interruptible(run_options.resume_line(options)), common.bar(f"tuning {task.id}", budget) as move:
        taskset.on_try = partial(move, advance=1)
        groups = runner.collect([task], 1, options["seed"], name=options["name"])
    run_options.refuse_failure(groups)
    run = groups.runs[0]
    tries = [told for _, told in tries_of(run)]
    final = json.loads(run.calls[-2].text)
    if as_json:
        common.end_with_json({"run": run.id, "tries": tries, "final": final})
    report(run.id, tries, final)


def report(run: str, tries: list[dict[str, Any]], final: dict[str, Any]) -> None:
    """Print the builds in the order in which they were tried, and how much faster the best is."""
    rows, best = [], 1.0
    for number, told in enumerate(tries, 1):
        best = max(best, told["speed"]) if told.get("gain") else best
        note = told.get("why") or ", ".join(line.partition(" (")[0] for line in told.get("findings", ()))
        rows.append((str(number), f"{told['speed']:.2f}" + "*" * bool(told.get("gain")), told["build"], note))
    common.print_table(("try", "speed", "build", "diagnosis, or why it failed"), rows)
    common.echo("* faster than the best so far (interval above 1.02); speeds are relative to the plain build\n")
    common.echo(f"best: {final['build']}")
    for name, other in (("plain", "the plain build"), ("compiler", "-O3 -march=native -ffast-math")):
        found = final[f"over_{name}"]
        if isinstance(found, str):
            common.echo(f"  against {other}: {found}")
        else:
            common.echo(f"  {found[0]:.2f} [{found[1]:.2f}, {found[2]:.2f}] times as fast as {other}")
    common.echo(f"Next: {command_line('show', run)}")


@command.command(short_help="Diagnose a compiled kernel or a recorded profile.")
@click.argument("file", type=FILE)
@option("--symbol", default="", help="Function or kernel to explain.  [default: the largest, or the only one]")
@option(
    "--bound", choices="compute memory latency mixed", default="mixed", help="Known bottleneck: apply only its rules."
)
@option("--gemm", is_flag=True, help="The kernel is mainly a matrix product.")
@option("--ptxas", type=FILE, help="With a cubin: file with the output of nvcc -Xptxas -v.")
@common.json_option
def explain(file: Path, symbol: str, bound: str, gemm: bool, ptxas: Path | None, as_json: bool) -> None:
    """Apply the diagnosis rules to FILE, without running anything.

    FILE is an x86-64 object file or shared library (compile with -g, so that versions of one loop are told apart), a
    cubin, a listing of nvdisasm (.sass), a table of Nsight Compute (ncu --csv --page raw) or a profile as JSON.

    \b
    clew kernels explain kernel.o --symbol softmax
    clew kernels explain kernel.cubin --gemm
    clew kernels explain profile.csv --bound memory
    """
    from clew.coding.kernels.rules import diagnose

    metrics, backend, name = measured(file, symbol, ptxas)
    if gemm:
        metrics["gemm_like"] = 1.0
    found = diagnose(metrics, backend, bound, most=99)  # type: ignore[arg-type]
    if as_json:
        findings = [f.json() for f in found]
        common.end_with_json({"kernel": name, "backend": backend, "metrics": metrics, "findings": findings})
    common.echo(f"{name} ({backend}, {len(metrics)} metrics)")
    for finding in found:
        common.echo(f"  {finding.line()}")
    if not found:
        common.echo("  no rule applies: the measurements show no fault")


def measured(file: Path, symbol: str, ptxas: Path | None) -> tuple[dict[str, float], Backend, str]:
    """Metrics of a file, their backend, and the kernel's name."""
    from clew.coding.kernels import disassembly, profiles

    if file.suffix in (".json", ".csv"):
        metrics, backend = profiles.read(file, symbol)
        return metrics, backend, symbol or file.stem
    if file.suffix in (".cubin", ".sass"):
        text = disassembly.sass(file) if file.suffix == ".cubin" else file.read_text(errors="replace")
        name = symbol or _only(file, disassembly.kernels(text))
        metrics = disassembly.count_sass(text, name)
        told = disassembly.count_ptxas(ptxas.read_text(errors="replace"), name) if ptxas else {}
        if ptxas and not told:
            remedy = "Give the output of nvcc -Xptxas -v for it."
            raise BadInput(f"{ptxas} does not mention kernel {name}", remedy=remedy)
        return metrics | told, "cuda", name
    if compiled := COMPILED.get(file.suffix):
        raise BadInput(f"{file} is source; only compiled code is explained", remedy=f"First: {compiled}")
    name = symbol or next(iter(disassembly.functions(file)), "")
    if not name:
        raise BadInput(f"{file} has no functions that can be read", remedy="Give an object file, a cubin or a profile.")
    return disassembly.x86_metrics(file, name), "cpu", name


def _only(file: Path, names: list[str]) -> str:
    if not names:
        raise BadInput(f"{file} holds no kernel", remedy="Give a cubin (nvcc -cubin), or its listing by nvdisasm.")
    if len(names) > 1:
        told = f"{len(names)} kernels: {', '.join(names[:8])}"
        raise BadInput(f"{file} holds {told}", remedy="Name one with --symbol.")
    return names[0]
