"""Takes credentials out of a copy of a record, so that it can be given away; its keys stay as they are.

A message, action or result that holds one is redacted, by the store's own tombstones: to write other words in its place
would change its key and all that follow. What no key covers (how a run was started, annotations, errors of tries) has
the credential masked. The store that the copy was made from must never come here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from clew.core.records import Call, RunRow
from clew.exchange.portable.credentials import Credentials, without_secrets
from clew.store import MemoryStore
from clew.store.protocol import Burial
from clew.store.redaction import done, of_known

HELD = ("action", "text", "legal", "packed", "error", "inner", "extra")  # of a Call; redaction empties them


class Scrubbed(NamedTuple):
    """erased: Calls (``run@seq``) and messages (hex keys) that were redacted. masked: runs, Calls and annotations."""

    erased: list[str]
    masked: list[str]


def scrub(copy: MemoryStore, credentials: Credentials) -> Scrubbed:
    """Take every credential out of a copy of runs."""
    nodes = {node.key for node in copy.each_node() if _says(node.message, credentials)}
    calls = set[tuple[str, int]]()
    for run in copy.run_ids():
        calls |= {
            (call.run, call.seq) for call in copy.calls(run) if call.kind != "end" and _told(copy, call, credentials)
        }
    erased = done(copy, of_known(copy, nodes, calls))
    masked = dict[str, None]()
    rows = [copy.row(run) for run in copy.run_ids()]
    clean = [_started(row, credentials) for row in rows]
    copy.bury(Burial([], [], clean))
    masked |= dict.fromkeys(now.id for was, now in zip(rows, clean, strict=True) if was != now)
    for value in copy.annotations():
        if credentials.first(value.data):
            copy.annotate([value._replace(data=credentials.masked(value.data))])
            masked[f"{value.method} of {value.run or value.node.hex()}"] = None
    for run in copy.run_ids():
        for call in copy.calls(run):
            tries = tuple(one._replace(error=credentials.masked(one.error)) for one in call.attempts)
            if tries != call.attempts:
                copy.put_call(call.run, call._replace(attempts=tries))
                masked[f"{call.run}@{call.seq}"] = None
    return Scrubbed(erased, list(masked))


def _started(row: RunRow, credentials: Credentials) -> RunRow:
    clean = credentials.masked
    row = row._replace(agent=clean(row.agent), taskset=clean(row.taskset), model=clean(row.model), task=clean(row.task))
    config, meta, settings, changes = (clean(without_secrets(text)) for text in settings_of(row))
    return row._replace(config=config, meta=meta, settings=settings, changes=changes)


def settings_of(row: RunRow) -> tuple[str, str, str, str]:
    """What says how a run was started, each as JSON."""
    return row.config, row.meta, row.settings, row.changes


def _told(copy: MemoryStore, call: Call, credentials: Credentials) -> bool:
    """Whether a Call holds a credential, in its texts or in the state of its world."""
    held = any(_says(getattr(call, name), credentials) for name in HELD)
    return held or bool(call.snapshot and credentials.first_in_file(copy.blob(call.snapshot)))


def _says(value: object, credentials: Credentials) -> bool:
    return any(credentials.first(text) for text in _texts(value))


def _texts(value: object) -> Iterator[str]:
    """All strings in nested tuples."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, tuple):
        for one in value:
            if isinstance(one, (str, tuple)):
                yield from _texts(one)
