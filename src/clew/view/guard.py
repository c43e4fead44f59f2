"""Checks before every request of the web viewer, and the headers of every answer.

A web page from elsewhere may send requests to a server on this machine. Three checks keep such requests out: the host
name must be ours (a name that was made to point here is not), the origin must be ours, and where there is a token the
client must know it. No answer may be read across origins.
"""

from __future__ import annotations

import hmac
from collections.abc import MutableMapping
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from clew.core.net import called_so

HEADERS = {
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; "
    "form-action 'self'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Guard:
    """Checks every request of an application.

    Args:
        host: the address or name it is served at.
        token: what a client must know to read anything; empty: nothing, which only a loopback address may allow.
    """

    def __init__(self, app: ASGIApp, host: str, token: str = "") -> None:
        self.app, self.token = app, token
        self.names = {host.lower()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def armoured(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        refusal = self.refusal(scope)
        await (self.app if refusal is None else refusal)(scope, receive, armoured)

    def refusal(self, scope: MutableMapping[str, Any]) -> Response | None:
        """The answer to a request that is not let through; also the redirect that turns a token into a cookie."""
        headers, path = Headers(scope=scope), scope["path"]
        host = headers.get("host", "")
        if not host or not called_so(host, self.names):
            return denied(403, f"this server is not called {host!r}", "Open the address that `clew view` printed.")
        origin = headers.get("origin")
        if origin is not None and urlsplit(origin).netloc.lower() != host.lower():
            return denied(403, f"{origin} may not ask this server", "Open the address that `clew view` printed.")
        if not path.startswith("/api/"):
            return self._handed_over(scope, path)
        if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            return denied(403, "another site may not ask this server", "Open the address that `clew view` printed.")
        if self.token and not self._known(scope, headers):
            return denied(
                401, "the token is missing or wrong", "Open the address with ?token= that `clew view` printed."
            )
        if scope["method"] == "POST" and headers.get("content-type", "").partition(";")[0] != "application/json":
            return denied(415, "the body is not JSON", "Send it as application/json.")
        return None

    def _known(self, scope: MutableMapping[str, Any], headers: Headers) -> bool:
        bearer = headers.get("authorization", "").removeprefix("Bearer ")
        cookie = cookie_parser(headers.get("cookie", "")).get(_cookie(scope), "")
        return any(hmac.compare_digest(given.encode(), self.token.encode()) for given in (bearer, cookie))

    def _handed_over(self, scope: MutableMapping[str, Any], path: str) -> Response | None:
        """``?token=`` becomes a cookie, and leaves the address, which others might see over a shoulder or in a log."""
        query = dict(pair.partition("=")[::2] for pair in scope["query_string"].decode("latin-1").split("&"))
        if "token" not in query or path != "/":
            return None
        response = RedirectResponse("/", 303)
        from urllib.parse import unquote_plus

        given = unquote_plus(query["token"])
        if self.token and hmac.compare_digest(given.encode("utf-8", "replace"), self.token.encode()):
            response.set_cookie(_cookie(scope), self.token, httponly=True, samesite="strict", path="/")
        return response


def _cookie(scope: MutableMapping[str, Any]) -> str:
    """Cookies know no ports: two viewers of one machine need two names."""
    server = scope.get("server") or ("", 0)
    return f"clew-{server[1] or 0}"


def denied(status: int, error: str, remedy: str) -> Response:
    return JSONResponse({"error": error, "remedy": remedy, "kind": "Denied"}, status)
