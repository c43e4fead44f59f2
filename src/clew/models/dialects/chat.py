"""OpenAI chat completions, with what vLLM and others add to it: reasoning, token ids, prefill.

Token ids follow vLLM: ``return_token_ids`` asks for ``choices[].token_ids`` and ``prompt_token_ids``; with
``return_tokens_as_token_ids`` the logprob entries are spelt ``token_id:17``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from clew.core.values import Completion, Message, ToolCall, ToolSpec, Usage
from clew.models import dialects
from clew.models.dialects import Asked, Json, bad, counted, images, keep, logprobs, media, restore, tags, text_of
from clew.models.dialects.logprobs import Shown

NAME, PATH = "chat", "/chat/completions"
ROLES = {"developer": "system", "function": "tool"}
FINISH = {"content_filter": "filter", "function_call": "tool_calls", "max_tokens": "length", "abort": "cut"}
BACK = {"filter": "content_filter", "cut": "abort"}  # vLLM's word for a reply that broke off
KNOWN = {
    *("model", "messages", "tools", "temperature", "top_p", "top_k", "stop", "seed", "stream", "stream_options"),
    *("max_tokens", "max_completion_tokens", "logprobs", "top_logprobs", "return_token_ids"),
    *("continue_final_message", "add_generation_prompt"),
}


def headers(api_key: str | None) -> dict[str, str]:
    return {"authorization": f"Bearer {api_key}"} if api_key else {}


def message_to_wire(message: Message) -> Json:
    base = _write(message)
    out: Json = restore(NAME, message, base, _read)
    if out.get("content") == base["content"] and (parts := _media(message)):
        out["content"] = [*parts, {"type": "text", "text": message.text}]  # the text was edited, the images stay
    return out


def message_from_wire(raw: Json) -> Message:
    """Read one message.

    Raises:
        BadRecord: it is not a chat message.
    """
    message = _read(raw)
    return keep(NAME, message, _write(message), raw)


def messages_to_wire(messages: Sequence[Message]) -> list[Json]:
    """Messages as they are kept in files: images stand in the message that holds them, a tool's too."""
    return [message_to_wire(m) for m in messages]


def _sent(messages: Sequence[Message]) -> list[Json]:
    """Messages as endpoints take them. OpenAI's tool messages hold text alone, so the images of a turn's results
    follow them as one message of the user, which names the calls."""
    out: list[Json] = []
    held: list[Json] = []
    for m in messages:
        found = images(m)
        if m.role != "tool" and held:
            out.append({"role": "user", "content": held})
            held = []
        if m.role == "tool" and found:
            held += [{"type": "text", "text": f"Images of the result of {m.call_id}:"}, *_pictures(found)]
            m = m._replace(extra="")
        out.append(message_to_wire(m))
    return [*out, {"role": "user", "content": held}] if held else out


def _pictures(found: Sequence[tuple[str, str]]) -> list[Json]:
    return [{"type": "image_url", "image_url": {"url": dialects.address(*one)}} for one in found]


def messages_from_wire(raw: Sequence[Json]) -> list[Message]:
    return [message_from_wire(m) for m in raw]


def tool_to_wire(tool: ToolSpec) -> Json:
    function = {"name": tool.name, "description": tool.description, "parameters": dict(tool.schema)}
    return {"type": "function", "function": function}


def tool_from_wire(raw: Json) -> ToolSpec:
    inner = raw.get("function", raw) if isinstance(raw, dict) else None
    if not isinstance(inner, dict) or not isinstance(inner.get("name"), str):
        raise bad("a tool needs a function with a name", raw, 'Write {"type": "function", "function": {"name": ...}}.')
    plain = ToolSpec(inner["name"], inner.get("description") or "")
    return ToolSpec(plain.name, plain.description, inner["parameters"]) if inner.get("parameters") else plain


def request_to_wire(asked: Asked) -> Json:
    dialects.seen(asked.messages)
    messages = _sent(asked.messages)
    s = asked.sampling
    body: Json = {"model": asked.model, "messages": messages, "max_tokens": s.max_tokens, "temperature": s.temperature}
    body |= dialects.sampling_to(s)
    if asked.seed is not None:
        body["seed"] = asked.seed
    if asked.tools:
        body["tools"] = [tool_to_wire(t) for t in asked.tools]
    if asked.logprobs:
        body["logprobs"] = True
    if asked.token_ids:
        body["return_token_ids"] = True
    if asked.stream:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    if asked.prefill:
        messages.append({"role": "assistant", "content": asked.prefill})
        body |= {"continue_final_message": True, "add_generation_prompt": False}
    return body | dict(asked.extra)


def request_from_wire(body: Json) -> Asked:
    """Read a request.

    Raises:
        BadRecord: no model, or messages that are none.
    """
    if not isinstance(body.get("messages"), list):
        what = "a chat request needs a list of messages"
        raise bad(what, body.get("messages"), "Send OpenAI's chat completions body.")
    messages, prefill = messages_from_wire(body["messages"]), ""
    if body.get("continue_final_message") and messages and messages[-1].role == "assistant":
        prefill = messages.pop().text
    limit = "max_completion_tokens" if body.get("max_completion_tokens") else "max_tokens"
    return Asked(
        str(body.get("model", "")),
        tuple(messages),
        tuple(tool_from_wire(t) for t in body.get("tools") or () if dialects.called(t)),
        dialects.sampling_from(body, limit),
        body.get("seed"),
        bool(body.get("stream")),
        prefill,
        bool(body.get("logprobs")),
        bool(body.get("return_token_ids")),
        {k: v for k, v in body.items() if k not in KNOWN},
    )


def completion_to_wire(
    completion: Completion, *, id: str, created: int, model: str, shown: Shown | None = None
) -> Json:
    """An answer's body; ``shown`` gives a token's text for its logprobs, which are spelt ``token_id:17`` without."""
    choice: Json = {
        "index": 0,
        "message": message_to_wire(completion.message),
        "finish_reason": BACK.get(completion.finish, completion.finish),
        "logprobs": None if (scores := logprobs.entries(completion, shown)) is None else {"content": scores},
    }
    if completion.tokens is not None:
        choice["token_ids"] = list(completion.tokens)
    out: Json = {"id": id, "object": "chat.completion", "created": created, "model": model, "choices": [choice]}
    if completion.usage != Usage():  # else nobody counted
        out["usage"] = usage_to_wire(completion.usage)
    if completion.prompt is not None:
        out["prompt_token_ids"] = list(completion.prompt)
    return out


def completion_from_wire(body: Json) -> Completion:
    """Read an answer.

    Raises:
        BadRecord: it holds no choice.
    """
    choices = body.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        raise bad("the answer has no choices", body, "The endpoint does not speak chat completions; check its path.")
    choice = choices[0]
    message = message_from_wire(without_nothing(choice.get("message") or {"role": "assistant", "content": ""}))
    found, spelt = _logprobs(choice)
    tokens = choice.get("token_ids") or spelt
    prompt = choice.get("prompt_token_ids") or body.get("prompt_token_ids")
    reason = str(choice.get("finish_reason") or "stop")
    return Completion(
        message,
        tokens=tuple(tokens) if tokens is not None else None,
        logprobs=found,
        finish=FINISH.get(reason, reason),
        model=str(body.get("model") or ""),
        usage=usage_from_wire(body.get("usage")),
        prompt=tuple(prompt) if prompt else None,
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
    """A completion as the chunks of a stream; ``sent`` is the text that went out before, by ``begin`` and ``piece``.

    Chunks have no order between text and reasoning, so ``before``, as other dialects have it, says nothing here.
    """
    whole = completion_to_wire(completion, id=id, created=created, model=model, shown=shown)
    choice, frame = whole["choices"][0], _frame(id, created, model)
    message = choice["message"]
    delta = {k: v for k, v in message.items() if k != "tool_calls"}
    if sent:
        delta = {k: v for k, v in delta.items() if k not in ("role", "content")}
        if left := completion.message.text.removeprefix(sent):
            delta["content"] = left
    calls = [{"index": i, **call} for i, call in enumerate(message.get("tool_calls") or ())]
    first = {"index": 0, "delta": delta | ({"tool_calls": calls} if calls else {}), "finish_reason": None}
    first |= {k: choice[k] for k in ("logprobs", "token_ids") if choice.get(k) is not None}
    if first.keys() - {"index", "delta", "finish_reason"} or first["delta"]:
        yield frame | {"choices": [first]} | {k: whole[k] for k in ("prompt_token_ids",) if k in whole}
    yield frame | {"choices": [{"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}]}
    if "usage" in whole:
        yield frame | {"choices": [], "usage": whole["usage"]}


def begin(*, id: str, created: int, model: str, before: Message | None = None) -> list[Json]:
    """The first chunk of a stream whose text is sent as it comes."""
    delta = {"role": "assistant", "content": ""}
    return [_frame(id, created, model) | {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}]


def piece(text: str, *, id: str, created: int, model: str, before: Message | None = None) -> Json:
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": None}
    return _frame(id, created, model) | {"choices": [choice]}


def _frame(id: str, created: int, model: str) -> Json:
    return {"id": id, "object": "chat.completion.chunk", "created": created, "model": model}


class Stream:
    """Collects chunks; ``feed`` returns the new text, ``result`` what has arrived, finish ``cut`` where no end came."""

    def __init__(self) -> None:
        self.message: Json = {"role": "assistant", "content": None}
        self.calls: dict[int, Json] = {}
        self.logprobs: list[Json] = []
        self.tokens: list[int] | None = None
        self.head: Json = {}
        self.finish = ""
        self.error: Any = None
        self.finished = False
        self.part = 0  # a reply has one text

    def feed(self, chunk: Json) -> str:
        if chunk.get("error"):
            self.error = chunk["error"]
            return ""
        self.head |= {k: chunk[k] for k in ("model", "usage", "prompt_token_ids") if chunk.get(k)}
        text = ""
        for choice in chunk.get("choices") or ():
            if choice.get("index", 0) == 0:
                text += self._choice(choice)
        return text

    def _choice(self, choice: Json) -> str:
        delta = choice.get("delta") or {}
        for key, value in delta.items():
            if key == "tool_calls":
                for call in value or ():
                    self._call(call)
            elif key != "role" and value is not None:
                self.message[key] = _join(self.message.get(key), value)
        if choice.get("token_ids"):
            self.tokens = (self.tokens or []) + choice["token_ids"]
        if choice.get("prompt_token_ids"):
            self.head["prompt_token_ids"] = choice["prompt_token_ids"]
        self.logprobs += (choice.get("logprobs") or {}).get("content") or []
        if choice.get("finish_reason"):
            self.finish, self.finished = choice["finish_reason"], True
        return text_of(delta.get("content"))

    def _call(self, part: Json) -> None:
        index = part.get("index", len(self.calls))
        call = self.calls.setdefault(index, {"id": "", "type": "function", "function": {"name": "", "arguments": ""}})
        for key, value in part.items():
            if key == "function":
                for name, piece in value.items():
                    if name != "name" or piece != call["function"]["name"]:  # some servers repeat the name
                        call["function"][name] = _join(call["function"].get(name), piece)
            elif key != "index" and value:
                call[key] = value

    def result(self) -> Completion:
        message = dict(self.message)
        if self.calls:
            message["tool_calls"] = [self.calls[i] for i in sorted(self.calls)]
        elif message["content"] is None:
            message["content"] = ""
        choice = {"message": message, "finish_reason": self.finish, "token_ids": self.tokens}
        if self.logprobs:
            choice["logprobs"] = {"content": self.logprobs}
        done = completion_from_wire({**self.head, "choices": [choice]})
        return done if self.finished else done._replace(finish="cut")


def usage_to_wire(usage: Usage) -> Json:
    total = {"total_tokens": usage.prompt + usage.completion, "prompt_tokens_details": {"cached_tokens": usage.cached}}
    return {"prompt_tokens": usage.prompt, "completion_tokens": usage.completion, **total}


def usage_from_wire(usage: Json | None) -> Usage:
    usage = usage or {}
    cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens")
    return counted(usage.get("prompt_tokens"), usage.get("completion_tokens"), cached)


def without_nothing(raw: Json) -> Json:
    """Servers send back every field they know as null or empty; only content keeps that meaning."""
    kept = {k: v for k, v in raw.items() if k in ("role", "content") or v not in (None, [], "")}
    if not kept.get("content") and "tool_calls" in kept:
        kept["content"] = None
    if kept.get("content") is None and "tool_calls" not in kept:
        kept["content"] = ""
    return kept


def _write(m: Message) -> Json:
    out: Json = {"role": m.role, "content": None if m.calls and not m.text else m.text}
    if found := images(m):
        out["content"] = [*([{"type": "text", "text": m.text}] if m.text else []), *_pictures(found)]
    if m.reasoning:
        out["reasoning_content"] = m.reasoning
    if m.calls:
        functions = ((c.id, {"name": c.name, "arguments": c.arguments}) for c in m.calls)
        out["tool_calls"] = [{"id": id, "type": "function", "function": function} for id, function in functions]
    if m.call_id is not None:
        out["tool_call_id"] = m.call_id
    return out


def _read(raw: Json) -> Message:
    if not isinstance(raw, dict) or not isinstance(raw.get("role"), str):
        raise bad("a message needs a role", raw, 'Write {"role": "user", "content": "..."}.')
    reasoning = raw.get("reasoning_content") or raw.get("reasoning")
    call_id = raw.get("tool_call_id")
    calls = list(raw.get("tool_calls") or ())
    if isinstance(old := raw.get("function_call"), dict) and not calls:
        calls = [{"function": old}]  # before tool_calls: one call, without an id
    if raw["role"] == "function" and call_id is None:
        call_id = ""  # the result of such a call
    return Message(
        ROLES.get(raw["role"]) or raw["role"],
        text_of(raw.get("content")),
        reasoning if isinstance(reasoning, str) else "",
        tuple(map(_read_call, calls)),
        call_id if isinstance(call_id, str) else None,
    )


def _read_call(raw: Json) -> ToolCall:
    inner = raw.get("function") or raw.get("custom") if isinstance(raw, dict) else None
    if not isinstance(inner, dict):
        remedy = 'Write {"id": ..., "function": {"name": ..., "arguments": "..."}}.'
        raise bad("a tool call needs a function", raw, remedy)
    arguments = inner.get("arguments", inner.get("input", ""))
    text: str = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return ToolCall(str(raw.get("id") or ""), str(inner.get("name") or ""), text)


def _media(message: Message) -> list[Any]:
    change = tags(message).get(NAME)
    return media(change.get("content")) if isinstance(change, dict) else []


def _join(old: object, new: object) -> object:
    if isinstance(old, str) and isinstance(new, str):
        return old + new
    if isinstance(old, list) and isinstance(new, list):
        return old + new
    return old if new is None else new


def _logprobs(choice: Json) -> tuple[np.ndarray | None, list[int] | None]:
    entries = (choice.get("logprobs") or {}).get("content")
    if not entries:
        return None, None
    values = logprobs.floats([e["logprob"] for e in entries])
    spelt = [str(e.get("token", "")).removeprefix("token_id:") for e in entries]
    named = all(str(e.get("token", "")).startswith("token_id:") for e in entries)
    return values, [int(s) for s in spelt] if named else None
