"""An embedding model behind an OpenAI-style endpoint: texts go out (``POST /embeddings``), a vector of each comes back.

Memories ask it for what ranks their items by meaning. What it answers is a stranger's: every answer is bounded and
checked before it is used. It must never keep a caller longer than it was given.
"""

from __future__ import annotations

import asyncio
import math
import re
import threading
import time
import weakref
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any, TypeVar

import numpy as np

from clew.core.errors import BadInput, ClewError, Refused, Unreachable
from clew.core.records import Request
from clew.core.values import F32
from clew.models.dialects import Json
from clew.models.remote import bounded
from clew.models.remote.attempts import InFlight, admitted, tries
from clew.models.remote.endpoint import Endpoint
from clew.models.remote.limits import RateLimiter

T = TypeVar("T")
LOT, NUMBERS, NUMBER = 64, 8192, 40  # texts of one request; numbers of a vector; bytes of a number as it is written
HOME = "https://api.openai.com/v1"
SHAPES = "http://localhost:8000/v1#NAME, or openai:NAME"


class _Wire:
    """Where requests go, and the header of the credential; see ``endpoint.Wire``."""

    PATH = "/embeddings"

    @staticmethod
    def headers(key: str | None) -> dict[str, str]:
        return {"authorization": f"Bearer {key}"} if key else {}


class Embedder:
    """An embedding model by its endpoint and name.

    Args:
        base_url: where the API begins, as in ``http://localhost:8000/v1``. A user and password in it are used and
            never shown.
        model: the name the endpoint knows it by.
        api_key: the credential, or a function that gives it. Never recorded or shown.
        seconds: how long one question may take, all attempts included; then the caller goes on without.
        attempts: most tries for one request that fail in a way that may pass.
        rest: seconds in which nothing is asked after a question failed: each is refused at once.
        said: put before the text of a query and of an item, as models want it that were trained so: for E5
            ``("query: ", "passage: ")``.
        headers: further HTTP headers.

    Raises:
        BadInput: the URL is none, or a number makes no sense.
    """

    def __init__(
        self,
        base_url: str,
        model: str,
        api_key: str | Callable[[], str] | None = None,
        *,
        seconds: float = 5.0,
        attempts: int = 2,
        rest: float = 60.0,
        said: tuple[str, str] = ("", ""),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        if not model or seconds <= 0 or attempts < 1 or rest < 0:
            raise BadInput(
                f"an embedding model {model!r} asked {attempts} times within {seconds:g} s, with {rest:g} s of rest",
                remedy="Name a model; give at least one attempt and more than 0 seconds.",
            )
        self.endpoint = Endpoint(base_url, api_key, headers, seconds, 8, None)
        self.model, self.seconds, self.attempts, self.said = model, seconds, attempts, said
        self.deadline, self.backoff, self.gate = seconds, 0.2, RateLimiter()
        self.ref = f"{self.endpoint.url}#{model}" + (f"?{said[0]}|{said[1]}" if any(said) else "")
        self.tokens = 0  # that the endpoint has counted so far
        self._rest, self._until, self._why = rest, 0.0, ""
        weakref.finalize(self, _close, self.endpoint)

    def __repr__(self) -> str:
        return f"Embedder({self.ref!r})"

    def query(self, text: str, seconds: float) -> F32:
        """The vector of a query, float32 [numbers], of length 1; see ``texts``."""
        found: F32 = self._asked([self.said[0] + text], seconds)[0]
        return found

    def texts(self, texts: Sequence[str], seconds: float) -> F32:
        """The vectors of items' texts, float32 [texts, numbers], each of length 1. At most 64 texts.

        Args:
            seconds: after which the caller goes on without, however far the endpoint came.

        Raises:
            Unreachable: no answer in that time, or a question failed less than ``rest`` seconds ago.
            Refused, ContextOverflow: the endpoint does not take the texts, or what it gave are no vectors of them.
        """
        return self._asked([self.said[1] + text for text in texts], seconds)

    def _asked(self, texts: Sequence[str], seconds: float) -> F32:
        seconds = min(seconds, self.seconds)
        if time.monotonic() < self._until:
            raise Unreachable(f"{self._why} (it is left alone for {self._rest:g} s after a failure)")
        try:
            return _aside(self._embed(texts, seconds), seconds)
        except TimeoutError:
            told = f"{self.endpoint.url} gave no vectors of {len(texts)} texts within {seconds:.3g} s"
            raise self._tired(Unreachable(told, remedy="Check that the server runs.")) from None
        except Unreachable as error:
            raise self._tired(error) from None

    def _tired(self, error: ClewError) -> ClewError:
        self._until, self._why = time.monotonic() + self._rest, error.message
        return error

    async def _embed(self, texts: Sequence[str], seconds: float) -> F32:
        flight = InFlight(Request(()), False, seconds)
        async with aclosing(tries(self, flight, partial(self._ask, flight, texts))) as answers:
            return await anext(answers)

    async def _ask(self, flight: InFlight, texts: Sequence[str]) -> AsyncGenerator[F32, None]:
        body: Json = {"model": self.model, "input": [*texts]}
        most = 65_536 + len(texts) * NUMBERS * NUMBER
        async with (
            admitted(self, flight) as client,
            asyncio.timeout(flight.left()),
            self.endpoint.streamed(client, _Wire(), body, flight.request) as answer,
        ):
            text = await bounded.text(answer, most)
        told = self.endpoint.json(text)
        found = vectors_of(told, len(texts), self.endpoint.url)
        usage = told.get("usage")
        used = usage.get("prompt_tokens") if isinstance(usage, dict) else 0
        self.tokens += used if isinstance(used, int) and 0 <= used < 1 << 40 else 0
        yield found


def vectors_of(told: Json, count: int, url: str) -> F32:
    """The vectors of an answer, in the order of the texts, float32 [count, numbers], each of length 1.

    Raises:
        Refused: it has another number of vectors, or they are none, in one sentence.
    """

    def bad(what: str) -> Refused:
        return Refused(f"{url} {what}", remedy="Check that the model is one that embeds texts.")

    data = told.get("data")
    if not isinstance(data, list) or not all(isinstance(one, dict) for one in data):
        raise bad("answered without a list of vectors")
    if len(data) != count:
        raise bad(f"gave {len(data)} vectors for {count} texts")
    places = [one.get("index", at) for at, one in enumerate(data)]
    if sorted(place for place in places if type(place) is int) != [*range(count)]:
        raise bad("does not say which vector is of which text")
    rows: list[list[float]] = [[]] * count
    for place, one in zip(places, data, strict=True):
        row = one.get("embedding")
        if not isinstance(row, list) or not 0 < len(row) <= NUMBERS or not all(type(x) in (int, float) for x in row):
            raise bad(f"gave a vector that is no list of 1 to {NUMBERS:,} numbers")
        rows[place] = row
    if len({len(row) for row in rows}) > 1:
        raise bad("gave vectors of several lengths")
    try:
        found = np.array(rows, np.float64)
    except OverflowError:
        found = np.full((1, 1), math.inf)
    with np.errstate(over="ignore"):
        sizes = np.sqrt((found * found).sum(axis=1))
    if not np.isfinite(sizes).all() or not (sizes > 0).all():
        raise bad("gave a vector that holds NaN or infinity, or zeros alone")
    unit: F32 = (found / sizes[:, None]).astype(np.float32)
    return unit


def embedder_of(ref: str, api_key: str | Callable[[], str] | None = None, **settings: Any) -> Embedder:
    """An embedding model by reference: ``http(s)://host/v1#model``, or ``openai:model[@base_url]``.

    Args:
        settings: of ``Embedder``.

    Raises:
        BadInput: the reference is neither.
    """
    text = ref.strip()
    if re.match(r"https?://", text):
        url, _, model = text.partition("#")
    else:
        scheme, _, rest = text.partition(":")
        model, _, at = rest.partition("@http")
        url = ("http" + at if at else HOME) if scheme == "openai" else ""
    if not url or not model:
        shown = text.rpartition("@")[2][:200] if "://" in text else text[:200]
        raise BadInput(f"{shown!r} names no embedding model", remedy=f"Write {SHAPES}.")
    return Embedder(url, model, api_key, **settings)


_guard = threading.Lock()
_loops: list[asyncio.AbstractEventLoop] = []


def _aside(work: Coroutine[object, object, T], seconds: float) -> T:
    """Run a coroutine in the loop that all embedders share, which keeps their connections open; after ``seconds`` it is
    given up, even where it waits for what cannot be cancelled (a name that is looked up).

    Raises:
        TimeoutError: it was.
    """
    with _guard:
        if not _loops:
            _loops.append(asyncio.new_event_loop())
            threading.Thread(target=_loops[0].run_forever, name="clew-embedder", daemon=True).start()
    under_way = asyncio.run_coroutine_threadsafe(work, _loops[0])
    try:
        return under_way.result(seconds)
    finally:
        under_way.cancel()


def _close(endpoint: Endpoint) -> None:
    """Close the connections of an embedder that nobody holds any more."""
    if _loops:
        asyncio.run_coroutine_threadsafe(endpoint.aclose(), _loops[0])
