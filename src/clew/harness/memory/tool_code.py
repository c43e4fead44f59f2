"""A tool of a memory as code: one step of it in the sandbox, and the loop that carries it from call to call.

``LiveMemory.use`` and the shadow run call it. A tool is a deterministic function ``NAME(query, api)``. For each call
that it makes it is begun anew, with what was answered before, so that nothing of it lives between two calls and a
replay needs no sandbox. Its code was written by a model: it must never run anywhere but in the sandbox.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple

from clew.core.errors import ClewError
from clew.core.keys import value_digest
from clew.core.printable import short
from clew.core.values import ToolSpec
from clew.sandbox.sandbox import MIB, Limits, Sandbox

CALLS, LOAD = 40, 1_000_000  # calls of one use; characters of all answers to them
ANSWER, GIVEN = 4000, 20_000  # characters of an answer, and of the arguments of a call
LIMITS = Limits(
    wall=15.0,
    cpu=3.0,
    memory=192 * MIB,
    processes=8,
    file_size=MIB,
    disk=4 * MIB,
    open_files=64,
    output=128 * 1024,
)
DRIVER = r"""
import json, os, sys
order = json.loads(sys.stdin.read())
out = os.fdopen(os.dup(1), "w")
quiet = os.open(os.devnull, os.O_WRONLY)
os.dup2(quiet, 1), os.dup2(quiet, 2)
seen, spaces, wanted, at = order["seen"], {}, [], 0

class Wants(BaseException):
    pass

def value(text):
    if text.startswith("error: "):
        return {"error": text[7:]}
    try:
        return json.loads(text)
    except ValueError:
        return text

def api(name, **given):
    global at
    if name in order["sources"]:
        return function(name)(str(given.get("query", "")), api)
    text = json.dumps(given, sort_keys=True, allow_nan=False)
    if wanted:
        raise Wants
    if at == len(seen):
        wanted.append([str(name), text])
        raise Wants
    if seen[at][:2] != [name, text]:
        wanted.append(["", ""])
        raise Wants
    at += 1
    return value(seen[at - 1][2])

def function(name):
    if name not in spaces:
        spaces[name] = {"__name__": name}
        exec(compile(order["sources"][name], name + ".py", "exec"), spaces[name])
    return spaces[name][name]

said = {}
try:
    answer = function(order["name"])(order["query"], api)
    good = isinstance(answer, (str, int, float)) and not isinstance(answer, bool)
    said = {"answer": str(answer) if good else None, "why": "" if good or answer is None else "it gave no text"}
except Wants:
    pass
except BaseException as error:
    said = {"answer": None, "why": "it raised " + type(error).__name__}
if wanted:
    said = {"call": wanted[0]}
out.write(json.dumps(said)[:100000])
out.flush()
os._exit(0)
"""


class Code(NamedTuple):
    """A tool to be run. sources: Python of it and of the tools that it calls, by name. api: the tools of the world that
    it may call, each with the hash of its schema."""

    name: str
    sources: Mapping[str, str]
    api: Mapping[str, str]


class Seen(NamedTuple):
    """A call that a tool made, its arguments as JSON, and what was answered."""

    name: str
    given: str
    text: str


class Step(NamedTuple):
    """How far a tool came: to a call (name, arguments as JSON), or to its end, with an answer or why there is none."""

    call: tuple[str, str] | None = None
    answer: str | None = None
    why: str = ""


class Used(NamedTuple):
    """What came of using a tool. answer: None where the plan in text has to do it. calls: of the world. why: of None,
    in a sentence; empty where the tool itself gave None."""

    answer: str | None
    calls: int = 0
    why: str = ""

    def __bool__(self) -> bool:
        return self.answer is not None


def schema_hash(spec: ToolSpec) -> str:
    """What names the arguments of a tool: 16 hex digits. A tool of a memory no longer fits when they change."""
    return value_digest([spec.name, spec.schema]).hex()[:16]


async def advance(code: Code, query: str, seen: Sequence[Seen], limits: Limits = LIMITS) -> Step:
    """Begin the tool anew in the sandbox, with what it has seen; how far it comes. A failure is a Step with a why."""
    order = {"name": code.name, "sources": dict(code.sources), "query": query, "seen": [list(one) for one in seen]}
    try:
        box = await asyncio.to_thread(Sandbox, limits)
        line = ["python3", "-s", "-S", "-P", "driver.py"]
        done = await box.arun(line, {"driver.py": DRIVER}, stdin=json.dumps(order), env={"PYTHONHASHSEED": "0"})
    except ClewError as error:
        return Step(why=f"the sandbox failed: {short(error.message, 200)}")
    if not done.ok:
        return Step(why=f"it was ended: limit {done.limit}" if done.limit else f"it ended with exit {done.code}")
    return read_step(done.stdout.decode(errors="replace"))


def read_step(text: str) -> Step:
    """What the driver says; hostile, since the tool's code runs in its process."""
    try:
        told = json.loads(text)
    except (ValueError, RecursionError):
        told = None
    if not isinstance(told, dict):
        return Step(why="it spoke for the driver")
    call, answer, why = told.get("call"), told.get("answer"), told.get("why", "")
    if call == ["", ""]:
        return Step(why="it is not deterministic: begun anew, it made another call")
    if isinstance(call, list) and len(call) == 2 and all(isinstance(part, str) for part in call):
        return Step((call[0], call[1])) if len(call[0] + call[1]) <= GIVEN else Step(why="a call of it is too long")
    if isinstance(answer, str):
        return Step(answer=answer) if len(answer) <= ANSWER else Step(why="its answer is too long")
    return Step(why=short(why, 200) if isinstance(why, str) else "")


async def through(
    step: Callable[[Sequence[Seen]], Awaitable[Step]],
    perform: Callable[[str, str], Awaitable[str | None]],
    api: Callable[[], Mapping[str, str]],
    most: int = CALLS,
) -> Used:
    """Carry a tool from call to call to its end.

    Args:
        step: how far it comes with what it has seen.
        perform: makes a call in the world and gives what it answers, ``error: ...`` where it failed; None: the world
            is closed.
        api: the tools it may call, known after the first step.
    """
    seen, load = list[Seen](), 0
    while True:
        at = await step(seen)
        if at.call is None:
            return Used(at.answer, len(seen), at.why)
        if len(seen) >= most or load > LOAD:
            return Used(
                None, len(seen), f"it made more than {most} calls, or was answered more than {LOAD:,} characters"
            )
        name, given = at.call
        allowed = api()
        text: str | None = f"error: a tool may call {', '.join(sorted(allowed)) or 'nothing'}"
        if name in allowed:
            text = await perform(name, given)
        if text is None:
            return Used(None, len(seen), "the task ended before it did")
        load += len(text)
        seen.append(Seen(name, given, text))
