"""The head of a run's page, the tree of its forks, and the first difference of two runs."""

from __future__ import annotations

import json
import re
from typing import Any

from clew.core.errors import UnknownName
from clew.core.json_values import plain
from clew.core.records import Call, Cursor, Intervention
from clew.store import Keeper, Summary
from clew.store.run import did
from clew.view.files.run_snapshots import has_files
from clew.view.pages import feature_page
from clew.view.pages.list_pages import Names
from clew.view.pages.transcript_page import CUT
from clew.view.terminal import describe
from clew.view.workings import several

FAMILY = 2000  # runs of one tree at most
LOOKED = 64  # Calls from which it is told what the model said of its tokens, and whether several models worked


def head(store: Keeper, run: str) -> dict[str, Any]:
    """What stands above a transcript, and the tree of forks beside it.

    Raises:
        UnknownName: no such run.
    """
    row, summary, names = store.row(run), store.summary(run), Names(store)
    task = json.loads(row.task) if row.task else {}
    prompt = str(task.pop("prompt", ""))
    kept = plain(row) | {"changes": json.loads(row.changes) if row.changes else None, "task": task}
    quoted = re.sub(r'(["\\])', r"\\\1", row.group)
    members = store.folds(f'group="{quoted}"', 1).groups if row.group else []
    verdicts = store.annotations([run], "reward", "run")
    found: dict[str, Any] = {"row": kept, "summary": names.row(summary), "prompt": prompt[:CUT], "calls": summary.calls}
    found |= {"methods": [plain(it) for it in store.ranges(run)], "conversations": store.conversations(run)}
    found |= {"shared": row.lineage[-1].stop if row.lineage else 0, "tree": tree(store, run)}
    found["names"] = feature_page.names(store, list(dict.fromkeys(it["method"] for it in found["methods"])))
    first = store.calls(run, 0, LOOKED)
    found |= {"shades": _shades(first), "several": several(first), "files": has_files(store, row)}
    found["group"] = names.fold(members[0]) if members else None
    return found | {"rewards": {a.version: a.value for a in verdicts}}


def _shades(calls: list[Call]) -> list[str]:
    """What the model itself said of its tokens: nothing, for most endpoints."""
    found = {"logprob": (c.logprobs for c in calls), "entropy": (c.entropies for c in calls)}
    return [name for name, values in found.items() if any(value is not None for value in values)]


def tree(store: Keeper, run: str) -> list[dict[str, Any]]:
    """The whole family of a run: first the run that was not forked, then forks, each after what it was forked from.

    ``up`` is the place in the list of what a run was forked from: a list, since JSON cannot nest a long line of forks.

    Raises:
        UnknownName: no such run.
    """
    parents = store.forks()
    children: dict[str, list[str]] = {}
    for fork, place in parents.items():
        children.setdefault(Cursor.parse(place).run, []).append(fork)
    root, passed = run, {run}
    while root in parents and (above := Cursor.parse(parents[root]).run) not in passed and _there(store, above):
        root = above
        passed.add(root)
    members, family = {root}, [_branch(store, root, run) | {"up": None}]
    for up, member in enumerate(family):  # grows while it is read: breadth first, without recursion
        for child in children.get(member["run"], ()):
            if child not in members and len(family) < FAMILY:
                members.add(child)
                family.append(_branch(store, child, run) | {"up": up})
    return family


def _there(store: Keeper, run: str) -> bool:
    try:
        store.row(run)
    except UnknownName:
        return False  # collected as garbage, its fork kept
    return True


def _branch(store: Keeper, run: str, here: str) -> dict[str, Any]:
    row, summary = store.row(run), store.summary(run)
    place = Cursor.parse(row.parent) if row.parent else None
    changes = _changes(row.changes)
    if place is not None and _there(store, place.run):
        inherited = _changes(store.row(place.run).changes)
        changes = [edit for edit in changes if edit not in inherited]
    at = {"seq": place.seq if place else None, "token": place.token if place else 0}
    found: dict[str, Any] = {"run": run, "parent": row.parent, **at, "edits": [describe(edit) for edit in changes]}
    found |= {"reward": plain(summary.reward), "stop": summary.stop, "steps": summary.steps}
    return found | {"here": run == here}


def _changes(text: str) -> list[Any]:
    return list(Intervention.from_json(json.loads(text) if text else None).edits)


def diff(store: Keeper, a: str, b: str) -> dict[str, Any]:
    """Two runs: the first Call where they part (None: equal), and what differs in it.

    Raises:
        UnknownName: no such run.
    """
    names, one, other = Names(store), store.summary(a), store.summary(b)
    at = parting(store, one, other)
    mine, theirs = (_at(store, it.run, at) for it in (one, other))
    differs = [] if at is None else _differences(store, mine, theirs)
    both = {"a": names.row(one), "b": names.row(other), "total_a": one.calls, "total_b": other.calls}
    return {"at": at, "differs": differs, "files": all(has_files(store, store.row(run)) for run in (a, b)), **both}


def parting(store: Keeper, one: Summary, other: Summary) -> int | None:
    """The first Call where two runs part; None if neither differs nor goes on."""
    mine, theirs = store.keys(one.run), store.keys(other.run)
    for seq, (a, b) in enumerate(zip(mine, theirs, strict=False)):
        if a != b:
            return seq
    return None if len(mine) == len(theirs) else min(len(mine), len(theirs))


def _at(store: Keeper, run: str, seq: int | None) -> Call | None:
    return None if seq is None else next(iter(store.calls(run, seq, seq + 1)), None)


def _differences(store: Keeper, a: Call | None, b: Call | None) -> list[dict[str, Any]]:
    one, other = (_facts(store, call) for call in (a, b))
    fields = dict.fromkeys([*one, *other])
    pairs = ((field, one.get(field), other.get(field)) for field in fields)
    return [{"field": field, "a": plain(x), "b": plain(y)} for field, x, y in pairs if plain(x) != plain(y)]


def _facts(store: Keeper, call: Call | None) -> dict[str, Any]:
    """What may differ in a Call, by the words a person uses for it."""
    if call is None:
        return {}
    facts: dict[str, Any] = {"kind": call.kind, "action": did(call), "observation": call.text[:2000]}
    facts |= {name: getattr(call, name) for name in ("reward", "terminal", "finish", "forced", "error", "state")}
    if call.kind == "ask":
        facts["asked at"] = store.node(call.node_in).message.text[:2000]
        facts["reply"] = store.node(call.node_out).message.text[:2000] if call.node_out else None
        facts["seed"] = str(call.seed)  # 64 bits: more than a number of JavaScript holds
    if call.setup is not None:
        facts |= {"model": call.setup.model, "version": call.setup.version, "served by": call.setup.served_by}
        facts |= {"weights": call.setup.weights} if call.setup.weights else {}
        facts |= {"asked": call.setup.asked, "in force": call.setup.in_force}
        facts["tools"] = [tool.name for tool in call.setup.tools]
    return facts
