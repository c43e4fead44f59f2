"""Taps: refused in one sentence by models without hidden states, kept with a fork by the names of their vectors."""

from __future__ import annotations

import asyncio
import json

import pytest

from clew.core.errors import BadInput
from clew.core.values import StopReason, Task
from clew.harness import Runner
from clew.models.fakes import Echo, Markov, Scripted
from clew.models.remote import Remote
from clew.models.taps.forms import form_of, forms_of, taps_of, vector_of
from clew.models.taps.tap import Tap

from .helpers import ask

SENTENCE = r"cannot read or change hidden states, and the request taps layer 3, 5\n"


@pytest.mark.parametrize(
    "model", [Echo(), Scripted(["x"]), Markov(), Remote("http://localhost:9/v1", "m")], ids=lambda m: type(m).__name__
)
def test_a_model_says_that_it_takes_no_taps(model):
    asked = ask("go", taps=(Tap(3, positions=(0, 1)), Tap(5, add=(0.5, -0.5))))
    with pytest.raises(BadInput, match=SENTENCE) as caught:
        asyncio.run(model.complete(asked))
    assert caught.value.message.startswith(model.ref)
    assert model.calls == 0


@pytest.mark.parametrize(
    ("fields", "match"),
    [
        ({"layer": -1}, "names no layer"),
        ({"layer": 0.5}, "names no layer"),
        ({"layer": 1, "add": (1.0,), "clamp": 1.0, "along": (1.0,)}, "add and clamp"),
        ({"layer": 1, "clamp": 1.0}, "along="),
        ({"layer": 1, "along": (1.0,)}, "along="),
        ({"layer": 1, "along": (1.0,), "read": (1.0, 2.0), "scale": 2.0}, "several widths"),
        ({"layer": 1, "along": (1.0,), "scale": float("nan")}, "no finite number"),
        ({"layer": 1, "add": (float("inf"),)}, "not finite"),
        ({"layer": 1, "add": ((1.0,), (2.0,))}, "several widths or shapes"),
        ({"layer": 1, "add": "loud"}, "no list of numbers"),
        ({"layer": 1, "positions": (1,), "patch": ((1.0,), (2.0,))}, "2 states into 1 positions"),
        ({"layer": 1, "positions": (1, 1), "add": (1.0,)}, "twice"),
        ({"layer": 1, "part": "middle"}, "'middle'"),
    ],
)
def test_a_tap_that_cannot_be_is_refused(fields, match):
    with pytest.raises(BadInput, match=match) as caught:
        Tap(**fields)
    assert caught.value.remedy


def test_a_tap_is_its_form_and_its_vectors():
    taps = (
        Tap(2, (1, -1), patch=((0.5, 1.0), (2.0, 3.0))),
        Tap(0, along=(1.0, 2.0), read=(3.0, 4.0), bias=0.5, clamp=0.0, part="reply"),
        Tap(1, along=[1.0, 2.0], scale=0.0),
        Tap(1),
    )
    blobs = {bytes.fromhex(v.name): v.data for tap in taps for v in tap.vectors}
    assert len(blobs) == 3
    forms = json.loads(json.dumps([form_of(tap) for tap in taps]))
    assert taps_of(forms, blobs.__getitem__) == taps
    assert hash(taps_of(forms, blobs.__getitem__)) == hash(taps)
    assert forms_of(forms) == [form_of(tap) for tap in taps] == forms_of(taps)
    assert Tap(1, add=(0.25,)) != Tap(1, add=(0.5,))
    with pytest.raises(BadInput, match="in a store"):
        taps_of(forms)
    for wrong in (b"", b"x" * 9, taps[0].vectors[0].data[:-1], b"\xff" * 12):
        with pytest.raises(BadInput, match="no vector"):
            vector_of(wrong)


def test_taps_are_kept_with_a_fork_and_reach_the_request_by_type():
    class Deep(Echo):
        async def complete(self, request):
            seen.append(request.taps)
            return await super().complete(request._replace(taps=()))

    seen: list[object] = []
    runner = Runner("clew.harness.agents:chatter", None, Deep())
    (run,) = runner.collect([Task("t", "hear me")], n=1).runs
    tap = Tap(2, positions=(1,), add=(0.25,))
    (fork,) = runner.fork(run, at=run.calls[1].seq, tap=tap)
    assert seen == [(), (tap,)]
    (kept,) = json.loads(fork.row.changes)["edits"]
    (vector,) = tap.vectors
    assert kept["value"] == [{"layer": 2, "positions": [1], "add": vector.name}]
    assert runner.store.blob(bytes.fromhex(vector.name)) == vector.data
    assert taps_of(kept["value"], runner.store.blob) == (tap,)
    assert fork.stop == StopReason.RETURNED
    for wrong in ("layer 3", {"depth": 1}, [3]):
        with pytest.raises(BadInput, match="is no tap"):
            runner.fork(run, at=0, tap=wrong)
