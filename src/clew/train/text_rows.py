"""LossRows of conversations that nobody sampled: replies to imitate, and pairs of replies, from text.

`clew tune --data` makes rows here. The ids are exactly those that a run of these messages would have, and only what the
assistant says after the prompt counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from clew.core.errors import BadInput
from clew.core.protocols import Renderer
from clew.core.records import LossRow
from clew.core.values import Message
from clew.train.pairs import CHOSEN, REJECTED
from clew.train.rows import render

Said = Sequence[Message]


def reply_rows(written: Iterable[tuple[Said, Said]], renderer: Renderer, component: str = "sft") -> list[LossRow]:
    """A row for each prompt and what is said to it.

    Raises:
        BadInput: nothing is said by the assistant.
    """
    return [_row(asked, said, renderer, component) for asked, said in written]


def preference_rows(
    written: Iterable[tuple[Said, Said, Said]], renderer: Renderer, component: str = "dpo"
) -> list[LossRow]:
    """Two rows for each prompt, the rejected reply first, as a set that a preference loss reads together.

    Raises:
        BadInput: nothing is said by the assistant.
    """
    out = []
    for i, (asked, better, worse) in enumerate(written):
        for role, said in ((REJECTED, worse), (CHOSEN, better)):
            out.append(replace(_row(asked, said, renderer, component), set=f"written/{i}", role=role))
    return out


def _row(asked: Said, said: Said, renderer: Renderer, component: str) -> LossRow:
    head, pieces = len(render(asked, renderer)), render([*asked, *said], renderer)
    counts = [own and i >= head for i, (_, own) in enumerate(pieces)]
    if not any(counts):
        told = "a row of data holds no reply of the assistant"
        raise BadInput(told, remedy="Give each row something that the model is to say.")
    ids = np.fromiter((token for piece, _ in pieces for token in piece), np.int32)
    weight = np.repeat(np.array(counts, np.float32), [len(piece) for piece, _ in pieces])
    return LossRow(ids, np.zeros(len(ids), bool), {component: weight}, np.full(len(ids), np.nan, np.float32))
