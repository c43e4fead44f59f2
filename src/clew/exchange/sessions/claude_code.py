"""Session logs of Claude Code: ``~/.claude/projects/*/*.jsonl``.

A line is one content block of a reply, a prompt or a tool's result; blocks of one reply carry one ``message.id``.
Prompts name the line before them, so that a prompt given anew (a rewind) begins another conversation.
``compact_boundary`` ends a conversation; ``isSidechain`` marks a sub-agent, whose log may also lie in
``SESSION/subagents/agent-*.jsonl``.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from clew.core.errors import BadRecord
from clew.exchange.files import Skipped
from clew.exchange.openai_jsonl import number
from clew.exchange.sessions.log_lines import (
    BROKEN,
    Row,
    Said,
    Talk,
    Unread,
    begins,
    in_order,
    refused,
    rows,
    seconds,
    transcript,
)
from clew.exchange.transcript import Meter, Transcript
from clew.models.dialects import messages as anthropic

Json = dict[str, Any]
SUFFIXES = ()
NEEDS = "Give a session log of Claude Code (~/.claude/projects/*/*.jsonl) with at least one reply."
KINDS = {"user", "assistant", "system", "summary", "attachment", "progress", "file-history-snapshot", "queue-operation"}
KINDS |= {"permission-mode", "ai-title", "custom-title", "last-prompt", "mode"}
AGENTS = 1000  # files of sub-agents of one session
MADE_UP = "<synthetic>"  # the model of replies that Claude Code itself wrote, of an error of the API


def recognises(head: bytes, suffix: str) -> bool:
    """Whether a file that begins so is such a log."""
    return suffix != ".json" and any(_ours(data) for data in begins(head))


def _ours(data: Json) -> bool:
    if data.get("type") not in KINDS:
        return False
    return "sessionId" in data or ("uuid" in data and "parentUuid" in data) or "leafUuid" in data


def read(path: Path) -> Iterator[Transcript | BadRecord]:
    """The session as one transcript, after an error for each line that cannot be read.

    Raises:
        BadInput: the file cannot be opened. BadRecord: it is larger than can be kept.
    """
    session = Session()
    yield from session.take(path)
    folder = path.with_suffix("") / "subagents"
    for file in sorted(folder.glob("agent-*.jsonl"))[:AGENTS] if folder.is_dir() else ():
        yield from session.take(file, beside=file.stem)
    talks = [thread.finish() for thread in session.threads()]
    yield transcript(path, talks, {"claude_code": session.about}) or BadRecord(f"{path.name}: no replies", remedy=NEEDS)


class Session:
    """The conversations of a session, by the sub-agent that had them; the main one is called ``""``."""

    def __init__(self) -> None:
        self.about: dict[str, str] = {}
        self.unknown = Unread()
        self._threads: dict[str, list[Thread]] = {"": [Thread()]}
        self._agent: dict[str, str] = {}  # of each line, by its uuid
        self._seen: set[str] = set()

    def threads(self) -> list[Thread]:
        return [thread for threads in self._threads.values() for thread in threads]

    def take(self, path: Path, beside: str = "") -> Iterator[Skipped]:
        """Read a file of the session; ``beside`` names the sub-agent whose own file it is."""
        self.unknown = Unread()
        for row in rows(path):
            if isinstance(row, Skipped):
                yield row
                continue
            try:
                self._line(row, beside)
            except (BadRecord, *BROKEN) as error:
                yield refused(path, row, error)
        yield from self.unknown.told(path)

    def _line(self, row: Row, beside: str) -> None:
        data = row.data
        id, parent = data.get("uuid"), data.get("parentUuid")
        if isinstance(id, str):
            if id in self._seen:
                return  # a resumed session repeats what it began with
            self._seen.add(id)
        for name, field in (("session", "sessionId"), ("cwd", "cwd"), ("version", "version"), ("branch", "gitBranch")):
            if isinstance(value := data.get(field), str) and not beside:
                self.about.setdefault(name, value[:1000])
        title = data.get("aiTitle", data.get("customTitle", data.get("summary")))
        if isinstance(title, str) and data.get("type") in ("summary", "ai-title", "custom-title"):
            self.about["title"] = title[:1000]
        if data.get("type") not in KINDS:
            self.unknown.add(data.get("type"), row.number)
        agent = beside
        if data.get("isSidechain") is True and not beside:
            above = self._agent.get(parent, "") if isinstance(parent, str) else ""
            agent = str(data.get("agentId") or above or id or "sidechain")
        if isinstance(id, str):
            self._agent[id] = agent
        threads = self._threads.setdefault(agent, [Thread()])
        if data.get("type") == "system" and data.get("subtype") == "compact_boundary":
            threads.append(Thread())
        elif (again := threads[-1].add(data)) is not None:
            threads.append(again)


def _continues(old: object, new: object) -> bool:
    """Whether a block is an earlier one of the same reply, as it stands later."""
    if not (isinstance(old, dict) and isinstance(new, dict)) or old.get("type") != new.get("type"):
        return False
    if old.get("type") == "tool_use":
        return bool(old.get("id") == new.get("id"))
    name = {"text": "text", "thinking": "thinking"}.get(str(old.get("type")), "")
    said, now = old.get(name), new.get(name)
    return now.startswith(said) if isinstance(said, str) and isinstance(now, str) else bool(old == new)


class Thread(Talk):
    """One conversation; replies are put together from their blocks."""

    def __init__(self) -> None:
        super().__init__()
        self._turns: list[Json] = []
        self._took: dict[str, tuple[int, Meter]] = {}  # place of a reply and what it took, by message.id
        self._length: dict[str, int] = {}  # of the conversation after each line, by its uuid
        self._last = 0.0

    def add(self, data: Json) -> Thread | None:
        """Take a line; where it is a prompt that replaces an earlier one, the conversation that begins with it.

        Raises:
            BadRecord or one of BROKEN: it is not as such a log has it; nothing of it is taken.
        """
        kind, at = data.get("type"), seconds(data.get("timestamp"))
        message = data.get("message")
        if kind in ("user", "assistant") and isinstance(message, dict):
            if kind == "assistant":
                self._reply(message, data, at)
            else:
                turn = {"role": "user", "content": message["content"]}
                found = anthropic.messages_from_wire([turn])
                again = self._rewound(data) if all(m.role != "tool" for m in found) else None
                if again is not None:
                    again.add(data)
                    return again
                self._turns.append(turn)
        elif kind in ("user", "assistant"):
            raise TypeError("no message")
        if isinstance(data.get("uuid"), str):
            self._length[data["uuid"]] = len(self._turns)
        self._last = at or self._last
        return None

    def _reply(self, message: Json, data: Json, at: float) -> None:
        if message.get("model") == MADE_UP or data.get("isApiErrorMessage") is True:
            return
        said = message["content"]
        blocks = [{"type": "text", "text": said}] if isinstance(said, str) else list(said)
        anthropic.messages_from_wire([{"role": "assistant", "content": blocks}])  # raises where it is none
        if not blocks:
            return
        usage = anthropic.usage_from_wire(message.get("usage"))
        cost = number(data.get("costUSD"), "costUSD") or 0.0
        id = str(message.get("id") or data.get("requestId") or data.get("uuid") or len(self._turns))
        place, meter = self._took.get(id, (len(self._turns), Meter(started=self._last or at)))
        if place == len(self._turns):
            self._turns.append({"role": "assistant", "content": []})
        content = self._turns[place]["content"]
        if len(blocks) >= len(content) and all(map(_continues, content, blocks)):
            content.clear()  # the line shows the reply as it stands by now
        content += blocks
        model = message.get("model")
        took = max(at - meter.started, 0.0) if at and meter.started else 0.0
        name = model if isinstance(model, str) else meter.model
        self._took[id] = place, meter._replace(usage=usage, cost=max(cost, meter.cost, 0.0), seconds=took, model=name)

    def _rewound(self, data: Json) -> Thread | None:
        """The conversation up to the line that a prompt names, where replies have come after that line."""
        parent = data.get("parentUuid")
        length = self._length.get(parent) if isinstance(parent, str) else None
        if length is None or not any(turn["role"] == "assistant" for turn in self._turns[length:]):
            return None
        again = Thread()
        again._turns = self._turns[:length]
        again._took = {id: took for id, took in self._took.items() if took[0] < length}
        again._length = {id: n for id, n in self._length.items() if n <= length}
        again._last = self._last
        return again

    def finish(self) -> Said | None:
        self.messages = in_order(anthropic.messages_from_wire(self._turns))
        self.meters = [meter for _, meter in sorted(self._took.values(), key=lambda pair: pair[0])]
        return super().finish()
