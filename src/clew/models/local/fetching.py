"""Loading weights by folder or hub name, with tokenizer and renderer; nothing stays here.

The folder is a stranger's: no code of its own is run, transformers never asks whether it may, and weights are read from
safetensors alone, since a pickle can run code as it is read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import torch
from torch import nn

from clew.core.errors import BadInput, UnknownName, need
from clew.core.printable import visible
from clew.core.protocols import Renderer
from clew.models.local.devices import placed, type_of
from clew.models.rendering import ChatTemplateRenderer, PieceRenderer, WordRenderer

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase as Tokenizer

REACHED = 10.0  # seconds in which a hub answers that can be used
SAFE: dict[str, Any] = {"trust_remote_code": False, "use_safetensors": True}  # of every model that is loaded
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")
CONFIGS = ("config.json", "tokenizer_config.json")
SETTINGS = "clew.json"  # beside saved weights: how the renderer is rebuilt


def load(
    source: str, tokenizer: Tokenizer | None, dtype: torch.dtype | str, device: str | None
) -> tuple[nn.Module, Any, dict[str, Any]]:
    """The module, its tokenizer (None where there is none) and the settings that ``Local.save`` wrote beside it.

    dtype, device: see ``devices.placed``.

    Raises:
        UnknownName: no model there. BadInput: it needs code of its own, or holds its weights as a pickle.
    """
    transformers = need("transformers", "local")
    folder = Path(source)
    if not folder.exists() and (source.startswith(("/", ".", "~")) or source.count("/") > 1):
        raise UnknownName(f"no model folder at {source}", remedy="Check the path; a folder has a config.json.")
    if folder.exists() and not (folder / "config.json").exists():
        raise UnknownName(f"{source} has no config.json", remedy="Give the folder that save or save_pretrained wrote.")
    try:
        kind = dtype if dtype == "auto" else type_of(dtype)
        module = placed(_fetched(transformers.AutoModelForCausalLM, source, **SAFE, dtype=kind), dtype, device)
    except (OSError, ValueError) as error:
        if "trust_remote_code" in str(error):
            raise _own_code(source, CONFIGS[0]) from None
        if "safetensors" in str(error):
            raise _pickled(source) from None
        raise UnknownName(
            f"no causal language model {source!r}: {str(error).splitlines()[0]}",
            remedy="Give a folder, a hub name that is cached or reachable, or a registered name (clew models).",
        ) from error
    if tokenizer is None:
        try:
            tokenizer = _fetched(transformers.AutoTokenizer, source, trust_remote_code=False)
        except (OSError, ValueError, KeyError, UnknownName):
            tokenizer = None
    file = folder / SETTINGS
    return module, tokenizer, json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}


def refuse_unsafe(folder: Path) -> None:
    """Refuse a model folder whose code or pickle would have to be trusted, before any library looks at it.

    Raises:
        BadInput: naming the file that asks for it.
    """
    mappings = need("transformers.models.auto.configuration_auto", "local").CONFIG_MAPPING
    said = _json(folder / CONFIGS[0])
    if "auto_map" in said and str(said.get("model_type")) not in mappings:
        raise _own_code(folder, CONFIGS[0])
    if "auto_map" in _json(folder / CONFIGS[1]) and not (folder / "tokenizer.json").exists():
        raise _own_code(folder, CONFIGS[1])
    if kernel := next((v for k, v in said.items() if k.endswith("_implementation") and "/" in str(v)), None):
        told = f"{folder} names code to be fetched ({CONFIGS[0]}: {visible(str(kernel))[:80]}), which is never run"
        raise BadInput(told, remedy="Take that line out of the file.")
    if not any(folder.glob("*.safetensors")) and any(any(folder.glob(kind)) for kind in PICKLES):
        raise _pickled(folder)


def _json(file: Path) -> dict[str, Any]:
    try:
        said = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return said if isinstance(said, dict) else {}


def _own_code(source: str | Path, file: str) -> BadInput:
    told = f"{source} needs Python code of its own (auto_map in {file}), which is never run"
    remedy = "Name a model that transformers knows by itself, or serve this one elsewhere and name its address."
    return BadInput(told, remedy=remedy)


def _pickled(source: str | Path) -> BadInput:
    told = f"{source} holds no safetensors, and a pickle of weights, which can run code, is never read"
    remedy = "Where you trust it, load it and call save_pretrained(FOLDER), which writes safetensors."
    return BadInput(told, remedy=remedy)


def _fetched(kind: Any, source: str, **options: Any) -> Any:
    """From the hub's files on this machine first, so that a cached model needs no network; without progress bars."""
    logs = need("transformers.utils.logging", "local")
    shown = logs.is_progress_bar_enabled()
    logs.disable_progress_bar()
    try:
        if Path(source).exists():
            refuse_unsafe(Path(source))
            return kind.from_pretrained(source, **options)
        try:
            # The folder: given a name, transformers asks the hub for some files even where it may use local ones only.
            folder = _hub().snapshot_download(source, local_files_only=True)
            refuse_unsafe(Path(folder))
            made = kind.from_pretrained(folder, **options)
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
