"""Models without weights or network, shipped for users' tests as much as for ours: scripted, echo, Markov, replay.

Each counts how often it was asked (``calls``), so that a test can show that a replay touched no model.
"""

from __future__ import annotations

import inspect
import json
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal

from clew.core.errors import BadInput, ModelError
from clew.core.protocols import Renderer, Store
from clew.core.records import Call, Request
from clew.core.registry import make_ref
from clew.core.values import Completion, Message, ToolCall, Usage
from clew.models.markov import Markov, Words
from clew.models.taps import refuse_taps

__all__ = ["Echo", "Markov", "Replay", "Scripted", "Words", "tool_call"]

Answer = str | Message | Completion | BaseException
Answers = Answer | Callable[[Request], Answer | Awaitable[Answer]]


def tool_call(name: str, /, *, id: str = "call_0", text: str = "", **arguments: Any) -> Message:
    """An assistant message that uses one tool."""
    return Message("assistant", text, calls=(ToolCall(id, name, json.dumps(arguments)),))


class _Fake:
    """What fakes share: they count their calls, take no token ids, and stream what they would have answered whole."""

    ref: str
    version = 0
    renderer: Renderer | None = None

    def __init__(self) -> None:
        self.calls = 0
        self.last: Request | None = None

    async def complete(self, request: Request) -> Completion:
        refuse_taps(request, self.ref)
        self.calls += 1
        self.last = request
        began = time.perf_counter()
        answer = self._answer(request)
        if inspect.isawaitable(answer):
            answer = await answer
        if isinstance(answer, BaseException):
            raise answer
        if isinstance(answer, Completion):
            return answer
        message = Message("assistant", answer) if isinstance(answer, str) else answer
        if request.forced_text and not message.text.startswith(request.forced_text):
            message = message._replace(text=request.forced_text + message.text)
        words = sum(len(node.message.text.split()) for node in request.path)
        return Completion(
            message,
            finish="tool_calls" if message.calls else "stop",
            usage=Usage(words, len(message.text.split())),
            seconds=time.perf_counter() - began,
        )

    async def stream(self, request: Request) -> AsyncIterator[str | Completion]:
        completion = await self.complete(request)
        for piece in re.findall(r"\s*\S+|\s+", completion.message.text):
            yield piece
        yield completion

    def _answer(self, request: Request) -> Answer | Awaitable[Answer]:
        raise ModelError(f"{type(self).__name__} does not know how to answer", remedy="Override _answer.")


class Echo(_Fake):
    """Answers with the text of the last message."""

    ref = "echo"

    def _answer(self, request: Request) -> str:
        return request.path[-1].message.text if request.path else ""


class Scripted(_Fake):
    """Answers what is written.

    Args:
        replies: a list, taken by index; or a mapping from a piece of text to a reply, where the first key found in the
            last message answers (the key ``""`` answers everything else). A reply is a text, a ``Message`` (see
            ``tool_call``), a whole ``Completion``, an exception to raise, or a function of the ``Request`` that gives
            one of these, awaitable or not.
        by: the index of a list counts the assistant messages on the request's path (``turn``: every run and every fork
            gets the same replies whatever runs beside it) or all requests so far (``call``).

    Raises:
        ModelError: from ``complete``, when the list has run out or no key matches.
    """

    def __init__(
        self, replies: Sequence[Answers] | Mapping[str, Answers], by: Literal["turn", "call"] = "turn"
    ) -> None:
        super().__init__()
        if isinstance(replies, str) or not isinstance(replies, (Sequence, Mapping)):
            raise BadInput(f"replies is a {type(replies).__name__}", remedy="Give a list of replies, or a mapping.")
        if by not in ("turn", "call"):
            raise BadInput(f"by={by!r}", remedy='Count by "turn" or by "call".')
        self.replies, self.by = replies, by
        plain = replies.values() if isinstance(replies, Mapping) else replies
        literal = all(isinstance(reply, str) for reply in plain)
        kept = dict(replies) if isinstance(replies, Mapping) else list(replies)
        self.ref = make_ref("scripted", {"replies": kept, "by": by}, {"by": "turn"}) if literal else "scripted"

    def _answer(self, request: Request) -> Answer | Awaitable[Answer]:
        replies = self.replies
        answer = self._matching(request, replies) if isinstance(replies, Mapping) else self._next(request, replies)
        return answer(request) if callable(answer) and not isinstance(answer, tuple) else answer

    def _matching(self, request: Request, replies: Mapping[str, Answers]) -> Answers:
        text = request.path[-1].message.text if request.path else ""
        for pattern, answer in replies.items():
            if pattern and pattern in text:
                return answer
        if "" in replies:
            return replies[""]
        raise ModelError(
            f"no scripted reply matches {text[:80]!r}", remedy='Add a key that occurs in it, or the key "".'
        )

    def _next(self, request: Request, replies: Sequence[Answers]) -> Answers:
        turns = sum(node.message.role == "assistant" for node in request.path)
        index = turns if self.by == "turn" else self.calls - 1
        if index >= len(replies):
            raise ModelError(
                f"the script has {len(replies)} replies and was asked for number {index + 1}",
                remedy="Add replies, or limit the run's steps.",
            )
        return replies[index]


class Replay(_Fake):
    """Answers from the record: a request whose messages were once asked gets the recorded reply, anything else raises.

    Equal requests are served in the order of the record, the one with the request's seed first, and from the start
    again after the last. Only messages are compared, never tokens: an agent can be changed around its recorded model.

    Args:
        store: where the runs are.
        runs: ids of the runs to answer from; all of the store by default.
    """

    def __init__(self, store: Store, runs: Sequence[str] | None = None) -> None:
        super().__init__()
        self.ref = f"replay:{store.path}"
        self.store, self.runs = store, runs
        self._index: dict[bytes, list[Call]] | None = None
        self._served: dict[bytes, int] = {}

    def _calls(self) -> dict[bytes, list[Call]]:
        if self._index is None:
            self._index, seen = {}, set()
            for run in self.store.find() if self.runs is None else self.runs:
                for call in self.store.calls(run):
                    if call.kind == "ask" and call.node_out and (call.run, call.seq) not in seen:
                        seen.add((call.run, call.seq))
                        self._index.setdefault(self.store.node(call.node_in).text_key, []).append(call)
        return self._index

    def _answer(self, request: Request) -> Completion:
        path = request.path[-1].text_key if request.path else b""
        recorded = self._calls().get(path)
        if not recorded:
            asked = request.path[-1].message.text[:80] if request.path else ""
            raise ModelError(
                f"nothing recorded answers {asked!r} after {len(request.path)} messages",
                remedy=f"{self.store.path} holds {len(self._calls())} other requests; ask a live model for new ones.",
            )
        same = [call for call in recorded if call.seed == request.seed]
        turn = self._served.get(path, 0)
        self._served[path] = turn + 1
        call = same[0] if same else recorded[turn % len(recorded)]
        message = self.store.node(call.node_out).message
        return Completion(
            message, finish=call.finish or "stop", version=call.setup.version if call.setup else 0, usage=call.usage
        )
