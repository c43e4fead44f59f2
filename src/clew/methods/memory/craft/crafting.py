"""``craft``: from one plan that has earned it to a tool: codify, gate, sandboxed run, shadow run, admit or refuse.

``clew memory craft`` and experiments call it. Whatever goes wrong on the way, the plan stays a plan, one sentence says
why, and the count at which it was tried is kept. A draft must never be run outside of the sandbox.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeVar

from clew.core.aio import in_thread
from clew.core.errors import BadInput, ClewError, StoreError
from clew.core.keys import value_digest
from clew.core.printable import short
from clew.core.values import ToolSpec
from clew.harness.memory import Item, Memory
from clew.harness.memory.item_kinds import CURSORS
from clew.harness.memory.tool_code import LIMITS, Code, advance, schema_hash
from clew.harness.memory.tool_shelf import Deps, code_of, unfit
from clew.methods.memory.craft.drafting import Codifier, Draft, bare
from clew.methods.memory.craft.query_shapes import plain
from clew.methods.memory.craft.shadowing import SHADOW, End, Shadowed, shadow
from clew.methods.memory.craft.static_gate import gate
from clew.methods.memory.craft.thresholds import Due
from clew.methods.memory.lessons.spent import Cost, lines_of, spend
from clew.sandbox.sandbox import Sandbox
from clew.store.names import resolve

SECONDS = 120.0  # that a codifier may take
TRIALS = 4  # queries of the ledger on which a draft is begun
QUERY = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}
T_contra = TypeVar("T_contra", contravariant=True)


class Plays(Protocol[T_contra]):
    """Does shadow tasks, with a tool and by the plan; see ``shadow`` and ``StoredPlays``."""

    async def by_tool(self, play: T_contra, code: Code) -> End | str: ...
    async def by_text(self, play: T_contra) -> End: ...


class Crafted(NamedTuple):
    """What came of a plan. tool: id of the item, empty where it was refused. why: the sentence. shadowed: None where it
    did not come to that."""

    plan: str
    tool: str
    name: str
    why: str
    building: Cost
    checking: Cost
    shadowed: Shadowed | None = None


async def craft(
    memory: Memory,
    due: Due,
    codifier: Codifier,
    api: Sequence[ToolSpec],
    plays: Plays[T_contra],
    tasks: Iterable[T_contra],
    *,
    m: int = SHADOW,
    seconds: float = SECONDS,
    queries: Sequence[str] | None = None,
) -> Crafted:
    """Build the tool of a plan, check it, and admit it or say why not.

    Args:
        due: the plan and its count, as ``thresholds.due`` has it; whether it is ready is the caller's to decide.
        api: tools of the world that it may call. Admitted tools of the memory that fit them are added.
        plays, tasks: of the shadow run, on ``m`` of which the ends must agree.
        seconds: that the codifier may take.
        queries: what the codifier is shown; the different ones of the ledger where they are not given.

    Raises:
        StoreError: nothing can be written. MissingExtra, WorldError: there is no sandbox to run it in.
    """
    await asyncio.to_thread(Sandbox, LIMITS)
    plan = due.plan
    asked = list(queries) if queries is not None else different(plan)
    work = _Work(memory, plan, api)
    shadowed, code, tool, building, checking = None, None, "", Cost(), Cost()
    name = ""
    try:
        draft = await _drafted(codifier, plan, asked, work.specs, seconds)
        building, name = draft.cost, draft.name
        if not draft.source:
            raise BadInput(draft.why or "the codifier wrote no tool")
        code = work.code(draft)
        await _tried(code, asked)
        chosen = code
        shadowed = await shadow(tasks, lambda task: plays.by_tool(task, chosen), plays.by_text, m)
        checking = shadowed.cost
        why = shadowed.why
        if shadowed:
            tool = work.admit(draft, due, codifier, shadowed, asked)
            why = f"its ends are those of the text path on {shadowed.agreed} shadow tasks"
    except StoreError:
        raise
    except ClewError as error:
        why = error.message
    about = {"plan": plan.id, "count": due.need.have, "tool": tool, "why": short(why, 300)}
    lines = [spend(memory.name, "building", building, None, **about)]
    lines += [spend(memory.name, "checking", checking, plan=plan.id)] if checking.calls else []
    memory.store.put_entries(lines)
    return Crafted(plan.id, tool, name, why, building, checking, shadowed)


def different(plan: Item) -> list[str]:
    """The queries of a plan's ledger that differ in their words, oldest first."""
    return list({plain(given.query): given.query for given in plan.given}.values())


def tries(memory: Memory) -> Mapping[str, list[int]]:
    """The counts at which plans were tried and no tool came of it, by the id of the plan."""
    found = dict[str, list[int]]()
    for line in lines_of(memory.store, memory.name, "building"):
        count, plan = line.get("count"), line.get("plan")
        if isinstance(count, int) and isinstance(plan, str) and not line.get("tool"):
            found.setdefault(plan, []).append(count)
    return found


class _Work:
    """One plan on its way: what its tool may call, and where it goes."""

    def __init__(self, memory: Memory, plan: Item, api: Sequence[ToolSpec]) -> None:
        self.memory, self.plan, self.world = memory, plan, api
        known = {spec.name for spec in api}
        tools = [one for one in memory.items("active") if one.kind == "tool" and one.body.get("source")]
        fit = [one for one in tools if not unfit(one, api) and one.body["name"] not in known]
        self.tools = {one.body["name"]: one for one in fit}
        self.taken = {one.body["name"] for one in tools}
        helpers = [ToolSpec(name, one.body["doc"], QUERY) for name, one in self.tools.items()]
        self.specs: tuple[ToolSpec, ...] = (*api, *helpers)

    def deps(self, draft: Draft) -> Deps:
        """What a draft calls, after the gate.

        Raises:
            BadInput: it does not pass.
        """
        called = gate(draft, self.specs)
        if draft.name in self.taken:
            raise BadInput(f"the tool is refused: the memory has a tool {draft.name} already")
        hashes = {spec.name: schema_hash(spec) for spec in self.world}
        return Deps(
            {name: hashes[name] for name in called if name in hashes},
            {name: self.tools[name].id for name in called if name in self.tools},
        )

    def code(self, draft: Draft) -> Code:
        """A draft as it would be run.

        Raises:
            BadInput: it does not pass the gate.
        """
        body = {"name": draft.name, "source": draft.source, "deps": self.deps(draft).text}
        whole = Item(id="", memory=self.memory.name, kind="tool", body=body)
        return code_of(whole, {one.id: one for one in self.tools.values()})

    def admit(self, draft: Draft, due: Due, codifier: Codifier, shadowed: Shadowed, queries: Sequence[str]) -> str:
        """Keep the tool and promote the plan; gives the tool's id.

        Raises:
            BadInput: meanwhile another process has made a tool of the plan.
        """
        memory, plan = self.memory, self.plan
        standing = [one for one in memory.items("active") if one.kind == "tool"]
        if any(plan.id == one.body.get("from_plan") or draft.name == one.body["name"] for one in standing):
            raise BadInput("another process has made a tool of this plan meanwhile")
        checks = {
            "count": due.need.have,
            "why": due.why,
            "agreed": shadowed.agreed,
            "declined": shadowed.declined,
            "queries": len(queries),
            "plan_text": value_digest(plan.text).hex()[:16],
            "codifier": str(getattr(codifier, "name", type(codifier).__name__)),
        }
        body = {
            "name": draft.name,
            "doc": draft.doc,
            "signature": draft.signature,
            "source": draft.source,
            "deps": self.deps(draft).text,
            "checks": json.dumps(checks, sort_keys=True),
            "from_plan": plan.id,
        }
        where = _there(memory, plan)
        by = "" if where else short(plan.by or str(checks["codifier"]), 80)
        tool = memory.add("tool", body, scope=plan.scope, provenance=where, by=by)
        memory.promote(plan.id, tool.id, due.why)
        return tool.id


def _there(memory: Memory, plan: Item) -> list[str]:
    """The places of the plan's ledger whose runs the store still holds, as many as an item may name."""
    found = list[str]()
    for given in reversed(plan.given):
        try:
            resolve(memory.store, given.place.partition("@")[0])
        except ClewError:
            continue
        found.append(given.place)
    return found[: CURSORS // 4]


async def _drafted(
    codifier: Codifier, plan: Item, queries: Sequence[str], api: Sequence[ToolSpec], seconds: float
) -> Draft:
    """What the codifier writes, within its time, in a thread of its own: one that computes without end stops nothing.

    Raises:
        BadInput: it took too long or failed.
    """
    try:
        async with asyncio.timeout(seconds):
            draft = await in_thread(codifier.codify(bare(plan), tuple(queries), tuple(api)))
    except TimeoutError:
        raise BadInput(f"the codifier gave nothing within {seconds:g} s") from None
    except StoreError:
        raise
    except ClewError as error:
        raise BadInput(f"the codifier failed: {error.message}") from error
    except Exception as error:  # whatever a codifier of the user's own raises
        raise BadInput(f"the codifier failed: {type(error).__name__}: {short(str(error), 200)}") from error
    if not isinstance(draft, Draft):
        raise BadInput("the codifier gave no Draft")
    return draft


async def _tried(code: Code, queries: Sequence[str]) -> None:
    """Begin the tool in the sandbox on queries of the ledger.

    Raises:
        BadInput: it fails, or has nothing to do with any of them.
    """
    begun = 0
    for number, query in enumerate(queries[:TRIALS], 1):
        step = await advance(code, query, ())
        if step.why:  # the sentence is kept, and the query is not: it goes with the plan when that is deleted
            raise BadInput(f"the tool is refused: on query {number} of its ledger {step.why}")
        begun += step.call is not None or step.answer is not None
    if queries and not begun:
        raise BadInput(
            f"the tool is refused: it gives None for each of {len(queries[:TRIALS])} queries it was built from"
        )
