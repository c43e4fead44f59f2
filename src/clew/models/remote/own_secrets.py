"""Takes an endpoint's own credential out of what it answers, so that none that it echoes reaches a record or a program.

``client`` reads every reply through it. A key that is a word (``EMPTY``, ``none``, as servers of one's own want them)
is no secret, and is left where it stands: to replace it would change replies that have nothing to do with it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from clew.core.values import Completion, Message, ToolCall

MASK = "***"
SHORT, LONG = 8, 20  # characters: of no secret at all below, of one without a digit from


def telling(secret: str) -> bool:
    """Whether a credential is one that no reply holds by chance."""
    return len(secret) >= LONG or (len(secret) >= SHORT and any(c.isdigit() for c in secret))


class Masking:
    """Masks secrets in whole texts, and in one that comes in pieces."""

    def __init__(self, secrets: Sequence[str]) -> None:
        self._secrets = sorted(filter(telling, secrets), key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, self._secrets))) if self._secrets else None
        self._held = ""

    def text(self, text: str) -> str:
        return self._pattern.sub(MASK, text) if self._pattern is not None else text

    def piece(self, text: str) -> str:
        """What may be said now that this piece has come; where it ends as a secret begins, that waits for more."""
        if self._pattern is None:
            return text
        text, self._held = self._held + text, ""
        longest = len(self._secrets[0])
        for at in range(max(0, len(text) - longest + 1), len(text)):
            if any(secret.startswith(text[at:]) and len(secret) > len(text) - at for secret in self._secrets):
                self._held, text = text[at:], text[:at]
                break
        return self.text(text)

    def rest(self) -> str:
        """What waits at the end of all pieces."""
        held, self._held = self._held, ""
        return self.text(held)

    def message(self, m: Message) -> Message:
        if self._pattern is None:
            return m
        calls = tuple(ToolCall(*map(self.text, call)) for call in m.calls)
        extra = self.text(m.extra)
        return m._replace(text=self.text(m.text), reasoning=self.text(m.reasoning), calls=calls, extra=extra)

    def completion(self, done: Completion) -> Completion:
        """The reply without secrets. Where it held one, its token ids spell it too, and are left out."""
        message = self.message(done.message)
        if message == done.message:
            return done._replace(model=self.text(done.model))
        bare = done._replace(tokens=None, logprobs=None, plain=None, tops=None, kept=b"", inner=())
        return bare._replace(message=message, model=self.text(done.model))
