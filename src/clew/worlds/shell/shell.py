"""Shell: errands in a small tree of files, done with twelve commands that answer as bash and the GNU tools do.

The tree lies in memory (specs/E167, section 6). Each answer follows from the tree, the folder that one stands in and
the command, so that this is a world to fit a model of a world to, and to measure one by. There are no pipes, variables
or wildcards. The judge compares the trees; a world must never hold the tree that is wanted.
"""

from __future__ import annotations

import json
import random
from collections.abc import Hashable, Sequence
from typing import Literal

from clew.core.errors import BadInput
from clew.core.keys import state_key
from clew.core.registry import make_ref
from clew.core.values import Task, ToolCall, ToolSpec
from clew.worlds.bases import Answering, Demonstrated, Exact, load
from clew.worlds.schemas import read_arguments, tool_spec
from clew.worlds.seeds import kept, split_of
from clew.worlds.shell.shell_errands import Errands, errands_of, next_command, slip
from clew.worlds.shell.shell_rules import KNOWN, Tree

SILENT = "(no output)"
BASH = tool_spec("bash", f"Run one plain command: {', '.join(KNOWN)}; exit ends the task.", command="string")
Opening = Literal["tree", "cwd"]


class ShellWorld(Exact, Answering):
    """One shell; exact. ``tree``: the files, and the folder that one stands in."""

    def __init__(self, name: str, number: int, tree: Tree, steps: int, opening: Opening, tools: bool) -> None:
        self._name, self.number, self.tree, self._opening = name, number, tree, opening
        self.tools: Sequence[ToolSpec] = (BASH,) if tools else ()
        self._left, self._said, self.left, self._closed = steps, _opened(tree, opening), False, False

    @property
    def _ended(self) -> bool:
        return self.left

    @property
    def state_key(self) -> bytes:
        """The files and where one stands; neither what was printed nor the steps left."""
        return state_key(self._name, json.dumps([sorted(self.tree.nodes.items()), self.tree.cwd, self.left]))

    def _answered(self, action: str | ToolCall) -> str:
        if isinstance(action, ToolCall):
            if action.name != BASH.name:
                return f"error: there is no tool {action.name[:40]!r}; the tool is bash"
            try:
                line = str(read_arguments(BASH, action.arguments)["command"])
            except BadInput as error:
                return f"error: bash: {error.message}"
        else:
            line = action
        if line.split()[:1] == ["exit"]:
            self.left = True
            return "exit"
        return self.tree.run(line.strip()) or SILENT

    def account(self) -> str:
        """What is true now, in a few words: every path with its content, and where one stands."""
        return " ; ".join(_opened(self.tree, "tree").split("\n"))

    def snapshot(self) -> bytes:
        return json.dumps([self._name, self.tree.nodes, self.tree.cwd, self._left, self._said, self.left]).encode()

    def restore(self, snapshot: bytes) -> None:
        """Raises WorldError where the snapshot is not one of this task."""
        _, nodes, cwd, self._left, self._said, self.left = load(snapshot, self._name, 6)
        self.tree = Tree(nodes, cwd)


def _opened(tree: Tree, opening: Opening) -> str:
    """What is seen first: every path with its content where the whole tree is shown, and where one stands."""
    shown = [
        f"{path}/" if held is None else " ".join([f"{path}:", *held.replace("\n", " ; ").rstrip(" ;").split()])
        for path, held in sorted(tree.nodes.items())
        if path != "/" and opening == "tree"
    ]
    return "\n".join([*shown, f"in {tree.cwd}"])


class Shell(Demonstrated[ShellWorld]):
    """Errands in a small tree of files by twelve shell commands; a task id ``shell-NUMBER`` fixes tree and errands.

    Args:
        errands: of a task, 1 to 4. steps: the task ends after so many commands.
        opening: what is seen first: ``tree``, every path with its content; ``cwd``, where one stands alone.
        tools: offer the tool ``bash``; commands as text are understood in any case.
    """

    prefix, plays = "shell", ShellWorld

    def __init__(self, errands: int = 2, steps: int = 20, opening: Opening = "tree", tools: bool = False) -> None:
        given = {"errands": errands, "steps": steps, "opening": opening, "tools": tools}
        if not 1 <= errands <= 4 or steps < 1 or opening not in ("tree", "cwd"):
            remedy = "Needs 1 to 4 errands, at least 1 step, and the opening tree or cwd."
            raise BadInput(f"shell({given})", remedy=remedy)
        self.ref = make_ref("shell", given, Shell)
        self.errands, self.steps, self.opening, self.tools = errands, steps, opening, tools
        self.plan = kept(lambda number: errands_of(number, errands))  # of a task number

    def content(self, number: int) -> Hashable:
        found: Errands = errands_of(number, self.errands)
        return (tuple(f"{path} {held}" for path, held in sorted(found.start.items())), found.asked)

    def find(self, task_id: str) -> Task:
        number = self.number(task_id)
        plan = self.plan(number)
        prompt = f"{' '.join(plan.asked)} Change nothing else. Commands: {', '.join(KNOWN)}; exit ends the task."
        return Task(task_id, prompt, {"split": split_of(self.content(number))}, secret={"goal": dict(plan.goal)})

    def open(self, task: Task) -> ShellWorld:
        number = self.number(task.id)
        tree = Tree(dict(self.plan(number).start))
        return ShellWorld(f"{self.ref} {number}", number, tree, self.steps, self.opening, self.tools)

    def verdict(self, task: Task, last: ShellWorld) -> dict[str, float]:
        """Reward 1 where the tree is the one that the errands lead to. ``left``: the task was ended by ``exit``."""
        right = last.tree.nodes == self.plan(self.number(task.id)).goal
        return {"reward": float(right), "left": float(last.left)}

    def expert(self, world: ShellWorld) -> str:
        return next_command(world.tree, self.plan(world.number).goal)

    def slip(self, world: ShellWorld, rng: random.Random) -> str:
        """Any command, on paths that are there or not."""
        return slip(rng.randrange, world.tree)
