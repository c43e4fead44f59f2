"""ATIF, Harbor's Agent Trajectory Interchange Format (harbor, rfcs/0001-trajectory-format), one run a JSON document.

Written as version 1.8, read from 1.0 on. A path that ends in .json takes one run; a path that ends in .atif.jsonl takes
one document a line. What ATIF has no field for is kept under ``extra.clew``; what we have none for, in the message.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from clew.core.errors import BadInput, BadRecord
from clew.core.values import Message, ToolCall, Usage
from clew.exchange import files
from clew.exchange.beside import read as read_values
from clew.exchange.beside import to_json
from clew.exchange.files import Skipped, brief
from clew.exchange.openai_jsonl import number, scores_of
from clew.exchange.transcript import Meter, Transcript, lost, regained
from clew.models.dialects import chat, text_of

VERSION = "ATIF-v1.8"
SUFFIXES = (".json", ".atif.jsonl")
SOURCES = {"system": "system", "user": "user", "agent": "assistant"}
NEEDS = "Give a trajectory as Harbor writes it, with schema_version, agent and steps."
INNER = "subagent_trajectories"
VERSIONED = re.compile(rb'"schema_version"\s*:')
STEP = {"step_id", "source", "message", "reasoning_content", "tool_calls", "observation", "metrics"}
Json = dict[str, Any]


def recognises(head: bytes, suffix: str) -> bool:
    """Whether a file that begins so is a trajectory: all of them name their version."""
    return suffix == ".json" and VERSIONED.search(head) is not None


def read(path: Path) -> Iterator[Transcript | BadRecord]:
    """Transcripts of a document, or of a file with one document a line; one that is none gives its error.

    Trajectories of sub-agents that a document holds are conversations of its run; those that it only names are listed.

    Raises:
        BadInput: the file cannot be opened.
    """
    if path.name.endswith(".jsonl"):
        documents = ((f"{path.name}:{n}", line) for n, line in files.lines(path))
    else:
        documents = (one for one in [(path.name, files.whole(path))])
    for where, text in documents:
        try:
            data = files.loads(text)
            it = transcript_of(data, where)
            if gone := _elsewhere(data):
                told = f"{where}: {len(gone)} trajectories of sub-agents are in other files: {', '.join(gone[:5])}"
                yield Skipped(told, remedy="The rest of the trajectory is imported; import these files too.")
            yield it
        except BadRecord as error:
            yield BadRecord(f"{where}: {error.message}", remedy=error.remedy or NEEDS)
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
            yield BadRecord(f"{where}: {error}", remedy=NEEDS)


def transcript_of(data: object, where: str = "") -> Transcript:
    """A document as a transcript.

    Raises:
        BadRecord: it is no trajectory, or of a version that is not known.
    """
    schema = str(data.get("schema_version", "")) if isinstance(data, dict) else ""
    if not isinstance(data, dict) or not schema.startswith("ATIF-v1."):
        raise BadRecord(f"schema_version {brief(schema)} is not ATIF-v1", remedy=NEEDS)
    messages, meters = _said(data.get("steps"))
    inner = [_said(one.get("steps"), str((one.get("agent") or {}).get("model_name") or "")) for one in _inside(data)]
    ours = (data.get("extra") or {}).get("clew") or {}
    agent = data.get("agent") or {}
    tools = [chat.tool_from_wire(t) for t in agent.get("tool_definitions") or ()]
    return Transcript(
        messages,
        str(ours.get("task_id") or ""),
        tuple(tools),
        number(ours.get("reward"), "reward"),
        scores_of(ours.get("scores") or {}),
        str(agent.get("model_name") or ""),
        meters,
        ours["fields"] if "fields" in ours else _fields(data),
        tuple(said for said, _ in inner),
        where=where,
        values=read_values(ours.get("annotations"), [m.role for m in messages]) or (),
        other_meters=tuple(took for _, took in inner),
    )


def _fields(data: Json) -> Json:
    """What a document says beside its steps, and each trajectory of a sub-agent beside its own."""
    kept = {k: v for k, v in data.items() if k != "steps"}
    heads = [{k: v for k, v in one.items() if k not in ("steps", INNER)} for one in _inside(data)]
    return kept | ({INNER: heads} if heads else {})


def _said(steps: object, model: str = "") -> tuple[tuple[Message, ...], tuple[Meter, ...]]:
    """The messages of a trajectory's steps, and what each reply took."""
    if not isinstance(steps, list) or not steps:
        raise BadRecord("no steps", remedy=NEEDS)
    messages, meters = list[Message](), list[Meter]()
    for step in steps:
        if not isinstance(step, dict) or step.get("source") not in SOURCES:
            source = step.get("source") if isinstance(step, dict) else step
            raise BadRecord(f"a step of source {brief(source)}", remedy=NEEDS)
        messages += _messages(step)
        if step["source"] == "agent":
            meters.append(_meter(step.get("metrics") or {})._replace(model=str(step.get("model_name") or model)))
    return tuple(messages), tuple(meters)


def _inside(data: Json) -> list[Json]:
    """The trajectories of sub-agents that a document holds, those of their own sub-agents among them."""
    found = list[Json]()
    for one in data.get(INNER) or ():
        if not isinstance(one, dict):
            raise BadRecord("the trajectory of a sub-agent is no object", remedy=NEEDS)
        found += [one, *_inside(one)]
    return found


def _elsewhere(data: Json) -> list[str]:
    """The trajectories of sub-agents that results name and the document does not hold, as errors quote them."""
    every = [data, *_inside(data)]
    here = {str(one.get(name)) for one in every for name in ("session_id", "trajectory_id") if one.get(name)}
    found = dict[str, None]()
    for step in (step for one in every for step in one["steps"]):
        for result in (step.get("observation") or {}).get("results") or ():
            for ref in result.get("subagent_trajectory_ref") or ():
                names = [str(ref.get(k)) for k in ("trajectory_id", "session_id") if ref.get(k)]
                if not here & set(names):
                    found[brief(ref.get("trajectory_path") or (names or [ref])[0])] = None
    return list(found)


def _messages(step: Json) -> list[Message]:
    """The message of a step, and those of its observation."""
    calls = tuple(
        ToolCall(str(c.get("tool_call_id", "")), str(c["function_name"]), json.dumps(c.get("arguments", {})))
        for c in step.get("tool_calls") or ()
    )
    text, reasoning = text_of(step.get("message")), step.get("reasoning_content") or ""
    kept = {k: v for k, v in step.items() if k not in STEP}
    if not isinstance(step.get("message", ""), str):
        kept["message"] = step["message"]
    out = [_regained(Message(SOURCES[step["source"]], text, reasoning, calls), kept)]
    for result in (step.get("observation") or {}).get("results") or ():
        call_id, content = result.get("source_call_id"), result.get("content")
        role = "tool" if call_id is not None else "user"
        kept = {k: v for k, v in result.items() if k not in ("source_call_id", "content")}
        if not isinstance(content, (str, type(None))):
            kept["content"] = content
        out.append(_regained(Message(role, text_of(content), call_id=call_id), kept))
    return out


def _regained(message: Message, kept: Json) -> Message:
    """A message with what we once put beside it; else with what the file says that we have no field for."""
    extra = kept.get("extra") or {}
    if "clew" in extra:
        return regained(message, extra["clew"])
    return message._replace(extra=json.dumps({"atif": kept}, sort_keys=True)) if kept else message


def _meter(metrics: Mapping[str, Any]) -> Meter:
    counts = [int(number(metrics.get(k), k) or 0) for k in ("prompt_tokens", "completion_tokens", "cached_tokens")]
    if not all(0 <= n < 1 << 53 for n in counts):
        raise BadRecord(f"a step took {brief(counts)} tokens", remedy="Give counts of tokens.")
    ids, logprobs = metrics.get("completion_token_ids"), metrics.get("logprobs")
    return Meter(
        Usage(*counts),
        number(metrics.get("cost_usd"), "cost_usd") or 0.0,
        tokens=tuple(ids) if ids else None,
        logprobs=np.array(logprobs, np.float32) if logprobs else None,
    )


def document_of(it: Transcript) -> Json:
    """A transcript as a document; its further conversations are trajectories of sub-agents."""
    steps = _steps(it.messages, it.meters)
    agent: Json = {"name": str(it.about.get("agent", "unknown")), "version": version("clew")}
    if it.model:
        agent["model_name"] = it.model
    if it.tools:
        agent["tool_definitions"] = [chat.tool_to_wire(t) for t in it.tools]
    ours: Json = {"task_id": it.task_id, "reward": it.reward, "scores": dict(it.scores), **it.about}
    ours = {k: v for k, v in ours.items() if v not in (None, "", {})}
    if it.fields is not None:
        ours["fields"] = dict(it.fields)
    if it.values:
        ours["annotations"] = to_json(it.values)
    inner = _inner(it)
    usage = [m.usage for m in it.meters]
    total = {
        "total_prompt_tokens": sum(u.prompt for u in usage),
        "total_completion_tokens": sum(u.completion for u in usage),
        "total_cached_tokens": sum(u.cached for u in usage),
        "total_cost_usd": sum(m.cost for m in it.meters),
    }
    total = {name: count for name, count in total.items() if count} | {"total_steps": len(steps)}  # 0: nobody counted
    return {
        "schema_version": VERSION,
        "session_id": str(it.about.get("run", it.where or it.task_id)),
        "agent": agent,
        "steps": steps,
        **({INNER: inner} if inner else {}),
        "final_metrics": total,
        "extra": {"clew": ours},
    }


def _steps(messages: Sequence[Message], took: Sequence[Meter]) -> list[Json]:
    """The steps of a conversation; results stand with the calls that they answer."""
    steps, meters, open_calls = list[Json](), iter(took), set[str]()
    for message in messages:
        if message.role == "tool" and message.call_id in open_calls:
            open_calls.discard(message.call_id)
            steps[-1].setdefault("observation", {"results": []})["results"].append(_result(message))
            continue
        steps.append({"step_id": len(steps) + 1, **_step(message)})
        open_calls = {call.id for call in message.calls}
        if message.role == "assistant":
            _measure(steps[-1], next(meters, Meter()))
    return steps


def _inner(it: Transcript) -> list[Json]:
    """The further conversations of a run as trajectories; one that came so has its ids and its agent back."""
    heads = (it.fields or {}).get(INNER)
    heads = heads if isinstance(heads, list) and len(heads) == len(it.others) else [{} for _ in it.others]
    found = list[Json]()
    for place, (messages, head) in enumerate(zip(it.others, heads, strict=True)):
        took = it.other_meters[place] if place < len(it.other_meters) else ()
        model = next((meter.model for meter in took if meter.model), it.model)
        agent = {"name": "unknown", "version": "unknown"} | ({"model_name": model} if model else {})
        usual = {"schema_version": VERSION, "trajectory_id": f"{it.about.get('run', it.where)}-{place + 1}"}
        found.append({**usual, "agent": agent, **head, "steps": _steps(messages, took)})
    return found


def _step(message: Message) -> Json:
    source = {"assistant": "agent", "system": "system"}.get(message.role, "user")
    step: Json = {"source": source, "message": message.text}
    if source == "agent":
        if message.reasoning:
            step["reasoning_content"] = message.reasoning
        if message.calls:
            step["tool_calls"] = [
                {"tool_call_id": c.id, "function_name": c.name, "arguments": _arguments(c.arguments)}
                for c in message.calls
            ]
    return _beside(step, message, _messages(step)[0])


def _result(message: Message) -> Json:
    result = {"source_call_id": message.call_id, "content": message.text}
    return _beside(result, message, Message("tool", message.text, call_id=message.call_id))


def _beside(written: Json, message: Message, read: Message) -> Json:
    """Add what ATIF itself said of the message once, and what reading it back would lose."""
    try:
        kept = json.loads(message.extra or "{}").get("atif")
    except (ValueError, AttributeError):
        kept = None
    if isinstance(kept, dict) and text_of(kept.get("message", kept.get("content", message.text))) == message.text:
        return {**written, **kept}
    more = lost(message, read)
    return {**written, "extra": {"clew": more}} if more else written


def _arguments(text: str) -> Json:
    try:
        value = files.loads(text)
    except ValueError:
        value = None
    return value if isinstance(value, dict) else {}


def _measure(step: Json, meter: Meter) -> None:
    metrics: Json = {}
    if meter.usage != Usage():
        names = ("prompt_tokens", "completion_tokens", "cached_tokens")
        metrics = {name: count for name, count in zip(names, meter.usage, strict=True) if count}  # 0: nobody counted
    if meter.cost:
        metrics["cost_usd"] = meter.cost
    if meter.tokens is not None:
        metrics["completion_token_ids"] = list(meter.tokens)
        if meter.logprobs is not None:
            metrics["logprobs"] = [float(v) for v in meter.logprobs]
    if metrics:
        step["metrics"] = metrics


def write(path: Path, transcripts: Iterable[Transcript]) -> int:
    """Write one document, or one a line where the path ends in .jsonl; gives their number.

    Raises:
        BadInput: several runs and a path for one, or the file cannot be written.
    """
    if path.name.endswith(".jsonl"):
        count = 0
        with files.writing(path) as file:
            for it in transcripts:
                file.write(files.dumps(document_of(it)) + b"\n")
                count += 1
        return count
    all_of_them: Sequence[Transcript] = list(transcripts)
    if len(all_of_them) != 1:
        remedy = "Choose one run, or a path that ends in .atif.jsonl for one document a line."
        raise BadInput(f"{len(all_of_them)} runs and one ATIF document ({path.name})", remedy=remedy)
    with files.writing(path) as file:
        file.write(files.dumps(document_of(all_of_them[0]), indent=2))
    return 1
