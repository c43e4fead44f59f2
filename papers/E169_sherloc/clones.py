"""The public projects whose past fixes are the bug reports, and where their clones are on this machine.

    python -m papers.E169_sherloc.clones FOLDER        writes commits.json: which commits are dev, which test

A clone is FOLDER/NAME, FOLDER/NAME.git or FOLDER/*NAME/repo; it is read by git plumbing, nothing is checked out.
Committed are commit ids and derived numbers only.
"""

import functools
import json
import sys
from pathlib import Path

from clew.coding.repository.git import Git
from clew.coding.repository.past_fixes import Fix, fixes
from clew.core.errors import BadInput

HERE = Path(__file__).resolve().parent
PROJECTS = ("pytest", "pylint", "sphinx")
EACH, DEV = 200, 67  # past fixes of a project; the oldest so many are dev
where: list[Path] = []  # the folder given by --clones


def lie_in(folder: str) -> Path:
    """Say where the clones are."""
    where[:] = [Path(folder)]
    return where[0]


def chosen() -> dict[str, dict[str, list[str]]]:
    """Per project ``head``, and the commits of ``dev`` and ``test``, each oldest first."""
    found: dict[str, dict[str, list[str]]] = json.loads((HERE / "commits.json").read_text())
    return found


@functools.cache
def clone(project: str) -> Git | None:
    """The clone of a project; None where there is none."""
    for folder in where:
        for place in (folder / project, folder / f"{project}.git", *sorted(folder.glob(f"*{project}/repo"))):
            if place.is_dir():
                return Git(place)
    return None


@functools.cache
def past(project: str) -> dict[str, Fix]:
    """The chosen fixes of a project, by commit.

    Raises:
        BadInput: no clone, or one without these commits.
    """
    git = clone(project)
    if git is None:
        raise BadInput(f"no clone of {project}", remedy="Give a folder of clones: clew reproduce E169 --clones FOLDER.")
    return {fix.commit: fix for fix in fixes(git, EACH, chosen()[project]["head"][0])}


def main(folder: str) -> None:
    lie_in(folder)
    found = {}
    for project in PROJECTS:
        git = clone(project)
        assert git is not None, project
        head = git.commit("HEAD")
        ids = [fix.commit for fix in reversed(fixes(git, EACH, head))]
        found[project] = {"head": [head], "dev": ids[:DEV], "test": ids[DEV:]}
    (HERE / "commits.json").write_text(json.dumps(found, indent=0) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
