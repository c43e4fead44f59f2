"""What a worker is told: how the runs of a collection are made, and what each run is dealt with.

``Workers`` packs, ``Worker`` unpacks. Things travel by the reference that rebuilds them where they have one, else
pickled. Only processes of one user's own job exchange these bytes: no endpoint, file or model is ever unpickled.
"""

from __future__ import annotations

import os
import pickle
import platform
import sys
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NamedTuple, Protocol, runtime_checkable

from clew.core import registry
from clew.core.errors import BadInput, UnknownName
from clew.core.protocols import Model, Taskset
from clew.core.records import Call, Cursor, RunRow
from clew.core.sources import file_of
from clew.core.values import Task, ToolSpec
from clew.harness.executors import Prepared
from clew.harness.loading import load_agent
from clew.harness.memory.recalling import Memories
from clew.harness.run.spec import Models, RunSpec
from clew.harness.toolbox import again, recorded
from clew.harness.tools import Tool, as_tools
from clew.store import MemoryStore
from clew.store.base import Keeper
from clew.store.bundles.chosen import copy_run
from clew.store.bundles.travelling import Bundle, whole

PLAIN = (
    *("agent_ref", "agent_digest", "config", "kept_tools", "sampling", "limits"),
    *("snapshot_every", "judge_seconds", "judge_thread", "owner"),
)
"""Fields of RunSpec that travel as they are."""


@runtime_checkable
class Portable(Protocol):
    """A model that pickles, whose copy in another process can be given its present weights as training changes them."""

    @property
    def version(self) -> int: ...
    @property
    def fingerprint(self) -> str: ...
    def weights(self) -> Mapping[str, object]: ...
    def take_weights(self, weights: Mapping[str, Any], version: int) -> None: ...


class Recipe(NamedTuple):
    """The RunSpec of a session, as it travels. ``taskset``: packed. ``model``: ref of the default model."""

    plain: Mapping[str, Any]
    taskset: bytes
    tools: Kit
    model: str
    concurrency: int


class Kit(NamedTuple):
    """The tools of a session by ``names``, in order: those of the taskset, those that ``rows`` name, others pickled."""

    names: list[str]
    rows: list[str | dict[str, Any]]
    specs: Mapping[str, ToolSpec]
    others: bytes


class Where(NamedTuple):
    """Where a process works: its folder, its path for modules, and how many threads torch computes with (0: none)."""

    folder: str
    path: list[str]
    threads: int


class Deal(NamedTuple):
    """A run that a worker is to take to its end, with the records that it goes on from."""

    row: RunRow
    task: Task
    calls: list[Call] | None
    known: Bundle


class Named(NamedTuple):
    """A thing that a reference rebuilds."""

    kind: registry.Kind
    ref: str


def recipe_of(spec: RunSpec, workers: int) -> Recipe:
    """What ``workers`` workers are told of a RunSpec; they share its concurrency.

    Raises:
        BadInput: the agent, the taskset or a tool is not to be had in another process.
    """
    agent = spec.agent_ref
    if agent.startswith("<") or "<" in agent.rpartition(":")[2]:
        told = f"a worker cannot load the agent {agent}, which is defined in a notebook or inside a function"
        raise BadInput(told, remedy="Put the agent at the top level of a file, or leave out the workers.")
    plain = {name: getattr(spec, name) for name in PLAIN}
    plain["config"] = dict(spec.config)
    model = spec.model.ref if spec.model is not None else ""
    taskset = _packed("tasksets", spec.taskset, f"taskset {getattr(spec.taskset, 'ref', '')}")
    return Recipe(plain, taskset, _kit(spec), model, max(1, -(-spec.concurrency // workers)))


def spec_of(recipe: Recipe, store: Keeper, models: Models) -> RunSpec:
    """The RunSpec again, over the worker's own store and models.

    Raises:
        UnknownName: the agent or the taskset is not to be had here.
    """
    plain, taskset = dict(recipe.plain), _unpacked(recipe.taskset)
    return RunSpec(
        agent=load_agent(plain["agent_ref"]),
        taskset=taskset,
        model=models.of(recipe.model) if recipe.model else None,
        tools=_tools(recipe.tools, taskset),
        concurrency=recipe.concurrency,
        store=store,
        models=models,
        memories=Memories(store),
        **plain,
    )


def _kit(spec: RunSpec) -> Kit:
    of_world, rows, others = (
        as_tools(getattr(spec.taskset, "functions", ())),
        list[str | dict[str, Any]](),
        list[Tool](),
    )
    for name, tool in spec.tools.items():
        if name in of_world and of_world[name].function is tool.function:
            continue
        row = recorded([tool])
        rows += [one for one in row if one not in rows]
        others += [] if row else [tool]
    specs = {name: tool.spec for name, tool in spec.tools.items()}
    return Kit(list(spec.tools), rows, specs, _pickled(others, "a tool"))


def _tools(kit: Kit, taskset: Taskset | None) -> dict[str, Tool]:
    own: list[Tool] = [*again(kit.rows, lambda: kit.specs), *_loaded(kit.others)]
    found = as_tools([*getattr(taskset, "functions", ()), *own])
    return {name: found[name] for name in kit.names}


def packed_model(model: Model) -> bytes:
    """A model, pickled where it can be, else by its ref.

    Raises:
        BadInput: neither another process nor a reference can make it again.
    """
    try:
        return pickle.dumps(model)
    except Exception as error:
        return _by_ref("models", model.ref, f"model {model.ref}", error)


def unpacked_model(data: bytes) -> Model:
    """The model again; a reference is resolved as ``clew.models.load`` does.

    Raises:
        BadInput: what was pickled is not to be had here.
    """
    found = _loaded(data)
    if isinstance(found, Named):
        from clew.models import load  # the clients of all providers: only where one is named

        return load(found.ref)
    made: Model = found
    return made


def dealt(spec: RunSpec, run: Prepared) -> Deal:
    """What a worker needs to take the run to its end: what it did so far, and what the forked run did."""
    row, store = run.row, spec.store
    if run.calls is not None and not run.calls and not row.parent:
        return Deal(row, run.task, [], _shared(store, row, Bundle([row])))
    copied = MemoryStore()
    for one in dict.fromkeys([row.id, *([Cursor.parse(row.parent).run] if row.parent else [])]):
        copy_run(copied, store, one)
    return Deal(row, run.task, None, _shared(store, row, whole(store, copied, [row.id])))


def _shared(store: Keeper, row: RunRow, known: Bundle) -> Bundle:
    """With the group and its first run, whose seed a draw that all its runs share is made from."""
    try:
        group = store.group(row.group) if row.group else None
    except UnknownName:
        return known
    if group is None or not group.runs:
        return known
    return known._replace(rows=[*known.rows, store.row(group.runs[0])], groups=[group])


def versions() -> dict[str, str]:
    """What must be the same in all processes: of Python, Clew and the packages that numbers come from."""
    found = {"Python": ".".join(platform.python_version_tuple()[:2])}
    for name in ("clew", "numpy", "torch", "transformers"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "none"
    return found


def same_versions(worker: str, theirs: Mapping[str, str]) -> None:
    """Check what a worker said of itself.

    Raises:
        BadInput: something is of another version there, so that its runs would not be those of this process.
    """
    mine = versions()
    other = [
        f"{name} {theirs.get(name, 'none')} (here {mine[name]})" for name in mine if theirs.get(name) != mine[name]
    ]
    if other:
        told = f"{worker} has {', '.join(other)}"
        raise BadInput(told, remedy="Install the same versions on all machines, then run the same line again.")


def here() -> Where:
    """Where this process works and how."""
    torch: Any = sys.modules.get("torch")
    path = [os.path.abspath(place) for place in sys.path]
    return Where(os.getcwd(), path, int(torch.get_num_threads()) if torch is not None else 0)


def _packed(kind: registry.Kind, thing: Any, what: str) -> bytes:
    """By reference where an entry point or a file defines it, else pickled."""
    ref = getattr(thing, "ref", "")
    name = registry.parse_ref(ref)[0] if ref else ""
    if name and (file_of(name) or _lasting(kind, name)):
        return pickle.dumps(Named(kind, ref))
    return _pickled(thing, what)


def _lasting(kind: registry.Kind, name: str) -> bool:
    """Whether another process finds the same thing under a name: an entry point has it, and nobody here replaced it."""
    found = registry.entries(kind).select(name=name)
    return any(entry.load() is registry.lookup(kind, name) for entry in found)


def _pickled(thing: object, what: str) -> bytes:
    try:
        return pickle.dumps(thing)
    except Exception as error:
        told = f"{what} cannot be taken to a worker: {type(error).__name__}: {error}"
        raise BadInput(
            told, remedy="Define it at the top level of a module or file, or leave out the workers."
        ) from error


def _by_ref(kind: registry.Kind, ref: str, what: str, error: Exception) -> bytes:
    if not ref or ref.startswith("module:"):
        told = f"{what} cannot be taken to a worker: {type(error).__name__}: {error}"
        raise BadInput(told, remedy="Give a model by its folder, name or URL, or leave out the workers.") from error
    return pickle.dumps(Named(kind, ref))


def _loaded(data: bytes) -> Any:
    try:
        return pickle.loads(data)
    except Exception as error:  # a class of a notebook or script, a module that is not installed here
        told = f"a worker cannot make what the runs need: {type(error).__name__}: {error}"
        raise BadInput(told, remedy="Define it in a module or file that the workers can import.") from error


def _unpacked(data: bytes) -> Any:
    found = _loaded(data)
    return registry.build(found.kind, found.ref) if isinstance(found, Named) else found
