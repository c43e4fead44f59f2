"""Parses the text of a reply: reasoning, text, tool calls; and says which part of an unfinished reply is settled."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

from clew.core.values import Message, ToolCall, ToolSpec

FORMATS = {"hermes": "<tool_call>", "mistral": "[TOOL_CALLS]"}  # how templates open a tool call

_CALL = re.compile(r"<tool_call>(.*?)(?:</tool_call>|\Z)", re.DOTALL)
_ARGUMENTS = re.compile(r'"(?:arguments|parameters)"\s*:\s*')
_MISTRAL = FORMATS["mistral"]


def parse_reply(text: str) -> Message:
    """Split a reply into reasoning, text and tool calls (Hermes and Qwen ``<tool_call>``, Mistral ``[TOOL_CALLS]``).

    What does not parse stays in the text, so that a malformed call can be seen and answered.
    """
    reasoning = ""
    if "</think>" in text:
        before, _, text = text.partition("</think>")
        reasoning = before.partition("<think>")[2] if "<think>" in before else before
    elif text.lstrip().startswith("<think>"):
        reasoning, text = text.partition("<think>")[2], ""
    calls: list[ToolCall] = []

    def take(match: re.Match[str]) -> str:
        found = _parse_call(match[1], len(calls))
        if found is None:
            return match[0]
        calls.append(found)
        return ""

    text = _CALL.sub(take, text)
    if _MISTRAL in text:
        rest, _, listed = text.partition(_MISTRAL)
        found = _parse_list(listed, len(calls))
        if found:
            text, calls = rest, [*calls, *found]
    if reasoning or calls:
        text = text.strip()
    return Message("assistant", text, reasoning.strip(), tuple(calls))


def _parse_call(text: str, index: int) -> ToolCall | None:
    """One JSON object of name and arguments; the arguments are kept exactly as they were written."""
    try:
        data = json.loads(text)
    except ValueError:
        return None
    if not isinstance(data, dict) or not isinstance(data.get("name"), str):
        return None
    given = data.get("arguments", data.get("parameters", {}))
    raw = "{}"
    if isinstance(given, str):
        raw = given
    elif match := _ARGUMENTS.search(text):
        raw = text[match.end() : json.JSONDecoder().raw_decode(text, match.end())[1]]
    return ToolCall(str(data.get("id") or f"call_{index}"), data["name"], raw)


def _parse_list(text: str, start: int) -> list[ToolCall]:
    try:
        listed = json.loads(text)
    except ValueError:
        return []
    if not isinstance(listed, list):
        return []
    found = [_parse_call(json.dumps(item, ensure_ascii=False), start + i) for i, item in enumerate(listed)]
    return [call for call in found if call is not None] if all(found) else []


def settled_reply(text: str) -> tuple[str, str]:
    """Text and reasoning that ``parse_reply`` is sure to find in any reply that begins with ``text``.

    Sure, but for a reply that closes a thought it never opened, opens one in its middle, or begins with white space
    and calls a tool later.
    """
    start, end, reasoning = "<think>", "</think>", ""
    body = text.lstrip()
    if body.startswith(start) or end in text:
        thought, closed, body = text.partition(end)
        reasoning = thought.partition(start)[2] if start in thought else thought
        if not closed:
            return "", _kept(reasoning.lstrip(), (end,)).rstrip()
        reasoning, body = reasoning.strip(), body.lstrip()
    elif start.startswith(body):
        return "", ""
    else:
        body = text
    for tag in FORMATS.values():
        body = body.partition(tag)[0]
    kept = _kept(body, tuple(FORMATS.values()))
    return (kept.rstrip() if kept.strip() else ""), reasoning


def call_grammar(tools: Sequence[ToolSpec], form: str, tag: Callable[[str], str], parallel: bool = True) -> str:
    """A ``Sampling.grammar`` of replies that call one of ``tools``, or several in a row, and say nothing else.

    Args:
        form: how the template writes calls, one of ``FORMATS``.
        tag: a tag in Lark's notation: a quoted text, or ``<[id]>`` for a special token.
        parallel: whether there may be several calls.
    """
    some = " | ".join(f"tool_{i}" for i in range(len(tools)))
    rules = [f"tool: {some}", *(f"tool_{i}: %json {json.dumps(_call_schema(t))}" for i, t in enumerate(tools))]
    opening = tag(FORMATS[form])
    if form == "hermes":
        more = '("\\n" call)*' if parallel else ""
        rules = [f"start: call {more}", f'call: {opening} "\\n" tool "\\n" {tag("</tool_call>")}', *rules]
    else:
        rules = [f'start: {opening} " "? "[" tool {"(/, ?/ tool)*" if parallel else ""} "]"', *rules]
    return "lark:" + "\n".join(rules)


def _call_schema(tool: ToolSpec) -> dict[str, Any]:
    """The JSON of a call, spaced as templates space it; definitions move up to where references look for them."""
    shared = {key: tool.schema[key] for key in ("$defs", "definitions") if key in tool.schema}
    arguments = {"type": "object"} | {key: value for key, value in tool.schema.items() if key not in shared}
    return shared | {
        "type": "object",
        "properties": {"name": {"const": tool.name}, "arguments": arguments},
        "required": ["name", "arguments"],
        "additionalProperties": False,
        "x-guidance": {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "},
    }


def held(text: str, ends: tuple[str, ...]) -> int:
    """How many characters at the end of ``text`` may be the beginning of one of ``ends``."""
    longest = max(map(len, ends), default=1) - 1
    for n in range(min(longest, len(text)), 0, -1):
        tail = text[-n:]
        if any(end.startswith(tail) for end in ends):
            return n
    return 0


def _kept(text: str, ends: tuple[str, ...]) -> str:
    return text[: len(text) - held(text, ends)]
