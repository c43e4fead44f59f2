"""Synchronous effects: notes, random numbers, the clock."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping

import numpy as np

from clew.core.errors import UnknownName
from clew.core.keys import REQUEST, derive, digest, encode, uniforms
from clew.core.records import Call
from clew.harness.run.pending import revive
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
