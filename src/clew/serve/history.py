"""Matches the messages of a request to the conversations of its run, and finds what changed.

A program that Clew did not write sends its whole history with every request. A run holds such histories as threads, one
for each conversation. A request that begins with a whole thread continues that thread. Any other request branches off
the nearest thread at the first message that differs. If the request then repeats later messages in other words, drops
some or replaces them by a summary, the branch carries a line that names this drift. A program may also declare what a
request is. Session and relay call this module; it must never change a message.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from typing import Any, NamedTuple

from clew.core.values import Message, ToolSpec
from clew.harness.run.nodes import as_message, message_json
from clew.serve.published.masks import NONE, Masks
from clew.serve.sameness import arguments

DECLARED = ("retry", "compaction", "sub-agent")  # what a program may say a request is


class Arrival(NamedTuple):
    """One request of a foreign program, as the run records it: only what its history does not hold already.

    number: of the request in its run. thread: the conversation it is asked in. of, keep: the thread it branches off
    and how many of its messages it keeps; ``of`` is -1 where it goes on in ``thread`` or opens it. say: its further
    messages. sampling: fields of Sampling. drift: how the history differs from what was recorded, empty if it does not.

    The request's body is kept as what turns our own writing of it into the program's (``dialects.patch``): ``spelt``
    for its messages, ``rest`` for all other fields, None where it is that of the thread's last request. ``tools`` are
    written where the thread is opened. ``headers`` and ``query`` are those that an endpoint goes by. ``declared``: what
    the program said that the request is.
    """

    number: int
    thread: int
    of: int
    keep: int
    say: tuple[Message, ...]
    model: str
    tools: tuple[ToolSpec, ...]
    sampling: Mapping[str, Any]
    drift: str = ""
    rest: Mapping[str, object] | None = None
    spelt: object = None
    headers: Mapping[str, str] | None = None
    query: Mapping[str, str] | None = None
    declared: str = ""

    @property
    def goes_on(self) -> bool:
        """Whether it continues its thread, whose model and tools are known."""
        return self.of < 0 and self.keep > 0

    def text(self) -> str:
        """As JSON, which ``read`` reads."""
        fields = self._asdict() | {"say": [message_json(m) for m in self.say]}
        fields["tools"] = [] if self.goes_on else [[t.name, t.description, dict(t.schema)] for t in self.tools]
        return json.dumps({k: v for k, v in fields.items() if v not in ("", [], None)}, ensure_ascii=False)

    @classmethod
    def read(cls, text: str) -> Arrival | None:
        """None where it is no request: the program has ended, or sent one again, or something is to be noted."""
        fields = json.loads(text)
        if not {"ended", "retry", "note"}.isdisjoint(fields):
            return None
        fields["say"] = tuple(map(as_message, fields.get("say", ())))
        fields["sampling"]["stop"] = tuple(fields["sampling"]["stop"])
        fields["tools"] = tuple(ToolSpec(*t) for t in fields.get("tools", ()))
        return cls(**fields)


@dataclass(slots=True)
class Thread:
    """A conversation: its messages, who is asked in it, and whether an answer is under way."""

    model: str
    tools: tuple[ToolSpec, ...]
    path: list[Message] = field(default_factory=list)
    busy: bool = False
    rest: Mapping[str, object] | None = None  # of the last request; None in a record of an earlier version


class History:
    """The threads of one run.

    Args:
        masks: what may differ in a message that goes on from a recorded one.
    """

    def __init__(self, masks: Masks = NONE) -> None:
        self.threads: list[Thread] = []
        self.count, self.masks = 0, masks

    def place(
        self,
        messages: Sequence[Message],
        model: str,
        tools: tuple[ToolSpec, ...],
        sampling: Mapping[str, Any],
        declared: str = "",
    ) -> Arrival:
        """Where a request belongs; nothing is changed yet."""
        common = [_common(thread.path, messages, self.masks) for thread in self.threads]
        on = [
            (n, i)
            for i, (n, t) in enumerate(zip(common, self.threads, strict=True))
            if n == len(t.path) and not t.busy and t.model.partition("?")[0] == model
            if self.masks.offered(t.tools, tools)
        ]
        asked = (model, tools, dict(sampling))
        if on:
            kept, thread = max(on)
            return Arrival(self.count, thread, -1, kept, tuple(messages[kept:]), *asked, declared=declared)
        new = len(self.threads)
        kept = max(common, default=0)
        if not kept or declared == "sub-agent":
            drift = "" if declared else self._moved(messages)
            return Arrival(self.count, new, -1, 0, tuple(messages), *asked, drift, declared=declared)
        near = [i for i, n in enumerate(common) if n == kept][::-1]  # the latest of those it tells on, else the latest
        drifts = ((i, drift_of(self.threads[i].path, messages, self.masks)) for i in near)
        of, drift = next(((i, told) for i, told in drifts if told), (near[0], ""))
        drift = "" if declared else drift
        return Arrival(self.count, new, of, kept, tuple(messages[kept:]), *asked, drift, declared=declared)

    def _moved(self, messages: Sequence[Message]) -> str:
        """The drift of a request that shares no beginning with any thread, but later messages with one."""
        told = (drift_of(t.path, messages, self.masks) for t in reversed(self.threads))
        return next(filter(None, told), "")

    def apply(self, it: Arrival) -> list[Message]:
        """Take a request in; give all its messages."""
        if it.thread == len(self.threads):
            path = list(self.threads[it.of].path[: it.keep]) if it.of >= 0 else []
            self.threads.append(Thread(it.model, it.tools, path))
        thread = self.threads[it.thread]
        thread.path += it.say
        thread.busy, self.count = True, it.number + 1
        thread.rest = it.rest if it.rest is not None else thread.rest
        return list(thread.path)

    def undo(self, it: Arrival) -> None:
        """The inverse of ``apply``, of the request that was taken in last."""
        if it.goes_on:
            del self.threads[it.thread].path[it.keep :]
            self.threads[it.thread].busy = False
        else:
            self.threads.pop()
        self.count = it.number

    def whole(self, it: Arrival) -> Arrival:
        """A request with what its thread knows of it; to be asked once it is applied."""
        thread = self.threads[it.thread]
        return it._replace(tools=thread.tools, rest=thread.rest)

    def answered(self, thread: int, reply: Message | None) -> None:
        """The answer has come; None where there is none. Said twice of one answer, the second changes nothing."""
        it = self.threads[thread]
        if it.busy and reply is not None:
            it.path.append(reply)
        it.busy = False


def _common(path: Sequence[Message], messages: Sequence[Message], masks: Masks = NONE) -> int:
    pairs = zip(path, messages, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if not masks.same(a, b)), min(len(path), len(messages)))


def _gist(message: Message, masks: Masks) -> tuple[Any, ...]:
    """A message for aligning: what it says, not how it is written."""
    text = " ".join(masks.text(message.text).split())
    return message.role, text, tuple((c.name, arguments(c.arguments)) for c in message.calls)


def drift_of(path: Sequence[Message], messages: Sequence[Message], masks: Masks = NONE) -> str:
    """How ``messages`` tell the history ``path`` otherwise; empty where they do not tell it at all.

    They tell it where, past the common beginning, they repeat something of it. New messages at the end are no drift.
    """
    start = _common(path, messages, masks)
    old, new = path[start:], messages[start:]
    if not old or not new:
        return f"went back to message {start}" if old and start else ""
    matcher = SequenceMatcher(None, [_gist(m, masks) for m in old], [_gist(m, masks) for m in new], autojunk=False)
    said, met = list[str](), 0
    for tag, i, j, p, q in matcher.get_opcodes():
        if tag == "equal":
            met += j - i
            said += [
                f"message {start + i + k} {_restyled(a, b)}"
                for k, (a, b) in enumerate(zip(old[i:j], new[p:q], strict=True))
                if not masks.same(a, b)
            ]
        elif tag == "delete":
            said.append(f"{_span(start + i, start + j)} dropped")
        elif tag == "replace" and j < len(old):
            said.append(f"{_span(start + i, start + j)} replaced by {q - p}")
        elif tag == "insert" and i < len(old):
            said.append(f"{q - p} inserted before message {start + i}")
    return "; ".join(said) if met else ""


def _restyled(a: Message, b: Message) -> str:
    if a.reasoning and not b.reasoning:
        return "without its reasoning"
    if a.text != b.text:
        return "with other white space"
    if [c.id for c in a.calls] != [c.id for c in b.calls] or a.call_id != b.call_id:
        return "with other call ids"
    return "with other fields"


def _span(start: int, stop: int) -> str:
    return f"message {start}" if stop - start == 1 else f"messages {start} to {stop - 1}"
