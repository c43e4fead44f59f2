"""Session logs of Codex: ``~/.codex/sessions/**/rollout-*.jsonl``.

A line is ``{timestamp, type, payload}``: ``session_meta``, ``turn_context`` (the model), ``response_item`` (an item of
OpenAI's responses API), ``event_msg`` (of which only the counts of tokens are read) or ``compacted``. Old logs have the
items alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from clew.core.errors import BadRecord
from clew.core.values import Message, Usage
from clew.exchange.files import Skipped, brief
from clew.exchange.sessions.log_lines import BROKEN, Row, Talk, Unread, begins, refused, rows, seconds, transcript
from clew.exchange.transcript import Meter, Transcript
from clew.models.dialects import count, responses

Json = dict[str, Any]
SUFFIXES = ()
NEEDS = "Give a session log of Codex (~/.codex/sessions/**/rollout-*.jsonl) with at least one reply."
OUTPUTS = {"function_call_output", "custom_tool_call_output", "local_shell_call_output"}
SAID = {"message", "reasoning", "function_call", "custom_tool_call", "local_shell_call"}
BESIDE = {"ghost_snapshot"}  # an item that is Codex's own and no part of what is said
KNOWN = {"event_msg"}  # lines that say once more what items say, for its screen
ABOUT = ("id", "cwd", "originator", "cli_version", "source", "model_provider", "forked_from_id", "thread_source")


def recognises(head: bytes, suffix: str) -> bool:
    """Whether a file that begins so is such a log."""
    if suffix == ".json":
        return False
    for data in begins(head, 3):
        if data.get("type") == "session_meta" and isinstance(data.get("payload"), dict):
            return True
        if {"id", "timestamp", "instructions"} <= data.keys():
            return True
    return b'"type":"session_meta","payload":{' in head[:300]  # a first line longer than what was looked at


def read(path: Path) -> Iterator[Transcript | BadRecord]:
    """The session as one transcript, after an error for each line that cannot be read.

    Raises:
        BadInput: the file cannot be opened. BadRecord: it is larger than can be kept.
    """
    session = Session()
    for row in rows(path):
        if isinstance(row, Skipped):
            yield row
            continue
        try:
            session.line(row)
        except (BadRecord, *BROKEN) as error:
            yield refused(path, row, error)
    yield from session.unknown.told(path)
    talks = [part.finish() for part in session.finish()]
    yield transcript(path, talks, {"codex": session.about}) or BadRecord(f"{path.name}: no replies", remedy=NEEDS)


class Session:
    """What a log has said so far: its conversations, one after each compaction, and the reply that is being read."""

    def __init__(self) -> None:
        self.about: Json = {}
        self.unknown = Unread()
        self._talks = [Talk()]
        self._reply: list[Json] = []  # items of the reply that is not yet complete
        self._model, self._system = "", ""
        self._last = self._began = self._ended = 0.0
        self._total: object = None

    def line(self, row: Row) -> None:
        """Take a line.

        Raises:
            BadRecord or one of BROKEN: it is not as such a log has it; nothing of it is taken.
        """
        data, kind = row.data, row.data.get("type")
        at = seconds(data.get("timestamp"))
        payload = data.get("payload")
        if kind in SAID | OUTPUTS:
            self._item(data, at, row.number)
        elif kind == "response_item":
            self._item(_object(payload), at, row.number)
        elif kind == "session_meta" or {"id", "timestamp", "instructions"} <= data.keys():
            self._meta(_object(payload) if kind == "session_meta" else data)
        elif kind == "turn_context":
            model = _object(payload).get("model")
            self._model = model if isinstance(model, str) else self._model
        elif kind == "event_msg" and _object(payload).get("type") == "token_count":
            self._count(payload.get("info") if isinstance(payload, dict) else None)
        elif kind == "compacted":
            self._compact(_object(payload))
        elif kind not in KNOWN and "record_type" not in data:
            self.unknown.add(kind, row.number)
        self._last = at or self._last

    def _meta(self, payload: Json) -> None:
        if self.about:
            return  # of a session that this one was forked from
        self.about = {name: brief(payload[name]).strip("'\"") for name in ABOUT if payload.get(name) is not None}
        given = payload.get("base_instructions") or payload.get("instructions")
        text = given.get("text") if isinstance(given, dict) else given
        if isinstance(text, str) and text and not self._talks[-1].messages:
            self._system = text
            self._talks[-1].messages.append(Message("system", text))

    def _item(self, item: Json, at: float, number: int) -> None:
        kind = item.get("type")
        if kind in OUTPUTS:
            output = item.get("output")
            if isinstance(output, dict):
                output = output.get("content", json.dumps(output))
            found = {"type": "function_call_output", "call_id": item["call_id"], "output": output}
            self._say(found)
        elif kind == "message" and item.get("role") != "assistant":
            self._say(item)
        elif kind in SAID:
            if kind == "local_shell_call":
                item = {**item, "type": "function_call", "name": "local_shell"}
                item["arguments"] = json.dumps(item.get("action"))
            responses.messages_from_wire([item])  # raises where it is none
            if not self._reply:
                self._began = self._last or at
            self._reply.append(item)
            self._ended = at
        elif kind not in BESIDE:
            self.unknown.add(kind, number)

    def _say(self, item: Json) -> None:
        messages = responses.messages_from_wire([item])
        self._settle()
        self._talks[-1].messages += messages

    def _settle(self, usage: Usage | None = None) -> None:
        """The reply that was being read is complete."""
        if not self._reply:
            if usage is not None and self._talks[-1].meters and self._talks[-1].meters[-1].usage == Usage():
                self._talks[-1].meters[-1] = self._talks[-1].meters[-1]._replace(usage=usage)
            return
        messages = responses.messages_from_wire(self._reply)
        took = max(self._ended - self._began, 0.0) if self._ended and self._began else 0.0
        for place, message in enumerate(messages):
            last = place == len(messages) - 1
            meter = Meter(usage or Usage(), 0.0, took, started=self._began) if last else Meter(started=self._began)
            self._talks[-1].messages.append(message)
            self._talks[-1].meters.append(meter._replace(model=self._model))
        self._reply = []

    def _count(self, info: object) -> None:
        """The counts of a response: they end the reply. They are repeated with news of other limits."""
        if not isinstance(info, dict) or not isinstance(last := info.get("last_token_usage"), dict):
            return
        total = info.get("total_token_usage")
        if total is not None and total == self._total:
            return
        self._total = total
        names = ("input_tokens", "output_tokens", "cached_input_tokens")
        self._settle(Usage(*(count(last.get(name)) for name in names)))

    def _compact(self, payload: Json) -> None:
        """What the model is shown from here on: the history in its place, or a summary."""
        items = payload.get("replacement_history")
        summary = payload.get("message")
        shown = (
            responses.messages_from_wire([i for i in items if isinstance(i, dict) and i.get("type") in SAID | OUTPUTS])
            if isinstance(items, list)
            else []
        )
        if isinstance(summary, str) and summary and not shown:
            shown = [Message("user", summary)]
        self._settle()
        talk = Talk()
        talk.messages = [*([Message("system", self._system)] if self._system else []), *shown]
        talk.meters = [Meter() for m in talk.messages if m.role == "assistant"]
        self._talks.append(talk)

    def finish(self) -> list[Talk]:
        self._settle()
        return self._talks


def _object(value: object) -> Json:
    if not isinstance(value, dict):
        raise TypeError("the payload is no object")
    return value
