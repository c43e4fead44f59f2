"""One small module, and models over copies of it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch

from clew.models.local import Local, small
from tests.engine.helpers import WORDS, sharpen


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of these small contexts have stretches of several lengths, as those of real ones have."""
    monkeypatch.setattr("clew.models.engine.forwards.arena.SHORT", 64)


@pytest.fixture(scope="session")
def base() -> torch.nn.Module:
    model = small(WORDS, d=32, seed=1, context=256)
    sharpen(model.module)
    return model.module


@pytest.fixture
def make(base: torch.nn.Module) -> Callable[..., Local]:
    """Locals over copies of one small module, so that a test may change weights."""
    renderer = small(WORDS, d=32, context=256).renderer

    def build(**options: Any) -> Local:
        return Local(copy.deepcopy(base), renderer=renderer, ref="tiny", **options)

    return build
