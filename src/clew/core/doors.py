"""The doors of the core: what a package outside it may hang on, a Protocol of at most 15 lines each.

A package registers what it brings by an entry point of the group ``clew.<kind>`` (see ``clew.core.registry``). The core
looks names up and imports no such package itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar

from clew.core.protocols import Model

StoreT = TypeVar("StoreT", covariant=True)


class SchemeOpener(Protocol):
    """Kind ``schemes``, by the word before the colon of a model's reference: opens that model. ``weights`` also opens
    folders and hub names of weights. ``clew.models.contract.check_scheme`` checks one.

    Raises:
        BadInput: the reference or an option makes no sense. MissingExtra: a package is not installed.
    """

    def __call__(
        self, ref: str, *, api_key: str | Callable[[], str] | None, keys: Mapping[str, str], **options: object
    ) -> Model: ...


class StoreOpener(Protocol[StoreT]):
    """Kind ``stores``, by the scheme of an address: opens the store there, which keeps ``clew.store.contract``.

    Raises:
        MissingExtra: its driver is not installed. StoreError: it cannot be reached or used. UnknownName: it is absent.
    """

    def __call__(self, address: str, *, create: bool = True, readonly: bool = False) -> StoreT: ...
