"""Inspect logs (``.eval``), read and written through inspect-ai, which is imported only when one is.

A sample's epoch is the run's place among those of its task. Of several scores the one called ``reward``, else the
first that is a number or one of Inspect's letters, is the reward; all are kept as annotations by their names.
What Inspect has no field for is kept in a message's ``metadata["clew"]``; what we have no field for (events, targets,
explanations and the like), as the whole sample in the text ``fields["inspect"]``, which an export begins with.
"""

from __future__ import annotations

import json
import math
import struct
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from clew.core.errors import BadRecord, need
from clew.core.values import Message, ToolCall, Usage
from clew.exchange import files
from clew.exchange.beside import read as read_values
from clew.exchange.beside import to_json
from clew.exchange.transcript import Meter, Transcript, lost, regained, turns_of
from clew.models.dialects import chat

if TYPE_CHECKING:
    from inspect_ai.log import EvalLog, EvalSample
    from inspect_ai.model import ChatMessage, ModelOutput

SUFFIXES = (".eval",)
LETTERS = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}  # inspect_ai.scorer: correct, partial, incorrect, no answer
BROKEN = (  # pydantic's errors are ValueErrors
    *(ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError, NotImplementedError, EOFError),
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
    for where, sample in sorted(samples, key=lambda pair: _place(_ours(pair[1]))):
        if sample.messages:
            yield _transcript(inspect, log, sample, where)
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


def _place(ours: Mapping[str, Any]) -> int:
    place = ours.get("place")
    return place if isinstance(place, int) else 0


def _transcript(inspect: SimpleNamespace, log: EvalLog, sample: EvalSample, where: str) -> Transcript | BadRecord:
    ours, scores = _ours(sample), _scores(sample)
    fields = {
        "sample": sample.id,
        "epoch": sample.epoch,
        "target": sample.target,
        "metadata": {k: v for k, v in _plain(sample.metadata).items() if k != "clew"},
        "eval": {"task": log.eval.task, "created": log.eval.created, "run_id": log.eval.run_id},
    }
    if sample.error is not None:
        fields["error"] = sample.error.message
    if ours.get("inspect", True):
        own = {k: v for k, v in sample.metadata.items() if k != "clew"}
        whole = inspect.log.condense_sample(sample.model_copy(update={"metadata": own}), log_images=True)
        fields["inspect"] = whole.model_dump_json(exclude_none=True)
    else:
        fields = {}
    try:
        return Transcript(
            tuple(_message(m) for m in sample.messages),
            str(ours.get("task_id", sample.id)),
            tuple(chat.tool_from_wire(t) for t in ours.get("tools", ())),
            scores["reward"] if "reward" in scores else _reward(sample, scores),
            {k: v for k, v in scores.items() if k != "reward"},
            str(ours.get("model", log.eval.model)),
            _meters(sample, ours),
            fields={**fields, **ours.get("fields", {})},
            where=where,
            values=read_values(ours.get("annotations"), [m.role for m in sample.messages]) or (),
        )
    except (BadRecord, *BROKEN) as error:  # in what an export of ours is said to have put beside the sample
        return BadRecord(f"{where}: {files.brief(str(error))}", remedy=NEEDS)


def _plain(metadata: dict[str, Any]) -> dict[str, Any]:
    """Metadata as JSON; what is none, as its text."""
    try:
        return dict(files.loads(json.dumps(metadata, default=str)))
    except (ValueError, TypeError):
        return {"text": str(metadata)}


def _scores(sample: EvalSample) -> dict[str, float]:
    """The scores of a sample that are numbers or one of Inspect's letters."""
    found: dict[str, float] = {}
    for name, score in (sample.scores or {}).items():
        values = score.value if isinstance(score.value, dict) else {"": score.value}
        for part, value in values.items():
            if (known := _value(value)) is not None:
                found[f"{name}/{part}" if part else name] = known
    return found


def _reward(sample: EvalSample, scores: Mapping[str, float]) -> float | None:
    """The first score that is a number. A dictionary with a part that is not a number gives none."""
    for name, score in (sample.scores or {}).items():
        parts = (
            [f"{name}/{part}" if part else name for part in score.value] if isinstance(score.value, dict) else [name]
        )
        if parts and all(part in scores for part in parts):
            return scores[parts[0]]
    return None


def _meters(sample: EvalSample, ours: Mapping[str, Any]) -> tuple[Meter, ...]:
    """What each reply took, by the events that made it."""
    if "took" in ours:
        return tuple(Meter(Usage(*map(int, usage or ())), float(cost), float(s)) for usage, cost, s in ours["took"])
    calls = [event for event in sample.events if event.event == "model" and event.output.choices]
    made = {choice.message.id: event for event in calls for choice in event.output.choices}
    meters = []
    for m in sample.messages:
        if m.role == "assistant":
            event = made.get(m.id) if m.id else None
            meters.append(Meter() if event is None else _meter(event.output))
    return tuple(meters)


def _meter(output: ModelOutput) -> Meter:
    used = output.usage
    if used is None:
        return Meter(seconds=output.time or 0.0)
    cached = used.input_tokens_cache_read or 0
    prompt = used.input_tokens + cached + (used.input_tokens_cache_write or 0)
    return Meter(Usage(prompt, used.output_tokens, cached), used.total_cost or 0.0, output.time or 0.0)


def _counted(usage: Usage) -> list[int] | None:
    """The tokens of a reply; None where nobody counted them."""
    return list(usage) if usage != Usage() else None


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
    samples, used, models, tasks = list[Any](), set[tuple[str | int, int]](), dict[str, None](), dict[str, None]()
    for it in transcripts:
        samples.append(_sample(inspect, it, used, len(samples)))
        models[it.model] = None
        tasks[str(((it.fields or {}).get("eval") or {}).get("task", "clew"))] = None
    ids = list(dict.fromkeys(sample.id for sample in samples))
    spec = inspect.log.EvalSpec(
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        task=next(iter(tasks)) if len(tasks) == 1 else "clew",
        model=files.whole_text(next(iter(models), "")) or "unknown",
        dataset=inspect.log.EvalDataset(name="clew", samples=len(ids), sample_ids=ids),
        config=inspect.log.EvalConfig(epochs=max((sample.epoch for sample in samples), default=1)),
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


def _sample(inspect: SimpleNamespace, it: Transcript, used: set[tuple[str | int, int]], place: int) -> EvalSample:
    """A transcript as a sample: the one it was read from, with what is new here, or one of its own."""
    fields = dict(it.fields or {})
    first = _read_from(inspect, fields.pop("inspect", None))
    messages = [_chat(inspect, m, it) for m in it.messages]
    ours: dict[str, Any] = {**it.about, "task_id": it.task_id, "model": it.model, "place": place}
    ours["inspect"] = first is not None
    if it.fields is not None:
        ours["fields"] = fields
    if it.tools:
        ours["tools"] = [chat.tool_to_wire(t) for t in it.tools]
    if it.values:
        ours["annotations"] = to_json(it.values)
    if it.meters:
        ours["took"] = [[_counted(m.usage), m.cost, m.seconds] for m in it.meters]
    id, epoch = (_file_name(it.task_id), 1) if first is None else (first.id, first.epoch)
    while (id, epoch) in used:
        epoch += 1
    used.add((id, epoch))
    update = {"id": id, "epoch": epoch, "scores": _scored(inspect, it, first)}
    if first is not None:
        known = dict(enumerate(first.messages))
        kept = [known[i] if i in known and _message(known[i]) == m else messages[i] for i, m in enumerate(it.messages)]
        metadata = {**first.metadata, "clew": json.dumps(ours)}
        return first.model_copy(update={**update, "messages": kept, "metadata": metadata})
    last = next((m for m in reversed(messages) if m.role == "assistant"), None)
    choices = [inspect.model.ChatCompletionChoice(message=last, stop_reason="stop")] if last is not None else []
    made: EvalSample = inspect.log.EvalSample(
        **update,
        input=messages[: len(turns_of(it.messages)[0])],
        target="",
        messages=messages,
        output=inspect.model.ModelOutput(model=files.whole_text(it.model) or "unknown", choices=choices),
        metadata={"clew": json.dumps(ours)},
    )
    return made


def _read_from(inspect: SimpleNamespace, text: object) -> EvalSample | None:
    """The sample that an imported run was read from; None where there is none."""
    try:
        found = inspect.log.EvalSample.model_validate_json(text) if isinstance(text, str) else None
    except BROKEN:
        return None
    return found and inspect.log.resolve_sample_attachments(found, "full")


def _scored(inspect: SimpleNamespace, it: Transcript, first: EvalSample | None) -> dict[str, Any]:
    """The scores as they were read, with explanations and all, where they still hold; those given here beside them."""
    now = {**it.scores, **({} if it.reward is None else {"reward": it.reward})}
    then = _scores(first) if first is not None else {}
    if then and "reward" not in then and next(iter(then.values())) == it.reward:
        del now["reward"]  # it was one of the scores
    kept = {}
    for name, score in ((first.scores or {}) if first is not None else {}).items():
        parts = [known for known in then if known == name or known.startswith(f"{name}/")]
        if all(now.get(part) == then[part] for part in parts):
            kept[name] = score
            now = {k: v for k, v in now.items() if k not in parts}
    return {**kept, **{name: inspect.scorer.Score(value=value) for name, value in now.items()}}


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
