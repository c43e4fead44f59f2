"""From stored runs to annotations: who carries what, and what has no row."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from clew import credit
from clew.core.errors import BadInput
from clew.core.records import Annotation, Request
from clew.core.registry import lookup
from clew.core.values import Completion, Message
from clew.harness import Runner
from clew.methods.agreement.values_compared import values_of
from clew.store.protocol import latest_last, stamped
from clew.worlds.house import House


class Player:
    """Answers with a legal-looking action drawn from the request's seed."""

    ref, version, renderer = "player", 0, None

    async def complete(self, request: Request) -> Completion:
        return Completion(
            Message("assistant", random.Random(request.seed).choice(("north", "east", "take", "use", "put")))
        )


async def thinker(run: Any) -> None:
    """Asks twice before it acts."""
    chat = run.chat()
    while not run.done:
        await chat.ask(run.view)
        await run.act(await chat.ask("again"))


@pytest.fixture
def groups() -> Any:
    house = House(rooms=4, steps=25)
    runner = Runner(thinker, house, Player(), limits=None)
    return runner.collect(house.sample(3), n=4, seed=1)


def judge(groups: Any, *rewards: float) -> None:
    """Overwrite the verdicts, run by run in order."""
    runs = groups.runs
    groups[0].store.annotate(
        [
            Annotation("run", "reward", r, run.id, scope=run.id)
            for run, r in zip(runs, rewards * len(runs), strict=False)
        ]
    )
    groups[0].store.commit()


def test_every_ask_of_a_step_carries_its_advantage(groups: Any) -> None:
    judge(groups, 1.0, 0.0)
    found = credit.g2po(groups)
    steps = found.steps
    assert len(steps) == sum(len(run.steps) for run in groups.runs)
    assert all(len(asks) == 2 for asks in steps.asks)
    for group in groups:
        for run in group:
            values = {a.seq: a.value for a in run.annotations("g2po", "call")}
            for step in run.steps:
                assert len({values[ask.seq] for ask in step.asks}) == 1
    rows = groups[0].store.annotations(method="g2po")
    assert len(rows) == 2 * len(steps)
    assert {a.scope for a in rows} == {g.id for g in groups}
    assert {a.params for a in rows} == {found.digest}
    assert groups.runs[0].low_point("g2po").run == groups.runs[0].id


@pytest.mark.whole
def test_columns_agree_with_the_record(groups: Any) -> None:
    judge(groups, 3.0, 0.0)
    steps = credit.steps(groups)
    row = 0
    for g, group in enumerate(groups):
        for run in group:
            for t, step in enumerate(run.steps):
                assert (steps.group[row], steps.t[row], steps.length[row]) == (g, t, len(run.steps))
                assert steps.outcome[row] == run.reward
                assert steps.valid[row] == (step.act.action in step.before.legal)
                same = [s for r in group for s in r.steps if s.before.state == step.before.state]
                assert (steps.state == steps.state[row]).sum() == len(same)
                row += 1
    assert row == len(steps)
    assert np.allclose(np.bincount(steps.run, steps.reward), steps.outcome[steps.last])


def test_world_rewards_and_other_node_keys(groups: Any) -> None:
    judge(groups, 1.0, 0.0)
    by_world = credit.steps(groups, rewards="world")
    acts = [step.act.reward for run in groups.runs for step in run.steps]
    assert by_world.reward.tolist() == [r or 0.0 for r in acts]
    by_text = credit.steps(groups, key="text")
    assert by_text.nodes == credit.steps(groups, key="text+legal").nodes == credit.steps(groups).nodes


def test_methods_and_parameters_lie_side_by_side(groups: Any) -> None:
    judge(groups, 1.0, 0.0)
    credit.grpo(groups)
    credit.g2po(groups)
    credit.g2po(groups, w=0.5)
    rows = groups[0].store.annotations(method="g2po")
    assert len({a.params for a in rows}) == 2
    assert len(groups[0].store.annotations(method="grpo")) * 2 == len(rows)


def test_equal_rewards_leave_no_grpo_rows(groups: Any) -> None:
    judge(groups, 1.0)
    found = credit.grpo(groups)
    assert found.annotations() == []
    assert groups[0].store.annotations(method="grpo") == []
    assert found.diagnostics.silent_groups == 1.0


def test_store_false_files_nothing(groups: Any) -> None:
    judge(groups, 1.0, 0.0)
    found = credit.gigpo(groups[0], store=False)
    assert found.annotations()
    assert groups[0].store.annotations(method="gigpo") == []


def test_unjudged_runs_are_left_out_and_none_at_all_is_an_error(groups: Any) -> None:
    bare = Runner(thinker, House(rooms=4, steps=5), Player()).collect(House(rooms=4, steps=5).sample(1), n=2)
    store, runs = bare[0].store, bare.runs
    kept = credit.steps(bare)
    assert len(kept.runs) == 2
    store._annotations.clear()
    with pytest.raises(BadInput) as error:
        credit.grpo(bare)
    assert "Judge" in error.value.remedy
    store.annotate([Annotation("run", "reward", 1.0, runs[0].id, scope=runs[0].id)])
    assert credit.steps(bare).runs == (runs[0].id,)


def test_a_shared_call_carries_the_mean_over_its_runs() -> None:
    move = credit.Move("s", "a", asks=(("r0", 1),))
    last = credit.Move("t", "b", 4.0, asks=(("r0", 3),))
    fork = credit.Move("u", "c", 0.0, asks=(("r1", 3),))
    steps = credit.from_paths([[credit.Path([move, last], 4.0), credit.Path([move, fork], 0.0)]], ["g"], ["r0", "r1"])
    value, diagnostics = credit.advantages(steps, credit.presets.grpo("mean"))
    found = credit.Credit("grpo", {}, "", steps, value, diagnostics).annotations()
    assert {(a.run, a.seq): a.value for a in found} == {("r0", 1): 0.0, ("r0", 3): 2.0, ("r1", 3): -2.0}


def test_frames_show_absence_as_nan() -> None:
    pandas = pytest.importorskip("pandas")
    steps = credit.from_paths([[credit.Path([credit.Move("a")], 1.0), credit.Path([credit.Move("b")], 1.0)]])
    value, diagnostics = credit.advantages(steps, credit.presets.grpo())
    frame = credit.Credit("grpo", {}, "", steps, value, diagnostics).frame()
    assert isinstance(frame, pandas.DataFrame)
    assert frame["grpo"].isna().all()


def test_every_registered_method_runs(groups: Any) -> None:
    judge(groups, 1.0, 0.0)
    for name in ("grpo", "gigpo", "hgpo", "graphgpo", "g2po", "bellman"):
        found = lookup("credits", name)(groups, rescale="rms")
        assert found.method == name
        present = found.value[found.diagnostics.present]
        assert np.sqrt(np.mean(present**2)) == pytest.approx(1.0)
    assert credit.gagpo(groups).method == "gagpo"
    told = credit.bellman(groups, lam="auto")
    assert told.params["lam"] == "auto"
    assert told.params["took"] == "grpo"
    assert told.comparisons is not None
    assert told.value.tobytes() == credit.grpo(groups, store=False).value.tobytes()
    assert "took grpo instead" in told.notes[0]


def test_asks_after_the_last_act_and_runs_without_states() -> None:
    async def leaver(run: Any) -> None:
        chat = run.chat()
        await run.act(await chat.ask(run.view))
        await chat.ask("and now?")

    house = House(rooms=4, steps=5)
    groups = Runner(leaver, house, Player()).collect(house.sample(1), n=2)
    judge(groups, 1.0, 0.0)
    found = credit.grpo(groups)
    assert found.steps.length.tolist() == [2, 2, 2, 2]
    assert found.steps.action[1] == -1
    assert len(found.annotations()) == 4


def last_of(run: Any, method: str) -> dict[int, float]:
    """What ``show`` and ``fork --low`` read of a run."""
    return {a.seq: a.value for a in latest_last(run.annotations(method, "call"))}


def test_what_was_computed_last_is_what_readers_read(groups: Any) -> None:
    """The parameters of all but the last are other ones; their values stay, and none of them is shown."""
    judge(groups, 1.0, 0.0)
    run = groups.runs[0]
    wanted = {gamma: credit.bellman(groups, gamma=gamma, store=False) for gamma in (0.95, 1.0, 0.5)}
    for gamma in (0.95, 1.0, 0.95, 0.5, 1.0, 0.95):
        credit.bellman(groups, gamma=gamma)
        said = {a.seq: a.value for a in wanted[gamma].annotations() if a.run == run.id}
        assert last_of(run, "bellman") == said
        assert run.low_point("bellman").seq == min(said, key=lambda seq: (said[seq], seq))
        shown = run.steps_frame()["bellman"].tolist()
        assert shown == [said[step.asks[-1].seq] for step in run.steps]
        assert values_of([run])[0]["bellman"].calls == {(run.id, seq): value for seq, value in said.items()}
    assert len({a.params for a in run.annotations("bellman")}) == 3


def test_a_step_that_the_last_filing_does_not_value_shows_no_older_value(groups: Any) -> None:
    judge(groups, 1.0, 0.0)
    run, group = groups.runs[0], groups[0].id
    keeper = groups[0].store
    keeper.annotate(stamped([Annotation("call", "m", -5.0, run.id, seq, params="b", scope=group) for seq in (1, 3)]))
    keeper.annotate(stamped([Annotation("call", "m", 1.0, run.id, 1, params="a", scope=group)]))
    keeper.annotate([Annotation("call", "m", 9.0, run.id, 5, params="z", scope=group)])  # from before filings had times
    assert last_of(run, "m") == {1: 1.0}
    assert run.low_point("m").seq == 1


def test_values_without_a_time_count_by_version_and_parameters_as_before() -> None:
    rows = [Annotation("run", "reward", v, "r", version=v_, params=p) for v, v_, p in ((1, "2", "a"), (0, "1", "b"))]
    assert [a.value for a in latest_last(rows)] == [0, 1]
    odd = [a._replace(data=data) for a, data in zip(rows, ('["filed"]', '{"filed": "x"}'), strict=True)]
    assert [a.value for a in latest_last(odd)] == [0, 1]


def test_an_annotation_of_nothing_that_is_known_is_refused(groups: Any) -> None:
    with pytest.raises(BadInput, match="target='cal' is not known"):
        groups[0].store.annotate([Annotation("cal", "m", 1.0, groups.runs[0].id, 1)])  # type: ignore[arg-type]
