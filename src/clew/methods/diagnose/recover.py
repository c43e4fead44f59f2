"""Keeps a diagnosis going when its model makes mistakes: the five self-recovery parts of arXiv 2606.24820, section 3.

``localise.localiser`` applies the parts and notes each use. Thresholds are ours. Each part is a pure function or value,
and must never ask the model.
"""

from __future__ import annotations

import ast
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from clew.core.values import Message, ToolCall, ToolSpec
from clew.worlds.schemas import check_arguments

FULL = 0.7  # of the window, from which the middle of a conversation is dropped
KEPT = 6  # last turns that stay
WARN, REFUSE = 2, 4  # equal calls
NEAR = 0.9  # of the reply's cap, from which a reply is too long
RETRIES = 2  # shorter replies asked for
LAST = 1  # turns left, from which the answer is demanded
CHARACTERS = 4  # of a token, where the model does not count
SHORTER = "Your reply was cut at the length limit. Reply again, shorter: one tool call, or the findings."
FINAL = (
    "No turns are left. Answer now from what you have seen: <findings> with a JSON list, each with location (file, "
    "start, end), location_explanation, root_cause, solution_idea, dependencies and testing_impact; then </findings>."
)
FENCE = re.compile(r"```[\w-]*\s*\n(.*?)```", re.DOTALL)
TAG = re.compile(r"<tool_call>(.*?)(?:</tool_call>|$)", re.DOTALL)


def tokens(messages: Sequence[Message]) -> int:
    """About how many tokens messages take, tool calls counted."""
    letters = sum(len(m.text) + len(m.reasoning) + sum(len(c.arguments) + 20 for c in m.calls) for m in messages)
    return letters // CHARACTERS


def first_and_recent(messages: Sequence[Message], window: int, kept: int = KEPT) -> list[Message] | None:
    """Part 1: the prompt and the newest turns of a conversation that fills more than 70 % of its window; else None.

    A turn is a reply and what answers it; turns are dropped whole, so that no tool's answer is left without its call.
    Of what stays still too long, older turns go until one is left.
    """
    if tokens(messages) <= FULL * window:
        return None
    starts = [i for i, m in enumerate(messages) if m.role == "assistant"]
    if not starts:
        return None
    head = list(messages[: starts[0]])
    for start in starts[-kept:]:
        short = head + list(messages[start:])
        if tokens(short) <= FULL * window:
            break
    return short if len(short) < len(messages) else None


class Repeats:
    """Part 2: counts equal calls. ``told`` gives a warning from the second on; from the fourth the call is refused."""

    def __init__(self) -> None:
        self.seen: Counter[tuple[str, str]] = Counter()

    def count(self, call: ToolCall) -> int:
        try:
            arguments = json.dumps(json.loads(call.arguments or "{}"), sort_keys=True)
        except (ValueError, RecursionError):
            arguments = call.arguments
        self.seen[call.name, arguments] += 1
        return self.seen[call.name, arguments]

    @staticmethod
    def told(call: ToolCall, count: int) -> str:
        if count < WARN:
            return ""
        refused = " It is not performed again." if count >= REFUSE else ""
        return f"You have called {call.name} with the same arguments {count} times.{refused} Try another approach."


def implicit_call(text: str, tools: Sequence[ToolSpec], id: str) -> ToolCall | None:
    """Part 3: a tool call that lacks its wrapper: tagged, fenced or bare JSON, or ``tool(argument=...)``.

    None unless exactly one tool is meant and its arguments fit the schema.
    """
    known = {t.name: t for t in tools}
    found: dict[tuple[str, str], ToolCall] = {}
    for piece in [*TAG.findall(text), *FENCE.findall(text), *_objects(text), *_calls(text, known)]:
        read = piece if isinstance(piece, dict) else _json(piece)
        if not isinstance(read, dict):
            continue
        function = read.get("function")
        inner: dict[str, Any] = function if isinstance(function, dict) else read
        name, given = inner.get("name") or inner.get("tool"), inner.get("arguments", inner.get("args", {}))
        given = _json(given) if isinstance(given, str) else given
        if (
            isinstance(name, str)
            and name in known
            and isinstance(given, dict)
            and not check_arguments(known[name].schema, given)
        ):
            arguments = json.dumps(given, sort_keys=True)
            found[name, arguments] = ToolCall(id, name, arguments)
    return next(iter(found.values())) if len(found) == 1 else None


def too_long(finish: str, used: int, cap: int) -> bool:
    """Part 4: whether a reply was cut, or came within a tenth of its cap. ``used`` in tokens, 0 where not known."""
    return finish == "length" or used >= NEAR * cap


def final(left: int) -> bool:
    """Part 5: whether the answer is to be demanded now."""
    return left <= LAST


def _json(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _objects(text: str) -> list[dict[str, Any]]:
    """The outermost JSON objects in a text."""
    out, decoder, at = [], json.JSONDecoder(), text.find("{")
    while at >= 0:
        try:
            value, end = decoder.raw_decode(text, at)
            out.append(value)
        except ValueError:
            end = at + 1
        at = text.find("{", end)
    return out


def _calls(text: str, known: Mapping[str, ToolSpec]) -> list[dict[str, Any]]:
    """Calls written as ``tool(...)`` with literal arguments."""
    out = []
    for match in re.finditer(rf"\b({'|'.join(map(re.escape, known))})\(", text) if known else ():
        for stop in [m.end() for m in re.finditer(r"\)", text[match.start() :])][:5]:
            try:
                call = ast.parse(text[match.start() :][:stop], mode="eval").body
                if isinstance(call, ast.Call):
                    order = list(known[match[1]].schema["properties"])
                    given = {n: ast.literal_eval(a) for n, a in zip(order, call.args, strict=False)}
                    given |= {str(k.arg): ast.literal_eval(k.value) for k in call.keywords}
                    out.append({"name": match[1], "arguments": given})
                    break
            except (SyntaxError, ValueError):
                continue
    return out
