"""Sends an answer to its client, whole or as a stream, and gives it up when the client leaves or stops reading. The
server's routes return an Answer. However an answer ends, it must give its place in the queue back exactly once."""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import aclosing
from typing import Any, Protocol

from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from clew.core.values import Completion
from clew.serve.openai.answers import Indexed
from clew.serve.openai.bodies import Writer
from clew.serve.openai.metrics import Metrics
from clew.serve.openai.questions import Limits, Question
from clew.serve.refusals import Body, known, refused, status_of

_log = logging.getLogger("clew.serve")


class Host(Protocol):
    """What an answer needs of the server that gives it; see Server, which is one."""

    limits: Limits
    metrics: Metrics
    pace: float

    async def start(self, question: Question, name: str) -> tuple[Writer, Indexed, dict[str, str]]: ...
    def enter(self, question: Question) -> None: ...
    def leave(self, question: Question, seconds: float) -> None: ...


class Answer(Response):
    """An answer under way, which ends when its client hangs up or reads nothing for too long."""

    def __init__(self, server: Host, question: Question, name: str, began: float) -> None:
        super().__init__()
        self._server, self._question, self._name, self._began = server, question, name, began
        self._status = 499
        server.enter(question)  # here, not in __call__: nothing may come between the check for room and this

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        server = self._server
        work = asyncio.ensure_future(self._answer(scope, receive, send))
        gone = asyncio.ensure_future(_hung_up(receive))
        try:
            await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (work, gone):
                task.cancel()
            await asyncio.gather(work, gone, return_exceptions=True)
            seconds = time.monotonic() - self._began
            server.leave(self._question, seconds)
            server.metrics.request(self._question.endpoint, self._status, seconds)
            if self._status == 499:
                server.metrics.hung_up()

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            writer, items, headers = await self._server.start(self._question, self._name)
            async with aclosing(items):
                answer = self._streamed if self._question.asked.stream else self._whole
                await answer(writer, items, headers, scope, receive, send)
        except Exception as error:
            response = refused(known(error), self._question.endpoint, self._server.pace)
            self._status = response.status_code
            await response(scope, receive, send)

    async def _whole(self, writer: Writer, items: Indexed, headers: dict[str, str], *ends: Any) -> None:
        found: dict[int, Completion] = {}
        async for index, item in items:
            if isinstance(item, Completion):
                found[index] = item
        choices = [found[i] for i in sorted(found)]
        response = Body(writer.whole(choices), headers=headers)
        self._server.metrics.usage(writer.usage(choices))
        self._status = 200
        await response(*ends)

    async def _streamed(
        self, writer: Writer, items: Indexed, headers: dict[str, str], scope: Scope, receive: Receive, send: Send
    ) -> None:
        events = writer.events(items)
        first = await anext(events)  # what fails before it gets a status of its own
        self._server.metrics.first(time.monotonic() - self._began)
        kind = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-store"}
        fields = [(k.encode(), v.encode()) for k, v in {**kind, **headers}.items()]
        try:
            await self._send(send, {"type": "http.response.start", "status": 200, "headers": fields})
            await self._send(send, {"type": "http.response.body", "body": first.encode(), "more_body": True})
            try:
                async for line in events:
                    await self._send(send, {"type": "http.response.body", "body": line.encode(), "more_body": True})
                self._status = 200
                self._server.metrics.usage(writer.usage([writer.done[i] for i in sorted(writer.done)]))
            except Exception as error:
                if isinstance(error, Stalled):
                    raise
                told = known(error)
                self._status = status_of(told, self._question.endpoint)
                body = writer.failed(told)
                await self._send(send, {"type": "http.response.body", "body": body.encode(), "more_body": True})
            await self._send(send, {"type": "http.response.body", "body": b"", "more_body": False})
        except Stalled:
            _log.warning("a client read nothing for %g s and was let go", self._server.limits.stall)

    async def _send(self, send: Send, message: Message) -> None:
        try:
            async with asyncio.timeout(self._server.limits.stall):
                await send(message)
        except TimeoutError:
            raise Stalled from None


class Stalled(Exception):
    """A client reads nothing."""


async def _hung_up(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
