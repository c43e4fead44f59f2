"""Rows are gone over as often as asked, each once a pass, those of one run together."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from clew.core.errors import BadInput
from clew.core.records import LossRow
from clew.fit.schedules import check, factor
from clew.fit.trainer import StepReport
from clew.train.minibatches import cut, together


def rows(names: str) -> list[LossRow]:
    nothing = np.zeros(2, np.float32)
    return [LossRow(np.full(2, i), np.zeros(2, bool), {}, nothing, run=name.strip()) for i, name in enumerate(names)]


def number(row: LossRow) -> int:
    return int(row.ids[0])


def test_every_pass_holds_every_row_once_and_runs_stay_whole():
    made = rows("aabccca ")
    parts = cut(made, 3, 2, seed=1)
    assert len(parts) == 6
    for epoch in range(3):
        mine = parts[2 * epoch : 2 * epoch + 2]
        assert sorted(number(row) for part in mine for row in part) == list(range(8))
        assert not {row.run for row in mine[0] if row.run} & {row.run for row in mine[1] if row.run}
    assert len({tuple(number(row) for row in part) for part in parts}) > 2, "passes differ in their order"
    assert [[number(r) for r in p] for p in cut(made, 3, 2, seed=1)] == [[number(r) for r in p] for p in parts]
    assert [number(row) for row in cut(made, 1, 1, seed=1)[0]] == list(range(8))


def test_there_are_no_more_minibatches_than_runs():
    assert Counter(len(part) for part in cut(rows("aab"), 1, 9, seed=0)) == {2: 1, 1: 1}


def test_several_steps_make_one_report():
    def report(step: int, loss: float, gap: float | None) -> StepReport:
        ratio = {"mean": 1.0 + step, "min": 0.5 / step, "max": 1.0 * step}
        return StepReport(
            step=step, version=step, loss={"pg": loss}, grad_norm=loss, ratio=ratio, mismatch=gap, rows=2, tokens=5
        )

    first, second = report(1, 1.0, 1e-6), report(2, 3.0, None)
    assert together([first]) is first
    both = together([first, second])
    assert (both.step, both.version, both.loss, both.grad_norm) == (2, 2, {"pg": 2.0}, 2.0)
    assert (both.mismatch, both.rows, both.tokens) == (1e-6, 4, 10)
    assert both.ratio == {"mean": 2.5, "min": 0.25, "max": 2.0}


def test_schedules_by_hand():
    assert [factor("constant", i, 4) for i in range(4)] == [1, 1, 1, 1]
    assert [factor("linear", i, 6, 2) for i in range(6)] == [0.5, 1.0, 1.0, 0.75, 0.5, 0.25]
    assert [factor("cosine", i, 4) for i in range(4)] == pytest.approx([1, 0.853553, 0.5, 0.146447], abs=1e-6)
    check("cosine", 4, 3)
    for bad in (("cosine", 4, 4), ("wave", 4, 0), ("linear", 4, -1)):
        with pytest.raises(BadInput):
            check(*bad)
