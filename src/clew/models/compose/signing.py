"""A model of which each request is told in a ledger: a line before it is sent, and one after it was answered.

``clew serve --agent`` wraps the models of an agent with it. The lines name the run and the Call, whose record says what
was decided and why; they hold digests and never words. What cannot be told must not be sent.
"""

from __future__ import annotations

from collections.abc import Callable

from clew.core.protocols import Model
from clew.core.records import Request
from clew.core.values import Completion
from clew.models.compose.forwarding import Forwarding
from clew.models.compose.ledger import Ledger
from clew.models.compose.origins import name_of


class Signed(Forwarding):
    """A Model that answers as ``model`` does, once the ledger has the line.

    Raises:
        BadInput: the ledger cannot be written; nothing is sent then.
    """

    def __init__(self, model: Model, ledger: Ledger) -> None:
        super().__init__(model)
        self.ledger = ledger

    def asked(self, request: Request) -> Request:
        key = request.path[-1].key.hex() if request.path else ""
        self.ledger.write("sent", model=self.ref, request=key, run=request.run, call=request.idempotency)
        return request

    def answered(self, request: Request, completion: Completion) -> Completion:
        told = {"run": request.run, "call": request.idempotency, "message": name_of(completion.message)}
        self.ledger.write("answered", model=self.ref, **told)
        return completion


def signing(load: Callable[[str], Model], ledger: Ledger) -> Callable[[str], Model]:
    """What loads models, each told in the ledger."""
    return lambda ref: Signed(load(ref), ledger)
