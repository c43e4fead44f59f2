"""Token ids in and out over vLLM's ``/inference/v1/generate``: no text at all, and the sampler's mask with the tokens.

``Remote`` speaks it for a fleet whose servers have the route; `clew serve` answers it. Settings lie in
``sampling_params``. An answer whose parts do not fit each other must never pass for one with logprobs or a mask.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from clew.core.values import Completion, Sampling
from clew.models.dialects import Json, bad, completions, sampling_to
from clew.models.dialects.chat import BACK
from clew.models.dialects.chat import headers as headers

NAME, PATH = "generate", "/inference/v1/generate"


def request_to_wire(
    model: str, prompt: Sequence[int], sampling: Sampling, seed: int, stop: Sequence[int], stream: bool = False
) -> Json:
    """The request body, as ``completions.request_to_wire`` has it; answers are never streamed."""
    s = sampling
    params: Json = {"max_tokens": s.max_tokens, "temperature": s.temperature, "top_p": s.top_p, "seed": seed}
    params |= {"logprobs": 0, "stop_token_ids": sorted(stop), "skip_special_tokens": False, **sampling_to(s)}
    return {"model": model, "token_ids": list(prompt), "sampling_params": params}


def completion_from_wire(body: Json) -> Completion:
    """Read a whole answer.

    Raises:
        BadRecord: it holds no choice, or no token ids.
    """
    choices = body.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    ids = choice.get("token_ids") if isinstance(choice, dict) else None
    if not isinstance(choice, dict) or not (isinstance(ids, list) and all(type(token) is int for token in ids)):
        raise bad("the answer has no choice with token_ids", body, "The endpoint does not speak vLLM; check its URL.")
    read: Json = {"text": "", "token_ids": ids, "finish_reason": choice.get("finish_reason") or "stop"}
    read |= {k: choice[k] for k in ("weight_versions", "sampling_mask") if choice.get(k)}
    if (own := _logprobs(choice, ids)) is not None:
        read["logprobs"] = {"token_logprobs": own}
    if (in_law := _in_law(choice, ids)) is not None:
        read["sampling_logprobs"] = in_law
    return completions.completion_from_wire({**{k: body.get(k) for k in ("model", "usage")}, "choices": [read]})


def _logprobs(choice: Json, ids: Sequence[int]) -> list[float] | None:
    """Of each token its logprob, where the entries are those of the tokens."""
    entries = (choice.get("logprobs") or {}).get("content")
    if not isinstance(entries, list) or len(entries) != len(ids):
        return None
    found = list[float]()
    for entry, token in zip(entries, ids, strict=True):
        named = entry.get("token_id", entry.get("token"))
        if named not in (token, f"token_id:{token}") or not isinstance(entry.get("logprob"), (int, float)):
            return None
        found.append(float(entry["logprob"]))
    return found


def _in_law(choice: Json, ids: Sequence[int]) -> list[float] | None:
    """The tokens' logprobs under the law over what was left: as `clew serve` tells them, or beside vLLM's mask."""
    if own := choice.get("sampling_logprobs"):
        fits = isinstance(own, list) and all(isinstance(value, (int, float)) for value in own)
        return own if fits and len(own) == len(ids) else None
    mask, scores = choice.get("sampling_mask"), choice.get("sampling_mask_logprobs")
    if not (isinstance(mask, list) and isinstance(scores, list) and len(mask) == len(scores) == len(ids)):
        return None
    found = list[float]()
    for left, values, token in zip(mask, scores, ids, strict=True):
        if not (isinstance(left, list) and isinstance(values, list) and len(left) == len(values) and token in left):
            return None
        value = values[left.index(token)]
        if not isinstance(value, (int, float)):
            return None
        found.append(float(value))
    return found


def choice(index: int, tokens: Sequence[int], finish: str, entries: list[Json] | None, law: Json) -> Json:
    """One choice of an answer.

    Args:
        finish: why it ended, ours.
        entries: of each token its logprob, as chat writes them, with the tokens spelt as ids; None without logprobs.
        law: ``sampling_mask`` and ``sampling_logprobs``, where they are told.
    """
    reason = BACK.get(finish, finish)
    content: list[Any] | None = None
    if entries is not None:
        content = [{**entry, "token_id": token} for entry, token in zip(entries, tokens, strict=True)]
    told = None if content is None else {"content": content}
    plain: Json = {"index": index, "token_ids": list(tokens), "finish_reason": reason, "logprobs": told}
    return {**plain, "sampling_mask": None, "routed_experts": None, **law}
