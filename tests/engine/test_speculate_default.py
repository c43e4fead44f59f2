"""An engine that is given a drafter and no lengths finds out what pays: counted in verified tokens, by a clock that the
counts drive."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from clew.models.engine.speculation.lengths import EVIDENCE, PROBE, Paying
from clew.models.engine.speculation.verification import Drafted
from clew.models.local import Local
from tests.engine.drafters import Stubborn, Twin
from tests.engine.helpers import WORDS, Talk, ask

Make = Callable[..., Local]


def counted(model: Local, price: float, rounds: int) -> tuple[Drafted, list[int]]:
    """Decode at least so many rounds; a round takes 1 s for each row, and a verified token ``price``.

    Also how many tokens had been verified after each request.
    """
    drafts = model.engine._batch.drafts
    assert drafts is not None
    assert isinstance(drafts._lengths, Paying)
    counts, verified = drafts.counts, []
    drafts._lengths._clock = lambda: counts.rounds + price * float(counts.proposed.sum())
    for i in range(10_000):
        if counts.rounds >= rounds:
            break
        ask(model, [Talk(model, "").say(WORDS[i % 40]).request(i, max_tokens=100)])
        verified.append(int(counts.proposed.sum()))
    return counts, verified


def test_a_drafter_that_is_always_wrong_is_tried_and_left(make: Make) -> None:
    model = make(dtype=torch.float64, draft=Stubborn(make().module.config.vocab_size))
    counts, _ = counted(model, 1.0, 1000)
    assert counts.rounds >= 1000
    # Two ways of drafting are tried at first, and again after 64, 128, 256, ... rounds: at most five more times.
    assert 4 * EVIDENCE <= counts.proposed.sum() <= 4 * EVIDENCE * 7
    assert counts.proposed.sum() < counts.rounds


def test_a_drafter_that_is_always_right_is_verified_whole(make: Make) -> None:
    plain = make(dtype=torch.float64)
    counts, verified = counted(make(dtype=torch.float64, draft=Twin(plain.module)), 0.1, 400)
    assert verified[-1] > 2 * counts.rounds  # of 4 proposed in each round; the rounds of the trials are among them
    assert counts.emitted > 2.5 * counts.rounds


def test_right_drafts_that_cost_more_than_they_bring_are_left(make: Make) -> None:
    plain = make(dtype=torch.float64)
    counts, _ = counted(make(dtype=torch.float64, draft=Twin(plain.module)), 3.0, 1000)
    assert counts.proposed.sum() < counts.rounds


@dataclasses.dataclass
class Machine:
    """Rounds of n rows, of which the policy is told the seconds and the tokens."""

    it: Paying
    counts: Drafted
    now: float = 0.0

    def round(self, n: int, chance: float, accepted: float, price: float) -> int:
        rows = np.arange(n)
        drafted = self.it.draft(rows)
        lengths = np.zeros(n, np.int64)
        if drafted:
            lengths = self.it.choose(rows, np.zeros(n, bool), np.full((n, 4), chance))
        self.counts.rounds += n
        self.counts.emitted += n + round(accepted * int(lengths.sum()))
        self.now += 1.0 + price * int(lengths.sum()) + 0.1 * drafted
        return int(lengths.sum())


@pytest.fixture
def machine() -> Machine:
    it, counts = Paying(4, clock=lambda: made.now), Drafted(4)
    it.watch(counts)
    made = Machine(it, counts)
    return made


def test_what_pays_with_one_row_is_not_what_pays_with_many(machine: Machine) -> None:
    def last(n: int, **how: Any) -> list[int]:
        return [machine.round(n, **how) for _ in range(3 * EVIDENCE + 20)][-20:]

    assert last(1, chance=0.9, accepted=0.9, price=0.1) == [4] * 20
    assert last(64, chance=0.9, accepted=0.9, price=0.1) == [0] * 20
    assert last(1, chance=0.9, accepted=0.9, price=0.1)[:1] == [4]  # as it was known


def test_only_likely_tokens_are_verified_where_the_others_are_a_loss(machine: Machine) -> None:
    for i in range(3 * EVIDENCE):
        machine.round(1, 0.9 if i % 2 else 0.1, 0.9 if i % 2 else 0.0, 0.5)
    found = [machine.round(1, 0.9 if i % 2 else 0.1, 0.9 if i % 2 else 0.0, 0.5) for i in range(20)]
    assert found == [0, 4] * 10


def test_a_drafter_that_comes_to_pay_is_found_again(machine: Machine) -> None:
    for _ in range(3 * EVIDENCE):
        machine.round(1, 0.9, 0.0, 0.2)
    assert machine.round(1, 0.9, 0.0, 0.2) == 0
    found = [machine.round(1, 0.9, 0.9, 0.2) for _ in range(PROBE + 2 * EVIDENCE)]
    assert found[:32] == [0] * 32
    assert found[-1] == 4


def test_one_slow_round_decides_nothing(machine: Machine) -> None:
    """Others are admitted between two rounds, or nothing runs for a while."""
    for _ in range(3 * EVIDENCE):
        machine.round(1, 0.9, 0.9, 0.1)
    assert machine.round(1, 0.9, 0.9, 0.1) == 4
    machine.now += 1000.0
    assert [machine.round(1, 0.9, 0.9, 0.1) for _ in range(10)] == [4] * 10
