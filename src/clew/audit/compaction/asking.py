"""A model behind a synchronous function, for frameworks that call a summariser inside event loops of their own.

``clew audit decay`` uses it. It must never run the model on the caller's loop, which waits for the answer.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from types import TracebackType

from clew.audit.compaction.structural import RULE, Oracle
from clew.core.protocols import Model
from clew.models.contract import request


class Asking:
    """Answers ``asking(text)`` with the model's reply to it; a context manager with a thread for the model's loop.

    Raises:
        ModelError: as the model raised it.
    """

    def __init__(self, model: Model) -> None:
        self.model, self.loop = model, asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, name="asking", daemon=True)

    def __enter__(self) -> Asking:
        self.thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()

    def __call__(self, text: str) -> str:
        reply = asyncio.run_coroutine_threadsafe(self.model.complete(request(self.model, text)), self.loop).result()
        return reply.message.text

    def summariser(self) -> Oracle:
        """One that notes what it was shown, as the oracle does, and writes what the model writes."""
        return _Noting(self)


class _Noting(Oracle):
    def __init__(self, write: Callable[[str], str]) -> None:
        super().__init__(RULE)
        self.write = write

    def __call__(self, text: str) -> str:
        super().__call__(text)
        return self.write(text)
