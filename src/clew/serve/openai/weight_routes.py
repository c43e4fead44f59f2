"""The routes by which a trainer gives a server new weights or adapters, with the names and answers of vLLM's.

``clew serve --weight-updates FOLDER`` adds them to a Server. A path that a client names must lie in that folder: they
are for the trainer alone, on this machine or behind a key.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import get_args

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from clew.models.dialects import Json
from clew.models.dialects.completions import LABEL
from clew.serve.incoming import parsed
from clew.serve.openai.served_adapters import Adapters
from clew.serve.openai.updatable import Mode, Updatable
from clew.serve.refusals import Body, Handler, Rejected

MOST = 1 << 20  # bytes of a body


class WeightRoutes:
    """Control of an Updatable model over HTTP.

    Args:
        folder: in which every folder of weights must lie.
    """

    def __init__(self, model: Updatable, folder: Path) -> None:
        self.model, self.folder = model, folder.resolve()
        self.adapters = Adapters(model, self._inside)
        self._updating = self._loaded = False

    @property
    def served(self) -> list[Updatable]:
        """The weights alone, and with each adapter."""
        return [self.model, *self.adapters.held]

    def admit(self, waits: bool = True) -> None:
        """Refuse a request that would have to wait for new weights; ``waits``: whether it can.

        Raises:
            Rejected: the server is paused, and not so that new requests wait.
        """
        if self.model.paused in ("abort", "wait") or (self.model.paused and not waits):
            told, remedy = "the server is paused for new weights", "Ask again after the time in Retry-After."
            raise Rejected(told, remedy=remedy, status=503, code="paused")

    def routes(self, checked: Callable[[Handler], Handler], body: Callable[[Request], Awaitable[bytes]]) -> list[Route]:
        """All of them; ``checked`` guards each, ``body`` reads a request's."""

        def post(path: str, does: Callable[[Json, Request], Awaitable[Json]]) -> Route:
            async def route(request: Request) -> Response:
                data = await body(request)
                return Body(await does(parsed(data) if data.strip() else {}, request))

            return Route(path, checked(route), methods=["POST"])

        def get(path: str, says: Callable[[], Json]) -> Route:
            async def route(request: Request) -> Response:
                return Body(says())

            return Route(path, checked(route))

        def told(path: str, does: Callable[[Json], Awaitable[str]], done: str) -> Route:
            """A route of vLLM's that answers with a sentence."""

            async def route(request: Request) -> Response:
                name = await does(parsed(await body(request)))
                return PlainTextResponse(f"Success: LoRA adapter '{name}' {done} successfully.")

            return Route(path, checked(route), methods=["POST"])

        return [
            post("/pause", self._pause),
            post("/resume", self._resume),
            post("/abort_requests", self._abort),
            post("/init_weight_transfer_engine", self._init),
            post("/start_weight_update", self._start),
            post("/update_weights", self._update),
            post("/finish_weight_update", self._finish),
            post("/update_weight_version", self._label),
            post("/reset_prefix_cache", self._reset),
            told("/v1/load_lora_adapter", self._load, "added"),
            told("/v1/unload_lora_adapter", self.adapters.unload, "removed"),
            post("/load_lora_adapter", self._sglang_load),
            post("/unload_lora_adapter", self._sglang_unload),
            get("/is_paused", lambda: {"is_paused": bool(self.model.paused)}),
            get("/weight_info", lambda: {"weight_version": self.model.label}),
            get("/get_world_size", lambda: {"world_size": 1}),
        ]

    async def _pause(self, body: Json, request: Request) -> Json:
        mode = request.query_params.get("mode", "abort")
        if mode not in get_args(Mode):
            raise Rejected(f"mode is {mode[:60]!r}", remedy="Use keep, wait or abort.", param="mode")
        await asyncio.gather(*[one.pause(mode) for one in self.served])  # type: ignore[arg-type]
        return {"status": "paused"}

    async def _resume(self, body: Json, request: Request) -> Json:
        self._updating = self._loaded = False
        for one in self.served:
            one.resume()
        return {"status": "resumed"}

    async def _abort(self, body: Json, request: Request) -> Json:
        names = body.get("request_ids") or []
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise Rejected("request_ids is no list of texts", remedy="Send the ids.", param="request_ids")
        return {"status": "aborted", "aborted": sum([await one.abort(names) for one in self.served])}

    async def _load(self, body: Json) -> str:
        if self._updating:
            raise Rejected("a weight update is under way", remedy="Finish it first.", status=409, code="updating")
        return await self.adapters.load(body)

    async def _sglang_load(self, body: Json, request: Request) -> Json:
        await self._load(body)
        return {"success": True, "error_message": "", "loaded_adapters": {n: n for n in self.adapters.names}}

    async def _sglang_unload(self, body: Json, request: Request) -> Json:
        await self.adapters.unload(body)
        return {"success": True, "error_message": "", "loaded_adapters": {n: n for n in self.adapters.names}}

    async def _init(self, body: Json, request: Request) -> Json:
        if not isinstance(body.get("init_info"), dict):
            raise Rejected("init_info is no object", remedy='Send {"init_info": {}}.', param="body.init_info")
        return {"message": "Weight transfer initialized"}

    async def _start(self, body: Json, request: Request) -> Json:
        if self._updating:
            raise Rejected("a weight update is under way", remedy="Finish it first.", status=409, code="updating")
        self._updating, self._loaded = True, False
        return {"message": "Weight update started"}

    async def _update(self, body: Json, request: Request) -> Json:
        self._under_way()
        info = body.get("update_info")
        path = info.get("path") if isinstance(info, dict) else None
        if not isinstance(path, str):
            told = "update_info has no path"
            raise Rejected(told, remedy='Send {"update_info": {"path": FOLDER}}.', param="body.update_info")
        await self.model.take(self._inside(path, "body.update_info"))
        self._loaded = True
        return {"message": "Weights updated"}

    async def _finish(self, body: Json, request: Request) -> Json:
        self._under_way()
        label = body.get("weight_version")
        if label is not None:
            label = _labelled(label, "body.weight_version")
        if self._loaded:
            self.model.publish(label)
        self._updating = self._loaded = False
        return {"message": "Weight update finished"}

    async def _label(self, body: Json, request: Request) -> Json:
        self.model.label = label = _labelled(body.get("new_version"), "body.new_version")
        return {"success": True, "new_version": label}

    async def _reset(self, body: Json, request: Request) -> Json:
        return {}  # nothing that earlier weights computed is ever used again

    def _under_way(self) -> None:
        if not self._updating:
            raise Rejected("no weight update is under way", remedy="Call /start_weight_update first.", code="updating")

    def _inside(self, path: str, param: str) -> Path:
        """The folder that a client names, where it lies in ours whatever links lead there.

        Raises:
            Rejected: it does not, or is none.
        """
        try:
            found = Path(path).resolve()
            inside = found.is_relative_to(self.folder) and found.is_dir()
        except (OSError, ValueError, RuntimeError):
            inside = False
        if not inside:
            told = f"{path[:200]!r} is no folder in that of --weight-updates"
            raise Rejected(told, remedy="Save the weights below it.", param=param, code="path")
        return found


def _labelled(label: object, param: str) -> str:
    if not isinstance(label, str) or len(label) > LABEL or not label.isprintable():
        told = f"{param.rpartition('.')[2]} is no text of at most {LABEL} characters"
        raise Rejected(told, remedy="Send a version such as the trainer's step.", param=param)
    return label
