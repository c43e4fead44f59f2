"""Who descends from whom, and the clade statistics of arXiv 2606.26294 (section 4.2 of specs/E178), kept up to date.

A node is a workspace: one genome for each role. Genomes are named by their content, so that a child that changed one
role shares the others with its parent. Evidence belongs to a genome; the counts of a clade (a node with all that
descends from it) are sums over the DISTINCT genomes in it, so that shared work is counted once. Calling for a statistic
must never change it, as it does in the released code of HGM (spec 4.5).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from clew.core.errors import BadInput

I64 = npt.NDArray[np.int64]


class Lineage:
    """Parents, genomes of nodes, and successes and failures of genomes and of clades.

    ``parents``: index of each node's parent, -1 for a root. ``genomes``: for each node the index of its genome in each
    role.
    """

    def __init__(self) -> None:
        self.parents, self.genomes = list[int](), list[tuple[int, ...]]()
        self._member = np.zeros((16, 16), bool)  # node, genome: whether its clade holds it
        self._counts = np.zeros((16, 2), np.int64)  # genome: failures, successes
        self._clades = np.zeros((16, 2), np.int64)

    def add(self, parent: int, genomes: Sequence[int]) -> int:
        """A new node below ``parent`` (-1: a root); gives its index.

        Raises:
            BadInput: there is no such parent.
        """
        node = len(self.parents)
        if not -1 <= parent < node:
            raise BadInput(f"node {parent} is the parent of node {node}", remedy="Name a node that exists, or -1.")
        self._grow(node + 1, max(genomes) + 1)
        self.parents.append(parent)
        self.genomes.append(tuple(genomes))
        above = node
        while above >= 0:
            fresh = [g for g in dict.fromkeys(genomes) if not self._member[above, g]]
            self._member[above, fresh] = True
            self._clades[above] += self._counts[fresh].sum(0)
            above = self.parents[above]
        return node

    def _grow(self, nodes: int, genomes: int) -> None:
        rows, columns = self._member.shape
        if nodes <= rows and genomes <= columns:
            return
        rows, columns = max(rows, 2 * nodes), max(columns, 2 * genomes)
        grown = np.zeros((rows, columns), bool)
        grown[: len(self._member), : self._member.shape[1]] = self._member
        counts, clades = np.zeros((columns, 2), np.int64), np.zeros((rows, 2), np.int64)
        counts[: len(self._counts)], clades[: len(self._clades)] = self._counts, self._clades
        self._member, self._counts, self._clades = grown, counts, clades

    def count(self, genome: int, outcome: int, by: int = 1) -> None:
        """Add ``by`` outcomes (0 or 1) of a genome; -1 takes one back."""
        self._counts[genome, outcome] += by
        self._clades[: len(self.parents), outcome] += by * self._member[: len(self.parents), genome]

    def own(self, genome: int) -> tuple[int, int]:
        """Successes and failures of a genome."""
        failures, successes = self._counts[genome].tolist()
        return successes, failures

    def clades(self) -> tuple[I64, I64]:
        """Successes and failures of the clade of each node, int64 [nodes] each."""
        n = len(self.parents)
        return self._clades[:n, 1], self._clades[:n, 0]
