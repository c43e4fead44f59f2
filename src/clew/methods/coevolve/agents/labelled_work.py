"""Labelled work: the private anchor by which judges are compared, and the open items on which they are validated.

It is read from a file of the user's or made from verdicts of the world, and dealt by the digest of each item, so
that one item is never both. Neither part may reach a proposer: ``Labelled.refuse`` looks for it in what goes there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from clew.core.errors import BadInput, ClewError
from clew.core.keys import value_digest
from clew.methods.coevolve.archive import Anchor, Item
from clew.methods.coevolve.archive.private_anchor import SHORTEST

LEAST, MOST, BYTES = 15, 20_000, 1 << 28  # items, items, bytes of a file
OPEN = 3  # one in so many items validates judges openly
FIELDS = {
    "task": ("task", "prompt", "question"),
    "work": ("work", "reply", "answer", "completion"),
    "accept": ("accept", "label"),
}
YES = {"accept": True, "good": True, "yes": True, "reject": False, "bad": False, "no": False}
SHAPE = 'Write a JSON object a line: {"task": "...", "work": "...", "accept": true}.'


class Labelled(NamedTuple):
    """anchor: private. open: on these, which the anchor does not hold, challengers show what they are worth."""

    anchor: Anchor
    open: tuple[Item, ...]

    def refuse(self, told: object) -> None:
        """Raise ClewError where what is about to be told a proposer holds the text of a labelled task."""
        text, told = "\n".join(_texts(told)), None
        for item in (*self.anchor.items, *self.open):
            task = task_of(item)
            if len(task) >= SHORTEST and task in text:
                remedy = "Keep the tasks of the anchor out of the agent's reach; nothing was sent."
                raise ClewError(
                    "what a proposer was about to be told holds a task of the private anchor", remedy=remedy
                )


def _texts(value: object) -> list[str]:
    if isinstance(value, str):
        return [_plain(value)]
    if isinstance(value, Mapping):
        return [text for one in value.values() for text in _texts(one)]
    return [text for one in value for text in _texts(one)] if isinstance(value, Sequence) else []


def _plain(text: str) -> str:
    return " ".join(text.split())


def task_of(item: Item) -> str:
    """The text of the item's task, its white space made plain."""
    artefact = item.artefact
    return _plain(str(artefact.get("task", ""))) if isinstance(artefact, Mapping) else ""


def dealt(work: Sequence[tuple[dict[str, str], bool]], what: str) -> Labelled:
    """Labelled work as anchor and open items; equal work counts once.

    Args:
        work: artefacts as ``shown_work`` makes them, each with whether to accept it. what: its name in errors.

    Raises:
        BadInput: too little of it; all of one label; equal work with both labels.
    """
    labels = dict[str, bool]()
    items = dict[str, Item]()
    for artefact, accept in work:
        key = f"anchor-{value_digest(artefact).hex()}"
        if labels.setdefault(key, accept) != accept:
            remedy = "Keep one of the two lines."
            raise BadInput(f"{what} accepts and rejects the same work on {artefact['task'][:60]!r}", remedy=remedy)
        items[key] = Item(key, artefact, accept)
    if len(items) < LEAST:
        remedy = f"Give at least {LEAST} of them, better 100: with few, a lucky judge looks like a good one."
        raise BadInput(f"{what} holds {len(items)} pieces of labelled work", remedy=remedy)
    if len(set(labels.values())) < 2:
        remedy = "Add work with the other label: a judge that always says the same would be perfect."
        raise BadInput(
            f"{what} {'accepts' if accept else 'rejects'} all of its {len(items)} pieces of work", remedy=remedy
        )
    private, shown = list[Item](), list[Item]()
    for label in (False, True):
        own = sorted((item for item in items.values() if item.accept is label), key=lambda item: item.id)
        shown += own[::OPEN][: len(own) - 1]
        private += [item for item in own if item not in shown]
    return Labelled(Anchor(private), tuple(shown))


def labelled_from(path: Path) -> Labelled:
    """Labelled work of a JSONL file: a task, the work on it, and whether it is to be accepted, in each line.

    Raises:
        BadInput: it cannot be read, a line is malformed, or see ``dealt``.
    """
    try:
        if path.stat().st_size > BYTES:
            raise BadInput(f"{path.name} has more than {BYTES >> 20} MB", remedy="Give fewer items.")
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path.name} cannot be read as text", remedy="Name a file of JSON lines.") from error
    found = [_read(line, f"{path.name}:{i}") for i, line in enumerate(lines, 1) if line.strip()]
    if len(found) > MOST:
        raise BadInput(f"{path.name} holds {len(found):,} items", remedy=f"Give at most {MOST:,}.")
    return dealt(found, path.name)


def _read(line: str, where: str) -> tuple[dict[str, str], bool]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{where} is no JSON", remedy=SHAPE) from error
    if not isinstance(row, dict):
        raise BadInput(f"{where} is no JSON object", remedy=SHAPE)
    found = {field: next((row[name] for name in names if name in row), None) for field, names in FIELDS.items()}
    for field in ("task", "work"):
        if not isinstance(found[field], str) or not found[field]:
            raise BadInput(f"{where} has no text {field!r}", remedy=SHAPE)
    accept = found["accept"]
    if isinstance(accept, str):
        accept = YES.get(accept.strip().lower())
    if accept not in (True, False):
        raise BadInput(f"{where} does not say whether its work is accepted", remedy=SHAPE)
    return {"task": str(found["task"]), "work": str(found["work"])}, bool(accept)


def written(work: Sequence[tuple[dict[str, str], bool]]) -> str:
    """Labelled work as the lines that ``labelled_from`` reads."""
    return "".join(json.dumps({**artefact, "accept": accept}) + "\n" for artefact, accept in work)


def refuse_overlap(labelled: Labelled, tasks: Mapping[str, str], what: str) -> None:
    """Raise BadInput where a task of labelled work stands in a task that agents perform.

    Args:
        tasks: texts by id. what: the name of the labelled work.
    """
    own = {_plain(text): name for name, text in tasks.items()}
    shared = [item for item in (*labelled.anchor.items, *labelled.open) if task_of(item) in own]
    if shared:
        remedy = (
            "Label work on other tasks, or search on others (--seed, --tasks): an agent would be trained on its exam."
        )
        first = own[task_of(shared[0])]
        raise BadInput(f"{len(shared)} pieces of work in {what} are on tasks of the search, as {first}", remedy=remedy)
