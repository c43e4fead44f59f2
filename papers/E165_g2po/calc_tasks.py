"""Repairs so small that 0.15M weights can make them: one file of three functions, two of them wrong.

``clew train --command`` and tier ``programs`` take it as ``calc_tasks.py:CalcTasks``. A task says in words what two
functions of ``calc.py`` should do. Each run begins with the wrong file. Its last file is judged by calling the
functions in the sandbox and comparing what they give here, so that no judge lies where an agent could read it.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from clew.core.protocols import World
from clew.core.reading import Record
from clew.core.registry import make_ref
from clew.core.values import Task
from clew.sandbox.sandbox import MIB, Limits, Sandbox
from clew.worlds.seeds import Dice, draw_numbers, number_of
from clew.worlds.workspace import Scan, TreeShelf, WorkspaceWorld, last_tree
from clew.worlds.workspace.tree_shelf import CONTENT, FILE

NAMES = ("f", "g", "h", "p", "q", "r")
VERBS = {"+": "add", "-": "subtract", "*": "multiply", "/": "divide"}
SIGNS = tuple(VERBS)
FILE_NAME = "calc.py"
WHEN = (
    1_700_000_000  # seconds; the time of every file that a task begins with, so that equal tasks have equal snapshots
)
PAIRS = ((7, 3), (5, 4), (9, 2), (2, 6))  # no two signs agree on all of them
JUDGE = """
import json, os, sys
sys.path.insert(0, os.getcwd())
import calc
names, pairs = json.loads(sys.argv[1])
print()
print(json.dumps([[getattr(calc, name)(*pair) for pair in pairs] for name in names]))
"""


class Calc(NamedTuple):
    """A task: names and signs of the functions as the file has them, and what the asked ones should be, in order."""

    names: tuple[str, ...]
    signs: tuple[str, ...]
    asked: tuple[tuple[str, str], ...]

    def text(self) -> str:
        """The file that a run begins with."""
        return "".join(map(line_of, self.names, self.signs))

    def prompt(self) -> str:
        return " and ".join(f"{name} should {VERBS[sign]}" for name, sign in self.asked)

    def right(self) -> dict[str, str]:
        """The sign that each function should have at the end; who is not asked for keeps its own."""
        return dict(zip(self.names, self.signs, strict=True)) | dict(self.asked)


def line_of(name: str, sign: str) -> str:
    return f"def {name} (a, b): return a {sign} b\n"


def calc_of(number: int) -> Calc:
    """The task of a number."""
    dice = Dice(number, "calc")
    names = tuple(NAMES[i] for i in dice.order(len(NAMES), 3))
    signs = tuple(dice.pick(SIGNS) for _ in names)
    wrong = dice.order(3, 2)
    asked = [(names[i], dice.pick([sign for sign in SIGNS if sign != signs[i]])) for i in wrong]
    return Calc(names, signs, tuple(asked))


class CalcTasks:
    """Files of functions to be repaired; a taskset whose tasks begin in files.

    Args:
        shelf: folder of the snapshots. steps: acts of a run of an agent that Clew drives.
    """

    prefix = "calc"

    def __init__(self, shelf: str = ".clew/files", steps: int = 12) -> None:
        self.ref = make_ref(f"{Path(__file__).resolve()}:CalcTasks", {"shelf": shelf, "steps": steps}, CalcTasks)
        self.shelf, self.steps, self.disk = TreeShelf(Path(shelf).absolute()), steps, 4 * MIB
        self.sandbox = Sandbox(Limits(10.0, 10.0, 256 * MIB, 64, self.disk, self.disk))
        self._begun, self._verdicts = dict[str, str](), dict[tuple[str, bytes], float]()

    def sample(self, n: int, seed: int = 0, split: str = "train") -> list[Task]:
        return [self.find(f"{self.prefix}-{number}") for number in draw_numbers(n, seed, split, calc_of)]

    def find(self, task_id: str) -> Task:
        """The task of an id.

        Raises:
            BadInput: the id is not of this set.
        """
        return Task(task_id, self.calc(task_id).prompt())

    def calc(self, task_id: str) -> Calc:
        return calc_of(number_of(task_id, self.prefix))

    def open(self, task: Task) -> WorkspaceWorld:
        return WorkspaceWorld(self, task)

    def begins(self, task: Task) -> str:
        if task.id not in self._begun:
            with tempfile.TemporaryDirectory(prefix="clew-calc-") as place:
                file = Path(place, FILE_NAME)
                file.write_text(self.calc(task.id).text())
                file.chmod(0o644)
                os.utime(file, (WHEN, WHEN))
                self._begun[task.id] = Scan(Path(place), self.shelf).snapshot().tree
        return self._begun[task.id]

    async def judge(self, task: Task, run: Record, world: World | None) -> Mapping[str, float | None]:
        return await self.judged(task, last_tree(self, task, run, world))

    async def judged(self, task: Task, tree: str) -> Mapping[str, float | None]:
        """``reward`` 1 where each function of the last ``calc.py`` gives what its right sign gives."""
        found = [it for it in self.shelf.listing(tree) if it.name == FILE_NAME and it.kind == FILE]
        if not found or found[0].size > MIB:
            return {"reward": 0.0}
        text = self.shelf.get(found[0].key, CONTENT)
        if (task.id, text) not in self._verdicts:
            self._verdicts[task.id, text] = await self._verdict(self.calc(task.id), text)
        return {"reward": self._verdicts[task.id, text]}

    async def _verdict(self, calc: Calc, text: bytes) -> float:
        right = calc.right()
        asked = json.dumps([list(right), PAIRS])
        said = await self.sandbox.arun(["python3", "-I", "-S", "-c", JUDGE, asked], {FILE_NAME: text})
        wanted = [[value_of(sign, a, b) for a, b in PAIRS] for sign in right.values()]
        try:
            return float(said.ok and json.loads(said.stdout.splitlines()[-1]) == wanted)
        except (ValueError, IndexError, RecursionError):
            return 0.0


def value_of(sign: str, a: int, b: int) -> float:
    """What a function of this sign gives."""
    return {"+": a + b, "-": a - b, "*": a * b, "/": a / b}[sign]
