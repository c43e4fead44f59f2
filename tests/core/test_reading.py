"""The read side of a record has types: what reads a run names ``Record``, and runs and groups are what it says."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterator

import pytest

from clew.core.reading import Record, RecordGroup
from clew.core.records import GroupRow
from clew.store import Group, MemoryStore
from clew.store.contract import Script

FRONT = ("clew", "clew.store", "clew.credit", "clew.methods.grade.grade", "clew.methods.grade.graded", "clew.exchange")
PLAIN = ("clew.store.paths", "clew.train.rows", "clew.train.pairs", "clew.credit.tree")


def test_runs_and_groups_are_what_the_protocols_say():
    store = MemoryStore()
    run = Script(store).play(2, 1.0)
    store.put_group(GroupRow("g", "iid", "task", (run.id,)))
    group = Group(store, "g")
    assert isinstance(group, RecordGroup)
    assert not isinstance(run, RecordGroup)
    assert not isinstance([group], RecordGroup)
    for protocol, thing in ((Record, run), (RecordGroup, group)):
        promised = {name for name in vars(protocol) if not name.startswith("_")}
        assert len(promised) > 3
        assert [name for name in promised if not hasattr(thing, name)] == []


def functions(module: str) -> Iterator[tuple[str, Callable[..., object]]]:
    """The functions and methods that a module offers by its ``__all__``, or defines where it has none."""
    home = importlib.import_module(module)
    for name in getattr(home, "__all__", vars(home)):
        thing = getattr(home, name)
        if name.startswith("_") or getattr(thing, "__module__", "").split(".")[:2] != module.split(".")[:2]:
            continue
        if inspect.isfunction(thing):
            yield name, thing
        elif inspect.isclass(thing):
            methods = ((at, one) for at, one in vars(thing).items() if inspect.isfunction(one) and at[0] != "_")
            yield from ((f"{name}.{at}", one) for at, one in methods)


@pytest.mark.parametrize("module", [*FRONT, *PLAIN])
def test_the_public_front_is_typed(module):
    """No parameter and no result is Any, but options that are only passed on."""
    if module.startswith("clew.train"):
        pytest.importorskip("torch", reason="did not run: torch is not installed")
    found = []
    for name, function in functions(module):
        signature = inspect.signature(function)
        told = {p.name: p.annotation for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD}
        told["return"] = signature.return_annotation
        found += [f"{name}({at})" for at, kind in told.items() if kind == "Any"]
    assert found == []
