"""What an inference server can do for a training, found by asking it: tokens, logprobs, versions, and weight routes.

``clew doctor URL`` calls it. It samples a few tokens and changes nothing: routes that would are only asked whether they
are there.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from clew.core.errors import ModelError
from clew.models.dialects import Json, completions
from clew.models.fleet.control import GENERATE, LOAD, Control
from clew.models.remote.failures import GARBLED

SCALE_OUT = "Start vLLM with --enable-scale-out (VLLM_ENABLE_SCALE_OUT_ENDPOINTS=1 in earlier versions)."
MASK = (
    "Start vLLM with --return-sampling-mask (--enable-return-sampling-mask in earlier versions), --enable-scale-out "
    "and --logprobs-mode processed_logprobs to train on replies under top_p, top_k or a grammar, with top_k above 0."
)
GRAMMAR = "Serve a model with a fast tokenizer; or leave grammars out."
LORA = (
    "Start vLLM with --enable-lora and VLLM_ALLOW_RUNTIME_LORA_UPDATING=1, SGLang with --enable-lora, or `clew serve` "
    "with --weight-updates FOLDER, to push adapters."
)
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
    out += await _masks(control, name)
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
    out.append(await law(control, name, first))
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


async def law(control: Control, name: str, first: Json | None = None) -> Finding:
    """Whether logprobs are of the distribution in force, by the likeliest token's at two temperatures.

    Args:
        first: the choice of a reply at the first of them, where it was sampled already.
    """
    ids = {"return_token_ids": True, "logprobs": 5}
    if first is None:
        first, _ = await _asked(control, name, HEATS[0], ids)
    second, _ = await _asked(control, name, HEATS[1], ids)
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


async def _masks(control: Control, name: str) -> list[Finding]:
    """Whether tokens go in and out alone, and whether it is told which of them top_k and a grammar left."""
    try:
        there = await control.there(GENERATE)
    except ModelError:
        there = False
    told = Finding("token ids in and out", True, GENERATE) if there else None
    out = [told or Finding("token ids in and out", None, "no route: completions are used", SCALE_OUT)]
    cut: Json = {"top_k": 2, "logprobs": 0}
    choice, why = await _sampled(control, name, there, cut)
    out.append(_mask("mask of top_p and top_k", choice, why, MASK))
    held: Json = {"top_k": 1024, "logprobs": 0, "structured_outputs": {"regex": "[0-9]{1,4}"}}
    choice, why = await _sampled(control, name, there, held)
    out.append(_mask("mask of a grammar", choice, why, GRAMMAR if why else MASK))
    return out


async def _sampled(control: Control, name: str, there: bool, settings: Json) -> tuple[Json, str]:
    """The first choice of a reply of two tokens under these settings, or why there is none."""
    if not there:
        return await _asked(control, name, 1.0, {"return_token_ids": True, **settings})
    params = {"max_tokens": 2, "temperature": 1.0, "seed": 1, **settings}
    try:
        answer = await control.post(GENERATE, {"model": name, "token_ids": [1, 2, 3], "sampling_params": params})
        choice = answer["choices"][0]
        return (choice, "") if isinstance(choice, dict) else ({}, "no choice in the answer")
    except ModelError as error:
        return {}, error.message
    except GARBLED as error:
        return {}, f"an answer without choices ({type(error).__name__})"


def _mask(what: str, choice: Json, why: str, remedy: str) -> Finding:
    mask = choice.get("sampling_mask")
    if isinstance(mask, list) and mask:
        return Finding(what, True, "sampling_mask")
    return Finding(what, None, why[:300] or "none", remedy)


async def _weights(control: Control) -> list[Finding]:
    out = list[Finding]()
    try:
        label = await control.version()
        paused = await control.paused()
        state = "paused: nothing is answered until POST /resume" if paused else "not paused"
        out.append(Finding("pause and update routes", not paused, f"weights {label!r}, {state}"))
    except ModelError as error:
        out.append(Finding("pause and update routes", False, error.message[:300], DEV))
    found = ""
    for path in (LOAD, "/load_lora_adapter"):
        with suppress(ModelError):
            found = found or (path if await control.there(path) else "")
    out.append(Finding("LoRA adapters", bool(found) or None, found or "no route", "" if found else LORA))
    return out
