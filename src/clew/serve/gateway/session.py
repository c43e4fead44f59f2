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
from typing import Any

from clew.core.errors import ClewError, Refused, ReplayDiverged
from clew.core.keys import sampling_form
from clew.core.records import Call, Cursor, Request, Wire
from clew.core.values import Completion, Message, StopReason, ToolSpec
from clew.harness.tools import Tool
from clew.models.dialects import Asked
from clew.serve.gateway import verbatim
from clew.serve.gateway.exchanges import Exchange, Sending, completion_of, failure
from clew.serve.gateway.matching import Expected, Matching, Met, at_its_place
from clew.serve.gateway.verbatim import Sent
from clew.serve.history import Arrival, History
from clew.serve.published.masks import NONE
from clew.serve.refusals import Rejected
from clew.serve.sameness import asker, question, said
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


class Session:
    """The two ends of a run: ``request`` for the program, the tools ``receive`` and ``send`` for the agent ``relay``.

    Args:
        calls: Calls already recorded, which the program sends again; empty for a new run.
        frozen: nothing goes live, as in a replay.
        seeded: a request's seed is that of its ask, not a field for the model behind it.
        continued: the program was not started again but goes on, as after a restart of the gateway.
        matching: how the requests of a program that was started again are matched with those recorded.
        instead: the recorded Call that brought the request in whose place the first live one of a fork comes; what
            differs between the two is noted and told.
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
        matching: Matching | None = None,
        instead: Call | None = None,
    ) -> None:
        self.store, self.run, self.name = store, run, name
        self.runs = {run, *(call.run for call in calls)}  # with those it goes on from
        self.guessed, self.frozen, self.seeded = guessed, frozen, seeded
        self.matching = matching or Matching()
        self.history, self.ended = History(self.matching.masks if calls and not continued else NONE), False
        self.met: list[Met] = []  # the requests that the record answered
        self.refusals: list[str] = []  # why it did not answer others
        self._noted = set[tuple[int, str]]()  # masks that a note names, by conversation
        self.exchanges: dict[int, Exchange] = {}
        self.expected: list[Expected] = []
        self._queue: asyncio.Queue[str] = asyncio.Queue()
        self._heard = time.monotonic()
        tombs = store.tombstones() if calls else {}
        whole = [call for call in calls if f"{call.run}@{call.seq}" not in tombs]
        if len(whole) < len(calls) and not continued:
            first = next(call for call in calls if f"{call.run}@{call.seq}" in tombs)
            raise ReplayDiverged(
                f"call {first.seq} of run {run} was redacted, so that it cannot be answered from the record",
                remedy=f"Fork at {run}@{first.seq} or before it.",
                at=str(Cursor(run, first.seq)),
            )
        self._recall(whole)
        if continued:
            self.expected.clear()
        self.instead = self._recorded_there(instead) if instead is not None else None
        self.live: tuple[int, str] | None = None  # the first live request of a fork, and how it differs from that

    # ---- for the program -------------------------------------------------------------------------------------------

    def request(self, asked: Asked, dialect: str, about: object = None, sent: Sent | None = None) -> Exchange:
        """Take in a request; its answer comes in the Exchange, which keeps ``about``.

        Args:
            sent: how the program wrote it, where that is to be kept and passed on.

        Raises:
            ReplayDiverged: it is not among those recorded, and the run may not go live here. Ended runs take none.
            Rejected: it is nested too deeply to be kept.
        """
        if self.ended:
            raise ReplayDiverged(
                f"run {self.run} has ended", remedy="Use another name in the URL: /r/NAME/v1.", at=self.run
            )
        self._heard = time.monotonic()
        body = sent.digest if sent is not None else b""
        if sent is not None and (again := self._again(sent, body)) is not None:
            return again
        try:
            it = self._arrival(asked, dialect, sent)
            text = it.text()
        except RecursionError:
            raise Rejected("the request is nested too deeply", remedy="Send a flatter one.", code="too_deep") from None
        found = self._recorded(asked, it, sent)
        if found is not None:
            found.used, found.exchange.about, found.exchange.body = True, about, body
            found.came.set()
            return found.exchange
        self._compare(asked, it, sent)
        if self.history.masks.masks and it.keep:
            told = [[said(m) for m in path] for path in (self._before(it), asked.messages[: it.keep])]
            self._note_masked(it.number, it.thread, self.history.masks.used(*told))
        path, of = self.history.apply(it), asked.stream
        exchange = self.exchanges[it.number] = Exchange(it.number, it.thread, of, about=about, body=body)
        if sent is not None:
            exchange.idempotency = sent.idempotency
            wire = Wire(dialect, sent.body, sent.headers, sent.query)
            exchange.asked = Sending(it.model, path, asked.tools, asked.sampling, wire)
        self._queue.put_nowait(text)
        return exchange

    def _again(self, sent: Sent, body: bytes) -> Exchange | None:
        """The request that is sent again here, where its answer is under way or came; None: it is to be asked.

        An equal body alone says nothing: agents do ask the same twice. The client says that it tries again, by its
        retry counter, by the idempotency key of the first try, or in words.
        """
        equal = [e for e in self.exchanges.values() if e.body == body]
        named = [e for e in equal if sent.idempotency and e.idempotency == sent.idempotency]
        found = named or (equal if sent.retry else [])
        if not found:
            return None
        first = found[-1]
        cut = isinstance(first.last, Completion) and first.last.finish == "cut"
        again = not first.gone.is_set() and not isinstance(first.last, ClewError) and not cut
        if not self.frozen:
            self._queue.put_nowait(json.dumps({"retry": first.number, "asked": not again}))
        return first if again else None

    def end(self, why: str = "the program asks nothing more", stop: StopReason | None = None) -> None:
        """The program asks nothing more; the run ends when what is under way is answered, with ``stop`` if given."""
        if not self.ended:
            self.ended = True
            self._queue.put_nowait(json.dumps({"ended": why} | ({"stop": str(stop)} if stop else {})))
            for one in self.expected:
                one.came.set()

    def quiet(self) -> float:
        """Seconds since something was asked or answered; 0 while an answer is under way, and where the program of a
        fork or a replay is still to be started again."""
        awaited = self.frozen or any(not e.used for e in self.expected)
        return 0.0 if awaited or any(t.busy for t in self.history.threads) else time.monotonic() - self._heard

    def fail(self, why: ClewError) -> None:
        """The run has ended: nothing under way will be answered any more."""
        self.ended = True
        for exchange in self.exchanges.values():
            exchange.put(why)
        for one in self.expected:
            one.came.set()

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
            return await self._queue.get()

        return [Tool(RECEIVE, receive, idempotent=True), Tool(SEND, self._send, idempotent=True)]

    def piece(self, thread: int, text: str) -> bool:
        """Pass on a piece of a reply; False where nobody listens any more."""
        exchange = self.under_way(thread)
        if exchange is None:
            return True
        if exchange.stream:
            exchange.put(text)
        return not exchange.gone.is_set()

    def streams(self, thread: int) -> bool:
        exchange = self.under_way(thread)
        return exchange is not None and exchange.stream

    def under_way(self, thread: int) -> Exchange | None:
        """The request asked last in a conversation."""
        return next((e for e in reversed(self.exchanges.values()) if e.thread == thread), None)

    async def asked_again(self, thread: int) -> None:
        """Before a model is asked: where the request is one of the record, wait until the program has made it again.

        Raises:
            Refused: the program asked something else, or ended. Nothing was sent.
        """
        exchange = self.under_way(thread)
        one = next((e for e in self.expected if e.exchange is exchange and not e.replied), None)
        if one is None:
            return
        await one.came.wait()
        if not one.used or one.differs:
            told = one.differs or "the program did not make it again"
            raise Refused(
                f"recorded request {one.exchange.number} was not sent to the model: {told}",
                remedy="Fork at the call without a given reply: the model is then sent what the program sends.",
            )

    def wire(self, request: Request) -> Wire | None:
        """A request as its program wrote it; None where it was not kept."""
        exchange = self.under_way(request.conversation)
        return exchange.asked.to(request) if exchange is not None and exchange.asked is not None else None

    def _send(self, request: int, call: int = -1, error: str = "") -> str:
        exchange, self._heard = self.exchanges[request], time.monotonic()
        self.store.commit()  # what the program is told is in the record first
        answered = exchange.length > 0  # so the record says, which a run that goes on was made from
        answer: Completion | ClewError = failure(error)
        if not error:
            answer = completion_of(self.store, self.store.calls(self.run, call, call + 1)[0])
        if not answered:
            self.history.answered(exchange.thread, answer.message if isinstance(answer, Completion) else None)
            exchange.length = 0 if error else len(self.history.threads[exchange.thread].path)
        exchange.put(answer)
        return "nobody listens" if exchange.gone.is_set() else "sent"

    # ---- the record ------------------------------------------------------------------------------------------------

    def _arrival(self, asked: Asked, dialect: str, sent: Sent | None = None) -> Arrival:
        s, named = asked.sampling, f"{dialect}:{asked.model}"
        sampling: dict[str, Any] = sampling_form(s) | {"stop": list(s.stop)}
        if asked.seed is not None and self.seeded:
            sampling["seed"] = asked.seed
        it = self.history.place(asked.messages, named, asked.tools, sampling, sent.declared if sent else "")
        if sent is None:
            return it
        before, tools = self._before(it), asked.tools
        if it.goes_on:
            tools = self.history.threads[it.thread].tools  # those of the record, which masks may have found equal
        ours = verbatim.base(named, [*before, *it.say], tools, s)
        rest, spelt = verbatim.patches(named, ours, sent.body)
        known = it.goes_on and self.history.threads[it.thread].rest == rest
        it = it._replace(rest=None if known else rest, spelt=spelt)
        return it._replace(headers=sent.kept() or None, query=dict(sent.query) or None)

    def _recorded(self, asked: Asked, it: Arrival, sent: Sent | None) -> Expected | None:
        """The recorded request that is this one.

        Raises:
            ReplayDiverged: there is none, and its thread has recorded requests that were to come first.
        """
        waiting = [e for e in self.expected if not e.used]
        if not waiting and not self.frozen:
            return None
        asked = asked._replace(model=it.model)
        asks = {False: question(asked), True: question(asked, sent.body.get("tools") or [] if sent else [])}
        keys = {whole: self.matching.key(it) for whole, it in asks.items()}
        found = next((e for e in waiting if e.key == keys[e.verbatim]), None)
        if found is None and self.matching.position:
            found = at_its_place(waiting, asks)
        if found is not None:
            met = self.matching.met(found, asks[found.verbatim], asker(asked))
            found.differs = met.differs
            self._meet(met, found.exchange.thread)
        elif self.frozen or any(e.exchange.thread in (it.thread, it.of) for e in waiting):
            told = ", which are all used"
            if waiting:
                nearest = next((e for e in waiting if e.exchange.thread == it.thread), waiting[0])
                told = "; " + (self.matching.differs(nearest, asks[nearest.verbatim]) or "its spelling")
            self.refusals.append(f"the program's request is not among those recorded{told}")
            for one in waiting:
                one.differs = self.refusals[-1]
                one.came.set()
            raise ReplayDiverged(
                f"run {self.run}: {self.refusals[-1]}",
                remedy="Its code, its input or its clock differ from those recorded; fork at an earlier step.",
                at=str(Cursor(self.run, it.number)),
            )
        return found

    def _compare(self, asked: Asked, it: Arrival, sent: Sent | None) -> None:
        """Note how the first live request of a fork differs from the recorded one in whose place it comes."""
        if self.instead is None or self.live is not None:
            return
        asks = question(asked._replace(model=it.model), sent.body.get("tools") or [] if sent else [])
        if not self.instead.verbatim:
            asks = question(asked._replace(model=it.model))
        why = self.matching.differs(self.instead, asks)
        self.live = (it.number, why)
        if why:
            self._queue.put_nowait(json.dumps({"note": "changed", "request": it.number, "why": why}))

    def _before(self, it: Arrival) -> list[Message]:
        """The messages that a request has from the conversation which it goes on with, as they are recorded."""
        return self.history.threads[it.of if it.of >= 0 else it.thread].path[: it.keep] if it.keep else []

    def _meet(self, met: Met, thread: int) -> None:
        """Take in what differs in a request that the record answered."""
        self.met.append(met)
        self._note_masked(met.number, thread, met.masked)
        if met.differs and not self.frozen:
            self._queue.put_nowait(json.dumps({"note": "differs", "request": met.number, "why": met.differs}))

    def _note_masked(self, number: int, thread: int, masked: Mapping[str, int]) -> None:
        """Have the run note which masks hid something, once a conversation; a replay writes nothing."""
        new = {name: count for name, count in masked.items() if (thread, name) not in self._noted}
        self._noted |= {(thread, name) for name in new}
        if new and not self.frozen:
            self._queue.put_nowait(json.dumps({"note": "masked", "request": number, "masks": new}))

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
            elif call.seq in by_seq and json.loads(call.action)[1] == "receive":
                it = Arrival.read(call.text)
                if it is not None:
                    self._expect(it)

    def _expect(self, it: Arrival) -> None:
        """Take in a recorded request."""
        path = self.history.apply(it)
        one = self._read(it, path)
        self.exchanges[it.number] = one.exchange
        self.expected.append(one)

    def _read(self, it: Arrival, path: list[Message]) -> Expected:
        """A recorded request, which the history has taken in."""
        it = self.history.whole(it)
        exchange = Exchange(it.number, it.thread)
        dialect, model, _ = verbatim.parted(it.model)
        asked, body = verbatim.recorded(it, path)
        if body is not None:
            wire = Wire(dialect, body, it.headers or {}, it.query or {})
            exchange.asked = Sending(it.model, path, it.tools, asked.sampling, wire)
        return self.matching.expected(exchange, asked._replace(model=f"{dialect}:{model}"), body)

    def _recorded_there(self, call: Call) -> Expected | None:
        """The request that a Call brought, which the program will not be held to."""
        it = Arrival.read(call.text)
        if it is None:
            return None
        before = self.history.threads[it.thread].rest if it.goes_on else None
        one = self._read(it, self.history.apply(it))
        self.history.undo(it)
        if it.goes_on:
            self.history.threads[it.thread].rest = before
        return one

    def _file(self, call: Call, sent: set[int]) -> None:
        """Put a recorded answer where the program will find it, unless the live run is still to send it."""
        last = next(e for e in reversed(self.expected) if e.exchange.thread == call.conversation and not e.replied)
        last.replied, last.exchange.length = True, len(self.history.threads[call.conversation].path)
        last.exchange.asked = None
        if last.exchange.number in sent:
            last.exchange.put(completion_of(self.store, call) if call.node_out else failure(call.error))
