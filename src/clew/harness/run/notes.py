"""Small effects: notes, random numbers, the clock, what a memory recalls."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from functools import partial

import numpy as np

from clew.core.errors import MissingExtra, UnknownName
from clew.core.keys import REQUEST, canonical, derive, digest, encode, uniforms
from clew.core.records import Call
from clew.harness.memory.recalled import Recalled, recorded, shown_in
from clew.harness.memory.recalling import Asked, asked_of
from clew.harness.run.pending import Pending, away, describe, revive
from clew.harness.run.run_state import RunState


def note(run: RunState, text: str, data: Mapping[str, object]) -> None:
    """Keep a remark and its data."""
    body = json.dumps(data, ensure_ascii=False, sort_keys=True, allow_nan=False) if data else ""
    request = digest(REQUEST, b"note", encode(text), encode(body))
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
    """A memory as an agent holds it: it can be asked, and no more. ``run.memory(name)`` makes one."""

    def __init__(self, run: RunState, name: str) -> None:
        self._run, self.name = run, name

    async def recall(
        self, query: str, *, k: int = 8, scope: str | Iterable[str] = (), kinds: str | Iterable[str] = ()
    ) -> Recalled:
        """What fits a query, the likeliest first: one Call of kind ``recall``.

        A replay hands over what was recorded and does not touch the memory. A memory that fails gives nothing, and
        ``error`` says why: it never ends a run.

        Args:
            query: as a rule what the agent is about to do. Its first 512 different words count.
            k: how many items at most, 1 to 100.
            scope: only items of these scope keys, and those that hold everywhere; none: all items.
            kinds: only of these kinds; none: of all.

        Raises:
            BadInput: k, scope or kinds are none. MissingExtra: a live recall needs the extra ``memory``.
        """
        run, asked = self._run, asked_of(self.name, query, k, scope, kinds)
        request = digest(REQUEST, b"recall", canonical(asked._asdict()))
        apply = partial(_recalled, self.name)
        pending, known = run.begin("recall", request, f"a recall for {query[:60]!r}", apply, action=query)
        if known is not None:
            return await run.follow(pending, known)
        pending.record = partial(_keep, run, pending, asked)
        run.open_calls[pending.call.seq] = pending
        run.dispatch.start(pending, run.spec.memories.find(asked, run.spec.store, run.row, pending.call))
        with away(run.spec.model):
            return await pending.taken()


def _keep(run: RunState, pending: Pending[Recalled], asked: Asked, found: object) -> Recalled:
    """Record what was found, and that this run was given it."""
    if isinstance(found, MissingExtra):
        run.fail(pending, found)
    error, items = (describe(found), []) if isinstance(found, BaseException) else ("", list(found))  # type: ignore[call-overload]
    try:
        run.spec.memories.count(asked, run.spec.store, run.row, pending.call, items)
    except Exception as uncounted:
        error = error or describe(uncounted)
    seconds = time.time() - pending.call.started
    return run.complete(pending, text=recorded(asked.memory, asked.how, items), error=error, seconds=seconds)


def _recalled(memory: str, call: Call) -> Recalled:
    if call.error.startswith(MissingExtra.__name__):
        raise revive(call.error)
    return Recalled(memory, tuple(shown_in(call.text)), call.error)
