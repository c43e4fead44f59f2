"""What a search knows of its problem, and the tries it has made.

The strategies of this folder work on any problem of this form, for instance the builds of a kernel
(``clew.methods.kernels.search``). A strategy must never try a candidate except through ``Tries``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar


class Scored(Protocol):
    """What a try came to: a score above 0 where the candidate works, higher where it is better."""

    @property
    def score(self) -> float: ...


C = TypeVar("C", bound=Hashable)
C_co = TypeVar("C_co", bound=Hashable, covariant=True)
S = TypeVar("S", bound=Scored)
S_contra = TypeVar("S_contra", bound=Scored, contravariant=True)


class Problem(Protocol[C_co]):
    """A finite space of candidates, one of which is the start."""

    def start(self) -> C_co: ...
    def all(self) -> Iterable[C_co]: ...


class Proposer(Protocol[C, S_contra]):
    """Writes new candidates from one: a catalogue of changes, or a model."""

    async def propose(self, candidate: C, outcome: S_contra, tried: Sequence[C]) -> list[C]:
        """Candidates to try next, the best first; none of those tried."""


@dataclass
class Tries(Generic[C, S]):
    """What a search has tried, in order; ``best`` so far, first of equals."""

    evaluate: Callable[[C], Awaitable[S]]
    budget: int
    done: list[tuple[C, S]] = field(default_factory=list)

    @property
    def tried(self) -> list[C]:
        return [candidate for candidate, _ in self.done]

    @property
    def left(self) -> int:
        return self.budget - len(self.done)

    @property
    def best(self) -> tuple[C, S]:
        return max(self.done, key=lambda pair: pair[1].score)

    async def __call__(self, candidate: C) -> S:
        outcome = await self.evaluate(candidate)
        self.done.append((candidate, outcome))
        return outcome
