"""Loading weights by folder or hub name, with tokenizer and renderer. ``Local`` alone calls it; nothing stays here."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import torch
from torch import nn

from clew.core.errors import BadInput, UnknownName, need
from clew.core.protocols import Renderer
from clew.models.local.devices import placed, type_of
from clew.models.rendering import ChatTemplateRenderer, PieceRenderer, WordRenderer

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase as Tokenizer

REACHED = 10.0  # seconds in which a hub answers that can be used
SETTINGS = "clew.json"  # beside saved weights: how the renderer is rebuilt


def load(
    source: str, tokenizer: Tokenizer | None, dtype: torch.dtype | str, device: str | None
) -> tuple[nn.Module, Any, dict[str, Any]]:
    """The module, its tokenizer (None where there is none) and the settings that ``Local.save`` wrote beside it.

    dtype, device: see ``devices.placed``.

    Raises:
        UnknownName: no model there.
    """
    transformers = need("transformers", "local")
    folder = Path(source)
    if not folder.exists() and (source.startswith(("/", ".", "~")) or source.count("/") > 1):
        raise UnknownName(f"no model folder at {source}", remedy="Check the path; a folder has a config.json.")
    if folder.exists() and not (folder / "config.json").exists():
        raise UnknownName(f"{source} has no config.json", remedy="Give the folder that save or save_pretrained wrote.")
    try:
        kind = dtype if dtype == "auto" else type_of(dtype)
        module = placed(_fetched(transformers.AutoModelForCausalLM, source, dtype=kind), dtype, device)
    except (OSError, ValueError) as error:
        raise UnknownName(
            f"no causal language model {source!r}: {str(error).splitlines()[0]}",
            remedy="Give a folder, a hub name that is cached or reachable, or a registered name (clew models).",
        ) from error
    if tokenizer is None:
        try:
            tokenizer = _fetched(transformers.AutoTokenizer, source)
        except (OSError, ValueError, KeyError, UnknownName):
            tokenizer = None
    file = folder / SETTINGS
    return module, tokenizer, json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}


def _fetched(kind: Any, source: str, **options: Any) -> Any:
    """From the hub's files on this machine first, so that a cached model needs no network; without progress bars."""
    logs = need("transformers.utils.logging", "local")
    shown = logs.is_progress_bar_enabled()
    logs.disable_progress_bar()
    try:
        if Path(source).exists():
            return kind.from_pretrained(source, **options)
        try:
            # The folder: given a name, transformers asks the hub for some files even where it may use local ones only.
            made = kind.from_pretrained(_hub().snapshot_download(source, local_files_only=True), **options)
        except OSError:
            _reach_hub(source)
            return kind.from_pretrained(source, **options)
        for named in (made, getattr(made, "config", None)):
            for field in ("name_or_path", "_name_or_path"):
                if hasattr(named, field):
                    setattr(named, field, source)
        return made
    finally:
        if shown:
            logs.enable_progress_bar()


def _hub() -> Any:
    return need("huggingface_hub", "local")


def _reach_hub(source: str) -> None:
    """Ask the hub once, so that a name that is not on this machine is refused at once where there is no network.

    The hub's own client tries each of several files again and again, for a minute and a half.

    Raises:
        UnknownName: nothing answers there.
    """
    at = _hub().constants
    remedy = "Name a folder of weights or a registered name (`clew models`), or fetch it where there is a network."
    if at.HF_HUB_OFFLINE:
        raise UnknownName(f"{source!r} is not on this machine, and HF_HUB_OFFLINE is set", remedy=remedy)
    try:
        httpx.head(at.ENDPOINT, timeout=REACHED)
    except httpx.HTTPError as error:
        told = f"{source!r} is not on this machine, and {at.ENDPOINT} does not answer: {error}"
        raise UnknownName(told, remedy=remedy) from error


def renderer_of(
    settings: dict[str, Any], tokenizer: Tokenizer | None, template: Mapping[str, object] | None = None
) -> Renderer:
    """The renderer that the settings describe, else that of the tokenizer's chat template, with these variables.

    Raises:
        BadInput: neither is there, or variables are given where there is no chat template.
    """
    saved = settings.get("renderer", {})
    if template and (saved.get("kind") in ("words", "pieces") or tokenizer is None):
        raise BadInput("the model has no chat template, whose variables could be set", remedy="Leave out template.")
    if (kind := saved.get("kind")) in ("words", "pieces"):
        return PieceRenderer(saved["words"]) if kind == "pieces" else WordRenderer(saved["words"])
    if tokenizer is None:
        raise BadInput("no tokenizer was found", remedy="Pass tokenizer= or renderer=.")
    return ChatTemplateRenderer(tokenizer, saved.get("stop", ()), saved.get("template", {}) | dict(template or {}))
