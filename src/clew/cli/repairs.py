"""clew repairs: tasks of fixing a repository, made of it by mutation or by its own past fixes, each one proven."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from clew.cli.checkout import shelf_of
from clew.cli.shared import common, option, run_options
from clew.cli.shared.next_lines import command_line, said_by_project
from clew.core.errors import BadInput

if TYPE_CHECKING:
    from clew.coding.repairs.made_file import MadeFile
    from clew.coding.repairs.making import Candidate, Maker

MODEL = "http://localhost:8000/v1#qwen3"  # of the next line, where clew.toml names none
SHOWN = 6  # reasons
VERIFY_HELP = "How the tests are run: pytest, with options and paths of its own."
READABLE_HELP = "Folder that the tests need, read-only, as a virtual environment; may be repeated."


@click.command(short_help="Make tasks of fixing a repository, each one proven by its tests.")
@click.argument("repo", type=click.Path(path_type=Path))
@option("-o", "--out", default="repairs.jsonl", metavar="FILE", help="File to write; the same line goes on with it.")
@option("-n", "--n", "n", default=10, help="How many tasks to make.")
@option("--by", choices="mutation fixes", default="mutation", help="Break the code, or go back before past fixes.")
@option("--verify", default="python -m pytest", metavar="COMMAND", help=VERIFY_HELP)
@option("--readable", multiple=True, metavar="FOLDER", help=READABLE_HELP)
@option("--within", multiple=True, metavar="PATH", help="Change only files whose paths begin so; may be repeated.")
@option("--name", default="", help="OWNER/NAME that the rows give the repository.  [default: the folder's name]")
@option("--tries", default=20, help="Most candidates to look at for each task.")
@option("--timeout", default=600.0, help="Most CPU seconds for one run of the tests.")
@option("--jobs", default=0, help="Candidates that are looked at together.  [default: one for each core]")
@option("--seed", default=0, help="Seed of the mutations.")
@common.output_options
def command(repo: Path, out: str, n: int, as_json: bool, store_path: str, **options: Any) -> None:
    """Make tasks of fixing REPO, a local git repository, as rows with SWE-bench's fields.

    By mutation one place of the code is changed, as people do; by fixes the repository goes back to before a commit
    that fixed something and changed tests with it. A task is written only where, in the sandbox, its named tests fail
    before the reference patch and pass with it, and the others pass in both. What is not proven is left out and
    counted. The repository itself is never changed or checked out.

    \b
    clew repairs . -o tasks.jsonl -n 30
    clew repairs ../boltons -n 10 --by fixes --verify "python -m pytest -q tests" --readable ../boltons/.venv
    clew run coder --data tasks.jsonl --tasks 30 --n 4 --model http://localhost:8000/v1#qwen3
    """
    from clew.coding.repairs.made_file import MadeFile

    maker = _maker(repo, store_path, options)
    how = {"repository": os.path.abspath(repo), "commit": maker.head, "by": options["by"]}
    how |= {"verify": options["verify"], "seed": str(options["seed"]), "within": " ".join(options["within"])}
    made = MadeFile(Path(out), how)
    jobs = options["jobs"] or len(os.sched_getaffinity(0))
    with run_options.interruptible("the same line again"), common.bar("tasks", n) as move:
        move(completed=min(len(made), n))
        asyncio.run(_make(maker, made, n, options, jobs, move))
    if as_json:
        told = {"file": out, "rows": len(made), "tried": made.tried, "left_out": dict(made.left_out.most_common())}
        common.end_with_json({**told, "unsteady": made.unsteady})
    common.echo(f"{out}: {len(made)} tasks of {made.tried} candidates")
    for why, count in made.left_out.most_common(SHOWN):
        common.echo(f"  left out {count}: {why}")
    if len(made.left_out) > SHOWN:
        common.echo(f"  and {len(made.left_out) - SHOWN} more reasons, in {made.beside}")
    if made.unsteady:
        common.echo(f"  {made.unsteady} tests came out in two ways, and are not named")
    if not len(made):
        if not made.tried:
            none = "no past commit says that it fixes something and changes tests with it"
            raise BadInput(
                none if options["by"] == "fixes" else "no place can be changed", remedy="Try the other --by."
            )
        raise BadInput("no task could be made", remedy="Name tests that notice a change: --verify 'pytest -q tests'.")
    common.echo(f"Next: {_next(out, len(made), options)}")


def _maker(repo: Path, store_path: str, options: dict[str, Any]) -> Maker:
    """What makes the tasks of a line.

    Raises:
        BadInput: there is no repository, or the command runs no pytest.
    """
    from clew.coding.repairs.making import Maker
    from clew.coding.repairs.named_tests import read_command
    from clew.coding.repairs.row_case import Ground
    from clew.coding.repository.git import Git
    from clew.sandbox.sandbox import MIB, Limits, Sandbox

    git, seconds = Git(repo), options["timeout"]
    read_command(options["verify"])
    tests = Limits(4 * seconds, seconds, 2048 * MIB, 512, 1 << 30, 1024 * MIB, 1024, MIB)
    sandbox = Sandbox(tests, options["readable"] or None)
    ground = Ground(shelf_of(store_path), sandbox, tests, (), options["verify"], {})
    place = os.path.abspath(repo)
    name = options["name"] or os.path.basename(place).removesuffix(".git").replace("__", "/", 1)
    return Maker(git, name, place, ground, options["seed"], options["within"])


async def _make(
    maker: Maker, made: MadeFile, n: int, options: dict[str, Any], jobs: int, move: Callable[..., None]
) -> None:
    """Look at candidates, some together, until there are ``n`` tasks or no candidate is left."""
    if len(made) >= n:
        return
    move(note="the tests, as they are")
    if options["by"] == "mutation":
        count = await maker.sound()
        move(note=f"{count} tests pass as they are")
    found: Iterator[Candidate] = maker.mutated(n) if options["by"] == "mutation" else maker.fixed(n)
    left = (one for one in found if not made.had(one))
    while len(made) < n and made.tried < options["tries"] * n:
        some = list(islice(left, jobs))
        if not some:
            return
        for proof in await asyncio.gather(*(maker.proven(one) for one in some)):
            if len(made) < n:
                made.add(proof)
        move(completed=len(made), note=f"{made.tried} candidates")


def _next(out: str, count: int, options: dict[str, Any]) -> str:
    """The line that runs an agent on the tasks."""
    from clew.core.registry import make_ref

    model = None if "model" in said_by_project("run") else MODEL
    world: dict[str, Any] = {"data": out}
    if options["readable"]:
        readable = tuple(os.path.abspath(one) for one in options["readable"])
        world = {"world": make_ref("repairs", {"file": out, "readable": readable})}
    return command_line("run", "coder", **world, tasks=count, n=4, model=model)
