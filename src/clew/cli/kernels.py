"""clew kernels: diagnose a compiled kernel, and search for a faster build of one."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from clew.cli.shared import common, option, run_options
from clew.cli.shared.next_lines import command_line
from clew.core.errors import BadInput

if TYPE_CHECKING:
    from clew.methods.kernels.compiled import Compiled, Remark
    from clew.methods.kernels.counts import Site
    from clew.methods.kernels.rules import Backend, Finding

HELP = """Find out why a kernel is slow, and search for a faster one.

\b
clew kernels explain libfast.so --symbol softmax
clew kernels tune softmax
"""
SHORT = "Find out why a kernel is slow, and search for a faster build."
command = common.Ordered("kernels", help=HELP, short_help=SHORT)
CUDA_COMPILED = "nvcc -cubin -Xptxas -v x.cu 2> x.txt; clew kernels explain x.cubin --ptxas x.txt"
FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
SEARCH_HELP = "Search method: from the strongest options, by the diagnosis (guided), or otherwise."
SANDBOX_HELP = "Where compiler and builds run.  [default: bubblewrap with --model, else none]"


@command.command(short_help="Search for a faster build of a C kernel.")
@click.argument("kernel")
@option("--search", choices="strong guided greedy random mcts", default="strong", help=SEARCH_HELP)
@option("--budget", default=24, type=click.IntRange(1), help="Number of builds to try.")
@option("--model", help="Let this model write new source, instead of changing flags and macros.")
@option("--driver", type=FILE, help="With a C file that has no main: the C file whose main calls it, prints, and ends.")
@option("--flags", default="", help="With a C file: what every build needs, as -Iinclude -DN=8 -lblas.")
@option("--sandbox", choices="bubblewrap rlimits none", help=SANDBOX_HELP)
@option("--seed", default=0, help="Seed of the search.")
@option("--name", default="", help="Name of the run; the same line continues it where it stopped.")
@run_options.models_of(only_with="--model")
@run_options.sampling_of(only_with="--model")
@common.output_options
def tune(kernel: str, search: str, budget: int, as_json: bool, store_path: str, **options: Any) -> None:
    """Search for a faster build of KERNEL: a bundled kernel, a Python file that defines one, or a C file.

    Every build is checked on several shapes and seeds against a float64 reference, and timed in turn with the best so
    far; a speedup counts if its interval lies above 1.02. The search is a run in the store: `clew show` prints it,
    `clew fork RUN@CALL` continues from any build.

    A C file is a program with a main, which may be in a file of its own (--driver). A build of it is right if it prints
    what the plain build prints, numbers up to one in ten thousand, and its time is that of the whole program.

    Bundled: dot, stencil, softmax, layernorm, gemm, transpose.

    \b
    clew kernels tune softmax
    clew kernels tune my_kernel.py --search mcts --budget 60
    clew kernels tune my_kernel.c --driver main.c
    clew kernels tune softmax --model http://localhost:8000/v1#qwen3 --budget 12
    """
    from clew.harness import Runner
    from clew.methods.kernels.world import Kernels, tries_of

    ref = options["model"]
    sandbox = options["sandbox"] or ("bubblewrap" if ref else "none")
    if ref and sandbox == "none":
        raise BadInput("source that a model writes runs only in a sandbox", remedy="Leave --sandbox out.")
    if ref and kernel.endswith(".c"):
        told = f"{kernel} has no reference that source of a model could be judged by"
        raise BadInput(told, remedy="Leave --model out, or write a Python file that defines `kernel`.")
    for name in ("driver", "flags"):
        if options[name] and not kernel.endswith(".c"):
            raise BadInput(f"--{name} goes with a C file, not with {kernel}", remedy=f"Leave --{name} out.")
    driver = str(options["driver"].resolve()) if options["driver"] else ""
    taskset = Kernels("" if sandbox == "none" else sandbox, driver=driver, flags=options["flags"])
    task = taskset.find(str(Path(kernel).resolve()) if kernel.endswith((".py", ".c")) else kernel)
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
    from clew.methods.kernels.kernel import STRONG

    rows, best = [], 1.0
    for number, told in enumerate(tries, 1):
        best = max(best, told["speed"]) if told.get("gain") else best
        note = told.get("why") or ", ".join(line.partition(" (")[0] for line in told.get("findings", ()))
        rows.append((str(number), f"{told['speed']:.2f}" + "*" * bool(told.get("gain")), told["build"], note))
    common.print_table(("try", "speed", "build", "diagnosis, or why it failed"), rows)
    common.echo("* faster than the best so far (interval above 1.02); speeds are relative to the plain build\n")
    common.echo(f"best: {final['build']}")
    for name, other in (("plain", "the plain build"), ("compiler", " ".join(filter(None, STRONG.values())))):
        found = final[f"over_{name}"]
        if isinstance(found, str):
            common.echo(f"  against {other}: {found}")
        else:
            common.echo(f"  {found[0]:.2f} [{found[1]:.2f}, {found[2]:.2f}] times as fast as {other}")
    common.echo(f"Next: {command_line('show', run)}")


@command.command(short_help="Diagnose a C file, a compiled kernel or a recorded profile.")
@click.argument("file", type=FILE)
@option("--symbol", default="", help="Function or kernel to explain.  [default: the largest, or the only one]")
@option(
    "--bound", choices="compute memory latency mixed", default="mixed", help="Known bottleneck: apply only its rules."
)
@option("--gemm", is_flag=True, help="The kernel is mainly a matrix product.")
@option("--flags", default=None, help="With a source file: the compiler's flags.  [default: -O2]")
@option("--remarks", type=FILE, help="With an object: file with the compiler's remarks on its loops.")
@option("--ptxas", type=FILE, help="With a cubin: file with the output of nvcc -Xptxas -v.")
@common.json_option
def explain(
    file: Path, symbol: str, bound: str, gemm: bool, flags: str | None, remarks: Path | None, ptxas: Path | None,
    as_json: bool,
) -> None:  # fmt: skip
    """Apply the diagnosis rules to FILE. Your source is compiled, but nothing is run.

    FILE is C or C++ source (.c, .cpp, .cc), an x86-64 object file or shared library (compile with -g, so that lines and
    flags are known), a cubin, a listing of nvdisasm (.sass), a table of Nsight Compute (ncu --csv --page raw) or a
    profile as JSON.

    The compiler's own remarks say why a loop was not vectorised. With source they are asked for; with an object, give
    the file that gcc -fopt-info-vec-missed=FILE wrote, or the errors of clang -Rpass-missed=loop-vectorize
    -Rpass-analysis=loop-vectorize.

    \b
    clew kernels explain kernel.c --symbol softmax --flags "-O3 -march=znver3"
    clew kernels explain kernel.o --symbol softmax --remarks remarks.txt
    clew kernels explain kernel.cubin --gemm
    clew kernels explain profile.csv --bound memory
    """
    from clew.methods.kernels import compiled
    from clew.methods.kernels.rules import advice, diagnose

    source = file.suffix in compiled.COMPILERS
    for given, wanted, fits in (
        (flags, "--flags", source),
        (remarks, "--remarks", _is_object(file)),
        (ptxas, "--ptxas", file.suffix in (".cubin", ".sass")),
    ):
        if given is not None and not fits:
            need = {"--flags": "a source file", "--remarks": "an object file", "--ptxas": "a cubin or its listing"}[
                wanted
            ]
            raise BadInput(f"{wanted} goes with {need}, not with {file}", remedy=f"Leave {wanted} out.")
    with tempfile.TemporaryDirectory() as folder:
        made, said = file, remarks.read_text(errors="replace") if remarks else ""
        words: tuple[str, ...] = ()
        if source:
            made, said, words = compiled.compile_source(
                file, compiled.DEFAULT if flags is None else flags, Path(folder)
            )
        if source or _is_object(file):
            found = _of_object(made, file, symbol, said)
            if source and found.built:
                found = found._replace(built=found.built._replace(flags=found.built.flags or words))
        else:
            found = Measured(*measured(file, symbol, ptxas))
    if gemm:
        found.metrics["gemm_like"] = 1.0
    findings = diagnose(found.metrics, found.backend, bound, most=99)  # type: ignore[arg-type]
    more = compiled.to_try(advice(findings), found.metrics, found.built.flags if found.built else ())
    _tell(found, findings, more if found.backend == "cpu" else [], as_json)


class Measured(NamedTuple):
    """What is known of a kernel; of an object also where faults are, how it was built and what the compiler said."""

    metrics: dict[str, float]
    backend: Backend
    name: str
    sites: Sequence[Site] = ()
    built: Compiled | None = None
    remarks: Sequence[Remark] = ()


def _tell(found: Measured, findings: Sequence[Finding], more: Sequence[str], as_json: bool) -> None:
    from clew.methods.kernels import compiled

    if as_json:
        told: dict[str, Any] = {"kernel": found.name, "backend": found.backend, "metrics": found.metrics}
        told |= {"findings": [f.json() for f in findings], "sites": [s._asdict() for s in found.sites]}
        told |= {"built": found.built and found.built._asdict(), "flags_to_try": list(more)}
        common.end_with_json(told | {"remarks": [r._asdict() for r in found.remarks]})
    common.echo(f"{found.name} ({found.backend}, {len(found.metrics)} metrics)")
    flags = found.built.flags if found.built else ()
    if found.built:
        common.echo(f"  compiled by {found.built.compiler}" + (f" with {compiled.short(flags)}" if flags else ""))
    for finding in findings:
        common.echo(f"  {finding.line()}")
        for site in found.sites:
            if site.metric in {metric for metric, *_ in finding.evidence}:
                common.echo(f"    {_at(site.file, site.line)}{site.what}")
    if not findings:
        common.echo("  no rule applies: the measurements show no fault")
    for remark in found.remarks:
        common.echo(f"  the compiler, {_at(remark.file, remark.line)}{remark.text}")
    if more:
        known = "" if flags else ", unless they were used (the object does not say)"
        common.echo(f"  flags to try: {' '.join(more)}{known}")


def _at(file: str, line: int) -> str:
    return f"{Path(file).name}:{line}: " if line else ""


def _is_object(file: Path) -> bool:
    return file.suffix not in (".json", ".csv", ".cubin", ".sass", ".cu", ".c", ".cpp", ".cc")


def _of_object(path: Path, given: Path, symbol: str, said: str) -> Measured:
    """Metrics of a compiled function, with the places, flags and remarks that belong to it."""
    from clew.methods.kernels import compiled, counts, disassembly

    name = symbol or next(iter(disassembly.functions(path)), "")
    if not name:
        raise BadInput(
            f"{given} has no functions that can be read", remedy="Give an object file, a cubin or a profile."
        )
    code = disassembly.disassemble(path, name)
    hot = [i for loop in counts.hot(code) for i in loop]
    built = compiled.told(path, code)
    return Measured(counts.count_x86(code), "cpu", name, counts.sites(code), built, compiled.remarks(said, hot))


def measured(file: Path, symbol: str, ptxas: Path | None) -> tuple[dict[str, float], Backend, str]:
    """Metrics of a profile or of CUDA code, their backend, and the kernel's name."""
    from clew.methods.kernels import cubins, profiles

    if file.suffix in (".json", ".csv"):
        metrics, backend = profiles.read(file, symbol)
        return metrics, backend, symbol or file.stem
    if file.suffix == ".cu":
        raise BadInput(f"{file} is source; of CUDA only compiled code is explained", remedy=f"First: {CUDA_COMPILED}")
    text = cubins.sass(file) if file.suffix == ".cubin" else file.read_text(errors="replace")
    name = symbol or _only(file, cubins.kernels(text))
    metrics = cubins.count_sass(text, name)
    told = cubins.count_ptxas(ptxas.read_text(errors="replace"), name) if ptxas else {}
    if ptxas and not told:
        remedy = "Give the output of nvcc -Xptxas -v for it."
        raise BadInput(f"{ptxas} does not mention kernel {name}", remedy=remedy)
    return metrics | told, "cuda", name


def _only(file: Path, names: list[str]) -> str:
    if not names:
        raise BadInput(f"{file} holds no kernel", remedy="Give a cubin (nvcc -cubin), or its listing by nvdisasm.")
    if len(names) > 1:
        told = f"{len(names)} kernels: {', '.join(names[:8])}"
        raise BadInput(f"{file} holds {told}", remedy="Name one with --symbol.")
    return names[0]
