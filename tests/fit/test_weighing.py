"""What counts as one: the gradient of a run does not depend on how many rows its forks and compactions make."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch

from clew.core.errors import BadInput
from clew.core.records import LossRow
from clew.fit import weighing
from clew.fit.trainer import Trainer
from clew.train.losses import dpo, entropy, kl, pg, pg_sequence, sft

from .helpers import VOCABULARY, Served, logprobs

LOSSES = {
    "pg": pg,
    "pg-sequence": pg_sequence,
    "gspo": partial(pg_sequence, ratio="sequence"),
    "kl": kl,
    "entropy": entropy,
    "sft": sft,
}


def whole(net: torch.nn.Module, name: str, run: str, length: int, seed: int) -> LossRow:
    """A run as one row: sampled tokens with advantages (of ``sft`` weights) that differ from token to token."""
    rng = np.random.default_rng(seed)
    ids = rng.integers(3, VOCABULARY, length).astype(np.int32)
    sampled = rng.random(length) < 0.7
    sampled[[0, 1]] = False, True
    old = np.where(sampled, logprobs(net, ids), np.nan).astype(np.float32)
    weight = np.where(sampled, rng.random(length) + 0.1 if name == "sft" else rng.normal(size=length), 0)
    if name == "sft":
        sampled, old = np.zeros(length, bool), np.full(length, np.nan, np.float32)
    ref = logprobs(net, ids) + rng.normal(size=length).astype(np.float32) / 4
    return LossRow(ids, sampled, {name: weight.astype(np.float32)}, old, ref.astype(np.float32), run=run)


def cut(row: LossRow, parts: int) -> list[LossRow]:
    """The same run as rows of a context that grows: each row trains what the rows before it have not."""
    out, start = [], 0
    for stop in np.linspace(0, len(row.ids), parts + 1).astype(int)[1:]:
        here = np.zeros(stop, bool)
        here[start:] = True
        weights = {name: np.where(here, w[:stop], 0).astype(np.float32) for name, w in row.weights.items()}
        old = np.where(here, row.old[:stop], np.nan).astype(np.float32)
        assert row.ref is not None
        sampled = row.sampled[:stop] & here
        out.append(LossRow(row.ids[:stop], sampled, weights, old, row.ref[:stop], run=row.run))
        start = stop
    return out


def gradient(name: str, by: weighing.By | None, parts: int, tokens: int = 16_384) -> torch.Tensor:
    model = Served()
    runs = [whole(model.module, name, f"run{i}", length, i) for i, length in enumerate((36, 18, 27))]
    made = [*cut(runs[0], parts), *runs[1:]]
    Trainer(model, losses={name: LOSSES[name]}, weight_by=by, clip=None, batch_tokens=tokens).step(made)
    return torch.cat([p.grad.flatten() for p in model.module.parameters() if p.grad is not None])


@pytest.mark.parametrize("name", LOSSES)
def test_a_run_weighs_once_however_many_rows_it_makes(name):
    one = gradient(name, "run", 1)
    assert one.abs().max() > 1e-3
    for parts in (3, 9):
        assert (gradient(name, "run", parts) - one).abs().max() < 1e-6
        assert (gradient(name, "run", parts, tokens=40) - one).abs().max() < 1e-6  # its rows in several micro-batches


@pytest.mark.parametrize("name", LOSSES)
def test_weighed_by_row_it_weighs_as_often_as_it_was_cut(name):
    assert (gradient(name, "row", 9) - gradient(name, "row", 1)).abs().max() > 1e-3


def test_token_and_row_are_what_the_losses_do_by_themselves():
    for name, own in {"pg": "token", "kl": "token", "entropy": "token", "sft": "token", "pg-sequence": "row"}.items():
        assert (gradient(name, own, 3) - gradient(name, None, 3)).abs().max() < 1e-6
    assert (gradient("pg", "row", 3) - gradient("pg-sequence", None, 3)).abs().max() < 1e-6


def test_the_mean_over_runs_by_hand():
    model = Served()
    made = [whole(model.module, "pg", f"run{i}", length, i) for i, length in enumerate((30, 12))]
    told = Trainer(model, weight_by="run").step([*cut(made[0], 3), made[1]]).loss["pg"]
    means = [-row.weights["pg"][row.sampled].mean() for row in made]
    assert told == pytest.approx(np.mean(means), abs=1e-5)


def test_pairs_of_one_run_weigh_as_much_as_the_only_pair_of_another():
    model = Served()

    def pair(run: str, seed: int) -> list[LossRow]:
        rows = [whole(model.module, "dpo", run, 12, seed + i) for i in range(2)]
        for row, role in zip(rows, ("rejected", "chosen"), strict=True):
            row.set, row.role = f"{run}/{seed}", role
        return rows

    alone, three = pair("b", 50), [pair("a", seed) for seed in (10, 20, 30)]

    def loss(rows: list[LossRow], by: weighing.By | None) -> float:
        trainer = Trainer(Served(), losses={"dpo": partial(dpo, beta=1.0)}, weight_by=by)
        return trainer.step(rows).loss["dpo"]

    apart = [loss(rows, None) for rows in three]
    together = [row for rows in (*three, alone) for row in rows]
    assert loss(together, "run") == pytest.approx((np.mean(apart) + loss(alone, None)) / 2, abs=1e-5)
    assert loss(together, "row") == pytest.approx(np.mean([*apart, loss(alone, None)]), abs=1e-5)


def test_rows_that_name_no_run_are_one_each_and_empty_units_count_nothing():
    model = Served()
    rows = [whole(model.module, "pg", "", length, length) for length in (10, 14)]
    silent = LossRow(rows[0].ids, np.zeros(10, bool), {"sft": np.zeros(10, np.float32)}, rows[0].old, run="x")
    sizes = [int(row.sampled.sum()) for row in rows]
    assert weighing.shares(rows, "pg", "run").tolist() == pytest.approx([1 / n for n in sizes])
    assert weighing.shares([*rows, silent], "sft", "run", "weights").tolist() == [0, 0, 0]


def test_an_unknown_unit_is_refused():
    with pytest.raises(BadInput, match="weight_by='episode' is not known") as refused:
        Trainer(Served(), weight_by="episode")  # type: ignore[arg-type]
    assert "token, row, run" in str(refused.value)
