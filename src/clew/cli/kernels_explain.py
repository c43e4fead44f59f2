"""clew kernels explain: apply the diagnosis rules to a compiled object or a recorded profile."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from clew.cli.shared import common, option
from clew.core.errors import BadInput

COMPILED = {".c": "gcc -g -O2 -c x.c", ".cpp": "g++ -g -O2 -c x.cpp", ".cc": "g++ -g -O2 -c x.cc"}
COMPILED[".cu"] = "nvcc -cubin -Xptxas -v x.cu 2> x.txt; clew kernels explain x.cubin --ptxas x.txt"
BOUNDS = click.Choice(["compute", "memory", "latency", "mixed"])
FILE = click.Path(exists=True, dir_okay=False, path_type=Path)

if TYPE_CHECKING:
    from clew.coding.kernels.rules import Backend


@click.command("explain", short_help="Diagnose a compiled kernel or a recorded profile.")
@click.argument("file", type=FILE)
@option("--symbol", default="", help="Function or kernel to explain.  [default: the largest, or the only one]")
@option("--bound", type=BOUNDS, default="mixed", help="Known bottleneck: apply only its rules.")
@option("--gemm", is_flag=True, help="The kernel is mainly a matrix product.")
@option("--ptxas", type=FILE, help="With a cubin: file with the output of nvcc -Xptxas -v.")
@common.json_option
def command(file: Path, symbol: str, bound: str, gemm: bool, ptxas: Path | None, as_json: bool) -> None:
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
        common.print_json(
            {"kernel": name, "backend": backend, "metrics": metrics, "findings": [f.json() for f in found]}
        )
        return
    click.echo(f"{name} ({backend}, {len(metrics)} metrics)")
    for finding in found:
        click.echo(f"  {finding.line()}")
    if not found:
        click.echo("  no rule applies: the measurements show no fault")


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
            raise BadInput(
                f"{ptxas} does not mention kernel {name}", remedy="Give the output of nvcc -Xptxas -v for it."
            )
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
