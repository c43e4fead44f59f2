"""Notes, recorded chance and recorded time: effects that answer at once."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from clew.core.keys import REQUEST, derive, digest, encode, uniforms

if TYPE_CHECKING:
    from clew.harness.run.run_state import Effects


def note(run: Effects, text: str, data: dict[str, Any]) -> None:
    body = json.dumps(data, ensure_ascii=False, sort_keys=True, allow_nan=False) if data else ""
    pending, recorded = run.begin("note", digest(REQUEST, b"note", encode(text), encode(body)), "a note", action=text)
    if recorded is not None:
        assert run.tape is not None
        run.tape.prove(recorded, pending.issue)
        run.waiting[recorded.seq] = pending
        run.pump(recorded.seq)
        if run.waiting:
            run.clerk.loop.call_soon(run.pump)
        return
    run.record(pending, text=body)


async def draw(run: Effects, name: str) -> float:
    pending, recorded = run.begin("draw", digest(REQUEST, b"draw", encode(name)), f"draw {name!r}", action=name)
    if recorded is not None:
        return await run.follow(pending, recorded)  # type: ignore[no-any-return]
    seed = derive(run.row.seed, pending.call.seq)
    value = float(uniforms(np.array([seed], np.uint64), np.zeros(1, np.uint64))[0])
    run.record(pending, text=repr(value), seed=seed)
    return value


async def now(run: Effects) -> float:
    pending, recorded = run.begin("now", digest(REQUEST, b"now"), "the time")
    if recorded is not None:
        return await run.follow(pending, recorded)  # type: ignore[no-any-return]
    value = time.time()
    run.record(pending, text=repr(value))
    return value
