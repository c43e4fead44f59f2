"""verl's GRPO and Clew's, registered with ``register_adv_est``, on the same rewards: a program of its own."""

from __future__ import annotations

import json

import numpy as np
import torch
import verl
from verl.trainer.ppo import core_algos

from clew.credit import of_arrays


@core_algos.register_adv_est("clew_grpo")
def clew_grpo(token_level_rewards, response_mask, config=None, index=None, **_):
    """Each reply is a run of one step in the group of its prompt."""
    n = len(index)
    returns = token_level_rewards.sum(-1).tolist()
    value = of_arrays("grpo", [0] * n, None, returns, list(index), list(range(n)))
    each = torch.from_numpy(np.nan_to_num(value)).to(token_level_rewards.dtype).unsqueeze(-1) * response_mask
    return each, each


torch.manual_seed(0)
rewards, mask = torch.zeros(12, 7), torch.ones(12, 7)
rewards[:8, -1] = torch.rand(8)
rewards[8:, -1] = 1.0
mask[::2, 4:] = 0
given = {"response_mask": mask, "index": np.array(list("aaaabbbbcccc"), dtype=object)}
ours = core_algos.get_adv_estimator_fn("clew_grpo")(token_level_rewards=rewards.clone(), **given)[0]
theirs = core_algos.get_adv_estimator_fn("grpo")(token_level_rewards=rewards.clone(), **given)[0]
off, size = float((ours - theirs).abs().max()), float(ours.abs().max())
print(json.dumps({"version": verl.__version__, "off": off, "size": size, "dead": float(ours[8:].abs().max())}))
