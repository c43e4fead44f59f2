"""One HTTP endpoint: a connection pool for each event loop, the credential, and errors that never show it."""

from __future__ import annotations

import asyncio
import base64
import json
import weakref
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import NamedTuple, Protocol

import httpx

from clew.core.errors import BadInput, Refused
from clew.core.records import Request
from clew.models.dialects import Json
from clew.models.remote import bounded
from clew.models.remote.failures import GARBLED, Failed, Failure, failure_of
from clew.models.remote.own_secrets import MASK, Masking


class Wire(Protocol):
    """Of a dialect: where its requests go, and the headers that carry the credential."""

    PATH: str

    def headers(self, key: str | None) -> dict[str, str]: ...


Keeper = AsyncGenerator[httpx.AsyncClient, None]


class Here(NamedTuple):
    """What belongs to one event loop. ``keeper`` closes the client when the loop shuts its generators down.

    ``dropped`` leaves the keeper to its loop when nobody holds the endpoint any more. The garbage collector must not
    find it: it would find the connections too, open, in the same pass.
    """

    client: httpx.AsyncClient
    room: asyncio.Semaphore
    keeper: Keeper
    dropped: weakref.finalize[..., Endpoint]


_left = weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, list[Keeper]]()
"""By loop, keepers of endpoints that nobody holds any more: the next endpoint there closes them, or the loop's end."""


async def _kept(loops: dict[asyncio.AbstractEventLoop, Here], client: httpx.AsyncClient) -> Keeper:
    """Hold a client open until the loop ends: ``asyncio.run`` closes generators that are under way."""
    loop = asyncio.get_running_loop()
    try:
        async with client:
            yield client
    finally:
        if (here := loops.pop(loop, None)) is not None:
            here.dropped.detach()


class Endpoint:
    """Sends bodies and gives answers; nothing it raises, shows or logs holds the credential."""

    def __init__(
        self,
        base_url: str,
        api_key: str | Callable[[], str] | None,
        headers: Mapping[str, str] | None,
        timeout: float,
        concurrency: int,
        proxy: str | None,
    ) -> None:
        try:
            url = httpx.URL(base_url)
        except (httpx.InvalidURL, TypeError):
            url = httpx.URL("")
        if url.scheme not in ("http", "https") or not url.host:
            raise BadInput(
                f"{str(base_url).rpartition('@')[2]!r} is not the URL of an endpoint",
                remedy="Write it with http:// or https://, up to where the API begins: http://localhost:8000/v1.",
            )
        self._password = url.password
        self._basic = base64.b64encode(url.userinfo).decode() if url.userinfo else ""
        self._query = dict(url.params)
        self.url = str(url.copy_with(userinfo=b"", query=None, fragment=None)).rstrip("/")
        self._api_key, self._headers = api_key, dict(headers or {})
        self._timeout, self._concurrency, self._proxy = timeout, concurrency, proxy
        self._loops: dict[asyncio.AbstractEventLoop, Here] = {}

    def key(self) -> str | None:
        return self._api_key() if callable(self._api_key) else self._api_key

    def _secrets(self) -> list[str]:
        return [secret for secret in (self.key(), self._password, self._basic) if secret]

    def hidden(self, text: str) -> str:
        """``text`` of an error with every credential in it replaced."""
        for secret in self._secrets():
            text = text.replace(secret, MASK)
        return text

    def masking(self) -> Masking:
        """Takes the credentials of now out of one answer."""
        return Masking(self._secrets())

    async def here(self) -> Here:
        """Connections and room of the running event loop."""
        loop = asyncio.get_running_loop()
        if loop not in self._loops:
            for old in [known for known in self._loops if known.is_closed()]:
                self._loops.pop(old).dropped.detach()
            for old in [known for known in _left if known.is_closed()]:
                del _left[old]
            left = _left.setdefault(loop, [])
            while left:
                await left.pop().aclose()
        if loop not in self._loops:  # nobody else was faster meanwhile
            limits = httpx.Limits(max_connections=self._concurrency, max_keepalive_connections=self._concurrency)
            times = httpx.Timeout(self._timeout, connect=min(10.0, self._timeout), pool=None)
            client = httpx.AsyncClient(limits=limits, timeout=times, trust_env=False, proxy=self._proxy)
            keeper = _kept(self._loops, client)
            await anext(keeper)
            dropped = weakref.finalize(self, left.append, keeper)
            dropped.atexit = False
            self._loops[loop] = Here(client, asyncio.Semaphore(self._concurrency), keeper, dropped)
        return self._loops[loop]

    async def aclose(self) -> None:
        here = self._loops.get(asyncio.get_running_loop())
        if here is not None:
            await here.keeper.aclose()

    def _request(self, client: httpx.AsyncClient, wire: Wire, body: Json, request: Request) -> httpx.Request:
        try:
            content = json.dumps(body, allow_nan=False).encode()
        except ValueError as error:
            raise BadInput(f"the request is not JSON: {error}", remedy="Leave NaN and infinity out of it.") from None
        sent = dict(request.wire.headers) if request.wire is not None else {}
        plain = {"content-type": "application/json", "accept-encoding": "identity"}
        headers = {**plain, **wire.headers(self.key()), **sent, **self._headers}
        if self._basic:
            headers.setdefault("authorization", f"Basic {self._basic}")
        if request.idempotency:
            headers["idempotency-key"] = request.idempotency
        query = {**self._query, **(request.wire.query if request.wire is not None else {})}
        return client.build_request("POST", self.url + wire.PATH, params=query, content=content, headers=headers)

    @asynccontextmanager
    async def streamed(
        self, client: httpx.AsyncClient, wire: Wire, body: Json, request: Request
    ) -> AsyncIterator[httpx.Response]:
        """An answer whose body is yet to be read.

        Raises:
            Failed: there is none, it is an error, or it broke off.
        """
        try:
            answer = await client.send(self._request(client, wire, body, request), stream=True)
            try:
                if answer.status_code != 200:
                    said = self.hidden(await bounded.text(answer, 1 << 20))
                    raise Failed(failure_of(answer.status_code, answer.headers, said))
                yield answer
            finally:
                await answer.aclose()
        except (httpx.HTTPError, httpx.InvalidURL, zlib.error) as error:
            raise Failed(Failure(0, self.hidden(f"{type(error).__name__}: {error}".rstrip(": ")))) from error

    async def post(self, client: httpx.AsyncClient, wire: Wire, body: Json, request: Request) -> tuple[int, str]:
        """A whole answer's status and body. Raises what ``streamed`` raises."""
        async with self.streamed(client, wire, body, request) as answer:
            return answer.status_code, await bounded.text(answer)

    def json(self, text: str) -> Json:
        """An answer's JSON object.

        Raises:
            Refused: it is none.
        """
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, dict):
            raise Refused(
                f"{self.url} did not answer with JSON: {self.hidden(text[:120])!r}",
                remedy="Check that the URL is where the API begins, as in http://localhost:8000/v1.",
            )
        return value

    async def get(self, path: str, most: int = 1 << 20) -> tuple[int, str]:
        """The status and body that a path below the URL answers.

        Raises:
            Failed: there is no answer, or a longer one than ``most`` bytes.
        """
        here = await self.here()
        key = self.key()
        headers = {"authorization": f"Bearer {key}"} if key else {}
        try:
            address, headers = self.url + path, {"accept-encoding": "identity"} | headers | self._headers
            async with here.client.stream("GET", address, params=self._query, headers=headers) as answer:
                return answer.status_code, self.masking().text(await bounded.text(answer, most))
        except (httpx.HTTPError, httpx.InvalidURL, zlib.error) as error:
            raise Failed(Failure(0, self.hidden(f"{type(error).__name__}: {error}".rstrip(": ")))) from error

    async def owner(self) -> str:
        """Who serves here, by the list of models; empty where it does not say."""
        try:
            _, said = await self.get("/models")
            return str(json.loads(said)["data"][0].get("owned_by", "")).lower()
        except (Failed, *GARBLED):
            return ""
