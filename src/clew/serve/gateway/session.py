"""One run of a foreign program: its requests go to the run's agent, the agent's answers go back to the program.

The gateway makes one for each run. A program that is started again, to replay a run or to continue a fork, repeats its
requests. Each recorded request is answered from the record once. The first request that is not recorded goes to the
live run; in a replay, or where the program has left the recorded course, it is refused. A session must never give a
program an answer that is not in the store.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from clew.core.errors import ClewError, ModelError, Refused, ReplayDiverged
from clew.core.keys import REQUEST, digest, encode, sampling_form
from clew.core.records import Call, Cursor
from clew.core.values import Completion, Message, StopReason, ToolSpec
from clew.harness.run.nodes import message_json
from clew.harness.run.pending import revive
from clew.harness.tools import Tool
from clew.models.dialects import Asked, dumps
from clew.serve.history import Arrival, History
from clew.store import Keeper

_PLAIN = {"type": "object", "additionalProperties": False}
# The tools of every run, described once: a long-lived server makes many runs, and caches go by the description.
RECEIVE = ToolSpec("receive", "The next request of the program.", _PLAIN | {"properties": {}, "required": []})
SEND = ToolSpec(
    "send",
    "Hand the program its answer: the reply of an ask, or why there is none.",
    _PLAIN
    | {
        "properties": {"request": {"type": "integer"}, "call": {"type": "integer"}, "error": {"type": "string"}},
        "required": ["request"],
    },
)


@dataclass(slots=True)
class Exchange:
    """One request and its answer: pieces of text while it is streamed, then a Completion or an error."""

    number: int
    thread: int
    stream: bool = False
    length: int = 0  # messages of the thread with its answer, once it has come
    gone: asyncio.Event = field(default_factory=asyncio.Event)  # the client no longer listens
    out: asyncio.Queue[str | Completion | ClewError] = field(default_factory=asyncio.Queue)
    about: Any = None  # what the server that asks knows of it
    error: ClewError | None = None  # why the model failed, where the record has a ModelError in its place

    async def item(self) -> str | Completion | ClewError:
        """What comes next."""
        got = await self.out.get()
        return (self.error or got) if isinstance(got, ClewError) else got

    def failed(self, error: ClewError) -> ModelError:
        """The error as the run takes it, which goes on; whoever asked is told the error itself."""
        self.error = error
        return error if isinstance(error, ModelError) else Refused(error.message, remedy=error.remedy)

    async def answer(self) -> Completion:
        """The whole answer.

        Raises:
            ClewError: as the model raised it, or why the run ended.
        """
        while isinstance(item := await self.item(), str):
            pass
        if isinstance(item, ClewError):
            raise item
        return item


@dataclass(slots=True)
class Expected:
    """A recorded request that a restarted program will send again."""

    key: bytes
    exchange: Exchange
    replied: bool  # the answer is in the record
    messages: list[Message]
    used: bool = False


class Session:
    """The two ends of a run: ``request`` for the program, the tools ``receive`` and ``send`` for the agent ``relay``.

    Args:
        calls: Calls already recorded, which the program sends again; empty for a new run.
        frozen: nothing goes live, as in a replay.
        seeded: a request's seed is that of its ask, not a field for the model behind it.
        continued: the program was not started again but goes on, as after a restart of the gateway.
    """

    def __init__(
        self,
        store: Keeper,
        run: str,
        calls: Sequence[Call] = (),
        *,
        name: str = "",
        guessed: bool = False,
        frozen: bool = False,
        continued: bool = False,
        seeded: bool = False,
    ) -> None:
        self.store, self.run, self.name = store, run, name
        self.runs = {run, *(call.run for call in calls)}  # with those it goes on from
        self.guessed, self.frozen, self.seeded = guessed, frozen, seeded
        self.history, self.ended = History(), False
        self.exchanges: dict[int, Exchange] = {}
        self.expected: list[Expected] = []
        self._queue: asyncio.Queue[Arrival | str] = asyncio.Queue()
        self._heard = time.monotonic()
        self._recall(calls)
        if continued:
            self.expected.clear()

    # ---- for the program -------------------------------------------------------------------------------------------

    def request(self, asked: Asked, dialect: str, about: object = None) -> Exchange:
        """Take in a request; its answer comes in the Exchange, which keeps ``about``.

        Raises:
            ReplayDiverged: it is not among those recorded, and the run may not go live here. Ended runs take none.
        """
        if self.ended:
            raise ReplayDiverged(
                f"run {self.run} has ended", remedy="Use another name in the URL: /r/NAME/v1.", at=self.run
            )
        self._heard = time.monotonic()
        it = self._arrival(asked, dialect)
        found = self._recorded(asked, it)
        if found is not None:
            found.used, found.exchange.about = True, about
            return found.exchange
        self.history.apply(it)
        exchange = self.exchanges[it.number] = Exchange(it.number, it.thread, asked.stream, about=about)
        self._queue.put_nowait(it)
        return exchange

    def end(self, why: str = "the program asks nothing more", stop: StopReason | None = None) -> None:
        """The program asks nothing more; the run ends when what is under way is answered, with ``stop`` if given."""
        if not self.ended:
            self.ended = True
            self._queue.put_nowait(json.dumps({"ended": why} | ({"stop": str(stop)} if stop else {})))

    def quiet(self) -> float:
        """Seconds since something was asked or answered; 0 while an answer is under way, and where the program of a
        fork or a replay is still to be started again."""
        awaited = self.frozen or any(not e.used for e in self.expected)
        return 0.0 if awaited or any(t.busy for t in self.history.threads) else time.monotonic() - self._heard

    def fail(self, why: ClewError) -> None:
        """The run has ended: nothing under way will be answered any more."""
        self.ended = True
        for exchange in self.exchanges.values():
            if not exchange.length:
                exchange.out.put_nowait(why)

    def fits(self, asked: Asked, dialect: str) -> int:
        """Messages by which a request goes on from a reply of this run; 0 where it does not."""
        it = self._arrival(asked, dialect)
        going_on = it.of < 0 and it.keep and not self.history.threads[it.thread].busy
        replied = going_on and any(m.role == "assistant" for m in self.history.threads[it.thread].path)
        return it.keep if replied and it.say else 0

    def messages_after(self, number: int) -> list[Message]:
        """The conversation up to the answer of a request; empty where there was none."""
        it = self.exchanges.get(number)
        return self.history.threads[it.thread].path[: it.length] if it is not None else []

    # ---- for the run -----------------------------------------------------------------------------------------------

    def tools(self) -> list[Tool]:
        async def receive() -> str:
            it = await self._queue.get()
            return it if isinstance(it, str) else it.text()

        return [Tool(RECEIVE, receive, idempotent=True), Tool(SEND, self._send, idempotent=True)]

    def piece(self, thread: int, text: str) -> bool:
        """Pass on a piece of a reply; False where nobody listens any more."""
        exchange = self.under_way(thread)
        if exchange is None:
            return True
        if exchange.stream:
            exchange.out.put_nowait(text)
        return not exchange.gone.is_set()

    def streams(self, thread: int) -> bool:
        exchange = self.under_way(thread)
        return exchange is not None and exchange.stream

    def under_way(self, thread: int) -> Exchange | None:
        """The request asked last in a conversation."""
        return next((e for e in reversed(self.exchanges.values()) if e.thread == thread), None)

    def _send(self, request: int, call: int = -1, error: str = "") -> str:
        exchange, self._heard = self.exchanges[request], time.monotonic()
        self.store.commit()  # what the program is told is in the record first
        answered = exchange.length > 0  # so the record says, which a run that goes on was made from
        said: Completion | ModelError = as_model_error(error)
        if not error:
            said = completion_of(self.store, self.store.calls(self.run, call, call + 1)[0])
        if not answered:
            self.history.answered(exchange.thread, said.message if isinstance(said, Completion) else None)
            exchange.length = 0 if error else len(self.history.threads[exchange.thread].path)
        exchange.out.put_nowait(said)
        return "nobody listens" if exchange.gone.is_set() else "sent"

    # ---- the record ------------------------------------------------------------------------------------------------

    def _arrival(self, asked: Asked, dialect: str) -> Arrival:
        s, extra = asked.sampling, dict(asked.extra)
        if asked.seed is not None and not self.seeded:
            extra["seed"] = asked.seed
        named = f"{dialect}:{asked.model}" + (f"?{dumps(extra)}" if extra else "")
        sampling: dict[str, Any] = sampling_form(s) | {"stop": list(s.stop)}
        if asked.seed is not None and self.seeded:
            sampling["seed"] = asked.seed
        return self.history.place(asked.messages, named, asked.tools, sampling)

    def _recorded(self, asked: Asked, it: Arrival) -> Expected | None:
        """The recorded request that is this one.

        Raises:
            ReplayDiverged: there is none, and its thread has recorded requests that were to come first.
        """
        waiting = [e for e in self.expected if not e.used]
        key = _key(asked.messages, it.model, it.tools, it.sampling)
        found = next((e for e in waiting if e.key == key), None)
        if found is None and (self.frozen or any(e.exchange.thread in (it.thread, it.of) for e in waiting)):
            wanted = waiting[0] if waiting else None
            raise ReplayDiverged(
                f"run {self.run}: the program's request is not among those recorded"
                + (f"; it differs {_differs(wanted.messages, asked.messages)}" if wanted else ", which are all used"),
                remedy="Its code, its input or its clock differ from those recorded; fork at an earlier step.",
                at=str(Cursor(self.run, it.number)),
            )
        return found

    def _recall(self, calls: Sequence[Call]) -> None:
        """Take in what is recorded: the history, and the requests with their answers."""
        received = [c for c in calls if c.kind == "act" and c.finish == "tool" and c.done >= 0]
        sent: set[int] = set()
        for call in received:
            _, name, arguments = json.loads(call.action)
            if name == "send":
                sent.add(json.loads(arguments)["request"])
        by_seq = {c.seq: c for c in received}
        for call in sorted(calls, key=lambda c: (c.done, c.seq)):  # as their results came
            if call.kind == "ask" and call.done >= 0:
                reply = self.store.node(call.node_out).message if call.node_out else None
                self.history.answered(call.conversation, reply)
                self._file(call, sent)
            elif call.seq in by_seq and json.loads(call.action)[1] == "receive" and "ended" not in call.text[:9]:
                it = Arrival.read(call.text)
                assert it is not None
                messages = self.history.apply(it)
                exchange = self.exchanges[it.number] = Exchange(it.number, it.thread)
                key = _key(messages, it.model, it.tools, it.sampling)
                self.expected.append(Expected(key, exchange, False, messages))

    def _file(self, call: Call, sent: set[int]) -> None:
        """Put a recorded answer where the program will find it, unless the live run is still to send it."""
        last = next(e for e in reversed(self.expected) if e.exchange.thread == call.conversation and not e.replied)
        last.replied, last.exchange.length = True, len(self.history.threads[call.conversation].path)
        if last.exchange.number in sent:
            answer = completion_of(self.store, call) if call.node_out else as_model_error(call.error)
            last.exchange.out.put_nowait(answer)


def as_model_error(text: str) -> ModelError:
    """A recorded failure as what it was."""
    error = revive(text)
    return error if isinstance(error, ModelError) else ModelError(text)


def completion_of(store: Keeper, call: Call) -> Completion:
    """A recorded ask as the Completion that went out: tokens and logprobs where the model gave them."""
    node, setup = store.node(call.node_out), call.setup
    tokens = None if node.ids is None else node.ids[call.head :]
    whole = tokens is not None and not call.forced
    finish = call.finish if call.finish != "forced" else "tool_calls" if node.message.calls else "stop"
    model = (setup.served_by or setup.model) if setup is not None else ""
    logprobs = call.logprobs if whole else None
    return Completion(node.message, tokens, logprobs, finish=finish, model=model, usage=call.usage)


def _key(messages: Sequence[Message], model: str, tools: Sequence[ToolSpec], sampling: Mapping[str, Any]) -> bytes:
    """Equal for requests that ask the same, however the wire wrote them."""
    shown = [message_json(m._replace(extra="") if m.role == "assistant" else m) for m in messages]
    specs = [[t.name, t.description, dict(t.schema)] for t in tools]
    return digest(REQUEST, b"foreign", encode(json.dumps([shown, model, specs, dict(sampling)], sort_keys=True)))


def _differs(wanted: Sequence[Message], got: Sequence[Message]) -> str:
    for place, (a, b) in enumerate(zip(wanted, got, strict=False)):
        if (a.role, a.text, a.calls, a.call_id) != (b.role, b.text, b.calls, b.call_id):
            return f"at message {place} ({b.role}): {b.text[:60]!r} instead of {a.text[:60]!r}"
    if len(wanted) != len(got):
        return f"in length: {len(got)} messages instead of {len(wanted)}"
    return "in its model, tools or sampling settings"
