"""One endpoint of a fleet: how it is asked, whether it answers at present, and whose weights it has."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping
from typing import Any

from clew.core.errors import Refused
from clew.core.protocols import Renderer
from clew.core.records import Request
from clew.core.values import Sampling
from clew.models.dialects import token_route
from clew.models.fleet.adapter_swap import Swap
from clew.models.fleet.control import GENERATE, Control, How, Mode
from clew.models.fleet.probe import law
from clew.models.kept import truncates
from clew.models.remote.client import Remote

FIRST_REST, LONGEST_REST = 5.0, 300.0  # seconds before an endpoint that failed is asked again; doubled each time
FEW = 2  # tries of one request at one endpoint: the next endpoint is there


class Member:
    """An endpoint with what a fleet knows of it.

    Args:
        url: of the server, with or without ``/v1``.
        model: the name that it knows the model by; what it lists first where empty.
        options: of Remote.
    """

    def __init__(
        self,
        url: str,
        model: str,
        api_key: str | Callable[[], str] | None,
        renderer: Renderer,
        options: Mapping[str, Any],
    ) -> None:
        root = url.rstrip("/").removesuffix("/v1")
        kept = {"attempts": FEW, **options, "extra": self._fields}
        self.further = dict(options.get("extra") or {})
        self.remote = Remote(f"{root}/v1", model, api_key, renderer=renderer, **kept)
        ids = {**kept, "dialect": token_route.NAME}
        self._by_ids = Remote(root, model, api_key, renderer=renderer, **ids) if not options.get("stream") else None
        self._by_text = self.remote
        self._known = False  # whether it was asked for the route of token ids
        self._law: bool | None = None if "logprobs" not in options else False  # whether logprobs are processed
        self.control = Control(root, api_key)
        self.where = self.control.endpoint.url
        self.busy = 0  # asks under way
        self.until = 0.0  # when it may be asked again; 0 where it answers
        self.rest = FIRST_REST
        self.pushed = False  # whether it took weights of the fleet, and so has its control routes
        self.version = 0  # of these
        self.updates = 0  # pushes begun
        self.mode: Mode = "wait"  # how the last of them paused it
        self.kind: How | None = None
        self.swap = Swap(self.control)
        self._numbers, self._sent = itertools.count(), dict[int, str]()

    @property
    def down(self) -> bool:
        return self.until > 0

    def due(self) -> bool:
        """Whether it failed, and has been left alone for long enough."""
        return 0 < self.until <= time.monotonic()

    def failed(self) -> None:
        """It did not answer: leave it alone for a while, longer each time."""
        self.until, self.rest = time.monotonic() + self.rest, min(LONGEST_REST, 2 * self.rest)
        self._known = False  # it may come back as another

    def answers(self) -> None:
        """It answered."""
        self.until, self.rest = 0.0, FIRST_REST

    async def connect(self) -> None:
        """Learn the model's name where none was given, and whether there is a route of token ids.

        Raises:
            Unreachable: nobody answers. Refused: it lists no model.
        """
        if not self.remote.model:
            names = await self.control.names()
            if not names:
                raise Refused(f"{self.where} lists no model", remedy="Give the name of the model it serves.")
            self.remote.model = names[0]
        if not self._known:
            there = self._by_ids is not None and await self.control.there(GENERATE)
            remote = self._by_ids if self._by_ids is not None and there else self._by_text
            remote.model, remote.logprobs = self.remote.model, self.remote.logprobs
            self.remote, self._known = remote, True

    async def learn(self, sampling: Sampling) -> None:
        """Learn whether logprobs are of the law in force, once a request is sampled under another than the model's own.

        Raises:
            Unreachable: nobody answers.
        """
        free = sampling.temperature == 1 and not sampling.grammar and not sampling.shape and not truncates(sampling)
        if self._law is None and not free:
            self._law = (await law(self.control, self.remote.model)).ok
            self.remote.logprobs = "processed" if self._law else True

    async def aclose(self) -> None:
        """Close the connections of this event loop."""
        for one in (self._by_text, self._by_ids, self.control.endpoint):
            if one is not None:
                await one.aclose()

    async def how(self) -> How:
        """How it takes weights: vLLM by its own loader, `clew serve` by the weight-transfer routes."""
        if self.kind is None:
            self.kind = "reload" if await self.control.owner() == "vllm" else "path"
        return self.kind

    def sent(self, request: Request) -> str:
        """The id under which the last attempt of a request went out, and forget it; empty where none did."""
        return self._sent.pop(id(request), "")

    def adapter(self, request: Request) -> tuple[str, int]:
        """The adapter that the last attempt of a request named, and its version; -1 where none. It is forgotten."""
        return self.swap.used(id(request))

    def _fields(self, request: Request) -> dict[str, Any]:
        own = f"clew-{_named(request)}-{next(self._numbers)}"
        self._sent[id(request)] = own
        session = {"session_id": f"{request.run}-{request.conversation}"} if request.run else {}
        fields = {"return_weight_versions": True, "request_id": own, **session, **self.swap.fields(id(request))}
        return {**self.further, **fields}


def _named(request: Request) -> str:
    return request.idempotency or f"{request.run}-{request.conversation}-{request.sample}-{request.seed}"
