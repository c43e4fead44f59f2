"""``chat_template_kwargs`` of a request: variables of the chat template for its prompt alone, such as enable_thinking.

``Server`` asks for each request. A client's values are data to the template; they must never reach the tokenizer's own
parameters, which ``ChatTemplateRenderer.varied`` refuses.
"""

from __future__ import annotations

import asyncio
import json

from clew.core.errors import BadInput
from clew.core.protocols import Model
from clew.models.dialects import Json
from clew.serve.refusals import Rejected

NAME = "chat_template_kwargs"
LONGEST = 4096  # characters of JSON


async def with_variables(model: Model, body: Json) -> Model:
    """The model as this request's variables have it rendered; the model itself where there are none.

    Raises:
        Rejected: they are no object, too long, or not free, or the model has no chat template in this process.
    """
    given = body.get(NAME)
    if given is None or given == {}:
        return model
    if not isinstance(given, dict) or len(json.dumps(given)) > LONGEST:
        told = f"{NAME} is no object of at most {LONGEST} characters"
        raise Rejected(told, remedy='Send names and values, as in {"enable_thinking": false}.', param=NAME)
    if not hasattr(model, "renderings"):
        told = f"{model.ref} takes no variables of a chat template here"
        raise Rejected(told, remedy="Serve the weights themselves, or leave them out.", param=NAME)
    from clew.models.local.templated import Templated  # torch

    try:
        return await asyncio.to_thread(Templated, model, given)  # type: ignore[arg-type]
    except BadInput as error:
        raise Rejected(error.message, remedy=error.remedy, param=NAME) from None
