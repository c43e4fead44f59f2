"""Local weights: any Hugging Face causal LM by path, name or module, and small ones, behind the one engine."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clew.core.errors import BadInput, MissingExtra, need
from clew.core.keys import value_digest
from clew.core.protocols import Done, Renderer
from clew.core.records import Request, Tapped
from clew.core.values import F32, Completion, Ranked
from clew.models.rendering import ChatTemplateRenderer, PieceRenderer, WordRenderer

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase as Tokenizer

try:
    import torch
    from torch import nn
except ImportError as missing:
    raise MissingExtra("torch is not installed", remedy='Run pip install "clew[local]".') from missing

from clew.models.engine.engine import Engine
from clew.models.engine.forwards.choosing import forward_of
from clew.models.engine.forwards.weights import shape_of, text_config, unwrap, weights_digest
from clew.models.engine.grammar import Grammars, Guide
from clew.models.engine.speculation.proposal import Drafter, Lengths
from clew.models.engine.stream import Stream
from clew.models.engine.taps.deep import Deep
from clew.models.local import devices, hidden_states, token_scores, weight_files
from clew.models.local.devices import placed
from clew.models.local.fetching import SETTINGS, load, renderer_of


class Local:
    """A causal LM in this process: a Model with ``Batches``, ``Streams``, ``Scores``, ``Ranks``, ``Tops``, ``Taps``.

    Args:
        source: folder or hub name of a Hugging Face model, or a module.
        tokenizer: Hugging Face tokenizer; found beside the weights where not given.
        renderer: turns messages into tokens; from the saved settings or the tokenizer's chat template where not given.
        ref: the name that rebuilds the model; the path where not given.
        dtype: of the weights when they are loaded, float32 where not given, in which training loses nothing; "auto":
            on a GPU the checkpoint's own, on a CPU float32. A module keeps its own where not given.
        device: "cpu", "cuda", or "auto" for cuda where there is one. Where not given a module stays where it is, and
            weights that are loaded go to cuda if there is one and they have 20 million parameters or more.
        steady: see Engine.
        template: variables of the chat template, such as ``{"enable_thinking": False}``.
        max_rows: most requests in a batch.
        max_waiting: requests that may wait beside these, see Engine; None: no limit.
        cache_bytes: most memory for cached keys and values, see Engine; where not given 2 GiB on a CPU, and half of
            what is free on a GPU once the weights are there.
        context: most tokens of prompt and reply; the model's own limit where not given.
        fast: None chooses; False takes the module's own forward, row by row.
        draft, lengths: see Engine.

    Attributes:
        vocabulary: how many tokens it has.
        module: the nn.Module, which a trainer changes in place, followed by ``publish``.
        version: of the weights the engine serves.
        weights_name: where ``ref`` is a folder, the content name of the weights that it held when this was made, by
            which a record's keys know the model wherever the folder lies. It is a digest of the configuration, and
            of shapes and at most 1,024 numbers from all over each tensor in memory (``weights_digest``): no file is
            read again for it. So folders that differ in few numbers of a large tensor can share a name. Training does
            not change it: trained weights are told by their version.

    Raises:
        UnknownName: no model there. MissingExtra: transformers is not installed. BadInput: no renderer can be made.
    """

    def __init__(
        self,
        source: str | Path | nn.Module,
        *,
        tokenizer: Tokenizer | None = None,
        renderer: Renderer | None = None,
        template: Mapping[str, object] | None = None,
        ref: str = "",
        dtype: torch.dtype | str | None = None,
        device: str | None = None,
        steady: bool = False,
        max_rows: int = 256,
        max_waiting: int | None = None,
        cache_bytes: int | None = None,
        context: int | None = None,
        fast: bool | None = None,
        draft: Drafter | None = None,
        lengths: Lengths | None = None,
    ) -> None:
        settings: dict[str, Any] = {}
        if isinstance(source, nn.Module):
            self.module: nn.Module = placed(source, dtype, device or str(next(source.parameters()).device))
        else:
            self.module, tokenizer, settings = load(str(source), tokenizer, dtype or torch.float32, device)
        self.module.eval()
        where = next(self.module.parameters()).device
        cache_bytes = devices.cache_bytes(where) if cache_bytes is None else cache_bytes
        self._how: dict[str, Any] = {"steady": steady, "max_rows": max_rows, "max_waiting": max_waiting}
        self._how |= {"cache_bytes": cache_bytes, "context": context, "fast": fast, "device": str(where)}
        self.tokenizer = tokenizer
        self.renderer: Renderer = renderer or renderer_of(settings, tokenizer, template)
        self.ref = ref or (str(source) if not isinstance(source, nn.Module) else f"module:{_digest(self.module)}")
        self.weights_name = _content_name(self.module) if Path(self.ref).is_dir() else ""
        self.renderings: dict[str, ChatTemplateRenderer] = {}  # under other variables of the template, see Templated
        self.version = 0
        self._config = text_config(self.module)
        self.vocabulary: int = self._config.vocab_size
        own = getattr(self._config, "max_position_embeddings", None) or 4096
        self.context = min(context or own, own)
        self._caches = shape_of(self.module) is not None  # of the usual form, whose cache can be copied
        if fast and not self._caches:
            raise BadInput(f"{type(self.module).__name__} has no fast forward", remedy="Leave out fast=True.")
        forward = forward_of(self.module, self.context, steady, fast)
        words: Any = tokenizer if tokenizer is not None else getattr(self.renderer, "tokenizer", None)
        fast_one = hasattr(words, "backend_tokenizer") and not isinstance(self.renderer, WordRenderer)
        grammars = Grammars(words, tuple(self.renderer.stop), forward.vocabulary) if fast_one else None
        room = {"max_rows": max_rows, "max_waiting": max_waiting, "cache_bytes": cache_bytes}
        how: Any = {"steady": steady, "grammars": grammars, "draft": draft, "lengths": lengths, **room}
        self.engine = Engine(forward, self.renderer, model=self.ref, **how)

    @property
    def fingerprint(self) -> str:
        """Tells weights apart that one path held at different times: a digest of some numbers of each parameter."""
        some = {name: p.detach().flatten()[:8].tolist() for name, p in self.module.named_parameters()}
        return value_digest(some).hex()

    async def complete(self, request: Request) -> Completion:
        """See Engine.complete."""
        return await self.engine.complete(request)

    def stream(self, request: Request) -> Stream:
        """See Engine.stream."""
        return self.engine.stream(request)

    def submit(self, requests: Sequence[Request], done: Done) -> None:
        """See Engine.submit."""
        self.engine.submit(requests, done)

    def seat(self, change: int) -> None:
        self.engine.seat(change)

    def release(self, run: str) -> None:
        self.engine.release(run)

    def guide(self, grammar: str) -> Guide:
        """See Engine.guide."""
        return self.engine.guide(grammar)

    def publish(self, version: int | None = None) -> int:
        """Serve the module's present weights as this version, or as the next; no cache of earlier ones is used."""
        self.version = self.version + 1 if version is None else version
        self.engine.load(self.version)
        return self.version

    def take(self, folder: str | Path) -> None:
        """Copy the weights of a folder into the module, to be served by ``publish``. See ``weight_files.copy_into``."""
        weight_files.copy_into(self.module, Path(folder))

    def close(self) -> None:
        self.engine.close()

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy in another process has the same weights, version and names; a drafter stays behind."""
        how = {**self._how, "tokenizer": self.tokenizer, "renderer": self.renderer, "ref": self.ref}
        return _copied, (self.module, how, self.weights_name, self.version)

    def weights(self) -> dict[str, torch.Tensor]:
        """What training changes, by name, on the CPU; a copy in another process takes it by ``take_weights``."""
        module = self.module
        return {name: p.detach().cpu() for name, p in module.named_parameters() if p.requires_grad}

    def take_weights(self, weights: Mapping[str, torch.Tensor], version: int) -> None:
        """Serve weights that another copy of this model gave, as that version.

        Raises:
            BadInput: the module has no parameter of some name, or one of another shape.
        """
        mine = dict(self.module.named_parameters())
        strange = [name for name, p in weights.items() if name not in mine or mine[name].shape != p.shape]
        if strange:
            told = f"{self.ref} has no parameter {strange[0]!r} of shape {tuple(weights[strange[0]].shape)}"
            raise BadInput(told, remedy="Start the workers again: they hold another model.")
        with torch.no_grad():
            for name, p in weights.items():
                mine[name].copy_(p)
        self.publish(version)

    def score(self, ids: Sequence[Sequence[int]], temperature: float = 1.0) -> list[F32]:
        """Logprobs (nats, float32 [len(row) - 1]) of each row's tokens given those before, by the module's forward.

        What rows have in common at their beginning passes once where that is worth a pass of its own.

        Raises:
            BadInput: an empty row, a row longer than the context, or a temperature that is not above 0.
        """
        if temperature <= 0:
            raise BadInput(f"cannot score at temperature {temperature}", remedy="Give a temperature above 0.")
        self._fits(ids)
        return token_scores.score(self.module, ids, temperature, self._config.vocab_size, self._caches)

    def score_kept(
        self, ids: Sequence[Sequence[int]], temperature: float, kept: Sequence[Sequence[tuple[int, int, bytes]]]
    ) -> list[F32]:
        """What ``score`` says, and of the law over the tokens that truncation left where LossRow.kept has them.

        Raises:
            BadInput: as ``score``; or sets of ids that do not fit their span.
        """
        return token_scores.over_kept(self.module, ids, temperature, kept, self.score(ids, temperature))

    def ranked(self, ids: Sequence[Sequence[int]], k: int = 20) -> list[tuple[F32, tuple[Ranked, ...]]]:
        """What ``score`` says of each row at temperature 1, and the ``k`` likeliest tokens at the same places.

        Raises:
            BadInput: an empty row, or a row longer than the context.
        """
        self._fits(ids)
        return token_scores.ranked(self.module, ids, k)

    def top(self, ids: Sequence[Sequence[int]], k: int = 20) -> list[tuple[tuple[int, ...], F32]]:
        """The ``k`` likeliest next tokens after each row at temperature 1: ids, and logprobs (nats, float32 [k]).

        Raises:
            BadInput: an empty row, or a row longer than the context.
        """
        self._fits(ids)
        return token_scores.top(self.module, ids, k)

    def states(
        self,
        ids: Sequence[Sequence[int]],
        layers: Sequence[int | str],
        positions: Sequence[Sequence[int]] | None = None,
        taps: Sequence[Sequence[Tapped]] | None = None,
        prompts: Sequence[int] | None = None,
    ) -> list[F32]:
        """Hidden states behind blocks of the model, float32 [positions, layers, width] for each row of ids.

        A block's output is read before any norm, as ``hidden_states[layer + 1]`` of transformers is. What rows have in
        common at their beginning passes once. The weights are those that the engine serves.

        Args:
            ids: token ids of each row.
            layers: blocks, counted from 0; "embed" is what enters the first, "norm" what the head reads.
            positions: of each row, rising, from 0; all where not given. No token behind the last of them is computed.
            taps: of each row, what is written meanwhile.
            prompts: of each row, how many of its tokens are the prompt, which the positions of taps count from.

        Raises:
            BadInput: a row, layer, position or tap that cannot be; quantised weights.
        """
        found = hidden_states.numbered(layers, self._config.num_hidden_layers)
        self._fits(ids)
        forward = self.engine.reader()
        rows = hidden_states.rows_of(ids, positions, taps, prompts, forward)
        rising = sorted(set(found))
        read = hidden_states.fast_states if isinstance(forward, Deep) else hidden_states.module_states
        states = read(forward, rows, rising)  # type: ignore[arg-type]
        return states if rising == found else [state[:, [rising.index(n) for n in found]] for state in states]

    def _fits(self, ids: Sequence[Sequence[int]]) -> None:
        if any(not 1 <= len(row) <= self.context for row in ids):
            raise BadInput(
                f"cannot compute rows of {sorted({len(row) for row in ids})} tokens",
                remedy=f"Give 1 to {self.context} tokens a row.",
            )

    def digest(self) -> str:
        """Hex name of the weights, see ``weights_digest``."""
        return weights_digest(self.module)

    def save(self, path: str | Path) -> None:
        """Write a folder that ``Local(path)`` and ``from_pretrained`` load: weights, tokenizer, renderer settings."""
        module: Any = self.module
        if hasattr(module, "peft_config"):
            module = copy.deepcopy(module).merge_and_unload()
        folder = Path(path)
        module.save_pretrained(folder)
        tokenizer, renderer = self.tokenizer, self.renderer
        if tokenizer is None and isinstance(renderer, WordRenderer):
            tokenizer = renderer.tokenizer()
        if tokenizer is not None:
            tokenizer.save_pretrained(folder)
        if isinstance(renderer, (WordRenderer, ChatTemplateRenderer)):
            (folder / SETTINGS).write_text(json.dumps({"renderer": renderer.settings()}, indent=1), encoding="utf-8")


def small(
    words: Sequence[str],
    d: int = 64,
    layers: int = 2,
    heads: int = 4,
    kv_heads: int = 2,
    context: int = 512,
    seed: int = 0,
    ref: str = "",
    pieces: bool = False,
    **options: Any,
) -> Local:
    """An untrained Qwen3 of ``layers`` blocks of width ``d`` over a vocabulary of words; 0.1M parameters by default.

    Args:
        words: the vocabulary without special tokens, in any order.
        pieces: these are pieces of words, as ``rendering.pieces_of`` cuts a text.
        options: of Local.

    Raises:
        MissingExtra: transformers is not installed. BadInput: sizes that do not divide, or a word with a space in it.
    """
    if d % heads or heads % kv_heads or d // heads % 2:
        raise BadInput(
            f"d={d}, heads={heads}, kv_heads={kv_heads} do not fit",
            remedy="Let heads divide d into an even head size, and kv_heads divide heads.",
        )
    transformers = need("transformers", "local")
    renderer = PieceRenderer(words) if pieces else WordRenderer(words)
    end, start = renderer.words.index("<|end|>"), renderer.words.index("<|bos|>")
    sizes = {"vocab_size": len(renderer.words), "hidden_size": d, "intermediate_size": 3 * d, "head_dim": d // heads}
    sizes |= {"num_hidden_layers": layers, "num_attention_heads": heads, "num_key_value_heads": kv_heads}
    ids = {"bos_token_id": start, "eos_token_id": end, "pad_token_id": end}
    config = transformers.Qwen3Config(**sizes, **ids, max_position_embeddings=context, tie_word_embeddings=True)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        module = transformers.Qwen3ForCausalLM(config)
    return Local(module, renderer=renderer, ref=ref, **options)


def _copied(module: nn.Module, how: dict[str, Any], weights_name: str, version: int) -> Local:
    """What ``Local.__reduce__`` names: the model again, which the record knows as the same one."""
    model = Local(module, **how)
    model.weights_name = weights_name  # the folder of ``ref`` may not lie here
    model.publish(version)
    return model


def _digest(module: nn.Module) -> str:
    """Names a module by its architecture and sizes; weights are counted by version."""
    config: Any = getattr(unwrap(module), "config", None)
    return value_digest(json.loads(config.to_json_string())).hex()[:12] if config is not None else type(module).__name__


def _content_name(module: nn.Module) -> str:
    """See ``Local.weights_name``. What says by whom and how the configuration was written is no content."""
    config: Any = getattr(unwrap(module), "config", None)
    said = json.loads(config.to_json_string()) if config is not None else {}
    for name in ("_name_or_path", "architectures", "transformers_version", "dtype", "torch_dtype"):
        said.pop(name, None)
    return value_digest([weights_digest(module), said]).hex()


def opened(ref: str, *, api_key: object = None, keys: object = None, **options: Any) -> Local:
    """A folder or hub name of weights as a model, as ``clew.schemes`` opens it; ``weights:`` may stand before it.

    Raises:
        BadInput: an option that ``Local`` does not take, or as ``Local``.
    """
    source = ref.removeprefix("weights:")
    try:
        return Local(source, **options)
    except TypeError as error:
        remedy = "See clew.models.local.model.Local for options."
        raise BadInput(f"weights {source!r}: {error}", remedy=remedy) from error
