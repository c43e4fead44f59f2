"""Local weights under other variables of their chat template: the same engine, cache and version, other renderings.

``clew serve`` makes one for each request that brings variables. It must change nothing of the model it comes from.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from clew.core.errors import BadInput
from clew.core.keys import value_digest
from clew.core.records import Request
from clew.core.values import Completion
from clew.models.engine.detokenizer import stopped
from clew.models.engine.stream import Stream
from clew.models.local.model import Local
from clew.models.rendering import ChatTemplateRenderer

KEPT = 8  # renderings of one model that are kept


class Templated(Local):
    """A model as ``inner`` is now, whose prompts are written and replies read under more template variables.

    Raises:
        BadInput: the model has no chat template, or these variables are not free, or it cannot be rendered with them.
    """

    def __init__(self, inner: Local, variables: Mapping[str, object]) -> None:
        if not isinstance(inner.renderer, ChatTemplateRenderer):
            raise BadInput("the model has no chat template, whose variables could be set", remedy="Leave them out.")
        self.__dict__.update(inner.__dict__)
        name = value_digest(dict(variables)).hex()
        if (found := inner.renderings.get(name)) is None:
            found = inner.renderer.varied(variables)
            names = list(inner.renderings)  # of one moment: other threads add and remove as well
            for old in names[: max(0, len(names) - KEPT + 1)]:
                inner.renderings.pop(old, None)
            inner.renderings[name] = found
        self.renderer: ChatTemplateRenderer = found

    async def complete(self, request: Request) -> Completion:
        """See Engine.complete."""
        return self._read(request, await super().complete(request))

    def stream(self, request: Request) -> Stream:
        """See Engine.stream."""
        return Stream(self.engine, request, self.renderer, partial(self._read, request))

    def _read(self, request: Request, done: Completion) -> Completion:
        """The engine reads a reply as one to its own prompt, which may open a thought where this one does not."""
        message = self.renderer.parse((*request.forced, *(done.tokens or ())))
        return done._replace(message=stopped(message, request.sampling.stop))
