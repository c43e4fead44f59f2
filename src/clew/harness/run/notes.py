"""Small effects: notes, random numbers, the clock, what a memory recalls and what its tools do."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

import numpy as np

from clew.core.errors import MissingExtra, UnknownName, WorldError
from clew.core.keys import REQUEST, canonical, derive, digest, encode, uniforms
from clew.core.records import Call
from clew.core.values import Observation, ToolCall
from clew.harness.memory.fork_view import Found
from clew.harness.memory.recalled import Recalled, Shown, ranked_in, recorded, short_of, shown_in
from clew.harness.memory.recalling import Asked, asked_of
from clew.harness.memory.tool_code import Code, Seen, Step, Used, advance, through
from clew.harness.run.pending import Pending, away, describe, revive
from clew.harness.run.run_state import RunState

T = TypeVar("T")
SHORT = "recalled by words alone"  # a run's note, once, where vectors were asked for


def written(text: str, data: Mapping[str, object]) -> tuple[str, bytes]:
    """The body of a remark's Call, and what names its request."""
    body = json.dumps(data, ensure_ascii=False, sort_keys=True, allow_nan=False) if data else ""
    return body, digest(REQUEST, b"note", encode(text), encode(body))


def note(run: RunState, text: str, data: Mapping[str, object]) -> None:
    """Keep a remark and its data."""
    body, request = written(text, data)
    pending, recorded = run.begin("note", request, "a note", _noted, action=text)
    if recorded is not None:
        run.meet(pending, recorded)
    else:
        run.complete(pending, text=body)


async def draw(run: RunState, name: str, shared: bool = False) -> float:
    """A uniform number in [0, 1), fixed by the run's seed and the Call's number; ``shared``, by the seed of the first
    run of the group and the name."""
    kind = b"draw shared" if shared else b"draw"
    pending, recorded = run.begin("draw", digest(REQUEST, kind, encode(name)), f"draw {name!r}", _read, action=name)
    if recorded is not None:
        return await run.follow(pending, recorded)
    seed = derive(_first(run), "draw", name) if shared else derive(run.row.seed, pending.call.seq)
    value = float(uniforms(np.array([seed], np.uint64), np.zeros(1, np.uint64))[0])
    pending.record = lambda _: run.complete(pending, text=repr(value), seed=seed)
    return await run.result(pending, None)


def _first(run: RunState) -> int:
    """The seed of the first run of this run's group; its own where it is in none."""
    if not run.row.group:
        return run.row.seed
    store = run.dispatch.store
    try:
        return store.row(store.group(run.row.group).runs[0]).seed
    except UnknownName:
        return run.row.seed


async def now(run: RunState) -> float:
    """The time, seconds since the epoch."""
    pending, recorded = run.begin("now", digest(REQUEST, b"now"), "the time", _read)
    if recorded is not None:
        return await run.follow(pending, recorded)
    pending.record = lambda _: run.complete(pending, text=repr(time.time()))
    return await run.result(pending, None)


def _noted(call: Call) -> None:
    return None


def _read(call: Call) -> float:
    if call.error:
        raise revive(call.error)
    return float(call.text)


class LiveMemory:
    """A memory as an agent holds it: it is asked, its tools are used, and no more. ``run.memory(name)`` makes one."""

    def __init__(self, run: RunState, name: str, act: Callable[[ToolCall], Awaitable[Observation]]) -> None:
        self._run, self.name, self._act = run, name, act

    async def recall(
        self,
        query: str,
        *,
        k: int = 8,
        scope: str | Iterable[str] = (),
        kinds: str | Iterable[str] = (),
        count: bool = True,
    ) -> Recalled:
        """What fits a query, the likeliest first: one Call of kind ``recall``.

        A replay hands over what was recorded and does not touch the memory. A memory that fails gives nothing, and
        ``error`` says why: it never ends a run. Where the runner has an embedder, the items' vectors count beside
        their words; one that fails is done without, and the run notes it once.

        Args:
            query: as a rule what the agent is about to do. Its first 512 different words count.
            k: how many items at most, 1 to 100.
            scope: only items of these scope keys, and those that hold everywhere; none: all items.
            kinds: only of these kinds; none: of all.
            count: whether the ledgers of the items count this run; not where ``select`` chooses among them first.

        Raises:
            BadInput: k, scope or kinds are none. MissingExtra: a live recall needs the extra ``memory``.
        """
        run, asked = self._run, asked_of(self.name, query, k, scope, kinds)
        request = digest(REQUEST, b"recall", canonical(asked._asdict()))
        apply = partial(_recalled, self.name)
        pending, known = run.begin("recall", request, f"a recall for {query[:60]!r}", apply, action=query)
        keep = partial(_keep, run, pending, asked, count)
        find = partial(run.spec.memories.find, asked, run.spec.store, run.row)
        found = await _performed(run, pending, known, keep, find)
        if found.short and not run.said_short:
            run.said_short = True
            note(run, SHORT, {"memory": self.name, "why": found.short})
        return found

    async def select(self, found: Recalled, ids: Iterable[str], query: str) -> Recalled:
        """Those of the recalled items that are used, in the order of ``found``: another Call of kind ``recall``. Their
        ledgers count this run, as selection is counted (arXiv 2606.24151, section 3.3).

        Args:
            found: of ``recall(..., count=False)``. ids: of the items that were chosen; others are passed over.
            query: what they were chosen for.
        """
        wanted = frozenset(ids)
        run, items = self._run, [item for item in found.items if item.id in wanted]
        request = digest(REQUEST, b"select", canonical([self.name, query, [item.id for item in items]]))
        apply, asked = partial(_recalled, self.name), Asked(self.name, query, max(1, len(items)))
        pending, known = run.begin("recall", request, f"a selection for {query[:60]!r}", apply, action=query)
        keep = partial(_keep, run, pending, asked, True)
        left = partial(run.spec.memories.left, items, run.spec.store, run.row)
        return await _performed(run, pending, known, keep, left)

    async def use(self, tool: str, query: str) -> Used:
        """What a tool of the memory answers to a query. Where it gives none, the plan in text has to do it.

        The tool's code runs in the sandbox; each call that it makes is an act of the run on its world. Its steps are
        recorded as Calls of kind ``recall``, so that a replay needs neither the memory nor a sandbox. A tool that
        fails, or a machine without a sandbox, gives no answer and says why: it never ends a run.

        Args:
            tool: its name.
            query: what it is to do, as a rule the task.
        """
        run, code = self._run, list[Code]()

        async def step(seen: Sequence[Seen]) -> Step:
            at = await _tool_step(run, _Using(self.name, tool, query, len(seen)), code[0] if code else None, seen)
            code[:] = code or ([at.code] if at.code is not None else [])
            return at.step

        async def perform(name: str, given: str) -> str | None:
            if run.done:
                return None
            try:
                return (await self._act(ToolCall(f"{tool}-{run.step}", name, given))).text
            except WorldError as error:
                return f"error: {error.message}"

        return await through(step, perform, lambda: code[0].api if code else {})


class _Using(NamedTuple):
    """Which step of which use of a tool."""

    memory: str
    tool: str
    query: str
    step: int


class _Stepped(NamedTuple):
    """A step of a tool; with the first one the code that the others go on with, and the items that it is of."""

    step: Step
    code: Code | None = None
    items: tuple[Shown, ...] = ()


async def _tool_step(run: RunState, use: _Using, code: Code | None, seen: Sequence[Seen]) -> _Stepped:
    """One step of a tool as an effect: follow its record, or take it in the sandbox."""
    request, what = digest(REQUEST, b"use", canonical(use._asdict())), f"step {use.step} of the tool {use.tool[:60]!r}"
    pending, known = run.begin("recall", request, what, _stepped, action=use.query)
    keep = partial(_keep_step, run, pending, use)
    return await _performed(run, pending, known, keep, lambda call: _take_step(run, call, use, code, seen))


async def _performed(
    run: RunState,
    pending: Pending[T],
    known: Call | None,
    record: Callable[[object], T],
    work: Callable[[Call], Awaitable[object]],
) -> T:
    """What an effect gives: what is recorded of it, or what ``work`` does for the Call, once ``record`` has kept it."""
    if known is not None:
        return await run.follow(pending, known)
    pending.record = record
    run.open_calls[pending.call.seq] = pending
    run.dispatch.start(pending, work(pending.call))
    with away(run.spec.model):
        return await pending.taken()


async def _take_step(run: RunState, call: Call, use: _Using, code: Code | None, seen: Sequence[Seen]) -> _Stepped:
    items, first = tuple[Shown, ...](), use.step == 0
    try:
        if first:
            where = (run.spec.store, run.row, call)
            items, code = await asyncio.to_thread(run.spec.memories.tool, use.memory, use.tool, run.tools, *where)
            asked = Asked(use.memory, use.query, 1)
            run.spec.memories.count(asked, *where, items[:1])
        assert code is not None
        return _Stepped(await advance(code, use.query, seen), code if first else None, items)
    except Exception as error:
        return _Stepped(Step(why=describe(error)))


def _keep_step(run: RunState, pending: Pending[_Stepped], use: _Using, found: object) -> _Stepped:
    """Record a step; the first with the code, so that a run is resumed with the tool that it began with."""
    at = found if isinstance(found, _Stepped) else _Stepped(Step(why=describe(found)))  # type: ignore[arg-type]
    told = {"tool": use.tool, "step": use.step, **at.step._asdict()}
    if at.code is not None:
        told["code"] = at.code._asdict()
    seconds = time.time() - pending.call.started
    text = recorded(use.memory, told, at.items)
    return run.complete(pending, text=text, seconds=seconds)


def _stepped(call: Call) -> _Stepped:
    """A recorded step; one that was erased ends the tool."""
    if not call.text:
        return _Stepped(Step(why="its record was erased"))
    told = json.loads(call.text)
    name, given = told["call"] or ("", "")
    step = Step((name, given) if told["call"] else None, told["answer"], told["why"])
    return _Stepped(step, Code(**told["code"]) if "code" in told else None, (*shown_in(call.text),))


def _keep(run: RunState, pending: Pending[Recalled], asked: Asked, count: bool, found: object) -> Recalled:
    """Record what was found; with ``count`` also that this run was given it."""
    if isinstance(found, MissingExtra):
        run.fail(pending, found)
    error, items, how = describe(found) if isinstance(found, BaseException) else "", list[Shown](), asked.how
    if isinstance(found, Found):
        items, how = [*found.items], how | found.how
    try:
        run.spec.memories.count(asked, run.spec.store, run.row, pending.call, items if count else [])
    except Exception as uncounted:
        error = error or describe(uncounted)
    seconds = time.time() - pending.call.started
    return run.complete(pending, text=recorded(asked.memory, how, items), error=error, seconds=seconds)


def _recalled(memory: str, call: Call) -> Recalled:
    if call.error.startswith(MissingExtra.__name__):
        raise revive(call.error)
    return Recalled(memory, tuple(shown_in(call.text)), call.error, short_of(ranked_in(call.text)))
