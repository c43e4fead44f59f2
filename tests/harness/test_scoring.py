"""Recorded replies under other models: exact ids, each path once, what is shared once, resumed, refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from clew.core.errors import BadInput
from clew.core.registry import register
from clew.core.values import Limits, Message
from clew.credit import steps
from clew.harness import Runner, scoring
from clew.harness.agents import player
from clew.methods.grade import graded
from clew.models.fakes import Scripted
from clew.store import Groups, Run
from clew.worlds.clerk import Clerk

pytest.importorskip("torch", reason="did not run: torch is not installed")
from clew.models.local import Local, small

register("tasksets", "clerk", Clerk)
SAMPLING = {"max_tokens": 6}


class Counted:
    """Passes ids on and remembers them; can fail after so many rows."""

    def __init__(self, inner: Local, rows: int = 10**9) -> None:
        self.inner, self.ref, self.renderer, self.rows = inner, inner.ref, inner.renderer, rows
        self.seen: list[tuple[int, ...]] = []

    def score(self, ids: Any, temperature: float = 1.0) -> Any:
        if len(self.seen) + len(ids) > self.rows:
            raise KeyboardInterrupt
        self.seen += [tuple(row) for row in ids]
        return self.inner.score(ids, temperature)


@pytest.fixture(scope="module")
def pair() -> Any:
    models = [small(Clerk().vocabulary(), d=16, layers=1, heads=2, kv_heads=1, seed=s, ref=f"m{s}") for s in (0, 1)]
    yield models
    for model in models:
        model.close()


@pytest.fixture
def groups(pair: Any) -> Groups:
    world = Clerk()
    runner = Runner(player, world, pair[0], sampling=SAMPLING, limits=Limits(steps=3))
    return runner.collect(world.sample(3), n=2)


def test_the_sampler_s_own_logprobs_come_back(groups: Groups, pair: Any) -> None:
    found = scoring.score(groups.runs, pair[0])
    asks = [c for run in groups.runs for c in run.calls if c.kind == "ask"]
    assert len(found) == len(asks) > 10
    for call in asks:
        values = found[call.run, call.seq]
        assert np.isnan(values[: call.head]).all()
        np.testing.assert_allclose(values[call.head :], call.logprobs, atol=1e-4)


def test_each_path_passes_once_and_filed_values_are_not_asked_for_again(groups: Groups, pair: Any) -> None:
    model, done = Counted(pair[1]), list[int]()
    first = scoring.score(groups.runs, model, on_tokens=done.append)
    plan = scoring.plan(groups.runs)
    assert len(model.seen) == len(plan.rows) <= len(groups.runs)
    assert sum(done) == plan.tokens == sum(map(len, model.seen))
    for run in groups.runs:
        ids = tuple(token for node in run.conversation() for token in node.ids or ())
        assert any(row == ids for row in model.seen), "exactly what the model that ran received"
    again = scoring.score(groups.runs, model)
    assert len(model.seen) == len(plan.rows)
    assert all(np.array_equal(again[ask], first[ask], equal_nan=True) for ask in first)
    assert first.keys() == again.keys()


def test_a_stopped_scoring_goes_on(groups: Groups, pair: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scoring, "CHUNK", 1)
    whole = scoring.score(groups.runs, pair[1], store=False)
    broken = Counted(pair[1], rows=2)
    with pytest.raises(KeyboardInterrupt):
        scoring.score(groups.runs, broken)
    rest = Counted(pair[1])
    found = scoring.score(groups.runs, rest)
    assert len(broken.seen) + len(rest.seen) == len(scoring.plan(groups.runs).rows)
    for ask, values in whole.items():
        np.testing.assert_allclose(found[ask], values, atol=1e-5)


def test_other_weights_under_the_same_name_are_scored_anew(groups: Groups, pair: Any) -> None:
    first = scoring.score(groups.runs, pair[0])
    vocabulary = Clerk().vocabulary()
    changed = small(vocabulary, d=16, layers=1, heads=2, kv_heads=1, seed=9, ref=pair[0].ref)
    assert changed.digest() != pair[0].digest() == pair[0].digest()
    second = scoring.score(groups.runs, changed)
    assert any(not np.allclose(first[a], second[a], equal_nan=True) for a in first)
    changed.close()


def test_forks_share_what_they_share(groups: Groups, pair: Any) -> None:
    world = Clerk()
    runner = Runner(player, world, pair[0], groups[0].store, sampling=SAMPLING, limits=Limits(steps=3))
    run = next(run for run in groups.runs if len(run.steps) == 3)
    fork = runner.fork(run, at=run.at(step=2), n=1, reply="look o1")[0]
    model = Counted(pair[1])
    found = scoring.score([run, fork], model)
    own = [c for c in fork.calls[fork.shared :] if c.kind == "ask"]
    assert {ask for ask in found if ask[0] == fork.id} == {(c.run, c.seq) for c in own}
    assert len(model.seen) == 2
    sampled, everything = (graded.read([fork], found, found, replies) for replies in ("sampled", "all"))  # type: ignore[arg-type]
    said = own[0]
    assert len(sampled.spans) == len(everything.spans) == len(fork.steps)
    assert len(everything.policy) - len(sampled.policy) == said.forced > 0, "a forced reply is context"


def test_equal_replies_to_equal_contexts_are_scored_once(pair: Any) -> None:
    world = Clerk()
    runner = Runner(player, world, pair[0], sampling={"max_tokens": 2, "temperature": 0.0}, limits=Limits(steps=1))
    runs = runner.collect(world.sample(1), n=4).runs
    model = Counted(pair[1])
    assert len(scoring.score(runs, model)) == 4
    assert len(model.seen) == 1


def test_replies_before_the_context_are_lost_and_counted(groups: Groups, pair: Any) -> None:
    short = small(Clerk().vocabulary(), d=16, layers=1, heads=2, kv_heads=1, context=40, ref="short")
    run = next(run for run in groups.runs if len(run.steps) == 3)
    found = scoring.score([run], short)
    assert 0 < len(found) < 3
    reading = graded.read([run], found, found)
    assert reading.lost == 3 - len(found)
    assert len(reading.spans) == 3
    short.close()


def test_refusals_name_the_input_and_the_remedy(groups: Groups, pair: Any) -> None:
    other = small(["one", "two"], d=16, layers=1, heads=2, kv_heads=1, ref="other")
    with pytest.raises(BadInput, match=r"m0 and other have different tokenizers[\s\S]*same tokenizer"):
        scoring.check(scoring.plan(groups.runs), [pair[0], other])
    with pytest.raises(BadInput, match=rf"run {groups.runs[0].id} was written with tokenizer"):
        scoring.score(groups.runs, other)
    with pytest.raises(BadInput, match=r"scripted[\s\S]*gives no logprobs[\s\S]*vLLM"):
        scoring.score(groups.runs, Scripted({"": "x"}))
    world = Clerk()
    runs = Runner(player, world, Scripted({"": "done"})).collect(world.sample(1), n=1).runs
    with pytest.raises(BadInput, match="without token ids"):
        scoring.score(runs, pair[0])
    assert groups[0].store.verify() == []
    other.close()


def test_a_frozen_pair_is_a_credit_method(groups: Groups, pair: Any) -> None:
    """Each ask carries its step's log-ratio, compared within the group; a pair of one model says nothing."""
    store = groups[0].store
    members = [run.id for run in groups.runs]
    store.annotate([_reward(run, i % 2) for i, run in enumerate(members)])
    found = graded.graded(groups, policy=pair[1], reference=pair[0], norm="mean")
    mine, theirs = (scoring.score(groups.runs, model) for model in (pair[1], pair[0]))
    columns = steps(groups)
    for group in range(3):
        rows = np.flatnonzero(columns.group == group)
        x = np.array([np.nansum(mine[columns.asks[r][0]] - theirs[columns.asks[r][0]]) for r in rows])
        outcome = columns.outcome[rows] - 0.5
        np.testing.assert_allclose(found.value[rows], outcome + x - x.mean(), atol=1e-5)
    filed = store.annotations(members, "graded", "call")
    assert len(filed) == len(columns)
    same = graded.graded(groups, policy=pair[0], reference=pair[0], store=False)
    plain = graded.graded(groups, policy=pair[1], reference=pair[0], w=0.0, store=False)
    np.testing.assert_array_equal(same.value, plain.value)


def _reward(run: str, value: int) -> Any:
    from clew.core.records import Annotation

    return Annotation("run", "reward", float(value), run, scope=run)


def test_a_message_is_not_rendered_again(pair: Any) -> None:
    """Ids in the record count, not what the text would become: a reply cut inside keeps its own tokens."""
    world = Clerk()
    runner = Runner(player, world, pair[0], sampling={"max_tokens": 1}, limits=Limits(steps=2))
    run = runner.collect(world.sample(1), n=1).runs[0]
    row = scoring.plan([Run(run.store, run.id)]).rows[0]
    end = next(iter(pair[0].renderer.stop))
    written = pair[0].renderer.encode(Message("assistant", run.reply(run.steps[0].asks[0].seq).message.text).text)
    cut = row.replies[0].stop - row.replies[0].start - run.steps[0].asks[0].head
    assert cut == 1
    assert row.ids.count(end) >= 1
    assert len(written) <= 1
