"""A snapshot of a module's weights in the form the fast forward wants: q, k, v fused, gate and up fused.

The engine computes with its own copy, so that a training step in another thread never shows up half done.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

FAMILIES = ("LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM")
TILE = 16  # rows of a matrix product in steady mode
PACKED = 1 << 17  # numbers in a matrix from which on oneDNN's layout is faster, at 1 to 64 rows
FIXED_ROPE = ("default", "linear", "llama3", "yarn")  # tables that do not depend on the length of the input


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of a decoder: heads, key-value heads, width of a head, layers, width, vocabulary."""

    heads: int
    kv: int
    dim: int
    layers: int
    width: int
    vocabulary: int

    @property
    def group(self) -> int:
        return self.heads // self.kv


@dataclass(frozen=True, slots=True)
class Layer:
    """One block. Matrices are [in, out].

    Folded in: the weights of the norm before a matrix, times the root of the width, so that a norm is one division;
    the softmax scale into q. The two halves of a head of q and k that a rotary position turns together lie side by
    side, as real and imaginary part; attention does not depend on the order within a head.
    """

    qkv: Tensor
    qkv_bias: Tensor | None
    head_norm: Tensor | None  # [heads + kv, dim]: weights of the norms of q and k
    out: Tensor
    out_bias: Tensor | None
    gate_up: Tensor
    gate_up_bias: Tensor | None
    down: Tensor
    down_bias: Tensor | None
    q: Tensor | None = None  # where qkv is packed and of the last layer: its parts
    kv: Tensor | None = None


@dataclass(frozen=True, slots=True)
class Weights:
    embed: Tensor
    layers: tuple[Layer, ...]
    norm: Tensor  # times the root of the width
    head: Tensor  # [vocabulary, width]
    head_bias: Tensor | None
    turn: Tensor  # complex [context, 1, dim / 2], the rotary positions
    eps: float


def unwrap(module: nn.Module) -> nn.Module:
    """The causal LM inside a PEFT wrapper, its adapters still in place; any other module as it is."""
    inner = getattr(module, "get_base_model", None)
    return inner() if callable(inner) and hasattr(module, "peft_config") else module


def text_config(module: nn.Module) -> Any:
    """The Hugging Face configuration of a causal LM's text part."""
    config: Any = module.config
    return config.get_text_config() if hasattr(config, "get_text_config") else config


def matrices(module: nn.Module) -> tuple[Tensor, Tensor]:
    """The embedding and the output matrix of a Hugging Face causal LM, [vocabulary, width] each."""
    model: Any = module
    return model.get_input_embeddings().weight, model.get_output_embeddings().weight


@torch.no_grad()
def weights_digest(module: nn.Module) -> str:
    """Hex name of a module's weights: of shapes and of at most 1,024 numbers from all over each tensor."""
    names = hashlib.blake2b(digest_size=8)
    for name, tensor in unwrap(module).state_dict().items():
        flat = tensor.detach().flatten()
        some = flat[:: max(1, len(flat) // 1024)][:1024].double().cpu().numpy()
        names.update(f"{name} {tuple(tensor.shape)}".encode() + some.tobytes())
    return names.hexdigest()


def shape_of(module: nn.Module) -> Shape | None:
    """Sizes of a module that the fast forward can run, else None."""
    model = unwrap(module)
    config: Any = getattr(model, "config", None)
    if type(model).__name__ not in FAMILIES or config.hidden_act not in ("silu", "swish"):
        return None
    rope = getattr(config, "rope_parameters", None) or {}
    windows = any(kind != "full_attention" for kind in getattr(config, "layer_types", None) or ())
    if type(model).__name__ == "MistralForCausalLM":
        windows = config.sliding_window is not None
    if windows or rope.get("rope_type", "default") not in FIXED_ROPE or rope.get("partial_rotary_factor", 1) != 1:
        return None
    dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    heads = config.num_attention_heads, config.num_key_value_heads, dim
    return Shape(*heads, config.num_hidden_layers, config.hidden_size, config.vocab_size)


@torch.inference_mode()
def read(module: nn.Module, shape: Shape, context: int) -> Weights:
    """Copy the weights of a Llama, Mistral, Qwen2 or Qwen3 module, adapters merged, and its rotary tables."""
    model: Any = unwrap(module)
    body, head = model.model, model.lm_head
    embed = _weight(body.embed_tokens).clone()
    tied = head.weight is body.embed_tokens.weight
    precise = embed[:1, None].float() if embed.dtype.itemsize < 4 else embed[:1, None]
    cos, sin = body.rotary_emb(precise, torch.arange(context, device=embed.device)[None])
    turn = torch.complex(cos[0], sin[0])[:, None, : shape.dim // 2].clone()
    layers = tuple(_layer(block, shape) for block in body.layers)
    norm, output = body.norm.weight * shape.width**0.5, embed if tied else _weight(head).clone()
    return Weights(embed, layers, norm, output, _bias(head), turn, model.config.rms_norm_eps)


def packs(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether oneDNN can keep matrices in its own layout, which halves the time of a product with a few rows."""
    mkldnn: Any = torch.backends.mkldnn
    own = mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    return bool(own) and device.type == "cpu" and dtype == torch.float32


@torch.inference_mode()
def packed(weights: Weights, shape: Shape) -> Weights:
    """The same weights with all larger matrices in oneDNN's layout, to be multiplied by ``times`` alone."""
    layers = [
        replace(layer, qkv=pack(layer.qkv), out=pack(layer.out), gate_up=pack(layer.gate_up), down=pack(layer.down))
        for layer in weights.layers
    ]
    qkv, cut = weights.layers[-1].qkv, shape.heads * shape.dim
    layers[-1] = replace(layers[-1], q=pack(qkv[:, :cut]), kv=pack(qkv[:, cut:]))
    return replace(weights, layers=tuple(layers), head=pack(weights.head.t()))


def pack(matrix: Tensor) -> Tensor:
    """A matrix [in, out] for ``times``: in oneDNN's layout where that is faster, as it is where there is none."""
    if not packs(matrix.device, matrix.dtype):
        return matrix
    if matrix.numel() < PACKED:
        return matrix.contiguous()
    return torch.ops.mkldnn._reorder_linear_weight(matrix.t().contiguous(), None)


def times(x: Tensor, matrix: Tensor, bias: Tensor | None = None) -> Tensor:
    """x [..., in] by a matrix [in, out], packed or not; x [n, in] where there is a bias."""
    if matrix.layout is torch.strided:
        return x @ matrix if bias is None else torch.addmm(bias, x, matrix)
    return torch.ops.mkldnn._linear_pointwise(x, matrix, bias, "none", [], "")


def plus(x: Tensor, a: Tensor, matrix: Tensor) -> Tensor:
    """x + a @ matrix; may change x."""
    if matrix.layout is torch.strided:
        return x.addmm_(a, matrix)
    return torch.ops.mkldnn._linear_pointwise.binary(a, x, matrix, None, "add")


def products(steady: bool) -> tuple[Callable[..., Tensor], Callable[[Tensor, Tensor, Tensor], Tensor]]:
    """``times`` and ``plus`` for x [n, in]; steady: a row has the same bits whatever rows are beside it.

    For that they take ``TILE`` rows at a time, each time alike: libraries of linear algebra choose their kernel, what
    each thread does, and so the order of a sum, by the number of rows.
    """
    return (_times_in_tiles, _plus_in_tiles) if steady else (times, plus)


def attended(mask: Tensor, queries: Tensor, keys: Tensor, values: Tensor, steady: bool) -> Tensor:
    """softmax(queries keys + mask) values for b rows: [b, group, dim], [b, dim, span], [b, span, dim], [b, 1, span].

    steady: a row has the same bits whatever rows are beside it. One alone is done twice, as a single product is divided
    among threads, and several are dealt out to them.
    """
    if steady and len(queries) == 1:
        mask, queries, keys, values = (one.expand(2, -1, -1) for one in (mask, queries, keys, values))
        return attended(mask, queries, keys, values, steady)[:1]
    return torch.bmm(torch.baddbmm(mask, queries, keys).softmax(-1), values)


def _times_in_tiles(x: Tensor, matrix: Tensor, bias: Tensor | None = None) -> Tensor:
    filled = _filled(x)
    out = x.new_empty(len(filled), matrix.shape[1])
    for part, into in zip(torch.split(filled, TILE), torch.split(out, TILE), strict=True):
        if bias is None:
            torch.mm(part, matrix, out=into)
        else:
            torch.addmm(bias, part, matrix, out=into)
    return out[: len(x)]


def _plus_in_tiles(x: Tensor, a: Tensor, matrix: Tensor) -> Tensor:
    filled = _filled(x)
    for part, add in zip(torch.split(filled, TILE), torch.split(_filled(a), TILE), strict=True):
        part.addmm_(add, matrix)
    return filled[: len(x)]


def _filled(x: Tensor) -> Tensor:
    """x [n, width] with rows of zeros up to a multiple of ``TILE``."""
    return F.pad(x, (0, 0, 0, -len(x) % TILE)) if len(x) % TILE else x


def _layer(block: Any, shape: Shape) -> Layer:
    attention, mlp = block.self_attn, block.mlp
    q, k, v = attention.q_proj, attention.k_proj, attention.v_proj
    qkv = torch.cat((_paired(_weight(q), shape.dim), _paired(_weight(k), shape.dim), _weight(v)))
    parts = [part for part in (_bias(q), _bias(k), _bias(v)) if part is not None]
    bias = torch.cat([*(_paired(part, shape.dim) for part in parts[:2]), parts[2]]) if parts else None
    scale, head_norm = shape.dim**-0.5, None
    if hasattr(attention, "q_norm"):
        root = shape.dim**0.5
        norms = attention.q_norm.weight * scale * root, attention.k_norm.weight * root
        sizes = zip(norms, (shape.heads, shape.kv), strict=True)
        head_norm = torch.cat([_paired(w, shape.dim).expand(n, -1) for w, n in sizes])
    else:
        qkv[: shape.heads * shape.dim] *= scale
        if bias is not None:
            bias[: shape.heads * shape.dim] *= scale
    gate_bias, up_bias = _bias(mlp.gate_proj), _bias(mlp.up_proj)
    gate_up = torch.cat((_weight(mlp.gate_proj), _weight(mlp.up_proj)))
    root = shape.width**0.5
    return Layer(
        qkv=(qkv * (block.input_layernorm.weight * root)).t().contiguous(), qkv_bias=bias, head_norm=head_norm,
        out=_weight(attention.o_proj).t().clone(), out_bias=_bias(attention.o_proj),
        gate_up=(gate_up * (block.post_attention_layernorm.weight * root)).t().contiguous(),
        gate_up_bias=None if gate_bias is None or up_bias is None else torch.cat((gate_bias, up_bias)),
        down=_weight(mlp.down_proj).t().clone(), down_bias=_bias(mlp.down_proj),
    )  # fmt: skip


def _paired(rows: Tensor, dim: int) -> Tensor:
    """Rows of heads in an order where i and i + dim / 2 are neighbours."""
    return rows.reshape(-1, 2, dim // 2, *rows.shape[1:]).transpose(1, 2).flatten(0, 2)


def _weight(linear: Any) -> Tensor:
    """The effective matrix of a linear layer: PEFT adapters in force are added to the base."""
    if not hasattr(linear, "get_delta_weight"):
        return linear.weight
    weight = linear.base_layer.weight
    if linear.disable_adapters or linear.merged:
        return weight
    for name in linear.active_adapters:
        if name in linear.lora_A:
            weight = weight + linear.get_delta_weight(name).to(weight.dtype)
    return weight


def _bias(linear: Any) -> Tensor | None:
    bias = getattr(getattr(linear, "base_layer", linear), "bias", None)
    return None if bias is None else bias.clone()
