"""Spans as transcripts: each trace with a model's reply in it becomes one run.

Replies are put together into conversations by what they were sent: a reply whose prompt begins with an earlier prompt
and its reply continues that conversation. Nothing is concluded from parents, which may be missing, or from the order in
the file.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from clew.core.keys import NODE, digest, encode
from clew.core.values import Message, StopReason, ToolSpec
from clew.exchange.files import dumps, loads
from clew.exchange.telemetry.dialects import Asked, asked_of, kind_of, scores_of, standard, tools_of
from clew.exchange.telemetry.gen_ai import as_text
from clew.exchange.telemetry.span import UNSAID, Span
from clew.exchange.transcript import ERROR, Meter, Transcript
from clew.harness.run.lifecycle import FAILED

CAPTURE = "Record messages too: OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=true, or your tracer's own setting."
ABOUT = 2000  # characters that are kept of an attribute that has no name here


class Reply(NamedTuple):
    """A reply with its span, and the key of the conversation up to and with it."""

    span: Span
    asked: Asked
    path: tuple[Message, ...]
    keys: tuple[bytes, ...]  # of every beginning of the path


def kept(span: Span) -> Span | None:
    """What of a span is needed for a run; None where nothing is."""
    return span if kind_of(span) else None


def transcript_of(spans: Sequence[Span], where: str = "") -> Transcript | None:
    """The spans of one trace as a transcript; None where no model replied in it.

    Raises:
        ValueError: a span's messages cannot be read, or none of its replies has any.
    """
    ordered = sorted(spans, key=lambda span: (span.start, _seq(span)))
    known = dict[Message, Message]()  # a prompt repeats all that was said before: each message is kept once
    replies = [_reply(span, known) for span in ordered if kind_of(span) == "model"]
    agents = [span for span in ordered if kind_of(span) == "agent"]
    root = next((span for span in agents if "clew.run" in span.attributes), agents[0] if agents else None)
    about = root.attributes if root is not None else {}
    after = tuple(standard(about.get("clew.messages.after")))
    spoken = [reply for reply in replies if reply.path]
    if not spoken and not after:
        if replies:
            raise ValueError(f"its {len(replies)} replies hold no messages")
        return None
    made = {reply.keys[-1]: reply for reply in reversed(spoken) if reply.asked.reply is not None}
    paths = _longest(spoken)
    main = max(range(len(paths)), key=lambda i: (len(paths[i].path), -i), default=0)
    first = paths.pop(main) if paths else None
    model = next((reply.asked.model for reply in spoken if reply.asked.model), "")
    model = model if spoken else as_text(about.get("gen_ai.request.model"))
    messages, meters = _conversation(first, made, model) if first is not None else ((), ())
    if "clew.run" not in about:
        after = _answers(messages, ordered)
    others = [_conversation(path, made, model) for path in paths]
    scores = scores_of(ordered)
    reward = scores.pop("reward", None)
    return Transcript(
        (*messages, *after),
        as_text(about.get("clew.task_id")),
        _tools(spoken, tools_of(about)),
        reward,
        scores,
        model,
        meters,
        _fields(root, ordered[0]),
        tuple(messages for messages, _ in others),
        _failure(replies, root),
        where=where,
        other_meters=tuple(meters for _, meters in others),
    )


def _failure(replies: Sequence[Reply], root: Span | None) -> dict[str, str]:
    """How a trace failed, as ``Transcript.about`` says it; empty where it did not.

    A request that failed and was retried does not fail the run.
    """
    last = replies[-1].span if replies else None
    if root is not None and "clew.run" in root.attributes:
        stop = as_text(root.attributes.get("clew.stop"))
        return {"stop": stop, "error": _error(root) or (_error(last) if last else "")} if stop in FAILED else {}
    if last is not None and (error := _error(last)):
        return {"stop": StopReason.MODEL_ERROR, "error": error}
    if root is not None and (error := _error(root)):
        return {"stop": StopReason.AGENT_ERROR, "error": error}
    return {}


def _error(span: Span) -> str:
    """What a span that failed says of its error; empty where it did not fail."""
    if not span.error and span.attributes.get("langfuse.observation.level") != "ERROR":
        return ""
    raised = next((event.attributes for event in span.events if event.name == "exception"), {})
    kind, why = (as_text(raised.get(f"exception.{name}")) for name in ("type", "message"))
    told = as_text(span.attributes.get("langfuse.observation.status_message"))
    said = ("" if span.error == UNSAID else span.error) or told or ": ".join(filter(None, (kind, why)))
    return (said or as_text(span.attributes.get("error.type")) or UNSAID)[:ERROR]


def _seq(span: Span) -> int:
    seq = span.attributes.get("clew.seq")
    return seq if isinstance(seq, int) else 0


def _reply(span: Span, known: dict[Message, Message]) -> Reply:
    asked = asked_of(span)
    path = tuple(known.setdefault(m, m) for m in (*asked.prompt, *(() if asked.reply is None else (asked.reply,))))
    asked = asked._replace(prompt=())
    keys, key = list[bytes](), b""
    for message in path:
        key = digest(NODE, key, *map(encode, _gist(message)))
        keys.append(key)
    return Reply(span, asked, path, tuple(keys))


def _gist(message: Message) -> tuple[str, ...]:
    """What of a message comes back in a later prompt: programs drop reasoning and write arguments and ids anew."""
    calls = [part for call in message.calls for part in (call.name, _canonical(call.arguments))]
    return message.role, message.text.strip(), *calls


def _canonical(arguments: str) -> str:
    try:
        return json.dumps(loads(arguments), sort_keys=True)
    except ValueError:
        return arguments


def _longest(replies: Sequence[Reply]) -> list[Reply]:
    """The last reply of each conversation, by the time of its first: those that no other one continues."""
    begun: dict[bytes, int] = {}
    for place, reply in enumerate(replies):
        for key in reply.keys:
            begun.setdefault(key, place)
    inner = {key for reply in replies for key in reply.keys[:-1]}
    ends = {reply.keys[-1]: reply for reply in reversed(replies) if reply.keys[-1] not in inner}
    return sorted(ends.values(), key=lambda reply: min(begun[key] for key in reply.keys))


def _conversation(end: Reply, made: dict[bytes, Reply], model: str) -> tuple[tuple[Message, ...], tuple[Meter, ...]]:
    """The messages of a conversation, replies as they were when they were made, and what they took."""
    messages, meters = list[Message](), list[Meter]()
    for message, key in zip(end.path, end.keys, strict=True):
        reply = made.get(key)
        if message.role == "assistant":
            meters.append(Meter() if reply is None else _meter(reply, model))
        messages.append(reply.asked.reply if reply is not None and reply.asked.reply is not None else message)
    return tuple(messages), tuple(meters)


def _meter(reply: Reply, model: str) -> Meter:
    span, asked = reply.span, reply.asked
    seconds = max(span.end - span.start, 0) / 1e9
    other = asked.model if asked.model != model else ""
    return Meter(asked.usage, asked.cost, seconds, started=span.start / 1e9, model=other)


def _answers(messages: Sequence[Message], spans: Sequence[Span]) -> tuple[Message, ...]:
    """The results of the last reply's tool calls, which no later prompt shows: the spans of the tools have them."""
    if not messages or not messages[-1].calls:
        return ()
    found = {
        as_text(span.attributes.get("gen_ai.tool.call.id")): as_text(span.attributes.get("gen_ai.tool.call.result"))
        for span in spans
        if kind_of(span) == "tool" and "gen_ai.tool.call.result" in span.attributes
    }
    return tuple(Message("tool", found[c.id], call_id=c.id) for c in messages[-1].calls if c.id and c.id in found)


def _tools(replies: Sequence[Reply], usual: tuple[ToolSpec, ...]) -> tuple[ToolSpec, ...]:
    """The tools that the run had: those that the agent names, else all that some reply was offered."""
    found = {tool.name: tool for reply in replies for tool in reply.asked.tools}
    return usual or tuple(found.values())


def _fields(root: Span | None, first: Span) -> dict[str, Any]:
    """What a trace says and Clew has no name for."""
    span = root or first
    found = {
        name: value if not isinstance(value, str) else value[:ABOUT]
        for name, value in span.attributes.items()
        if isinstance(value, (str, int, float, bool))
        and not name.endswith((".messages", ".messages.after", ".definitions", ".value"))
        and not name.startswith(("llm.input_messages.", "llm.output_messages.", "gen_ai.prompt", "gen_ai.completion"))
    }
    out = {"trace": span.trace, "name": span.name[:ABOUT], "attributes": found}
    return dict(loads(dumps(out)))
