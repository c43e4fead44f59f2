"""A model behind a synchronous function, for frameworks that call a summariser inside event loops of their own.
Only ``clew audit decay`` uses it. It must never run the model on the caller's loop, which waits for the answer."""

from __future__ import annotations

from collections.abc import Callable

from clew.core.aio import run_sync
from clew.core.protocols import Model
from clew.core.values import Sampling
from clew.methods.pins.structural import RULE, Oracle
from clew.models.asking import request


class Asking:
    """Answers ``asking(text)`` with the model's reply to it.

    Raises:
        ModelError: as the model raised it.
    """

    def __init__(self, model: Model, sampling: Sampling | None = None) -> None:
        self.model, self.sampling = model, sampling or Sampling()

    def __call__(self, text: str) -> str:
        return run_sync(self.model.complete(request(self.model, text, sampling=self.sampling))).message.text

    def summariser(self, rule: str = RULE) -> Oracle:
        """One that notes what it was shown, as the oracle does, and writes what the model writes."""
        return _Noting(self, rule)


class _Noting(Oracle):
    def __init__(self, write: Callable[[str], str], rule: str) -> None:
        super().__init__(rule)
        self.write = write

    def __call__(self, text: str) -> str:
        super().__call__(text)
        return self.write(text)
