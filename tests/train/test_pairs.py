"""Preference pairs: rows from what an audit filed, the loss by hand, and passes that resume to the bit."""

from __future__ import annotations

import hashlib
import json
import math
from functools import partial

import numpy as np
import pytest
import torch

from clew.core.errors import BadInput
from clew.core.records import Annotation, LossRow
from clew.fit.collate import Tokens
from clew.fit.trainer import Trainer
from clew.harness import Runner
from clew.models.local import small
from clew.train.losses import dpo
from clew.train.offline import Passes, fit
from clew.train.pairs import labelled_pairs, outcome_pairs, pair_rows
from clew.train.rows import reference
from clew.worlds.sums import Sums


def tokens(logp, ref, row, sets, roles, weights=None):
    logp = torch.tensor(logp, dtype=torch.float64, requires_grad=True)
    weights = torch.ones_like(logp) if weights is None else torch.tensor(weights, dtype=torch.float64)
    mask, ref = torch.ones(len(logp), dtype=torch.bool), torch.tensor(ref, dtype=torch.float64)
    return Tokens(logp, ref * 0, weights, mask, torch.tensor(row), len(roles), ref, None, {}, sets, roles)


def test_the_loss_by_hand():
    t = tokens([-1.0, -2.0, -0.5], [-1.5, -1.0, -0.5], [0, 1, 2], ("a",) * 3, ("rejected", "chosen", "chosen"))
    total, count = dpo(t, beta=0.5)
    margins = [0.5 * (-1.0 - 0.5), 0.5 * (0.0 - 0.5)]
    assert total.item() == pytest.approx(sum(math.log(1 + math.exp(-m)) for m in margins))
    assert count.item() == 2
    total.backward()
    push = [0.5 / (1 + math.exp(m)) for m in margins]
    assert t.logp.grad.tolist() == pytest.approx([sum(push), -push[0], -push[1]])


def test_a_whole_sequence_is_the_sum_of_its_tokens():
    t = tokens([-1, -1, -2, -3], [-1, -2, -2, -1], [0, 0, 1, 1], ("s", "s"), ("chosen", "rejected"), [1, 1, 1, 0])
    assert dpo(t, beta=0.1)[0].item() == pytest.approx(math.log(1 + math.exp(-0.1 * 1)))


@pytest.mark.parametrize(
    ("sets", "roles", "told"),
    [(("a", "b"), ("rejected", "chosen"), "no rejected"), (("a", "a"), ("rejected", "rejected"), "two rejected")],
)
def test_sets_that_are_none_are_refused(sets, roles, told):
    with pytest.raises(BadInput, match=told):
        dpo(tokens([-1, -1], [-1, -1], [0, 1], sets, roles))
    with pytest.raises(BadInput, match="reference"):
        dpo(tokens([-1], [-1], [0], ("a",), ("rejected",))._replace(ref=None))


@pytest.fixture(scope="module")
def made():
    """Runs of a small model whose third token has two pairs, filed as an audit would."""
    taskset = Sums(low=2, high=3)
    model = small(taskset.vocabulary(), 16, 1, 2, 1, context=64, steady=True)
    runner = Runner("clew.harness.agents:player", taskset, model, sampling={"max_tokens": 8})
    runs = list(runner.collect(taskset.sample(4), n=2).runs)
    for run in runs:
        call, ids = run.calls[1], run.reply(1).ids
        at = {"token": 2, "rejected": ids[call.head + 2], "kind": "uncertain"}
        items = [at | {"chosen": 7}, at | {"chosen": 9}]
        runner.store.annotate([Annotation("call", "cliff-pair", 2.0, run.id, 1, params="p1", data=json.dumps(items))])
    return model, runner, runs


def test_rows_count_one_token_and_append_none(made):
    _, _, runs = made
    rows = pair_rows(runs)
    assert [row.role for row in rows[:3]] == ["rejected", "chosen", "chosen"]
    assert len(rows) == 3 * len(runs)
    assert len({row.set for row in rows}) == len(runs)
    by_id = {run.id: run for run in runs}
    for row in rows:
        run = by_id[row.set.partition("@")[0]]
        path = [i for node in run.conversation() for i in node.ids]
        place = len(path) - len(run.reply(1).ids) + run.calls[1].head + 2
        assert row.ids[:-1].tolist() == path[:place]
        assert row.weights["cliff-dpo"].tolist() == [0.0] * place + [1.0]
        assert not row.sampled.any()
        assert (row.role == "rejected") == (row.ids[-1] == path[place]) or row.ids[-1] in (7, 9)
        assert row.source == [(place, (run.id, 1, 2))]
    ended = pair_rows(runs, eos=3)
    assert all(row.ids[-1] == 3 and row.weights["cliff-dpo"].sum() == 2 for row in ended)
    assert pair_rows(runs, kinds=("uncertain",))
    with pytest.raises(BadInput, match="of kind deterministic"):
        pair_rows(runs, kinds=("deterministic",))


def test_several_parameter_sets_are_named(made):
    _, runner, runs = made
    runner.store.annotate([Annotation("call", "other", 1.0, runs[0].id, 1, params=p, data="[]") for p in ("aa", "bb")])
    with pytest.raises(BadInput, match=r"(?s)2 sets of parameters.*aa, bb"):
        pair_rows(runs, "other")
    with pytest.raises(BadInput, match="no 'other' values"):
        pair_rows(runs, "other", params="a")


def test_the_cliff_token_loses_and_the_chosen_gain(made):
    model, _, runs = made
    rows = reference(pair_rows(runs), model)
    before = [row.ref[-1] for row in rows]
    trainer = Trainer(model, 1e-2, {"cliff-dpo": partial(dpo, beta=0.1)})
    for _, total, _ in fit(trainer, rows, Passes(epochs=3, batch=8)):
        assert total == 9
    after = [s[-1] for s in model.score([row.ids.tolist() for row in rows])]
    gap = np.array(after) - np.array(before)
    roles = np.array([row.role for row in rows])
    assert gap[roles == "chosen"].mean() > gap[roles == "rejected"].mean() + 0.1


def test_whole_runs_are_paired_within_their_group(made):
    _, runner, runs = made
    group = [runs[0], runs[1]]

    class Told(list):
        id = "g"

    for run, reward in zip(group, (1.0, 0.0), strict=True):
        runner.store.annotate([Annotation("run", "reward", reward, run.id, scope=run.id, version="9")])
    rows = outcome_pairs([Told(group)])
    assert [(row.role, row.set) for row in rows] == [("rejected", "g/0"), ("chosen", "g/0")]
    for row, run in zip(rows, group[::-1], strict=True):
        assert row.weights["dpo"].sum() == len(run.calls[1].logprobs)
    assert outcome_pairs([Told(group[:1])]) == []


def test_what_people_prefer_is_paired_and_the_preferred_gain(made):
    model, runner, runs = made
    one, other = runs[0], next(run for run in runs[1:] if run.reply(1).ids != runs[0].reply(1).ids)
    with pytest.raises(BadInput, match=r"order no two runs.*\n  Label more runs"):
        labelled_pairs([one, other])
    runner.store.label(one.id, by="ann", stars=5)
    runner.store.label(other.id, by="ann", stars=1)
    rows, pairs = labelled_pairs([one, other])
    same_task = one.task_id == other.task_id
    assert same_task
    assert [(row.role, row.set) for row in rows] == [("rejected", "label/0"), ("chosen", "label/0")]
    assert [row.weights["dpo"].sum() for row in rows] == [len(run.calls[1].logprobs) for run in (other, one)]
    assert pairs.found[0].by == ("ann",)
    start = reference(rows, model)
    before = [float((row.ref * row.weights["dpo"]).sum()) for row in start]
    for _ in fit(Trainer(model, 1e-2, {"dpo": partial(dpo, beta=0.1)}), start, Passes(epochs=3, batch=2)):
        pass
    after = [
        float((s * row.weights["dpo"][1:]).sum())
        for s, row in zip(model.score([r.ids.tolist() for r in rows]), rows, strict=True)
    ]
    assert after[1] - before[1] > after[0] - before[0] + 0.1
    runner.store.label(f"{one.id}@1", by="bob", verdict="bad")
    runner.store.label(f"{other.id}@1", by="bob", verdict="good")
    both, _ = labelled_pairs([one, other])
    reply = both[2:] if both[2].set == "label/1" else both[:2]
    assert [int(row.weights["dpo"].sum()) for row in reply] == [len(run.calls[1].logprobs) for run in (one, other)]


def plain_rows(n: int) -> list[LossRow]:
    rng = np.random.default_rng(0)
    rows = []
    for i in range(n):
        for role in ("rejected", "chosen"):
            ids = rng.integers(5, 20, 6).astype(np.int32)
            weight = np.zeros(6, np.float32)
            weight[-1] = 1
            rows.append(
                LossRow(ids, np.zeros(6, bool), {"dpo": weight}, np.full(6, np.nan, np.float32), set=str(i), role=role)
            )
    return rows


def weights(model) -> str:
    return hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.module.parameters())).hexdigest()


def train(folder, stop: int | None) -> str:
    model = small([f"w{i}" for i in range(20)], 16, 1, 2, 1, context=16, seed=1, steady=True)
    rows = reference(plain_rows(12), model)
    for done, _, _ in fit(
        Trainer(model, 1e-2, {"dpo": dpo}), rows, Passes(epochs=2, batch=6, checkpoint_every=2), folder
    ):
        if done == stop:
            break
    return weights(model)


def test_passes_resume_to_the_bit(tmp_path):
    whole = train(tmp_path / "whole", None)
    cut = train(tmp_path / "cut", 3)  # the last checkpoint is after step 2
    assert cut != whole
    assert train(tmp_path / "cut", None) == whole
    assert train(None, None) == whole


def test_another_set_of_rows_is_refused(tmp_path):
    train(tmp_path, 3)
    model = small([f"w{i}" for i in range(20)], 16, 1, 2, 1, context=16, seed=1, steady=True)
    trainer, rows = Trainer(model, 1e-2, {"dpo": dpo}), reference(plain_rows(11), model)
    steps = fit(trainer, rows, Passes(epochs=2, batch=6, checkpoint_every=2), tmp_path)
    with pytest.raises(BadInput, match="begun with other rows"):
        next(steps)


def test_sets_stay_together_and_every_pass_has_all():
    rows = plain_rows(10)
    for order in (Passes(epochs=2, batch=7).steps(rows), Passes(epochs=2, batch=1).steps(rows)):
        assert sorted(i for step in order for i in step) == sorted([*range(20)] * 2)
        assert all({i ^ 1 for i in step} == set(step) for step in order)
    rates = [Passes(warmup=0.2).rate(i, 20) for i in range(20)]
    assert rates[0] == 0.25
    assert max(rates) == 1
    assert rates[-1] < 0.02
