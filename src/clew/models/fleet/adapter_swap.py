"""LoRA adapters at one inference server: each version gets a name of its own, requests name it, old ones are unloaded.

``Member`` holds a Swap. No reply is mixed and nothing is paused: a request that is under way keeps the adapter that it
named. A name must never come twice for different weights, because servers keep caches of prompts by name.
"""

from __future__ import annotations

import secrets
from contextlib import suppress
from pathlib import Path

from clew.core.errors import ModelError, Refused
from clew.core.keys import value_digest
from clew.models.dialects import Json
from clew.models.fleet.control import LOAD, UNLOAD, Control

SGLANG = "/load_lora_adapter", "/unload_lora_adapter"
MISSING = (
    "Start vLLM with --enable-lora and VLLM_ALLOW_RUNTIME_LORA_UPDATING=1, SGLang with --enable-lora, or `clew serve` "
    "with --weight-updates FOLDER."
)
MOST = 64  # adapters of earlier processes that are unloaded at once: a server may list any number


def training_of(folder: Path) -> str:
    """How the names of all adapters begin that lie beside this one, as those of one training do."""
    return f"clew-{value_digest(str(folder.resolve().parent)).hex()[:8]}-"


class Swap:
    """The adapters that a server holds for a fleet.

    Attributes:
        name: of the one that requests name now; empty before the first.
        version: of the weights that it is.
    """

    def __init__(self, control: Control) -> None:
        self.control, self.name, self.version = control, "", 0
        self.routes: tuple[str, str] | None = None
        self._own, self._loads = secrets.token_hex(4), 0
        self._under: dict[int, tuple[str, int]] = {}  # request under way -> adapter that its last attempt named
        self._old: set[str] = set()

    async def possible(self) -> bool:
        """Whether the server has routes for adapters, vLLM's or SGLang's.

        Raises:
            Unreachable: it does not answer.
        """
        if self.routes is None:
            for routes in ((LOAD, UNLOAD), SGLANG):
                if await self.control.there(routes[0]):
                    self.routes = routes
                    break
        return self.routes is not None

    async def load(self, folder: Path, version: int) -> None:
        """Let requests from now on name the adapter of this folder; those that nobody names any more are unloaded.

        Raises:
            Unreachable, Refused: the server has no such routes, or does not take it. The one before stays.
        """
        if not await self.possible():
            raise Refused(f"{self.control.endpoint.url} loads no LoRA adapters", remedy=MISSING)
        assert self.routes is not None
        self._loads += 1
        name = f"{training_of(folder)}{self._own}-{self._loads}-{version}"
        body: Json = {"lora_name": name, "lora_path": str(folder.resolve())}
        left = [one for one in await self.control.names() if one.startswith(training_of(folder))]
        await self.control.told(self.routes[0], body)
        self._old |= {*left[:MOST], self.name} - {name, ""}
        self.name, self.version = name, version
        await self.tidy()

    async def there(self) -> bool:
        """Whether the server lists the adapter that requests name, which it does not after a restart.

        Raises:
            ModelError: it does not say.
        """
        return self.name in await self.control.names()

    async def tidy(self) -> None:
        """Unload the adapters that no request under way names. What the server says of it is left alone."""
        named = {name for name, _ in self._under.values()}
        for name in [one for one in self._old if one not in named]:
            self._old.discard(name)
            if self.routes is not None:
                with suppress(ModelError):
                    await self.control.told(self.routes[1], {"lora_name": name})

    def fields(self, request: int) -> Json:
        """What names the adapter in the body of a request under way (its ``id``), of which this is an attempt."""
        if not self.name:
            return {}
        self._under[request] = self.name, self.version
        return {"lora_path": self.name} if self.routes == SGLANG else {"model": self.name}

    def used(self, request: int) -> tuple[str, int]:
        """The adapter that the last attempt of a request named and its version, forgotten with this; empty where none.

        The name is empty as well where answers do not say which adapter made them.
        """
        name, version = self._under.pop(request, ("", -1))
        return ("" if self.routes == SGLANG else name), version
