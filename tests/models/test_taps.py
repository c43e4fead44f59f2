"""Hidden states that a request reads or changes: named by type, refused in one sentence until a model takes them."""

from __future__ import annotations

import asyncio
import json

import pytest

from clew.core.errors import BadInput
from clew.core.records import Tap
from clew.core.values import StopReason, Task
from clew.harness import Runner
from clew.models.fakes import Echo, Markov, Scripted
from clew.models.remote import Remote

from .helpers import ask

SENTENCE = r"cannot read or change hidden states yet, and the request taps layer 3, 5\n"


@pytest.mark.parametrize(
    "model", [Echo(), Scripted(["x"]), Markov(), Remote("http://localhost:9/v1", "m")], ids=lambda m: type(m).__name__
)
def test_a_model_says_that_it_takes_no_taps(model):
    asked = ask("go", taps=(Tap(3, positions=(0, 1)), Tap(5, add=(0.5, -0.5))))
    with pytest.raises(BadInput, match=SENTENCE) as caught:
        asyncio.run(model.complete(asked))
    assert caught.value.message.startswith(model.ref)
    assert model.calls == 0


def test_local_weights_say_so_too():
    pytest.importorskip("torch", reason="did not run: torch is not installed")
    from clew.models.local import small

    model = small(["go"], d=16, layers=1, heads=2, kv_heads=1)
    with pytest.raises(BadInput, match=SENTENCE):
        asyncio.run(model.complete(ask("go", renderer=model.renderer, taps=(Tap(3), Tap(5)))))
    model.close()


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
    assert kept["value"] == [{"layer": 2, "positions": [1], "add": [0.25]}]
    assert Tap.several(kept["value"]) == (tap,)
    assert fork.stop == StopReason.RETURNED
    for wrong in ("layer 3", {"depth": 1}, [3]):
        with pytest.raises(BadInput, match="is no tap"):
            runner.fork(run, at=0, tap=wrong)
