"""What both servers read of a request before they know what it asks: who sends it, its body, the JSON object in it.

Called by ``serve/openai`` and ``serve/gateway``. Nothing here looks at a dialect, and no key is ever repeated in an
error.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import math
from collections.abc import Callable, Sequence
from typing import TypeVar

from starlette.requests import Request

from clew.core.errors import BadRecord
from clew.models.dialects import Json
from clew.serve.refusals import Rejected

T = TypeVar("T")


def caller(request: Request, keys: Sequence[str], *, pages: bool) -> str:
    """The run that a request names, by its URL or as ``KEY:RUN``, or nothing.

    Args:
        keys: one of which must be sent; none: nothing is asked, and the key ``clew:RUN`` names a run.
        pages: whether web pages may ask.

    Raises:
        Rejected: the key is missing or wrong, or a web page asks.
    """
    sent = request.headers.get("authorization", "").removeprefix("Bearer ") or request.headers.get("x-api-key", "")
    key, _, named = sent.partition(":")
    found = [hmac.compare_digest(given.encode(), k.encode()) for k in keys for given in (key, sent)]
    if keys and not any(found):
        told = "the API key is missing or wrong"
        raise Rejected(
            told, status=401, code="invalid_api_key", remedy="Send one of the server's keys, as KEY or KEY:RUN."
        )
    if request.headers.get("origin") and not pages:
        raise Rejected("a web page may not ask", remedy="Programs send no Origin header.", status=403, code="origin")
    named = named if (keys or key == "clew") and sent not in keys else ""
    return str(request.path_params.get("name") or named)


async def body_of(request: Request, most: int, stall: float | None = None) -> bytes:
    """The body, of at most so many bytes, none of which takes longer than ``stall`` seconds.

    Raises:
        Rejected: it is larger, or slower.
    """
    length = request.headers.get("content-length", "0")
    out, chunks = bytearray(), aiter(request.stream())
    while True:
        if len(out) > most or (length.isdecimal() and int(length) > most):
            told = f"a body of more than {most:,} bytes"
            raise Rejected(told, remedy="Send a smaller request.", status=413, code="body_too_large")
        try:
            async with asyncio.timeout(stall):
                out += await anext(chunks)
        except StopAsyncIteration:
            return bytes(out)
        except TimeoutError:
            told = f"nothing of the body came for {stall:g} s"
            raise Rejected(told, remedy="Send it faster.", status=408, code="body_late") from None


def parsed(data: bytes) -> Json:
    """A body's JSON object.

    Raises:
        Rejected: it is none.
    """

    def number(text: str) -> float:
        value = float(text)
        if not math.isfinite(value):
            raise ValueError(f"{text[:40]} is not a number that JSON can hold")
        return value

    try:
        body = json.loads(data, parse_float=number, parse_constant=number)
    except (ValueError, RecursionError) as error:
        raise Rejected(f"the body is not JSON: {error}", remedy="Send a JSON object.", code="invalid_json") from None
    if not isinstance(body, dict):
        raise Rejected(f"the body is a {type(body).__name__}", remedy="Send a JSON object.", code="invalid_json")
    return body


def question_of(data: bytes) -> Json:
    """The same of a request to a model, which the object names as ``model``.

    Raises:
        Rejected: it is none, or names no model.
    """
    body = parsed(data)
    if not isinstance(body.get("model"), str) or not body["model"]:
        raise Rejected("the request names no model", remedy='Add "model".', param="model")
    return body


def in_dialect(name: str, read: Callable[[Json], T], body: Json) -> T:
    """A body as its dialect's ``request_from_wire`` reads it.

    Raises:
        Rejected: it is no request of that dialect.
    """
    try:
        return read(body)
    except BadRecord as error:
        raise Rejected(error.message, remedy=error.remedy) from None
    except (TypeError, ValueError, KeyError, AttributeError, IndexError, OverflowError, RecursionError) as error:
        told = f"not a request of the {name} dialect: {type(error).__name__}: {error}"[:300]
        raise Rejected(told, remedy="Check its messages, tools and settings.") from None
