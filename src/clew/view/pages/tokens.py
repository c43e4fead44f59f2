"""The text of single tokens. The record keeps ids and the whole text; only tokenizers that load fast are loaded."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

from clew.core.errors import UnknownName
from clew.core.records import Call, Node

SHOWN = 20_000  # tokens of one reply at most
KINDS = ("h", "f", "s")  # head, forced, sampled


def tokens(call: Call, node: Node) -> list[list[Any]] | None:
    """[text or None, id, kind] of each token of a reply; None where it has no ids."""
    if node.ids is None:
        return None
    reply = node.ids[call.head :]
    said = _texts(node, reply, call.setup.model if call.setup else "")
    forced = call.head + call.forced
    texts = ["", *[""] * (call.head - 1), *said] if call.head else said
    return [
        [text, i, KINDS[(place >= call.head) + (place >= forced)]]
        for place, (text, i) in enumerate(zip(texts[:SHOWN], node.ids[:SHOWN], strict=True))
    ]


def _texts(node: Node, ids: tuple[int, ...], model: str) -> list[Any]:
    if node.tokenizer.startswith("words:"):
        words = node.message.text.split()
        if len(words) in (len(ids), len(ids) - 1):  # one id a word, and the end token, which says nothing
            return [*(word + " " for word in words), *[""] * (len(ids) - len(words))]
    word = decoder(node.tokenizer, model)
    return [word(i) for i in ids] if word else [None] * len(ids)


@lru_cache(maxsize=16)
def decoder(tokenizer: str, model: str) -> Callable[[int], str] | None:
    """A function from an id to its text, or None: of the bundled fake, or of the file beside local weights."""
    if tokenizer.startswith("words-"):
        from clew.models import load

        try:
            words: Any = getattr(load(model), "words", None) if model.startswith("markov") else None
        except UnknownName:  # a chain over a corpus of its own has no name that rebuilds it
            return None
        return (lambda i: words.decode([i])) if words is not None and words.ref == tokenizer else None
    try:
        file = Path(model).expanduser() / "tokenizer.json"
        if not file.is_file() or importlib.util.find_spec("tokenizers") is None:
            return None
        loaded = importlib.import_module("tokenizers").Tokenizer.from_file(str(file))
    except Exception:  # the library raises bare Exception for a file it cannot read
        return None
    return lambda i: loaded.decode([i], skip_special_tokens=False)
