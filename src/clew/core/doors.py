"""The doors of the core: what a package outside it may hang on, a Protocol of at most 15 lines each.

A package registers what it brings by an entry point of the group ``clew.<kind>`` (see ``clew.core.registry``). The core
looks names up and imports no such package itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeVar

from clew.core.protocols import Model
from clew.core.values import ToolSpec

ExecutorT = TypeVar("ExecutorT", covariant=True)
StoreT = TypeVar("StoreT", covariant=True)
ToolT = TypeVar("ToolT")


class ExecutorMaker(Protocol[ExecutorT]):
    """Kind ``executors``, by name: makes what drives runs elsewhere, as ``harness.executors.Executor``. It is a context
    manager, at whose end what it started ends. A reference gives further arguments: ``ray(n=8, address='auto')``.
    ``clew.harness.contract.check_executor`` checks one.

    Raises:
        BadInput: an argument makes no sense. MissingExtra: a package is not installed.
    """

    def __call__(self, *, n: int) -> ExecutorT: ...


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


class ToolScheme(Protocol[ToolT]):
    """Kind ``tools``, by the word before the colon of a reference: opens tools. ``rest`` is what follows the colon.

    The origin of each tool is a mapping of ``ref``, the ``names`` of all and what else ``tools`` takes as ``flags``.
    ``known`` holds the specifications that a record kept: with it, nothing is started before a tool is called.
    ``files`` gives the Python files that the reference names. ``clew.harness.contract.check_tools`` checks one.
    """

    def tools(
        self, rest: str, known: Sequence[ToolSpec] | None = None, flags: Mapping[str, object] | None = None
    ) -> list[ToolT]: ...
    def files(self, rest: str) -> list[str]: ...
