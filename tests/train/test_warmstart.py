"""Pre-training: reproducible, cached by recipe, in the agent's own format."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from clew.core.errors import BadInput
from clew.core.registry import build
from clew.harness import Runner
from clew.harness.agents import player
from clew.models.rendering import WordRenderer
from clew.train import warmstart
from clew.train.rows import sft_rows
from clew.train.warmstart import Recipe, conversation, demonstrated, household_sft, pretrain, sampled_success
from clew.worlds.household import Household
from clew.worlds.tally import Tally

TINY = {"demonstrations": 24, "steps": 4, "batch": 4, "width": 16, "layers": 1, "heads": 2}


def weights(model):
    return [p.detach().clone() for p in model.module.parameters()]


def test_trained_once_then_read_from_the_cache(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    seen = []
    model = household_sft(progress=lambda *at: seen.append(at), **TINY)
    assert [(done, total) for done, total, _ in seen] == [(i, 4) for i in (1, 2, 3, 4)]
    folder = tmp_path / ".clew" / "models" / f"household-sft-{Recipe(**TINY).digest}"
    assert (folder / "config.json").exists()
    again = household_sft(progress=lambda *at: pytest.fail("trained again"), **TINY)
    assert all(torch.equal(a, b) for a, b in zip(weights(model), weights(again), strict=True))
    rebuilt = build("models", model.ref)
    assert all(torch.equal(a, b) for a, b in zip(weights(model), weights(rebuilt), strict=True))
    assert Recipe(seed=1, **TINY).digest != Recipe(**TINY).digest
    for made in (model, again, rebuilt):
        made.close()


def test_a_first_use_says_that_it_trains_where_nobody_shows_progress(tmp_path, monkeypatch, caplog):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(warmstart, "TOLD", 2)
    household_sft(**TINY).close()
    said = [record.getMessage() for record in caplog.records]
    assert said[0].startswith("household-sft is pre-trained now")
    assert ".clew/models/household-sft-" in said[0]
    assert [line.partition(",")[0] for line in said[1:]] == [f"household-sft: step {n} of at most 4" for n in (2, 4)]
    caplog.clear()
    household_sft(**TINY).close()
    assert not caplog.records


def test_the_same_recipe_gives_the_same_bits():
    ends = []
    for seed in (0, 0, 1):
        *_, (done, loss, model) = pretrain(Recipe(seed=seed, **TINY))
        assert done == 4
        ends.append([loss, *weights(model)])
        model.close()
    assert ends[0][0] == ends[1][0] != ends[2][0]
    assert all(torch.equal(a, b) for a, b in zip(ends[0][1:], ends[1][1:], strict=True))


@pytest.mark.parametrize(
    ("changes", "end", "checks"),
    [({}, 10, 3), ({"target": 0.15}, 7, 2), ({"steps": 10}, 10, 2), ({"steps": 3}, 3, 0), ({"target": 0.0}, 20, 0)],
)
def test_it_ends_once_the_panel_succeeds(tmp_path, monkeypatch, changes, end, checks):
    """Checks after steps 4, 7, 10 and so on, none after the last; the weights of the end are those that are kept."""
    monkeypatch.chdir(tmp_path)
    shares, seen = iter((0.1, 0.2, 0.4)), []
    monkeypatch.setattr(warmstart, "sampled_success", lambda model, *_: seen.append(model.version) or next(shares))
    recipe = {**TINY, "steps": 20, "check_from": 4, "check_every": 3, "target": 0.4, **changes}
    done = []
    model = household_sft(progress=lambda *at: done.append(at[:2]), **recipe)
    assert done == [(i, recipe["steps"]) for i in range(1, end + 1)]
    assert seen == [4, 7, 10][:checks]
    *_, (_, _, plain) = pretrain(Recipe(**{**recipe, "steps": end, "target": 0.0}))
    assert all(torch.equal(a, b) for a, b in zip(weights(model), weights(plain), strict=True))
    model.close()
    plain.close()


def test_playing_the_panel_changes_nothing():
    """Not the weights that follow, nor what the same weights would play again."""
    ends = []
    for target in (0.0, 1.0):
        *_, (_, _, model) = pretrain(Recipe(**TINY, panel=3, check_from=1, check_every=1, target=target))
        ends.append(weights(model))
        house = build("tasksets", "household")
        first, again = (sampled_success(model, house, 6, seed=1) for _ in range(2))
        assert 0 <= first == again <= 1
        model.close()
    assert all(torch.equal(a, b) for a, b in zip(*ends, strict=True))


def test_demonstrated_rows_are_what_the_agent_would_have_recorded(model):
    """The trap that costs a day: supervision and RL must see the same tokens."""
    house = Household(rooms=2, receptacles=2, objects=2, closed=1, steps=4)
    runner = Runner(player, house, model, sampling={"max_tokens": 3})
    task, steps = house.demonstrations(1, seed=5)[0]
    run = runner.collect([task], 1).runs[0]
    while True:
        asks = [c for c in run.calls if c.kind == "ask"]
        wrong = [
            i for i, c in enumerate(asks) if i < len(steps) and run.store.node(c.node_out).message.text != steps[i][1]
        ]
        if not wrong:
            break
        run = runner.fork(run, at=asks[wrong[0]].seq, reply=steps[wrong[0]][1])[0]
    row = sft_rows([conversation(steps)], model.renderer)[0]
    recorded = [t for node in run.conversation()[: 2 * len(steps)] for t in node.ids]
    assert row.ids.tolist() == recorded


def test_supervision_lowers_the_loss_of_what_it_shows():
    losses = [loss for _, loss, _ in pretrain(Recipe(**{**TINY, "steps": 40}))]
    assert np.mean(losses[-5:]) < 0.7 * losses[0]


def test_unknown_fields_are_refused():
    with pytest.raises((BadInput, TypeError)):
        build("models", "household-sft(width2=3)")


def test_a_word_that_closes_a_demonstration_early_carries_no_loss():
    taskset = Tally(length=6)
    renderer = WordRenderer(taskset.vocabulary())
    rows = demonstrated(taskset, Recipe(noise=0.5, observation_weight=0.0, demonstrations=40), renderer)
    (answer,) = renderer.encode("answer")
    closed = [int(np.flatnonzero(row.ids == answer)[-1]) for row in rows]
    loss = [{float(row.weights["sft"][place]) for row, place in zip(rows, closed, strict=True) if test(place)}
            for test in (lambda place: place < max(closed), lambda place: place == max(closed))]  # fmt: skip
    assert loss == [{0.0}, {1.0}]
    assert all((row.weights["sft"][place + 1 :] == 1).all() for row, place in zip(rows, closed, strict=True))
