"""Errors as responses, in the form of OpenAI's."""

from __future__ import annotations

import math

from starlette.responses import JSONResponse, Response

from clew.core.errors import BadInput, Busy, ClewError, ContextOverflow, Refused, ReplayError, Unreachable
from clew.models.dialects import Json
from clew.serve.answers import Late
from clew.serve.parameters import Rejected

STATUS = {Late: 504, Busy: 429, ReplayError: 409, BadInput: 400, ContextOverflow: 400, Unreachable: 502, Refused: 400}
TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}


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
    return JSONResponse(error_body(error), status, headers)


__all__ = ["error_body", "refused", "status_of"]
