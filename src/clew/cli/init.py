"""clew init: a small project to begin with: agent, tools, data, reward, tests, clew.toml."""

from __future__ import annotations

import random
import shlex
from importlib.resources import files
from pathlib import Path

import click

from clew.cli.shared import common, project
from clew.cli.shared.next_lines import command_line
from clew.core.errors import BadInput

PLACES = {"test_project.py": "tests/test_project.py"}  # where a file of the starter goes, if not to the top
QUESTIONS = 40
NEXT = (
    ("run", "Run the agent on its questions"),
    ("eval", "Measure it on questions that are kept apart"),
    ("doctor", "See what is installed, and which clew.toml is in force"),
)


@click.command(short_help="Write a small project: agent, tools, data, reward and tests.")
@click.argument("folder", default=".", type=click.Path(path_type=Path))
@common.json_option
def command(folder: Path, as_json: bool) -> None:
    """Write a small project that runs at once, to be changed into your own. No file that is there is touched.

    \b
    clew init
    clew init shop
    """
    made = {folder / place: text for place, text in starter().items()}
    there = [path for path in made if path.exists() or path.is_symlink()]
    if there:
        remedy = "Name an empty or new folder: clew init FOLDER."
        raise BadInput(f"{there[0]} is there already, and nothing is overwritten", remedy=remedy)
    for path, text in made.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x") as file:
            file.write(text)
        if not as_json:
            common.echo(f"wrote {path}")
    _trust(folder)
    if as_json:
        common.end_with_json({"wrote": [str(path) for path in made]})
    common.echo("\nNext:")
    if folder.resolve() != Path.cwd():
        common.echo(f"  cd {shlex.quote(str(folder))}")
    for verb, purpose in NEXT:
        common.echo(f"  {command_line(verb)}\n      {purpose}")


def _trust(folder: Path) -> None:
    """Allow what was written here: it is the user's own."""
    verbs = click.get_current_context().find_root().command
    assert isinstance(verbs, click.Group)
    try:
        project.Project(folder.absolute() / project.NAME).trust(verbs).give()
    except BadInput as error:  # the first line that needs it asks
        common.say(f"clew: {error}")


def starter() -> dict[str, str]:
    """The files of a project by their place in it, with their texts."""
    found = {"data/questions.jsonl": questions()}
    for file in sorted(files("clew.cli").joinpath("starter").iterdir(), key=lambda file: file.name):
        name = file.name.removesuffix(".txt")
        if name != file.name:
            found[PLACES.get(name, name)] = file.read_text()
    return found


def questions() -> str:
    """Rows of JSON: what some items cost together, by the prices of the starter's tools."""
    import json

    prices, draw, found = {"pen": 2, "cup": 5, "lamp": 30, "book": 12}, random.Random(0), dict[str, int]()
    while len(found) < QUESTIONS:
        (one, each), (other, apiece) = draw.sample(sorted(prices.items()), 2)
        n, m = draw.randint(2, 9), draw.randint(2, 9)
        found[f"What do {n} {one}s and {m} {other}s cost together?"] = n * each + m * apiece
    return "".join(json.dumps({"question": text, "answer": str(answer)}) + "\n" for text, answer in found.items())
