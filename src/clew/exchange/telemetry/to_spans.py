"""A run as spans: ``invoke_agent`` for the run, ``chat`` for each reply, ``execute_tool`` for each act.

Ids are digests of run and Call, so that a run which is exported twice is one trace. What the conventions have no name
for stands under ``clew.``; Phoenix and Langfuse are told kind, tokens and cost by the names that they read besides.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from clew.core.errors import UnknownName
from clew.core.records import Call, Cursor, action_of
from clew.core.values import ToolCall, Usage
from clew.exchange.files import whole_text
from clew.exchange.telemetry.gen_ai import message_to_json, tool_to_json
from clew.exchange.telemetry.span import CLIENT, Event, Span, Value
from clew.exchange.transcript import Transcript, plain, recall
from clew.harness.run.lifecycle import FAILED
from clew.store import Run

PROVIDERS = {"openai.com": "openai", "anthropic.com": "anthropic", "x.ai": "x_ai", "deepseek.com": "deepseek"}
SHOWN = 10_000  # characters of a text that is repeated for Phoenix's lists


def spans_of_run(run: Run) -> Iterator[Span]:
    """The spans of a run, the root first. The trace is that of the run which no other run spawned."""
    calls, trace = run.calls, trace_id(root_of(run))
    about = recall(run)
    began = next((call.started for call in calls if call.started), 0.0) or run.row.created
    place = _span_id(run.id)
    spans = [_span(run, call, about, trace, place, began) for call in calls if _shown(call)]
    start = int(began * 1e9)
    yield Span(
        trace,
        place,
        _parent(run),
        f"invoke_agent {whole_text(_agent(run))}",
        start,
        max([start + 1000 * len(calls), *(span.end for span in spans)]),
        _of_run(run, about),
        error=whole_text(calls[-1].error or str(run.stop))[:SHOWN] if run.stop in FAILED else "",
        events=tuple(_scores(about, start)),
    )
    yield from spans


def trace_id(run: str) -> str:
    """The id of the trace of a run that nothing spawned."""
    return hashlib.blake2b(f"clew trace {run}".encode(), digest_size=16).hexdigest()


def _span_id(run: str, seq: int | None = None) -> str:
    return hashlib.blake2b(f"clew span {run} {seq}".encode(), digest_size=8).hexdigest()


def root_of(run: Run) -> str:
    """The run that spawned this one, that which spawned it, and so on: the first, by id."""
    seen, row = {run.id}, run.row
    while row.spawned_by:
        above = Cursor.parse(row.spawned_by).run
        if above in seen:
            break
        seen.add(above)
        try:
            row = run.store.row(above)
        except UnknownName:  # it was not taken along into this store
            return above
    return row.id


def _parent(run: Run) -> str:
    if not run.row.spawned_by:
        return ""
    at = Cursor.parse(run.row.spawned_by)
    return _span_id(at.run, at.seq)


def _shown(call: Call) -> bool:
    return call.kind in ("ask", "act", "spawn") and call.done >= 0


def _agent(run: Run) -> str:
    return run.agent.rsplit(":", 1)[-1]


def _of_run(run: Run, about: Transcript) -> dict[str, Value]:
    found: dict[str, Any] = {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.provider.name": provider(run.model),
        "gen_ai.agent.name": _agent(run),
        "gen_ai.agent.id": run.agent,
        "gen_ai.conversation.id": run.id,
        "gen_ai.request.model": about.model,
        "openinference.span.kind": "AGENT",
        "session.id": run.id,
        "clew.run": run.id,
        "clew.task_id": run.task_id,
        "clew.taskset": run.taskset,
        "clew.group": run.group,
        "clew.parent": run.row.parent,
        "clew.stop": run.stop or "",
        "clew.seed": run.seed if run.row.origin != "import" else None,
        "clew.cost_usd": run.cost,
        "clew.reward": about.reward,
    }
    if about.tools:
        found["gen_ai.tool.definitions"] = _json([tool_to_json(tool) for tool in about.tools])
    asked = any(call.kind == "ask" for call in run.calls)
    last = max((i for i, m in enumerate(about.messages) if m.role == "assistant"), default=-1) if asked else -1
    first = next((m for m in about.messages if m.role == "user"), None)
    if first is not None:
        found["input.value"] = first.text[:SHOWN]
    if last >= 0:
        found["output.value"] = about.messages[last].text[:SHOWN]
    if run.row.origin == "import" and (after := about.messages[last + 1 :]):  # no chat span shows them
        found["clew.messages.after"] = _json([message_to_json(message) for message in after])
    return _clean(found)


def _scores(about: Transcript, at: int) -> Iterator[Event]:
    """What judges said, as events of the conventions."""
    scores = {**about.scores, **({} if about.reward is None else {"reward": about.reward})}
    for name, value in scores.items():
        fields = {"gen_ai.evaluation.name": whole_text(name), "gen_ai.evaluation.score.value": float(value)}
        yield Event("gen_ai.evaluation.result", at, fields)


def _span(run: Run, call: Call, about: Transcript, trace: str, parent: str, began: float) -> Span:
    start = int((call.started or began) * 1e9) + (0 if call.started else 1000 * call.seq)
    name, kind, found = _ask(run, call, about) if call.kind == "ask" else _act(call)
    found |= {"clew.seq": call.seq, "clew.conversation": call.conversation if call.kind == "ask" else None}
    found["gen_ai.conversation.id"] = run.id
    if call.error:
        found["error.type"] = whole_text(call.error.split(":")[0].split("\n")[0])[:120]
    end = start + max(int(call.seconds * 1e9), 0)
    error = whole_text(call.error)[:SHOWN]
    return Span(trace, _span_id(run.id, call.seq), parent, whole_text(name), start, end, _clean(found), kind, error)


def _ask(run: Run, call: Call, about: Transcript) -> tuple[str, int, dict[str, Any]]:
    """Name, kind and attributes of a reply's span."""
    setup = call.setup
    model = plain(setup.model) if setup is not None else plain(run.model)
    served = plain(setup.served_by) if setup is not None and setup.served_by else model
    path = run.store.thread(call.node_in) if call.node_in else []
    found: dict[str, Any] = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": provider(model),
        "gen_ai.request.model": model,
        "gen_ai.response.model": served,
        "gen_ai.input.messages": _json([message_to_json(node.message) for node in path]),
        "openinference.span.kind": "LLM",
        "llm.model_name": served,
        "input.value": path[-1].message.text[:SHOWN] if path else "",
        "clew.cost_usd": call.cost,
    }
    if call.node_out:
        reply = run.reply(call.seq).message
        said = [reply, *(sample.message for sample in call.packed if sample.message != reply)]
        found["gen_ai.output.messages"] = _json([message_to_json(message, call.finish) for message in said])
        found["gen_ai.response.finish_reasons"] = [call.finish or "stop"] * len(said)
        found["output.value"] = reply.text[:SHOWN]
    if setup is not None and setup.tools != about.tools:
        found["gen_ai.tool.definitions"] = _json([tool_to_json(tool) for tool in setup.tools])
    if setup is not None and setup.in_force is not None and run.row.origin != "import":
        how = setup.in_force
        found |= {"gen_ai.request.temperature": float(how.temperature), "gen_ai.request.top_p": float(how.top_p)}
        found |= {"gen_ai.request.max_tokens": how.max_tokens, "gen_ai.request.seed": call.seed}
        found |= {"gen_ai.request.top_k": how.top_k or None, "gen_ai.request.stop_sequences": list(how.stop) or None}
    if call.usage != Usage():
        prompt, completion, cached = (count or None for count in call.usage)  # 0: nobody counted
        found |= {"gen_ai.usage.input_tokens": prompt, "gen_ai.usage.output_tokens": completion}
        found |= {"gen_ai.usage.cache_read.input_tokens": cached}
        found |= {"llm.token_count.prompt": prompt, "llm.token_count.completion": completion}
        if prompt and completion:
            found["llm.token_count.total"] = prompt + completion
    if call.cost and call.run == run.id:  # what a fork shares was paid for once
        found |= {"gen_ai.usage.cost": call.cost, "llm.cost.total": call.cost}  # read by Langfuse, by Phoenix
    return f"chat {served}", CLIENT, found


def _act(call: Call) -> tuple[str, int, dict[str, Any]]:
    """Name, kind and attributes of the span of an act, or of the spawning of another agent."""
    if call.kind == "spawn":
        fields = {"gen_ai.operation.name": "invoke_agent", "clew.child": call.child, "openinference.span.kind": "AGENT"}
        return f"spawn {call.child}", 1, fields
    action = action_of(call)
    if isinstance(action, ToolCall):
        name, arguments, id = action.name, action.arguments, action.id
    else:
        name, arguments, id = "act", json.dumps({"action": action}, ensure_ascii=False), ""
    return (
        f"execute_tool {name}",
        1,
        {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": name,
            "gen_ai.tool.type": "function",
            "gen_ai.tool.call.id": id,
            "gen_ai.tool.call.arguments": arguments,
            "gen_ai.tool.call.result": call.text,
            "openinference.span.kind": "TOOL",
            "tool.name": name,
            "input.value": arguments[:SHOWN],
            "output.value": call.text[:SHOWN],
            "clew.reward": call.reward,
        },
    )


def provider(model: str) -> str:
    """``gen_ai.provider.name`` of a model's reference: whose endpoint it is, else ``clew``."""
    host = urlsplit(model).hostname or "" if "://" in model else ""
    return next((name for end, name in PROVIDERS.items() if host == end or host.endswith("." + end)), "clew")


def _json(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if whole_text(text) == text else json.dumps(value)


def _clean(found: dict[str, Any]) -> dict[str, Value]:
    """Attributes that OTLP can carry: strict UTF-8, whole numbers of 64 bits; what is empty is left out."""
    out: dict[str, Value] = {}
    for name, value in found.items():
        if value is None or value == "" or (type(value) is int and not -(1 << 63) <= value < 1 << 63):
            continue
        if isinstance(value, list):
            out[name] = [whole_text(one) for one in value]
        else:
            out[name] = whole_text(str(value)) if isinstance(value, str) else value
    return out
