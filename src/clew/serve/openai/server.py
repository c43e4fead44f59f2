"""The server: OpenAI's chat completions, completions and responses over any Model.

``clew serve`` starts it. A request is read, checked against the limits of the server, given a place in the queue, and
answered whole or as a stream. If the client hangs up or stops reading, the request is given up and its row in the
engine is freed. A refusal always says why, in the form of OpenAI's errors. The server must never answer a client that
sent no valid key where keys are set.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from clew.core.errors import ClewError
from clew.core.protocols import Model
from clew.core.records import Request as Asked
from clew.models import dialects
from clew.models.dialects import Json, token_route
from clew.serve.gateway.recorder import Recorder
from clew.serve.incoming import body_of, caller, in_dialect, parsed
from clew.serve.openai import answers, questions
from clew.serve.openai.answers import Indexed, Items, Prompt
from clew.serve.openai.bodies import Writer
from clew.serve.openai.delivery import Answer
from clew.serve.openai.generate_route import TokenWriter, question_of
from clew.serve.openai.metrics import Metrics
from clew.serve.openai.questions import WIRE, Limits, Question
from clew.serve.openai.scoring_routes import ScoringRoutes
from clew.serve.openai.template_variables import with_variables
from clew.serve.openai.weight_routes import WeightRoutes
from clew.serve.refusals import Body, Handler, Rejected, guarded, refused


class Server:
    """Answers HTTP requests by one model.

    Args:
        names: the model may be asked for by; the first is what ``/v1/models`` tells. Its ref where empty.
        keys: one of which clients must send (``KEY``, or ``KEY:RUN`` to name a run); empty: nothing is asked.
        beside: further models, each by the name that it is asked for by. Only ``model`` takes new weights.
        recorder: keeps what is served as runs.
        updates: routes by which a trainer replaces the weights of ``model``.
    """

    def __init__(
        self,
        model: Model,
        *,
        names: Sequence[str] = (),
        beside: Mapping[str, Model] | None = None,
        keys: Sequence[str] = (),
        limits: Limits | None = None,
        recorder: Recorder | None = None,
        updates: WeightRoutes | None = None,
    ) -> None:
        self.model, self.names, self.keys = model, tuple(names) or (model.ref,), tuple(keys)
        self.models: dict[str, Model] = {**dict.fromkeys(self.names, model), **(beside or {})}
        self.limits, self.recorder = limits or Limits(), recorder
        self.updates = updates
        if updates is not None:
            updates.adapters.reserved = tuple(self.models)
        self.metrics = Metrics({self.names[0]: model, **(beside or {})})
        self.scoring = ScoringRoutes(self._steady, self.limits)
        self.draining = False
        self.busy = 0  # choices in work or waiting
        self.pace = 1.0  # seconds of a request, of late
        self._open = 0  # requests whose answer is under way
        self._idle = asyncio.Event()

    @asynccontextmanager
    async def running(self, _app: object = None) -> AsyncIterator[None]:
        """While this is open, requests can be taken."""
        if self.recorder is None:
            yield
        else:
            async with self.recorder.running():
                yield

    async def drain(self) -> bool:
        """Take nothing more, and wait for what is in work; False where it was not done in time."""
        self.draining = True
        if self._open:
            self._idle.clear()
            try:
                await asyncio.wait_for(self._idle.wait(), self.limits.drain)
            except TimeoutError:
                return False
        return True

    def application(self) -> Starlette:
        bases = ("/v1", "/r/{name}/v1") if self.recorder is not None else ("/v1",)
        routes = [Route("/health", self._health), Route("/metrics", self._checked(self._metrics))]
        models = self._checked(self._models)
        for base in bases:
            routes += [Route(base + WIRE[e].PATH, self._asked(e), methods=["POST"]) for e in WIRE]
            routes += [Route(f"{base}/models{more}", models) for more in ("", "/{model:path}")]
        routes += self.scoring.routes(self._checked, self._body, bases)
        routes.append(Route(token_route.PATH, self._asked(token_route.NAME), methods=["POST"]))
        routes.append(Route(f"/v1{WIRE['messages'].PATH}/count_tokens", self._plain(self._count), methods=["POST"]))
        for path, does in (("/tokenize", self._tokenize), ("/detokenize", self._detokenize)):
            routes += [Route(base + path, self._plain(does), methods=["POST"]) for base in ("", "/v1")]
        if self.updates is not None:
            routes += self.updates.routes(self._checked, self._body)
        missing = {404: _missing, 405: _missing}
        return Starlette(routes=routes, lifespan=self.running, exception_handlers=missing)

    # ---- requests --------------------------------------------------------------------------------------------------

    def _asked(self, endpoint: str) -> Handler:
        async def route(request: Request) -> Response:
            began = time.monotonic()
            try:
                name = self._who(request)
                data = await self._body(request)
                if endpoint == token_route.NAME:
                    question = question_of(data, self.limits, self.names[0])
                else:
                    question = questions.read(endpoint, data, self.limits)
                self._served(question.asked.model)
                if self.updates is not None:
                    self.updates.admit()
                self._room(question)
            except ClientDisconnect:
                return Response(status_code=499)
            except ClewError as error:
                response = refused(error, endpoint, self.pace)
                self.metrics.request(endpoint, response.status_code, time.monotonic() - began)
                return response
            return Answer(self, question, name, began)

        return route

    def _who(self, request: Request) -> str:
        """The run that a request names, or nothing.

        Raises:
            Rejected: the key is missing or wrong, a web page asks, or the server is ending.
        """
        if self.draining:
            raise Rejected("the server is ending", remedy="Ask again after its restart.", status=503, code="draining")
        name = caller(request, self.keys, pages=bool(self.keys))
        return name if self.recorder is not None else ""

    async def _body(self, request: Request) -> bytes:
        return await body_of(request, self.limits.body, self.limits.stall)

    def _served(self, name: str) -> Model:
        """The model that a request asks for, which may be the first with an adapter.

        Raises:
            Rejected: nothing has that name.
        """
        found = self.models.get(name) or (self.updates.adapters.get(name) if self.updates is not None else None)
        if found is None:
            told, remedy = f"no model is called {name[:80]!r} here", f"Ask for {' or '.join(self.models)}."
            raise Rejected(told, status=404, code="model_not_found", param="model", remedy=remedy)
        return found

    def _steady(self, name: str) -> Model:
        """The model of a name, while its weights stay as they are.

        Raises:
            Rejected: nothing has that name, or new weights are on their way.
        """
        if self.updates is not None:
            self.updates.admit(waits=False)
        return self._served(name)

    def _room(self, question: Question) -> None:
        if self.busy + question.choices > self.limits.queue:
            told = f"{self.busy} choices are in work or waiting, the most this server takes"
            raise Rejected(told, status=429, code="queue_full", remedy="Ask again after the time in Retry-After.")

    async def start(self, question: Question, name: str) -> tuple[Writer, Indexed, dict[str, str]]:
        """The answer under way: its writer, its items, and headers.

        Raises:
            ClewError: it cannot be begun.
        """
        headers: dict[str, str] = {}
        told = [f"ignored {', '.join(question.ignored)}"] if question.ignored else []
        served = self._served(question.asked.model)
        model = await with_variables(served, question.body if question.endpoint == "chat" else {})
        known = model is self.models.get(question.asked.model)
        recorder = self.recorder if question.endpoint != "completions" and known else None
        if self.recorder is not None and recorder is None:
            adapted = question.asked.model not in self.models
            why = "an adapter answers" if adapted else "its chat template has other variables"
            why = "completions have no messages" if known else why
            told.append(f"not recorded: {why}")
        sources: list[Items]
        if recorder is not None:
            prompts = [Prompt(())]
            question, taken = await recorder.take(question, name, self.limits, prompts)
            headers["x-clew-run"], answered = taken[0].run, taken[0].name
            sources = [it.items() for it in taken]
        else:
            asked = await self._requests(question, model)
            prompts = await self._prompts(question, model, asked[:: question.n])
            sources, answered = [answers.answer(question, model, request) for request in asked], ""
        if told:
            plain = (c if c.isascii() and c.isprintable() else "?" for c in "; ".join(told)[:2000])
            headers["x-clew-warning"] = "".join(plain)
        writer = (TokenWriter if question.ids_alone else Writer)(question, model, prompts, answered)
        return writer, answers.side_by_side(sources, self.limits.seconds), headers

    async def _requests(self, question: Question, model: Model) -> list[Asked]:
        if question.endpoint != "completions" and question.asked.extra.get("previous_response_id"):
            told = "earlier answers are not kept"
            remedy = "Start the server with --record, or send the whole input."
            raise Rejected(told, param="previous_response_id", remedy=remedy)
        found = await questions.beside(question, model, self.limits)
        return [answers.prepared(question, model, request) for request in found]

    async def _prompts(self, question: Question, model: Model, asked: Sequence[Asked]) -> list[Prompt]:
        texts = [p if isinstance(p, str) else None for p in question.prompts] or [None]
        return [await answers.scored(question, model, r, t) for r, t in zip(asked, texts, strict=True)]

    def enter(self, question: Question) -> None:
        """A request begins."""
        self._open += 1
        self.busy += question.choices
        self.metrics.busy.set(self.busy)

    def leave(self, question: Question, seconds: float) -> None:
        """A request has its answer, or nobody waits for it any more."""
        self._open -= 1
        self.busy -= question.choices
        self.metrics.busy.set(self.busy)
        self.pace += 0.1 * (seconds - self.pace)
        if not self._open:
            self._idle.set()

    # ---- beside answers --------------------------------------------------------------------------------------------

    async def _health(self, request: Request) -> Response:
        state = "draining" if self.draining else "ok"
        return Body({"status": state, "model": self.names[0], "busy": self.busy}, 503 if self.draining else 200)

    async def _metrics(self, request: Request) -> Response:
        return Response(self.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    async def _models(self, request: Request) -> Response:
        def about(name: str) -> Json:
            context = getattr(self._served(name), "context", None)
            parent = {} if name in self.models else {"parent": self.names[0]}
            made = {"object": "model", "created": 0, "owned_by": "clew"}
            return {"id": name, **made, **({"max_model_len": context} if context else {}), **parent}

        if "model" in request.path_params:
            return Body(about(request.path_params["model"]))
        lora = self.updates.adapters.names if self.updates is not None else []
        return Body({"object": "list", "data": [about(name) for name in (*self.models, *lora)]})

    def _checked(self, does: Handler) -> Handler:
        """A route whose caller may ask, and whose errors are answered."""

        async def route(request: Request) -> Response:
            self._who(request)
            return await does(request)

        return guarded(route)

    def _plain(self, does: Callable[[Model, Json], Json]) -> Handler:
        async def route(request: Request) -> Response:
            body = parsed(await self._body(request))
            model = self._served(str(body.get("model") or self.names[0]))
            if model.renderer is None:
                raise answers.Lacking(model, "shows no tokens")
            return Body(does(await with_variables(model, body), body))

        return self._checked(route)

    def _tokenize(self, model: Model, body: Json) -> Json:
        """``prompt``, a text, or ``messages`` as the model gets them."""
        assert model.renderer is not None
        if isinstance(body.get("prompt"), str):
            ids = model.renderer.encode(body["prompt"])
        else:
            ids = _ids(model, WIRE["chat"].request_from_wire(body))
            ids += model.renderer.head() if body.get("add_generation_prompt", True) else ()
        most = getattr(model, "context", None)
        return {"tokens": list(ids), "count": len(ids), "max_model_len": most}

    def _count(self, model: Model, body: Json) -> Json:
        """Tokens of the messages, as Anthropic's API counts them beforehand."""
        assert model.renderer is not None
        asked = in_dialect("messages", WIRE["messages"].request_from_wire, body)
        return {"input_tokens": len(_ids(model, asked)) + len(model.renderer.head())}

    def _detokenize(self, model: Model, body: Json) -> Json:
        tokens = body.get("tokens")
        if not isinstance(tokens, list) or not all(type(t) is int and t >= 0 for t in tokens):
            raise Rejected("tokens is no list of ids", remedy='Send {"tokens": [1, 2]}.', param="tokens")
        try:
            return {"prompt": model.renderer.decode(tokens)}  # type: ignore[union-attr]
        except (IndexError, KeyError, OverflowError, TypeError):
            raise Rejected("tokens has ids outside the vocabulary", param="tokens") from None


def _ids(model: Model, asked: dialects.Asked) -> tuple[int, ...]:
    """The messages of a request as the model gets them."""
    return tuple(i for node in questions.rendered(model, asked) for i in node.ids or ())


async def _missing(request: Request, error: Exception) -> Response:
    told, status = f"nothing is served at {request.method} {request.url.path[:120]}", getattr(error, "status_code", 404)
    return refused(Rejected(told, status=status, code="not_found", remedy="See docs/serve.md for what is."))
