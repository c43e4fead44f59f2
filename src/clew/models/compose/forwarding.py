"""The base of Models that wrap a Model, and the record of what a Model over several asked of them.

A wrapper must never hide a power of what it wraps: the dispatcher sends requests in batches only to models that are
``Batches``, and serving, scoring and audits look for ``Streams``, ``Scores`` and the others.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import aclosing
from functools import cache
from typing import Any, cast

from clew.core.protocols import Batches, Done, Model, Ranks, Scores, Streams, Taps, Tops, weights_of
from clew.core.records import Request
from clew.core.values import Completion, Inner, Usage

POWERS: tuple[type, ...] = (Batches, Streams, Scores, Tops, Ranks, Taps)


class Forwarding:
    """A Model that wraps ``model`` and has exactly its powers; change ``asked`` and ``answered`` to make it do more.

    An instance is of a subclass made for the powers of ``model``, so that ``isinstance`` and ``issubclass`` with the
    protocols of ``clew.core.protocols`` say of it what they say of ``model``. Whatever way a request comes
    (``complete``, ``submit`` or ``stream``), it passes ``asked`` on its way in and ``answered`` on its way out.
    Attributes that are no part of the Model protocol (``fingerprint``, ``context``, ``module``) are those of ``model``.
    """

    def __new__(cls, model: Model, *args: object, **options: object) -> Forwarding:
        made: Forwarding = object.__new__(_with_powers((cls, *(kind for kind in POWERS if isinstance(model, kind)))))
        return made

    def __init__(self, model: Model, ref: str = "") -> None:
        self.model, self.ref, self.renderer = model, ref or model.ref, model.renderer

    @property
    def version(self) -> int:
        return self.model.version

    @property
    def weights_name(self) -> str:
        """See ``weights_of``. With a ref of its own the wrapper answers otherwise than the weights alone do."""
        return weights_of(self.model) if self.ref == self.model.ref else ""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "model":
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self.model, name)

    def asked(self, request: Request) -> Request:
        """What to ask of the wrapped model instead of ``request``."""
        return request

    def answered(self, request: Request, completion: Completion) -> Completion:
        """What to answer ``request`` with instead of the wrapped model's completion; may run in the engine's thread."""
        return completion

    async def complete(self, request: Request) -> Completion:
        return self.answered(request, await self.model.complete(self.asked(request)))


def combined(answer: Completion, asked: Iterable[tuple[Model, Completion]]) -> Completion:
    """``answer`` as that of a model over models: what it asked of each is in ``inner``, and in usage and cost, once.

    Of a model that is itself one over models, the models below it are listed instead: the costs listed add up.
    """
    pairs = list(asked)
    inner: list[Inner] = []
    for model, said in pairs:
        facts = (model.ref, said.model, said.version, said.usage, said.cost, said.seconds)
        own = Inner(*facts, said.message.text, said.tokens, weights_of(model))
        inner += said.inner or (own,)
    usage = Usage(*(sum(said.usage[i] for _, said in pairs) for i in range(3)))
    return answer._replace(inner=tuple(inner), usage=usage, cost=sum(said.cost for _, said in pairs))


def _submit(self: Any, requests: Sequence[Request], done: Done) -> None:
    def outcome(request: Request, result: Completion | BaseException) -> Completion | BaseException:
        try:
            return result if isinstance(result, BaseException) else cast(Completion, self.answered(request, result))
        except Exception as error:  # whoever asked would wait for ever
            return error

    def answered(results: list[tuple[int, Completion | BaseException]]) -> None:
        done([(i, outcome(requests[i], result)) for i, result in results])

    self.model.submit([self.asked(request) for request in requests], answered)


async def _stream(self: Any, request: Request) -> AsyncIterator[str | Completion]:
    async with aclosing(self.model.stream(self.asked(request))) as items:
        async for item in items:
            yield self.answered(request, item) if isinstance(item, Completion) else item


@cache
def _with_powers(kinds: tuple[type, ...]) -> Any:
    """A subclass of the first with the methods of the others, protocols; methods that it has itself stay."""

    def passes(name: str) -> Callable[..., object]:
        return lambda self, *args, **options: getattr(self.model, name)(*args, **options)

    cls: Any = kinds[0]
    plain = cls.asked is Forwarding.asked and cls.answered is Forwarding.answered
    special = {} if plain else {"submit": _submit, "stream": _stream}
    names = {name for kind in kinds[1:] for name in vars(kind) if not name.startswith("_")}
    methods = {name: special.get(name) or passes(name) for name in names if not hasattr(cls, name)}
    return type(cls.__name__, (cls,), {"__module__": cls.__module__, "__doc__": cls.__doc__, **methods})
