"""Log-probabilities of chosen tokens under a causal language model, without ever holding all logits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from clew.core.errors import BadInput

if TYPE_CHECKING:
    from clew.fit.prefixes.tree_attention import Tree

CHUNK = 1 << 24  # logits held at once, in numbers: 64 MB of float32
LOWEST = -1e30  # stands for log 0 where it is multiplied by 0
Scored = tuple[Tensor, Tensor | None]  # logprobs and, where asked for, entropies


def recompute(module: nn.Module) -> None:
    """Let every block of a Hugging Face model compute its activations again in the backward pass.

    Raises:
        BadInput: the model does not know how.
    """
    known: Any = module
    if not getattr(known, "supports_gradient_checkpointing", False):
        raise BadInput(f"{type(module).__name__} cannot recompute activations", remedy="Leave out recompute.")
    today = getattr(known, "activation_checkpointing_enable", None)  # transformers 5; the other name was version 4's
    (today or known.gradient_checkpointing_enable)({"use_reentrant": False})


class Scorer:
    """Logprobs and entropies of the tokens at given positions.

    Only the positions asked for pass the output head, and these in pieces of at most ``chunk`` logits, each computed
    again in the backward pass: with a large vocabulary it is the logits, not the model, that exhaust memory. Models
    whose head does more than multiply (soft caps, scaled logits) are found by comparing both ways once, and take the
    whole forward pass.
    """

    def __init__(self, module: nn.Module, chunk: int = CHUNK) -> None:
        self.module, self.chunk = module, chunk
        model: Any = module
        self.head: Any = model.get_output_embeddings()
        self.body: Any = getattr(model, "base_model", None)
        self.vocabulary: int = model.config.vocab_size if self.head is None else self.head.weight.shape[0]
        self.direct = self.head is not None and self.body is not None and self.body is not module and self._agrees()

    @torch.no_grad()
    def _agrees(self) -> bool:
        device = next(self.module.parameters()).device
        ids = torch.arange(4, device=device)[None] % self.head.weight.shape[0]
        training = self.module.training
        self.module.eval()
        try:
            whole = self.module(input_ids=ids, use_cache=False).logits
            parts = self.head(self.body(input_ids=ids, use_cache=False)[0])
        finally:
            self.module.train(training)
        return bool(torch.allclose(whole.float(), parts.float(), atol=1e-4, rtol=1e-4))

    def __call__(
        self,
        ids: Tensor,
        at: Tensor,
        target: Tensor,
        temperature: Tensor | None = None,
        entropy: bool = False,
        banned: Tensor | None = None,
        tree: Tree | None = None,
    ) -> Scored:
        """Logprobs [N] (nats; float32, or float64 as the logits) of ``target`` after the flat positions ``at`` of ids
        [B, T], and entropies.

        Rows are padded on the right, so that causal attention needs no mask. ``banned``, uint8 [N, vocabulary / 8], has
        a bit for each token that has no share of the law, the lowest first. With a ``tree``, ids [1, N] are a trie.
        """
        more = {} if tree is None else tree.arguments()
        if not self.direct:
            logits = self.module(input_ids=ids, use_cache=False, **more).logits.flatten(0, 1)[at]
            return _score(logits, target, temperature, entropy, banned)
        hidden = self.body(input_ids=ids, use_cache=False, **more)[0].flatten(0, 1)[at]
        size = max(1, self.chunk // self.head.weight.shape[0])
        if len(at) <= size:
            return _score(self.head(hidden), target, temperature, entropy, banned)
        parts = []
        for start in range(0, len(at), size):
            cut = slice(start, start + size)
            heat = None if temperature is None else temperature[cut]
            bits = None if banned is None else banned[cut]
            parts.append(checkpoint(self._piece, hidden[cut], target[cut], heat, entropy, bits, use_reentrant=False))
        entropies = torch.cat([p[1] for p in parts]) if entropy else None
        return torch.cat([p[0] for p in parts]), entropies

    def _piece(
        self, hidden: Tensor, target: Tensor, heat: Tensor | None, entropy: bool, banned: Tensor | None
    ) -> Scored:
        return _score(self.head(hidden), target, heat, entropy, banned)


def _score(logits: Tensor, target: Tensor, heat: Tensor | None, entropy: bool, banned: Tensor | None) -> Scored:
    logits = logits if logits.dtype == torch.float64 else logits.float()
    if banned is not None:
        bits = (banned[:, :, None] >> torch.arange(8, device=banned.device)) & 1
        logits = logits.masked_fill(bits.flatten(1)[:, : logits.shape[-1]].bool(), float("-inf"))
    if heat is not None:
        logits = logits / heat[:, None]
    if not entropy:
        return -functional.cross_entropy(logits, target, reduction="none"), None
    logs = logits.log_softmax(-1)
    return logs.gather(-1, target[:, None])[:, 0], -(logs.exp() * logs.clamp(min=LOWEST)).sum(-1)
