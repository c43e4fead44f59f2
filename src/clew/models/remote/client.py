"""A model behind an HTTP endpoint, OpenAI-compatible or Anthropic's: recorded attempts, shared limits, streams."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from typing import Any, Literal

import httpx

from clew.core.aio import run_sync
from clew.core.errors import BadInput, BadRecord, ClewError, Refused
from clew.core.protocols import Renderer
from clew.core.records import Request
from clew.core.values import F32, Completion, Message, Piece, Usage
from clew.models.dialects import Asked, Json, chat, completions, messages, responses, sse, token_route
from clew.models.dialects.foreign import neutral
from clew.models.dialects.logprobs import wrong
from clew.models.remote import bounded, prices, prompt_scores
from clew.models.remote.attempts import InFlight, admitted, tries, unreachable
from clew.models.remote.endpoint import Endpoint
from clew.models.remote.failures import GARBLED, OVERFLOW, Failed, Failure, spare_field
from clew.models.remote.limits import Purse, RateLimiter
from clew.models.remote.own_secrets import Masking
from clew.models.remote.prices import Price, price_of
from clew.models.remote.request_body import as_sent, in_force, with_grammar, with_shape
from clew.models.taps import refuse_taps

DIALECTS: dict[str, Any] = {"chat": chat, "responses": responses, "messages": messages, "completions": completions}
DIALECTS |= {token_route.NAME: token_route}
OF_IDS = ("completions", token_route.NAME)  # they take and give token ids, which a renderer makes
_log = logging.getLogger("clew.models")
Items = AsyncGenerator[str | Completion, None]


class Remote:
    """A model behind an HTTP endpoint: a Model that ``Streams``, and ``Scores`` where the endpoint does.

    Args:
        base_url: where the API begins, as in ``http://localhost:8000/v1``. A user and password in it are used and
            never shown.
        model: the name the endpoint knows it by.
        api_key: the credential, or a function that gives it, asked before every attempt. Never recorded or shown.
        dialect: ``chat``, ``responses`` or ``messages`` (Anthropic's); ``completions`` where a renderer is given, or
            ``generate`` (vLLM's route of token ids, below the server's root and never streamed).
        renderer: messages are then rendered and parsed here and only ids travel (vLLM, SGLang): replies can train.
        stream: receive every reply as a stream, so that a deadline or a lost connection keeps what has arrived.
        logprobs: ask for the sampled tokens' logprobs, as far as the endpoint gives them. Servers report them before
            temperature and truncation; they are kept where that is the distribution in force (temperature 1, nothing
            truncated), or always with ``"processed"``, for a server set to report them so.
        token_ids: ask for the sampled tokens' ids, as far as the endpoint gives them.
        prefill: whether the endpoint continues a given beginning of the reply; None asks it.
        price: US dollars per million tokens; from our table by the model's name where None.
        max_cost: US dollars that may be spent through this model in all; a Purse, by several models together.
        requests_per_minute, tokens_per_minute, concurrency: limits that all concurrent runs share.
        attempts: most tries for one request that fail in a way that may pass.
        timeout: seconds without a byte before an attempt has failed.
        deadline: seconds for one request, all attempts and waiting included.
        backoff: seconds before the second attempt; doubled for each further one.
        headers, extra: further HTTP headers and body fields; a field of value None is left out. ``extra`` may be a
            function that gives the fields of a request, and is called before each attempt.
        proxy: URL of an HTTP proxy.
        gate: limits shared with another Remote, instead of the three above and ``max_cost``.
        version: of the weights behind the endpoint, recorded with every reply. No endpoint reports it: say it here, and
            call ``publish`` when the server has loaded others.

    Raises:
        BadInput: the URL, the dialect or a limit makes no sense.
    """

    version: int

    def __init__(
        self,
        base_url: str,
        model: str,
        api_key: str | Callable[[], str] | None = None,
        *,
        dialect: str = "",
        renderer: Renderer | None = None,
        stream: bool = False,
        logprobs: bool | Literal["processed"] = True,
        token_ids: bool = True,
        prefill: bool | None = None,
        price: Price | tuple[float, ...] | None = None,
        max_cost: float | Purse | None = None,
        requests_per_minute: float | None = None,
        tokens_per_minute: float | None = None,
        concurrency: int = 64,
        attempts: int = 5,
        timeout: float = 120.0,
        deadline: float = 900.0,
        backoff: float = 0.5,
        headers: Mapping[str, str] | None = None,
        extra: Mapping[str, Any] | Callable[[Request], Mapping[str, Any]] | None = None,
        proxy: str | None = None,
        gate: RateLimiter | None = None,
        version: int = 0,
    ) -> None:
        dialect = dialect or ("completions" if renderer else "chat")
        if dialect not in DIALECTS or (dialect in OF_IDS) != (renderer is not None):
            raise BadInput(
                f"dialect {dialect!r}{' with a renderer' if renderer else ''}",
                remedy="Use chat, responses or messages; completions and generate go with a renderer alone.",
            )
        if attempts < 1 or concurrency < 1:
            raise BadInput(f"attempts={attempts}, concurrency={concurrency}", remedy="Both must be at least 1.")
        self.model, self.dialect, self.renderer = model, dialect, renderer
        self.publish(version)
        self.endpoint = Endpoint(base_url, api_key, headers, timeout, concurrency, proxy)
        self.ref = f"{self.endpoint.url}#{model}" if dialect == "chat" else f"{dialect}:{model}@{self.endpoint.url}"
        self.price = price_of(model) if price is None else Price(*price)
        self.gate = gate or RateLimiter(requests_per_minute, tokens_per_minute, max_cost)
        if self.gate.purse.most is not None and self.price is None:
            raise BadInput(
                f"max_cost needs a price for {model!r}",
                remedy="Pass price=(prompt, completion) in US dollars per million tokens.",
            )
        self.streaming, self.logprobs = stream and dialect != token_route.NAME, logprobs
        self.token_ids, self.prefill = token_ids, prefill
        self.attempts, self.deadline, self.backoff = attempts, deadline, backoff
        self.further = extra if callable(extra) else None
        self.extra = {} if callable(extra) else dict(extra or {})
        self.calls = 0
        self.echoes: bool | None = None  # how it scores a prompt, once known
        self._wire = DIALECTS[dialect]
        self._without: set[str] = set()  # body fields the endpoint has refused
        self._told: set[str] = set()

    def __repr__(self) -> str:
        return f"Remote({self.ref!r})"

    def publish(self, version: int | None = None) -> int:
        """Say that the endpoint serves other weights now: this version, or the next. Nothing is sent; requests sent
        before keep the version they were sent under.

        Raises:
            BadInput: the version is no number from 0 on.
        """
        version = self.version + 1 if version is None else version
        if isinstance(version, bool) or not isinstance(version, int) or version < 0:
            raise BadInput(f"version {version!r} of the weights is no count", remedy="Give a whole number, 0 or more.")
        self.version = version
        return version

    async def complete(self, request: Request) -> Completion:
        """Answer one request.

        Raises:
            Unreachable: no answer within the allowed attempts or ``deadline``. ContextOverflow: it does not fit.
            Refused: the endpoint will not take it, or ``max_cost`` could be exceeded (then nothing was sent).
            All carry ``attempts``.
        """
        async with aclosing(self._answer(request, self.streaming)) as items:
            return [item async for item in items if isinstance(item, Completion)][-1]

    async def stream(self, request: Request) -> AsyncIterator[str | Completion]:
        """Pieces of the reply's text as they arrive, then the Completion. Raises what ``complete`` raises."""
        async with aclosing(self._answer(request, self.dialect != token_route.NAME)) as items:
            async for item in items:
                yield item

    def score(self, ids: Sequence[Sequence[int]], temperature: float = 1.0) -> list[F32]:
        """Logprobs (nats, float32 [len(row) - 1]) of given ids, as the server gives them; see ``models.prompts``."""
        return run_sync(prompt_scores.score(self, ids, temperature))

    async def aclose(self) -> None:
        """Close the connections of this event loop; they are closed at its end in any case."""
        await self.endpoint.aclose()

    async def _answer(self, request: Request, streaming: bool) -> Items:
        refuse_taps(request, self.ref)
        self.calls += 1
        given = self._given(request)
        if given is not None:
            yield given
            return
        flight = InFlight(request, streaming, self.deadline, self.version)
        worst = Usage(prices.sent(request), request.sampling.max_tokens)
        flight.tokens = worst.prompt + worst.completion
        promised = self.price.cost(worst) if self.price else 0.0
        try:
            self.gate.purse.promise(promised)
            done, letters = None, 0
            try:
                async with aclosing(self._tries(flight)) as items:
                    async for item in items:
                        if isinstance(item, Completion):
                            done = item
                        else:
                            letters += len(item)
                        yield item
            finally:
                self._pay(flight, promised, done, letters)
        except ClewError as error:
            error.attempts = tuple(flight.attempts)  # type: ignore[attr-defined]
            raise

    def _pay(self, flight: InFlight, promised: float, done: Completion | None, letters: int) -> None:
        """Pay for a request: what its answer costs, or all that was set aside where it broke off uncounted.

        For one that could not be read, or that nobody waited for, an estimate by what was sent and what had arrived.
        """
        spent, estimated = 0.0, True
        if done is not None:
            estimated = not (done.usage.prompt and done.usage.completion)
            spent = promised if done.finish == "cut" and done.usage == Usage() else done.cost
        elif self.price and flight.out:
            spent = self.price.cost(Usage(prices.sent(flight.request), math.ceil(letters / prices.CHARACTERS)))
        self.gate.purse.pay(promised, spent, estimated)

    def _given(self, request: Request) -> Completion | None:
        """The reply whose forced ids leave nothing to sample."""
        if self.renderer is None or not request.forced:
            return None
        ended = request.forced[-1] in self.renderer.stop
        if not ended and len(request.forced) < request.sampling.max_tokens:
            return None
        how = "stop" if ended else "length"
        nothing = Completion(Message("assistant", ""), tokens=(), finish=how, version=self.version)
        return completions.parsed(nothing, self.renderer, (*request.head, *request.forced))

    async def _tries(self, flight: InFlight) -> Items:
        body: Json = {}

        async def send() -> Items:
            nonlocal body
            if flight.request.forced_text:
                await self._continues(flight)
            body = self._body(flight)
            async with admitted(self, flight) as client:
                flight.version, flight.out = self.version, True
                receive = self._streamed if flight.streaming else self._whole
                async with aclosing(receive(flight, body, client)) as items:
                    async for item in items:
                        if isinstance(item, Completion):
                            flight.used = item.usage.prompt + item.usage.completion
                        yield item

        def mended(failure: Failure) -> bool:
            field = spare_field(failure, body)
            self._without |= {field} - {""}
            return bool(field)

        try:
            async with aclosing(tries(self, flight, send, mended)) as items:
                async for item in items:
                    yield item
        except TimeoutError:
            if not flight.bounded_by_run:
                flight.note(0, f"no answer within {self.deadline:g} s")
                raise unreachable(self, flight) from None
            flight.note(0, "cut by the deadline")
            yield self._finished(flight, {}, Completion(Message("assistant", ""), finish="cut"))

    async def _whole(self, flight: InFlight, body: Json, client: httpx.AsyncClient) -> Items:
        async with asyncio.timeout(flight.left()):
            status, said = await self.endpoint.post(client, self._wire, body, flight.request)
        flight.note(status, "")
        yield self._finished(flight, body, self._read(said))

    async def _streamed(self, flight: InFlight, body: Json, client: httpx.AsyncClient) -> Items:
        """Text as it arrives; an end that comes too early is a cut, unless nothing had arrived."""
        stream, events, arrived, trouble = self._wire.Stream(), sse.Events(), False, ""
        masking, before = self.endpoint.masking(), None
        try:
            async with AsyncExitStack() as stack:
                opened = self.endpoint.streamed(client, self._wire, body, flight.request)
                async with asyncio.timeout(flight.left()):
                    answer = await stack.enter_async_context(opened)
                    streams = "text/event-stream" in answer.headers.get("content-type", "")
                    said = "" if streams else await bounded.text(answer)
                if not streams:
                    flight.note(answer.status_code, "")
                    yield self._finished(flight, body, self._read(said))
                    return
                lines = await stack.enter_async_context(aclosing(bounded.lines(answer)))
                while not stream.error:
                    async with asyncio.timeout(flight.left()):
                        line = await anext(lines, None)
                    if line is None:
                        break
                    event = events.feed(line)
                    if event is not None and (piece := self._fed(stream, event, arrived, masking)):
                        arrived, before = True, before or piece.before
                        if said := masking.piece(piece):
                            yield Piece(said, before=before, part=piece.part)
        except TimeoutError:
            if not (arrived and flight.bounded_by_run):
                raise
            trouble = "cut by the deadline"
        except Failed as failed:
            if not arrived:
                raise
            trouble = failed.failure.text
        if events.done and not stream.error and self.dialect in ("chat", "completions"):
            stream.finish, stream.finished = stream.finish or "stop", True  # it said its end in this way alone
        if stream.error or not (stream.finished or arrived):
            said = json.dumps(stream.error) if stream.error else "the stream ended before it began"
            trouble = self.endpoint.hidden(said)[:400]
            if not arrived:
                raise Failed(Failure(400, trouble, final=True) if OVERFLOW.search(trouble) else Failure(0, trouble))
        flight.note(200, trouble)
        if said := masking.rest():
            yield Piece(said, before=before, part=stream.part)
        try:
            completion = stream.result()
        except GARBLED as error:
            raise self._garbled(error) from None
        yield self._finished(flight, body, completion)

    def _fed(self, stream: Any, event: Json, arrived: bool, masking: Masking) -> Piece:
        """The text of an event; the first comes with the message so far."""
        try:
            text = str(stream.feed(event))
            before = masking.message(stream.result().message) if text and not arrived else None
            return Piece(text, before=before, part=stream.part)
        except GARBLED as error:
            raise self._garbled(error) from None

    def _read(self, text: str) -> Completion:
        try:
            completion: Completion = self._wire.completion_from_wire(self.json(text))
        except GARBLED as error:
            raise self._garbled(error) from None
        return completion

    def _garbled(self, error: Exception) -> Refused:
        """What is raised for an answer that is none of the dialect."""
        if isinstance(error, BadRecord):
            return Refused(f"{self.endpoint.url}: {self.endpoint.hidden(error.message)}", remedy=error.remedy)
        told = f"{self.endpoint.url} gave an answer that is none of the {self.dialect} dialect"
        return Refused(f"{told}: {type(error).__name__}", remedy="Check that the URL is of such an endpoint.")

    def json(self, text: str) -> Json:
        """An answer's JSON object. Raises Refused where it is none."""
        return self.endpoint.json(text)

    def _body(self, flight: InFlight) -> Json:
        request, without = flight.request, self._without
        seed = request.seed & 0x7FFFFFFF  # what every server takes
        if self.renderer is not None:
            prompt = [i for node in request.path for i in node.ids or ()] + [*request.head, *request.forced]
            sampling = request.sampling._replace(max_tokens=max(1, request.sampling.max_tokens - len(request.forced)))
            body = self._wire.request_to_wire(
                self.model, prompt, sampling, seed, sorted(self.renderer.stop), flight.streaming
            )
        else:
            asked = Asked(
                self.model,
                tuple(neutral([node.message for node in request.path], self.dialect)),
                request.tools,
                request.sampling,
                seed,
                flight.streaming,
                request.forced_text,
                bool(self.logprobs),
                self.token_ids,
            )
            body = as_sent(request.wire, self.dialect, asked, self._wire.request_to_wire)
            body = body or self._wire.request_to_wire(asked)
        if request.sampling.grammar:
            body = with_grammar(body, request, self.dialect)
        if request.sampling.shape:
            body = with_shape(body, request.sampling.shape, self.dialect)
        body |= {**self.extra, **(self.further(request) if self.further is not None else {})}
        if "max_tokens" in without and "max_tokens" in body:
            body["max_completion_tokens"] = body["max_tokens"]
        if "reasoning_content" in without:
            body["messages"] = [{k: v for k, v in m.items() if k != "reasoning_content"} for m in body["messages"]]
        return {k: v for k, v in body.items() if k not in without and not (v is None and k in self.extra)}

    async def _continues(self, flight: InFlight) -> None:
        """Make sure that the endpoint continues a given beginning; vLLM and SGLang say who they are.

        Raises:
            Refused: it does not, or does not say.
        """
        if self.prefill is None and self.dialect == "chat":
            async with asyncio.timeout(flight.left()):
                self.prefill = await self.endpoint.owner() in ("vllm", "sglang", "clew")
        elif self.prefill is None:
            self.prefill = self.dialect == "messages"
        if not self.prefill:
            raise Refused(
                f"{self.ref} is not known to continue a reply whose beginning is given",
                remedy="Use a vLLM endpoint or local weights, or pass prefill=True if this server does continue one.",
            )

    def _finished(self, flight: InFlight, body: Json, completion: Completion) -> Completion:
        """Fill in what only we know: the whole reply, what was in force, cost, time, attempts."""
        request = flight.request
        force = in_force(request.sampling, body)
        if self.renderer is not None:
            before = (*request.head, *request.forced)
            completion = completions.parsed(completion, self.renderer, before)
        elif request.forced_text and not completion.message.text.startswith(request.forced_text):
            message = completion.message
            completion = completion._replace(message=message._replace(text=request.forced_text + message.text))
        exact = force.temperature == 1 and force.top_p == 1 and not force.top_k and not force.grammar
        exact = exact and not force.shape
        exact = exact or self.logprobs == "processed" or completion.plain is not None
        given = self._without_wrong(completion)
        completion = self.endpoint.masking().completion(given)
        if self.renderer is not None and given.tokens is not None and completion.tokens is None:
            told = f"{self.endpoint.url} gave the credential back in a reply of token ids"
            raise Refused(told, remedy="Nothing of it is kept: use another key, and another endpoint.")
        usage = completion.usage
        paid = prices.charged(usage, prices.sent(request), prices.received(completion))
        if self.price and paid != usage:
            self._tell("counts no tokens", "what it costs is estimated by the texts that are sent and received")
        return completion._replace(
            logprobs=completion.logprobs if exact else None,
            in_force=None if force == request.sampling else force,
            version=flight.version,
            cost=self.price.cost(paid) if self.price else 0.0,
            seconds=time.monotonic() - flight.began,
            attempts=tuple(flight.attempts),
        )

    def _without_wrong(self, completion: Completion) -> Completion:
        """The reply without logprobs that cannot be those of its tokens, which is told.

        Raises:
            Refused: it has token ids that are not integers of a vocabulary.
        """
        tokens = completion.tokens
        if tokens is not None and not all(type(token) is int and 0 <= token < 1 << 31 for token in tokens):
            told = f"{self.endpoint.url} gave token ids that are not valid"
            raise Refused(told, remedy="Check that the URL is of such an endpoint, or pass token_ids=False.")
        counted = completion.usage.completion if tokens is None else len(tokens)
        slack = 2 if tokens is None else 0  # the end, which some count and do not show
        given = [values for values in (completion.logprobs, completion.plain) if values is not None]
        told = next(filter(None, map(wrong, given)), "")
        if given and counted and abs(len(given[0]) - counted) > slack:
            told = f"{len(given[0])} logprobs for {counted} tokens"
        if not told:
            return completion
        self._tell(f"gave {told}", "logprobs of such replies are left out")
        return completion._replace(logprobs=None, plain=None)

    def _tell(self, what: str, so: str) -> None:
        """Say once what is to be known of an endpoint."""
        if so not in self._told:
            self._told.add(so)
            _log.warning("%s %s: %s", self.endpoint.url, what, so)


__all__ = ["DIALECTS", "Price", "RateLimiter", "Remote"]
