"""What the Red Queen engine must be told of a problem: its roles, who performs, who judges, who proposes.

An engine knows no prompts and no programs. A ``Work`` performs tasks with genomes and lets judges look at what came of
them; a ``Proposer`` writes new workspaces. Both are values that are passed in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

Cost = Mapping[str, float]
FREE: Cost = {}


@dataclass(frozen=True, slots=True)
class Role:
    """A part of a workspace that evolves.

    Args:
        name: of the role.
        tasks: how many validation tasks it has.
        judged_by: the slot whose incumbent judges what it makes; "" where the outcome is ground truth.
        repeats: how often one genome may perform a task: 1 where it would make the same again.
    """

    name: str
    tasks: int
    judged_by: str = ""
    repeats: int = 1


class Job(NamedTuple):
    """A task to be performed with a genome of a role. luck: a seed of its own, the same when a search is resumed."""

    role: str
    genome: object
    task: int
    repeat: int
    luck: int


class Made(NamedTuple):
    """What a job came to: an artefact (JSON) of a judged role, an outcome by ground truth; neither where it failed."""

    artefact: object = None
    outcome: int | None = None
    cost: Cost = FREE


class Said(NamedTuple):
    """A judge's verdicts, one for each artefact: accepted or not; None where it said neither."""

    accepts: Sequence[bool | None]
    cost: Cost = FREE


class Work(Protocol):
    """Performs and judges."""

    roles: Sequence[Role]
    slots: Mapping[str, str]

    async def perform(self, jobs: Sequence[Job]) -> Sequence[Made]:
        """Each job's artefact or outcome, in their order."""

    async def judge(self, slot: str, genome: object, artefacts: Sequence[object]) -> Said:
        """What the judge with this genome says of artefacts. It must not see labels."""

    async def label(self, slot: str, artefacts: Sequence[object]) -> Said:
        """What a right judge says: asked for an adversarial pool alone. None: it cannot be had."""

    async def feedback(self, workspace: Mapping[str, object], luck: int) -> Mapping[str, object]:
        """What training tasks, which are no evidence, show of a workspace; for the proposer. May be empty."""


@dataclass(frozen=True, slots=True)
class View:
    """All that a proposer is told. counts: successes and failures of the workspace's genomes on validation, by role."""

    workspace: Mapping[str, object]
    counts: Mapping[str, tuple[int, int]]
    feedback: Mapping[str, object] = field(default_factory=dict)


class Proposal(NamedTuple):
    """A new workspace with a genome for each role; None where the proposer has none, and ``said`` why."""

    workspace: Mapping[str, object] | None
    cost: Cost = FREE
    said: str = ""


class Proposer(Protocol):
    """Writes a workspace from one."""

    async def propose(self, view: View, luck: int) -> Proposal:
        """``luck``: a seed, the same when a search is resumed."""
