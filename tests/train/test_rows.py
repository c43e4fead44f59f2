"""Rows hold what the model received and sampled, each span once."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

import clew.credit
from clew.core.errors import BadInput, BadRecord
from clew.core.records import Annotation, Cursor
from clew.core.values import Message
from clew.fit.trainer import Trainer
from clew.harness import Runner
from clew.harness.agents import player
from clew.models.markov import Markov
from clew.store import Run
from clew.train.dump import dump, load
from clew.train.rows import leaves, reference, render, rows, sft_rows


async def two_voices(run):
    """Two conversations that share their beginning, and one reply that ends the run."""
    chat = run.chat(temperature=1.0)
    first = await chat.ask(run.view)
    other = chat.branch()
    await other.ask("why")
    await chat.ask("what then")
    await run.act(first)


def collected(agent, house, model, n=3, tasks=2, **sampling):
    runner = Runner(agent, house, model, sampling={"max_tokens": 3, **sampling})
    return runner, runner.collect(house.sample(tasks), n, seed=1)


def values(groups, value=1.0):
    return {(c.run, c.seq): value for g in groups for run in g for c in run.calls if c.kind == "ask"}


def test_a_row_is_what_the_model_received_and_sampled(house, model):
    _, groups = collected(player, house, model)
    made = rows(groups, values(groups, 0.5), also={"kl": 0.1})
    assert len(made) == 6
    for run, row in zip(groups.runs, made, strict=True):
        path = run.conversation()
        assert row.ids.tolist() == [t for node in path for t in node.ids]
        asks = [c for c in run.calls if c.kind == "ask"]
        assert [cursor for _, cursor in row.source] == [Cursor(run.id, c.seq) for c in asks]
        assert row.sampled.sum() == sum(len(c.logprobs) for c in asks)
        np.testing.assert_array_equal(row.old[row.sampled], np.concatenate([c.logprobs for c in asks]))
        assert np.isnan(row.old[~row.sampled]).all()
        for (start, _), call in zip(row.source, asks, strict=True):
            ids = run.store.node(call.node_out).ids
            assert tuple(row.ids[start : start + len(call.logprobs)]) == ids[call.head :]
        assert set(row.weights["pg"][row.sampled]) == {0.5}
        assert not row.weights["pg"][~row.sampled].any()
        np.testing.assert_array_equal(row.weights["kl"] != 0, row.sampled)


def test_sampler_and_trainer_agree_on_real_runs(house, model):
    _, groups = collected(player, house, model, temperature=0.8)
    report = Trainer(model).step(rows(groups, values(groups)))
    assert report.mismatch < 1e-5
    _, groups = collected(player, house, model)
    assert Trainer(model).step(rows(groups, values(groups))).mismatch < 1e-5  # the engine serves the new weights


def test_each_span_trains_once_over_conversations_and_forks(house, model):
    runner, groups = collected(two_voices, house, model)
    run = groups.runs[0]
    asks = [c for c in run.calls if c.kind == "ask"]
    paths = leaves(run)
    assert len(paths) == 2
    forks = [runner.fork(run, at=asks[2].seq, n=2), runner.fork(run, at=run.at(asks[0], token=1), n=2)]
    listed = [*groups.runs, *forks[0], *forks[1]]
    made = rows([listed], values([listed]))
    counted = Counter(cursor[:2] for row in made for _, cursor in row.source)
    assert set(counted.values()) == {1}
    issued = {(c.run, c.seq) for r in listed for c in r.calls if c.kind == "ask"}
    assert set(counted) == issued
    shared = rows([list(forks[0])], values([listed]))
    assert sum(cursor.run == run.id for row in shared for _, cursor in row.source) == 2
    first = next(row for row in made if run.id in {cursor.run for _, cursor in row.source})
    assert len(first.source) == 2  # the reply that both conversations share trains with the first of them


async def helper(run):
    await run.chat().ask("help")


async def delegating(run):
    await run.spawn(helper, "help")
    await run.act(await run.chat().ask(run.view))


def test_rows_name_the_run_that_forks_and_sub_agents_come_from(house, model):
    runner, groups = collected(delegating, house, model, n=2, tasks=1)
    run, other = groups.runs
    child = Run(runner.store, next(call for call in run.calls if call.kind == "spawn").child)
    asked = next(call.seq for call in run.calls if call.kind == "ask")
    fork = runner.fork(run, at=asked)[0]
    again = runner.fork(fork, at=asked)[0]
    listed = [run, other, child, fork, again]
    made = rows([listed], values([listed]))
    assert Counter(row.run for row in made) == {run.id: 4, other.id: 1}
    assert {row.run for row in sft_rows([again])} == {run.id}
    trainer = Trainer(model, weight_by="run")
    for row in made:
        row.weights["pg"] = np.where(row.sampled, 1.0 if row.run == run.id else 3.0, 0).astype(np.float32)
    assert trainer.step(made).loss["pg"] == pytest.approx(-2, abs=1e-5)


def test_equal_samples_of_two_calls_both_train(house, model):
    async def twins(run):
        chat = run.chat()
        chat.say("user", run.view.text)
        for _ in range(2):
            await chat.branch().ask(max_tokens=1)
        await run.act("go nowhere")

    runner = Runner(twins, house, model)
    for seed in range(200):
        groups = runner.collect(house.sample(1), 1, seed=seed)
        asks = [c for c in groups.runs[0].calls if c.kind == "ask"]
        if asks[0].node_out == asks[1].node_out:
            break
    else:
        pytest.fail("no equal samples in 200 tries")
    made = rows(groups, {(c.run, c.seq): float(i + 1) for i, c in enumerate(asks)})
    assert [row.weights["pg"].sum() for row in made] == [1.0, 2.0]


def test_a_row_is_as_old_as_its_oldest_span(house, model):
    """A fork after a training step: its first reply is of the weights before, the one it samples of those after."""
    runner, groups = collected(player, house, model, n=1, tasks=1)
    run = groups.runs[0]
    first, second = [c for c in run.calls if c.kind == "ask"][:2]
    Trainer(model).step(rows(groups, values(groups)))
    fork = runner.fork(run, at=second.seq)[0]
    old, new = fork.calls[first.seq].setup.version, fork.calls[second.seq].setup.version
    assert first.setup.version == old < new
    made = rows([[fork]], values([[fork]]))
    assert [(len(row.source) >= 2, row.version) for row in made] == [(True, old)]


def test_forced_tokens_carry_no_weight(house, model):
    runner, groups = collected(player, house, model, max_tokens=4)
    run = max(groups.runs, key=lambda r: len(r.calls[1].logprobs))
    first = run.calls[1]
    fork = runner.fork(run, at=Cursor(run.id, 1, 1))[0]
    call = fork.calls[1]
    assert call.forced == 1
    row = rows([[fork]], {(fork.id, 1): 1.0})[0]
    start = row.source[0][0]
    assert row.source[0][1] == Cursor(fork.id, 1, 1)
    assert row.ids[start - 1] == run.store.node(first.node_out).ids[first.head]
    assert not row.sampled[:start].any()


def test_a_reply_forced_whole_trains_nothing(house, model):
    """A row of it has no weights and none of its figures: the version and temperature that say so."""
    runner, groups = collected(player, house, model, n=1, tasks=1)
    fork = runner.fork(groups.runs[0], at=1, reply="go kitchen")[0]
    row = rows([[fork]], {(fork.id, 1): 1.0})[0]
    assert (row.source, row.version, row.temperature) == ([], 0, 1.0)
    assert not row.sampled.any()
    assert not row.weights["pg"].any()


def test_one_path_has_one_temperature(house, model):
    async def warming(run):
        chat = run.chat()
        for temperature in (0.5, 1.0):
            await chat.ask(run.view, temperature=temperature)
        await run.act("go kitchen")

    _, groups = collected(warming, house, model, n=1, tasks=1)
    run = groups.runs[0]
    with pytest.raises(BadInput, match=rf"run {run.id} mixes temperatures \[0.5, 1.0\] on one path"):
        rows(groups, values(groups))
    asks = [c for c in run.calls if c.kind == "ask"]
    assert [rows([[run]], {(run.id, c.seq): 1.0})[0].temperature for c in asks] == [0.5, 1.0]


def test_absent_is_not_zero(house, model):
    _, groups = collected(player, house, model)
    run = groups.runs[0]
    asks = [c for c in run.calls if c.kind == "ask"]
    row = rows([[run]], {(run.id, asks[0].seq): 0.0})[0]
    assert row.sampled.sum() == len(asks[0].logprobs)
    assert rows(groups, {}) == []


def rewarded(house, model, *rewards):
    """Two groups whose runs got these rewards."""
    runner, groups = collected(player, house, model)
    for group in groups:
        for run, reward in zip(group, rewards, strict=False):
            runner.store.annotate([Annotation("run", "reward", reward, run=run.id, scope=run.id)])
    runner.store.commit()
    return groups


def test_groups_rewarded_alike_give_no_rows_and_say_why(house, model):
    groups = rewarded(house, model, *[0.0] * 8)
    clew.credit.grpo(groups)
    with pytest.warns(UserWarning, match=rf"in all {len(groups)} groups the runs were rewarded alike, .* more runs"):
        assert rows(groups, "grpo") == []
    with pytest.raises(BadInput, match="'no-method' values no ask"):
        rows(groups, "no-method")
    with pytest.raises(BadInput, match="needs at least one row"):
        Trainer(model, 1e-3).step([])


def test_a_method_that_valued_nothing_though_rewards_differ_is_an_error(house, model):
    groups = rewarded(house, model, *[0.0, 1.0] * 4)
    with pytest.raises(BadInput, match="'g2po' values no ask"):
        rows(groups, "g2po")
    clew.credit.grpo(groups)
    assert rows(groups, "grpo")


def test_annotations_by_name_by_scope_and_per_token(house, model):
    runner, groups = collected(player, house, model)
    run = groups.runs[0]
    call = run.calls[1]
    n = len(run.store.node(call.node_out).ids)
    per_token = np.arange(n, dtype=np.float32)
    per_token[-1] = np.nan
    runner.store.annotate([
        Annotation("call", "mine", 1.0, run.id, 1, scope="elsewhere"),
        Annotation("call", "mine", 2.0, run.id, 1, scope=run.group),
        Annotation("tokens", "fine", run=run.id, seq=1, scope=run.group, values=per_token),
    ])  # fmt: skip
    row = rows(groups, "mine")[0]
    assert set(row.weights["pg"][row.sampled]) == {2.0}
    row = rows(groups, "fine")[0]
    np.testing.assert_array_equal(row.weights["pg"][row.sampled], per_token[call.head : -1])
    runner.store.annotate([Annotation("call", "far", 4.0, run.id, 1, scope="elsewhere")])
    row = rows(groups, "far")[0]
    assert set(row.weights["pg"][row.sampled]) == {4.0}, "the only value there is"
    runner.store.annotate([Annotation("call", "far", 5.0, run.id, 1, scope="further")])
    with pytest.raises(BadInput, match="values from 2 groups, none of them the run's own"):
        rows(groups, "far")
    runner.store.annotate([Annotation("call", "mine", 3.0, run.id, 1, scope=run.group, params="ab")])
    with pytest.raises(BadInput, match="2 sets of parameters"):
        rows(groups, "mine")


def test_credit_functions_give_rows_by_object_and_by_name(house, model):
    _, groups = collected(player, house, model, n=4)
    for i, run in enumerate(groups.runs):
        groups[0].store.annotate([Annotation("run", "reward", float(i % 2), run=run.id, scope=run.id)])
    credit = clew.credit.g2po(groups)
    by_object, by_name = rows(groups, credit), rows(groups, "g2po")
    assert len(by_object) == len(by_name) == 8
    for a, b in zip(by_object, by_name, strict=True):
        np.testing.assert_array_equal(a.weights["pg"], b.weights["pg"])
    assert any(row.weights["pg"].any() for row in by_object)


def test_truncated_distributions_are_refused(house, model):
    _, groups = collected(player, house, Markov(tokens=True), top_p=0.9)
    with pytest.raises(BadInput, match="does not say which tokens were left"):
        rows(groups, values(groups))
    _, groups = collected(player, house, model, temperature=0.0)
    with pytest.raises(BadInput, match="temperature 0"):
        rows(groups, values(groups))
    made = sft_rows(groups)
    assert len(made) == 6
    for run, row in zip(groups.runs, made, strict=True):
        path = run.conversation()
        assert row.ids.tolist() == [t for node in path for t in node.ids]
        said = [node.message.role == "assistant" for node in path for _ in node.ids]
        np.testing.assert_array_equal(row.weights["sft"] == 1, said)
        assert 0 < sum(said) < len(said)


def test_demonstrations_render_to_the_ids_of_a_run(house, model):
    episode = house.demonstrations(3, seed=2)[0]
    task, steps = episode

    async def shown(run):
        chat = run.chat()
        for _, action in steps:
            chat.say("user", run.view)
            chat.say("assistant", action)
            await run.act(action)
        await chat.ask(run.view)

    run = Runner(shown, house, model, sampling={"max_tokens": 3}).collect([task], 1).runs[0]
    pieces = render([m for o, a in steps for m in (Message("user", o), Message("assistant", a))], model.renderer)
    ids = [t for piece, _ in pieces for t in piece]
    assert ids == [t for node in run.conversation()[:-2] for t in node.ids]
    stop = next(iter(model.renderer.stop))
    assert all(piece[-1] == stop and piece.count(stop) == 1 for piece, own in pieces if own)


def test_sampled_replies_render_to_themselves(house):
    """A model whose replies are whole actions, ended by their stop token, as a trained one's are."""
    actions = "go kitchen\ngo bathroom\ngo bedroom\nopen fridge\nopen cabinet"
    model = Markov(actions, order=1, tokens=True)
    _, groups = collected(player, house, model, max_tokens=40)
    for run in groups.runs:
        path = run.conversation()
        replies = [node for node in path if node.message.role == "assistant"]
        assert replies
        assert all(node.ids[-1] in model.renderer.stop for node in replies)
        pieces = render([Message(node.message.role, node.message.text) for node in path], model.renderer)
        assert [t for piece, _ in pieces for t in piece] == [t for node in path for t in node.ids]
        own = [piece for piece, mine in pieces if mine]
        assert own == [node.ids[-len(piece) :] for node, piece in zip(replies, own, strict=True)]


def test_sft_weights(house, model):
    _, steps = house.demonstrations(1, seed=3)[0]
    conversation = [m for o, a in steps for m in (Message("user", o), Message("assistant", a))]
    row = sft_rows([conversation], model.renderer, observation_weight=0.25)[0]
    words = sum(len(action.split()) + 1 for _, action in steps)  # each with its end token
    assert (row.weights["sft"] == 1).sum() == words
    assert set(row.weights["sft"]) == {np.float32(0.25), np.float32(1)}
    assert not row.sampled.any()
    with pytest.raises(BadInput, match="renderer"):
        sft_rows([conversation])


def test_reference_logprobs(house, model):
    _, groups = collected(player, house, model, temperature=0.7)
    made = reference(rows(groups, values(groups), also={"kl": 1.0}), model)
    for row in made:
        np.testing.assert_allclose(row.ref[row.sampled], row.old[row.sampled], atol=1e-5)
    report = Trainer(model).step(made)
    assert report.loss["kl"] == pytest.approx(0, abs=1e-8)


def test_dump_and_load(house, model, tmp_path):
    _, groups = collected(player, house, model)
    made = rows(groups, values(groups), also={"kl": 0.1})
    made[0].targets["proximal"] = np.ones(len(made[0].ids), np.float32)
    made[1].ref = np.zeros(len(made[1].ids), np.float32)
    made[2].set, made[2].role = "pair1", "chosen"
    back = load(dump(made, tmp_path / "rows.npz"))
    assert len(back) == len(made)
    for a, b in zip(made, back, strict=True):
        assert (a.source, a.version, a.set, a.role, a.temperature) == (
            b.source,
            b.version,
            b.set,
            b.role,
            b.temperature,
        )
        assert a.run == b.run != ""
        pairs = [(a.ids, b.ids), (a.sampled, b.sampled), (a.old, b.old)]
        pairs += [(a.weights[k], b.weights[k]) for k in a.weights] + [(a.targets[k], b.targets[k]) for k in a.targets]
        for x, y in pairs:
            np.testing.assert_array_equal(x, y)
            assert x.dtype == y.dtype
        assert (a.ref is None) == (b.ref is None)
    (tmp_path / "broken.npz").write_bytes(b"not rows")
    with pytest.raises(BadRecord, match="not a file of rows"):
        load(tmp_path / "broken.npz")
