"""The viewer as a web application: each address is one function from a store to JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from clew.core.errors import BadInput, ClewError, MissingExtra, StoreError, UnknownName
from clew.store import Keeper, resolve
from clew.view import files
from clew.view.guard import Guard
from clew.view.pages import run as run_page
from clew.view.pages import runs as lists
from clew.view.pages import transcript
from clew.view.stores import Stores

Page = Callable[[Keeper, Request], Any]


class Json(Response):
    """JSON in ASCII: lone surrogates, which are no UTF-8, travel as escapes."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode()


def application(stores: Stores, *, host: str = "127.0.0.1", token: str = "") -> Starlette:
    """The viewer of a store.

    Args:
        host: the address or name it is served at; requests for other names are refused.
        token: what a client must know; empty: nothing.
    """
    shown = _About(stores)

    def get(path: str, page: Page, use: str = "runs") -> Route:
        """A route whose page reads the store's connection for ``use``; pages of other uses do not wait for it."""

        def answer(request: Request) -> Response:
            made = page(stores.of(use), request)
            return made if isinstance(made, Response) else Json(made)

        return Route(path, answer, methods=["GET"])

    routes = [
        Route("/", lambda request: _file("index.html")),
        Route("/static/{name:path}", lambda request: _file(request.path_params["name"])),
        get("/api/store", shown.store, "lists"),
        get("/api/runs", _listed(lists.runs), "lists"),
        get("/api/groups", _listed(lists.groups), "lists"),
        get("/api/run/{run}", lambda s, r: run_page.head(s, _run(s, r))),
        get("/api/run/{run}/calls", _calls),
        get("/api/run/{run}/call/{seq:int}", _call),
        get("/api/node/{key}/text", _text),
        get("/api/find", _find, "find"),
        get("/api/diff", lambda s, r: run_page.diff(s, *(resolve(s, r.query_params.get(x, "")) for x in "ab"))),
    ]
    return Starlette(
        routes=routes,
        middleware=[Middleware(Guard, host=host, token=token)],
        exception_handlers={ClewError: _explain, HTTPException: _plain_error, Exception: _unexpected},
    )


class _About:
    """What the page asks first."""

    def __init__(self, stores: Stores) -> None:
        self.stores = stores

    def store(self, store: Keeper, request: Request) -> dict[str, Any]:
        try:
            number = version("clew")
        except PackageNotFoundError:
            number = ""
        return lists.about(store) | {"readonly": self.stores.readonly, "can_fork": False, "version": number}


def _file(name: str) -> Response:
    body, kind = files.static(name)
    return Response(body, media_type=kind, headers={"Cache-Control": "no-cache"})


def _number(request: Request, name: str, default: int, most: int = 1 << 24) -> int:
    text = request.query_params.get(name, "")
    if not text:
        return default
    if not text.isdecimal() or len(text) > 9:
        raise BadInput(f"{name}={text!r} is not a number", remedy=f"Write {name}={default}, say.")
    return min(int(text), most)


def _run(store: Keeper, request: Request) -> str:
    return resolve(store, request.path_params["run"])


def _listed(page: Callable[[Keeper, str, int, int], dict[str, Any]]) -> Page:
    def listed(store: Keeper, request: Request) -> dict[str, Any]:
        limit = _number(request, "limit", 100, lists.LIMIT)
        return page(store, request.query_params.get("q", ""), limit, _number(request, "after", 0))

    return listed


def _calls(store: Keeper, request: Request) -> dict[str, Any]:
    run = _run(store, request)
    start = _number(request, "start", 0)
    stop = _number(request, "stop", start + 100)
    return {"calls": transcript.calls(store, run, start, stop), "total": store.summary(run).calls}


def _call(store: Keeper, request: Request) -> dict[str, Any]:
    run, seq = _run(store, request), request.path_params["seq"]
    found = transcript.call(store, run, seq)
    if found is None:
        raise UnknownName(f"run {run} has no Call {seq}")
    return found


def _text(store: Keeper, request: Request) -> Response:
    """The whole of a message, or (``?call=RUN@SEQ``) of an observation, as plain text."""
    place, key = request.query_params.get("call", ""), request.path_params["key"]
    if place:
        run, _, seq = place.rpartition("@")
        call = next(iter(store.calls(resolve(store, run), int(seq), int(seq) + 1)), None) if seq.isdecimal() else None
        if call is None:
            raise UnknownName(f"no Call {place}")
        text = call.text
    else:
        try:
            text = transcript.text(store, bytes.fromhex(key))
        except ValueError:
            raise UnknownName(f"no node {key!r}") from None
    return PlainTextResponse(text.encode("utf-8", "replace"))


def _find(store: Keeper, request: Request) -> dict[str, Any]:
    run = resolve(store, request.query_params.get("run", ""))
    words = request.query_params.get("text", "")
    return {"seq": transcript.find(store, run, words, _number(request, "from", 0))}


def _explain(request: Request, error: Exception) -> Response:
    assert isinstance(error, ClewError)
    status = 500
    if isinstance(error, UnknownName):
        status = 404
    elif isinstance(error, MissingExtra):
        status = 501
    elif isinstance(error, BadInput):
        status = 400
    elif isinstance(error, StoreError):
        status = 503
    return Json({"error": error.message, "remedy": error.remedy, "kind": type(error).__name__}, status)


def _plain_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return Json({"error": str(error.detail), "remedy": "", "kind": "NotFound"}, error.status_code)


def _unexpected(request: Request, error: Exception) -> Response:
    return Json({"error": f"{type(error).__name__}: {error}", "remedy": "", "kind": type(error).__name__}, 500)
