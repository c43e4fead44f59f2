"""Wire formats, as pure functions between our values and JSON: chat completions, responses, Anthropic messages.

Each module has the same names: ``messages_to_wire`` and ``messages_from_wire``, ``request_to_wire`` and
``request_from_wire``, ``completion_to_wire`` and ``completion_from_wire``, ``events`` (a completion as stream events),
``Stream`` (which collects such events into a completion again), ``PATH`` and ``headers``.

What a wire message says beyond our ``Message`` is kept in ``Message.extra`` as ``{dialect: patch}``: what must be
changed in our own way of writing the message to get the original. Written back in the same dialect it is restored to
the letter; a message that was edited meanwhile keeps its unknown fields, but never an old text.

Images that an agent, a tool or a world gave stand in ``Message.extra`` as ``{"media": [part]}``, which
``clew.models.images`` makes and each dialect writes in its own form.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar, cast

from clew.core.errors import BadRecord
from clew.core.values import UNSET, Message, Sampling, ToolSpec, Usage

Json = dict[str, Any]
T = TypeVar("T")
MOST_TOKENS = 1 << 30  # that a server may say it has counted


class Asked(NamedTuple):
    """A request as the wire knows it. ``extra`` holds body fields that have no name here."""

    model: str
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    sampling: Sampling = Sampling()
    seed: int | None = None
    stream: bool = False
    prefill: str = ""  # first characters of the reply
    logprobs: bool = False
    token_ids: bool = False
    extra: Mapping[str, Any] = {}


_encode = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False).encode  # made once: one a message


def dumps(value: object) -> str:
    """JSON text with one spelling for one value; NaN is refused."""
    return _encode(value)


def bad(what: str, got: object, remedy: str) -> BadRecord:
    return BadRecord(f"{what}, got {str(got)[:120]!r}", remedy=remedy)


def patch(base: object, raw: object) -> object:
    """What turns ``base`` into ``raw`` under ``apply``; ``UNSET`` where they are equal.

    Objects are compared by field, lists of one length by position, all else is replaced. ``-`` lists removed fields,
    ``=`` wraps an object that replaces another value whole.
    """
    if type(base) is str and type(raw) is str:  # most of what is compared
        return UNSET if base == raw else raw
    if isinstance(base, dict) and isinstance(raw, dict) and not {"-", "="} & raw.keys():
        inner = {k: patch(base[k], v) if k in base else v for k, v in raw.items()}
        out = {k: v for k, v in inner.items() if v is not UNSET}
        gone = sorted(base.keys() - raw.keys())
        return out | ({"-": gone} if gone else {}) or UNSET
    if isinstance(base, list) and isinstance(raw, list) and len(base) == len(raw):
        pairs = {str(i): patch(a, b) for i, (a, b) in enumerate(zip(base, raw, strict=True))}
        return {k: v for k, v in pairs.items() if v is not UNSET} or UNSET
    if type(base) is type(raw) and not isinstance(raw, dict) and base == raw and str(base) == str(raw):
        return UNSET  # str tells 0.0 from -0.0
    return {"=": raw} if isinstance(raw, dict) and isinstance(base, (dict, list)) else raw


def apply(base: object, change: object) -> object:
    """The inverse of ``patch``."""
    if not isinstance(change, dict) or not isinstance(base, (dict, list)):
        return change
    if set(change) == {"="}:
        return change["="]
    if isinstance(base, list):
        return [apply(item, change[str(i)]) if str(i) in change else item for i, item in enumerate(base)]
    out = {k: v for k, v in base.items() if k not in change.get("-", ())}
    for key, value in change.items():
        if key != "-":
            out[key] = apply(base[key], value) if key in base else value
    return out


def additions(base: object, change: object) -> Json:
    """The part of a patch that adds fields and replaces nothing."""
    if not isinstance(base, dict) or not isinstance(change, dict) or set(change) == {"="}:
        return {}
    inner = {k: additions(base[k], v) if k in base else v for k, v in change.items() if k != "-"}
    return {k: v for k, v in inner.items() if k not in base or v}


def keep(dialect: str, message: Message, base: object, raw: object) -> Message:
    """Remember in ``extra`` how ``raw`` differs from ``base``, our own writing of ``message``."""
    change = patch(base, raw)
    return message if change is UNSET else message._replace(extra=dumps({dialect: change}))


def restore(dialect: str, message: Message, base: T, read: Callable[[T], Message]) -> T:
    """The inverse of ``keep``: the original where the message still says what it said, else ``base`` and its additions.

    Raises:
        BadRecord: the message holds images or other parts of another dialect, which would be lost in silence.
    """
    if not message.extra:
        return base
    tagged = tags(message)
    if dialect not in tagged:
        for other, change in tagged.items():
            if other in ("chat", "responses", "messages") and _has_parts(change):
                what = f"a message with parts of the {other} format cannot be written as {dialect}"
                remedy = f"Send it in the {other} dialect, or replace its images and files by text."
                raise bad(what, message.text, remedy)
        return base
    raw = cast(T, apply(base, tagged[dialect]))
    whole = read(raw) == message._replace(extra="")
    return raw if whole else cast(T, apply(base, additions(base, tagged[dialect])))


# types of parts that are text, or mean something only to the endpoint they came from
PLAIN = {
    *("text", "input_text", "output_text", "summary_text", "reasoning_text", "refusal", "function", "custom"),
    *("message", "reasoning", "function_call", "function_call_output", "tool_use", "tool_result", "thinking"),
    *("redacted_thinking", "reasoning.text", "reasoning.summary", "reasoning.encrypted", "ephemeral"),
}


def _has_parts(change: object) -> bool:
    if isinstance(change, dict):
        kind = change.get("type")
        return (isinstance(kind, str) and kind not in PLAIN) or any(map(_has_parts, change.values()))
    return isinstance(change, list) and any(map(_has_parts, change))


def tags(message: Message) -> Json:
    """What ``extra`` holds for each dialect."""
    try:
        found = json.loads(message.extra or "{}")
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def media(change: object) -> list[Any]:
    """Images, files and other parts without text in a patch."""
    found: list[Any] = []

    def walk(value: object) -> None:
        if isinstance(value, dict) and isinstance(value.get("type"), str) and value["type"] not in PLAIN:
            found.append(value)
        elif isinstance(value, (dict, list)):
            for item in value.values() if isinstance(value, dict) else value:
                walk(item)

    walk(change)
    return found


def images(message: Message) -> list[tuple[str, str]]:
    """Media type and base64 of each image that was given in no dialect's form.

    Raises:
        BadRecord: ``extra`` holds something else there.
    """
    held = tags(message).get("media", []) if '"media"' in message.extra else []
    parts = [part for part in held if isinstance(part, dict)] if isinstance(held, list) else []
    found = [(part.get("media_type"), part.get("data")) for part in parts if part.get("type") == "image"]
    given = [(kind, data) for kind, data in found if isinstance(kind, str) and isinstance(data, str)]
    if not isinstance(held, list) or len(given) != len(held):
        raise bad(
            "the media of a message must be images in base64", held, "Make them with clew.media(clew.image(...))."
        )
    return given


def seen(messages: Iterable[Message]) -> None:
    """Refuse images where no endpoint takes any.

    Raises:
        BadRecord: a message has some that is neither a user's nor a tool's.
    """
    for m in messages:
        if m.role not in ("user", "tool") and images(m):
            raise bad(f"a message of the role {m.role} cannot hold an image", m.text, "Say the image as the user.")


def address(kind: str, data: str) -> str:
    """An image as a data URL."""
    return f"data:{kind};base64,{data}"


def text_of(content: object) -> str:
    """The text of a content field: a string, nothing, or a list of parts.

    Raises:
        BadRecord: it is something else.
    """
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        found = [
            part if isinstance(part, str) else part.get("text") for part in content if isinstance(part, (str, dict))
        ]
        return "".join(text for text in found if isinstance(text, str))
    raise bad("content must be a text, null or a list of parts", content, "Write content as OpenAI's API does.")


def sampling_to(sampling: Sampling, stop: str = "stop") -> Json:
    """The fields of a request for what is not at its default; ``stop`` names the one of the texts that end a reply."""
    out: Json = {"top_p": sampling.top_p} if sampling.top_p != 1.0 else {}
    out |= {"top_k": sampling.top_k} if sampling.top_k else {}
    return out | ({stop: list(sampling.stop)} if sampling.stop else {})


def called(tool: Json) -> bool:
    """Whether a tool of OpenAI's API is a function; the others (web search, namespaces, grammars) have no ToolSpec."""
    return not isinstance(tool, dict) or bool(tool.get("type", "function") == "function")


def count(value: object) -> int:
    """A number of tokens as a server gives it; 0 if it is not a count, or larger than any reply."""
    whole = int(value) if isinstance(value, float) and value.is_integer() else value
    return whole if type(whole) is int and 0 <= whole < MOST_TOKENS else 0


def counted(prompt: object, completion: object, cached: object) -> Usage:
    """Tokens as a server tells them. A prompt of which more was cached than it has is not counted at all."""
    read = Usage(count(prompt), count(completion), count(cached))
    return read if read.cached <= read.prompt else Usage(0, read.completion)


def stop_of(value: str | Iterable[str] | None) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value or ())


def sampling_from(body: Json, limit: str = "max_tokens") -> Sampling:
    default = Sampling()
    found = {k: body[k] for k in ("temperature", "top_p", "top_k") if body.get(k) is not None}
    stop = stop_of(body.get("stop", body.get("stop_sequences")))
    return Sampling(int(body.get(limit) or default.max_tokens), stop=stop, **found)
