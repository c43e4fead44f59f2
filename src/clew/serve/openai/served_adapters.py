"""LoRA adapters of the served weights, each under a name of its own: loaded and unloaded while the server answers.

``WeightRoutes`` calls it for `clew serve --weight-updates`, with vLLM's and SGLang's routes, and ``Server`` asks it for
the model that a request names. A folder is a stranger's: it must lie where weights may lie, and only its safetensors
and the numbers of its configuration are read. A reply under way keeps the adapter that it began with.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable
from pathlib import Path

from clew.core.errors import BadInput
from clew.models.dialects import Json
from clew.models.dialects.completions import LABEL
from clew.serve.openai.updatable import Updatable
from clew.serve.refusals import Rejected

MOST = 8  # adapters at once: each is a copy of the weights with the adapter added


class Adapters:
    """The adapters of one model.

    Args:
        base: the weights that they are added to, as these are at that moment.
        inside: the folder that a client names, where weights may lie there.

    Attributes:
        reserved: names that no adapter may have.
    """

    def __init__(self, base: Updatable, inside: Callable[[str, str], Path]) -> None:
        self.base, self.reserved = base, tuple[str, ...]()
        self._inside = inside
        self._held: dict[str, Updatable] = {}
        self._coming: set[str] = set()
        self._closing: set[asyncio.Task[None]] = set()

    @property
    def names(self) -> list[str]:
        return list(self._held)

    @property
    def held(self) -> list[Updatable]:
        return list(self._held.values())

    def get(self, name: str) -> Updatable | None:
        """The model of a name; None where no adapter has it."""
        return self._held.get(name)

    async def load(self, body: Json) -> str:
        """Load ``lora_path`` as ``lora_name``; gives the name.

        Raises:
            Rejected: a wrong name or folder, a name that is taken (without ``load_inplace``), or too many of them.
        """
        name, path = _named(body), body.get("lora_path")
        if not isinstance(path, str):
            raise Rejected("lora_path is no text", remedy="Send the adapter's folder.", param="lora_path")
        if name in self.reserved:
            raise Rejected(f"{name!r} is the model's own name", remedy="Choose another.", param="lora_name")
        again = body.get("load_inplace") is True
        if name in self._coming or (name in self._held and not again):
            told = f"the LoRA adapter {name!r} has already been loaded"
            raise Rejected(told, remedy="Unload it first, or send load_inplace: true.", param="lora_name")
        if len(self._held | dict.fromkeys(self._coming)) >= MOST and name not in self._held:
            told = f"{len(self._held)} LoRA adapters are loaded or coming, the most here"
            raise Rejected(told, remedy="Unload one first.", param="lora_name", code="adapters_full")
        folder = self._inside(path, "lora_path")
        self._coming.add(name)
        try:
            made = await asyncio.to_thread(self._made, folder, name)
        finally:
            self._coming.discard(name)
        if (old := self._held.get(name)) is not None:
            self._close(old)
        self._held[name] = made
        return name

    async def unload(self, body: Json) -> str:
        """Take no more requests for ``lora_name``; its memory is free when its last reply has ended. Gives the name.

        Raises:
            Rejected: there is no such adapter.
        """
        name = _named(body)
        if name not in self._held:
            told = f"the LoRA adapter {name!r} is not loaded"
            raise Rejected(
                told, status=404, code="not_found", param="lora_name", remedy="/v1/models lists those that are."
            )
        self._close(self._held.pop(name))
        return name

    def _made(self, folder: Path, name: str) -> Updatable:
        """The weights with this adapter, as a model beside the served one."""
        from clew.fit import adapter_files  # PyTorch comes with it, which a server over an endpoint does without

        model = copy.deepcopy(self.base.local)
        try:
            adapter_files.begin(model.module, folder)
            model.publish(model.version)
        except BadInput:
            model.close()
            raise
        except (KeyError, RuntimeError, ValueError, TypeError, AttributeError) as error:
            model.close()
            told = f"the adapter in {folder} cannot be loaded: {type(error).__name__}"
            raise Rejected(told, remedy="Save it with peft's save_pretrained.", param="lora_path") from None
        made = Updatable(model)
        made.label = name
        made.paused = self.base.paused
        return made

    def _close(self, model: Updatable) -> None:
        async def close() -> None:
            await model.idle()
            await asyncio.to_thread(model.local.close)

        task = asyncio.ensure_future(close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


def _named(body: Json) -> str:
    name = body.get("lora_name")
    if not isinstance(name, str) or not name or len(name) > LABEL or not name.isprintable():
        told = f"lora_name is no text of 1 to {LABEL} characters"
        raise Rejected(told, remedy="Send the name that requests are to ask for.", param="lora_name")
    return name
