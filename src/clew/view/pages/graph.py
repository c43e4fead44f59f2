"""A group: its runs, and the merged state graph that the credit passes see, with what methods say of its edges."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from clew.core.errors import BadInput, BadRecord, UnknownName
from clew.core.json_values import plain
from clew.core.printable import short
from clew.core.records import Call
from clew.core.registry import parse_ref
from clew.credit.steps import F64, Steps, steps
from clew.store import Group, Keeper, Step
from clew.store.address import beside
from clew.store.protocol import latest_last
from clew.store.run import brief
from clew.view.pages.list_pages import Names
from clew.worlds.workspace import TreeShelf
from clew.worlds.workspace.tree_edits import told, tree_at

EMPTY: dict[str, Any] = {"nodes": [], "edges": [], "cut": False}
EDGES = 400  # edges drawn at most, the most taken first
CALLS = 50_000  # Calls of a group above which no graph is made


def page(store: Keeper, group: str, method: str = "") -> dict[str, Any]:
    """A group with its merged graph.

    Args:
        method: whose step values the edges carry; default: the first that annotated steps of this group.

    Raises:
        UnknownName: no such group.
    """
    it, names = Group(store, group), Names(store)
    rows = [store.summary(run) for run in it.row.runs]
    found = latest_last(store.annotations(it.row.runs, target="call"))
    scoped = [a for a in found if a.scope == group] or found
    methods = sorted({a.method for a in scoped if a.value is not None})
    chosen = method or (methods[0] if methods else "")
    values = {(a.run, a.seq): a.value for a in scoped if a.method == chosen and a.value is not None}
    return {
        "group": {**names.fold(rows), "group": group},
        "runs": [names.row(row) for row in rows],
        "methods": methods,
        "method": chosen,
        "graph": graph(it, values) if sum(row.calls for row in rows) <= CALLS else {**EMPTY, "cut": True},
    }


def graph(group: Group, values: dict[tuple[str, int], float]) -> dict[str, Any]:
    """Nodes and edges of the merged graph over the judged runs of a group; empty where none was judged.

    A node's value is the mean return-to-go of its visits, an edge's the mean of a method's values on its steps.
    """
    try:
        table = steps(group)
    except BadInput:
        return EMPTY
    walks = {run.id: run.steps for run in group}
    took = [walks[table.runs[run]][t] for run, t in zip(table.run.tolist(), table.t.tolist(), strict=True)]
    seen: dict[int, Call] = {}
    edges: dict[tuple[int, int, int], list[int]] = {}
    for row, step in enumerate(took):
        state, after = int(table.state[row]), int(table.next[row])
        edges.setdefault((state, after, int(table.action[row])), []).append(row)
        if step.before is not None:
            seen.setdefault(state, step.before)
        if step.act is not None and after >= 0:
            seen.setdefault(after, step.act)
    drawn = sorted(edges.items(), key=lambda item: -len(item[1]))[:EDGES]
    changed = of_files(group, seen.values())
    nodes = {node for (state, after, _), _ in drawn for node in (state, after) if node >= 0}
    returns = table.returns(1.0)
    return {
        "nodes": [_node(node, seen.get(node), table, returns, changed) for node in sorted(nodes)],
        "edges": [_edge(i, edge, rows, took, table, values) for i, (edge, rows) in enumerate(drawn)],
        "cut": len(edges) > len(drawn),
    }


def of_files(group: Group, calls: Iterable[Call]) -> dict[bytes, str]:
    """By state key, what runs in a workspace had changed in their files there; nothing for other worlds."""
    trees = {tree_at(run, run.calls[0]) for run in group if run.calls} - {""}
    if len(trees) != 1 or (shelf := _shelf(group)) is None:
        return {}
    (before,), run, found = trees, next(iter(group)), dict[bytes, str]()
    for call in calls:
        if call.state not in found and (tree := tree_at(run, call)):
            with suppress(UnknownName, BadRecord):  # erased, or left behind when the store was moved
                found[call.state] = told(shelf, before, tree) or "the files as they were at first"
    alike = Counter(found.values())
    return {state: text if alike[text] == 1 else f"{text}  ({state.hex()[:4]})" for state, text in found.items()}


def _shelf(group: Group) -> TreeShelf | None:
    """Where the snapshots of a group's runs lie: beside the store, or where the runs were told to keep them."""
    named = {str(parse_ref(run.taskset)[1].get("shelf", "")) for run in group} - {""}
    places = [beside(group.store.path).parent / "files", *map(Path, named)]
    return next((TreeShelf(place) for place in places if (place / "recent").is_dir()), None)


def _node(node: int, call: Call | None, table: Steps, returns: F64, changed: dict[bytes, str]) -> dict[str, Any]:
    visits, ends = table.state == node, table.last & (table.next == node)
    worth = np.concatenate([returns[visits], table.outcome[ends]])
    text = short(changed.get(call.state, call.text), 200) if call else ""
    said = {"state": call.state.hex() if call else "", "text": text}
    value = plain(float(worth.mean())) if len(worth) else None
    place = {"start": bool((visits & (table.t == 0)).any()), "terminal": not visits.any()}
    return {"id": node, **said, "visits": len(worth), **place, "value": value}


def _edge(
    number: int,
    edge: tuple[int, int, int],
    rows: list[int],
    took: list[Step],
    table: Steps,
    values: dict[tuple[str, int], float],
) -> dict[str, Any]:
    said = [values[ask] for row in rows for ask in table.asks[row] if ask in values]
    first = took[rows[0]].act
    ends = {"from": edge[0], "to": edge[1] if edge[1] >= 0 else None}
    action, value = short(brief(first), 200) if first else "", math.fsum(said) / len(said) if said else None
    steps = [{"run": table.runs[table.run[row]], "seq": _place(took[row])} for row in rows]
    return {"id": number, **ends, "action": action, "count": len(rows), "value": value, "steps": steps}


def _place(step: Step) -> int | None:
    """Where a step begins: its first ask, or its act where it asked nothing."""
    call = step.asks[0] if step.asks else step.act
    return call.seq if call else None
