"""Routes that answer texts with numbers: embeddings, similarity of pairs, probabilities of given next tokens.

``Server`` mounts them. Bodies and answers are OpenAI's (``/v1/embeddings``), vLLM's (``/score`` and
``/generative_scoring``) and SGLang's (``/v1/score`` with ``label_token_ids``). An embedding is the hidden state of a
text's last token behind the last norm, of length 1, as vLLM pools a decoder. Nothing is sampled or recorded. A text
must never be cut unasked, and a setting that would change the numbers never be passed over.
"""

from __future__ import annotations

import asyncio
import base64
import math
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from clew.core.protocols import Model, Scores, Taps
from clew.core.values import F32
from clew.models.dialects import Json
from clew.models.dialects.completions import is_ids
from clew.serve.incoming import question_of
from clew.serve.openai.answers import Lacking, Late
from clew.serve.openai.parameters import YES, Rule, check
from clew.serve.openai.questions import LONG, Limits, check_types, refuse_long
from clew.serve.refusals import Body, Handler, Rejected

Ids = tuple[int, ...]
Text = str | Sequence[int]
T = TypeVar("T")
Answers = Callable[[Request, Json, Model], Awaitable[Json]]
LOT = 64  # rows computed at a time; between two lots the time is looked at, and whether the client is still there
MOST = 2048  # texts of one request, as OpenAI bounds them
BESIDE = {**dict.fromkeys(("user", "priority", "cache_salt", "request_id"), Rule("ignored")), "model": YES}
_WHOLE = {
    "truncate_prompt_tokens": Rule("refused", (-1,), "Shorten the text."),
    "add_special_tokens": Rule("refused", (True,), "Send token ids."),
}
EMBEDDINGS: Mapping[str, Rule] = {
    **BESIDE,
    **_WHOLE,
    **dict.fromkeys(("input", "encoding_format", "dimensions", "normalize", "use_activation"), YES),
    "embed_dtype": Rule("refused", ("float32",)),
    "messages": Rule("refused", (), "Send input, a text."),
}
PAIRS = (("text_1", "text_2"), ("queries", "documents"), ("data_1", "data_2"))
SCORE: Mapping[str, Rule] = {**BESIDE, **_WHOLE, **dict.fromkeys((name for pair in PAIRS for name in pair), YES)}
LIKELY: Mapping[str, Rule] = {
    **BESIDE,
    **_WHOLE,
    **dict.fromkeys(("query", "items", "label_token_ids", "apply_softmax", "item_first"), YES),
}


class ScoringRoutes:
    """Answers by the model that a body names.

    Args:
        named: the model of a name; raises Rejected where nothing is called so, or where it may not be asked now.
    """

    def __init__(self, named: Callable[[str], Model], limits: Limits) -> None:
        self._named, self.limits = named, limits
        self._waiting = 0
        self._turn = asyncio.Semaphore(1)  # a second request would only share the cores with the first

    def routes(
        self, checked: Callable[[Handler], Handler], body: Callable[[Request], Awaitable[bytes]], bases: Sequence[str]
    ) -> list[Route]:
        """All of them; ``checked`` guards each, ``body`` reads a request's."""

        def post(
            path: str,
            does: Answers,
            rules: Mapping[str, Rule],
            labelled: tuple[Answers, Mapping[str, Rule]] | None = None,
        ) -> Route:
            async def route(request: Request) -> Response:
                asked = question_of(await body(request))
                answer, known = labelled if labelled and "label_token_ids" in asked else (does, rules)
                ignored = check(known, asked)
                check_types(asked)
                found = await self._in_turn(partial(answer, request, asked, self._named(asked["model"])))
                told = {"x-clew-warning": f"ignored {', '.join(ignored)}"} if ignored else {}
                return Body(found, headers=told)

            return Route(path, checked(route), methods=["POST"])

        found = [post(f"{base}/embeddings", self._embeddings, EMBEDDINGS) for base in bases]
        for base in ("", *bases):
            # vLLM and SGLang ask different questions at one route.
            found.append(post(f"{base}/score", self._score, SCORE, (self._labels, LIKELY)))
            found.append(post(f"{base}/generative_scoring", self._likely, LIKELY))
        return found

    async def _in_turn(self, work: Callable[[], Awaitable[Json]]) -> Json:
        if self._waiting >= self.limits.queue:
            told = f"{self._waiting} requests for scores wait, the most this server takes"
            raise Rejected(told, status=429, code="queue_full", remedy="Ask again after the time in Retry-After.")
        self._waiting += 1
        try:
            async with asyncio.timeout(self.limits.seconds), self._turn:
                return await work()
        except TimeoutError:
            raise Late(self.limits.seconds) from None
        finally:
            self._waiting -= 1

    # ---- the three answers -----------------------------------------------------------------------------------------

    async def _embeddings(self, request: Request, body: Json, model: Model) -> Json:
        form = body.get("encoding_format") or "float"
        if form not in ("float", "base64"):
            told = f"encoding_format is {str(form)[:60]!r}"
            raise Rejected(told, remedy="Use float or base64.", param="encoding_format")
        texts = _texts(body.get("input"), "input")
        unit = all(body.get(name) is not False for name in ("normalize", "use_activation"))
        rows = await self._rows(model, texts, "input")
        vectors = await self._vectors(request, model, rows, unit)
        wanted, width = body.get("dimensions"), vectors.shape[1]
        if wanted is not None and wanted != width:
            told = f"dimensions is {str(wanted)[:60]}; this model's vectors have {width}"
            raise Rejected(told, remedy="Leave it out: cut vectors mean nothing here.", param="dimensions")
        data = [
            {"object": "embedding", "index": at, "embedding": _spelt(vector, form)} for at, vector in enumerate(vectors)
        ]
        return {"object": "list", "model": body["model"], "data": data, "usage": _usage(rows)}

    async def _score(self, request: Request, body: Json, model: Model) -> Json:
        """Cosines of pairs of texts."""
        given = [pair for pair in PAIRS if any(body.get(name) is not None for name in pair)]
        if len(given) != 1:
            told = "the request has pairs of texts under two names" if given else "the request has no pairs of texts"
            raise Rejected(told, remedy="Send text_1, a text, and text_2, a text or a list of them.", param="text_1")
        left, right = (_texts(body.get(name), name) for name in given[0])
        if len(left) not in (1, len(right)):
            told = f"{len(left)} texts cannot be paired with {len(right)}"
            raise Rejected(told, remedy="Send one text and many, or as many of both.", param=given[0][0])
        rows = await self._rows(model, [*left, *right], given[0][1])
        vectors = await self._vectors(request, model, rows, True)
        cosines = (vectors[: len(left)] * vectors[len(left) :]).sum(1, dtype=np.float64)
        return _listed("score", body, cosines, rows)

    async def _likely(self, request: Request, body: Json, model: Model) -> Json:
        """Of each item the probability of the first of the labels as the next token, as vLLM answers."""
        rows, law = await self._labelled(request, body, model, softmax=True)
        return _listed("generative-scoring", body, law[:, 0], rows)

    async def _labels(self, request: Request, body: Json, model: Model) -> Json:
        """Of each item the probability of each of the labels, as SGLang answers."""
        rows, law = await self._labelled(request, body, model, softmax=False)
        scores = [[float(x) for x in row] for row in law]
        return {"object": "scoring", "model": body["model"], "scores": scores, "usage": _usage(rows)}

    async def _labelled(self, request: Request, body: Json, model: Model, softmax: bool) -> tuple[list[Ids], F32]:
        """The prompts, and the probability of each label after each of them, float32 [prompts, labels].

        Args:
            softmax: whether they are of the labels alone where ``apply_softmax`` does not say.
        """
        labels: list[int] = body.get("label_token_ids") or []
        if not is_ids(labels) or len(set(labels)) < len(labels):
            told = "label_token_ids is no list of different token ids"
            raise Rejected(told, remedy='Send {"label_token_ids": [1, 2]}.', param="label_token_ids")
        items, query = _texts(body.get("items"), "items"), _texts(body.get("query"), "query")
        if len(query) > 1:
            raise Rejected("query is a list of texts", remedy="Send one text, or its token ids.", param="query")
        if not isinstance(model, Scores) or model.renderer is None:
            raise Lacking(model, "gives no logprobs of given tokens")
        if len(items) * len(labels) > MOST:
            told = f"{len(items)} items with {len(labels)} labels"
            raise Rejected(told, remedy=f"Send at most {MOST:,} pairs of them.", param="items")
        joined = [[item, query[0]] if body.get("item_first") else [query[0], item] for item in items]
        if all(isinstance(part, str) for pair in joined for part in pair):
            rows = await self._rows(model, ["".join(map(str, pair)) for pair in joined], "items", more=1)
        else:
            parts = await self._rows(model, [part for pair in joined for part in pair], "items", more=1)
            both = [(*a, *b) for a, b in zip(parts[::2], parts[1::2], strict=True)]
            rows = self._fitting(model, both, "items", more=1)
        _within(model, [labels], "label_token_ids")
        asked = [(*row, label) for row in rows for label in labels]
        found = await self._lots(request, asked, lambda lot: [float(row[-1]) for row in model.score(lot)])
        logprobs = np.array(found, np.float64).reshape(len(items), len(labels))
        asked_for = body.get("apply_softmax")
        if softmax if asked_for is None else asked_for:
            logprobs -= np.logaddexp.reduce(logprobs, axis=1, keepdims=True)
        return rows, np.exp(logprobs).astype(np.float32)

    # ---- what they share -------------------------------------------------------------------------------------------

    async def _rows(self, model: Model, texts: Sequence[Text], param: str, more: int = 0) -> list[Ids]:
        """Texts as token ids; ``more``: tokens that are to follow.

        Raises:
            Rejected: one is empty or too long, or has ids that the model does not know.
        """
        if (renderer := model.renderer) is None:
            raise Lacking(model, "shows no tokens")
        most = self._most(model, more)

        def tokenised() -> list[Ids]:
            words = [text for text in texts if isinstance(text, str)]
            if math.isfinite(most):
                for text in words:
                    refuse_long([text], renderer, int(most), param)
            return [renderer.encode(text) if isinstance(text, str) else tuple(text) for text in texts]

        long = sum(map(len, texts)) > LONG
        rows = await asyncio.to_thread(tokenised) if long else tokenised()
        if not all(rows):
            raise Rejected(f"{param} has an empty text", remedy="Send at least one token.", param=param)
        _within(model, rows, param)
        return self._fitting(model, rows, param, more)

    def _most(self, model: Model, more: int) -> float:
        """Most tokens of a row; ``more``: tokens that are to follow."""
        return min(self.limits.prompt or math.inf, (getattr(model, "context", None) or math.inf) - more)

    def _fitting(self, model: Model, rows: list[Ids], param: str, more: int = 0) -> list[Ids]:
        """The rows, none of which is too long.

        Raises:
            Rejected: one is.
        """
        worst, most = max(map(len, rows)), self._most(model, more)
        if worst > most:
            told = f"{worst} tokens; this server takes at most {int(most)} here"
            raise Rejected(told, remedy="Shorten the text.", code="context_length_exceeded", param=param)
        return rows

    async def _vectors(self, request: Request, model: Model, rows: Sequence[Ids], unit: bool) -> F32:
        """Embeddings, float32 [rows, width]."""
        if not isinstance(model, Taps):
            raise Lacking(model, "gives no hidden states")

        def read(lot: Sequence[Ids]) -> list[F32]:
            return [state[0, 0] for state in model.states(lot, ["norm"], [[len(row) - 1] for row in lot])]

        states: list[F32] = await self._lots(request, rows, read)
        found: F32 = np.stack(states)
        return found / np.maximum(np.linalg.norm(found, axis=1, keepdims=True), 1e-12) if unit else found

    async def _lots(
        self, request: Request, rows: Sequence[Ids], compute: Callable[[Sequence[Ids]], list[T]]
    ) -> list[T]:
        found: list[T] = []
        for start in range(0, len(rows), LOT):
            if start and await request.is_disconnected():
                raise ClientDisconnect
            found += await asyncio.to_thread(compute, rows[start : start + LOT])
        return found


def _texts(value: object, param: str) -> list[Text]:
    """A text, token ids, or a list of either, as a list of 1 to ``MOST``.

    Raises:
        Rejected: it is none of these.
    """
    found: list[Any] = value if isinstance(value, list) and not is_ids(value) else [value]
    if not 1 <= len(found) <= MOST:
        raise Rejected(f"{param} has {len(found)} texts", remedy=f"Send 1 to {MOST:,}.", param=param)
    if not all(isinstance(text, str) or is_ids(text) for text in found):
        raise Rejected(f"{param} is no text", remedy="Send a text, token ids, or a list of these.", param=param)
    return list(found)


def _within(model: Model, rows: Sequence[Sequence[int]], param: str) -> None:
    """Refuse ids outside the model's vocabulary, where that is known."""
    most = getattr(model, "vocabulary", math.inf)
    wrong = next((token for row in rows for token in row if not 0 <= token < most), None)
    if wrong is not None:
        told = f"{param} has the id {wrong}, which is outside the vocabulary"
        raise Rejected(told, remedy=f"Ids are from 0 to {most - 1}.", param=param)


def _spelt(vector: F32, form: str) -> list[float] | str:
    """A vector as numbers, or as the base64 of little-endian float32, which OpenAI's client asks for."""
    if form == "base64":
        return base64.b64encode(vector.astype("<f4").tobytes()).decode()
    return [float(x) for x in vector]


def _usage(rows: Sequence[Ids]) -> Json:
    tokens = sum(map(len, rows))
    return {"prompt_tokens": tokens, "total_tokens": tokens, "completion_tokens": 0}


def _listed(kind: str, body: Json, scores: F32, rows: Sequence[Ids]) -> Json:
    data = [{"index": at, "object": "score", "score": float(score)} for at, score in enumerate(scores)]
    about = {"id": f"{kind}-{secrets.token_hex(8)}", "object": "list", "created": int(time.time())}
    return {**about, "model": body["model"], "data": data, "usage": _usage(rows)}
