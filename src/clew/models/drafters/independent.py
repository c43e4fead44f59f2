"""The independent drafter: a small language model of its own (2211.17192), as assisted generation uses it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from clew.core.errors import need
from clew.models.drafters.layers import Design, Trained


class Independent(Trained):
    """A causal LM over the target's vocabulary that reads tokens alone, for training beside the other drafters.

    Args:
        head: the target's output head, by which the target's law is known while training.
    """

    def __init__(self, design: Design, head: Tensor) -> None:
        super().__init__()
        transformers = need("transformers", "local")
        self.design = d = design
        self.lm_head = nn.Linear(head.shape[1], head.shape[0], bias=False)
        self.lm_head.weight = nn.Parameter(head.detach().clone(), requires_grad=False)
        sizes = {"hidden_size": d.heads * d.dim, "num_hidden_layers": d.layers, "head_dim": d.dim}
        sizes |= {"num_attention_heads": d.heads, "num_key_value_heads": d.kv, "intermediate_size": d.feed}
        sizes |= {"vocab_size": d.vocabulary, "max_position_embeddings": d.context}
        ends = dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"))
        more = {"rms_norm_eps": d.eps, "rope_theta": d.theta, "tie_word_embeddings": True}
        self.inner: Any = transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**sizes, **ends, **more))

    def forward(self, taps: Tensor, ids: Tensor, anchors: Tensor) -> tuple[Tensor, None]:
        """Logits [B, A, block, V] of the tokens behind anchors [B, A], the true tokens standing before each."""
        logits = self.inner(input_ids=ids, use_cache=False).logits
        at = (anchors[..., None] + torch.arange(self.design.block, device=ids.device)).clamp(max=ids.shape[1] - 1)
        found = logits.gather(1, at.flatten(1)[..., None].expand(-1, -1, logits.shape[-1]))
        return found.view(*at.shape, -1), None
