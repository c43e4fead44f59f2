"""A request as its program wrote it: kept in the record as a patch of our own writing, and rebuilt from there.

Sessions keep every body this way, so that an endpoint of the same dialect gets what the program sent, fields that Clew
does not know included. Credentials must never be kept, nor sent on: the gateway has its own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from clew.core.errors import BadRecord
from clew.core.records import Wire
from clew.core.values import UNSET, Message, Sampling, ToolSpec
from clew.models.dialects import Asked, Json, apply, chat, messages, patch, responses
from clew.serve.history import Arrival
from clew.serve.incoming import in_dialect
from clew.serve.refusals import Rejected

DIALECTS: dict[str, Any] = {"chat": chat, "responses": responses, "messages": messages}
HISTORY = {"chat": "messages", "responses": "input", "messages": "messages"}  # the field with the messages
LIMITS = {"chat": ("max_tokens", "max_completion_tokens"), "responses": ("max_output_tokens",)}
LIMITS["messages"] = ("max_tokens",)
UNBOUNDED = 1_000_000  # tokens of a reply whose length the program leaves to the model
MOST = 1 << 53  # what a number of a request stays below
NAMED = re.compile(r"[^?\x00-\x1f\x7f-\x9f]{1,200}")  # "?" parted the fields in the names of earlier versions
SECRET = re.compile(r"auth|key|token|secret|cookie|password|credential|signature", re.IGNORECASE)
# between the client and us alone, or ours to say
_OURS = re.compile(
    r"host|connection|keep-alive|te|trailer|transfer-encoding|upgrade|expect|forwarded|via|origin|referer|date"
    r"|content-.*|accept.*|proxy-.*|sec-.*|x-forwarded-.*|x-real-ip|x-clew-.*|idempotency-key|user-agent"
)
_KEPT = re.compile(r"(anthropic|openai)-.*")  # what an endpoint goes by


class Sent(NamedTuple):
    """What a program sent: the body, its digest, and the headers and query that are passed on. ``retry``: it says that
    it sends an earlier request again, whose ``idempotency`` it may name. ``declared``: what it says the request is."""

    body: Json
    digest: bytes = b""
    headers: Mapping[str, str] = {}
    query: Mapping[str, str] = {}
    retry: bool = False
    idempotency: str = ""
    declared: str = ""

    def kept(self) -> dict[str, str]:
        """The headers that are recorded."""
        return {name: value for name, value in self.headers.items() if _KEPT.fullmatch(name)}


def passed_on(fields: Mapping[str, str]) -> dict[str, str]:
    """The headers that an endpoint is sent as they came: all but credentials and those of the connection."""
    plain = {k: v for k, v in fields.items() if v.isascii() and v.isprintable()}
    return {k: v for k, v in plain.items() if not SECRET.search(k) and not _OURS.fullmatch(k)}


def asked_for(fields: Mapping[str, str]) -> dict[str, str]:
    """The parts of a URL's query that are sent on."""
    return {k: v for k, v in fields.items() if not SECRET.search(k)}


def read(dialect: str, body: Json) -> Asked:
    """A request's body.

    Raises:
        Rejected, BadRecord: it is not one of that dialect.
    """
    if (body.get("n") or 1) != 1:
        raise BadRecord("n > 1 is not recorded through the gateway", remedy="Send n requests.")
    if not NAMED.fullmatch(str(body["model"])):
        told = f"the model's name {str(body['model'])[:60]!r} cannot be one"
        raise Rejected(told, param="model", remedy="Use at most 200 characters, no control characters and no '?'.")
    asked: Asked = in_dialect(dialect, DIALECTS[dialect].request_from_wire, body)
    s = asked.sampling
    numbers = all(isinstance(v, (int, float)) and abs(v) < MOST for v in s[:4]) and s.max_tokens > 0
    if not numbers or not all(isinstance(v, str) for v in s.stop):
        raise BadRecord(f"sampling settings of the wrong kind: {s}"[:300], remedy="Numbers, and texts for stop.")
    if not asked.messages:
        raise BadRecord("the request has no messages", remedy="Send at least one.")
    if asked.prefill:
        remedy = "Leave out the last assistant message."
        raise BadRecord("a reply with a given beginning is not recorded", remedy=remedy)
    if not any(body.get(name) for name in LIMITS[dialect]):
        asked = asked._replace(sampling=s._replace(max_tokens=UNBOUNDED))
    return asked


def settings(sampling: Mapping[str, Any]) -> Sampling:
    """The settings of a request as a run has them."""
    known = {k: v for k, v in sampling.items() if k != "seed"}
    return Sampling(**known)._replace(stop=tuple(sampling["stop"]))


def base(named: str, path: Sequence[Message], tools: Sequence[ToolSpec], sampling: Sampling) -> Json:
    """Our own writing of a request; ``named`` is its dialect and model, as a run has them."""
    dialect, _, model = named.partition(":")
    body: Json = DIALECTS[dialect].request_to_wire(Asked(model, tuple(path), tuple(tools), sampling))
    return body


def patches(named: str, ours: Json, body: Json) -> tuple[Json, object]:
    """What turns our writing into the program's: of all fields but the messages, and of the messages."""
    field = HISTORY[named.partition(":")[0]]
    change = patch(ours, body)
    rest: Json = {} if not isinstance(change, dict) else dict(change)
    spelt = rest.pop(field, UNSET)
    return rest, None if spelt is UNSET else spelt


def rebuilt(named: str, ours: Json, rest: Mapping[str, object], spelt: object) -> Json:
    """The inverse of ``patches``."""
    field = HISTORY[named.partition(":")[0]]
    body = apply(ours, {**rest, **({} if spelt is None else {field: spelt})})
    assert isinstance(body, dict)
    return body


def changed(wire: Wire, ours: Json, now: Json) -> Wire:
    """The request as edits changed it: ``ours`` is our writing of what was sent, ``now`` of what is asked."""
    body = apply(dict(wire.body), change) if (change := patch(ours, now)) is not UNSET else wire.body
    assert isinstance(body, Mapping)
    return wire._replace(body=body)


def recorded(it: Arrival, path: Sequence[Message]) -> tuple[Asked, Json | None]:
    """A recorded request, whose messages are ``path``, and its body, which records of earlier versions do not have."""
    dialect, model, extra = parted(it.model)
    sampling = settings(it.sampling)
    if it.rest is None:
        seed = it.sampling.get("seed", extra.pop("seed", None))
        return Asked(model, tuple(path), it.tools, sampling, seed, extra=extra), None
    body = rebuilt(it.model, base(it.model, path, it.tools, sampling), it.rest, it.spelt)
    return read(dialect, body), body


def parted(named: str) -> tuple[str, str, Json]:
    """Dialect and model of a name that a run has, and body fields, which earlier versions put into the name."""
    dialect, _, rest = named.partition(":")
    model, _, extra = rest.partition("?")
    return dialect, model, json.loads(extra or "{}")
