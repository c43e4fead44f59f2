"""What hidden states are read of: rows of token ids, or the model calls of runs with the taps in force there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from clew.core.errors import BadInput
from clew.core.reading import Record
from clew.core.records import Call, Cursor
from clew.models.taps.forms import taps_of
from clew.models.taps.tap import Tap

I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]
Word = Literal["all", "prompt", "reply", "last", "first"]


class Source(NamedTuple):
    """A row of token ids: ``prompt`` of them, then the reply. ``run`` and ``seq`` name the Call, where there is one.

    ``tokenizer`` names whose ids they are, where that is known; ``taps`` are what was written when they were sampled.
    """

    ids: I32
    prompt: int
    run: str = ""
    seq: int = -1
    taps: tuple[Tap, ...] = ()
    tokenizer: str = ""

    @property
    def name(self) -> str:
        return f"the model call {Cursor(self.run, self.seq)}" if self.run else "a row of ids"


Positions = Word | Sequence[int] | Callable[[Source], Sequence[int]]


def sources_of(given: Iterable[Any]) -> list[Source]:
    """Sources of runs (each answered model call is one), of rows of ids (all prompt), or of Sources as they are.

    Raises:
        BadInput: there is none; something else is given; a Call has no token ids.
    """
    found: list[Source] = []
    for one in [given] if hasattr(given, "calls") else given:
        if isinstance(one, Source):
            found.append(one)
        elif hasattr(one, "calls"):
            found += _calls(cast(Record, one))
        else:
            found.append(_row(one))
    if not found:
        raise BadInput("there is nothing to read hidden states of", remedy="Give rows of token ids, or runs.")
    return found


def _row(given: Any) -> Source:
    try:
        ids = np.asarray(given)
        if ids.ndim != 1 or not ids.size or ids.dtype.kind not in "iu" or ids.min() < 0 or ids.max() >= 1 << 31:
            raise ValueError
    except (TypeError, ValueError):
        raise BadInput(
            "a row to read hidden states of is neither a run nor a row of token ids",
            remedy="Give runs, or rows of whole numbers from 0.",
        ) from None
    return Source(ids.astype(np.int32), len(ids))


def _calls(run: Record) -> Iterable[Source]:
    for call in run.calls:
        if call.kind != "ask" or not call.node_out:
            continue
        reply = run.store.node(call.node_out)
        path = run.store.thread(call.node_in)
        if reply.ids is None or any(node.ids is None for node in path):
            raise BadInput(
                f"the model call {Cursor(run.id, call.seq)} has no token ids, so it cannot be read again",
                remedy="Read runs of models with tokens (local weights), or give rows of ids.",
            )
        ids, taps = [i for node in path for i in node.ids or ()], _taps(run, call)
        yield Source(
            np.array([*ids, *reply.ids], np.int32), len(ids) + call.head, run.id, call.seq, taps, reply.tokenizer
        )


def _taps(run: Record, call: Call) -> tuple[Tap, ...]:
    """What was written when a Call was sampled: the last edit of kind ``tap`` up to it."""
    edits = [edit for edit in run.changes.edits if edit.kind == "tap" and edit.seq <= call.seq]
    if not edits or call.finish == "forced":
        return ()
    return taps_of(sorted(edits, key=lambda edit: edit.seq)[-1].value, run.store.blob)


def places(source: Source, positions: Positions) -> I64:
    """Positions of a source that are meant, rising.

    Raises:
        BadInput: a position that is not in the source.
    """
    count, start = len(source.ids), source.prompt
    if isinstance(positions, str):
        known = {
            "all": range(count), "prompt": range(start), "reply": range(start, count),
            "last": range(max(0, start - 1), start), "first": range(start, min(start + 1, count)),
        }  # fmt: skip
        if positions not in known:
            raise BadInput(
                f"there are no positions {positions!r}", remedy=f"Give one of {', '.join(known)}, or numbers."
            )
        return np.array(known[positions], np.int64)
    given = np.asarray(list(positions(source) if callable(positions) else positions), np.int64)
    found: I64 = np.unique(np.where(given < 0, given + start, given))
    if found.size and not 0 <= found[0] <= found[-1] < count:
        raise BadInput(
            f"positions {given.tolist()[:8]} are not all in {source.name}, which has {count} tokens, "
            f"{start} of them the prompt",
            remedy="Give positions from 0, or back from the end of the prompt (-1), or a function of the Source.",
        )
    return found
