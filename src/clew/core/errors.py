"""Every error Clew raises on purpose, in one tree.

ClewError
├── BadInput            what the caller gave cannot be used            (CLI exit code 2)
│   ├── UnknownName     no model, world, run, method of that name
│   ├── BadQuery        a run query that does not parse
│   ├── BadRecord       a line or file that is not what it should be
│   └── MissingExtra    an optional dependency is not installed
├── StoreError          the store cannot do what was asked
│   ├── StoreNewer      written by a newer Clew
│   ├── StoreReadOnly   opened or mounted read-only
│   ├── StoreFull       no room left on the disk
│   ├── StoreBroken     not a store, or a damaged one
│   └── LeaseHeld       another live process writes this run
├── ReplayError
│   ├── ReplayDiverged  the agent asked for something else than the record
│   ├── CannotRestore   the world cannot be brought back to the fork point
│   └── InDoubt         an effect was begun and its result never arrived
├── ModelError
│   ├── Unreachable     no answer from the endpoint
│   ├── ContextOverflow the prompt does not fit
│   ├── Busy            too many requests wait; the same one may be sent again later
│   └── Refused         the endpoint answered with an error that a retry will not mend
├── WorkerLost          a worker died, or cannot be used
├── WorldError          a world or tool failed
├── Undecided           a judge cannot say; the run stays without a reward
├── PinBroken           a pinned rule is not what, or not where, the operator put it
└── AgentFailed         the agent's own code failed in every run of a collection
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from types import ModuleType


class ClewError(Exception):
    """Base of all errors raised on purpose.

    Args:
        message: what is wrong, naming the input.
        remedy: one sentence that says what to do about it.
        at: the cursor the error belongs to, as text (``run@seq+token``).
    """

    def __init__(self, message: str, *, remedy: str = "", at: str = "") -> None:
        super().__init__(message)
        self.message, self.remedy, self.at = message, remedy, at

    def __str__(self) -> str:
        place = f" (at {self.at})" if self.at else ""
        return f"{self.message}{place}" + (f"\n  {self.remedy}" if self.remedy else "")


class BadInput(ClewError):
    """What the caller gave cannot be used."""


class UnknownName(BadInput):
    """Nothing is registered or stored under that name."""


class BadQuery(BadInput):
    """A run query does not parse."""


class BadRecord(BadInput):
    """A line or file to be imported is not what it should be."""


class MissingExtra(BadInput):
    """An optional dependency is not installed."""


class StoreError(ClewError):
    """The store cannot do what was asked."""


class StoreNewer(StoreError):
    """The store was written by a newer Clew."""


class StoreReadOnly(StoreError):
    """The store is opened or mounted read-only."""


class StoreFull(StoreError):
    """No room is left on the disk; everything committed before is kept."""


class StoreBroken(StoreError):
    """The file is not a store, or a damaged one."""


class LeaseHeld(StoreError):
    """Another live process holds the right to write this run."""


class ReplayError(ClewError):
    """A recorded run cannot be followed."""


class ReplayDiverged(ReplayError):
    """The agent asked for something else than the record, or the record was altered."""


class CannotRestore(ReplayError):
    """The world cannot be brought back to the fork point."""


class InDoubt(ReplayError):
    """An effect was begun, its result never arrived, and it must not be done twice."""


class ModelError(ClewError):
    """A model failed to answer."""


class Busy(ModelError):
    """Too many requests wait. ``wait``: seconds after which to try again, a guess from the pace of late."""

    wait: float = 1.0


class Unreachable(ModelError):
    """No answer from the endpoint within the allowed attempts."""


class ContextOverflow(ModelError):
    """The prompt and the reply asked for do not fit the model's context."""


class Refused(ModelError):
    """The endpoint answered with an error that a retry will not mend."""


class WorkerLost(ClewError):
    """A process that drove runs died or cannot be used; its runs can be resumed."""


class WorldError(ClewError):
    """A world or tool failed."""


class Undecided(ClewError):
    """A judge cannot say. The run stays without a reward, which is not a reward of zero.

    Args:
        parts: what it can say, by name; kept as annotations.
        data: JSON to be kept with the reason.
    """

    def __init__(self, message: str, parts: Mapping[str, float] | None = None, data: str = "") -> None:
        super().__init__(message)
        self.parts, self.data = dict(parts or {}), data


class PinBroken(ClewError):
    """A pinned rule is not what, or not where, the operator put it."""


class AgentFailed(ClewError):
    """Every run of a collection ended in an error of the agent's own code."""


def check_choice(name: str, value: object, known: Iterable[object]) -> None:
    """Refuse a value that is not among ``known``, such as one that a type checker would have refused.

    Raises:
        BadInput: it is not among ``known``.
    """
    choices = tuple(known)
    if value not in choices:
        raise BadInput(f"{name}={value!r} is not known", remedy=f"Choose one of {', '.join(map(str, choices))}.")


def need(module: str, extra: str) -> ModuleType:
    """Import an optional dependency, which the extra of that name brings.

    Raises:
        MissingExtra: it is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtra(f"{module} is not installed", remedy=f'Run pip install "clew[{extra}]".') from error
