"""People's labels as files: every entry a line, or what people prefer as pairs of messages for other trainers.

`clew export --labels` and `clew export --pairs` call it. A pair is a line with ``prompt``, ``chosen`` and ``rejected``,
lists of messages in OpenAI's format: the explicit, conversational form of preference data that TRL reads. Nothing that
only one of the two saw may stand in the prompt.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from clew.core.errors import BadInput
from clew.core.values import Message, ToolSpec
from clew.exchange import files
from clew.exchange.openai_jsonl import SUFFIXES, written
from clew.exchange.transcript import recall
from clew.models.dialects import chat
from clew.store import Run
from clew.store.labels import METHOD, VERDICTS, Label, as_json, read, standing
from clew.store.preferences import Pairs, Preference, preferences

Said = tuple[list[Message], tuple[ToolSpec, ...]]


def write_labels(runs: Iterable[Run], path: str | Path) -> int:
    """Write every entry on these runs and on Calls of their paths, the oldest first; gives their number.

    ``stands`` says of each whether it is its author's last word.

    Raises:
        BadInput: nobody labelled them, or the file cannot be written or is no .jsonl file.
    """
    place, found = _jsonl(path), dict[Label, None]()
    for run in runs:
        found.update(dict.fromkeys(read(run.annotations(METHOD))))
    if not found:
        raise BadInput("none of these runs is labelled", remedy="Label some: clew label RUN --verdict good.")
    entries = sorted(found, key=lambda entry: entry.at)
    last = {(e.place, e.by): e.at for e in standing(entries)}
    with files.writing(place) as file:
        for e in entries:
            file.write(files.dumps(as_json(e, last.get((e.place, e.by)) == e.at)) + b"\n")
    return len(entries)


def write_pairs(runs: Iterable[Run], path: str | Path, verdicts: Sequence[str] = VERDICTS) -> tuple[int, int, Pairs]:
    """Write what people prefer; gives how many lines it makes, how many pairs say the same or share no prompt, and all.

    Of two runs of a task the prompt is what both begin with, up to a reply in which they differ; of two replies it is
    what both were asked.

    Raises:
        BadInput: the labels order nothing, no pair shares a prompt, or the file cannot be written.
    """
    place, known = _jsonl(path), {run.id: run for run in runs}
    pairs = preferences(known.values(), verdicts)
    lines = [line for pair in pairs.found if (line := _line(pair, known)) is not None]
    if not lines:
        told = f"the labels of these {len(known)} runs order no two runs of a task and no two replies to one prompt"
        if pairs.found:
            told = f"the {len(pairs.found)} pairs of these runs say the same, or share no prompt"
        remedy = "Label more runs of one task, some better and some worse: clew label RUN --stars 2."
        raise BadInput(told, remedy=remedy)
    with files.writing(place) as file:
        for line in lines:
            file.write(files.dumps(line) + b"\n")
    return len(lines), len(pairs.found) - len(lines), pairs


def _jsonl(path: str | Path) -> Path:
    if not str(path).endswith(SUFFIXES):
        raise BadInput(f"labels are written as .jsonl, not as {str(path)!r}", remedy="Name a .jsonl file.")
    return Path(path)


def _line(pair: Preference, runs: dict[str, Run]) -> dict[str, Any] | None:
    """One pair as a line; None where the two have no prompt in common or say the same."""
    some = next(iter(runs.values()))
    (one, tools), (other, _) = (_messages(label, runs, some) for label in (pair.chosen, pair.rejected))
    shared = 0
    while shared < min(len(one), len(other)) and one[shared] == other[shared]:
        shared += 1
    while shared and not (_replies(one, shared) and _replies(other, shared)):
        shared -= 1
    if not shared or one[shared:] == other[shared:]:
        return None
    line: dict[str, Any] = {
        "prompt": written(one[:shared]),
        "chosen": written(one[shared:]),
        "rejected": written(other[shared:]),
    }
    if tools:
        line["tools"] = [chat.tool_to_wire(tool) for tool in tools]
    places = {"chosen": pair.chosen.place, "rejected": pair.rejected.place}
    return line | {"clew": {**places, "by": list(pair.by), "votes": pair.votes}}


def _replies(messages: Sequence[Message], at: int) -> bool:
    return at < len(messages) and messages[at].role == "assistant"


def _messages(label: Label, runs: dict[str, Run], some: Run) -> Said:
    """What a labelled thing holds: the main conversation of a run, or a reply after what was sent."""
    if label.seq < 0:
        told = recall(runs[label.run])
        return list(told.messages), told.tools
    call = some.store.calls(label.run, label.seq, label.seq + 1)[0]
    path = [*some.store.thread(call.node_in), some.store.node(call.node_out)]
    return [node.message for node in path], call.setup.tools if call.setup else ()
