# ruff: noqa: PT018  (checks are plain functions, not tests)
"""Checks of images in messages and results: once in a file, through forks, merging, redaction, garbage collection."""

from __future__ import annotations

import json
from base64 import b64encode

from clew.core.keys import blob_key
from clew.core.records import Node
from clew.store.base import Keeper
from clew.store.contract.script import PICTURE, Factory, Script, fork_at, make_node
from clew.store.run import Run

BYTES = blob_key(bytes(range(256)) * 8)  # of the image in PICTURE
CALL_ONLY, NODE_ONLY = (
    json.dumps({"media": [{"type": "image", "data": b64encode(bytes([byte]) * 2000).decode()}]}) for byte in (3, 5)
)
ODD = (
    PICTURE + PICTURE,
    PICTURE.replace("media", "m\u00e9dia"),
    '"' + "A" * 1025 + '"',  # no length that base64 has
    '"' + "B" * 2047 + '="',  # bits that no bytes have
    '"' + "A" * 1024 + '==="',
    "no JSON " + "/" * 5000,
)


def seen(script: Script, text: str, extra: str) -> Node:
    """A tool's result with an image, the message that passes it on, and a reply."""
    script.act("look", text, extra=extra)
    told = make_node(script.tip, "tool", text, call_id="c", extra=extra)
    script.tip = make_node(told, "user", "and that?", extra=NODE_ONLY)
    script.store.put_nodes([told, script.tip])
    script.ask("and?", "I see")
    return told


def keeps_images(make: Factory) -> None:
    """An image comes back to the letter wherever it stands, whatever is around it, and goes when nothing has it."""
    store = make()
    script = Script(store, created=1.0)
    script.open("", extra=CALL_ONLY)
    told = seen(script, "[image]", PICTURE)
    script.end()
    odd = [make_node(told, "user", "", extra=extra) for extra in ODD]
    store.put_nodes(odd)
    forked = fork_at(store, Run(store, script.run), 3)
    forked.end()
    tip = script.tip.key if script.tip else b""
    plain = Script(store, created=2.0).play(1)
    for _ in range(2):
        assert [call.extra for call in store.calls(forked.run)] == [CALL_ONLY, PICTURE, "", ""]
        assert store.node(told.key) == told and [store.node(one.key) for one in odd] == odd
        assert store.thread(tip)[0] == told
        assert Run(store, script.run).view(2).extra == PICTURE
        store.commit()
    assert store.verify() == []
    assert store.blob_keys().count(BYTES) <= 1

    def kept(it: Keeper) -> bool:
        mine, theirs = ([(c.key, c.extra) for c in one.calls(script.run)] for one in (it, store))
        return mine == theirs and it.thread(tip) == store.thread(tip)

    other = make()
    other.merge(store)
    assert kept(other) and other.verify() == []
    assert not any(other.merge(store).values())
    other.tag(script.run, "keep")
    assert {*other.gc(dry_run=False).runs} == {plain.id, forked.run}
    assert kept(other) and other.verify() == []
    other.untag(script.run, "keep")
    assert other.gc(dry_run=False).runs and BYTES not in other.blob_keys() and not other.gc().blobs
    _redacted(store, script.run)


def _redacted(store: Keeper, run: str) -> None:
    """An image that is redacted is gone from results and messages, and its bytes from the store."""
    keys = [call.key for call in store.calls(run)]
    store.redact(f"{run}@1")
    assert [bool(call.extra) and not call.redacted for call in store.calls(run)] == [True] + [False] * (len(keys) - 1)
    path = [node.message.extra for node in store.thread(store.calls(run)[2].node_out)]
    assert "data" not in path[0] and path[1] == NODE_ONLY
    assert [call.key for call in store.calls(run)] == keys and store.verify() == []
