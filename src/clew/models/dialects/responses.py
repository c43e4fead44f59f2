"""OpenAI responses. One message of ours is one or several items: reasoning, message, function calls, in that order.

Reading joins neighbouring items of the assistant that keep this order; two assistant messages in a row that together
would keep it come back as one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import takewhile
from typing import Any

from clew.core.values import Completion, Message, ToolCall, ToolSpec, Usage
from clew.models.dialects import (
    Asked,
    Json,
    address,
    bad,
    called,
    counted,
    dumps,
    images,
    keep,
    logprobs,
    media,
    restore,
    sampling_from,
    seen,
    tags,
    text_of,
)
from clew.models.dialects.chat import headers as headers
from clew.models.dialects.logprobs import Shown

NAME, PATH = "responses", "/responses"
KNOWN = {"model", "input", "instructions", "tools", "temperature", "top_p", "stream", "max_output_tokens"}
DONE: Json = {"status": "completed", "incomplete_details": None}
RANK = {"reasoning": 0, "message": 1}  # all other items of the assistant: 2


def messages_to_wire(messages: Sequence[Message]) -> list[Json]:
    return [item for m in messages for item in _items(m)]


def messages_from_wire(raw: str | Sequence[Json]) -> list[Message]:
    """Read the items of a request's input.

    Raises:
        BadRecord: an item is none of the responses API.
    """
    items: list[Any] = [{"role": "user", "content": raw}] if isinstance(raw, str) else list(raw)
    groups: list[list[Json]] = []
    rank = 3
    for item in items:
        if not isinstance(item, dict):
            raise bad("an input item must be an object", item, "Send the items of OpenAI's responses API.")
        mine = _rank(item)
        if mine is None or mine < rank or mine == rank == 1:
            groups.append([item])
        else:
            groups[-1].append(item)
        rank = 3 if mine is None else mine
    return [_keep(group) for group in groups]


def tool_to_wire(tool: ToolSpec) -> Json:
    return {"type": "function", "name": tool.name, "description": tool.description, "parameters": dict(tool.schema)}


def tool_from_wire(raw: Json) -> ToolSpec:
    if not isinstance(raw, dict) or not isinstance(raw.get("name"), str):
        raise bad("a tool needs a name", raw, 'Write {"type": "function", "name": ..., "parameters": {...}}.')
    plain = ToolSpec(raw["name"], raw.get("description") or "")
    return ToolSpec(plain.name, plain.description, raw["parameters"]) if raw.get("parameters") else plain


def request_to_wire(asked: Asked) -> Json:
    seen(asked.messages)
    first = asked.messages[0] if asked.messages else None
    told = first is not None and bool(tags(first).get(NAME, {}) == {"instructions": True})
    items = messages_to_wire(asked.messages[told:])
    # the API takes back only its own reasoning items, which have an id
    items = [item for item in items if item.get("type") != "reasoning" or item.get("id")]
    s = asked.sampling
    body: Json = {"model": asked.model, "input": items, "max_output_tokens": s.max_tokens, "temperature": s.temperature}
    if first is not None and told:
        body["instructions"] = first.text
    if s.top_p != 1.0:
        body["top_p"] = s.top_p
    if asked.tools:
        body["tools"] = [tool_to_wire(t) for t in asked.tools]
    if asked.stream:
        body["stream"] = True
    return body | dict(asked.extra)


def request_from_wire(body: Json) -> Asked:
    """Read a request.

    Raises:
        BadRecord: it has no input.
    """
    if not isinstance(body.get("input"), (str, list)):
        raise bad("a responses request needs an input", body.get("input"), "Send OpenAI's responses body.")
    messages = messages_from_wire(body["input"])
    if body.get("instructions"):
        extra = dumps({NAME: {"instructions": True}})  # written back into the field they came in
        messages.insert(0, Message("system", text_of(body["instructions"]), extra=extra))
    return Asked(
        str(body.get("model", "")),
        tuple(messages),
        tuple(tool_from_wire(t) for t in body.get("tools") or () if called(t)),
        sampling_from(body, "max_output_tokens"),
        stream=bool(body.get("stream")),
        extra={k: v for k, v in body.items() if k not in KNOWN},
    )


def completion_to_wire(
    completion: Completion, *, id: str, created: int, model: str, shown: Shown | None = None
) -> Json:
    """An answer's body; ``shown`` gives a token's text for its logprobs."""
    short = {"length": "max_output_tokens", "filter": "content_filter"}.get(completion.finish)
    state = {"status": "incomplete", "incomplete_details": {"reason": short}} if short else DONE
    if completion.finish == "cut":
        state = {**DONE, "status": "failed", "error": {"code": "server_error", "message": "the reply broke off"}}
    usage = usage_to_wire(completion.usage) if completion.usage != Usage() else None
    scores, items = logprobs.entries(completion, shown), messages_to_wire([completion.message])
    output = [_served(item, i, scores) for i, item in enumerate(items)]
    about: Json = {"id": id, "object": "response", "created_at": created, "model": model, **state}
    return about | {"output": output, "usage": usage}


def completion_from_wire(body: Json) -> Completion:
    """Read an answer.

    Raises:
        BadRecord: it holds no output.
    """
    if not isinstance(body.get("output"), list):
        raise bad("the answer has no output", body, "The endpoint does not speak the responses API; check its path.")
    message = _keep([_own(item) for item in body["output"]])._replace(role="assistant")
    reason = (body.get("incomplete_details") or {}).get("reason") or ""
    finish = {"max_output_tokens": "length", "content_filter": "filter"}.get(str(reason))
    finish = "cut" if body.get("status") == "failed" else finish
    return Completion(
        message,
        finish=finish or ("tool_calls" if message.calls else "stop"),
        model=str(body.get("model") or ""),
        usage=usage_from_wire(body.get("usage")),
    )


def events(
    completion: Completion,
    *,
    id: str,
    created: int,
    model: str,
    sent: str = "",
    shown: Shown | None = None,
    before: Message | None = None,
) -> Iterator[Json]:
    """A completion as the events of a stream; ``sent`` is the text that went out before, by ``begin`` and ``piece``.

    What stood before that text went out with ``begin``; what else the reply holds comes after it, in its order.
    """
    whole = completion_to_wire(completion, id=id, created=created, model=model, shown=shown)
    output, heads = whole["output"], 0
    if sent:
        heads = len(_heads(before))
        at = next(i for i, item in enumerate(output) if item.get("type") == "message")
        order = [*range(heads), at, *range(heads, at), *range(at + 1, len(output))]
        output = [output[i] if i != at else output[i] | {"id": _item(heads)} for i in order]
        whole = whole | {"output": output}
    else:
        yield _created(id, created, model)
    for index, item in list(enumerate(output))[heads:]:
        yield from _item_sent(item, index, sent if index == heads else "")
    yield {"type": f"response.{whole['status']}", "response": whole}


@lru_cache(maxsize=64)
def _heads(before: Message | None) -> tuple[Json, ...]:
    """The items of a reply that stand before its message, as they are served; ``before`` is the reply so far."""
    items = _items(before) if before is not None else []
    heads = takewhile(lambda item: item.get("type") != "message", items)
    return tuple(_served(item, i) for i, item in enumerate(heads))


def _item_sent(item: Json, index: int, sent: str = "") -> Iterator[Json]:
    """The events of an output item; where some of its text was sent, of the rest."""
    if not sent:
        status = {"status": "in_progress"} if "status" in item else {}
        yield {"type": "response.output_item.added", "output_index": index, "item": item | _emptied(item) | status}
    yield from _inside(item, index, sent)
    yield {"type": "response.output_item.done", "output_index": index, "item": item}


def _inside(item: Json, index: int, sent: str) -> Iterator[Json]:
    """The events between the beginning and the end of an output item."""
    place: Json = {"output_index": index, "item_id": str(item.get("id") or "")}
    if item.get("type") == "message":
        part = {"type": "output_text", "annotations": [], "logprobs": []}
        if not sent:
            yield {"type": "response.content_part.added", **place, "content_index": 0, "part": part | {"text": ""}}
        text = text_of(item["content"])
        if left := text.removeprefix(sent):
            yield _delta(place["item_id"], index, left)
        done = {**place, "content_index": 0}
        yield {"type": "response.output_text.done", **done, "text": text, "logprobs": []}
        yield {"type": "response.content_part.done", **done, "part": part | {"text": text}}
    elif item.get("type") == "function_call":
        arguments = item.get("arguments", "")
        yield {"type": "response.function_call_arguments.delta", **place, "delta": arguments}
        named = {"name": item.get("name", ""), "arguments": arguments}
        yield {"type": "response.function_call_arguments.done", **place, **named}


def begin(*, id: str, created: int, model: str, before: Message | None = None) -> list[Json]:
    """The first events of a stream whose text is sent as it comes, with what stands before the text."""
    heads = _heads(before)
    at = len(heads)
    item = {"type": "message", "id": _item(at), "role": "assistant", "status": "in_progress", "content": []}
    part = {"type": "output_text", "text": "", "annotations": []}
    place = {"output_index": at, "content_index": 0, "item_id": _item(at)}
    return [
        _created(id, created, model),
        *(event for i, head in enumerate(heads) for event in _item_sent(head, i)),
        {"type": "response.output_item.added", "output_index": at, "item": item},
        {"type": "response.content_part.added", **place, "part": part},
    ]


def piece(text: str, *, id: str, created: int, model: str, before: Message | None = None) -> Json:
    at = len(_heads(before))
    return _delta(_item(at), at, text)


def _item(index: int) -> str:
    """The id of an output item that has none of its own."""
    return f"item_{index}"


def _created(id: str, created: int, model: str) -> Json:
    empty = completion_to_wire(Completion(Message("assistant", "")), id=id, created=created, model=model)
    return {"type": "response.created", "response": empty | {"output": [], "status": "in_progress", "usage": None}}


def _delta(item: str, index: int, text: str) -> Json:
    place = {"output_index": index, "content_index": 0, "item_id": item}
    return {"type": "response.output_text.delta", **place, "delta": text, "logprobs": []}


class Stream:
    """Collects events; ``feed`` returns the new text, ``result`` what has arrived, finish ``cut`` where no end came."""

    def __init__(self) -> None:
        self.items: dict[int, Json] = {}
        self.pieces: dict[int, str] = {}
        self.head: Json = {}
        self.whole: Json | None = None
        self.error: Any = None
        self.part = 0  # the item and the part of it whose text came last

    @property
    def finished(self) -> bool:
        return self.whole is not None

    def feed(self, event: Json) -> str:
        kind, index = str(event.get("type", "")), event.get("output_index", 0)
        if kind in ("response.completed", "response.incomplete"):
            self.whole = event["response"]
        elif kind in ("error", "response.failed"):
            self.error = event.get("error") or event.get("response", {}).get("error") or event
        elif kind == "response.created":
            self.head = event["response"]
        elif kind in ("response.output_item.added", "response.output_item.done"):
            self.items[index] = event["item"]
            if kind.endswith("done"):
                self.pieces.pop(index, None)
        elif kind.endswith(".delta") and isinstance(event.get("delta"), str):
            self.pieces[index] = self.pieces.get(index, "") + event["delta"]
            self.part = (index << 16) + event.get("content_index", 0)
            return event["delta"] if kind == "response.output_text.delta" else ""
        return ""

    def result(self) -> Completion:
        if self.whole is not None:
            return completion_from_wire(self.whole)
        for index, piece in self.pieces.items():  # items whose end never came
            item = self.items.get(index, {"type": "message", "role": "assistant"})
            field = {"function_call": "arguments", "reasoning": "summary"}.get(str(item.get("type")), "content")
            value = [{"type": "summary_text", "text": piece}] if field == "summary" else piece
            self.items[index] = item | {field: value}
        items = [self.items[i] for i in sorted(self.items)]
        return completion_from_wire({"model": self.head.get("model"), "output": items})._replace(finish="cut")


def usage_to_wire(usage: Usage) -> Json:
    counts = {"input_tokens": usage.prompt, "output_tokens": usage.completion}
    details = {"input_tokens_details": {"cached_tokens": usage.cached}}
    details["output_tokens_details"] = {"reasoning_tokens": 0}  # not counted apart
    return {**counts, "total_tokens": sum(counts.values()), **details}


def usage_from_wire(usage: Json | None) -> Usage:
    usage = usage or {}
    cached = (usage.get("input_tokens_details") or {}).get("cached_tokens")
    return counted(usage.get("input_tokens"), usage.get("output_tokens"), cached)


def _rank(item: Json) -> int | None:
    """Place of an assistant's item within its message; None for what others say."""
    if item.get("type") == "function_call_output" or item.get("role", "assistant") != "assistant":
        return None
    return RANK.get(item.get("type") or "message", 2)


def _items(m: Message) -> list[Json]:
    base = _write(m)
    out: list[Json] = restore(NAME, m, base, _read)
    if out == base and m.role == "user" and (parts := media(tags(m).get(NAME))):  # the text was edited, the images stay
        return [{**base[0], "content": [*parts, {"type": "input_text", "text": m.text}]}]
    return out


def _keep(items: list[Json]) -> Message:
    message = _read(items)
    return keep(NAME, message, _write(message), items)


def _write(m: Message) -> list[Json]:
    if m.role == "tool":
        return [{"type": "function_call_output", "call_id": m.call_id or "", "output": _content(m)}]
    items: list[Json] = []
    if m.reasoning:
        items.append({"type": "reasoning", "summary": [{"type": "summary_text", "text": m.reasoning}]})
    if m.text or not (m.calls or m.reasoning):
        items.append({"type": "message", "role": m.role, "content": _content(m)})
    for call in m.calls:
        items.append({"type": "function_call", "call_id": call.id, "name": call.name, "arguments": call.arguments})
    return items


def _content(m: Message) -> str | list[Json]:
    """The text of a message, or parts: its text and its images."""
    held = [{"type": "input_image", "detail": "auto", "image_url": address(*one)} for one in images(m)]
    said = [{"type": "input_text", "text": m.text}] if m.text else []
    return [*said, *held] if held else m.text


def _read(items: list[Json]) -> Message:
    if items and items[0].get("type") == "function_call_output":
        return Message("tool", text_of(items[0].get("output")), call_id=str(items[0].get("call_id", "")))
    role, texts, thoughts, calls = "assistant", [], [], []
    for item in items:
        kind = item.get("type") or "message"
        if kind == "message":
            role = str(item.get("role", "assistant"))
            texts.append(text_of(item.get("content")))
        elif kind == "reasoning":
            thoughts.append(text_of(item.get("summary")) or text_of(item.get("content")))
        elif kind in ("function_call", "custom_tool_call"):
            arguments = item.get("arguments", item.get("input", ""))
            text = arguments if isinstance(arguments, str) else json.dumps(arguments)
            calls.append(ToolCall(str(item.get("call_id", "")), str(item.get("name", "")), text))
    role = "system" if role == "developer" else role
    return Message(role, "".join(texts), "\n\n".join(t for t in thoughts if t), tuple(calls))


def _own(item: Json) -> Json:
    """An output item as we would send it back: without what only says how it was served."""
    out = {k: v for k, v in item.items() if k != "status" and v is not None}
    if item.get("type") == "message" and isinstance(item.get("content"), list):
        texts = [part for part in item["content"] if part.get("type") == "output_text" and not part.get("annotations")]
        if len(texts) == len(item["content"]):
            return {"type": "message", "role": item.get("role", "assistant"), "content": text_of(texts)}
    if item.get("type") == "function_call":
        out.pop("id", None)
    return out


def _served(item: Json, index: int, scores: list[Json] | None = None) -> Json:
    if item.get("type") == "message" and isinstance(item.get("content"), str):
        part = {"type": "output_text", "text": item["content"], "annotations": []}
        item = item | {"content": [part | ({"logprobs": scores} if scores else {})]}
    return {"id": _item(index), **item, "status": "completed"}


def _emptied(item: Json) -> Json:
    fields: Json = {"message": {"content": []}, "function_call": {"arguments": ""}, "reasoning": {"summary": []}}
    empty: Json = fields.get(str(item.get("type")), {})
    return empty
