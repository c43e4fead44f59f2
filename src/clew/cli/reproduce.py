"""clew reproduce: run the experiment of a paper from a checkout."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from clew.cli.shared import common, option
from clew.cli.shared.next_lines import command_line
from clew.core.errors import UnknownName

SECONDS = re.compile(r'"cpu_s": ([0-9.]+)')
LEGEND = """CPU time: of the committed results, without that of programs which an experiment starts.
Needs: extras, as in pip install 'clew[local]', programs and data, with the tiers that need them."""
ROOT_HELP = "Folder of the checkout.  [default: the present folder, or where Clew was installed from]"


@click.command(
    short_help="Run the experiment of a paper (E165, ...) from a checkout.",
    context_settings={"ignore_unknown_options": True},
)
@click.argument("paper", required=False)
@click.argument("rest", nargs=-1, type=click.UNPROCESSED)
@option("--quick", is_flag=True, only_with="PAPER", help="run a small version that ends in minutes.")
@option("--root", type=click.Path(path_type=Path), help=ROOT_HELP)
@option("--json", "as_json", is_flag=True, not_with="PAPER", help="Print JSON instead of text.")
def command(paper: str | None, rest: tuple[str, ...], quick: bool, root: Path | None, as_json: bool) -> None:
    """Run the experiment of PAPER with the arguments REST. Without PAPER, list the papers.

    \b
    clew reproduce
    clew reproduce E165 --quick
    """
    root = checkout(root)
    folders = {path.name: path for path in sorted((root / "papers").glob("E*")) if (path / "__init__.py").exists()}
    if paper is None:
        rows = [about(path) for path in folders.values()]
        if as_json:
            common.end_with_json(rows)
        if not rows:
            common.echo("no paper here")
            return
        common.print_table(("paper", "title", "tiers", "CPU time", "needs"), [told(row) for row in rows])
        common.echo(LEGEND)
        first = rows[0]["paper"].partition("_")[0]
        common.echo(f"a small version, in minutes: {command_line('reproduce', first, quick=True)}")
        return
    found = [name for name in folders if name.lower().split("_")[0] == paper.lower() or name.lower() == paper.lower()]
    if len(found) != 1:
        raise UnknownName(f"no paper is called {paper!r}", remedy=f"Known: {', '.join(folders) or 'none'}.")
    line = [sys.executable, "-m", "papers", found[0], *(["--quick"] if quick else []), *rest]
    raise SystemExit(subprocess.run(line, cwd=root, check=False).returncode)


def about(folder: Path) -> dict[str, Any]:
    """What a paper is about: its title, its tiers, what it needs, and the CPU-seconds of its committed results."""
    readme, module = folder / "README.md", ast.parse((folder / "__init__.py").read_text())
    named = {
        ast.unparse(target): ast.literal_eval(node.value)
        for node in module.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if ast.unparse(target) in ("TIERS", "NEEDS")
    }
    title = readme.read_text().splitlines()[0].partition(": ")[2] if readme.exists() else ""
    seconds = 0.0
    for tier in named.get("TIERS", ()):
        for line in SECONDS.findall((folder / "results" / f"{tier}.jsonl").read_text()):
            seconds += float(line)
    known = {"tiers": list(named.get("TIERS", ())), "cpu_seconds": seconds, "needs": named.get("NEEDS", "")}
    return {"paper": folder.name, "title": title, **known}


def told(row: Mapping[str, Any]) -> tuple[str, ...]:
    """The line of a paper in the list."""
    minutes = row["cpu_seconds"] / 60
    time = f"{minutes / 60:.1f} h" if minutes > 90 else f"{minutes:.0f} min"
    return row["paper"], row["title"], " ".join(row["tiers"]), time, row["needs"]


def checkout(root: Path | None) -> Path:
    """The folder that holds ``papers``: as given, the present one or one above it, or where Clew was installed from.

    Raises:
        UnknownName: there is none.
    """
    here = Path.cwd()
    for place in [root] if root else [here, *here.parents, Path(__file__).resolve().parents[3]]:
        if (place / "papers").is_dir():
            return place
    remedy = "Clone the repository: experiments are not part of the package."
    raise UnknownName(f"no papers folder at {root or here}", remedy=remedy)
