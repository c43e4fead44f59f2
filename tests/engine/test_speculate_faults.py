"""What goes wrong in drafting: refused at once, or logged, and then plain decoding, exactly."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from clew.core.errors import BadInput
from clew.models.engine.speculation.costs import Costs
from clew.models.engine.speculation.lengths import Fixed, Scheduler
from clew.models.engine.speculation.proposal import Proposal
from clew.models.local import Local
from tests.engine.drafters import Blind, Twin, Witness
from tests.engine.helpers import WORDS, Talk, ask, sharpen

Make = Callable[..., Local]


class Failing(Blind):
    """Drafts well a few times, then goes wrong in one way; ``mend`` makes it well again."""

    def __init__(self, vocabulary: int, way: str, after: int = 2) -> None:
        super().__init__(vocabulary)
        self.way, self.after, self.asked = way, after, 0

    def mend(self) -> None:
        self.way = ""

    def extend(self, rows: Any, ids: Any, starts: Any, hidden: Any) -> None:
        if self.way == "extend" and self.asked > self.after:
            raise RuntimeError("no room")

    def propose(self, rows: Any, anchors: Any, positions: Any, laws: Any, u: Any) -> Proposal:
        tokens, logq, chance = super().propose(rows, anchors, positions, laws, u)
        self.asked += 1
        if self.asked > self.after:
            if self.way == "exception":
                raise RuntimeError("lost")
            tokens = tokens + 1000 if self.way == "tokens" else tokens
            logq = {"nan": logq * torch.nan, "vocabulary": logq[..., :-1], "unnormalised": logq + 0.1}.get(
                self.way, logq
            )
            chance = chance * torch.nan if self.way == "chance" else chance
        return Proposal(tokens, logq, chance)


class Wrong:
    """Lengths that cannot be."""

    def __init__(self, lengths: Any) -> None:
        self.lengths = lengths

    def draft(self, rows: Any) -> bool:
        return True

    def choose(self, rows: Any, fresh: Any, chance: Any) -> Any:
        return np.array(self.lengths)


@pytest.mark.parametrize("way", ["exception", "extend", "tokens", "nan", "vocabulary", "unnormalised", "chance"])
def test_a_fault_of_the_drafter_is_logged_and_what_runs_goes_on_plainly(
    make: Make, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    plain = make(dtype=torch.float64)
    drafter = Failing(plain.module.config.vocab_size, way)  # type: ignore[union-attr]
    model = make(dtype=torch.float64, draft=drafter, lengths=Fixed(3))
    talks = [Talk(model, f"r{i}").say(WORDS[i]) for i in range(3)]
    requests = [t.request(i, temperature=0.0, max_tokens=14) for i, t in enumerate(talks)]
    with caplog.at_level(logging.WARNING):
        found = ask(model, requests)
    assert [a.tokens for a in found] == [a.tokens for a in ask(plain, requests)]
    assert model.engine.drafted is not None
    assert model.engine.drafted.faults == 1
    assert sum("drafting failed" in r.message for r in caplog.records) == 1
    drafter.mend()
    before = int(model.engine.drafted.proposed.sum())
    assert [a.tokens for a in ask(model, requests)] == [a.tokens for a in ask(plain, requests)]
    assert model.engine.drafted.proposed.sum() > before  # the next batch drafts again
    assert model.engine.drafted.faults == 1


@pytest.mark.parametrize("lengths", [[9], [-1], [1, 1], [0.5]])
def test_a_policy_of_impossible_lengths_is_a_fault_too(
    make: Make, lengths: Any, caplog: pytest.LogCaptureFixture
) -> None:
    model = make(draft=Blind(make().module.config.vocab_size), lengths=Wrong(lengths))  # type: ignore[union-attr]
    assert len(ask(model, [Talk(model, "").say("w1").request(max_tokens=5)])[0].tokens or ()) >= 1
    assert "drafting failed" in caplog.text


def test_costs_of_another_block_end_in_a_logged_fault(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    """A table measured for blocks of 3, a drafter whose block is 4."""
    costs = Costs((1, 8), (1.0, 2.0), (1, 2), (1.0, 1.1), (0.1, 0.1), 3)
    model = make(draft=Blind(make().module.config.vocab_size), lengths=Scheduler(costs))  # type: ignore[union-attr]
    ask(model, [Talk(model, "").say("w1").request(max_tokens=8)])
    assert "measured for" in caplog.text


def test_after_a_fault_the_drafter_meets_no_row_it_did_not_see(make: Make) -> None:
    """Witness compares every row with the module's own computation whenever it drafts."""
    model = make(dtype=torch.float64)
    witness = Witness(model.module, (0,))
    model.engine._batch.attach(witness, Fixed(3))
    talk = Talk(model, "r").say("w1 w2 w3")
    talk.take(ask(model, [talk.request(1)])[0])
    good = witness.propose
    witness.propose = lambda *given: 1 / 0  # type: ignore[method-assign, assignment, return-value]
    talk.say("w4 w5")
    talk.take(ask(model, [talk.request(2)])[0])
    witness.propose = good  # type: ignore[method-assign]
    talk.say("w6")
    looked = witness.looked
    ask(model, [talk.request(3, max_tokens=12)])
    assert witness.looked > looked
    assert model.engine.drafted is not None
    assert model.engine.drafted.faults == 1


def test_what_cannot_work_is_refused_at_once(make: Make) -> None:
    vocabulary = make().module.config.vocab_size  # type: ignore[union-attr]
    with pytest.raises(BadInput, match="steady engine does not draft"):
        make(draft=Blind(vocabulary), steady=True)
    with pytest.raises(BadInput, match="tokens, the model"):
        make(draft=Blind(vocabulary + 1))
    for taps in ((1,), (0, 0), (-1,)):  # of two layers, of which the last cannot be read
        drafter = Blind(vocabulary)
        drafter.taps = taps
        with pytest.raises(BadInput, match="reads layers"):
            make(draft=drafter)
    with pytest.raises(BadInput, match="blocks of 65"):
        make(draft=Blind(vocabulary, 65))


def test_new_weights_leave_the_drafter_and_the_law_is_that_of_the_new(make: Make) -> None:
    model = make(dtype=torch.float64)
    model.engine._batch.attach(Twin(model.module), Fixed(4))
    talk = Talk(model, "r").say("w1 w2")
    ask(model, [talk.request(0)])
    sharpen(model.module, 9, 0.2)
    model.publish()
    plain = make(dtype=torch.float64)
    plain.module.load_state_dict(model.module.state_dict())
    plain.publish()
    request = talk.request(1, temperature=0.0, max_tokens=12)
    assert ask(model, [request])[0].tokens == ask(plain, [request])[0].tokens
    assert model.engine.drafted is not None
    assert model.engine.drafted.proposed.sum() > 0
