"""A transcript as a vector: the hidden state of a local model at one token of it, after one forward pass.

``clew.models.compose.router`` decides by it where a router was fitted with ``clew route fit --backbone``. It is kept
by reference: the path of a Hugging Face folder, and a digest of the files there. It loads torch and the weights once
they are needed, never decodes a token, never asks a hub, and must never read with other weights than it was fitted on.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from clew.core.errors import BadInput
from clew.core.keys import encode
from clew.core.sources import placed
from clew.core.values import F32

if TYPE_CHECKING:
    from clew.models.local.model import Local

READ = (".safetensors", ".bin", ".json", ".model", ".txt")  # files of a model's folder that its digest is of
LETTERS = 12  # characters for each token that may be read; of a longer text the middle is not even tokenized
LEAST, MOST = 2, 1 << 17  # tokens that are read of a transcript
WIDEST = (1 << 16) - 1  # numbers of a hidden state
PIECE = 1 << 22  # bytes hashed at once
KEPT = 64 << 20  # bytes of vectors that are remembered, so that one transcript passes once
BATCH = 32  # transcripts that pass together where many are read
Scales = Mapping[str, F32]


@dataclass(slots=True)
class _Held:
    """What a backbone has loaded, and the vectors of the last transcripts."""

    model: Any = None
    begin: tuple[int, ...] = ()
    lock: Any = field(default_factory=threading.RLock)
    seen: OrderedDict[bytes, F32] = field(default_factory=OrderedDict)


@dataclass(frozen=True, eq=False)
class Backbone:
    """Text to float32 [dim], of L2 norm 1: a constant, then the hidden state, of L2 norm 1 before the constant.

    Args:
        path: folder of a causal LM with its tokenizer, as ``save_pretrained`` writes it.
        digest: of its files, see ``digest_of``; ``Backbone.of`` finds it.
        width: numbers of the hidden state.
        layer: block counted from 0, whose output is read; "norm" is what the vocabulary head reads, "embed" what
            enters block 0.
        position: token of the transcript, from 0 or back from its end. -2 is that of TRINITY's router; the last token
            did worse there (spec of arXiv 2606.21228, 3.1).
        tokens: that are read at most; of a longer transcript, the first quarter of them and the last three.
        scales: offsets of singular values, float32 by the name of a weight, see ``clew.models.local.singular_scales``;
            they change the weights in memory alone.

    Raises:
        BadInput: a value without a meaning.
    """

    path: str
    digest: str
    width: int
    layer: int | str = "norm"
    position: int = -2
    tokens: int = 1024
    scales: Scales = field(default_factory=dict)
    _held: _Held = field(default_factory=_Held, init=False, repr=False)

    kind: ClassVar[str] = "states"
    centred: ClassVar[bool] = True  # hidden states of a model lie about a point far from 0
    slow: ClassVar[bool] = True

    def __post_init__(self) -> None:
        whole = (self.width, self.position, self.tokens)
        if any(isinstance(one, bool) or not isinstance(one, int) for one in whole):
            raise BadInput(f"a backbone of numbers {whole}", remedy="Give width, position and tokens as whole numbers.")
        if not 1 <= self.width <= WIDEST or not LEAST <= self.tokens <= MOST or abs(self.position) > MOST:
            raise BadInput(
                f"a backbone of width {self.width} over {self.tokens} tokens, read at {self.position}",
                remedy=f"Use a width up to {WIDEST:,} and {LEAST} to {MOST:,} tokens.",
            )
        block = isinstance(self.layer, int) and not isinstance(self.layer, bool) and self.layer >= 0
        if not block and self.layer not in ("norm", "embed"):
            raise BadInput(f"{self.layer!r:.40} is no layer", remedy="Give a block, counted from 0, or norm.")
        for name in ("path", "digest"):
            value = getattr(self, name)
            if not isinstance(value, str) or not 0 < len(value) < 4096:
                raise BadInput(f"a backbone has no {name}", remedy="Fit the router anew.")

    @classmethod
    def of(cls, folder: str | Path, layer: int | str = "norm", position: int = -2, tokens: int = 1024) -> Backbone:
        """The backbone of a folder as it is now. The weights are not loaded yet.

        Raises:
            BadInput: there is no model, it has no such layer, or a number has no meaning.
        """
        path = str(Path(placed(Path(folder).expanduser())).resolve())
        _there(path)
        width, layers = _sizes(path)
        if isinstance(layer, int) and not 0 <= layer < layers:
            raise BadInput(
                f"{folder} has no layer {layer}", remedy=f"Its blocks are 0 to {layers - 1}; norm is the last state."
            )
        return cls(path, digest_of(path), width, layer, position, tokens)

    @property
    def dim(self) -> int:
        """Length of a vector: the state and a constant."""
        return self.width + 1

    def said(self) -> dict[str, Any]:
        """What decides, as JSON: everything but where the folder lies."""
        made = {"digest": self.digest, "width": self.width, "layer": self.layer, "position": self.position}
        made["tokens"] = self.tokens
        if self.scales:
            numbers = [[name, hashlib.sha256(_bytes(one)).hexdigest()] for name, one in sorted(self.scales.items())]
            made["scales"] = numbers
        return made

    def check(self) -> None:
        """See that the folder is there and says what it said; no weights are loaded.

        Raises:
            BadInput: it was moved or changed.
        """
        path = placed(self.path)
        _there(path, self.path)
        if digest_of(path) != self.digest:
            raise BadInput(
                f"the backbone {path} was changed after the router was fitted",
                remedy="Put the files back that were there, or fit the router anew.",
            )

    def model(self) -> Local:
        """The model in memory, loaded once, with the scales in its weights; what else the first transcript does.

        Raises:
            BadInput: the folder is no model with a tokenizer. MissingExtra: torch or transformers is not installed.
        """
        held = self._held
        with held.lock:
            if held.model is None:
                from clew.models.local.model import Local
                from clew.models.rendering import WordRenderer

                made = Local(placed(self.path), renderer=WordRenderer(()), device="auto")  # nothing is ever rendered
                if made.tokenizer is None:
                    raise BadInput(f"{self.path} has no tokenizer", remedy="Save the tokenizer beside the weights.")
                if self.scales:
                    from clew.models.local.singular_scales import apply

                    apply(made.module, self.scales)
                    made.publish()
                whole: Any = made.tokenizer
                own = list(whole("")["input_ids"])[:1]
                held.begin = tuple(own) if own and own[0] == whole.bos_token_id else ()
                held.model = made
            found: Local = held.model
            return found

    def ids(self, text: str) -> tuple[int, ...]:
        """Token ids of a transcript, bounded; a beginning that the tokenizer puts before every text comes first.

        What looks like a special token in the text is split as other text is.
        """
        model = self.model()
        words: Any = model.tokenizer
        clean = encode(_ends(text, self.tokens * LETTERS)).decode("utf-8", "replace")
        found = list(words(clean, add_special_tokens=False, split_special_tokens=True, verbose=False)["input_ids"])
        most = max(1, min(self.tokens, model.context) - len(self._held.begin))
        body: Sequence[int] = _ends(found, most) or [words.unk_token_id or 0]
        return (*self._held.begin, *body)

    def place(self, count: int) -> int:
        """The position that is read of a row of so many tokens: in a shorter row, its nearest."""
        at = self.position + count if self.position < 0 else self.position
        return min(max(at, 0), count - 1)

    def __call__(self, text: str) -> F32:
        name, held = hashlib.blake2b(encode(text), digest_size=16).digest(), self._held
        with held.lock:  # one pass at a time: torch uses several threads for it
            if name in held.seen:
                held.seen.move_to_end(name)
                return held.seen[name].copy()
            ids = self.ids(text)
            (state,) = self.model().states([ids], [self.layer], [[self.place(len(ids))]])
            (vector,) = self._vectors(state[:, 0])
            self._keep(name, vector)
            made: F32 = vector.copy()
        return made

    def many(
        self,
        texts: Sequence[str],
        folder: Path | None = None,
        told: Callable[[int, int], None] = lambda done, all: None,
    ) -> F32:
        """Vectors of many transcripts, float32 [n, dim], read in batches; each text passes once.

        Args:
            folder: where the states are kept; a reading that was cut goes on there, and one that is whole is not made
                again. told: called after each batch with the transcripts that are read, and of how many.

        Raises:
            BadInput: the folder holds something else.
        """
        from clew.models.taps import read

        unique = list(dict.fromkeys(texts))
        rows = [self.ids(text) for text in unique]
        with _room(folder) as room:
            how: Any = {"folder": room, "dtype": "float32", "batch": BATCH, "advance": told}
            found = read(self.model(), rows, [self.layer], lambda source: [self.place(len(source.ids))], **how)
            vectors = self._vectors(found.take(self.layer))
        of = {text: i for i, text in enumerate(unique)}
        for text, vector in zip(unique, vectors, strict=True):
            self._keep(hashlib.blake2b(encode(text), digest_size=16).digest(), vector)
        made: F32 = vectors[[of[text] for text in texts]]
        return made

    def _vectors(self, states: F32) -> F32:
        """Hidden states [n, width] as vectors [n, dim]."""
        if states.shape[1] != self.width or not np.isfinite(states).all():
            raise BadInput(
                f"{self.path} gives states of {states.shape[1]} numbers, or such that are not finite",
                remedy=f"The router needs {self.width} finite numbers: fit it anew.",
            )
        length = np.linalg.norm(states.astype(np.float64), axis=1, keepdims=True)
        whole = np.concatenate([np.ones((len(states), 1)), states / np.maximum(length, 1e-30)], axis=1)
        found: F32 = (whole / np.linalg.norm(whole, axis=1, keepdims=True)).astype(np.float32)
        return found

    def _keep(self, name: bytes, vector: F32) -> None:
        held = self._held
        with held.lock:
            held.seen[name] = vector
            while len(held.seen) * self.dim * 4 > KEPT and len(held.seen) > 1:
                held.seen.popitem(last=False)


def digest_of(folder: str | Path) -> str:
    """32 hex digits that name what the files of a model's folder say: weights, configuration, tokenizer."""
    made = hashlib.blake2b(digest_size=16, person=b"clew.backbone.1")
    for file in sorted(Path(folder).iterdir()):
        if file.suffix not in READ or not file.is_file():
            continue
        made.update(f"{file.name}\0{file.stat().st_size}\0".encode())
        with file.open("rb") as opened:
            while piece := opened.read(PIECE):
                made.update(piece)
    return made.hexdigest()


def _there(path: str, said: str = "") -> None:
    if not os.path.isfile(os.path.join(path, "config.json")):
        told = f"the backbone is not at {path}" if said else f"{path} is no folder of a model: it has no config.json"
        moved = f"Put it back, say where it is (clew --moved {said}=NEW ...), or fit the router anew."
        raise BadInput(told, remedy=moved if said else "Name a folder that save_pretrained wrote.")


def _sizes(path: str) -> tuple[int, int]:
    """Width and number of blocks, as the configuration says."""
    try:
        said = json.loads(Path(path, "config.json").read_text(encoding="utf-8"))
        said = said.get("text_config") or said
        width = next(said[name] for name in ("hidden_size", "n_embd", "d_model") if name in said)
        layers = next(said[name] for name in ("num_hidden_layers", "n_layer", "num_layers") if name in said)
        return int(width), int(layers)
    except (OSError, ValueError, TypeError, AttributeError, StopIteration):
        remedy = "Name a folder of a causal language model."
        raise BadInput(f"{path}/config.json tells no width and number of layers", remedy=remedy) from None


def _ends(given: Any, most: int) -> Any:
    """A sequence, or its first quarter and its last three where it is longer than ``most``."""
    first = most // 4
    return given if len(given) <= most else given[:first] + given[len(given) - (most - first) :]


def _bytes(numbers: F32) -> bytes:
    return np.ascontiguousarray(numbers, dtype="<f4").tobytes()


@contextmanager
def _room(folder: Path | None) -> Iterator[Path]:
    if folder is not None:
        yield folder
        return
    with TemporaryDirectory() as made:
        yield Path(made)
