"""A model that answers after a while, in a module of its own so that workers can import it. ``workers.py`` uses it."""

from __future__ import annotations

import asyncio

from clew.core.records import Request
from clew.core.values import Completion
from clew.models.fakes import Markov


class Latent(Markov):
    """A Markov model behind a latency."""

    def __init__(self, seconds: float) -> None:
        super().__init__("up\nup\ndown\nup", order=1, tokens=True)
        self.seconds = seconds
        self.ref = f"latent({seconds})"

    async def complete(self, request: Request) -> Completion:
        await asyncio.sleep(self.seconds)
        return await super().complete(request)
