"""What the ranks of one training tell one another: sums, largest values, and whether they agree.

The trainer asks here, and so never asks how many processes there are: ``Ranks`` itself is one process alone, ``Group``
is several. Each call of a Group is collective: every rank makes the same calls in the same order. Weights and gradients
never pass through here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import numpy as np
import torch
from torch import Tensor

from clew.core.errors import BadInput
from clew.core.printable import short
from clew.core.records import LossRow

LONGEST = 60  # characters of a value in a message
PATIENCE = timedelta(days=30)  # for word from another rank: the first one samples meanwhile, for as long as that takes
REMEDIES = {
    "rows": "Give every rank the same rows in the same order: build them on rank 0 and send them to the others.",
    "world size": "Start all ranks by one command, such as `clew train --nproc N`.",
    "torch": "Install the same version of torch wherever a rank runs.",
    "clew": "Install the same version of Clew wherever a rank runs.",
    "weights": "Let every rank load the same weights before it makes its trainer.",
}
OTHERWISE = "Start every rank with the same settings, by one command such as `clew train --nproc N`."


class Ranks:
    """One process alone, which is rank 0 of a world of 1."""

    rank, world = 0, 1

    @property
    def leads(self) -> bool:
        """Whether this is rank 0, which samples, serves, and writes what is written once."""
        return self.rank == 0

    def gathered(self, mine: Any) -> list[Any]:
        """What each rank gives, in their order."""
        return [mine]

    def told(self, what: Any) -> Any:
        """What rank 0 says; what the others give is not read."""
        return what

    def wait(self) -> None:
        """Return when every rank has come here."""
        self.gathered(None)

    def total(self, values: Sequence[float]) -> list[float]:
        """Each value added up over the ranks."""
        return [float(sum(column)) for column in zip(*self.gathered(list(values)), strict=True)]

    def largest(self, value: float | None) -> float | None:
        """The largest value of any rank; None where none has one."""
        return max((one for one in self.gathered(value) if one is not None), default=None)

    def joined(self, values: Tensor) -> Tensor:
        """The numbers [n] of all ranks, one rank after the other; n may differ."""
        found = self.gathered(values.detach().cpu().numpy()) if self.world > 1 else []
        return torch.from_numpy(np.concatenate(found)).to(values.device) if found else values

    def agree(self, facts: Mapping[str, object]) -> None:
        """Raises BadInput, on every rank alike, where a fact differs from that of rank 0."""
        told = disagreement(self.gathered({name: str(value) for name, value in facts.items()}))
        if told is not None:
            raise told


class Group(Ranks):
    """Several processes, joined by ``joining.join``; ``device`` is where this rank computes."""

    def __init__(self, device: torch.device) -> None:
        import torch.distributed as dist

        self.device = device
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self._said: Any = dist.new_group(backend="gloo", timeout=PATIENCE)

    def gathered(self, mine: Any) -> list[Any]:
        import torch.distributed as dist

        found: list[Any] = [None] * self.world
        dist.all_gather_object(found, mine, group=self._said)
        return found

    def told(self, what: Any) -> Any:
        import torch.distributed as dist

        found = [what]
        dist.broadcast_object_list(found, src=0, group=self._said)
        return found[0]


def disagreement(facts: Sequence[Mapping[str, str]]) -> BadInput | None:
    """The error that names every fact in which a rank differs from rank 0; None where all say the same."""
    told, remedies = [], dict[str, None]()
    for name in dict.fromkeys(name for one in facts for name in one):
        values = [one.get(name, "not set") for one in facts]
        other = next((rank for rank, value in enumerate(values) if value != values[0]), None)
        if other is not None:
            first, second = short(values[0], LONGEST), short(values[other], LONGEST)
            told.append(f"{name} is {first} at rank 0 and {second} at rank {other}")
            remedies[REMEDIES.get(name, OTHERWISE)] = None
    return BadInput(f"the ranks disagree: {', '.join(told)}", remedy=" ".join(remedies)) if told else None


def rows_digest(rows: Sequence[LossRow]) -> str:
    """Hex name of rows by all that a step reads of them, and of their order."""
    name = hashlib.blake2b(digest_size=8)
    for row in rows:
        told = (row.version, row.temperature, row.set, row.role, row.run, row.held)
        name.update(repr((told, [*row.weights], [*row.targets])).encode())
        arrays = [row.ids, row.sampled, row.old, *row.weights.values(), *row.targets.values()]
        for array in arrays if row.ref is None else [*arrays, row.ref]:
            name.update(np.ascontiguousarray(array).data)
    return name.hexdigest()
