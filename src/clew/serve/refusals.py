"""Errors as HTTP responses: one table of statuses, written as the dialect of the request writes errors.

Both servers (``serve/openai``, ``serve/gateway``) answer every error through this module, so that one error has one
status wherever it is raised. Nothing here may raise: an error's text can hold whatever a client or a model sent.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Awaitable, Callable

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from clew.core.errors import (
    BadInput,
    Busy,
    ClewError,
    ContextOverflow,
    ModelError,
    Refused,
    ReplayDiverged,
    ReplayError,
)
from clew.core.values import Completion
from clew.models.dialects import Json

STATUS: dict[type[ClewError], int] = {Busy: 429, ContextOverflow: 400, Refused: 400, ModelError: 502}
STATUS |= {ReplayError: 409, BadInput: 400, ClewError: 500}
# A program that left the recorded course must stop, and its client not try for minutes. The agents that speak a dialect
# do not send this status of it again: mini-swe-agent stops at 404 alone, Codex at 400 alone, and Claude Code takes 404
# for a model that is not there.
STOP = {"chat": 404, "responses": 400, "messages": 422}
# a class stands before those it derives from
# error types by status, with what stands for the other statuses below 500 (400) and above (500)
_KINDS = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error", 400: "invalid_request_error"}
OPENAI = {**_KINDS, 500: "server_error"}
ANTHROPIC = {**_KINDS, 404: "not_found_error", 413: "request_too_large", 500: "api_error", 504: "timeout_error"}
Handler = Callable[[Request], Awaitable[Response]]
_log = logging.getLogger("clew.serve")


class Rejected(BadInput):
    """A request that is answered with an error: its status, and the error's code and parameter as OpenAI names them."""

    def __init__(self, message: str, *, remedy: str = "", status: int = 400, code: str = "", param: str = "") -> None:
        super().__init__(message, remedy=remedy)
        self.status, self.code, self.param = status, code, param


def unbroken(completion: Completion) -> Completion:
    """The reply, which must not pass for one that ended where it broke off.

    Raises:
        ModelError: the upstream failed, or fell silent, in the middle of it.
    """
    if completion.finish != "cut":
        return completion
    why = completion.attempts[-1].error if completion.attempts else ""
    raise ModelError(f"the reply broke off: {why or 'its end never came'}", remedy="Send the request again.")


class Body(JSONResponse):
    """A JSON body in ASCII: lone surrogates, which clients and models do send, have no UTF-8."""

    def render(self, content: object) -> bytes:
        return json.dumps(content, separators=(",", ":")).encode()


def status_of(error: ClewError, dialect: str = "chat") -> int:
    if isinstance(error, Rejected):
        return error.status
    if isinstance(error, ReplayDiverged):
        return STOP.get(dialect, STOP["chat"])
    return next(status for kind, status in STATUS.items() if isinstance(error, kind))


def error_body(error: ClewError, dialect: str = "chat") -> Json:
    """As Anthropic writes errors where the dialect is ``messages``, else as OpenAI does."""
    kinds, status = ANTHROPIC if dialect == "messages" else OPENAI, status_of(error, dialect)
    code = "context_length_exceeded" if isinstance(error, ContextOverflow) else getattr(error, "code", "")
    told = {
        "message": f"{error.message}. {error.remedy}" if error.remedy else error.message,
        "type": kinds.get(status) or kinds[400 if status < 500 else 500],
        "param": getattr(error, "param", "") or None,
        "code": code or type(error).__name__,
    }
    return {"type": "error", "error": told} if dialect == "messages" else {"error": told}


def error_event(error: ClewError, dialect: str) -> Json:
    """The last event of a stream that cannot go on."""
    body = error_body(error, dialect)
    flat = {**body["error"], **body, "type": "error", "sequence_number": 0}
    return flat if dialect == "responses" else body


def refused(error: ClewError, dialect: str = "chat", pace: float = 1.0) -> Response:
    """An error as a response; where it will pass, with the seconds after which to ask again."""
    status = status_of(error, dialect)
    wait = getattr(error, "wait", pace)
    headers = {"retry-after": str(max(1, math.ceil(min(wait, 60))))} if status in (429, 503) else {}
    headers |= {"x-should-retry": "false"} if isinstance(error, ReplayError) else {}
    return Body(error_body(error, dialect), status, headers)


def guarded(route: Handler, dialect: str = "chat") -> Handler:
    """The route, with every error answered."""

    async def answered(request: Request) -> Response:
        try:
            return await route(request)
        except ClientDisconnect:
            return Response(status_code=499)
        except Exception as error:
            return refused(known(error, getattr(request.state, "request", "")), dialect)

    return answered


def known(error: BaseException, request: str = "") -> ClewError:
    """The error as one of ours, the first of a group; what nobody foresaw is logged and told without its text.

    Args:
        request: the id by which the log names the request.
    """
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, ClewError):
        return error
    _log.error("a request failed %s", request, exc_info=error)
    return ClewError(f"the server failed: {type(error).__name__}", remedy="Its log says where.")
