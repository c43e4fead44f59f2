"""A drafter on disk, as ``speculators`` and vLLM lay it out: config.json and model.safetensors.

What Clew adds stands under "clew" in config.json: the target's weights and tokenizer by digest, and how the drafter was
made. Layers are counted there from the embeddings (an output of layer i is state i + 1); ``Design.taps`` are layers.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from clew.core.errors import BadInput, UnknownName, need
from clew.core.keys import value_digest
from clew.models.drafters.eagle import Eagle
from clew.models.drafters.independent import Independent
from clew.models.drafters.layers import Design, Trained
from clew.models.drafters.parallel import DSpark
from clew.models.engine.forwards.weights import matrices, text_config, weights_digest
from clew.models.local.fetching import SAFE, refuse_unsafe

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

LAYOUT = "0.9.0"  # of ``speculators``, whose fields these are
# fields of the decoder's configuration, and of Design
DECODER = {"hidden_size": "width", "intermediate_size": "feed", "num_hidden_layers": "layers"}
DECODER |= {"vocab_size": "vocabulary", "num_attention_heads": "heads", "num_key_value_heads": "kv", "head_dim": "dim"}
DECODER |= {"rms_norm_eps": "eps", "max_position_embeddings": "context"}
BLOCKS = {"block_size": "block", "mask_token_id": "mask", "markov_rank": "rank", "markov_head_type": "head"}
BLOCKS["enable_confidence_head"] = "confidence"
LONGEST = 1 << 17  # positions of which a drafter holds the rotary tables


def tokenizer_digest(tokenizer: PreTrainedTokenizerBase | None) -> str:
    """Hex name of a tokenizer: of its tokens and their ids. Empty where there is none."""
    return "" if tokenizer is None else value_digest(sorted(tokenizer.get_vocab().items())).hex()[:16]


def design_for(module: nn.Module, *, kind: str = "dspark", mask: int, **asked: Any) -> Design:
    """A drafter's shape for a Hugging Face causal LM: the target's heads, five taps spread over its layers.

    Args:
        mask: a token id that text never holds; its frozen embedding stands for what is not known yet.
        asked: fields of Design that shall differ.
    """
    config = text_config(module)
    feed = getattr(config, "intermediate_size", None) or 4 * config.hidden_size
    count = config.num_hidden_layers
    if "taps" not in asked:
        asked["taps"] = () if kind == "independent" else spread(count)
    heads = config.num_attention_heads
    rope = getattr(config, "rope_parameters", None) or {}
    given: dict[str, Any] = {"width": config.hidden_size, "vocabulary": config.vocab_size, "heads": heads, "feed": feed}
    given |= {"kv": getattr(config, "num_key_value_heads", None) or heads, "eps": 1e-6}
    given |= {"dim": getattr(config, "head_dim", None) or config.hidden_size // heads}
    given |= {"context": min(config.max_position_embeddings, LONGEST), "theta": rope.get("rope_theta") or 10_000.0}
    given["layers"] = 1 if kind in ("eagle3", "independent") else 2
    if kind == "dspark":
        given |= {"rank": min(256, max(8, config.vocab_size // 4)), "confidence": True}
    return Design(kind=kind, mask=mask, **(given | asked))


def spread(layers: int) -> tuple[int, ...]:
    """At most five layers, evenly, the last excluded (2607.05147 takes 1, 9, 17, 25 and 33 of 36)."""
    if layers < 3:
        return tuple(range(layers - 1)) or _few(layers)
    first, last = (1, layers - 3) if layers >= 8 else (0, layers - 2)
    count = min(5, last - first + 1)
    return tuple(sorted({round(first + i * (last - first) / max(1, count - 1)) for i in range(count)}))


def _few(layers: int) -> tuple[int, ...]:
    raise BadInput(
        f"a target of {layers} layers has none to tap: its last is kept behind the final norm",
        remedy="Train an independent drafter (--kind independent).",
    )


def target_of(module: nn.Module, tokenizer: PreTrainedTokenizerBase | None = None, name: str = "") -> dict[str, Any]:
    """What a drafter is bound to: the target's name, architecture, digests, width and vocabulary."""
    config, digests = text_config(module), {"weights": weights_digest(module), "tokenizer": tokenizer_digest(tokenizer)}
    about = {"name": name, "architecture": type(module).__name__, **digests}
    return {**about, "width": config.hidden_size, "vocabulary": config.vocab_size}


def write(module: Trained, folder: Path, target: dict[str, Any], made: dict[str, Any] | None = None) -> None:
    """Fill a fresh folder with a drafter; an independent one is a plain Hugging Face model.

    Args:
        target: of ``target_of``. made: how the drafter was trained, kept for whoever reads it.
    """
    safetensors = need("safetensors.torch", "local")
    design: Design = module.design
    kept = {"target": target, "design": design.dict(), "made": made or {}}
    if isinstance(module, Independent):
        module.inner.save_pretrained(folder)
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    else:
        config = layout(design, target)
        tensors = {k: v.detach().cpu().contiguous() for k, v in module.state_dict().items()}
        safetensors.save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps({**config, "clew": kept}, indent=1), encoding="utf-8")


def layout(design: Design, target: dict[str, Any]) -> dict[str, Any]:
    """The fields of config.json that ``speculators`` defines. DFlash is its "dspark" of rank 0 without a confidence
    head: blocks begin at the anchor's own slot in both."""
    eagle = design.kind == "eagle3"
    kind, taps = "eagle3" if eagle else "dspark", [tap + 1 for tap in design.taps]
    decoder = {name: getattr(design, field) for name, field in DECODER.items()}
    decoder |= {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "hidden_act": "silu"}
    decoder |= {"rope_parameters": {"rope_type": "default", "rope_theta": design.theta}}
    decoder |= {"attention_bias": False, "tie_word_embeddings": False}
    own: dict[str, Any] = {"eagle_aux_hidden_state_layer_ids": taps, "norm_before_residual": False}
    if not eagle:
        own = {name: getattr(design, field) for name, field in BLOCKS.items()} | {"aux_hidden_state_layer_ids": taps}
        own |= {"sample_from_anchor": True, "sliding_window_non_causal": False}
        own |= {"confidence_head_with_markov": design.confidence and design.rank > 0}
    names = {"architectures": [f"{'Eagle3' if eagle else 'DSpark'}Speculator"], "speculators_model_type": kind}
    sizes = {"draft_vocab_size": design.vocabulary, "target_hidden_size": None, "dtype": "float32"}
    method = {"proposal_type": "greedy", "speculative_tokens": design.block, "verifier_accept_k": 1}
    verifier = {"name_or_path": target.get("name") or None, "architectures": [target["architecture"]]}
    how: dict[str, Any] = {"algorithm": kind, "default_proposal_method": "greedy", "verifier": verifier}
    how |= {"proposal_methods": [method | {"accept_tolerance": 0.0}]}
    about = {"speculators_version": LAYOUT, "tie_word_embeddings": False, "speculators_config": how}
    return {**names, **about, **sizes, "transformer_layer_config": decoder, **own}


def about(folder: str | Path) -> dict[str, Any]:
    """What stands under "clew" in a drafter's config.json: its target, its design, how it was made.

    Raises:
        UnknownName: no folder, or no config.json in it. BadInput: not a drafter that Clew wrote.
    """
    file = Path(folder) / "config.json"
    if not file.exists():
        raise UnknownName(f"no drafter at {folder}", remedy="Give the folder that `clew draft train` wrote.")
    kept = json.loads(file.read_text(encoding="utf-8")).get("clew")
    if kept is None or "design" not in kept:
        remedy = "Train it with `clew draft train MODEL`."
        raise BadInput(f"{folder} does not say which target it drafts for", remedy=remedy)
    found: dict[str, Any] = kept
    return found


def read(folder: str | Path, target: nn.Module, tokenizer: PreTrainedTokenizerBase | None = None) -> Trained:
    """The trained module of a drafter, for this target.

    Raises:
        UnknownName: no drafter there. BadInput: it was made for another tokenizer, vocabulary, width or weights.
    """
    refuse(folder, about(folder)["target"], target_of(target, tokenizer))
    return unchecked(folder, target)


def unchecked(folder: str | Path, target: nn.Module) -> Trained:
    """The trained module of a drafter, whatever weights its target had."""
    safetensors = need("safetensors.torch", "local")
    kept = about(folder)
    design = Design(**{**kept["design"], "taps": tuple(kept["design"]["taps"])})
    module = fresh(design, target)
    if isinstance(module, Independent):
        transformers = need("transformers", "local")
        refuse_unsafe(Path(folder))
        module.inner = transformers.AutoModelForCausalLM.from_pretrained(folder, **SAFE, dtype=torch.float32)
    else:
        module.load_state_dict(safetensors.load_file(Path(folder) / "model.safetensors"))
    return module.eval()


def refuse(folder: str | Path, made: dict[str, Any], have: dict[str, Any]) -> None:
    """Refuse a drafter that was made for another target.

    Raises:
        BadInput: naming what differs and both values.
    """
    for field in ("tokenizer", "vocabulary", "width", "weights"):
        if field == "tokenizer" and not (made[field] and have[field]):
            continue
        if made[field] != have[field]:
            raise BadInput(
                f"the drafter in {folder} was made for {field} {made[field]} (of {made['name'] or 'its target'}); "
                f"this target has {field} {have[field]}",
                remedy="Give the drafter of this target, or train one with `clew draft train`.",
            )


def fresh(design: Design, target: nn.Module) -> Trained:
    """An untrained module of this design for a Hugging Face causal LM."""
    embed, head = matrices(target)
    if design.kind in ("dspark", "dflash"):
        return DSpark(design, embed, head)
    if design.kind == "eagle3":
        return Eagle(design, embed, head)
    if design.kind == "independent":
        return Independent(design, head)
    raise BadInput(f"no drafter is of kind {design.kind!r}", remedy="Known: dspark, dflash, eagle3, independent.")
