"""Small models and conversations to drive the engine with."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from clew.core.keys import node_key
from clew.core.records import Node, Request
from clew.core.values import Completion, Message, Sampling
from clew.models.local import Local

torch.set_num_threads(1)
WORDS = [f"w{i}" for i in range(40)]


def sharpen(module: torch.nn.Module, seed: int = 3, by: float = 0.15) -> None:
    """Random weights as they come give nearly equal logits; these do not."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter += by * torch.randn(parameter.shape, generator=generator).to(parameter)


class Talk:
    """One conversation with a model, kept as the harness keeps it: a path of nodes."""

    def __init__(self, model: Local, name: str = "") -> None:
        self.model, self.renderer, self.name = model, model.renderer, name
        self.path: list[Node] = []
        self.closed = True

    def add(self, message: Message, ids: Sequence[int]) -> None:
        parent = self.path[-1].key if self.path else b""
        key = node_key(parent, message, ids, self.renderer.ref)
        self.path.append(Node(key, parent, message, tuple(ids), self.renderer.ref, b""))

    def say(self, text: str, role: str = "user") -> Talk:
        message = Message(role, text)
        self.add(message, self.renderer.delta(self.path[-1] if self.path else None, self.closed, message, ()))
        self.closed = True
        return self

    def request(self, seed: int = 0, forced: Sequence[int] = (), tops: int | None = None, **sampling: Any) -> Request:
        return Request(
            tuple(self.path),
            Sampling(**{"max_tokens": 8, **sampling}),
            seed,
            head=self.renderer.head(),
            forced=tuple(forced),
            order=(len(self.name), seed),
            run=self.name,
            tops=tops,
        )

    def take(self, completion: Completion, forced: Sequence[int] = ()) -> None:
        assert completion.tokens is not None
        self.add(completion.message, (*self.renderer.head(), *forced, *completion.tokens))
        self.closed = completion.finish == "stop"

    def fork(self, name: str, turns: int) -> Talk:
        other = Talk(self.model, name)
        other.path = self.path[:turns]
        return other

    @property
    def ids(self) -> list[int]:
        return [i for node in self.path for i in node.ids or ()]


def ask(model: Local, requests: Sequence[Request]) -> list[Completion]:
    """All answers, in order."""

    async def together() -> list[Completion]:
        return await asyncio.gather(*[model.complete(r) for r in requests])

    return asyncio.run(together())


def expected(module: torch.nn.Module, request: Request, tokens: Sequence[int]) -> np.ndarray:
    """Logprobs of a reply by the module's own forward over the whole history, nothing cached."""
    prompt = [*(i for node in request.path for i in node.ids or ()), *request.head, *request.forced]
    with torch.no_grad():
        logits = module(torch.tensor([[*prompt, *tokens]]), use_cache=False).logits[0].double()
    logp = (logits / request.sampling.temperature).log_softmax(-1)
    return np.array([float(logp[len(prompt) + i - 1, token]) for i, token in enumerate(tokens)])
