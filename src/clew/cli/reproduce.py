"""clew reproduce: run the experiment of a paper from a checkout."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import click

from clew.cli.shared import common, option
from clew.core.errors import UnknownName

ROOT_HELP = "Folder of the checkout.  [default: the present folder, or where Clew was installed from]"


@click.command(
    short_help="Run the experiment of a paper (E165, ...) from a checkout.",
    context_settings={"ignore_unknown_options": True},
)
@click.argument("paper", required=False)
@click.argument("rest", nargs=-1, type=click.UNPROCESSED)
@option("--quick", is_flag=True, help="Run a small version that ends in minutes.")
@option("--root", type=click.Path(path_type=Path), help=ROOT_HELP)
@common.json_option
def command(paper: str | None, rest: tuple[str, ...], quick: bool, root: Path | None, as_json: bool) -> None:
    """Run the experiment of PAPER with the arguments REST. Without PAPER, list the papers.

    \b
    clew reproduce
    clew reproduce E165 --quick
    """
    root = checkout(root)
    folders = {path.name: path for path in sorted((root / "papers").glob("E*")) if (path / "__init__.py").exists()}
    if paper is None:
        if as_json:
            common.end_with_json(list(folders))
        common.echo("\n".join(folders) or "no paper here")
        return
    found = [name for name in folders if name.lower().split("_")[0] == paper.lower() or name.lower() == paper.lower()]
    if len(found) != 1:
        raise UnknownName(f"no paper is called {paper!r}", remedy=f"Known: {', '.join(folders) or 'none'}.")
    line = [sys.executable, "-m", "papers", found[0], *(["--quick"] if quick else []), *rest]
    raise SystemExit(subprocess.run(line, cwd=root, check=False).returncode)


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
