"""Replies and preferences that stand written in rows of data: what `clew tune --data` imitates, or prefers.

A row asks as rows of ``Dataset`` do. What is said to it stands in ``completion`` (as TRL has it) or in the column of
answers; a preference in ``chosen`` and ``rejected``. Only rows of one split are given, so that what is held out for
`clew train` and `clew eval` on the same file stays unseen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from clew.core.errors import BadInput, BadRecord
from clew.core.values import Message
from clew.exchange.dataset.layout import ROLES, Row
from clew.exchange.dataset.tasks import Dataset
from clew.exchange.files import brief

COMPLETION, CHOSEN, REJECTED = "completion", "chosen", "rejected"
Said = tuple[Message, ...]


class Written(NamedTuple):
    """What a row says: ``asked`` the model, and what the model is to say to it; of a preference also what is worse."""

    asked: Said
    better: Said
    worse: Said = ()


def replies(data: Dataset, split: str = "train") -> list[Written]:
    """The replies of a split.

    Raises:
        BadInput: no column holds any, or the split has no row. BadRecord: a row has none, or one with tool calls.
    """
    names = data.columns
    wanted = COMPLETION if COMPLETION in names and not data.layout.answer else ""
    found = []
    for row in data.rows(split):
        value = row.columns.get(wanted) if wanted else row.answer
        if value in (None, "", []):
            told = f"{data.name}:{row.number} has no reply to imitate"
            remedy = "Name its column with --answer, or call it completion."
            raise BadRecord(told, remedy=remedy)
        found.append(Written(_asked(row), _said(value, row, data.name)))
    return found


def preferences(data: Dataset, split: str = "train") -> list[Written]:
    """The preferences of a split.

    Raises:
        BadInput: there are no columns ``chosen`` and ``rejected``, or the split has no row. BadRecord: a row has none.
    """
    if missing := [name for name in (CHOSEN, REJECTED) if name not in data.columns]:
        remedy = "Give rows with prompt, chosen and rejected, as `clew export --pairs` writes them."
        raise BadInput(f"{data.name} has no column {missing[0]!r}, and no pairs without it", remedy=remedy)
    found = []
    for row in data.rows(split):
        asked = _asked(row)
        better, worse = (_after(asked, _said(row.columns.get(n), row, data.name)) for n in (CHOSEN, REJECTED))
        if better == worse or not better or not worse:
            raise BadRecord(f"{data.name}:{row.number} prefers nothing", remedy="Fill in two replies that differ.")
        found.append(Written(asked, better, worse))
    return found


def prompt_column(names: Sequence[str]) -> str:
    """The column that asks, of preferences whose prompt is how both conversations begin; empty for all other data."""
    return CHOSEN if CHOSEN in names and REJECTED in names and "prompt" not in names else ""


def _asked(row: Row) -> Said:
    said = row.messages or ({"role": "user", "content": row.prompt},)
    return tuple(Message(m["role"], m["content"]) for m in said)


def _after(asked: Said, said: Said) -> Said:
    """What follows the prompt, where a conversation repeats it."""
    return said[len(asked) :] if said[: len(asked)] == asked else said


def _said(value: object, row: Row, name: str) -> Said:
    """A reply as messages: a text is one of the assistant's."""
    if not isinstance(value, (list, tuple)):
        return (Message("assistant", value if isinstance(value, str) else str(value)),) if value is not None else ()
    return tuple(_message(one, f"{name}:{row.number}") for one in value)


def _message(value: Any, where: str) -> Message:
    told = value if isinstance(value, Mapping) else {}
    if told.get("tool_calls"):
        remedy = "Import such transcripts, and name the runs: clew import FILE, clew tune RUNS --recipe sft."
        raise BadRecord(f"{where} calls tools, which rows of text cannot hold", remedy=remedy)
    if told.get("role") not in ROLES or not isinstance(told.get("content"), str):
        remedy = 'Write messages as [{"role": "assistant", "content": "..."}], or a text.'
        raise BadRecord(f"{where} has {brief(value)} for a message", remedy=remedy)
    return Message(str(told["role"]), told["content"])
