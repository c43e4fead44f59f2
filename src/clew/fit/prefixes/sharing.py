"""Whether the rows of a step pass the model packed, each shared token once and without padding, or as a padded batch.

``Trainer`` asks at each step. transformers is loaded where rows are first packed, and not before.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Literal

import torch

from clew.core.errors import BadInput
from clew.core.records import LossRow
from clew.fit.collate import Micro
from clew.fit.forward import Scorer
from clew.fit.prefixes import trie

Mode = Literal["auto", "on", "off"]
PAYS = 0.9  # share of the padded tokens up to which rows are packed: above, runs of their own cost what it saves


class Sharing:
    """What one trainer does about padding, and about beginnings that its rows share.

    Args:
        mode: ``auto`` packs rows where it pays and the model can; ``on`` always, and refuses a model that cannot;
            ``off`` never.
        ranks: how many processes train together. Of several, this is made before the module is cut among them: whether
            a model can is found by forward passes.

    Raises:
        BadInput: an unknown mode.
    """

    def __init__(self, mode: Mode, scorer: Scorer, ranks: int = 1) -> None:
        if mode not in ("auto", "on", "off"):
            raise BadInput(f"shared_prefixes={mode!r}", remedy="Write auto, on or off.")
        self.mode, self._scorer = mode, scorer
        self._objection: str | None = None  # not yet asked for
        if ranks > 1 and mode != "off":
            self._objection = self._asked()

    def takes(self, rows: Sequence[LossRow], padded: int) -> bool:
        """Whether these rows are packed, which as a padded batch are so many tokens; every rank says the same.

        Raises:
            BadInput: they must, and the model cannot.
        """
        if self.mode == "off" or (self.mode == "auto" and trie.size_of(rows) > PAYS * padded):
            return False
        if self._objection is None:
            self._objection = self._asked()
        if self._objection and self.mode == "on":
            told = f"the model cannot compute shared prefixes once: {self._objection}"
            raise BadInput(told, remedy="Train with shared_prefixes='auto' or 'off'.")
        return not self._objection

    def _asked(self) -> str:
        from clew.fit.prefixes.tree_attention import objection

        module, body = self._scorer.module, self._scorer.body
        return objection(module, body) if self._scorer.direct else "its head does more than multiply"

    def attending(self, micros: Sequence[Micro]) -> AbstractContextManager[None]:
        """Holds while these micro-batches pass the model, forward and backward."""
        if all(micro.tree is None for micro in micros):
            return nullcontext()
        from clew.fit.prefixes.tree_attention import attending

        return attending(self._scorer.module)


def laid_out(micro: Micro, rows: Sequence[LossRow]) -> Micro:
    """The micro-batch of these rows over their trie: other ids and places, the same tokens."""
    from clew.fit.prefixes.tree_attention import tree

    made, longest, device = trie.lay([row.ids for row in rows]), micro.ids.shape[1], micro.ids.device
    where = torch.zeros(len(rows), longest, dtype=torch.long)
    for b, places in enumerate(made.where):
        where[b, : len(places)] = torch.from_numpy(places)
    at = where.flatten().to(device)[micro.at]
    return micro._replace(ids=torch.from_numpy(made.ids)[None].to(device), at=at, tree=tree(made, device))
