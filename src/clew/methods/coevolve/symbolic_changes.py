"""A proposer without a model: changes drawn from a list, for genomes that are numbers, texts or anything else.

It is passed to the engine (``red_queen.evolve``). It must never look at more than the view it is given.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from clew.core.errors import BadInput
from clew.methods.coevolve.workplace import Proposal, View

Change = Callable[[object, np.random.Generator], object]


class SymbolicChanges:
    """Changes one role of the workspace, drawn evenly, by one of its changes.

    Args:
        changes: for each role that may change, what makes a new genome of the present one and a source of luck.

    Raises:
        BadInput: nothing may change.
    """

    def __init__(self, changes: Mapping[str, Sequence[Change]]) -> None:
        self.changes = {role: tuple(of) for role, of in changes.items() if of}
        if not self.changes:
            raise BadInput("no role may change", remedy="Give a change for at least one role.")

    async def propose(self, view: View, luck: int) -> Proposal:
        """As ``Proposer``.

        Raises:
            BadInput: a role with changes is none of the workspace.
        """
        rng = np.random.default_rng(luck)
        role = list(self.changes)[int(rng.integers(len(self.changes)))]
        if role not in view.workspace:
            raise BadInput(f"the workspace has no role {role!r}", remedy=f"Known: {', '.join(view.workspace)}.")
        change = self.changes[role][int(rng.integers(len(self.changes[role])))]
        return Proposal({**view.workspace, role: change(view.workspace[role], rng)})


def lines_from(bank: Sequence[str], most: int = 12) -> Change:
    """A change of a text, line by line: a line of ``bank`` is added, or one is dropped, exchanged or moved.

    Args:
        most: lines that a text may have; a longer one is only shortened.
    """

    def change(genome: object, rng: np.random.Generator) -> object:
        lines = str(genome).splitlines()
        fresh = [line for line in bank if line not in lines]
        kinds = ["add"] * bool(fresh and len(lines) < most) + ["drop"] * bool(lines)
        kinds += ["exchange"] * bool(lines and fresh) + ["move"] * (len(lines) > 1)
        if not kinds:
            return genome
        kind = kinds[int(rng.integers(len(kinds)))]
        if kind != "add":
            line = lines.pop(int(rng.integers(len(lines))))
        if kind != "drop":
            new = line if kind == "move" else fresh[int(rng.integers(len(fresh)))]
            lines.insert(int(rng.integers(len(lines) + 1)), new)
        return "\n".join(lines)

    return change
