"""Asks the model one question and yields the answer: pieces while they arrive, then completions, for all choices.

The server calls it once a question is read and admitted. It checks that the model can do what the question needs, and
must never return a reply that breaks the form the question demands.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any, NamedTuple, cast

from clew.core.keys import derive
from clew.core.protocols import Model, Ranks, Scores, Streams
from clew.core.records import Request
from clew.core.values import F32, Completion, Piece, Ranked, Sampling
from clew.models.compose.policy import Policy
from clew.models.dialects import dumps
from clew.models.engine.pieces import Text
from clew.models.replies import held as held_back
from clew.serve.openai.left_tokens import with_sets
from clew.serve.openai.questions import Question
from clew.serve.refusals import Rejected

Items = AsyncGenerator[Piece | Completion, None]
Indexed = AsyncGenerator[tuple[int, Piece | Completion], None]
WITHOUT = "Ask without, or serve local weights."


class Prompt(NamedTuple):
    """What is told of a prompt beside its continuation: ids, text, and of each token but the first, where that was
    asked for, its logprob (nats) and the likeliest tokens in its place."""

    ids: tuple[int, ...]
    text: str = ""
    logprobs: F32 | None = None
    tops: tuple[Ranked, ...] | None = None


class Lacking(Rejected):
    """A request that needs of the model what it does not have."""

    def __init__(self, model: Model, what: str, param: str = "", remedy: str = WITHOUT) -> None:
        super().__init__(f"{model.ref} {what}", remedy=remedy, code="unsupported_by_model", param=param)


def prepared(question: Question, model: Model, request: Request) -> Request:
    """The request with the powers the question needs of the model.

    Raises:
        Rejected: the model lacks one.
    """
    if question.form is not None or question.called:
        if not hasattr(model, "engine"):
            raise Lacking(model, "cannot be held to a form", "tool_choice" if question.called else "response_format")
        request = request._replace(sampling=held(request.sampling, question, model))
    if question.tops is not None:
        if model.renderer is None and not hasattr(model, "logprobs"):
            raise Lacking(model, "gives no logprobs", "logprobs")
        request = request._replace(tops=question.tops)
    return judged(question, model, request)


def judged(question: Question, model: Model, request: Request) -> Request:
    """The request with the policy that the client states, which a router judges by.

    Raises:
        Rejected: it bounds something, and the model is no router: an answer from anywhere might break it.
        BadInput: it is no policy, or names workers that are not there.
    """
    if (policy := question.body.get("policy")) is None or (read := Policy.read(policy)) == Policy():
        return request
    if not hasattr(model, "under"):
        raise Lacking(model, "is no router, which could keep a policy", "policy", "Ask without, or serve a route:.")
    model.under(read)  # what is wrong with it must not reach a record
    return request._replace(policy=policy)


def held(sampling: Sampling, question: Question, model: Model) -> Sampling:
    """Sampling within the form of the reply, or within a call of a tool.

    Raises:
        BadInput: the model's template writes no calls.
    """
    form = question.form
    if form is None:
        tools = [t for t in question.asked.tools if t.name in question.called]
        make = getattr(model.renderer, "call_grammar", None)
        if make is None:
            raise Lacking(model, "calls no tools", "tool_choice", "Serve a model whose chat template does.")
        grammar = make(tools, question.body.get("parallel_tool_calls") is not False)
    elif form.kind == "choice":
        grammar = "lark:start: " + " | ".join(json.dumps(text) for text in form.value)
    elif form.kind == "json":
        grammar = "json:" + dumps(form.value)
    else:
        grammar = {"regex": "regex:", "grammar": "lark:"}[form.kind] + form.value
    return sampling._replace(grammar=grammar)


async def answer(question: Question, model: Model, request: Request) -> Items:
    """One choice: pieces where they are streamed, then the Completion as it is told."""
    if not (question.asked.stream and isinstance(model, Streams)):
        whole = await model.complete(request)
        yield finished(question, model, request, await _with_law(question, model, request, whole))
        return
    skip = request.forced_text
    async with aclosing(cast(AsyncGenerator[Any, None], model.stream(request))) as items:
        async for item in items:
            if isinstance(item, Completion):
                yield finished(question, model, request, await _with_law(question, model, request, item))
            elif isinstance(item, Piece):
                yield item
            else:  # text alone; a given beginning is not said again
                text, skip = (item, "") if not skip else _after(skip, item)
                if text:
                    yield Piece(text)


async def _with_law(question: Question, model: Model, request: Request, completion: Completion) -> Completion:
    """The completion with what a grammar left at each token, where ids are told by which somebody may train."""
    told = question.endpoint == "completions" and question.asked.token_ids
    return await with_sets(model, request, completion) if told else completion


def _after(skip: str, text: str) -> tuple[str, str]:
    if text.startswith(skip):
        return text[len(skip) :], ""
    return ("", skip[len(text) :]) if skip.startswith(text) else (text, "")


def finished(question: Question, model: Model, request: Request, completion: Completion) -> Completion:
    """The completion as it is told: calls have names of their own, and markup of tools that were not offered is text.

    Raises:
        Rejected: logprobs were asked for and the model gave none.
    """
    message, asked, finish = completion.message, question.asked, completion.finish
    if asked.prefill:
        message = message._replace(text=message.text.removeprefix(asked.prefill))
    if message.calls and not asked.tools and (text := raw(model, completion)):
        message = message._replace(text=text.rpartition("</think>")[2].strip(), calls=())
    unnamed = {i for i, call in enumerate(message.calls) if call.id in ("", f"call_{i}")}
    fresh = {i: f"call_{derive(request.seed, 'call', len(request.path), i):016x}" for i in unnamed}
    calls = [call._replace(id=fresh.get(i, call.id)) for i, call in enumerate(message.calls)]
    message = message._replace(calls=tuple(calls))
    if finish in ("stop", "tool_calls"):
        finish = "tool_calls" if message.calls else "stop"
    if question.tops is not None and completion.plain is None and completion.logprobs is None:
        raise Lacking(model, "gave no logprobs", "logprobs")
    if question.tops and completion.tops is None:
        raise Lacking(model, "tells no likeliest tokens", "top_logprobs")
    return completion._replace(message=message, finish=finish)


def raw(model: Model, completion: Completion, stops: Sequence[str] = ()) -> str:
    """All that was sampled as text, markup and all, up to a stop string; empty where the model gives no tokens."""
    decode = getattr(model.renderer, "decode", None)
    if decode is None or completion.tokens is None or model.renderer is None:
        return ""
    ends = len(completion.tokens) - (completion.tokens[-1:] != () and completion.tokens[-1] in model.renderer.stop)
    text: str = decode(completion.tokens[:ends])
    for stop in stops:
        text = text.partition(stop)[0]
    return text


class Raw:
    """The text of sampled tokens as it grows, markup and all; what may become a stop string is held back."""

    def __init__(self, model: Model, stops: tuple[str, ...]) -> None:
        assert model.renderer is not None
        self._text, self._end, self._stops = Text(model.renderer.decode), model.renderer.stop, stops  # type: ignore[attr-defined]
        self._all, self._given = "", 0

    def add(self, tokens: Sequence[int]) -> str:
        """New text."""
        self._all += self._text.add([i for i in tokens if i not in self._end])
        text = self._all
        for stop in self._stops:
            text = text.partition(stop)[0]
        return self.rest(text[: len(text) - held_back(text, self._stops)] if self._stops else text)

    def rest(self, whole: str) -> str:
        """What of the whole text was not given yet."""
        new = whole[self._given :]
        self._given = max(self._given, len(whole))
        return new


async def scored(question: Question, model: Model, request: Request, prompt: str | None) -> Prompt:
    """What is told of the prompt.

    Raises:
        Rejected: its logprobs were asked for, and the model scores nothing.
    """
    ids = tuple(i for node in request.path for i in node.ids or ()) + request.head
    wanted = question.scored is not None or (question.echo and question.tops is not None)
    values, tops = None, None
    most = question.scored if question.scored is not None else question.tops
    if wanted and most and not isinstance(model, Ranks):
        raise Lacking(model, "tells no likeliest tokens of a prompt", "prompt_logprobs", "Ask for 0 of them.")
    if wanted and most and isinstance(model, Ranks):
        values, tops = (await asyncio.to_thread(model.ranked, [ids], most))[0]
    elif wanted:
        if not isinstance(model, Scores) or model.renderer is None:
            raise Lacking(model, "gives no logprobs of a prompt", "prompt_logprobs")
        values = (await asyncio.to_thread(model.score, [ids]))[0]
    decode = getattr(model.renderer, "decode", None)
    text = prompt if prompt is not None else decode(ids) if decode is not None and question.echo else ""
    return Prompt(ids, text, values, tops)


async def side_by_side(sources: Sequence[Items], seconds: float) -> Indexed:
    """Items of several choices as they come, with the place of each.

    Raises:
        Late: not all were there within ``seconds``. What a source raises; then the others are given up.
    """
    end = asyncio.get_running_loop().time() + seconds
    queue: asyncio.Queue[tuple[int, Any]] = asyncio.Queue()

    async def run(index: int, source: Items) -> None:
        try:
            async with aclosing(source):
                async for item in source:
                    queue.put_nowait((index, item))
        except Exception as error:
            queue.put_nowait((index, error))

    tasks = [asyncio.ensure_future(run(i, source)) for i, source in enumerate(sources)]
    left = len(tasks)
    try:
        while left:
            try:
                async with asyncio.timeout_at(end):
                    index, item = await queue.get()
            except TimeoutError:
                raise Late(seconds) from None
            if isinstance(item, Exception):
                raise item
            left -= isinstance(item, Completion)
            yield index, item
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class Late(Rejected):
    """No answer in the time that one may take here."""

    def __init__(self, seconds: float) -> None:
        super().__init__(
            f"no answer within {seconds:g} s", remedy="Ask for fewer tokens, or raise --timeout.", status=504
        )
