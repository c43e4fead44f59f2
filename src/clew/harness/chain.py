"""``Chain``: the record of a run that no live run makes, as of an imported one, or of what a program asked a memory.

Importers and the doors of a memory call it. It keeps nothing itself: who calls it puts the Calls into a store.
"""

from __future__ import annotations

from typing import Any

from clew.core.legality import call_key, issue_key
from clew.core.records import Call, CallKind, changed


class Chain:
    """Builds the Calls of one run that happened one after the other, where no live run makes them."""

    def __init__(self, run: str) -> None:
        self.run, self.calls, self._issue = run, list[Call](), b""

    def add(self, kind: CallKind, request: bytes, **fields: Any) -> Call:
        """Add a Call that is complete; ``fields`` are those of Call."""
        at = len(self.calls)
        call = Call(self.run, at, kind, request, after=at, done=at, **fields)
        self._issue = issue_key(self._issue, call)
        self.calls.append(changed(call, key=call_key(self._issue, call)))
        return self.calls[-1]
