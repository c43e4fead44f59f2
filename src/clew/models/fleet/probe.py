"""What an inference server can do for a training, found by asking it: tokens, logprobs, versions, and weight routes.

``clew doctor URL`` calls it. It samples a few tokens and changes nothing: routes that would are only asked whether they
are there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from clew.core.errors import ModelError, Unreachable
from clew.models.dialects import Json, completions
from clew.models.fleet.control import Control
from clew.models.remote.failures import GARBLED

DEV = "Start vLLM with VLLM_SERVER_DEV_MODE=1, or `clew serve` with --weight-updates FOLDER."
HEATS = (1.0, 2.0)  # temperatures at which one token's logprob is compared
SAME = 1e-3  # nats


class Finding(NamedTuple):
    """One thing that a server has (``ok``), lacks, or of which nothing can be said (None)."""

    what: str
    ok: bool | None
    found: str
    remedy: str = ""


async def probe(url: str, api_key: str | Callable[[], str] | None = None, model: str = "") -> list[Finding]:
    """Findings about one server, in the order in which a training needs them; the first says whether it answers."""
    control = Control(url.rstrip("/").removesuffix("/v1"), api_key, 30.0)
    try:
        names = await control.names()
        owner = await control.owner() or "an unknown server"
    except ModelError as error:
        return [Finding("server", False, error.message, error.remedy)]
    except GARBLED:
        return [Finding("server", False, f"{control.endpoint.url} lists no models", "Check that the URL is right.")]
    name = model or (names[0] if names else "")
    out = [Finding("server", True, f"{owner}, model {name[:100]!r}")]
    out += await _tokens(control, name)
    out += await _weights(control)
    return out


async def _asked(control: Control, name: str, temperature: float, more: Json) -> tuple[Json, str]:
    """The first choice of a reply of two tokens, or why there is none."""
    body = {"model": name, "prompt": [1, 2, 3], "max_tokens": 2, "temperature": temperature, "seed": 1, **more}
    try:
        answer = await control.post("/v1/completions", body)
        choice = answer["choices"][0]
        return (choice, "") if isinstance(choice, dict) else ({}, "no choice in the answer")
    except ModelError as error:
        return {}, error.message
    except GARBLED as error:
        return {}, f"an answer that is no completion ({type(error).__name__})"


async def _tokens(control: Control, name: str) -> list[Finding]:
    ids = {"return_token_ids": True, "logprobs": 5}
    first, why = await _asked(control, name, HEATS[0], ids)
    if why:
        remedy = "Serve a causal model with vLLM 0.10.2 or later, SGLang, or `clew serve`."
        return [Finding("completions of token ids", False, why[:300], remedy)]
    out = [Finding("completions of token ids", True, "/v1/completions")]
    told = isinstance(first.get("token_ids"), list)
    out.append(Finding("sampled ids", told, "return_token_ids" if told else "none", "" if told else NO_IDS))
    second, _ = await _asked(control, name, HEATS[1], ids)
    out.append(_law(first, second))
    spans, why = await _asked(control, name, HEATS[0], {"return_token_ids": True, "return_weight_versions": True})
    try:
        raw = spans["weight_versions"]
        labels = [version for version, _, _ in completions.spans_from_wire(raw)]
        out.append(Finding("weight versions of tokens", True, f"return_weight_versions: {', '.join(labels)[:100]}"))
    except (KeyError, ModelError, *GARBLED):
        remedy = "Use vLLM 0.33 or later; with older ones pause in mode wait, so that no reply spans two versions."
        out.append(Finding("weight versions of tokens", False, why[:200] or "none", remedy))
    return out


NO_IDS = "Use vLLM 0.10.2 or later, SGLang, or `clew serve`: text tokenised again need not be what was sampled."


def _law(first: Json, second: Json) -> Finding:
    """Whether logprobs are of the distribution in force, by the likeliest token's at two temperatures."""
    try:
        one, two = (max(choice["logprobs"]["top_logprobs"][0].values()) for choice in (first, second))
        if not (isinstance(one, float) and isinstance(two, float)):
            raise TypeError
    except (KeyError, TypeError, IndexError, ValueError, AttributeError):
        return Finding("logprobs", False, "none", "Start the server so that it gives logprobs: training needs them.")
    if abs(one) < SAME and abs(two) < SAME:
        return Finding("logprobs", None, "one token has all the chance, so that two temperatures cannot be told apart")
    if abs(one - two) < SAME:
        remedy = (
            "Train at temperature 1 without top_p and top_k; or start vLLM with --logprobs-mode processed_logprobs."
        )
        return Finding("logprobs", None, "raw: before temperature, top_p and top_k", remedy)
    return Finding("logprobs", True, "processed: of the distribution in force")


async def _weights(control: Control) -> list[Finding]:
    out = list[Finding]()
    try:
        label = await control.version()
        paused = await control.paused()
        state = "paused: nothing is answered until POST /resume" if paused else "not paused"
        out.append(Finding("pause and update routes", not paused, f"weights {label!r}, {state}"))
    except ModelError as error:
        out.append(Finding("pause and update routes", False, error.message[:300], DEV))
    there = await _there(control, "/v1/load_lora_adapter")
    remedy = "" if there else "Start vLLM with --enable-lora and VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 to push adapters."
    out.append(Finding("LoRA adapters", there or None, "/v1/load_lora_adapter" if there else "no route", remedy))
    return out


async def _there(control: Control, path: str) -> bool:
    """Whether a route is there, without a request that it would fulfil: an empty one is refused by those that are."""
    try:
        await control.post(path, {})
    except Unreachable:
        return False
    except ModelError as error:
        return not any(f"{path} answered {status}" in error.message for status in (404, 405))
    return True
