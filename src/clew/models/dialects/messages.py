"""Anthropic messages. Tool results of one turn share a user turn, together with the text that follows them.

A tool call's arguments travel as an object here; text that is no JSON object is sent as ``{"invalid_json": text}``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import takewhile
from typing import Any, cast

from clew.core.values import Completion, Message, ToolCall, ToolSpec, Usage
from clew.models import dialects
from clew.models.dialects import (
    Asked,
    Json,
    apply,
    bad,
    count,
    dumps,
    images,
    media,
    patch,
    restore,
    seen,
    tags,
    text_of,
)

NAME, PATH = "messages", "/messages"
VERSION = "2023-06-01"
UNCOUNTED = {"input_tokens": None, "output_tokens": None}  # clients read the fields, and nobody counted
KNOWN = {
    *("model", "messages", "system", "tools", "temperature", "top_p", "top_k", "stop_sequences"),
    *("max_tokens", "stream"),
}
FINISH = dict.fromkeys(("end_turn", "stop_sequence", "pause_turn"), "stop")
FINISH |= {"max_tokens": "length", "model_context_window_exceeded": "length"}
FINISH |= {"tool_use": "tool_calls", "refusal": "filter"}
BACK = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use", "filter": "refusal"}


def headers(api_key: str | None) -> dict[str, str]:
    return {"anthropic-version": VERSION} | ({"x-api-key": api_key} if api_key else {})


def messages_to_wire(messages: Sequence[Message]) -> list[Json]:
    """Turns; system messages are left to ``request_to_wire``."""
    turns: list[list[Message]] = []
    at = 0
    while at < len(messages):
        turns.append(turn_from(messages, at))
        at += len(turns[-1])
    return [_turn_to_wire(turn) for turn in turns]


def turn_from(messages: Sequence[Message], at: int) -> list[Message]:
    """The messages that share a turn with the one at ``at``, which begins it."""
    turn = [messages[at]]
    for m in messages[at + 1 :]:
        if m.role not in ("tool", "user") or turn[-1].role != "tool" or _tagged(m).get("apart"):
            break
        turn.append(m)
    return turn


def parts_of(turn: Sequence[Message]) -> list[list[Any]]:
    """The images and files that this dialect gave, of each message of a turn; where texts were edited since, all stand
    with the first."""
    bare = [m._replace(extra="") for m in turn]
    change = _tagged(turn[0]).get("turn")
    raw = cast(Json, apply(_write(bare), change))
    if not isinstance(raw, dict) or _read(raw) != bare or not isinstance(raw.get("content"), list):
        return [media(change), *([] for _ in turn[1:])]
    blocks = [block for block in raw["content"] if isinstance(block, dict)]
    results = iter([block for block in blocks if block.get("type") == "tool_result"])
    rest = [block for block in blocks if block.get("type") != "tool_result"]
    return [media(next(results, None) if m.role == "tool" else rest) for m in turn]


def messages_from_wire(raw: Sequence[Json]) -> list[Message]:
    """Read turns.

    Raises:
        BadRecord: a turn has no role.
    """
    out: list[Message] = []
    for turn in raw:
        if not isinstance(turn, dict) or not isinstance(turn.get("role"), str):
            raise bad("a turn needs a role", turn, 'Write {"role": "user", "content": "..."}.')
        found = _read(turn)
        marks: Json = {}
        if out and out[-1].role == "tool" and found[0].role in ("tool", "user"):
            marks["apart"] = True  # would be joined to the turn before it
        change = patch(_write(found), turn)
        if isinstance(change, (dict, list)):
            marks["turn"] = change
        out += [found[0]._replace(extra=dumps({NAME: marks}))] if marks else [found[0]]
        out += found[1:]
    return out


def tool_to_wire(tool: ToolSpec) -> Json:
    return {"name": tool.name, "description": tool.description, "input_schema": dict(tool.schema)}


def tool_from_wire(raw: Json) -> ToolSpec:
    if not isinstance(raw, dict) or not isinstance(raw.get("name"), str):
        raise bad("a tool needs a name", raw, 'Write {"name": ..., "input_schema": {...}}.')
    plain = ToolSpec(raw["name"], raw.get("description") or "")
    return ToolSpec(plain.name, plain.description, raw["input_schema"]) if raw.get("input_schema") else plain


def request_to_wire(asked: Asked) -> Json:
    seen(asked.messages)
    s = asked.sampling
    system = _system([m for m in asked.messages if m.role == "system"])
    turns = messages_to_wire([m for m in asked.messages if m.role != "system"])
    body: Json = {"model": asked.model, "messages": turns, "max_tokens": s.max_tokens, "temperature": s.temperature}
    if system:
        body["system"] = system
    body |= dialects.sampling_to(s, "stop_sequences")
    if asked.tools:
        body["tools"] = [tool_to_wire(t) for t in asked.tools]
    if asked.stream:
        body["stream"] = True
    if asked.prefill:
        body["messages"].append({"role": "assistant", "content": asked.prefill})
    for turn in body["messages"]:
        if isinstance(turn["content"], list):  # the API takes back only its own signed thinking
            turn["content"] = [b for b in turn["content"] if b.get("type") != "thinking" or b.get("signature")]
    return body | dict(asked.extra)


def request_from_wire(body: Json) -> Asked:
    """Read a request.

    Raises:
        BadRecord: it has no messages.
    """
    if not isinstance(body.get("messages"), list):
        raise bad("a request needs a list of messages", body.get("messages"), "Send Anthropic's messages body.")
    messages = messages_from_wire(body["messages"])
    prefill = messages.pop().text if messages and messages[-1].role == "assistant" and not messages[-1].calls else ""
    if body.get("system"):
        said = Message("system", text_of(body["system"]))
        plain = isinstance(body["system"], str)
        messages.insert(0, said if plain else said._replace(extra=dumps({NAME: {"system": body["system"]}})))
    return Asked(
        str(body.get("model", "")),
        tuple(messages),
        tuple(map(tool_from_wire, body.get("tools") or ())),
        dialects.sampling_from(body),
        stream=bool(body.get("stream")),
        prefill=prefill,
        extra={k: v for k, v in body.items() if k not in KNOWN},
    )


def _system(said: Sequence[Message]) -> str | list[Json]:
    """The field ``system``: one message's blocks as they came, else the texts."""
    blocks = _tagged(said[0]).get("system") if len(said) == 1 else None
    if isinstance(blocks, list) and text_of(blocks) == said[0].text:
        return blocks
    return "\n\n".join(m.text for m in said)


def completion_to_wire(completion: Completion, *, id: str, created: int, model: str) -> Json:
    content = messages_to_wire([completion.message])[0]["content"]
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return {
        "id": id,
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [block for block in blocks if block != {"type": "text", "text": ""}],
        "stop_reason": BACK.get(completion.finish, completion.finish),
        "stop_sequence": None,
        "usage": usage_to_wire(completion.usage) if completion.usage != Usage() else UNCOUNTED,
    }


def completion_from_wire(body: Json) -> Completion:
    """Read an answer.

    Raises:
        BadRecord: it holds no content.
    """
    if not isinstance(body.get("content"), list):
        remedy = "The endpoint does not speak Anthropic's messages; check its path."
        raise bad("the answer has no content", body, remedy)
    blocks = [{k: v for k, v in block.items() if v is not None} for block in body["content"]]
    content: Any = blocks
    if all(set(block) == {"type", "text"} for block in blocks):
        content = text_of(blocks)
    reason = str(body.get("stop_reason") or "end_turn")
    return Completion(
        messages_from_wire([{"role": "assistant", "content": content}])[0],
        finish=FINISH.get(reason, reason),
        model=str(body.get("model") or ""),
        usage=usage_from_wire(body.get("usage")),
    )


def events(
    completion: Completion, *, id: str, created: int, model: str, sent: str = "", before: Message | None = None
) -> Iterator[Json]:
    """A completion as the events of a stream; ``sent`` is the text that went out before, by ``begin`` and ``piece``.

    What stood before that text went out with ``begin``; what else the reply holds comes after it, in its order.
    """
    whole = completion_to_wire(completion, id=id, created=created, model=model)
    blocks, out = whole["content"], 0
    if sent:
        heads = len(_heads(before))
        at = next((i for i, block in enumerate(blocks) if block["type"] == "text"), 0)
        left = blocks[at]["text"].removeprefix(sent) if blocks else ""
        if left:
            yield piece(left, id=id, created=created, model=model, before=before)
        yield {"type": "content_block_stop", "index": heads}
        blocks, out = [*blocks[:heads], blocks[at], *blocks[heads:at], *blocks[at + 1 :]], heads + 1
    else:
        yield _started(whole)
    yield from _blocks_sent(blocks, out)
    yield {"type": "message_delta", "delta": {"stop_reason": whole["stop_reason"]}, "usage": whole["usage"]}
    yield {"type": "message_stop"}


@lru_cache(maxsize=64)
def _heads(before: Message | None) -> tuple[Json, ...]:
    """The blocks of a reply that stand before its first text; ``before`` is the reply so far."""
    content = messages_to_wire([before])[0]["content"] if before is not None else ""
    return tuple(takewhile(lambda block: block["type"] != "text", content)) if isinstance(content, list) else ()


def _blocks_sent(blocks: Sequence[Json], start: int) -> Iterator[Json]:
    """The events of whole blocks from the ``start``-th on."""
    for index, block in list(enumerate(blocks))[start:]:
        pieces: dict[str, Json] = {
            "text": {"type": "text_delta", "text": block.get("text")},
            "thinking": {"type": "thinking_delta", "thinking": block.get("thinking")},
            "tool_use": {"type": "input_json_delta", "partial_json": json.dumps(block.get("input"))},
        }
        kind = block["type"]
        bare: dict[str, Json] = {"text": {"text": ""}, "thinking": {"thinking": ""}, "tool_use": {"input": {}}}
        yield {"type": "content_block_start", "index": index, "content_block": block | bare.get(kind, {})}
        if kind in pieces:
            yield {"type": "content_block_delta", "index": index, "delta": pieces[kind]}
        yield {"type": "content_block_stop", "index": index}


def begin(*, id: str, created: int, model: str, before: Message | None = None) -> list[Json]:
    """The first events of a stream whose text is sent as it comes, with what stands before the text."""
    empty = completion_to_wire(Completion(Message("assistant", "")), id=id, created=created, model=model)
    heads = _heads(before)
    return [
        _started(empty),
        *_blocks_sent(heads, 0),
        {"type": "content_block_start", "index": len(heads), "content_block": {"type": "text", "text": ""}},
    ]


def _started(message: Json) -> Json:
    """The first event, which has numbers of tokens before they are known."""
    usage = {k: v or 0 for k, v in message["usage"].items()}
    return {"type": "message_start", "message": message | {"content": [], "stop_reason": None, "usage": usage}}


def piece(text: str, *, id: str, created: int, model: str, before: Message | None = None) -> Json:
    delta = {"type": "text_delta", "text": text}
    return {"type": "content_block_delta", "index": len(_heads(before)), "delta": delta}


class Stream:
    """Collects events; ``feed`` returns the new text, ``result`` what has arrived, finish ``cut`` where no end came."""

    def __init__(self) -> None:
        self.head: Json = {}
        self.blocks: dict[int, Json] = {}
        self.inputs: dict[int, str] = {}
        self.error: Any = None
        self.finished = False
        self.part = 0  # the block of the text that came last

    def feed(self, event: Json) -> str:
        kind, index = event.get("type"), event.get("index", 0)
        if kind == "error":
            self.error = event.get("error") or event
        elif kind == "message_start":
            self.head = dict(event["message"])
        elif kind == "content_block_start":
            self.blocks[index] = dict(event["content_block"])
        elif kind == "content_block_delta":
            return self._delta(index, event["delta"])
        elif kind == "message_delta":
            self.head["stop_reason"] = event["delta"].get("stop_reason")
            self.head["usage"] = {**(self.head.get("usage") or {}), **(event.get("usage") or {})}
        elif kind == "message_stop":
            self.finished = True
        return ""

    def _delta(self, index: int, delta: Json) -> str:
        block = self.blocks.setdefault(index, {"type": "text", "text": ""})
        self.part = index
        for name in ("text", "thinking", "signature"):
            if name in delta:
                block[name] = (block.get(name) or "") + delta[name]
        if "partial_json" in delta:
            self.inputs[index] = self.inputs.get(index, "") + delta["partial_json"]
        return str(delta.get("text") or "")

    def result(self) -> Completion:
        for index, text in self.inputs.items():
            self.blocks[index]["input"] = _input(text or "{}")
        done = completion_from_wire({**self.head, "content": [self.blocks[i] for i in sorted(self.blocks)]})
        return done if self.finished else done._replace(finish="cut")


def usage_to_wire(usage: Usage) -> Json:
    fresh = usage.prompt - usage.cached
    return {"input_tokens": fresh, "cache_read_input_tokens": usage.cached, "output_tokens": usage.completion}


def usage_from_wire(usage: Json | None) -> Usage:
    usage = usage or {}
    cached = count(usage.get("cache_read_input_tokens"))
    prompt = count(usage.get("input_tokens")) + cached + count(usage.get("cache_creation_input_tokens"))
    return Usage(prompt, count(usage.get("output_tokens")), cached)


def _tagged(message: Message) -> Json:
    found = tags(message).get(NAME)
    return found if isinstance(found, dict) else {}


def _turn_to_wire(turn: list[Message]) -> Json:
    base = _write(turn)
    marks = _tagged(turn[0])
    if "turn" not in marks:
        for message in turn:
            restore(NAME, message, base, lambda raw: _read(raw)[0])  # refuses the parts of other dialects
        return base
    raw = cast(Json, apply(base, marks["turn"]))
    if _read(raw) == [m._replace(extra="") for m in turn]:
        return raw
    parts = media(marks["turn"])  # the text was edited, the images stay
    return base | {"content": [*parts, *_blocks(base["content"])]} if parts else base


def _blocks(content: str | list[Json]) -> list[Json]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _write(turn: list[Message]) -> Json:
    first = turn[0]
    if first.role == "assistant":
        blocks: list[Json] = [{"type": "thinking", "thinking": first.reasoning}] if first.reasoning else []
        if first.text:
            blocks.append({"type": "text", "text": first.text})
        blocks += [{"type": "tool_use", "id": c.id, "name": c.name, "input": _input(c.arguments)} for c in first.calls]
        plain = not first.reasoning and not first.calls
        return {"role": "assistant", "content": first.text if plain else blocks}
    if first.role != "tool":
        return {"role": first.role, "content": _content(first)}
    blocks = [
        {"type": "tool_result", "tool_use_id": m.call_id or "", "content": _content(m)}
        for m in turn
        if m.role == "tool"
    ]
    said = [block for m in turn if m.role == "user" for block in _blocks(_content(m))]
    return {"role": "user", "content": blocks + said}


def _content(message: Message) -> str | list[Json]:
    """The text of a message, or blocks of its images and its text."""
    held = images(message)
    if not held:
        return message.text
    sources = [{"type": "base64", "media_type": kind, "data": data} for kind, data in held]
    said = [{"type": "text", "text": message.text}] if message.text else []
    return [*({"type": "image", "source": source} for source in sources), *said]


def _read(turn: Json) -> list[Message]:
    """The messages of one turn, none with extra."""
    content = turn.get("content")
    if not isinstance(content, list):
        return [Message(turn["role"], text_of(content))]
    blocks = [block for block in content if isinstance(block, dict)]
    if turn["role"] == "assistant":
        calls = tuple(
            ToolCall(str(b.get("id", "")), str(b.get("name", "")), _arguments(b.get("input", {})))
            for b in blocks
            if b.get("type") == "tool_use"
        )
        thinking = "\n\n".join(b.get("thinking", "") for b in blocks if b.get("type") == "thinking")
        return [Message("assistant", text_of(content), thinking, calls)]
    results = [b for b in blocks if b.get("type") == "tool_result"]
    out = [Message("tool", text_of(b.get("content")), call_id=str(b.get("tool_use_id", ""))) for b in results]
    rest = [b for b in content if not isinstance(b, dict) or b.get("type") != "tool_result"]
    return [*out, Message(turn["role"], text_of(rest))] if rest or not out else out


def _input(arguments: str) -> Json:
    try:
        value = json.loads(arguments or "{}")
    except ValueError:
        value = None
    return value if isinstance(value, dict) else {"invalid_json": arguments}


def _arguments(value: object) -> str:
    if isinstance(value, dict) and set(value) == {"invalid_json"} and isinstance(value["invalid_json"], str):
        return value["invalid_json"]
    return json.dumps(value)
