"""The transcript of a run for the page: Calls by range, the messages between them, tokens with their values."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from clew.core.json_values import plain
from clew.core.records import Annotation, Call, Node, RunRow, action_of
from clew.core.values import F32, Message, ToolCall
from clew.models.compose.decision import asked_of, decision_of
from clew.store import Keeper
from clew.store.labels import METHOD as LABELS
from clew.store.run import did
from clew.store.slices import Slice, Unfinished
from clew.view.pages.pictures import parts
from clew.view.pages.tokens import SHOWN, tokens
from clew.view.recalls import Worths, recalled

CUT = 20_000  # characters of one text in a page; the whole is read by itself
PAGE = 500  # Calls of one page at most
COUNTED = 2_000  # Calls up to which messages are counted from the first; beyond, only their keys name them
SAID = 200  # messages before one ask at most
LOOK_BACK = 64  # Calls before a page in which the conversation's last ask is looked for first
LOOK_AHEAD = 64  # Calls after a page in which the results of its last reply are looked for


def cut(text: str) -> dict[str, Any]:
    """A text, and its whole length where only its beginning is given."""
    return {"text": text} if len(text) <= CUT else {"text": text[:CUT], "cut": len(text)}


def _head(values: F32 | None) -> F32 | None:
    """What is given of values per token."""
    return None if values is None else values[:SHOWN]


def calls(store: Keeper, run: str, start: int, stop: int) -> list[dict[str, Any]]:
    """Calls ``start`` up to but excluding ``stop`` of a run, with all that is shown of each.

    Raises:
        UnknownName: no such run.
    """
    row = store.row(run)
    stop = min(stop, start + PAGE)
    before = _before(store, run, start, stop)
    page = store.calls(run, start, stop)
    path = [*before, *page, *_after(store, run, page)]
    shown = _Page(store, row, path, values_on(store, row, start, stop))
    return [shown.call(call) for call in page]


def _before(store: Keeper, run: str, start: int, stop: int) -> list[Call]:
    """What the page needs to know of the Calls before it: the last ask of each of its conversations."""
    if stop <= COUNTED:
        return store.calls(run, 0, start)
    wanted = {call.conversation for call in store.calls(run, start, stop) if call.kind == "ask"}
    back = LOOK_BACK
    while True:
        found = store.calls(run, max(start - back, 0), start)
        if back >= start or wanted <= {call.conversation for call in found if call.kind == "ask"}:
            return found
        back *= 8


def _after(store: Keeper, run: str, page: Sequence[Call]) -> list[Call]:
    """Calls after a page that ends among tool calls, up to the ask that passes their results on."""
    last = page[-1] if page else None
    if last is None or not (last.finish == "tool" or (last.kind == "ask" and last.finish == "tool_calls")):
        return []
    found = store.calls(run, last.seq + 1, last.seq + 1 + LOOK_AHEAD)
    asked = next((place for place, call in enumerate(found) if call.kind == "ask"), len(found))
    return found[: asked + 1]


def failed(text: str, error: str = "") -> bool:
    """Whether the result of a tool call is an error: the call broke, or its text begins as `clew.harness.tools` and
    most programs begin an error."""
    return bool(error) or text[:8].lower().startswith(("error:", "error "))


def values_on(store: Keeper, row: RunRow, start: int, stop: int, method: str | None = None) -> list[Annotation]:
    """Annotations on Calls of a range of a run's path, those filed under the runs it shares them with included."""
    owners = [(s.run, max(s.start, start), min(s.stop, stop)) for s in row.lineage]
    found = [a for run, low, high in owners if low < high for a in store.annotations([run], method, seqs=(low, high))]
    return [*found, *store.annotations([row.id], method, seqs=(start, stop))]


class _Page:
    """Shows the Calls of one page; knows what came before them."""

    def __init__(self, store: Keeper, row: RunRow, path: Sequence[Call], values: Iterable[Annotation]) -> None:
        self.store = store
        self.nodes = store.nodes(key for c in path if c.kind == "ask" for key in (c.node_in, c.node_out) if key)
        runs = [row.id, *dict.fromkeys(s.run for s in row.lineage)]
        self.drifted = {a.node for a in store.annotations(runs, "drift", "node")}
        self.marks = by_call(row, values)
        self.worths = Worths(store)
        self.wished: dict[str, tuple[int, ToolCall]] = {}  # by its id: the ask that wished a tool call, and the call
        self.acts: dict[tuple[int, str], int] = {}  # by ask and id: the act that performed it
        self.asks: dict[int, int] = {}  # by act: the ask that wished it
        self.said: dict[int, list[dict[str, Any]]] = {}
        self._follow(path)
        self.passed = {m["from"]: m for said in self.said.values() for m in said if m.get("passed")}

    def _follow(self, path: Sequence[Call]) -> None:
        """Along the path: which act performs which tool call, and what was said before each ask."""
        told = self._said(path)
        for call in path:
            if call.kind == "ask":
                self.said[call.seq] = [m | self._answers(m["call_id"]) for m in told[call.seq]]
                node = self.nodes.get(call.node_out)
                self.wished |= {one.id: (call.seq, one) for one in (node.message.calls if node else ())}
            elif call.finish == "tool" and (known := self.wished.get(_id(call))) is not None:
                self.acts[known[0], known[1].id] = call.seq
                self.asks[call.seq] = known[0]

    def _answers(self, id: str | None) -> dict[str, Any]:
        """Which tool call a message answers: its name, and the ask that wished it."""
        known = self.wished.get(id or "")
        return {"tool": known[1].name[:CUT], "of": known[0]} if known else {}

    def _said(self, path: Sequence[Call]) -> dict[int, list[dict[str, Any]]]:
        """By ask the messages that the agent said since the conversation's last ask."""
        counts = bool(path) and path[0].seq == 0
        replies = {c.node_out for c in path if c.kind == "ask" and c.node_out}
        tips: dict[int, bytes] = {}
        seen: dict[int, set[bytes]] = {}
        told: dict[int, list[dict[str, Any]]] = {}
        observed: list[Call] = []  # since the last ask, and the last one before it
        for call in path:
            if call.kind in ("open", "act"):
                observed.append(call)
            if call.kind != "ask":
                continue
            known = seen.setdefault(call.conversation, set())
            fresh = self._since(call.node_in, tips.get(call.conversation, b""), known | replies)
            told[call.seq] = []
            for node in fresh:
                index = len(known) if counts else None
                known.add(node.key)
                message = {"key": node.key.hex(), "role": node.message.role, "index": index, **cut(node.message.text)}
                source = next((one for one in observed if _passed(one, node)), None)
                shown = [] if source is not None and source.extra else parts(node.message)  # else where it was made
                message |= {"parts": shown, "call_id": node.message.call_id}
                wrong = '"is_error":true' in node.message.extra or failed(node.message.text)
                message |= {"failed": node.message.role == "tool" and wrong}
                if source is not None:
                    message |= {"passed": True, "from": source.seq}
                    if len(observed) > 1:  # of two equal results each is passed on once
                        observed = [one for one in observed if one is not source]
                told[call.seq].append(message | {"conversation": call.conversation})
            observed = observed[-1:]
            tips[call.conversation] = call.node_out or call.node_in
        return told

    def _since(self, tip: bytes, stop: bytes, known: set[bytes]) -> list[Node]:
        """Nodes of a path after ``stop`` that are neither known nor replies; at most the last ``SAID``."""
        path: list[Node] = []
        while tip not in (b"", stop) and len(path) < SAID and (node := self.nodes.get(tip)) is not None:
            path.append(node)
            tip = node.parent
        if tip not in (b"", stop) and len(path) < SAID:
            path += reversed(self.store.thread(tip, stop, SAID - len(path)))
        return [node for node in reversed(path) if node.key not in known]

    def call(self, call: Call) -> dict[str, Any]:
        values, token_values = self.marks.get(call.seq, ({}, {}))
        passed = self.passed.get(call.seq, {})
        row = {name: getattr(call, name) for name in _PLAIN_FIELDS}
        row |= {
            **cut(call.text),
            "action": did(call)[:CUT],
            "error": call.error[:CUT],
            "tool": call.finish == "tool",
            "asked": self.asks.get(call.seq),
            "failed": call.finish == "tool" and (passed.get("failed") or failed(call.text, call.error)),
            "called": _call(call) if call.finish == "tool" else None,
            "parts": _shown(call) or [part | {"key": passed["key"]} for part in passed.get("parts", ())],
            "said": self.said.get(call.seq, []),
            "reply": self.reply(call),
            "values": {"logprob": _head(call.logprobs), "entropy": _head(call.entropies)},
            "marks": values,
            "token_marks": {method: _head(single) for method, single in token_values.items()},
            "drift": bool(self.drifted) and any(node in self.drifted for node in self._own_nodes(call)),
            "samples": len(call.packed),
            "recalled": recalled(call, self.worths),
        }
        shown: dict[str, Any] = plain(row)
        return shown

    def _own_nodes(self, call: Call) -> list[bytes]:
        return [*(bytes.fromhex(m["key"]) for m in self.said.get(call.seq, ())), call.node_out]

    def reply(self, call: Call) -> dict[str, Any] | None:
        if call.kind != "ask" or not call.node_out:
            return None
        node = self.nodes[call.node_out]
        return {
            "key": node.key,
            **cut(node.message.text),
            "reasoning": node.message.reasoning[:CUT],
            "calls": [_tool(tool) | {"act": self.acts.get((call.seq, tool.id))} for tool in node.message.calls],
            "tokens": tokens(call, node),
            "parts": parts(node.message),
        }


def _passed(call: Call, node: Node) -> bool:
    """Whether a message says what an open or an act showed, and no more."""
    return call.text == node.message.text and call.extra in ("", node.message.extra)


def _shown(call: Call) -> list[dict[str, Any]]:
    """The images that a Call holds itself, each with its place."""
    return [part | {"call": f"{call.run}@{call.seq}"} for part in parts(Message("", "", extra=call.extra))]


def _tool(tool: ToolCall) -> dict[str, Any]:
    """A tool call as the page draws it."""
    return {"id": tool.id, "name": tool.name[:CUT], **cut(tool.arguments)}


def _call(call: Call) -> dict[str, Any] | None:
    """The tool call that an act performed."""
    action = action_of(call)
    return _tool(action) if isinstance(action, ToolCall) else None


def _id(call: Call) -> str:
    action = action_of(call)
    return action.id if isinstance(action, ToolCall) else ""


_PLAIN_FIELDS = ["seq", "run", "kind", "conversation", "reward", "terminal", "legal", "state", "child", "error"]
_PLAIN_FIELDS += ["finish", "forced", "head", "cost", "started", "seconds", "done"]


def by_call(row: RunRow, values: Iterable[Annotation]) -> dict[int, tuple[dict[str, Any], dict[str, Any]]]:
    """Values by Call: of the whole Call and of its tokens, by method; this run's own go before those of others."""
    best: dict[tuple[int, str, str], tuple[tuple[int, str], Annotation]] = {}
    for a in values:
        if a.target in ("call", "tokens"):
            rank = (2 * (a.run == row.id) + (a.scope in (row.group, row.id)), a.version)
            place = (a.seq, a.target, a.method)
            if place not in best or rank >= best[place][0]:
                best[place] = (rank, a)
    found: dict[int, tuple[dict[str, Any], dict[str, Any]]] = {}
    for (seq, target, method), (_, a) in sorted(best.items(), key=lambda item: item[0]):
        whole, single = found.setdefault(seq, ({}, {}))
        if target == "call":
            whole[method] = a.value
        else:
            single[method] = a.values
    return found


def call(store: Keeper, run: str, seq: int) -> dict[str, Any] | None:
    """Everything that produced one Call, and everything said of it; None where the run has no such Call.

    Raises:
        UnknownName: no such run.
    """
    row = store.row(run)
    found = next(iter(store.calls(run, seq, seq + 1)), None)
    if found is None:
        return None
    runs = [row.id, *dict.fromkeys(s.run for s in row.lineage)]
    near = [a for a in store.annotations(runs, target="node") if a.node in (found.node_in, found.node_out)]
    values = [*values_on(store, row, seq, seq + 1), *(a for a in near if a.method != "drift")]
    setup = found.setup and {**found.setup._asdict(), "tools": [tool.name for tool in found.setup.tools]}
    fields = ["usage", "cost", "started", "seconds", "attempts", "error"]
    fields += ["key", "request", "node_in", "node_out", "after", "done"]
    return {  # plain() of each part, so that named tuples become objects
        **plain({name: getattr(found, name) for name in fields}),
        "seed": str(found.seed),  # 64 bits: more than a number of JavaScript holds
        "setup": plain(setup),
        "snapshot": bool(found.snapshot),
        "decided": decision.lines() if (decision := decision_of(found.inner)) else [],
        "asked": asked_of(found.inner),
        "annotations": [_told(a) for a in values if a.method != LABELS],
        "drift": [_data(a) for a in near if a.method == "drift"],
        "samples": [{"seed": str(s.seed), "text": s.message.text[:CUT], "finish": s.finish} for s in found.packed],
    }


def _told(a: Annotation) -> dict[str, Any]:
    fields = ("target", "method", "version", "params", "scope", "value")
    told: dict[str, Any] = plain({name: getattr(a, name) for name in fields})
    return told | {"data": _data(a), "n": 0 if a.values is None else len(a.values)}


def _data(a: Annotation) -> object:
    """The JSON of an annotation; its text where it is none."""
    try:
        return plain(json.loads(a.data)) if a.data else None
    except ValueError:
        return a.data


def find(store: Keeper, run: str, text: str, start: int) -> int | None:
    """Number of the next Call from ``start`` on in which a text stands, whatever its case; None where there is none.

    Raises:
        UnknownName: no such run. Unfinished: none up to Call ``done``; ask again from there.
    """
    wanted, chunk, time = text.lower(), 256, Slice()
    before = [call.text for call in store.calls(run, max(start - LOOK_BACK, 0), start) if call.kind in ("open", "act")]
    seen = before[-1] if before else ""
    while wanted and (part := store.calls(run, start, start + chunk)):
        nodes = store.nodes(key for call in part for key in (call.node_in, call.node_out) if key)
        for each in part:
            if any(wanted in said.lower() for said in _texts(each, nodes, seen)):
                return each.seq
            seen = each.text if each.kind in ("open", "act") else seen
        start = part[-1].seq + 1
        if time.over:
            raise Unfinished("calls", start, store.summary(run).calls)
    return None


def _texts(call: Call, nodes: Mapping[bytes, Node], seen: str) -> Iterable[str]:
    """What stands in a Call; an observation that was passed on stands where it was made."""
    yield from (call.text, call.action, call.error)
    for key in (call.node_in, call.node_out):
        node = nodes.get(key)
        if node is not None and (key == call.node_out or node.message.text != seen):
            yield from (node.message.text, node.message.reasoning)
            yield from (f"{tool.name}({tool.arguments})" for tool in node.message.calls)
