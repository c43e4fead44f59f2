"""What a span says of a model's reply, a tool or an agent, by whichever names its program writes.

The conventions for generative AI (``gen_ai.*``, older forms too), OpenInference (Phoenix: ``llm.*``), OpenLLMetry
(``gen_ai.prompt.0.role``) and Langfuse (``langfuse.observation.*``). ``from_spans`` calls it. All that is read is text
of somebody else: types are checked, JSON is parsed by ``files.loads`` alone.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple

from clew.core.values import Message, ToolCall, ToolSpec, Usage
from clew.exchange.files import loads
from clew.exchange.telemetry.gen_ai import as_text, messages_from_json, tool_from_json
from clew.exchange.telemetry.span import Span

Json = dict[str, Any]
Kind = Literal["model", "tool", "agent", ""]
MOST = 1 << 53  # tokens: what is above is no count
DETAILS = "gen_ai.client.inference.operation.details"  # an event that holds the messages in the span's place
KINDS: dict[str, Kind] = {
    **dict.fromkeys(("chat", "text_completion", "generate_content", "completion", "llm", "generation"), "model"),
    **dict.fromkeys(("execute_tool", "tool"), "tool"),
    **dict.fromkeys(("invoke_agent", "create_agent", "invoke_workflow", "agent", "workflow", "chain"), "agent"),
}
SAYS_KIND = (
    *("gen_ai.operation.name", "openinference.span.kind", "langfuse.observation.type"),
    *("traceloop.span.kind", "llm.request.type"),
)
SPOKEN = {"gen_ai.system.message": "system", "gen_ai.user.message": "user", "gen_ai.assistant.message": "assistant"}
SPOKEN |= {"gen_ai.tool.message": "tool", "gen_ai.choice": "assistant"}


class Asked(NamedTuple):
    """What a model was sent and what it replied; None where the span does not say."""

    prompt: tuple[Message, ...]
    reply: Message | None
    tools: tuple[ToolSpec, ...]
    model: str
    usage: Usage
    cost: float


def kind_of(span: Span) -> Kind:
    """Whether a span is a model's reply, a tool's call, an agent; empty for all others."""
    for name in SAYS_KIND:
        said = span.attributes.get(name)
        if isinstance(said, str) and said:
            return KINDS.get(said.lower(), "")
    return "model" if "gen_ai.prompt.0.role" in span.attributes else ""


def asked_of(span: Span) -> Asked:
    """What the span of a model's reply says.

    Raises:
        ValueError: its messages are of none of the known forms, too large or too deep.
    """
    given = dict(span.attributes)
    for event in span.events:
        if event.name == DETAILS:
            given |= event.attributes
    prompt, replies = _messages(given, span)
    cost = _number(given, "clew.cost_usd", "gen_ai.usage.cost", "llm.cost.total")
    if cost is None:
        cost = _number(_object(given.get("langfuse.observation.cost_details")), "total")
    model = _first(given, "gen_ai.response.model", "gen_ai.request.model", "llm.model_name")
    model = model or _first(given, "langfuse.observation.model.name", "model")
    return Asked(tuple(prompt), next(iter(replies), None), tools_of(given), model, _usage(given), max(cost or 0.0, 0.0))


def _messages(given: Json, span: Span) -> tuple[list[Message], list[Message]]:
    """What was sent and what was said, by the first form that the span has."""
    if "gen_ai.input.messages" in given or "gen_ai.output.messages" in given:
        prompt, replies = standard(given.get("gen_ai.input.messages")), standard(given.get("gen_ai.output.messages"))
        if "gen_ai.system_instructions" in given:
            prompt.insert(0, Message("system", _texts(given["gen_ai.system_instructions"])))
        return prompt, replies
    for asked, said in (("llm.input_messages", "llm.output_messages"), ("gen_ai.prompt", "gen_ai.completion")):
        prompt, replies = _indexed(given, asked), _indexed(given, said)
        if prompt or replies:
            return prompt, replies
    spoken = [(event, SPOKEN[event.name]) for event in span.events if event.name in SPOKEN]
    if spoken:
        told = [
            (_wire({"role": role, **_choice(event.attributes)}), event.name == "gen_ai.choice")
            for event, role in spoken
        ]
        return [m for m, choice in told if not choice], [m for m, choice in told if choice]
    pairs = (
        ("langfuse.observation.input", "langfuse.observation.output"),
        ("gen_ai.prompt", "gen_ai.completion"),
        ("input.value", "output.value"),
    )
    for asked, said in pairs:
        if asked in given or said in given:
            return _loose(given.get(asked), "user"), _loose(given.get(said), "assistant")
    return [], []


def standard(value: object) -> list[Message]:
    """Messages of ``gen_ai.input.messages`` and its like.

    Raises:
        ValueError: it is no list of messages.
    """
    found = loads(value) if isinstance(value, str) else value
    if found is None:
        return []
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise ValueError("gen_ai messages that are no list of objects")
    return [message for one in found for message in messages_from_json(one)]


def _texts(value: object) -> str:
    """System instructions: a list of parts, as JSON or not."""
    found = _parsed(value)
    if isinstance(found, list):
        return "\n\n".join(
            as_text(one.get("content", one.get("text"))) if isinstance(one, dict) else as_text(one) for one in found
        )
    return as_text(found)


def _indexed(given: Mapping[str, Any], prefix: str) -> list[Message]:
    """Messages whose fields are attributes of their own: PREFIX.0.message.role, PREFIX.0.role and so on."""
    pattern = re.compile(re.escape(prefix) + r"\.(\d{1,6})\.(?:message\.)?(.+)")
    rows: dict[int, Json] = defaultdict(dict)
    for name, value in given.items():
        if found := pattern.fullmatch(name):
            rows[int(found[1])][found[2]] = value
    return [_wire(_row(rows[index])) for index in sorted(rows)]


def _row(fields: Json) -> Json:
    """One such message in OpenAI's form."""
    calls: dict[int, Json] = defaultdict(dict)
    texts: dict[int, str] = {}
    for name, value in fields.items():
        if found := re.fullmatch(r"tool_calls\.(\d{1,6})\.(?:tool_call\.)?(?:function\.)?(\w+)", name):
            calls[int(found[1])][found[2]] = value
        elif found := re.fullmatch(r"contents\.(\d{1,6})\.message_content\.text", name):
            texts[int(found[1])] = as_text(value)
    out = {k: v for k, v in fields.items() if k in ("role", "content", "tool_call_id", "reasoning_content")}
    if not out.get("content") and texts:
        out["content"] = "".join(texts[i] for i in sorted(texts))
    if "function_call_name" in fields:
        calls[0] |= {"name": fields["function_call_name"], "arguments": fields.get("function_call_arguments_json")}
    return {**out, "tool_calls": [calls[i] for i in sorted(calls)]}


def _choice(fields: Mapping[str, Any]) -> Json:
    """The fields of an event of a message, or of a choice, which holds the message inside."""
    inner = _parsed(fields.get("message"))
    found = {**fields, **(inner if isinstance(inner, dict) else {})}
    return {**found, "tool_calls": _parsed(found.get("tool_calls")), "tool_call_id": found.get("id")}


def _loose(value: object, role: str) -> list[Message]:
    """Messages of a field without a form of its own: OpenAI's, an object that holds such, or plain text.

    Raises:
        ValueError: it is too large or too deep.
    """
    found = _parsed(value)
    for name in ("messages", "message", "choices"):
        if isinstance(found, dict) and isinstance(found.get(name), (list, dict)):
            found = found[name]
    rows = found if isinstance(found, list) else [found]
    rows = [one["message"] if isinstance(one, dict) and isinstance(one.get("message"), dict) else one for one in rows]
    if rows and all(isinstance(one, dict) and isinstance(one.get("role"), str) for one in rows):
        return [m for one in rows for m in (messages_from_json(one) if "parts" in one else [_wire(one)])]
    return [] if found is None else [Message(role, as_text(found))]


def _wire(raw: Mapping[str, Any]) -> Message:
    """A message of OpenAI's form, or near to it; what has no name here is left out."""
    role = as_text(raw.get("role")) or "user"
    content = raw.get("content")
    if isinstance(content, list):
        content = "".join(as_text(p.get("text", "")) if isinstance(p, dict) else as_text(p) for p in content)
    calls = []
    for one in raw.get("tool_calls") or () if isinstance(raw.get("tool_calls"), list) else ():
        if isinstance(one, dict):
            named = one.get("function")
            inner = named if isinstance(named, dict) else one
            calls.append(ToolCall(as_text(one.get("id")), as_text(inner.get("name")), as_text(inner.get("arguments"))))
    call_id = raw.get("tool_call_id")
    role = {"developer": "system", "function": "tool", "human": "user", "ai": "assistant", "model": "assistant"}.get(
        role, role
    )
    thoughts = as_text(raw.get("reasoning_content"))
    return Message(role, as_text(content), thoughts, tuple(calls), as_text(call_id) if role == "tool" else None)


def tools_of(given: Mapping[str, Any]) -> tuple[ToolSpec, ...]:
    """The tools that a model was offered."""
    raw = _parsed(given.get("gen_ai.tool.definitions"))
    if not isinstance(raw, list):
        pattern = re.compile(r"llm\.tools\.(\d{1,6})\.tool\.json_schema")
        found = {int(m[1]): value for name, value in given.items() if (m := pattern.fullmatch(name))}
        raw = [_parsed(found[index]) for index in sorted(found)]
    raw = [_parsed(one) for one in raw]  # a list of texts, where the attribute was an array
    return tuple(tool for one in raw if (tool := tool_from_json(one)) is not None)


def _usage(given: Mapping[str, Any]) -> Usage:
    """Tokens; of several names for one count the first counts."""
    details = _object(given.get("langfuse.observation.usage_details"))

    def count(names: str, *own: str) -> int:
        found = _number(given, *names.split())
        found = _number(details, *own) if found is None else found
        return int(found) if found is not None and 0 <= found < MOST else 0

    return Usage(
        count("gen_ai.usage.input_tokens gen_ai.usage.prompt_tokens llm.token_count.prompt", "input", "prompt_tokens"),
        count("gen_ai.usage.output_tokens gen_ai.usage.completion_tokens llm.token_count.completion", "output"),
        count(
            "gen_ai.usage.cache_read.input_tokens llm.token_count.prompt_details.cache_read", "cache_read_input_tokens"
        ),
    )


def _parsed(value: object) -> Any:
    """The value of JSON text; text that is none stays text.

    Raises:
        ValueError: it looks like JSON and is too large or too deep.
    """
    if not isinstance(value, str) or value.lstrip()[:1] not in ("[", "{"):
        return value
    try:
        return loads(value)
    except ValueError as error:
        if "more than" in str(error):
            raise
        return value


def _object(value: object) -> Json:
    found = _parsed(value)
    return found if isinstance(found, dict) else {}


def _number(given: Mapping[str, Any], *names: str) -> float | None:
    """The first of these fields that is a finite number."""
    for name in names:
        value = given.get(name)
        if (
            isinstance(value, (int, float))
            and not isinstance(value, bool)
            and abs(value) < 1e300
            and math.isfinite(value)
        ):
            return float(value)
    return None


def _first(given: Mapping[str, Any], *names: str) -> str:
    """The first of these fields that is a text and not empty."""
    return next((value for name in names if isinstance(value := given.get(name), str) and value), "")


def scores_of(spans: Iterable[Span]) -> dict[str, float]:
    """What events of these spans say of their worth."""
    found: dict[str, float] = {}
    for span in spans:
        for event in span.events:
            name, value = (
                event.attributes.get("gen_ai.evaluation.name"),
                _number(event.attributes, "gen_ai.evaluation.score.value"),
            )
            if event.name == "gen_ai.evaluation.result" and isinstance(name, str) and value is not None:
                found[name] = value
    return found
