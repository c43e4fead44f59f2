"""The line that a list shows of a run, and the words that a search finds it by.

Stores call this to fill their derived tables. Nothing here is part of the record: all of it can be made again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence

from clew.core.records import Call, RunRow
from clew.store.protocol import Folds, Summary, Tables
from clew.store.run import cut, sampled, span

_WORD = re.compile(r"[^\W_]+")


def fold(rows: Iterable[Summary], chosen: Sequence[Summary], limit: int | None, start: int) -> Folds:
    """The groups of the chosen runs, in the order of these, filled up from ``rows``."""
    members: dict[str, list[Summary]] = {}
    for row in rows:
        members.setdefault(row.group or row.run, []).append(row)
    names = list(dict.fromkeys(row.group or row.run for row in chosen))
    stop = None if limit is None else start + limit
    return Folds([members[name] for name in names[start:stop]], len(names))


def summarise(row: RunRow, path: Sequence[Call]) -> Summary:
    """The summary of a run from its Calls; the slow twin of what SQLiteStore counts in SQL."""
    own = path[row.lineage[-1].stop if row.lineage else 0 :]
    model = row.model or next((c.setup.model for c in path if c.setup), "")
    stop = path[-1].action if path and path[-1].kind == "end" else ""
    names = (row.id, row.taskset, row.task_id, row.agent, model, row.origin, row.parent, row.group)
    along = (len(cut(path)), len(path), sum(map(sampled, path)))
    return Summary(*names, row.seed, row.created, stop, *along, sum(c.cost for c in own), span(own))


def words(text: str) -> list[str]:
    """Lower-case words, the units of ``text:`` search."""
    return _WORD.findall(text.lower())


def document(store: Tables, run: str) -> str:
    """Everything said, done and seen in a run, each text once, one a line."""
    row = store.row(run)
    prompt = json.loads(row.task).get("prompt", "") if row.task else ""
    texts: dict[str, None] = dict.fromkeys((prompt,))
    tips: dict[bytes, None] = {}
    for call in store.calls(run):
        texts.update(dict.fromkeys(call.said))
        if call.kind == "ask":
            tips.pop(call.node_in, None)
            tips[call.node_out or call.node_in] = None
    seen: set[bytes] = set()
    for tip in reversed(tips):  # the last first: most earlier ones lie on its path
        path = [] if tip in seen else store.thread(tip)
        for node in path:
            message = node.message
            tools = (part for tool in message.calls for part in (tool.name, tool.arguments))
            texts.update(dict.fromkeys((message.text, message.reasoning, *tools)))
        seen.update(node.key for node in path)
    return "\n".join(filter(None, texts))


def says(document: str, phrase: Sequence[str]) -> bool:
    """Whether the words of ``phrase`` stand side by side in a document."""
    return f" {' '.join(phrase)} " in f" {' '.join(words(document))} "
