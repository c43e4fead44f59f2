"""Trajectories of mini-swe-agent: ``*.traj.json``, one run a document.

Messages in OpenAI's format, each with ``extra``: for a reply the whole response (its tokens are read), its cost and its
time. What the file says of the run (``info``) is kept, but for credentials in its configuration.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from clew.core.errors import BadRecord
from clew.core.values import Message
from clew.exchange import files
from clew.exchange.openai_jsonl import number
from clew.exchange.sessions.log_lines import BROKEN, in_order, seconds
from clew.exchange.transcript import Meter, Transcript
from clew.models.dialects import chat

Json = dict[str, Any]
SUFFIXES = (".traj.json",)
NEEDS = "Give a trajectory as mini-swe-agent writes it: info, messages and trajectory_format."
NAMED = re.compile(rb'"trajectory_format"\s*:\s*"mini-swe-agent')
SECRET = re.compile(r"api_?key|secret|password|token$|authorization|credential", re.IGNORECASE)


def recognises(head: bytes, suffix: str) -> bool:
    """Whether a file that begins so is such a trajectory."""
    return suffix == ".json" and NAMED.search(head) is not None


def read(path: Path) -> Iterator[Transcript | BadRecord]:
    """The document as one transcript, or its error.

    Raises:
        BadInput: the file cannot be opened. BadRecord: it is too large.
    """
    text = files.whole(path)
    try:
        yield transcript_of(files.loads(text), path.name)
    except BadRecord as error:
        yield BadRecord(f"{path.name}: {error.message}", remedy=error.remedy or NEEDS)
    except BROKEN as error:
        yield BadRecord(f"{path.name}: {files.brief(str(error))}", remedy=NEEDS)


def transcript_of(data: object, where: str = "") -> Transcript:
    """A document as a transcript.

    Raises:
        BadRecord or one of BROKEN: it is none.
    """
    if isinstance(data, list):
        data = {"messages": data}
    if not isinstance(data, dict) or not isinstance(data.get("messages"), list) or not data["messages"]:
        raise BadRecord("no messages", remedy=NEEDS)
    info = data.get("info") if isinstance(data.get("info"), dict) else {}
    messages, meters, last = list[Message](), list[Meter](), 0.0
    for index, raw in enumerate(data["messages"]):
        if not isinstance(raw, dict):
            raise BadRecord(f"message {index} is no object", remedy=NEEDS)
        extra = raw["extra"] if isinstance(raw.get("extra"), dict) else {}
        at = seconds(extra.get("timestamp", raw.get("timestamp")))
        messages.append(chat.message_from_wire(raw))
        if messages[-1].role == "assistant":
            meters.append(_meter(extra, at, last))
        last = at or last
    config = info.get("config") if isinstance(info, dict) else None
    model = (config.get("model") or {}).get("model_name") if isinstance(config, dict) else None
    rest = {k: v for k, v in data.items() if k not in ("messages", "instance_id")}
    task = data.get("instance_id")
    return Transcript(
        tuple(in_order(messages)),
        "" if task is None else str(task),
        model=model if isinstance(model, str) else "",
        meters=tuple(meters),
        fields=_without_secrets(rest),
        where=where,
    )


def _meter(extra: Json, at: float, before: float) -> Meter:
    """What a reply took; it began when the message before it was there."""
    response = extra["response"] if isinstance(extra.get("response"), dict) else {}
    usage = chat.usage_from_wire(response["usage"] if isinstance(response.get("usage"), dict) else None)
    cost = max(number(extra.get("cost"), "cost") or 0.0, 0.0)
    took = max(at - before, 0.0) if at and before else 0.0
    return Meter(usage, cost, took, started=before or at)


def _without_secrets(value: Any) -> Any:
    """The same without what its name says to be a credential: such must not enter a store."""
    if isinstance(value, dict):
        return {
            k: "(left out)" if SECRET.search(k) and isinstance(v, str) else _without_secrets(v)
            for k, v in value.items()
        }
    return [_without_secrets(one) for one in value] if isinstance(value, list) else value
