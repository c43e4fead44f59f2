"""Reads an endpoint's refusal: whether to try again, to leave a field out, or to give up and say what to do."""

from __future__ import annotations

import email.utils
import json
import re
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from clew.core.errors import BadRecord, ContextOverflow, ModelError, Refused
from clew.core.keys import derive

LONGEST_PAUSE = 60.0  # seconds between attempts, unless the server asks for more
AGAIN = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 520, 522, 524, 529})
OVERFLOW = re.compile(
    r"context_length_exceeded|maximum context length|context window|exceed_context_size|available context size"
    r"|prompt is too long|input is too long|maximum model length|longer than the model's context|max_model_len",
    re.IGNORECASE,
)
SPENT = re.compile(r"insufficient_quota|billing|credit balance", re.IGNORECASE)
# fields a request can do without: the answer is still one, and the record says what was in force
SPARE = (
    *("return_token_ids", "logprobs", "top_logprobs", "seed", "top_k", "stream_options", "temperature", "top_p"),
    *("reasoning_content", "return_weight_versions", "session_id", "request_id"),
)


class Failure(NamedTuple):
    """One attempt that brought no answer. ``status`` 0: none came back."""

    status: int
    text: str
    wait: float | None = None  # seconds the server asks for
    final: bool = False  # nothing to gain from another attempt


# what reading an answer raises where its fields are not of the kinds that they should be
GARBLED = (BadRecord, TypeError, ValueError, KeyError, AttributeError, IndexError, RecursionError, OverflowError)


class Failed(Exception):
    """An attempt brought no answer."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.text)
        self.failure = failure


def failure_of(status: int, headers: Mapping[str, str], body: str, now: float | None = None) -> Failure:
    """Read an error answer."""
    text = message_of(body)
    final = status not in AGAIN or bool(status == 429 and SPENT.search(body))
    return Failure(status, text, wait_of(headers, now), final)


def message_of(body: str) -> str:
    """The words of an error answer of OpenAI, Anthropic, vLLM, llama.cpp or a proxy; 400 characters at most."""
    try:
        data: Any = json.loads(body)
    except ValueError:
        data = None
    if isinstance(data, dict):
        inner = data.get("error", data)
        if isinstance(inner, dict):
            said = [inner.get(k) for k in ("message", "detail", "code", "type") if inner.get(k)]
            body = "; ".join(s if isinstance(s, str) else json.dumps(s) for s in said) or body
        elif isinstance(inner, str):
            body = inner
    return " ".join(re.sub(r"<[^>]*>", " ", body).split())[:400]


def wait_of(headers: Mapping[str, str], now: float | None = None) -> float | None:
    """Seconds to wait by ``Retry-After`` (RFC 9110, 10.2.3: a number or a date) or ``retry-after-ms``."""
    try:
        if "retry-after-ms" in headers:
            return max(0.0, float(headers["retry-after-ms"]) / 1000)
        text = headers.get("retry-after", "").strip()
        if not text:
            return None
        if re.fullmatch(r"\d+(\.\d*)?", text):
            return float(text)
        when = email.utils.parsedate_to_datetime(text).timestamp()
        return max(0.0, when - (time.time() if now is None else now))
    except (ValueError, TypeError):
        return None


def pause_of(backoff: float, failures: int, seed: int) -> float:
    """Seconds before the next attempt: doubled after each failure, up to a minute, times a share in [0.5, 1).

    The share is a function of the request's seed, so that concurrent runs do not come back together and a rerun waits
    as long as the first.
    """
    share = derive(seed, "backoff", failures) / 2**63
    longest: float = min(LONGEST_PAUSE, backoff * 2.0 ** (failures - 1))
    return longest * (0.5 + 0.5 * share)


def spare_field(failure: Failure, body: Mapping[str, Any]) -> str:
    """The field of ``body`` that the endpoint does not take and the request can do without, or nothing."""
    if failure.status not in (400, 404, 415, 422):
        return ""
    if "max_completion_tokens" in failure.text and "max_tokens" in body:
        return "max_tokens"
    text = json.dumps(body.get("messages", "")) if "reasoning_content" in failure.text else ""
    for name in SPARE:
        if re.search(rf"\b{name}\b", failure.text) and (name in body or (text and name in text)):
            return name
    return ""


def error_of(failure: Failure, url: str, model: str) -> ModelError:
    """The error to raise for a failure that another attempt will not mend."""
    said = f": {failure.text}" if failure.text else ""
    if failure.status in (400, 413, 422) and OVERFLOW.search(failure.text):
        return ContextOverflow(
            f"{url}: the request does not fit {model}'s context{said}",
            remedy="Shorten the conversation, lower max_tokens, or use a model with a longer context.",
        )
    remedies = {
        401: "Pass a valid api_key (on the command line: set CLEW_API_KEY or OPENAI_API_KEY).",
        403: "This credential may not use that model; pass another api_key, or ask for access.",
        404: "Check the model's name and that the URL ends where the API begins, as in http://localhost:8000/v1.",
        429: "The account's quota is used up; no waiting will help.",
    }
    return Refused(
        f"{url} answered {failure.status} for {model}{said}",
        remedy=remedies.get(failure.status, "The endpoint does not take this request; its words are above."),
    )
