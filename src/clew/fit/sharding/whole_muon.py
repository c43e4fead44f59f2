"""Muon for matrices that are cut among ranks: each is put together at one rank, which steps it as one process would.

``optim.build`` takes it where parameters are DTensors. Orthogonalising rows of a matrix by themselves is another
algorithm, and torch's own Muon over DTensors rounds otherwise. Here a matrix meets the same operations in the same
order as in one process: the same gradients give the same bits. The work is dealt out over the ranks, and the momentum
of a matrix lies at its owner alone.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from clew.fit.sharding.shards import put, whole


class WholeMuon(torch.optim.Muon):
    """torch.optim.Muon over DTensors of one mesh; the arguments are its own. Matrix i is owned by rank i % world."""

    def owns(self, parameter: Any) -> bool:
        """Whether this rank steps that matrix, a DTensor, and holds its momentum, a whole tensor."""
        for group in self.param_groups:
            for i, one in enumerate(group["params"]):
                if one is parameter:
                    mesh = parameter.device_mesh
                    return bool(i % mesh.size() == mesh.get_local_rank())
        return False

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Step every matrix; collective, at most ``world`` whole matrices at once."""
        for group in self.param_groups:
            every = group["params"]
            mesh = every[0].device_mesh
            for start in range(0, len(every), mesh.size()):
                self._round(group, every[start : start + mesh.size()], mesh)

    def _round(self, group: dict[str, Any], matrices: list[Any], mesh: Any) -> None:
        """One matrix for each rank: gathered, stepped by its owner, and handed back."""
        import torch.distributed as dist

        settings = {name: value for name, value in group.items() if name not in ("params", "initial_lr")}
        stepped = []
        for owner, matrix in enumerate(matrices):
            value, gradient = whole(matrix.detach()), whole(matrix.grad)
            stepped.append(value)
            if owner == mesh.get_local_rank():
                mine = nn.Parameter(value)  # the same memory
                mine.grad = gradient
                one: Any = torch.optim.Muon([mine], **settings)
                one.state[mine] = self.state[matrix]
                one.step()
                self.state[matrix] = one.state[mine]
        for owner, (matrix, value) in enumerate(zip(matrices, stepped, strict=True)):
            dist.broadcast(value, group=mesh.get_group(), group_src=owner)
            put(matrix, value)
