"""Inspect logs (``.eval``), read and written through inspect-ai, which is imported only when one is.

A sample's epoch is the run's place among those of its task. Of several scores the one called ``reward``, else the
first that is a number or one of Inspect's letters, is the reward; all are kept as annotations by their names.
What Inspect has no field for is kept in a message's ``metadata["clew"]``.
"""

from __future__ import annotations

import json
import math
import struct
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from clew.core.errors import BadRecord, need
from clew.core.values import Message, ToolCall
from clew.exchange import files
from clew.exchange.transcript import Transcript, lost, regained, turns_of
from clew.models.dialects import chat

if TYPE_CHECKING:
    from inspect_ai.log import EvalLog, EvalSample
    from inspect_ai.model import ChatMessage

SUFFIXES = (".eval",)
LETTERS = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}  # inspect_ai.scorer: correct, partial, incorrect, no answer
BROKEN = (  # pydantic's errors are ValueErrors
    *(ValueError, KeyError, TypeError, IndexError, RecursionError, NotImplementedError, EOFError),
    *(zlib.error, zipfile.BadZipFile, struct.error),
)
NEEDS = "Give a log that Inspect wrote (inspect log list)."


def _inspect() -> SimpleNamespace:
    parts = ("log", "model", "scorer", "tool")
    return SimpleNamespace(**{name: need(f"inspect_ai.{name}", "inspect") for name in parts})


def read(path: Path) -> Iterator[Transcript | BadRecord]:
    """Transcripts of a log's samples, those that ended in an error included.

    Raises:
        BadInput: it cannot be opened. BadRecord: it is no log. MissingExtra: inspect-ai is not installed.
    """
    inspect = _inspect()
    try:
        _weigh(path)
        log = inspect.log.read_eval_log(str(path), resolve_attachments=True)
    except OSError as error:
        raise files.unusable(path, error) from error
    except BROKEN as error:
        raise BadRecord(f"{path.name}: {str(error)[:200]}", remedy=NEEDS) from error
    samples = [(f"{path.name}:{number}", sample) for number, sample in enumerate(log.samples or (), 1)]
    for where, sample in sorted(samples, key=lambda pair: _ours(pair[1]).get("place", 0)):
        if sample.messages:
            yield _transcript(log, sample, where)
        else:
            yield BadRecord(f"{where}: sample {sample.id!r} has no messages", remedy="It may have ended in an error.")


def _weigh(path: Path) -> None:
    """Refuse a log that unpacks to too much. What its directory says of sizes may lie, so each part is unpacked here.

    Raises:
        BadRecord: it does. BadZipFile: a part is longer or other than the directory says.
    """
    budget = files.Budget(path)
    with zipfile.ZipFile(path) as log:
        for part in log.infolist():
            values = 0
            with log.open(part) as stream:
                while piece := stream.read(1 << 20):
                    budget.spend(len(piece))
                    values += sum(map(piece.count, (b"[", b"{", b",")))
                    if values > files.VALUES:
                        about = f"{files.brief(part.filename)} holds more than {files.VALUES:,} values"
                        raise BadRecord(f"{path.name}: {about}", remedy=files.SHORTER)


def _ours(sample: EvalSample) -> dict[str, Any]:
    """What an export of ours put beside the sample."""
    found = (sample.metadata or {}).get("clew")
    try:
        read = files.loads(found) if isinstance(found, str) else {}
    except ValueError:
        read = {}
    return read if isinstance(read, dict) else {}


def _transcript(log: EvalLog, sample: EvalSample, where: str) -> Transcript:
    scores: dict[str, float] = {}
    for name, score in (sample.scores or {}).items():
        values = score.value if isinstance(score.value, dict) else {"": score.value}
        for part, value in values.items():
            if (known := _value(value)) is not None:
                scores[f"{name}/{part}" if part else name] = known
    reward = scores["reward"] if "reward" in scores else next(iter(scores.values()), None)
    ours = _ours(sample)
    fields = {
        "sample": sample.id,
        "epoch": sample.epoch,
        "target": sample.target,
        "metadata": json.loads(json.dumps(sample.metadata, default=str)),
        "eval": {"task": log.eval.task, "created": log.eval.created, "run_id": log.eval.run_id},
    }
    if sample.error is not None:
        fields["error"] = sample.error.message
    return Transcript(
        tuple(_message(m) for m in sample.messages),
        str(ours.get("task_id", sample.id)),
        tuple(chat.tool_from_wire(t) for t in ours.get("tools", ())),
        reward,
        {k: v for k, v in scores.items() if k != "reward"},
        ours.get("model", log.eval.model),
        fields=ours.get("fields", fields),
        where=where,
    )


def _value(value: object) -> float | None:
    if isinstance(value, str):
        return LETTERS.get(value)
    return float(value) if isinstance(value, (bool, int, float)) and math.isfinite(value) else None


def _message(m: ChatMessage) -> Message:
    """One of Inspect's messages as ours."""
    parts = [] if isinstance(m.content, str) else m.content
    text = m.content if isinstance(m.content, str) else "".join(p.text for p in parts if p.type == "text")
    reasoning = "".join(p.reasoning for p in parts if p.type == "reasoning")
    calls = tuple(ToolCall(c.id, c.function, json.dumps(c.arguments)) for c in getattr(m, "tool_calls", None) or ())
    failed = getattr(m, "error", None)
    if failed is not None and not text:
        text = failed.message
    message = Message(m.role, text, reasoning, calls, getattr(m, "tool_call_id", None))
    ours = (m.metadata or {}).get("clew")
    if ours is not None:
        return regained(message, files.loads(ours))
    images = [p for p in parts if p.type not in ("text", "reasoning")]
    if not images:
        return message
    raw = chat.message_to_wire(message)
    raw["content"] = [
        {"type": "image_url", "image_url": {"url": p.image}}
        if p.type == "image"
        else p.model_dump(exclude_none=True, mode="json")
        for p in parts
        if p.type != "reasoning"
    ]
    return chat.message_from_wire(raw)


def write(path: Path, transcripts: Iterable[Transcript]) -> int:
    """Write one sample for each transcript; gives their number.

    Raises:
        BadInput: the file cannot be written. MissingExtra: inspect-ai is not installed.
    """
    inspect = _inspect()
    samples, epochs, models = list[object](), dict[str, int](), dict[str, None]()
    for it in transcripts:
        name = _file_name(it.task_id)
        epochs[name] = epochs.get(name, 0) + 1
        models[it.model] = None
        samples.append(_sample(inspect, it, epochs[name], len(samples)))
    spec = inspect.log.EvalSpec(
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        task="clew",
        model=files.whole_text(next(iter(models), "")) or "unknown",
        dataset=inspect.log.EvalDataset(name="clew", samples=len(epochs), sample_ids=list(epochs)),
        config=inspect.log.EvalConfig(epochs=max(epochs.values(), default=1)),
    )
    total = len(samples)
    results = inspect.log.EvalResults(total_samples=total, completed_samples=total)
    log = inspect.log.EvalLog(status="success", eval=spec, results=results, samples=samples)
    with files.replacing(path) as beside:
        inspect.log.write_eval_log(log, str(beside), format="eval")
    return total


def _file_name(task_id: str) -> str:
    """A task's id as Inspect takes it, which names a file of the log after it."""
    return "".join(c if c.isprintable() else "?" for c in task_id)


def _sample(inspect: SimpleNamespace, it: Transcript, epoch: int, place: int) -> object:
    messages = [_chat(inspect, m, it) for m in it.messages]
    opening = messages[: len(turns_of(it.messages)[0])]
    scores = {**it.scores, **({} if it.reward is None else {"reward": it.reward})}
    ours: dict[str, Any] = {**it.about, "task_id": it.task_id, "model": it.model, "place": place}
    if it.fields is not None:
        ours["fields"] = dict(it.fields)
    if it.tools:
        ours["tools"] = [chat.tool_to_wire(t) for t in it.tools]
    last = next((m for m in reversed(messages) if m.role == "assistant"), None)
    choices = [inspect.model.ChatCompletionChoice(message=last, stop_reason="stop")] if last is not None else []
    return inspect.log.EvalSample(
        id=_file_name(it.task_id),
        epoch=epoch,
        input=opening,
        target="",
        messages=messages,
        output=inspect.model.ModelOutput(model=files.whole_text(it.model) or "unknown", choices=choices),
        scores={name: inspect.scorer.Score(value=value) for name, value in scores.items()},
        metadata={"clew": json.dumps(ours)},
    )


def _chat(inspect: SimpleNamespace, m: Message, it: Transcript) -> ChatMessage:
    """One of our messages as Inspect's, with what reading it back would lose beside it."""
    text = files.whole_text(m.text)  # Inspect takes no lone surrogates; they are kept beside
    common: dict[str, Any] = {"content": text}
    if m.reasoning:
        parts = [inspect.model.ContentReasoning(reasoning=files.whole_text(m.reasoning))]
        common["content"] = [*parts, inspect.model.ContentText(text=text)] if text else parts
    made: ChatMessage
    if m.role == "assistant":
        calls = [_call(inspect, c) for c in m.calls]
        made = inspect.model.ChatMessageAssistant(
            **common, tool_calls=calls or None, model=files.whole_text(it.model) or None
        )
    elif m.role == "tool":
        name = next((c.name for said in it.messages for c in said.calls if c.id == m.call_id), None)
        ids = {"tool_call_id": m.call_id and files.whole_text(m.call_id), "function": name and files.whole_text(name)}
        made = inspect.model.ChatMessageTool(**common, **ids)
    elif m.role == "system":
        made = inspect.model.ChatMessageSystem(**common)
    else:
        made = inspect.model.ChatMessageUser(**common)
    more = lost(m, _message(made))
    return made.model_copy(update={"metadata": {"clew": json.dumps(more)}}) if more else made


def _call(inspect: SimpleNamespace, call: ToolCall) -> object:
    names = {"id": files.whole_text(call.id), "function": files.whole_text(call.name)}
    try:
        value = files.loads(call.arguments)
        json.dumps(value, ensure_ascii=False).encode()  # a lone surrogate, escaped in the text, is a ValueError
    except ValueError:
        value = None
    if isinstance(value, dict):
        return inspect.tool.ToolCall(**names, arguments=value)
    return inspect.tool.ToolCall(**names, arguments={}, parse_error="the arguments are no JSON object")
