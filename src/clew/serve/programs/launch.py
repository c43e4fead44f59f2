"""How a program is started in the sandbox: its words, what it may see of this machine, and its environment.

``program_world`` calls it. A program sees its own installation and the files that its command names, read-only; it must
never see the folder they lie in, where a judge's material may lie too.
"""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from clew.core.errors import BadInput
from clew.serve.gateway.programs import environment
from clew.worlds.workspace.workspace import PINNED

TASK = "{task}"  # stands for the prompt of the task
PORT = 8421  # in the sandbox, where the program finds its model
LONGEST = 100_000  # bytes of a prompt that may stand among a command's words


def words_of(command: str) -> list[str]:
    """The words of a command line; files that they name by a relative path get their whole path.

    Raises:
        BadInput: it is no command, or its program is not to be found.
    """
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise BadInput(f"{command[:80]!r} is no command: {error}", remedy="Close its quotes.") from None
    if not words:
        raise BadInput("the command is empty", remedy="Write --command 'python my_agent.py'.")
    at = _first(words)
    found = shutil.which(words[at]) if at < len(words) else None
    if found is None:
        told = f"no program {words[min(at, len(words) - 1)][:80]!r} is to be found"
        raise BadInput(told, remedy="Give its path, or install it.")
    words[at] = os.path.abspath(found)
    return [word if i <= at or not Path(word).is_file() else os.path.abspath(word) for i, word in enumerate(words)]


def _first(words: Sequence[str]) -> int:
    """Where the program stands: behind ``env`` and the variables that it sets."""
    at = 0
    if os.path.basename(words[0]) == "env":
        at = next((i for i, word in enumerate(words) if i and "=" not in word), len(words))
    return at


def visible(words: Sequence[str]) -> list[Path]:
    """What a program's sandbox shows of this machine: files among its words, and what its program is installed with.

    Of a Python environment that is all of it and the Python below it; of a program of node the package it is in; of
    any other program its file.
    """
    found = list[Path]()
    for word in words:
        path = Path(word)
        if path.is_absolute() and path.is_file() and path.parent != Path("/usr/bin"):
            found += _installation(path)
    return [path for path in dict.fromkeys(found) if not path.is_relative_to("/usr")]


def _installation(path: Path) -> list[Path]:
    real = path.resolve()
    if path.parent.name == "shims":  # of pyenv and its like, which start one of the versions beside them
        return [path.parent.parent]
    for place in (path, real):
        root = place.parent.parent
        if (root / "pyvenv.cfg").is_file():
            lines = (root / "pyvenv.cfg").read_text(errors="replace").splitlines()
            home = next((line.partition("=")[2].strip() for line in lines if line.startswith("home")), "")
            return [root, *([Path(home).parent] if home else []), *([real.parent.parent] if real.is_file() else [])]
    if place.parent.name == "bin" and os.access(real, os.X_OK) and (real.parent.parent / "lib").is_dir():
        return [path, real.parent.parent]
    if "node_modules" in real.parts:
        top = real.parts.index("node_modules")
        return [path, Path(*real.parts[: top + 1])]
    return [path, real]


def started(words: Sequence[str], prompt: str, name: str) -> tuple[list[str], dict[str, str]]:
    """The words and the variables of a program for one task, on the line ``name``.

    Raises:
        BadInput: the prompt is too long for a command line.
    """
    if TASK in " ".join(words) and len(prompt.encode()) > LONGEST:
        told = f"a prompt of {len(prompt):,} characters does not fit into a command line"
        raise BadInput(told, remedy=f"Leave {TASK} out: the program finds it on its standard input.")
    given: Mapping[str, str] = environment(f"http://127.0.0.1:{PORT}", name, "", PINNED)
    return [word.replace(TASK, prompt) for word in words], {**given, "CLEW_TASK": prompt[:LONGEST]}
