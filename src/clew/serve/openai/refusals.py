"""Errors as responses, in the form of OpenAI's."""

from __future__ import annotations

import json
import math
from typing import Any

from starlette.responses import JSONResponse, Response

from clew.core.errors import BadInput, Busy, ClewError, ContextOverflow, Refused, ReplayError, Unreachable
from clew.models.dialects import Json
from clew.serve.openai.answers import Late
from clew.serve.openai.parameters import Rejected

STATUS = {Late: 504, Busy: 429, ReplayError: 409, BadInput: 400, ContextOverflow: 400, Unreachable: 502, Refused: 400}
TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}


class Body(JSONResponse):
    """A JSON body in ASCII: lone surrogates, which clients and models do send, have no UTF-8."""

    def render(self, content: Any) -> bytes:
        return json.dumps(content, separators=(",", ":")).encode()


def status_of(error: ClewError) -> int:
    if isinstance(error, Rejected):
        return error.status
    return next((s for kind, s in STATUS.items() if isinstance(error, kind)), 500)


def error_body(error: ClewError) -> Json:
    """As OpenAI writes errors."""
    status = status_of(error)
    code = "context_length_exceeded" if isinstance(error, ContextOverflow) else getattr(error, "code", "")
    kind = TYPES.get(status) or ("invalid_request_error" if status < 500 else "server_error")
    told = f"{error.message}. {error.remedy}" if error.remedy else error.message
    param = getattr(error, "param", "") or None
    return {"error": {"message": told, "type": kind, "param": param, "code": code or type(error).__name__}}


def refused(error: ClewError, pace: float = 1.0) -> Response:
    """An error as a response; where it will pass, with the seconds after which to ask again."""
    status = status_of(error)
    wait = getattr(error, "wait", pace)
    headers = {"retry-after": str(max(1, math.ceil(min(wait, 60))))} if status in (429, 503) else {}
    return Body(error_body(error), status, headers)


__all__ = ["Body", "error_body", "refused", "status_of"]
