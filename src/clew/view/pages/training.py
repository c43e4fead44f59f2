"""Trainings for the page: their curves, and the asks behind a point of a curve."""

from __future__ import annotations

import json
import re
from typing import Any

from clew.core.errors import UnknownName
from clew.core.json_values import plain
from clew.core.printable import short
from clew.store import Keeper
from clew.store.address import beside
from clew.store.protocol import latest_last, rewards
from clew.store.run import sampled

ROWS = 20_000  # asks of one iteration listed at most


def trainings(store: Keeper) -> list[dict[str, Any]]:
    """Every training with the numbers of its last step."""
    found = []
    for name in store.trainings():
        kept = store.metrics(name)
        found.append({"name": name, "steps": len(kept), "last": plain(kept[max(kept)]) if kept else {}})
    return found


def training(store: Keeper, name: str) -> dict[str, Any]:
    """The curves of a training, and the groups of each iteration.

    Raises:
        UnknownName: no such training.
    """
    kept = _metrics(store, name)
    numbers = dict.fromkeys(metric for values in kept.values() for metric in values)
    iterations: dict[int, list[str]] = {}
    for group, iteration in _groups(store, name):
        iterations.setdefault(iteration, []).append(group)
    return {
        "name": name,
        "steps": list(kept),
        "metrics": {metric: [plain(values.get(metric)) for values in kept.values()] for metric in numbers},
        "iterations": iterations,
        "method": _method(store, name),
    }


def rows(store: Keeper, name: str, step: int) -> dict[str, Any]:
    """The asks of the runs of one iteration, each with the value it was trained on.

    Raises:
        UnknownName: no such training.
    """
    _metrics(store, name)
    runs = [run for group, iteration in _groups(store, name) if iteration == step for run in store.group(group).runs]
    found = latest_last(store.annotations(runs, target="call"))
    method = _method(store, name) or next(iter(sorted({a.method for a in found})), "")
    values = {(a.run, a.seq): a.value for a in found if a.method == method}
    judged = rewards(store, runs)
    listed: list[dict[str, Any]] = []
    for run in runs:
        asks = [call for call in store.calls(run) if call.kind == "ask" and call.node_out]
        nodes = store.nodes(call.node_out for call in asks)
        listed += [
            {
                "run": run,
                "seq": call.seq,
                "tokens": sampled(call),
                "value": plain(values.get((run, call.seq), values.get((call.run, call.seq)))),
                "reward": judged.get(run),
                "text": short(nodes[call.node_out].message.text, 200),
            }
            for call in asks
        ]
        if len(listed) >= ROWS:
            break
    return {"rows": listed[:ROWS], "method": method}


def _metrics(store: Keeper, name: str) -> dict[int, dict[str, float]]:
    kept = store.metrics(name)
    if not kept:
        known = ", ".join(store.trainings()) or "none"
        raise UnknownName(f"no training is called {name!r}", remedy=f"Known: {known}.")
    return kept


def _groups(store: Keeper, name: str) -> list[tuple[str, int]]:
    """Groups of a training with the number of their iteration: they are named ``training/iteration/task``."""
    form = re.compile(re.escape(name) + r"/(\d+)/\d+")
    found = ((group, form.fullmatch(text)) for group, text in store.group_names().items())
    return [(group, int(match[1])) for group, match in found if match]


def _method(store: Keeper, name: str) -> str:
    """The credit method a training recorded in its folder beside the store; empty where there is none."""
    if store.path == ":memory:" or not re.fullmatch(r"[\w][\w.-]*", name):
        return ""
    file = beside(store.path).parent / "trainings" / name / "settings.json"
    try:
        return str(json.loads(file.read_text(encoding="utf-8")).get("credit", ""))
    except (OSError, ValueError, AttributeError):
        return ""
