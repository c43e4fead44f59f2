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
SHARED = {"system": "system", "human": "user", "user": "user", "gpt": "assistant", "assistant": "assistant"}
SHARED |= {"function_call": "assistant", "observation": "function", "tool": "function"}
"""The roles of ShareGPT's speakers."""
_TWO = 'It holds two runs: write a row for each, "messages" being the prompt and one side, with "reward" 1 and 0.'
OF_NO_RUN = (
    ("a preference pair (chosen, rejected)", ("chosen", "rejected"), _TWO),
    ("a preference pair (preferred_output, non_preferred_output)", ("preferred_output", "non_preferred_output"), _TWO),
    (
        "an answer of OpenAI's batch API, without what was asked",
        ("custom_id", "response"),
        'Join it with its request by custom_id: "messages" of the request, and the message of the answer.',
    ),
    (
        "a request of OpenAI's batch API, without an answer",
        ("custom_id", "body"),
        'Join it with its answer by custom_id: "messages" of the request, and the message of the answer.',
    ),
)
"""Forms by the fields that they have, which are refused by name."""
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
        data = formed(data)
        data = {_NAMES.get(key, key) if _NAMES.get(key) not in data else key: value for key, value in data.items()}
    if not isinstance(data, dict) or not isinstance(data.get("messages"), list) or not data["messages"]:
        raise BadRecord("no messages", remedy=NEEDS)
    messages = []
    for index, raw in enumerate(data["messages"]):
        try:
            messages.append(_message(raw))
        except BadRecord as error:
            raise BadRecord(f"message {index}: {error.message}", remedy=error.remedy) from None
    tools = data.get("tools") or data.get("functions") or ()
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


def formed(row: dict[str, Any]) -> dict[str, Any]:
    """A row in a form that trainers and endpoints use, with ``messages``; any other comes back as it is.

    Raises:
        BadRecord: it is of a form that holds no run, or two; the remedy says how to convert it.
    """
    if isinstance(row.get("messages"), list):
        choices, last = row.get("choices"), row["messages"][-1:]
        if not isinstance(choices, list) or not choices or (last and last[0].get("role") == "assistant"):
            return row
        if len(choices) > 1 or not isinstance(choices[0], dict):
            remedy = 'Write a row for each choice: its message at the end of "messages".'
            raise BadRecord(f"a request with {len(choices)} choices", remedy=remedy)
        return {**row, "messages": [*row["messages"], choices[0].get("message")]}
    if isinstance(turns := row.get("conversations"), list):
        if not all(isinstance(turn, dict) and turn.get("from") in SHARED for turn in turns):
            remedy = f"Let each turn be from one of these: {', '.join(SHARED)}."
            raise BadRecord("conversations in ShareGPT's form with a turn of another speaker", remedy=remedy)
        rest = {k: v for k, v in row.items() if k != "conversations"}
        return {**rest, "messages": [_shared(turn) for turn in turns]}
    for form, names, remedy in OF_NO_RUN:
        if all(name in row for name in names):
            raise BadRecord(form, remedy=remedy)
    if "prompt" in row and "completion" in row:
        said = [_side(row["prompt"], "user"), _side(row["completion"], "assistant")]
        rest = {k: v for k, v in row.items() if k not in ("prompt", "completion")}
        return {**rest, "messages": [message for side in said for message in side]}
    return row


def _side(side: object, role: str) -> list[object]:
    """One side of prompt and completion: a text, or messages."""
    return side if isinstance(side, list) else [{"role": role, "content": side}]


def _shared(turn: dict[str, Any]) -> dict[str, Any]:
    """A turn in ShareGPT's form; a call is JSON of a name and arguments."""
    said = turn.get("value")
    if turn["from"] != "function_call":
        return {"role": SHARED[turn["from"]], "content": said}
    try:
        call = files.loads(said) if isinstance(said, str) else said
    except ValueError:
        call = None
    if not isinstance(call, dict) or not isinstance(call.get("name"), str):
        remedy = 'Write its value as JSON: {"name": ..., "arguments": {...}}.'
        raise BadRecord("a turn from function_call without a call", remedy=remedy)
    return {"role": "assistant", "content": None, "function_call": call}


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
