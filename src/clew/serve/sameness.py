"""When two messages or two requests of a foreign program are the same, and where they differ if they are not.

Programs spell one message in several ways: a cache mark moves from one message to another, arguments of a tool call are
written with other white space, a text becomes a list of one part. ``history`` and the gateway's sessions compare by
what a message says. Nothing here may change a message: what is sent on is always the program's own spelling.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import zip_longest

from clew.core.keys import REQUEST, digest, encode, sampling_form
from clew.core.values import Message, ToolCall
from clew.models.dialects import Asked, tags

_TEXTS = frozenset({"text", "input_text", "output_text"})
# how and where something is written, not what it says; "-" lists fields that are left out, all of which Message has
_SPELLING = frozenset({"cache_control", "instructions", "system", "apart", "-"})
# fields of a request that say who asks, not what; programs draw some of them anew at every start
_WHO = frozenset({"metadata", "prompt_cache_key", "user", "safety_identifier", "client_metadata", "stream_options"})
_NOTHING: tuple[object, ...] = (None, {}, [])
_AROUND = 40  # characters that are shown of each of two texts that differ


def same(a: Message, b: Message) -> bool:
    """Whether two messages say the same; wire fields without a name here count only in what the model did not write."""
    if a == b:
        return True
    if (a.role, a.text, a.reasoning, a.call_id, len(a.calls)) != (b.role, b.text, b.reasoning, b.call_id, len(b.calls)):
        return False
    if any(_called(x) != _called(y) for x, y in zip(a.calls, b.calls, strict=True)):
        return False
    return a.role == "assistant" or _beyond(a) == _beyond(b)


def arguments(text: str) -> str:
    """A tool call's arguments in one spelling; what is no JSON stays as it is."""
    try:
        return json.dumps(json.loads(text or "{}"), sort_keys=True)
    except (ValueError, RecursionError):
        return text


def question(asked: Asked, tools: object = None) -> dict[str, object]:
    """What a request asks, as JSON: equal for requests that ask the same, however the wire wrote them.

    Args:
        tools: as the wire wrote them, where that is known: it holds tools that have no ToolSpec.
    """
    s = asked.sampling
    specs = [[t.name, t.description, dict(t.schema)] for t in asked.tools]
    return {
        "messages": [said(m) for m in asked.messages],
        "model": asked.model,
        "tools": _pruned(tools, ("cache_control",)) if tools is not None else specs,
        **sampling_form(s),
        "seed": asked.seed,
        **{k: v for k, v in asked.extra.items() if k not in _WHO and v is not None},
    }


def asker(asked: Asked) -> dict[str, object]:
    """The fields of a request that say who asks, which ``question`` leaves out."""
    return {k: v for k, v in asked.extra.items() if k in _WHO and k != "stream_options" and v is not None}


def key_of(asked: Mapping[str, object]) -> bytes:
    """A digest of what a request asks, as ``question`` gives it."""
    return digest(REQUEST, b"foreign", encode(json.dumps(asked, sort_keys=True)))


def difference(wanted: object, got: object, place: str = "") -> str:
    """The first place at which two JSON values differ, with both values; empty where they are equal."""
    if type(wanted) is type(got) and wanted == got:
        return ""
    if isinstance(wanted, Mapping) and isinstance(got, Mapping):
        for name in [*wanted, *(k for k in got if k not in wanted)]:
            if told := difference(wanted.get(name), got.get(name), f"{place}.{name}".lstrip(".")):
                return told
    if isinstance(wanted, (list, tuple)) and isinstance(got, (list, tuple)):
        for i, (a, b) in enumerate(zip_longest(wanted, got)):
            if told := difference(a, b, f"{place}[{i}]"):
                return told
    return f"{place or 'its value'}: {_shown(got, wanted)} instead of {_shown(wanted, got)}"


def _called(call: ToolCall) -> tuple[str, str, str]:
    return call.id, call.name, arguments(call.arguments)


def said(message: Message) -> dict[str, object]:
    out: dict[str, object] = {"text": message.text, "role": message.role}
    out |= {"reasoning": message.reasoning} if message.reasoning else {}
    out |= {"calls": [_called(c) for c in message.calls]} if message.calls else {}
    out |= {"call_id": message.call_id} if message.call_id is not None else {}
    beyond = {} if message.role == "assistant" else _beyond(message)
    return out | ({"extra": beyond} if beyond else {})


def _beyond(message: Message) -> dict[str, object]:
    """What the wire said that ``Message`` has no field for, without what is mere spelling."""
    found = {dialect: _pruned(change, _SPELLING, texts=True) for dialect, change in tags(message).items()}
    return {dialect: kept for dialect, kept in found.items() if kept not in _NOTHING}


def _pruned(value: object, left_out: Sequence[str] | frozenset[str], texts: bool = False) -> object:
    """``value`` without these fields, what then is empty, and, if told so, plain parts of text."""
    if isinstance(value, dict):
        kept = {k: _pruned(v, left_out, texts) for k, v in value.items() if k not in left_out}
        kept = {k: v for k, v in kept.items() if not texts or v not in _NOTHING}
        return None if texts and kept.keys() <= {"type", "text"} and kept.get("type") in _TEXTS else kept
    if isinstance(value, list):
        items = [_pruned(v, left_out, texts) for v in value]
        return [v for v in items if not texts or v not in _NOTHING]
    return value


def _shown(value: object, other: object) -> str:
    """A value as an error shows it: of a long text, what stands where it begins to differ."""
    if value is None:
        return "nothing"
    if not isinstance(value, str) or not isinstance(other, str):
        text = json.dumps(value, ensure_ascii=True)
        return text if len(text) <= 2 * _AROUND else f"{text[: 2 * _AROUND]}…"
    at = next((i for i, (a, b) in enumerate(zip(value, other, strict=False)) if a != b), min(len(value), len(other)))
    start = max(0, at - _AROUND // 2)
    cut = value[start : at + _AROUND]
    return ("…" if start else "") + json.dumps(cut) + ("…" if at + _AROUND < len(value) else "")
