"""Messages in OpenAI's format, one run a line: ``messages``, where known ``tools``, ``task_id``, ``reward``, ``model``.

Every other field is kept and comes back on export, as do all fields of messages that Clew has no name for. A document
of JSON is read too: a run, a list of runs (tau-bench, which says ``traj`` for ``messages``), or a list of messages
(mini-swe-agent, which says ``instance_id`` for ``task_id``).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from clew.core.errors import BadInput, BadRecord
from clew.core.values import Message
from clew.exchange import files
from clew.exchange.beside import read as read_values
from clew.exchange.beside import to_json
from clew.exchange.files import brief
from clew.exchange.transcript import Transcript, task_id_of, turns_of
from clew.models.dialects import chat, dumps, media, tags
from clew.models.dialects.foreign import neutral

SUFFIXES = (".jsonl", ".jsonl.gz", ".jsonl.zst", ".ndjson")
NEEDS = 'A run is a JSON object with "messages", a list in OpenAI\'s format, or that list: one a line, or a .json file.'
_DATA = re.compile(r"data:(image/[a-z]{1,20});base64,([A-Za-z0-9+/]+={0,2})", re.ASCII)
_NAMES = {"traj": "messages", "instance_id": "task_id"}  # as tau-bench and mini-swe-agent call them


def read(path: Path) -> Iterator[Transcript | BadRecord]:
    """Transcripts of a file's lines, or of a .json document; what is none gives its error in its place.

    Raises:
        BadInput: the file cannot be opened.
    """
    whole = path.suffix == ".json"
    found = (
        _runs(path) if whole else ((f"{path.name}:{n}", partial(files.loads, line)) for n, line in files.lines(path))
    )
    for where, load in found:
        try:
            yield transcript_of(load(), where)
        except BadRecord as error:
            yield BadRecord(f"{where}: {error.message}", remedy=error.remedy)
        except (BadInput, ValueError) as error:  # not JSON, NaN, bytes that are no text
            yield BadRecord(f"{where}: {error}", remedy=NEEDS)


def _runs(path: Path) -> Iterator[tuple[str, Callable[[], object]]]:
    """The runs of a document: a list whose first entry has a role is one of messages, any other one of runs."""
    text = files.whole(path)
    try:
        data = files.loads(text)
    except ValueError:
        data = None
    if isinstance(data, list) and data and not (isinstance(data[0], dict) and "role" in data[0]):
        for number, run in enumerate(data, 1):
            yield f"{path.name}:{number}", partial(lambda run: run, run)
    else:
        yield path.name, partial(files.loads, text)


def transcript_of(data: object, where: str = "") -> Transcript:
    """One line's object as a transcript.

    Raises:
        BadRecord: it is none; the message says why.
    """
    if isinstance(data, list):
        data = {"messages": data}
    if isinstance(data, dict):
        data = {_NAMES.get(key, key) if _NAMES.get(key) not in data else key: value for key, value in data.items()}
    if not isinstance(data, dict) or not isinstance(data.get("messages"), list) or not data["messages"]:
        raise BadRecord("no messages", remedy=NEEDS)
    messages = []
    for index, raw in enumerate(data["messages"]):
        try:
            messages.append(_message(raw))
        except BadRecord as error:
            raise BadRecord(f"message {index}: {error.message}", remedy=error.remedy) from None
    tools = data.get("tools") or ()
    if not isinstance(tools, Sequence) or isinstance(tools, str):
        raise BadRecord(f"tools is a {type(tools).__name__}", remedy="Give a list of tools, or none.")
    task, model, scores = data.get("task_id"), data.get("model"), data.get("scores")
    if not isinstance(scores, dict) or not all(isinstance(v, (int, float)) for v in scores.values()):
        scores = {}
    values = read_values(data.get("annotations"), [m.role for m in messages])
    return Transcript(
        tuple(messages),
        "" if task is None else str(task),
        tuple(map(chat.tool_from_wire, tools)),
        number(data.get("reward"), "reward"),
        scores_of(scores),
        model=model if isinstance(model, str) else "",
        fields={k: v for k, v in data.items() if k != "messages" and not (values and k == "annotations")},
        where=where,
        values=values or (),
    )


def _message(raw: dict[str, Any]) -> Message:
    """A message; images that stand as Clew writes them are in no dialect's form, so that every endpoint can be sent
    them. All others stay as they came."""
    message = chat.message_from_wire(raw)
    parts = [part.get("image_url") for part in media(tags(message).get("chat"))]
    urls = [part.get("url") for part in parts if isinstance(part, dict)]
    found = [match.groups() for url in urls if isinstance(url, str) and (match := _DATA.fullmatch(url))]
    held = [{"type": "image", "media_type": kind, "data": data} for kind, data in found if len(data) % 4 == 0]
    plain = message._replace(extra=dumps({"media": held}))
    return plain if held and chat.message_to_wire(plain) == raw else message


def number(value: object, name: str) -> float | None:
    """A finite number, or None.

    Raises:
        BadRecord: it is neither.
    """
    if value is None:
        return None
    if isinstance(value, (bool, int, float)):
        with suppress(OverflowError):  # an integer beyond any float
            if math.isfinite(found := float(value)):
                return found
    raise BadRecord(f"{name[:40]} is {brief(value)}", remedy="Give a number, or leave it out.")


def scores_of(raw: Mapping[str, object]) -> dict[str, float]:
    """Scores by name, those that are null left out.

    Raises:
        BadRecord: one is no number, or its name is no text.
    """
    for name in raw:
        if files.whole_text(name) != name:
            raise BadRecord(f"a score is called {brief(name)}", remedy="Give it a name of whole characters.")
    return {name: value for name, score in raw.items() if (value := number(score, name)) is not None}


def line_of(it: Transcript) -> dict[str, Any]:
    """A transcript as one line's object; an imported one gets back every field it came with."""
    out = dict(it.fields or {})
    if str(out.get("task_id", task_id_of(turns_of(it.messages)[0]))) != it.task_id:
        out["task_id"] = it.task_id
    if it.reward is not None and out.get("reward") != it.reward:
        out["reward"] = it.reward
    if it.model:
        out["model"] = it.model
    if it.scores:
        out["scores"] = dict(it.scores)
    if it.values:
        out["annotations"] = to_json(it.values)
    if it.tools and "tools" not in out:
        out["tools"] = [chat.tool_to_wire(tool) for tool in it.tools]
    if it.fields is None:
        out["clew"] = dict(it.about)
        if it.others:
            out["conversations"] = [written(other) for other in it.others]
    return {**out, "messages": written(it.messages)}


def written(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Messages as a file has them, whatever endpoint's form their images came in; what no file of this format can hold
    is named in the text."""
    return chat.messages_to_wire(neutral(messages, chat.NAME, named=True))


def write(path: Path, transcripts: Iterable[Transcript]) -> int:
    """Write one line for each transcript; gives their number.

    Raises:
        BadInput: the file cannot be written.
    """
    count = 0
    with files.writing(path) as file:
        for it in transcripts:
            file.write(files.dumps(line_of(it)) + b"\n")
            count += 1
    return count
