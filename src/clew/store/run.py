"""``Run``: the read-only view of one run that users, judges and estimators hold."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING, Any, cast

from clew.core.errors import BadInput, need
from clew.core.reading import Step
from clew.core.records import Annotation, Call, Cursor, Intervention, Node, RunRow, action_of
from clew.core.values import F32, Message, Observation, StopReason, ToolCall
from clew.store.labels import METHOD, Label, read, standing
from clew.store.protocol import Tables, latest_last, rewards

if TYPE_CHECKING:
    from pandas import DataFrame


class Run:
    """The record of one run. Loaded when asked for; kept in memory only once the run has ended.

    Raises:
        UnknownName: the store has no such run.
    """

    def __init__(self, store: Tables, row: RunRow | str) -> None:
        self.store = store
        self.row = store.row(row) if isinstance(row, str) else row
        self._calls: list[Call] | None = None

    def __repr__(self) -> str:
        return f"<Run {self.id} {self.task_id or self.agent} {len(self.calls)} calls {self.stop or 'open'}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Run) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    @property
    def id(self) -> str:
        return self.row.id

    @property
    def agent(self) -> str:
        """``module_or_file:qualname``."""
        return self.row.agent

    @property
    def relayed(self) -> bool:
        """Whether a program that Clew did not write asks in it: then its acts are errands, and its asks say it all."""
        return self.agent.endswith((":relay", ":commanded"))

    @property
    def taskset(self) -> str:
        return self.row.taskset

    @property
    def model(self) -> str:
        return self.row.model

    @property
    def task_id(self) -> str:
        return self.row.task_id

    @property
    def seed(self) -> int:
        return self.row.seed

    @property
    def group(self) -> str:
        """Id of the group it was collected in, or empty."""
        return self.row.group

    @property
    def parent(self) -> Cursor | None:
        """Where it was forked; None for a run that was not."""
        return Cursor.parse(self.row.parent) if self.row.parent else None

    @property
    def changes(self) -> Intervention:
        return Intervention.from_json(json.loads(self.row.changes) if self.row.changes else None)

    @property
    def config(self) -> dict[str, Any]:
        """Keyword arguments of the agent."""
        return cast(dict[str, Any], json.loads(self.row.config or "{}"))

    @property
    def tags(self) -> list[str]:
        return list(self.store.tags(self.id))

    @property
    def calls(self) -> list[Call]:
        """Every Call of the path, shared ones included, in order of issue."""
        if self._calls is not None:
            return self._calls
        calls = self.store.calls(self.id)
        if calls and calls[-1].kind == "end":
            self._calls = calls
        return calls

    @property
    def shared(self) -> int:
        """How many Calls belong to the runs it was forked from."""
        return self.row.lineage[-1].stop if self.row.lineage else 0

    @property
    def stop(self) -> StopReason | None:
        """Why it ended; None while it has not."""
        calls = self.calls
        return StopReason(calls[-1].action) if calls and calls[-1].kind == "end" else None

    @property
    def steps(self) -> list[Step]:
        """Calls cut into steps. Asks after the last act make a step without an act."""
        return cut(self.calls)

    @property
    def reward(self) -> float | None:
        """The judge's verdict: annotation ``reward`` on the run. None where it was not judged."""
        return rewards(self.store, [self.id]).get(self.id)

    @property
    def labels(self) -> list[Label]:
        """What people say of this run and of the Calls on its path, where it stands; the oldest first."""
        return standing(read(self.annotations(METHOD)))

    @property
    def tokens(self) -> int:
        """Tokens sampled along the path, shared Calls included."""
        return sum(sampled(call) for call in self.calls)

    @property
    def cost(self) -> float:
        """US dollars spent on its own Calls; what it shares was paid for by the run that issued it."""
        return sum(call.cost for call in self.calls[self.shared :])

    @property
    def seconds(self) -> float:
        """From its own first Call to its own last, in seconds of wall time."""
        return span(self.calls[self.shared :])

    def conversation(self, index: int = 0) -> list[Node]:
        """Nodes of one conversation, from its root to the reply of its last completed ask.

        Raises:
            BadInput: nothing was asked in it.
        """
        for call in reversed(self.calls):
            if call.kind == "ask" and call.conversation == index:
                return self.store.thread(call.node_out or call.node_in)
        raise BadInput(f"run {self.id} asked nothing in conversation {index}")

    def reply(self, seq: int) -> Node:
        """The node an ask answered with.

        Raises:
            BadInput: Call ``seq`` is not an ask, or has no answer.
        """
        call = self.call(seq)
        if not call.node_out:
            raise BadInput(f"Call {seq} of run {self.id} is {call.kind} without a reply", at=f"{self.id}@{seq}")
        return self.store.node(call.node_out)

    def call(self, seq: int) -> Call:
        """The Call of that number; negative counts from the end.

        Raises:
            BadInput: there is none.
        """
        calls = self.calls
        if not -len(calls) <= seq < len(calls):
            raise BadInput(f"run {self.id} has no Call {seq}", remedy=f"It has Calls 0 to {len(calls) - 1}.")
        return calls[seq]

    def before(self, seq: int) -> Call | None:
        """The open or act Call that Call ``seq`` follows."""
        earlier = (call for call in reversed(self.calls[:seq]) if call.kind in ("open", "act"))
        return next(earlier, None)

    def view(self, seq: int) -> Observation:
        """What the agent saw when it issued Call ``seq``."""
        call = self.before(seq)
        return observed(call) if call else Observation("")

    def state(self, seq: int) -> bytes:
        """State key of the world before Call ``seq``; empty where the world names none."""
        call = self.before(seq)
        return call.state if call else b""

    def at(self, call: int | Call | None = None, *, step: int | None = None, token: int = 0) -> Cursor:
        """A cursor before a Call, before a step, or (given neither) before the run's end.

        Raises:
            BadInput: no such Call or step.
        """
        if step is not None:
            steps = self.steps
            if not -len(steps) <= step < len(steps):
                raise BadInput(f"run {self.id} has no step {step}", remedy=f"It has {len(steps)} steps, from 0.")
            first = steps[step].asks[0] if steps[step].asks else steps[step].act
            assert first is not None
            return Cursor(self.id, first.seq, token)
        if isinstance(call, Call):
            call = call.seq
        return Cursor(self.id, self.call(-1 if call is None else call).seq, token)

    def annotations(self, method: str | None = None, target: str | None = None) -> list[Annotation]:
        """Values that apply to this run or to a Call on its path, those filed under shared Calls included."""
        owners = {call.seq: call.run for call in self.calls}
        found = self.store.annotations([self.id, *dict.fromkeys(s.run for s in self.row.lineage)], method, target)
        return [a for a in found if a.run == self.id or (a.seq >= 0 and owners.get(a.seq) == a.run)]

    def low_point(self, method: str) -> Cursor:
        """The ask with the lowest value of a method: where the run lost most.

        Raises:
            BadInput: the method annotated no ask of this run.
        """
        values: dict[int, tuple[int, float]] = {}
        for a in latest_last(self.annotations(method, "call")):
            rank = 2 * (a.run == self.id) + (a.scope in (self.group, self.id))
            if a.value is not None and rank >= values.get(a.seq, (0, 0.0))[0]:
                values[a.seq] = (rank, a.value)
        if not values:
            raise BadInput(
                f"run {self.id} has no {method!r} values on its asks", remedy=f"Run `clew credit {method}` on it first."
            )
        return Cursor(self.id, min(values, key=lambda seq: (values[seq][1], seq)))

    def diff(self, other: Run) -> Cursor | None:
        """The first Call where two runs part, as a cursor into this one; None if neither differs nor goes on."""
        mine, theirs = self.calls, other.calls
        for a, b in zip(mine, theirs, strict=False):
            if a is not b and a.key != b.key:
                return Cursor(self.id, a.seq)
        return None if len(mine) == len(theirs) else Cursor(self.id, min(len(mine), len(theirs)))

    def frame(self) -> DataFrame:
        """A pandas DataFrame with one row per Call."""
        columns = ["seq", "kind", "run", "after", "done", "conversation", "action", "text", "reward", "terminal"]
        columns += ["finish", "forced", "cost", "started", "seconds", "error"]
        rows = []
        for call in self.calls:
            row = {name: getattr(call, name) for name in columns}
            row["reply"] = self.store.node(call.node_out).message.text if call.node_out else ""
            row["tokens"] = sampled(call)
            row["model"], row["version"] = (call.setup.model, call.setup.version) if call.setup else ("", -1)
            row["key"] = call.key.hex()
            rows.append(row)
        return need("pandas", "frames").DataFrame(rows)

    def steps_frame(self) -> DataFrame:
        """A pandas DataFrame with one row per step and one column per annotated method (NaN where absent)."""
        values: dict[int, dict[str, float]] = {}
        for a in latest_last(self.annotations(target="call")):
            if a.value is not None:
                values.setdefault(a.seq, {})[a.method] = a.value
        rows = []
        for step in self.steps:
            seen = step.before
            row: dict[str, Any] = {
                "run": self.id,
                "step": step.index,
                "call": (step.asks or (step.act,))[0].seq,  # type: ignore[union-attr]
                "asks": len(step.asks),
                "observation": seen.text if seen else "",
                "state": seen.state.hex() if seen else "",
                "action": step.act.action if step.act else None,
                "reward": step.act.reward if step.act else None,
                "terminal": step.act.terminal if step.act else False,
                "tokens": sum(sampled(ask) for ask in step.asks),
            }
            for ask in step.asks:
                row.update(values.get(ask.seq, {}))
            rows.append(row)
        return need("pandas", "frames").DataFrame(rows)

    def _repr_html_(self) -> str:
        head = f"<b>run {escape(self.id)}</b> {escape(self.task_id)} {escape(str(self.stop or 'open'))}"
        body = "".join(
            f"<tr><td>{s.index}</td><td>{escape(s.before.text if s.before else '')}</td>"
            f"<td>{escape(s.act.action if s.act else '')}</td><td>{s.act.reward if s.act else ''}</td></tr>"
            for s in self.steps
        )
        return f"{head}<table><tr><th>step<th>saw<th>did<th>reward</tr>{body}</table>"


def observed(call: Call) -> Observation:
    """What an open or an act showed."""
    return Observation(call.text, call.reward, call.terminal, call.legal, extra=call.extra)


def did(call: Call) -> str:
    """An act as one reads it: its text, or ``tool(arguments)``."""
    action = action_of(call)
    return f"{action.name}({action.arguments})" if isinstance(action, ToolCall) else action


def brief(call: Call) -> str:
    """An act in few words: of a tool call with a single argument that argument alone, as the command of a shell."""
    action = action_of(call) if call.action else ""
    if isinstance(action, str):
        return action
    try:
        given = json.loads(action.arguments)
    except (ValueError, RecursionError):
        given = None
    values = list(given.values()) if isinstance(given, dict) else []
    return values[0] if len(values) == 1 and isinstance(values[0], str) else did(call)


def said(message: Message) -> str:
    """A reply as one reads it: its text and its tool calls."""
    calls = ", ".join(f"{c.name}({c.arguments})" for c in message.calls)
    return f"{message.text}  {calls}".strip() if calls else message.text


def cut(calls: Iterable[Call]) -> list[Step]:
    """Calls cut into steps. Asks after the last act make a step without an act."""
    steps: list[Step] = []
    asks: list[Call] = []
    before: Call | None = None
    for call in calls:
        if call.kind == "open":
            before = call
        elif call.kind == "ask":
            asks.append(call)
        elif call.kind == "act":
            steps.append(Step(len(steps), tuple(asks), call, before))
            asks, before = [], call
    if asks:
        steps.append(Step(len(steps), tuple(asks), None, before))
    return steps


def sampled(call: Call) -> int:
    """Tokens a Call sampled: by its logprobs, else as the server counted them."""
    return len(call.logprobs) if call.logprobs is not None else call.usage.completion


def mean(values: F32 | None) -> float | None:
    """The mean of what a Call holds per token; None where it holds nothing."""
    return float(values.mean()) if values is not None and len(values) else None


LONGEST = 3600.0  # seconds a run may have begun before those beside which it is looked for


def span(calls: Iterable[Call]) -> float:
    """Seconds of wall time from the start of the first timed Call to the end of the last."""
    timed = [call for call in calls if call.started > 0]
    return max(c.started + c.seconds for c in timed) - min(c.started for c in timed) if timed else 0.0


def busy(calls: Iterable[Call]) -> list[tuple[float, float]]:
    """When at least one of some timed Calls was under way: (start, end), in order, apart from each other."""
    found: list[tuple[float, float]] = []
    for start, end in sorted((c.started, c.started + c.seconds) for c in calls if c.started > 0):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found


def pace(runs: Sequence[Run], most: int = 256) -> float:
    """Seconds of wall time a sampled token took while some runs were under way; 0 where no times are recorded.

    What other runs of the same model sampled meanwhile counts too, since they shared its engine: of runs made 64 at
    once, the wall time of one is that of 64 times its tokens. Of such others at most ``most`` are read.
    """
    calls = {call.key: call for run in runs for call in run.calls}
    times = busy(calls.values())
    if not times:
        return 0.0
    store, own, models = runs[0].store, {run.id for run in runs}, {run.model for run in runs}
    first, last = times[0][0] - LONGEST, times[-1][1]
    others = [
        row.run
        for row in store.summaries()
        if row.run not in own and row.model in models and first <= row.created <= last and row.seconds
    ]
    meanwhile = 0
    for call in (call for name in others[:most] for call in store.calls(name) if call.key not in calls):
        place = bisect_right(times, (call.started + call.seconds / 2, float("inf"))) - 1
        inside = place >= 0 and call.started + call.seconds / 2 <= times[place][1]
        meanwhile += sampled(call) if inside else 0
    tokens = sum(map(sampled, calls.values())) + meanwhile * max(len(others) / most, 1.0)
    return sum(end - start for start, end in times) / tokens if tokens else 0.0
