"""The contract of models: all of ours keep it, and it finds the faults that are planted here."""

from __future__ import annotations

import numpy as np
import pytest

from clew.core.values import Completion, Message
from clew.models.asking import request
from clew.models.contract import check_model
from clew.models.fakes import Echo, Markov, Scripted
from clew.models.remote import Remote

from .server import chat, chunks, serving


@pytest.mark.parametrize("model", [Echo(), Scripted({"": "well"}), Markov(), Markov(tokens=True)], ids=lambda m: m.ref)
def test_fakes_keep_the_contract(model):
    assert "check_seeds" in check_model(model)


def test_remote_keeps_the_contract():
    with serving() as peer:
        peer.answer = lambda body, count: chunks("one ", "two") if body.get("stream") else chat("one two")
        assert "check_streams" in check_model(Remote(peer.url, "m"))


def test_local_weights_keep_the_contract():
    pytest.importorskip("torch", reason="did not run: torch is not installed")
    from clew.models.local import small

    model = small(["where", "is", "the", "cup", "go", "on"], d=16, layers=1, heads=2, kv_heads=1)
    try:
        checks = check_model(model, prompts=("where is the cup", "go on"))
    finally:
        model.close()
    assert {"check_tokens", "check_forced", "check_batches", "check_scores", "check_top"} <= set(checks)


class Broken(Markov):
    def __init__(self, fault):
        super().__init__(tokens=True)
        self.fault, self.turn = fault, 0

    async def complete(self, request):
        self.turn += 1
        return self.fault(await super().complete(request), self)


FAULTS = {
    "gave a str": lambda done, model: done.message.text,
    "has role 'user'": lambda done, model: done._replace(message=Message("user", "x")),
    "finish 'eos'": lambda done, model: done._replace(finish="eos"),
    "version 7 answered": lambda done, model: done._replace(version=7),
    "float64": lambda done, model: done._replace(logprobs=done.logprobs.astype(np.float64)),
    "logprobs of": lambda done, model: done._replace(logprobs=np.zeros(99, np.float32)),
    "logprobs out of range": lambda done, model: done._replace(logprobs=done.logprobs + 9),
    "where 2 were allowed": lambda done, model: done._replace(
        tokens=(9,) * 3, logprobs=np.zeros(3, np.float32), entropies=None
    ),
    "and then": lambda done, model: done._replace(message=Message("assistant", str(model.turn))),
    "the ids stand for": lambda done, model: done._replace(message=Message("assistant", "fixed")),
    "no token ids": lambda done, model: Completion(Message("assistant", "fixed")),
}


@pytest.mark.parametrize("says", FAULTS)
def test_a_fault_is_found(says):
    with pytest.raises(AssertionError, match=says):
        check_model(Broken(FAULTS[says]))


def test_a_model_without_a_name_is_found():
    model = Echo()
    model.ref = ""
    with pytest.raises(AssertionError, match="ref is empty"):
        check_model(model)


def test_a_model_that_forgets_what_was_forced_is_found():
    class Forgetful(Markov):
        async def complete(self, request):
            return await super().complete(request._replace(forced=()))

    with pytest.raises(AssertionError, match="after 1 forced tokens"):
        check_model(Forgetful(tokens=True))


def test_requests_are_rendered():
    model = Markov(tokens=True)
    assert all(node.ids for node in request(model, "a", "b").path)
    assert all(node.ids is None for node in request(Echo(), "a").path)
