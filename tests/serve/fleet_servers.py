"""`clew serve` in this process, several at once, and folders of weights for them: for tests of fleets."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch

from clew.models.local import Local, small
from clew.serve.openai.server import Server
from clew.serve.openai.updatable import Updatable
from clew.serve.openai.weight_routes import WeightRoutes
from tests.serve.serving import serving

WORDS = ["the", "cup", "is", "on", "a", "table", "go", "north", "south", "take", "put", "look"]


def tiny(seed: int = 1, **options: Any) -> Local:
    """A small untrained model, in whose replies any word follows any other."""
    return small(WORDS, d=16, layers=1, heads=2, kv_heads=1, context=256, seed=seed, ref="tiny", **options)


def other(folder: Path, seed: int) -> Path:
    """A folder of other weights of the same shape."""
    model = tiny()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in model.module.parameters():
            weight.add_(torch.randn(weight.shape, generator=generator) * 0.3)
    model.save(folder)
    model.close()
    return folder


@contextmanager
def servers(*models: Local, updates: Path | None = None, **options: Any) -> Iterator[list[str]]:
    """The addresses of a server for each model, which takes weights that lie in the folder ``updates``."""
    with ExitStack() as stack:
        urls = []
        for model in models:
            stack.callback(model.close)
            if updates is None:
                server = Server(model, names=("m",), **options)
            else:
                held = Updatable(model)
                server = Server(held, names=("m",), updates=WeightRoutes(held, updates), **options)
            urls.append(stack.enter_context(serving(server)))
        yield urls


def twin(model: Local) -> Local:
    """The same weights again."""
    return Local(copy.deepcopy(model.module), renderer=model.renderer, ref=model.ref)
