"""Training on several devices: weights, gradients and optimiser states are cut over the ranks of torchrun (FSDP2)."""

from clew.fit.sharding.policy import ShardedPolicy as ShardedPolicy
from clew.fit.sharding.sharded import Sharded as Sharded
