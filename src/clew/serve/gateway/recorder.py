"""Records what the OpenAI-compatible server answers as runs, with the gateway's sessions.

``clew serve --record`` puts it between the server and its model. Each request becomes part of the run that its client
names, else of the run whose conversation it continues, else of a new run. A client must never get the end of a reply
that is not in the store.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Any

from clew.core.errors import ClewError, ModelError
from clew.core.keys import derive
from clew.core.protocols import Model
from clew.core.records import Request
from clew.core.values import Completion, Piece
from clew.serve.gateway.exchanges import Exchange
from clew.serve.gateway.piping import cut_off
from clew.serve.gateway.proxy import Gateway, valid
from clew.serve.gateway.session import Session
from clew.serve.openai import answers, questions
from clew.serve.openai.answers import Items, Prompt
from clew.serve.openai.questions import Limits, Question
from clew.serve.refusals import Rejected
from clew.store import Keeper, Run

KEPT = 64  # conversations without a name that requests may still join


class Recorder(Gateway):
    """Keeps what the models of a server answer.

    Args:
        model: answers to every name but those in ``beside``.
        about: how the model is found again, for forks of the runs.
        beside: further models by name.
    """

    seeded = True

    def __init__(
        self,
        store: Keeper,
        model: Model,
        about: Mapping[str, Any] | None = None,
        beside: Mapping[str, Model] | None = None,
    ) -> None:
        super().__init__(
            store, lambda dialect, name, extra: self.asked(name), about={"ref": model.ref, **(about or {})}
        )
        self._model, self._beside = model, dict(beside or {})

    def asked(self, name: str) -> Model:
        """The model that answers to a name."""
        return self._beside.get(name, self._model)

    @asynccontextmanager
    async def running(self, _app: object = None) -> AsyncIterator[None]:
        """While this is open, requests can be taken; those may go on with conversations of an earlier server."""
        async with super().running():
            for run in self.store.find("tag:guessed")[-KEPT:]:
                if not Run(self.store, run).stop:
                    self._resume(run, run, guessed=True)
            yield

    async def take(
        self, question: Question, name: str, limits: Limits, prompts: list[Prompt]
    ) -> tuple[Question, list[Taken]]:
        """A question as requests of a run, one for each choice; ``prompts`` gets what is told of the prompt.

        Raises:
            Rejected: it cannot be recorded, or does not fit. BadRecord: an earlier answer it names is not known.
        """
        valid(name)
        if question.asked.prefill:
            told = "a reply with a given beginning is not recorded"
            raise Rejected(told, param="continue_final_message", remedy="Ask a server without --record.")
        question = question._replace(asked=self._whole(question.asked))
        model = self.asked(question.asked.model)
        checked = await questions.beside(question, model, limits)  # what is wrong with it must not reach the run
        held = answers.prepared(question, model, checked[0]).sampling
        session = self._session(name, question.asked, question.endpoint)
        self.sessions[session.name] = self.sessions.pop(session.name)  # the last is the one that was used last
        seed, taken = question.asked.seed, []
        for index in range(question.n):
            own = None if seed is None else seed if not index else derive(seed, "choice", index)
            asked = question.asked._replace(seed=own, sampling=held, extra={})
            taken.append(Taken(session, session.request(asked, question.endpoint, Asking(question, prompts))))
        self._trim()
        return question, taken

    def _models(self, session: Session) -> Callable[[str], Model]:
        return lambda ref: Through(self.asked(ref.partition(":")[2]), session)  # dialect:NAME

    def _trim(self) -> None:
        """End the conversations that were quiet longest, and forget those that have ended."""
        waiting = [s for s in self.sessions.values() if s.guessed and not s.ended]
        for session in waiting[: max(0, len(waiting) - KEPT)]:
            if all(e.length or e.gone.is_set() for e in session.exchanges.values()):
                session.end()
        over = [n for n, s in self.sessions.items() if s.ended and (s.run not in self.work or self.work[s.run].done())]
        for name in over:
            self.work.pop(self.sessions.pop(name).run, None)


class Asking:
    """What a request waits for: its question, and the answer as the model gave it."""

    def __init__(self, question: Question, prompts: list[Prompt]) -> None:
        self.question, self.prompts = question, prompts
        self.whole: Completion | None = None


class Taken:
    """A request that is part of a run."""

    def __init__(self, session: Session, exchange: Exchange) -> None:
        self.run, self._exchange = session.run, exchange
        self.name = f"clew-{session.run}-{exchange.number}"

    async def items(self) -> Items:
        """The answer: its end comes once it is recorded. Closed before that, the reply is cut.

        Raises:
            ClewError: as the model raised it.
        """
        exchange, asking = self._exchange, self._exchange.about
        try:
            async for item in exchange.items():
                if isinstance(item, str):
                    yield item if isinstance(item, Piece) else Piece(item)
            exchange.about = None  # what was asked is in the record
            if isinstance(item, ClewError):
                raise item
            assert isinstance(item, Completion)
            yield asking.whole or item
        finally:
            exchange.gone.set()


class Through:
    """A served model as the run's agent asks it: what it says goes to the client as it comes."""

    def __init__(self, inner: Model, session: Session) -> None:
        self.inner, self.session = inner, session
        self.ref, self.version, self.renderer = inner.ref, inner.version, inner.renderer

    async def complete(self, request: Request) -> Completion:
        await self.session.asked_again(request.conversation)
        exchange = self.session.under_way(request.conversation)
        assert exchange is not None
        asking: Asking = exchange.about
        if asking is None:  # a fork's own asks have no client
            return await self.inner.complete(request)
        arrived: list[Piece] = []
        work = asyncio.ensure_future(self._answer(request, exchange, asking, arrived))
        gone = asyncio.ensure_future(exchange.gone.wait())
        try:
            await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                return work.result()
        except ClewError as error:
            exchange.error = error
            raise
        finally:
            for task in (work, gone):
                task.cancel()
            await asyncio.gather(work, gone, return_exceptions=True)
        return cut_off(self.renderer, arrived)

    async def _answer(self, request: Request, exchange: Exchange, asking: Asking, arrived: list[Piece]) -> Completion:
        request = answers.judged(asking.question, self.inner, request._replace(tops=asking.question.tops))
        if asking.question.scored is not None or asking.question.asked.token_ids:
            asking.prompts[0] = await answers.scored(asking.question, self.inner, request, None)
        async with aclosing(answers.answer(asking.question, self.inner, request)) as items:
            async for item in items:
                if isinstance(item, Completion):
                    asking.whole = item
                    return item
                arrived.append(item)
                exchange.put(item)
        raise ModelError(f"{self.ref} ended without an answer")
