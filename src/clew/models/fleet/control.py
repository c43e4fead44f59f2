"""The routes by which a server of inference takes new weights, by vLLM's names; `clew serve` answers the same.

``Fleet`` calls it for each endpoint. It sends the name of a folder, never weights: both sides see the same files. An
endpoint whose update failed half done must stay paused, because nobody knows which weights it would answer with.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

from clew.core.errors import ModelError, Refused, Unreachable
from clew.core.records import Request, Wire
from clew.models.dialects import Json, chat
from clew.models.remote.endpoint import Endpoint
from clew.models.remote.failures import Failed, Failure

Mode = Literal["keep", "wait", "abort"]
How = Literal["path", "reload", "lora"]
LOAD, UNLOAD = "/v1/load_lora_adapter", "/v1/unload_lora_adapter"
GENERATE = "/inference/v1/generate"  # token ids in and out, and the sampler's mask
WAITING = 600.0  # seconds for one step of an update: `wait` lets replies under way end first
NO_ROUTES = (
    "Start vLLM with VLLM_SERVER_DEV_MODE=1, and `clew serve` with --weight-updates FOLDER, on an address that only "
    "the trainer reaches."
)


class _Route:
    """Of a control route: its path below the server's root, and the credential's header."""

    def __init__(self, path: str) -> None:
        self.PATH = path

    def headers(self, key: str | None) -> dict[str, str]:
        return chat.headers(key)


class Control:
    """The weight routes of one endpoint.

    Args:
        root: the server's URL without ``/v1``.
    """

    def __init__(self, root: str, api_key: str | Callable[[], str] | None, timeout: float = WAITING) -> None:
        self.endpoint = Endpoint(root, api_key, None, timeout, 8, None)

    async def post(self, path: str, body: Json | None = None, query: Mapping[str, str] | None = None) -> Json:
        """What a route answers.

        Raises:
            Unreachable: nothing does. Refused: the server has no such route, or will not do it.
        """
        said = await self.told(path, body, query)
        return self.endpoint.json(said) if said.strip() else {}

    async def told(self, path: str, body: Json | None = None, query: Mapping[str, str] | None = None) -> str:
        """The text that a route answers; vLLM's routes of adapters give a sentence. Raises what ``post`` raises."""
        asked = Request((), wire=Wire("weights", {}, {}, query or {}))
        try:
            here = await self.endpoint.here()
            return (await self.endpoint.post(here.client, _Route(path), body or {}, asked))[1]
        except Failed as failed:
            raise self._error(path, failed.failure) from None

    async def there(self, path: str) -> bool:
        """Whether a route is there, without a request that it would fulfil: those that are refuse an empty one.

        Raises:
            Unreachable: nothing answers.
        """
        try:
            await self.told(path)
        except Unreachable:
            raise
        except ModelError as error:
            return not any(f"{path} answered {status}" in error.message for status in (404, 405))
        return True

    async def get(self, path: str) -> Json:
        """What a route answers to GET. Raises what ``post`` raises."""
        try:
            status, said = await self.endpoint.get(path)
        except Failed as failed:
            raise self._error(path, failed.failure) from None
        if status != 200:
            raise self._error(path, Failure(status, said[:200], final=True))
        return self.endpoint.json(said)

    def _error(self, path: str, failure: Failure) -> ModelError:
        said = f": {failure.text}" if failure.text else ""
        if failure.status == 0:
            remedy = "Check that the server runs and that its URL is right."
            return Unreachable(f"no answer from {self.endpoint.url}{path}{said}", remedy=remedy)
        missing = failure.status in (404, 405)
        remedy = NO_ROUTES if missing else "The server's words are above; its log may say more."
        return Refused(f"{self.endpoint.url}{path} answered {failure.status}{said}", remedy=remedy)

    async def version(self) -> str:
        """The label of the weights that the endpoint serves; empty where it tells none."""
        return str((await self.get("/weight_info")).get("weight_version", ""))[:200]

    async def paused(self) -> bool:
        return (await self.get("/is_paused")).get("is_paused") is True

    async def names(self) -> list[str]:
        """The models that it serves."""
        listed = (await self.get("/v1/models")).get("data")
        rows = [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
        return [str(one["id"]) for one in rows if isinstance(one.get("id"), str)]

    async def owner(self) -> str:
        """What kind of server it is, as its list of models tells: ``clew``, ``vllm``, ``sglang``, or nothing."""
        listed = (await self.get("/v1/models")).get("data")
        first = listed[0] if isinstance(listed, list) and listed and isinstance(listed[0], dict) else {}
        return str(first.get("owned_by", "")).lower()

    async def abort(self, requests: list[str]) -> None:
        """Give up requests by their ids, wherever a proxy between would keep them running."""
        await self.post("/abort_requests", {"request_ids": requests})

    async def take(self, folder: Path, label: str, mode: Mode, how: How) -> None:
        """Pause, load the weights of a folder under this label, and resume.

        Args:
            mode: what becomes of replies under way: ``keep`` goes on with them under the new weights, ``wait`` lets
                them end first, ``abort`` ends them with what they have.
            how: ``path`` by the weight-transfer routes (`clew serve`), ``reload`` by vLLM's own loader. An adapter
                needs no pause, see ``adapter_swap``.

        Raises:
            Unreachable, Refused: a step failed. The endpoint stays paused where it may have loaded a part.
        """
        where = str(folder.resolve())
        await self.post("/pause", query={"mode": mode})
        try:
            if how == "path":
                await self.post("/init_weight_transfer_engine", {"init_info": {}})
                await self.post("/start_weight_update")
                await self.post("/update_weights", {"update_info": {"path": where}})
                await self.post("/finish_weight_update", {"weight_version": label})
            else:
                await self.post("/collective_rpc", {"method": "reload_weights", "kwargs": {"weights_path": where}})
                await self.post("/reset_prefix_cache")
                await self.post("/update_weight_version", {"new_version": label})
        except ModelError:
            if how == "path":  # `clew serve` checks a folder before it changes anything
                await self.post("/resume")
            raise
        await self.post("/resume")


def in_short(error: ModelError) -> str:
    """An error as one line of a note."""
    return json.dumps(error.message)[1:-1][:300]
