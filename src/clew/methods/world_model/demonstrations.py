"""Recorded runs as examples for a model of a world, from a JSONL file that ``clew export`` writes.

``simulated(demos=...)`` calls it. Of a run with tool calls, each call and the message that answers it is a turn; of a
run that only talks, each assistant message and the user message that follows. A run in which nothing was answered is
left out, and a file of such runs alone is refused. What the file says is shown to a model and never run.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from clew.core.errors import BadInput
from clew.core.sources import placed
from clew.core.values import ToolCall
from clew.methods.world_model.prompting import Demonstration, Turn
from clew.methods.world_model.text_files import text_of

LARGEST, RUNS, TURNS, LONGEST = 64 << 20, 1000, 400, 8000  # bytes; of a file; of a run; characters of one text
REMEDY = "Write one with `clew export runs.jsonl RUNS`."


def demonstrations_of(path: str | Path) -> list[Demonstration]:
    """The runs of a file, as far as something was answered in them.

    Raises:
        BadInput: there is no such file, a line is no run, or no run holds an observation.
    """
    lines = text_of(Path(placed(path)), "recorded runs", LARGEST, REMEDY).splitlines()
    found = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        made = _demonstration(line, f"{path}:{number}")
        if made.turns:
            found.append(made)
        if len(found) > RUNS:
            raise BadInput(f"{path} holds more than {RUNS} runs", remedy="Export fewer runs.")
    if not found:
        raise BadInput(f"no run of {path} holds an observation", remedy=REMEDY)
    return found


def shown(found: Iterable[Demonstration], most: int, room: int = 24_000) -> list[Demonstration]:
    """The first ``most`` runs, each with as many of its first turns as an equal share of ``room`` characters holds."""
    chosen = list(found)[:most]
    share = room // max(len(chosen), 1)
    made = []
    for one in chosen:
        turns, left = list[Turn](), share
        for turn in one.turns:
            left -= len(str(turn.action)) + len(turn.observation)
            if left < 0 and turns:
                break
            turns.append(turn)
        made.append(Demonstration(one.task, tuple(turns)))
    return made


def _demonstration(line: str, where: str) -> Demonstration:
    try:
        data = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{where} is no JSON: {error}", remedy=REMEDY) from error
    messages = data.get("messages") if isinstance(data, Mapping) else data
    if not isinstance(messages, list) or not all(isinstance(m, Mapping) and "role" in m for m in messages):
        raise BadInput(f"{where} holds no messages", remedy=REMEDY)
    messages = [*messages, *_after(data)]
    by_tools = any(m.get("tool_calls") for m in messages)
    turns = list(_called(messages) if by_tools else _spoken(messages))
    told = next((_text(m) for m in messages if m["role"] == "user"), "")
    return Demonstration(told, tuple(turns[:TURNS]))


def _after(data: object) -> list[dict[str, Any]]:
    """What came after the last reply, which no model was shown, as messages: ``clew export`` tells it apart."""
    told = data.get("clew") if isinstance(data, Mapping) else None
    rows = told.get("after") if isinstance(told, Mapping) else None
    found = [row for row in rows if isinstance(row, Mapping)] if isinstance(rows, list) else []
    kinds = [{"role": "tool", "tool_call_id": row["call"]} if row.get("call") else {"role": "user"} for row in found]
    return [
        {**kind, "content": str(row.get("text") or ""), "done": row.get("done") is True}
        for kind, row in zip(kinds, found, strict=True)
    ]


def _called(messages: list[Mapping[str, Any]]) -> Iterator[Turn]:
    """Each call with the message that answers its id before the next reply: ids of later replies may be the same."""
    replies = [i for i, message in enumerate(messages) if message["role"] == "assistant"]
    for start, stop in zip(replies, [*replies[1:], len(messages)], strict=True):
        after = [message for message in messages[start + 1 : stop] if message["role"] == "tool"]
        answers = {str(message.get("tool_call_id")): message for message in reversed(after)}
        for call in messages[start].get("tool_calls") or ():
            inner = call.get("function") if isinstance(call, Mapping) else None
            answer = answers.get(str(call.get("id"))) if isinstance(call, Mapping) else None
            if isinstance(inner, Mapping) and answer is not None:
                given = str(inner.get("arguments") or "{}")[:LONGEST]
                made = ToolCall(str(call["id"]), str(inner.get("name"))[:64], given)
                yield Turn(made, _text(answer), done=answer.get("done") is True)


def _spoken(messages: list[Mapping[str, Any]]) -> Iterator[Turn]:
    """Each reply with the user message that comes right after it."""
    for reply, answer in pairwise(messages):
        if reply["role"] == "assistant" and answer["role"] == "user":
            yield Turn(_text(reply), _text(answer), done=answer.get("done") is True)


def _text(message: Mapping[str, Any]) -> str:
    content = message.get("content") or ""
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, Mapping)]
        content = "\n".join(str(part) for part in parts if part is not None)
    return str(content)[:LONGEST]
