"""A run in outline: of each Call what it is in a few words, whether it failed, how long it took and what it cost.

The page draws its jump list and its timeline from it. It comes in pieces, since a run may have many thousand Calls.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clew.core.json_values import plain
from clew.core.printable import short
from clew.core.records import Call, Node, action_of
from clew.core.values import ToolCall
from clew.store import Keeper
from clew.view.pages.transcript_page import failed

PIECE = 4_000  # Calls of one answer at most
LABEL = 70  # characters of a label
NAMES = 8  # tools of one reply that are named


def outline(store: Keeper, run: str, start: int = 0) -> dict[str, Any]:
    """Calls from ``start`` on, as columns of equal length, and where the next piece begins (None: this was the last).

    ``tools`` are names: of the tool an act performs; of a reply's tool calls where no act performs them, as in runs of
    programs behind the gateway. ``seconds`` and ``cost`` (US dollars) are the Call's own; ``started`` is in seconds
    since the epoch, 0 where it is not known.

    Raises:
        UnknownName: no such run.
    """
    calls = store.calls(run, start, start + PIECE)
    nodes = store.nodes(key for call in calls if call.kind == "ask" for key in (call.node_in, call.node_out) if key)
    performed = {action.id for call in calls if isinstance(action := _action(call), ToolCall)}
    rows = [_row(call, nodes, performed) for call in calls]
    columns: dict[str, Any] = {name: [row[name] for row in rows] for name in (rows[0] if rows else ())}
    shown: dict[str, Any] = plain(columns)
    return shown | {"next": calls[-1].seq + 1 if len(calls) == PIECE else None}


def _action(call: Call) -> str | ToolCall | None:
    return action_of(call) if call.kind == "act" else None


def _row(call: Call, nodes: Mapping[bytes, Node], performed: set[str]) -> dict[str, Any]:
    label, tools, broke = call.action, [], bool(call.error)
    action = _action(call)
    if isinstance(action, ToolCall):
        label, tools, broke = action.arguments, [action.name[:LABEL]], failed(call.text, call.error)
    elif call.kind == "ask":
        reply, before = nodes.get(call.node_out), nodes.get(call.node_in)
        wished = reply.message.calls if reply else ()
        label = (reply.message.text if reply else "") or ", ".join(one.name for one in wished[:NAMES])
        tools = [one.name[:LABEL] for one in wished[:NAMES] if one.id not in performed]
        relayed = not performed and before is not None and before.message.role == "tool"  # no act holds the result
        broke = broke or (relayed and failed(before.message.text if before else ""))
    elif call.kind == "open":
        label = call.text
    known = {
        "seq": call.seq,
        "kind": call.kind,
        "label": short(label[: LABEL * 4], LABEL),
        "tools": tools,
        "failed": broke,
    }
    return known | {"seconds": call.seconds, "cost": call.cost, "started": call.started}
