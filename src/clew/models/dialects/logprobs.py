"""Log-probabilities of sampled tokens as the wire writes them: entries (chat, responses) and columns (completions)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from clew.core.values import F32, Completion

Shown = Callable[[int], str]  # a token's text
ABOVE = 1e-3  # as far above 0 as rounding puts the logprob of a certain token
LEAST = -9999.0  # what OpenAI writes for a chance of nothing, which JSON cannot


def floats(values: Sequence[object]) -> F32:
    """Numbers as an answer has them; those that are too large become infinite. Raises ValueError, TypeError: none."""
    with np.errstate(over="ignore"):
        found: F32 = np.array(values, np.float64).astype(np.float32)
    return found


def wrong(values: F32) -> str:
    """Why these are no logprobs of sampled tokens, in a few words; empty where they can be."""
    if not np.isfinite(values).all():
        return f"a logprob of {values[~np.isfinite(values)][0]}"
    return f"a logprob of {values.max():g}, which is above 0" if (values > ABOVE).any() else ""


def spelt(token: int) -> str:
    """A token without its text, as vLLM's ``return_tokens_as_token_ids`` spells it."""
    return f"token_id:{token}"


def entries(completion: Completion, shown: Shown | None = None) -> list[dict[str, Any]] | None:
    """One entry for each token: its text, logprob, UTF-8 bytes and the likeliest tokens; None without logprobs.

    The logprobs are the model's own where it tells them, else those of the law in force.
    """
    values = completion.logprobs if completion.plain is None else completion.plain
    if values is None or completion.tokens is None:
        return None
    tops = completion.tops or [()] * len(completion.tokens)
    return [
        _entry(token, value, shown) | {"top_logprobs": [_entry(t, v, shown) for t, v in top]}
        for token, value, top in zip(completion.tokens, values.tolist(), tops, strict=True)
    ]


def _entry(token: int, value: float, shown: Shown | None) -> dict[str, Any]:
    text = spelt(token) if shown is None else shown(token)
    whole = shown is not None and "\ufffd" not in text  # a piece of a character has no text of its own
    return {"token": text, "logprob": max(value, LEAST), "bytes": list(text.encode()) if whole else None}


def columns(
    tokens: Sequence[int],
    values: Sequence[float | None],
    tops: Sequence[Sequence[tuple[int, float]]] | None,
    shown: Shown | None,
    start: int = 0,
) -> dict[str, Any]:
    """The completions format: columns of texts, logprobs, likeliest tokens, and offsets in the text from ``start``."""
    name = shown or spelt
    texts = [name(t) for t in tokens]
    offsets = list(accumulate(map(len, texts), initial=start))[:-1]
    told = None if tops is None else [{name(t): max(v, LEAST) for t, v in top} or None for top in tops]
    finite = [None if v is None else max(v, LEAST) for v in values]
    return {"tokens": texts, "token_logprobs": finite, "top_logprobs": told, "text_offset": offsets}


__all__ = ["columns", "entries", "floats", "spelt", "wrong"]
