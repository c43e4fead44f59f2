"""Messages and tools as the semantic conventions write them: ``gen_ai.input.messages``, ``gen_ai.tool.definitions``.

Source: gen-ai-input-messages.json and gen-ai-output-messages.json of the semantic conventions. ``to_spans`` writes with
it, ``dialects`` reads. What a message of ours says beyond that form stands in its field ``clew``.
"""

from __future__ import annotations

import json
from typing import Any

from clew.core.values import Message, ToolCall, ToolSpec
from clew.exchange.files import loads, whole_text
from clew.exchange.transcript import lost, regained

Json = dict[str, Any]
FINISH = {"tool_calls": "tool_call", "filter": "content_filter", "cut": "error", "forced": "stop"}


def message_to_json(message: Message, finish: str | None = None) -> Json:
    """A message in that form; ``finish``, as a Call has it, makes it an output message."""
    found: list[Json] = []
    if message.reasoning:
        found.append({"type": "reasoning", "content": whole_text(message.reasoning)})
    if message.role == "tool":
        response = whole_text(message.text)
        found.append({"type": "tool_call_response", "id": whole_text(message.call_id or ""), "response": response})
    elif message.text or not (message.calls or message.reasoning):
        found.append({"type": "text", "content": whole_text(message.text)})
    for call in message.calls:
        name = {"id": whole_text(call.id), "name": whole_text(call.name)}
        found.append({"type": "tool_call", **name, "arguments": _arguments(call.arguments)})
    out: Json = {"role": whole_text(message.role), "parts": found}
    if finish is not None:
        out["finish_reason"] = FINISH.get(finish, finish) or "stop"
    more = lost(message, message_from_json(out))
    return {**out, "clew": more} if more else out


def _arguments(text: str) -> Any:
    """A call's arguments as the value that they are, and as text where they are no JSON."""
    try:
        value = loads(text)
        json.dumps(value, ensure_ascii=False).encode()  # a lone surrogate, escaped in the text, is a ValueError
    except ValueError:
        return whole_text(text)
    return value


def messages_from_json(raw: Json) -> list[Message]:
    """The messages of one message of that form: it may hold several tools' results.

    Raises:
        ValueError: it has no role, or what is said to be ours is not.
    """
    given = raw.get("parts")
    parts = given if isinstance(given, list) else []
    answers = [p for p in parts if isinstance(p, dict) and p.get("type") == "tool_call_response"]
    if len(answers) < 2:
        return [message_from_json(raw)]
    rest = [part for part in parts if part not in answers]
    split = [{"role": "tool", "parts": [answer]} for answer in answers]
    return [message_from_json(one) for one in (*split, *([{**raw, "parts": rest}] if rest else []))]


def message_from_json(raw: Json) -> Message:
    """The inverse of ``message_to_json``, for what other programs write too.

    Raises:
        ValueError: it has no role, or what is said to be ours is not.
    """
    role, parts = raw.get("role"), raw.get("parts")
    if not isinstance(role, str):
        raise ValueError("a message without a role")
    texts, thoughts, calls = list[str](), list[str](), list[ToolCall]()
    call_id: str | None = None
    if isinstance(raw.get("content"), str) and parts is None:
        texts.append(raw["content"])
    for part in parts if isinstance(parts, list) else ():
        kind = part.get("type") if isinstance(part, dict) else None
        if kind == "text":
            texts.append(as_text(part.get("content", part.get("text"))))
        elif kind in ("reasoning", "thinking"):
            thoughts.append(as_text(part.get("content", part.get("text"))))
        elif kind == "tool_call":
            given = part.get("arguments")
            written = given if isinstance(given, str) else json.dumps({} if given is None else given)
            calls.append(ToolCall(as_text(part.get("id")), as_text(part.get("name")), written))
        elif kind == "tool_call_response":
            call_id = as_text(part.get("id"))
            texts.append(as_text(part.get("response", part.get("result"))))
        elif kind is not None:
            texts.append(f"[{kind}: {as_text(part.get('modality') or part.get('mime_type') or 'not text')[:80]}]")
    role = "system" if role == "developer" else "tool" if call_id is not None else role
    read = Message(role, "".join(texts), "\n\n".join(thoughts), tuple(calls), call_id)
    ours = raw.get("clew")
    if ours is None:
        return read
    try:
        return _checked(regained(read, ours))
    except (TypeError, KeyError, AttributeError):
        raise ValueError("a message whose field clew is none of ours") from None


def _checked(message: Message) -> Message:
    """A message whose fields are what they should be.

    Raises:
        TypeError: one is not.
    """
    texts = [message.role, message.text, message.reasoning, message.extra, message.call_id or ""]
    texts += [field for call in message.calls for field in call]
    if not all(isinstance(text, str) for text in texts):
        raise TypeError("a field is no text")
    return message


def as_text(value: object) -> str:
    """Text as it is, nothing as an empty one, any other value as JSON."""
    return value if isinstance(value, str) else "" if value is None else json.dumps(value, ensure_ascii=False)


def tool_to_json(tool: ToolSpec) -> Json:
    described = {"description": tool.description} if tool.description else {}
    return {"type": "function", "name": tool.name, **described, "parameters": dict(tool.schema)}


def tool_from_json(raw: object) -> ToolSpec | None:
    """A tool of ``gen_ai.tool.definitions``, or of OpenAI's form; None where it is neither."""
    if isinstance(raw, dict) and isinstance(raw.get("function"), dict):
        raw = raw["function"]
    if not isinstance(raw, dict) or not isinstance(raw.get("name"), str):
        return None
    schema = raw.get("parameters", raw.get("input_schema"))
    given = {"schema": schema} if isinstance(schema, dict) else {}
    return ToolSpec(raw["name"], as_text(raw.get("description")), **given)
