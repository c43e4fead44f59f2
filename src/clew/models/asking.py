"""One question to a model outside a run."""

from __future__ import annotations

from typing import Any

from clew.core.keys import node_key, text_key
from clew.core.protocols import Model
from clew.core.records import Node, Request
from clew.core.values import Message


def request(model: Model, *texts: str, seed: int = 0, **fields: Any) -> Request:
    """A request of user messages, rendered as the model's renderer does."""
    renderer, nodes = model.renderer, list[Node]()
    for text in texts:
        message, prev = Message("user", text), nodes[-1] if nodes else None
        ids = renderer.delta(prev, True, message, ()) if renderer else None
        tokenizer = renderer.ref if renderer else ""
        key = node_key(prev.key if prev else b"", message, ids, tokenizer)
        text_id = text_key(prev.text_key if prev else b"", message)
        nodes.append(Node(key, prev.key if prev else b"", message, ids, tokenizer, text_id))
    head = renderer.head() if renderer else ()
    return Request(tuple(nodes), seed=seed, head=head, **fields)
