"""The web application of the viewer: each address is one function from a store to JSON."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from clew.core.errors import BadInput, ClewError, MissingExtra, StoreError, UnknownName
from clew.core.printable import DEFAULT_STORE
from clew.core.protocols import Model
from clew.core.values import Message
from clew.harness.fork.fork_request import ForkRequest
from clew.serve.incoming import body_of, parsed
from clew.store import Keeper, resolve
from clew.store.address import beside
from clew.store.labels import VERDICTS
from clew.store.slices import Unfinished
from clew.view import assets, labelling
from clew.view.evolution import search_reports
from clew.view.feed import Feed
from clew.view.files.file_addresses import Answer, addresses
from clew.view.guard import Guard, denied
from clew.view.jobs import Jobs
from clew.view.pages import (
    compare,
    curve_page,
    feature_page,
    graph,
    labels_page,
    overview,
    reports,
    training,
    transcript_page,
)
from clew.view.pages import list_pages as lists
from clew.view.pages import run_page as run_page
from clew.view.pages.outline import outline
from clew.view.pages.pictures import picture
from clew.view.pages.strip import strip
from clew.view.stores import Stores
from clew.view.workings import workings

BODY = 8 << 20  # bytes of a request for forks: a reply and messages that were edited by hand
READING = "Start `clew view` without --read-only, on a store that can be written."
Page = Callable[[Keeper, Request], Any]


class Json(Response):
    """JSON in ASCII: lone surrogates, which are no UTF-8, travel as escapes."""

    media_type = "application/json"

    def render(self, content: object) -> bytes:
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode()


class Viewer:
    """What every request shares.

    Args:
        store: a path, or a store in memory.
        host: the address or name it is served at; requests for other names are refused.
        token: what a client must know; empty: nothing.
        readonly: write nothing, and fork nothing.
        load: gives the model of a reference, for forks; without it there are none.
        papers: the folder of the papers of a checkout, whose reports are shown too.
        verdicts: the words that a label's verdict may be, the best first.
    """

    def __init__(
        self,
        store: str | Path | Keeper,
        *,
        host: str = "127.0.0.1",
        token: str = "",
        readonly: bool = False,
        load: Callable[[str], Model] | None = None,
        papers: Path | None = None,
        verdicts: Sequence[str] = VERDICTS,
    ) -> None:
        self.verdicts = verdicts
        self.stores = Stores(store, readonly)
        self.host, self.token, self.papers = host, token, papers
        self.feed = Feed(lambda: self.stores.of("feed"))
        self.jobs = None if load is None or self.stores.readonly else Jobs(self.stores, load, self._tell)

    @property
    def searches(self) -> Path | None:
        """Where searches of ``clew evolve`` lie beside the store."""
        return None if self.stores.path == ":memory:" else beside(self.stores.path).parent / "evolve"

    def _tell(self, job: dict[str, Any]) -> None:
        self.feed.tell("job", job)

    def application(self) -> Starlette:
        """The viewer as an ASGI application; it closes what it opened when the server ends."""

        @asynccontextmanager
        async def life(app: Starlette) -> AsyncIterator[None]:
            try:
                yield
            finally:
                await self.feed.close()
                if self.jobs is not None:
                    await asyncio.to_thread(self.jobs.close)
                self.stores.close()

        return Starlette(
            routes=self._routes(),
            lifespan=life,
            middleware=[Middleware(Guard, host=self.host, token=self.token)],
            exception_handlers={
                ClewError: _explain,
                Unfinished: _wait,
                HTTPException: _plain_error,
                Exception: _unexpected,
            },
        )

    def _routes(self) -> list[Route]:
        def get(path: str, page: Page, use: str = "runs") -> Route:
            """A route that reads the store's connection for ``use``; pages of other uses do not wait for it."""

            def answer(request: Request) -> Response:
                searches = "text:" in request.query_params.get("q", "")
                made = self.stores.reading("search" if searches else use, lambda store: page(store, request))
                return made if isinstance(made, Response) else Json(made)

            return Route(path, answer, methods=["GET"])

        return [
            Route("/", lambda request: _file("index.html")),
            Route("/static/{name:path}", lambda request: _file(request.path_params["name"])),
            get("/api/store", self._about, "lists"),
            get("/api/runs", _listed(lists.runs), "lists"),
            get("/api/groups", _listed(lists.groups), "lists"),
            get("/api/overview", _overview, "find"),
            get("/api/export", _export, "find"),
            Route("/api/events", self._events),
            get("/api/run/{run}", lambda s, r: run_page.head(s, _run(s, r))),
            get("/api/run/{run}/calls", _calls),
            *(get(at, _of_files(page), "files") for at, page in addresses(self.stores.path, self.path).items()),
            get("/api/run/{run}/call/{seq:int}", _call),
            get("/api/run/{run}/outline", lambda s, r: outline(s, _run(s, r), _number(r, "start", 0)), "find"),
            get("/api/run/{run}/workings", lambda s, r: workings(s, _run(s, r)), "find"),
            get("/api/run/{run}/marks", lambda s, r: strip(s, _run(s, r), r.query_params.get("value", "")), "find"),
            get("/api/node/{key}/text", _text),
            get("/api/node/{key}/image/{at:int}", _image),
            get("/api/find", _find, "find"),
            get("/api/diff", lambda s, r: run_page.diff(s, *(resolve(s, r.query_params.get(x, "")) for x in "ab"))),
            get("/api/compare", _compare, "find"),
            get("/api/group/{group}", _group, "find"),
            get("/api/trainings", lambda s, r: training.trainings(s), "lists"),
            get("/api/training/{name}", lambda s, r: training.training(s, r.path_params["name"]), "lists"),
            get("/api/training/{name}/rows", _rows, "find"),
            get("/api/reports", self._reports, "lists"),
            get("/api/features", lambda s, r: feature_page.comparisons(s), "lists"),
            get("/api/features/{label}", lambda s, r: feature_page.comparison(s, r.path_params["label"]), "lists"),
            get("/api/feature/{label}/{latent}", lambda s, r: feature_page.feature(s, **r.path_params), "lists"),
            get("/api/early/{label}", lambda s, r: curve_page.curve(s, r.path_params["label"]), "lists"),
            get("/api/figure/{paper}/{name}", self._figure),
            get("/api/search/{name}/{figure}", self._search_figure),
            Route("/api/fork/command", self._command, methods=["POST"]),
            Route("/api/fork", self._fork, methods=["POST"]),
            Route("/api/jobs", lambda request: Json(self.jobs.list() if self.jobs else [])),
            Route("/api/jobs/{id}/stop", self._stop, methods=["POST"]),
            get("/api/run/{run}/labels", lambda s, r: labels_page.page(s, r.path_params["run"], self.verdicts)),
            Route("/api/label", self._label, methods=["POST"]),
        ]

    def _about(self, store: Keeper, request: Request) -> dict[str, Any]:
        try:
            number = version("clew")
        except PackageNotFoundError:
            number = ""
        can = {"readonly": self.stores.readonly, "can_fork": self.jobs is not None, "version": number}
        return lists.about(store) | can

    async def _events(self, request: Request) -> Response:
        return StreamingResponse(self.feed.listen(), media_type="text/event-stream")

    def _figure(self, store: Keeper, request: Request) -> Response:
        return _drawing(*reports.figure(self.papers, request.path_params["paper"], request.path_params["name"]))

    def _reports(self, store: Keeper, request: Request) -> list[dict[str, Any]]:
        return search_reports.cards(self.searches) + reports.reports(store, self.papers)

    def _search_figure(self, store: Keeper, request: Request) -> Response:
        path = request.path_params
        return _drawing(search_reports.figure(self.searches, path["name"], path["figure"]), "image/svg+xml")

    async def _fork_request(self, request: Request) -> ForkRequest:
        data = parsed(await body_of(request, BODY))
        return await asyncio.to_thread(ForkRequest.from_json, self.stores.of("runs"), data)

    async def _command(self, request: Request) -> Response:
        asked = await self._fork_request(request)
        return Json({"command": asked.command(self.path)})

    async def _fork(self, request: Request) -> Response:
        if self.jobs is None:
            return denied(403, "this viewer forks nothing", READING)
        asked = await self._fork_request(request)
        return Json(self.jobs.add(asked, asked.command(self.path)), 202)

    def _stop(self, request: Request) -> Response:
        if self.jobs is None:
            return denied(403, "this viewer forks nothing", READING)
        return Json(self.jobs.stop(request.path_params["id"]))

    async def _label(self, request: Request) -> Response:
        if self.stores.readonly:
            return denied(403, "this viewer writes nothing", READING)
        data = parsed(await body_of(request, labelling.BODY))
        told = await asyncio.to_thread(labelling.file, self.stores, data, self.verdicts)
        self.feed.tell("label", {"run": told["run"], "place": told["filed"]})
        with suppress(Unfinished):  # a list that is still being counted shows the label when it is there
            rows = await asyncio.to_thread(self.stores.reading, "lists", lambda s: lists.some(s, [told["run"]]))
            self.feed.tell("runs", {"rows": rows})
        return Json(told, 201)

    @property
    def path(self) -> str:
        """The store as a command line must name it; empty where it takes this one anyway."""
        return "" if self.stores.path == DEFAULT_STORE else self.stores.path


def _file(name: str) -> Response:
    body, kind = assets.static(name)
    return Response(body, media_type=kind, headers={"Cache-Control": "no-cache"})


def _drawing(body: bytes, kind: str) -> Response:
    """A picture, which may style itself and do nothing else."""
    policy = "default-src 'none'; style-src 'unsafe-inline'; sandbox"
    return Response(body, media_type=kind, headers={"Content-Security-Policy": policy})


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


def _of_files(page: Answer) -> Page:
    return lambda store, request: page(store, {**request.query_params, **request.path_params})


def _calls(store: Keeper, request: Request) -> dict[str, Any]:
    run = _run(store, request)
    start = _number(request, "start", 0)
    stop = _number(request, "stop", start + 100)
    return {"calls": transcript_page.calls(store, run, start, stop), "total": store.summary(run).calls}


def _call(store: Keeper, request: Request) -> dict[str, Any]:
    run, seq = _run(store, request), request.path_params["seq"]
    found = transcript_page.call(store, run, seq)
    if found is None:
        raise UnknownName(f"run {run} has no Call {seq}")
    return found


def _text(store: Keeper, request: Request) -> Response:
    """The whole of a message, or (``?call=RUN@SEQ``) of an observation, as plain text."""
    return PlainTextResponse(_message(store, request).text.encode("utf-8", "replace"))


def _message(store: Keeper, request: Request) -> Message:
    """The message that a request names by its node's key, or (``?call=RUN@SEQ``) an observation as one."""
    place, key = request.query_params.get("call", ""), request.path_params["key"]
    if not place:
        try:
            return store.node(bytes.fromhex(key)).message
        except ValueError:
            raise UnknownName(f"no node {key!r}") from None
    run, _, seq = place.rpartition("@")
    known = seq.isdecimal() and len(seq) < 10
    call = next(iter(store.calls(resolve(store, run), int(seq), int(seq) + 1)), None) if known else None
    if call is None:
        raise UnknownName(f"no Call {place}")
    return Message("tool", call.text, extra=call.extra)


def _image(store: Keeper, request: Request) -> Response:
    """An image of a message or of an observation, of a type that no browser runs anything of."""
    found = picture(_message(store, request), request.path_params["at"])
    return Response(
        found.body, media_type=found.kind, headers={"Content-Security-Policy": "default-src 'none'; sandbox"}
    )


def _find(store: Keeper, request: Request) -> dict[str, Any]:
    run = resolve(store, request.query_params.get("run", ""))
    words = request.query_params.get("text", "")
    return {"seq": transcript_page.find(store, run, words, _number(request, "from", 0))}


def _overview(store: Keeper, request: Request) -> dict[str, Any]:
    return overview.overview(store, request.query_params.get("q", ""), request.query_params.get("value") or "return")


def _export(store: Keeper, request: Request) -> Response:
    form = request.query_params.get("format", "jsonl")
    lines = overview.export(store, request.query_params.get("q", ""), form)
    kind = "text/csv; charset=utf-8" if form == "csv" else "application/jsonl"
    headers = {"Content-Disposition": f'attachment; filename="runs.{form}"'}
    return StreamingResponse((line.encode("utf-8", "replace") for line in lines), media_type=kind, headers=headers)


def _compare(store: Keeper, request: Request) -> dict[str, Any]:
    a, b = (request.query_params.get(name, "") for name in "ab")
    return compare.compare(store, a, b) if "b" in request.query_params else compare.choices(store)


def _group(store: Keeper, request: Request) -> dict[str, Any]:
    return graph.page(store, request.path_params["group"], request.query_params.get("method", ""))


def _rows(store: Keeper, request: Request) -> dict[str, Any]:
    return training.rows(store, request.path_params["name"], _number(request, "step", 0))


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


def _wait(request: Request, error: Exception) -> Response:
    """The work goes on with the next request for the same: work that nobody waits for any more ends by itself."""
    assert isinstance(error, Unfinished)
    return Json({"wait": error.what, "done": error.done, "total": error.total}, 202)


def _plain_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return Json({"error": str(error.detail), "remedy": "", "kind": "NotFound"}, error.status_code)


def _unexpected(request: Request, error: Exception) -> Response:
    return Json({"error": f"{type(error).__name__}: {error}", "remedy": "", "kind": type(error).__name__}, 500)
