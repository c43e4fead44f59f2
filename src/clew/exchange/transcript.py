"""``Transcript``: the form between every file format and the record.

A format reads a file into transcripts, which ``record`` stores as runs; ``recall`` makes a transcript of a run.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, lru_cache
from itertools import zip_longest
from typing import Any, NamedTuple

from clew.core.errors import BadRecord
from clew.core.keys import NODE, REQUEST, canonical, derive, digest, encode, sampling_form
from clew.core.records import Annotation, Call, GroupRow, Node, RunRow, Setup, action_id, action_text
from clew.core.values import F32, Limits, Message, Sampling, StopReason, ToolSpec, Usage
from clew.exchange.beside import Value, as_annotations, of_run
from clew.harness import agents
from clew.harness.chain import Chain
from clew.harness.loading import source_digest
from clew.harness.run.asks import tools_digest
from clew.harness.run.lifecycle import FAILED
from clew.harness.run.nodes import as_message, make_node, message_json
from clew.harness.run.spec import task_json
from clew.store import Keeper, Run, new_id
from clew.store.paths import ends

AGENT = "clew.harness.agents:transcript"
ERROR = 2000  # characters of an error that a file tells
WRITTEN = "transcript:"  # model refs of imported replies begin so: such a name loads no model


class Meter(NamedTuple):
    """What one reply took. ``tokens`` are its sampled ids, ``logprobs`` float32 of the same length in nats."""

    usage: Usage = Usage()
    cost: float = 0.0  # US dollars
    seconds: float = 0.0
    tokens: tuple[int, ...] | None = None
    logprobs: F32 | None = None
    started: float = 0.0  # seconds since the epoch; 0 where it is not known
    model: str = ""  # who replied, where that is not the transcript's ``model``


class Transcript(NamedTuple):
    """One run as other programs know it: messages, tools, how it was judged.

    ``fields`` is what the file said and Clew has no name for; None for a run that was not imported. ``meters`` are
    those of the replies, in order, as far as they are known. ``others`` are further conversations of the run, of a
    sub-agent or after a compaction; ``other_meters`` are theirs.
    """

    messages: tuple[Message, ...]
    task_id: str = ""
    tools: tuple[ToolSpec, ...] = ()
    reward: float | None = None
    scores: Mapping[str, float] = {}
    model: str = ""
    meters: tuple[Meter, ...] = ()
    fields: Mapping[str, Any] | None = None
    others: tuple[tuple[Message, ...], ...] = ()
    about: Mapping[str, Any] = {}  # its id, agent, seed and the like; what ``record`` reads: ``stop`` and ``error``
    where: str = ""  # file:line, for errors
    values: tuple[Value, ...] = ()  # what methods say of the replies
    other_meters: tuple[tuple[Meter, ...], ...] = ()


class Turn(NamedTuple):
    """A reply and what came after it."""

    reply: Message
    acts: str  # calls, text or none
    answers: tuple[Message, ...]  # to its acts
    say: tuple[Message, ...]  # further messages before the next reply

    def to_json(self) -> dict[str, Any]:
        """What the transcript agent needs to know of it."""
        answers = [[m.role, m.extra] for m in self.answers]
        return {"acts": self.acts, "answers": answers, "say": [message_json(m) for m in self.say]}


def turns_of(messages: Sequence[Message]) -> tuple[list[Message], list[Turn]]:
    """Cut a conversation into its opening and its turns, as the transcript agent re-issues it.

    A reply's tool calls are acts where the next messages answer them in order; a reply without calls is an act where a
    user's message follows. All else is said, also what the assistant says before anybody else does.
    """
    first = next((i for i, m in enumerate(messages) if m.role != "assistant"), len(messages))
    starts = [i for i in range(first, len(messages)) if messages[i].role == "assistant"]
    opening = list(messages[: starts[0]] if starts else messages)
    turns = []
    for start, stop in zip(starts, [*starts, len(messages)][1:], strict=True):
        reply, after = messages[start], messages[start + 1 : stop]
        acts, answers = "none", list[Message]()
        if reply.calls and [(m.role, m.call_id) for m in after[: len(reply.calls)]] == [
            ("tool", call.id) for call in reply.calls
        ]:
            acts, answers = "calls", list(after[: len(reply.calls)])
        elif not reply.calls and after and after[0] == Message("user", after[0].text, extra=after[0].extra):
            acts, answers = "text", [after[0]]
        turns.append(Turn(reply, acts, tuple(answers), tuple(after[len(answers) :])))
    return opening, turns


def record(
    store: Keeper, it: Transcript, *, run: str = "", group: str = "", order: tuple[int, ...] = (), format: str = ""
) -> str:
    """Put a transcript into the store as a run of the agent ``transcript``; give its id. The caller commits.

    Args:
        run: its id; a new one by default.

    Raises:
        BadRecord: it has no messages.
    """
    if not it.messages:
        raise BadRecord(f"{it.where or 'the transcript'}: no messages", remedy="Give at least one message.")
    run = run or new_id()
    opening, turns = turns_of(it.messages)
    task_id = it.task_id or task_id_of(opening)
    prompt = next((m.text for m in opening if m.role == "user"), "")
    chain = Chain(run)
    chain.add("open", digest(REQUEST, b"open", encode(task_id)), setup=Setup(tools=it.tools) if it.tools else None)
    nodes, written = list[Node](), list[dict[str, Any]]()
    asked_at = _converse(chain, nodes, it, 0, opening, turns, it.meters)
    written += [turn.to_json() for turn in turns]
    conversations = 1
    for messages, meters in zip_longest(it.others, it.other_meters[: len(it.others)], fillvalue=()):
        begin, more = turns_of(messages)
        if more:  # what nobody replied to is no conversation
            _converse(chain, nodes, it, conversations, begin, more, meters)
            conversations += 1
            first, *rest = (turn.to_json() for turn in more)
            written += [{**first, "opening": [message_json(m) for m in begin]}, *rest]
    data = {"opening": [message_json(m) for m in opening], "turns": written}
    source = {"format": format, "from": it.where, "fields": dict(it.fields or {})}
    ended, error = _end(it, bool(written))
    if ended in FAILED:  # a further reply was asked for, and a replay ends there
        written.append({"acts": "none", "answers": [], "say": []})
    outside = "" if ended == StopReason.RETURNED else "stopped"
    chain.add("end", digest(REQUEST, b"end"), action=ended, text=outside, error=error)
    name = plain(it.model)
    task, model = json.dumps(task_json(task_id, prompt, data, Limits())), WRITTEN + name if name else ""
    row = RunRow(run, AGENT, "", model, task_id, task, _agent_digest(), group=group, order=order)
    began = next((meter.started for meter in it.meters if meter.started > 0), time.time())
    row = row._replace(origin="import", created=began, meta=json.dumps({"import": source}))
    _put(store, it, chain, nodes, row)
    store.annotate(as_annotations(it.values, run, asked_at))
    return run


def _end(it: Transcript, replied: bool) -> tuple[StopReason, str]:
    """How an imported run ended, and with what error: as its file says of a failure, else by its replies."""
    said = it.about.get("stop")
    if said in FAILED:
        return StopReason(said), str(it.about.get("error", ""))[:ERROR]
    return StopReason.RETURNED if replied else StopReason.CANCELLED, ""


def _converse(
    chain: Chain,
    nodes: list[Node],
    it: Transcript,
    index: int,
    opening: Sequence[Message],
    turns: Sequence[Turn],
    meters: Sequence[Meter],
) -> dict[int, int]:
    """Add the Calls and nodes of one conversation; gives the Call that made each of its messages, by their places."""
    start, asked_at = len(nodes), dict[int, int]()

    def say(message: Message) -> Node:
        nodes.append(make_node(nodes[-1] if len(nodes) > start else None, message, None, ""))
        return nodes[-1]

    for message in opening:
        say(message)
    early = sum(m.role == "assistant" for m in opening)
    asked, offered = canonical(sampling_form(Sampling())), tools_digest(it.tools)
    setups = dict[str, Setup]()
    for place, turn in enumerate(turns):
        meter = meters[early + place] if early + place < len(meters) else Meter()
        tip, reply = nodes[-1], say(turn.reply)
        name = plain(meter.model or it.model)
        setup = setups.setdefault(name, Setup(WRITTEN + name, 0, Sampling(), Sampling(), it.tools, name))
        took = {"usage": meter.usage, "cost": meter.cost, "seconds": meter.seconds, "started": meter.started}
        where = {"conversation": index, "node_in": tip.key, "node_out": reply.key, "seed": _seed(len(chain.calls))}
        finish = "tool_calls" if turn.reply.calls else "stop"
        request = digest(REQUEST, b"ask", tip.key, asked, offered, b"")
        asked_at[len(nodes) - 1 - start] = len(chain.calls)
        chain.add("ask", request, finish=finish, setup=setup, **where, **took)
        for n, answer in enumerate(turn.answers):
            tool = turn.acts == "calls"
            action = action_text(turn.reply.calls[n] if tool else turn.reply.text)
            finish = "tool" if tool else ""
            request = digest(REQUEST, b"act", finish.encode(), encode(action))
            chain.add("act", request, action=action, text=answer.text, finish=finish)
            say(answer)
        for message in turn.say:
            say(message)
    return asked_at


@lru_cache(maxsize=1024)
def _seed(seq: int) -> int:
    """The seed of a reply, the same in every imported run."""
    return derive(0, seq)


@cache
def _agent_digest() -> str:
    """Finding the source of a function costs as much as importing a run."""
    return source_digest(agents.transcript)


def _put(store: Keeper, it: Transcript, chain: Chain, nodes: Iterable[Node], row: RunRow) -> None:
    store.put_run(row)
    store.put_nodes(nodes)
    for call in chain.calls:
        store.put_call(row.id, call)
    scores = {**it.scores, **({} if it.reward is None else {"reward": it.reward})}
    store.annotate(Annotation("run", name, float(v), run=row.id, scope=row.id) for name, v in scores.items())


def record_group(store: Keeper, task_id: str, group: str, runs: Sequence[str], name: str) -> None:
    store.put_group(GroupRow(group, "iid", task_id, tuple(runs), name))


def task_id_of(opening: Sequence[Message]) -> str:
    """A task id for files that name none: equal openings are one task."""
    return "task-" + digest(NODE, *[encode(json.dumps(message_json(m), sort_keys=True)) for m in opening]).hex()[:12]


def recall(run: Run) -> Transcript:
    """A run as other programs know it: what was sent to its models and what they replied.

    A message is what the prompt of some ask holds, or a reply. What no ask ever showed to a model is none: the acts of
    an agent that asks nothing, or a result that came after the last ask, which is in ``about`` as ``after``. (An
    imported run has also what its file says after the last reply.) The conversation with the most messages, of several
    the first, is ``messages``; the others are ``others``.
    """
    asks = [c for c in run.calls if c.kind == "ask" and c.done >= 0]
    opened = run.calls[0].setup if run.calls else None
    found = run.store.annotations([run.id], target="run")
    scores = {a.method: a.value for a in found if a.value is not None and a.method != "reward"}
    meta = json.loads(run.row.meta or "{}").get("import")
    about = {"run": run.id, "agent": run.agent, "taskset": run.taskset, "seed": run.seed, "stop": run.stop or ""}
    about["after"] = _results(run, asks) if asks and run.agent != AGENT else ""
    said = ends(run, asks)
    main = max(range(len(said)), key=lambda i: (len(said[i]), -i), default=0)
    path = said.pop(main) if said else []
    own = {node.key for node in path}
    set_up = [c for c in reversed(asks) if c.setup is not None]
    last = next((c.setup for c in set_up if c.node_out in own), set_up[0].setup if set_up else None)
    model = plain((last.served_by or last.model) if last is not None else run.model)
    return Transcript(
        _opening(run, not asks) + tuple(node.message for node in path) + _after(run, asks, path),
        run.task_id,
        last.tools if last is not None else opened.tools if opened is not None else (),
        run.reward,
        scores,
        model,
        _meters(path, asks, model),
        meta.get("fields", {}) if meta is not None else None,
        tuple(tuple(node.message for node in other) for other in said),
        {k: v for k, v in {**about, "group": run.group, "parent": run.row.parent}.items() if v not in ("", [])},
        run.id,
        of_run(run, path, asks),
        tuple(_meters(other, asks, model) for other in said),
    )


def _results(run: Run, asks: Sequence[Call]) -> list[dict[str, Any]]:
    """What came of acts after the last ask, in order: the call's id where a tool was called, the text, and whether the
    episode was over with it."""
    acts = [c for c in run.calls[asks[-1].seq + 1 :] if c.kind == "act" and c.done >= 0 and not c.error]
    ids = [{"call": action_id(c)} if c.finish == "tool" else {} for c in acts]
    return [{**named, "text": c.text, "done": c.terminal} for named, c in zip(ids, acts, strict=True)]


def plain(model: str) -> str:
    """A model's name without the mark of imported replies, however often a round trip has put it there."""
    while model.startswith(WRITTEN):
        model = model.removeprefix(WRITTEN)
    return model


def _meters(path: Sequence[Node], asks: Sequence[Call], model: str) -> tuple[Meter, ...]:
    """What each reply on a path took; one that was said and not sampled took nothing."""
    made = {call.node_out: call for call in reversed(asks)}
    return tuple(_meter(node, made.get(node.key), model) for node in path if node.message.role == "assistant")


def _meter(node: Node, call: Call | None, usual: str) -> Meter:
    if call is None:
        return Meter()
    tokens = None if node.ids is None else node.ids[call.head + call.forced :]
    logprobs = call.logprobs if tokens is not None and call.logprobs is not None else None
    model = plain(call.setup.served_by or call.setup.model) if call.setup is not None else usual
    return Meter(call.usage, call.cost, call.seconds, tokens, logprobs, call.started, "" if model == usual else model)


def _written(run: Run) -> Mapping[str, Any]:
    """What the task of an imported run holds of its file; empty for other runs."""
    return json.loads(run.row.task)["data"] if run.agent == AGENT and run.row.task else {}


def _opening(run: Run, unasked: bool) -> tuple[Message, ...]:
    """All that the file of an imported run says where it has no reply."""
    return tuple(as_message(m) for m in _written(run).get("opening", ())) if unasked else ()


def _after(run: Run, asks: Sequence[Call], path: Sequence[Node]) -> tuple[Message, ...]:
    """What the file of an imported run says after the last reply of this path: no ask shows it."""
    turns = _written(run).get("turns", ())
    if not asks or not asks[-1].node_out or len(asks) > len(turns) or path[-1].key != asks[-1].node_out:
        return ()
    turn, said = turns[len(asks) - 1], list[Message]()
    acts = [c for c in run.calls[asks[-1].seq + 1 :] if c.kind == "act" and not c.error]
    for (role, extra), call in zip(turn["answers"], acts, strict=False):
        tool = call.finish == "tool"
        call_id = action_id(call) if tool else None
        said.append(Message("tool" if tool else role, call.text, call_id=call_id, extra=extra or call.extra))
    if len(acts) == len(turn["answers"]):
        said += [as_message(m) for m in turn["say"]]
    return tuple(said)


def lost(message: Message, read: Message) -> dict[str, Any]:
    """What a format that gives ``read`` for ``message`` has to be told besides, as JSON."""
    known, seen = message_json(message), message_json(read)
    return {k: known.get(k) for k in known | seen if known.get(k) != seen.get(k)}


def regained(read: Message, more: Mapping[str, Any]) -> Message:
    """The inverse of ``lost``."""
    return as_message({k: v for k, v in {**message_json(read), **more}.items() if v is not None})
