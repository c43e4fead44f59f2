"""Arms from one recorded state: planted models are told apart, shared Calls are asked of nobody, nothing is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.compare import Planted, below, compared, recorded
from clew.core.errors import AgentFailed, BadInput, ModelError
from clew.core.records import Request
from clew.core.values import Completion, Task
from clew.harness import LiveRun, Runner
from clew.harness.agents import player
from clew.methods.compare.design import wilson
from clew.methods.compare.versus import RIGHT, Arm, Versus
from clew.models.fakes import Scripted
from clew.store import Run, open_store
from clew.worlds.toys import Counter

PLACE = 7


def arms(*models: Planted) -> list[Arm]:
    return [Arm(model.name, {"model": model}) for model in models]


@pytest.mark.whole
def test_planted_models_are_decided_rightly_and_early():
    """A small version of ``python benchmarks/compare.py``."""
    equal = [compared(seed, 0.5, 0.5, True, 64) for seed in range(24)]
    better = [compared(seed, 0.2, 0.8, True, 64) for seed in range(24)]
    assert wilson(sum(o != "open" for o, *_ in equal), 24)[0] < 0.05
    assert [o for o, *_ in better].count("better") >= 23
    assert sum(n for _, n, *_ in better) / 24 < 32
    assert all(n == 64 for o, n, *_ in equal if o == "open")


def test_no_call_below_the_place_is_asked_of_a_model_or_acted_in_a_world():
    runner, run = recorded()
    before = [call.key for call in run.calls]
    models = Planted("a", 0.5), Planted("b", 0.5)
    versus = Versus(runner, run, PLACE, arms(*models), n=12)
    versus.compare()
    made = [branch for side in versus.found for branch in side.runs.values()]
    own = [call for branch in made for call in branch.calls[branch.shared :]]
    assert {branch.shared for branch in made} == {PLACE}
    assert sum(len(model.asked) for model in models) == sum(call.kind == "ask" for call in own)
    assert [below(run, PLACE, model) for model in models] == [0, 0]
    assert below(run, PLACE + 1, models[0]) > 0, "the count would find one"
    assert {branch.calls[0].key for branch in made} == {before[0]}
    assert [call.key for call in Run(runner.store, run.id).calls] == before


def test_branches_of_one_number_have_one_seed_and_all_others_another():
    runner, run = recorded()
    versus = Versus(runner, run, PLACE, arms(Planted("a"), Planted("b")), n=8)
    versus.compare()
    seeds = [[side.runs[member].seed for member in range(8)] for side in versus.found]
    assert seeds[0] == seeds[1]
    assert len({run.seed, *seeds[0]}) == 9
    other = Versus(runner, run, PLACE, arms(Planted("a"), Planted("b")), n=8, seed=1)
    other.compare()
    assert not {b.seed for b in other.found[0].runs.values()} & set(seeds[0])


def test_interrupted_it_goes_on_with_what_is_recorded_and_decides_the_same(tmp_path: Path):
    world, place = Counter(low=3, high=3), tmp_path / "s.db"
    with open_store(place) as store:
        run = Runner(player, world, Planted(), store).collect(world.sample(1), n=1).runs[0]
    ended: list[str] = []

    def cut(branch: Run) -> None:
        ended.append(branch.id)
        if len(ended) == 11:
            raise RuntimeError("power cut")

    def line(on_run=None, n=24, seen=None):
        with open_store(place) as store:
            models = Planted("a", 0.5), Planted("b", 0.5)
            versus = Versus(Runner(player, world, Planted(), store), Run(store, run.id), PLACE, arms(*models), n=n)
            found = versus.compare(on_run)
            if seen is not None:
                seen += [r.id for side in versus.found for r in side.runs.values()]
            worth = [side.worth for side in versus.found]
            return found[0].limits, worth, sum(len(m.asked) for m in models)

    with pytest.raises(RuntimeError, match="power cut"):
        line(cut)
    seen: list[str] = []
    limits, worth, _ = line(seen=seen)
    assert set(ended) <= set(seen)
    assert limits.n == 24
    assert len(seen) == len(set(seen)) == 48
    again = line()
    assert again == (limits, worth, 0), "whoever asks again gets the same, and no model is asked"
    more, further, asked = line(n=32)
    assert more.n == 32
    assert 16 <= asked <= 32
    assert {m: v for m, v in further[0].items() if m < 24} == worth[0]
    whole_runner, whole_run = recorded()
    assert Run(whole_runner.store, whole_run.id).seed == run.seed
    whole = Versus(whole_runner, whole_run, PLACE, arms(Planted("a", 0.5), Planted("b", 0.5)), n=24)
    assert whole.compare()[0].limits == limits, "an interruption changes nothing of the outcome"


def test_an_arm_is_found_again_beside_other_arms_and_in_other_batches():
    runner, run = recorded()
    a, b, c = Planted("a", 0.5), Planted("b", 0.5), Planted("c", 0.5)
    first = Versus(runner, run, PLACE, arms(a, b), n=8)
    first.compare()
    asked = len(a.asked), len(b.asked)
    turned = Versus(runner, run, PLACE, arms(b, a), n=8, batch=3)
    (found,) = turned.compare()
    assert (len(a.asked), len(b.asked)) == asked
    assert found.limits.mean == -first._finding(1).limits.mean
    Versus(runner, run, PLACE, arms(a, c), n=8).compare()
    assert len(a.asked) == asked[0]
    assert c.asked


def test_of_three_arms_each_is_compared_with_the_first_and_stops_by_itself():
    runner, run = recorded()
    models = Planted("a", 0.05), Planted("b", 0.05), Planted("c", 0.95)
    versus = Versus(runner, run, PLACE, arms(*models), n=32)
    equal, better = versus.compare()
    assert (equal.arm, better.arm, equal.reference, better.reference) == ("b", "c", "a", "a")
    assert (equal.outcome, better.outcome) == ("open", "better")
    assert equal.level == better.level == pytest.approx(0.975)
    assert len(versus.found[2].runs) < len(versus.found[0].runs) == 32
    report = better.report()
    assert (report.level, report.n) == (better.level, better.limits.n)
    assert len(report.runs) == 2 * report.n


def test_equal_within_a_margin_is_a_decision():
    runner, run = recorded()
    versus = Versus(runner, run, PLACE, arms(Planted("a", 0.95), Planted("b", 0.95)), n=200, batch=20, margin=0.3)
    (found,) = versus.compare()
    assert found.outcome == "equal"
    assert found.limits.n < 200


def test_prompts_and_temperatures_are_arms_and_all_begin_where_the_first_edit_reaches():
    def obeys(request: Request) -> str:
        return "down" if any(n.message.text == "go down" for n in request.path) else "up"

    world = Counter(low=3, high=3, steps=3)
    runner = Runner(player, world, Scripted({"": obeys}))
    run = runner.collect(world.sample(1), n=1).runs[0]
    edited = [Arm("as recorded"), Arm("said", {"rewrite": {1: "go down"}})]
    versus = Versus(runner, run, 5, edited, n=12)
    (found,) = versus.compare()
    assert versus.seq == 3, "the second message reaches the second request"
    assert {branch.shared for side in versus.found for branch in side.runs.values()} == {3}
    assert found.outcome == "worse"
    assert found.limits.mean == -1
    assert Versus(runner, run, None, edited).seq == 3
    warm = [Arm(f"{t}", {"sampling": {"temperature": t}}) for t in (0.0, 1.0)]
    versus = Versus(runner, run, 5, warm, n=4)
    versus.compare()
    settings = [side.runs[0].calls[5].setup for side in versus.found]
    assert [it.asked.temperature for it in settings if it] == [0.0, 1.0]


def test_a_verdict_of_ones_own_takes_the_place_of_the_reward():
    runner, run = recorded()
    short = Versus(runner, run, PLACE, arms(Planted("a", 0.5), Planted("b", 0.5)), n=4, verdict=lambda it: 0.25)
    assert short.compare()[0].limits.mean == 0
    assert short.found[0].success.mean == 0.25
    missing = Versus(
        runner, run, PLACE, arms(Planted("a", 0.5), Planted("b", 0.5)), n=4,
        verdict=lambda it: None if it.row.order[-1] == 2 else float((it.reward or 0) > RIGHT),
    )  # fmt: skip
    (found,) = missing.compare()
    assert (found.limits.n, found.left) == (3, 1)
    assert "1 pairs have no verdict" in found.report().caveats[1]


class Broken(Planted):
    """An endpoint that is down until it is mended."""

    down = True

    async def complete(self, request: Request) -> Completion:
        if self.down:
            raise ModelError("nobody answers at 127.0.0.1")
        return await super().complete(request)


def test_an_arm_whose_model_fails_ends_it_in_a_sentence_and_its_branches_are_made_again():
    runner, run = recorded()
    good, bad = Planted("a", 1.0), Broken("b", 0.0)
    versus = Versus(runner, run, PLACE, arms(good, bad), n=8)
    with pytest.raises(ModelError, match=r"all 4 branches of b ended in model_error: .*nobody answers"):
        versus.compare()
    bad.down, asked = False, len(good.asked)
    again = Versus(runner, run, PLACE, arms(good, bad), n=4)
    again.compare()
    assert again.found[1].worth == dict.fromkeys(range(4), 0.0)
    assert len(good.asked) == asked


async def picky(run: LiveRun) -> None:
    chat = run.chat()
    while not run.done:
        reply = await chat.ask(run.view)
        await run.act({"up": "up", "stop": "stop"}[reply.text])


def test_an_agent_that_fails_on_every_branch_is_told():
    world = Counter(low=3, high=3)
    runner = Runner(picky, world, Planted())
    run = runner.collect(world.sample(1), n=1).runs[0]
    odd = Scripted({"": "sideways"})
    with pytest.raises(AgentFailed, match="all 4 branches of odd"):
        Versus(runner, run, PLACE, [Arm("good"), Arm("odd", {"model": odd})]).compare()


def test_what_cannot_be_compared_is_refused_before_anything_is_stored():
    runner, run = recorded()
    before = len(runner.store.run_ids())
    with pytest.raises(BadInput, match="two different arms"):
        Versus(runner, run, PLACE, arms(Planted("a")))
    with pytest.raises(BadInput, match="two different arms"):
        Versus(runner, run, PLACE, [Arm("a"), Arm("b")])
    with pytest.raises(BadInput, match="has no Call 99"):
        Versus(runner, run, 99, arms(Planted("a"), Planted("b")))

    async def talker(run: LiveRun) -> None:
        await run.chat().ask("hello")

    alone = Runner(talker, None, Scripted({"": "hi"}))
    talk = alone.collect([Task("t", "")], n=1).runs[0]
    with pytest.raises(BadInput, match="no world that judges"):
        Versus(alone, talk, 1, arms(Planted("a"), Planted("b")))

    async def parent(run: LiveRun) -> None:
        await run.spawn(talker, Task("c", ""))

    family = Runner(parent, None, Scripted({"": "hi"}))
    family.collect([Task("t", "")], n=1)
    (child,) = [Run(family.store, id) for id in family.store.run_ids() if family.store.row(id).spawned_by]
    with pytest.raises(BadInput, match="was spawned by another run"):
        Versus(family, child, 1, arms(Planted("a"), Planted("b")))
    assert len(runner.store.run_ids()) == before
