"""Logits as the shapes of requests have them: what may be drawn, biases, and penalties of what was said already.

The live batch calls it before a token is drawn, row by row: only rows whose requests ask for it are touched.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from clew.core.errors import BadInput, ClewError
from clew.models.engine.cache_rows import Rows
from clew.models.engine.extras import Places, forbid, stuck_error
from clew.models.engine.state import Waiting
from clew.models.shaping import shape_of


@torch.inference_mode()
def restrict(
    logits: Tensor, guided: Places, places: Places, counts: Sequence[int], rows: Rows, stops: npt.NDArray[np.bool_]
) -> list[tuple[Waiting, ClewError]]:
    """Change rows of logits [n, V] in place as grammars and shapes say; gives the requests for which nothing is left.

    Args:
        guided: rows of ``logits`` under a grammar, and their requests. places: those with a shape.
        counts: of each of ``places`` the tokens sampled so far.
        stops: bool [V], tokens that end a reply.
    """
    failed: list[tuple[Waiting, ClewError]] = [(entry, stuck_error(entry)) for _, entry in forbid(logits, guided)]
    for place, entry in _bend(logits, places, counts, rows, stops):
        logits[place] = 0  # nobody draws from it
        if all(entry is not other for other, _ in failed):
            told = f"{entry.request.sampling.shape[:120]} leaves no token to draw"
            failed.append((entry, BadInput(told, remedy="Allow more tokens, or end the reply earlier.")))
    return failed


def _bend(logits: Tensor, places: Places, counts: Sequence[int], rows: Rows, stops: npt.NDArray[np.bool_]) -> Places:
    """Shapes in vLLM's order: what may be drawn, biases, the penalty of repetition (1909.05858, section 4.1), then
    those of presence and frequency. Gives back the rows where nothing can be drawn."""
    ends = torch.from_numpy(stops).to(logits.device)
    empty = []
    for (place, entry), count in zip(places, counts, strict=True):
        row, shape = logits[place], shape_of(entry.request.sampling.shape)
        prompt = rows.slots.tokens[entry.slot, : rows.slots.length[entry.slot]]
        begun = len(prompt) - len(entry.request.forced)
        reply = np.concatenate([prompt[begun:], rows.tokens[entry.slot, :count]])
        if shape.ignore_eos or len(reply) < shape.min_tokens:
            row.masked_fill_(ends, float("-inf"))
        if shape.allowed_token_ids:
            allowed = torch.zeros_like(ends)
            allowed[_known(shape.allowed_token_ids, row)] = True
            row.masked_fill_(~allowed, float("-inf"))
        if shape.logit_bias:
            ids = _known(shape.logit_bias, row)
            row[ids] += torch.tensor([shape.logit_bias[i] for i in ids.tolist()], dtype=row.dtype, device=row.device)
        if shape.repetition_penalty != 1:
            ids = _known(np.unique(np.concatenate([prompt[:begun], reply])), row)
            said = row[ids]
            row[ids] = torch.where(said > 0, said / shape.repetition_penalty, said * shape.repetition_penalty)
        if shape.presence_penalty or shape.frequency_penalty:
            found, times = np.unique(reply, return_counts=True)
            taken = shape.presence_penalty + shape.frequency_penalty * times
            row[_known(found, row)] -= torch.from_numpy(taken).to(row)
        if not bool((row > float("-inf")).any()):
            empty.append((place, entry))
    return empty


def _known(ids: Iterable[int], row: Tensor) -> Tensor:
    """The ids that are tokens of the model, int64."""
    found = np.fromiter(ids, np.int64)
    return torch.from_numpy(found[found < len(row)]).to(row.device)
