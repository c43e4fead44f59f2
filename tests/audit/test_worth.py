"""What items are worth: planted items are called right, too few runs are not, nothing is run twice."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest

pytest.importorskip("bm25s", reason="did not run: the extra [memory] is not installed")
pytest.importorskip("scipy", reason="did not run: the extra [stats] is not installed")

from clew.core.errors import BadInput
from clew.harness import LiveRun, Runner
from clew.harness.memory import Memory
from clew.methods.compare import design
from clew.methods.memory.worth import filed_worth, worth_audit
from clew.methods.memory.worth.given_runs import given
from clew.methods.memory.worth.left_out import Forks, Job, sample_of
from clew.methods.memory.worth.worth_verdict import Pair, Subject, judged
from clew.store import Keeper, MemoryStore, Run, open_store
from clew.worlds.toys import Counter

ITEMS = {
    "good": "count each step until you stop",
    "bad": "stop one step early",
    "useless": "the sky is blue, and to reach it is hard",
    "dear": "walk up and down before you stop",
    "twin": "be sure to reach for the handle with the left hand, then turn it",
    "copy": "be sure to reach for the handle with the left hand and then turn it",
}


async def walker(run: LiveRun) -> None:
    """Goes up as far as the task says, and fails by lot where it remembers wrong things or lacks right ones."""
    found = await run.memory("walks").recall(run.task.prompt, k=20)
    texts = {item.text for item in found.items}
    luck = await run.draw("luck")
    wrong = ITEMS["bad"] in texts and luck < 0.33
    wrong |= ITEMS["good"] not in texts and 0.33 <= luck < 0.67
    wrong |= texts.isdisjoint({ITEMS["twin"], ITEMS["copy"]}) and luck >= 0.67
    for _ in range(4 if ITEMS["dear"] in texts else 0):
        await run.act("up")
        await run.act("down")
    for _ in range(int(re.findall(r"\d+", run.task.prompt)[0]) - wrong):
        await run.act("up")
    await run.act("stop")


async def mother(run: LiveRun) -> None:
    """Lets a child recall, and goes up."""
    await run.spawn(reader, run.task.prompt)
    for _ in range(int(re.findall(r"\d+", run.task.prompt)[0])):
        await run.act("up")
    await run.act("stop")


async def reader(run: LiveRun) -> None:
    await run.memory("walks").recall(run.task.prompt, k=20)


def planted(store: Keeper, runs: int = 40, agent: object = walker) -> dict[str, str]:
    """A memory, and runs that were given all of it."""
    memory = Memory(store, "walks")
    ids = {name: memory.add("fact", {"text": text}, by="ann").id for name, text in ITEMS.items()}
    runner = Runner(agent, Counter(), None, store)
    runner.collect(runner.taskset.sample(runs, seed=1), n=1, seed=2)
    return ids


@pytest.fixture(scope="module")
def audited() -> tuple[Keeper, dict[str, str], worth_audit.Finding]:
    store = MemoryStore()
    ids = planted(store, runs=60)
    forks = Forks(store)
    it = worth_audit.plan(Memory(store, "walks"), forks)
    return store, ids, worth_audit.carry_out(it, forks)


def by_items(found: worth_audit.Finding) -> dict[tuple[str, ...], worth_audit.Worth]:
    return {it.subject.items if it.subject.kind != "all" else (): it for it in found.worth}


def test_planted_items_are_called_what_they_are(audited) -> None:
    _, ids, found = audited
    worth = by_items(found)
    verdicts = {name: worth[(id,)].verdict for name, id in ids.items()}
    expected = {"good": "helpful", "bad": "harmful", "useless": "no effect shown", "dear": "harmful"}
    assert verdicts == {**expected, "twin": "redundant", "copy": "redundant"}
    both = next(it for it in found.worth if it.subject.kind == "copies")
    assert {*both.subject.items} == {ids["twin"], ids["copy"]}
    assert both.verdict == "helpful"
    assert worth[(ids["dear"],)].turns.estimate == 8
    assert worth[(ids["good"],)].success.n == 60
    assert 0.15 < worth[(ids["good"],)].success.estimate < 0.55
    assert () in worth, "everything at once is a subject too"


def test_nothing_is_run_twice_and_an_audit_that_was_stopped_goes_on(audited) -> None:
    store, _, _ = audited
    forks = Forks(store)
    again = worth_audit.plan(Memory(store, "walks"), forks)
    assert (again.cost.forks, again.found) == (0, len(again.jobs))
    assert worth_audit.carry_out(again, forks).cost.forks == 0
    other, seen = MemoryStore(), list[object]()
    planted(other, runs=10)

    def stop(sample: object) -> None:
        seen.append(sample)
        if len(seen) == 7:
            raise KeyboardInterrupt

    forks = Forks(other)
    whole = worth_audit.plan(Memory(other, "walks"), forks, n=10)
    with pytest.raises(KeyboardInterrupt):
        worth_audit.carry_out(whole, forks, on_fork=stop)
    rest = worth_audit.plan(Memory(other, "walks"), Forks(other), n=10)
    assert rest.found >= 7
    assert rest.found + rest.cost.forks == len(whole.jobs)


def test_both_arms_of_a_pair_have_one_seed_and_the_recorded_run_is_none_of_them(audited) -> None:
    store, ids, found = audited
    forks = Forks(store)
    start, copy = next(iter(found.plan.starts.values()))[0]
    seeds = {forks.seed_of(Job(left, start, copy)) for left in ((), (ids["good"],), ("all",))}
    assert len(seeds) == 1
    assert store.row(start.run).seed not in seeds
    same = sample_of(Run(store, start.run))
    assert same.turns > 0


def test_too_few_runs_are_told_from_no_effect(audited) -> None:
    store, _, _ = audited
    forks = Forks(store)
    few = worth_audit.carry_out(worth_audit.plan(Memory(store, "walks"), forks, n=4), forks)
    assert {it.verdict for it in few.worth} == {"cannot tell"}
    assert all(it.more is None or it.more > 0 for it in few.worth)
    assert any(it.more for it in few.worth)


def test_what_does_not_fit_the_budget_is_left_out_and_named_items_alone_are_audited(audited) -> None:
    store, ids, _ = audited
    fresh = Forks(store, seed=5)
    small = worth_audit.plan(Memory(store, "walks"), fresh, n=10, budget=35)
    assert len(small.starts) == 2, "20 forks for the first, 10 for the next: what lacks nothing is shared"
    assert any("left out for the budget" in note for note in small.notes)
    one = worth_audit.plan(Memory(store, "walks"), fresh, items=[ids["good"][:6]], n=10)
    assert list(one.starts) == [Subject("item", (ids["good"],))]
    assert one.cost.forks == 20
    with pytest.raises(BadInput, match="more than 5 forks"):
        worth_audit.plan(Memory(store, "walks"), fresh, n=10, budget=5)
    with pytest.raises(BadInput, match="n=0"):
        worth_audit.plan(Memory(store, "walks"), fresh, n=0)
    none = worth_audit.plan(Memory(store, "walks"), fresh, runs=set())
    assert none.starts == {}


def test_runs_that_nothing_judges_are_left_out_and_say_so() -> None:
    store = MemoryStore()
    planted(store, runs=2, agent=mother)
    memory = Memory(store, "walks")
    where = given(store, memory.items())
    assert all(len(starts) == 2 for starts in where.starts.values()), "a child's recall begins at its parent's spawn"
    starts = next(iter(where.starts.values()))
    assert {store.calls(at.run, at.seq, at.seq + 1)[0].kind for at in starts.values()} == {"spawn"}
    forks = Forks(store)
    found = worth_audit.carry_out(worth_audit.plan(memory, forks, n=2), forks)
    assert {it.success.estimate for it in found.worth} == {0.0}
    from clew.core.values import Task

    lone = MemoryStore()
    one = Memory(lone, "walks").add("fact", {"text": "stop"}, by="ann")
    Runner(reader, None, None, lone).collect([Task("t", "stop")], n=1)
    where = given(lone, [Memory(lone, "walks").item(one.id)])
    assert where.starts == {one.id: {}}
    assert list(where.left_out) == ["nothing judges the run: it was made without a world or data"]


def test_a_child_does_without_the_item(audited) -> None:
    store = MemoryStore()
    ids = planted(store, runs=1, agent=mother)
    where = given(store, Memory(store, "walks").items())
    start = next(iter(where.starts[ids["good"]].values()))
    from clew.core.records import Edit

    runner = Runner.of(store, start.run)
    for edits, expected in (([], True), ([Edit("memory", start.seq, {"without": [ids["good"]]})], False)):
        fork = runner.fork(start.run, start, edits=edits, seed=3)[0]
        child = next(call.child for call in fork.calls if call.child)
        text = next(call.text for call in store.calls(child) if call.kind == "recall")
        assert (ids["good"] in text) is expected
        assert ids["bad"] in text


def test_what_was_found_is_filed_and_found_again_and_holds_no_text(audited) -> None:
    store, ids, found = audited
    assert filed_worth.known(store.reports(), "walks", (ids["bad"],)) is None
    filed = filed_worth.filed(found, store)
    assert len(filed) == 2 * len(found.worth), "success and turns; no model was asked, so there are no tokens"
    known = filed_worth.known(store.reports(), "walks", (ids["bad"],))
    assert known is not None
    assert (known.verdict, sorted(known.reports)) == ("harmful", ["success", "turns"])
    assert known.why == "success falls"
    assert known.reports["success"].estimate < 0
    assert filed_worth.known(store.reports(), "other", (ids["bad"],)) is None
    said = " ".join(f"{one.claim} {one.design} {one.caveats}" for one in store.reports().values())
    assert not any(text in said for text in ITEMS.values())
    assert filed_worth.filed(found, store) == filed, "the same audit is kept once"
    forks = Forks(store)
    few = worth_audit.carry_out(worth_audit.plan(Memory(store, "walks"), forks, n=4), forks)
    assert not {*filed_worth.filed(few, store)} & {*filed}
    known = filed_worth.known(store.reports(), "walks", (ids["bad"],))
    assert known.reports["success"].n == 60, "fewer pairs of the same forks do not take the place of more"
    other = Forks(store, seed=1)
    few = worth_audit.carry_out(worth_audit.plan(Memory(store, "walks"), other, n=4), other)
    filed_worth.filed(few, store)
    known = filed_worth.known(store.reports(), "walks", (ids["bad"],))
    assert [report.n for report in known.reports.values()] == [4, 4], "another audit does"


# ---- statistics ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("up", "down"), [(0, 0), (5, 0), (7, 2), (3, 3), (20, 8)])
def test_flips_of_single_pairs_are_mcnemars_test(up: int, down: int) -> None:
    flipped = design.sign_flips([1] * up + [-1] * down + [0] * 4)
    assert flipped == pytest.approx(design.mcnemar(up, down))


def test_flips_turn_a_run_round_as_a_whole() -> None:
    assert design.sign_flips([4, 0, 0]) == 1.0, "one run alone shows nothing, however often it was forked"
    assert design.sign_flips([4, 4, 4, 4, 4, 4]) == pytest.approx(2 / 2**6)
    assert design.sign_flips([3, 2, -1]) == pytest.approx(2 * 2 / 8)


def test_a_test_that_can_give_no_small_p_costs_the_others_nothing() -> None:
    assert design.attainable([0, 0, 0]).tolist() == [1.0]
    assert design.attainable([1, -1, 1]).tolist() == pytest.approx([0.25, 1.0])
    assert design.attainable([3, 2, -1]).tolist() == pytest.approx([0.25, 0.5, 0.75, 1.0])
    one, nothing = [1] * 9, [0] * 40
    p = [design.sign_flips(it) for it in (one, *[nothing] * 30)]
    fixed = design.holm_discrete(p, [design.attainable(it) for it in (one, *[nothing] * 30)])
    assert fixed[0] == pytest.approx(p[0])
    assert fixed[0] < design.holm(p)[0]
    assert set(fixed[1:]) == {1.0}
    every = [[1] * n for n in (9, 10, 11)]
    p = [design.sign_flips(it) for it in every]
    fixed = design.holm_discrete(p, [design.attainable(it) for it in every])
    assert all(a <= b + 1e-12 for a, b in zip(fixed, design.holm(p), strict=True))
    assert fixed == sorted(fixed, reverse=True)


def test_the_paired_interval_has_a_width_where_nothing_differs() -> None:
    few, many = (design.paired("x", [0.0] * n) for n in (8, 60))
    assert few.high > 0.2 > 0.1 > many.high > 0.03
    assert (few.low, many.low) == (-few.high, -many.high)
    sure = design.paired("x", [1.0] * 12)
    assert (sure.estimate, sure.high) == (1.0, 1.0)
    assert 0.3 < sure.low < 0.9


def pairs(n: int, difference: tuple[float, float, float], runs: int | None = None) -> list[Pair]:
    """Pairs of one difference: success, turns, tokens."""
    base = (0.0, 10.0, 100.0)
    present = tuple(a + b for a, b in zip(base, difference, strict=True))
    return [Pair(f"r{i % (runs or n)}", present, base) for i in range(n)]


def verdict(these: list[Pair]) -> tuple[str, str]:
    one = Subject("item", ("a",))
    found = judged({one: these}, {one: "item a"}, fallible=True)[0]
    return found.verdict, found.why


def test_cost_decides_only_where_success_does_not_change() -> None:
    assert verdict(pairs(60, (0, 0, 30))) == ("harmful", "30% more tokens, and success does not change")
    assert verdict(pairs(60, (0, 0, -30)))[0] == "helpful"
    assert verdict(pairs(60, (0, 0, 5)))[0] == "no effect shown", "an item costs what it takes to read it"
    assert verdict(pairs(12, (0, 0, 30)))[0] == "cannot tell"
    assert verdict(pairs(40, (0, 0, -30)))[0] == "cannot tell", "a saving must not be paid for by half the margin"
    assert verdict(pairs(20, (1, 0, 30))) == ("helpful", "success rises")
    assert verdict(pairs(60, (1, 0, 0), runs=3))[0] == "cannot tell", "many forks of few runs are few runs"


def test_what_copies_do_together_counts_for_each_of_them() -> None:
    one, other, both = Subject("item", ("a",)), Subject("item", ("b",)), Subject("copies", ("a", "b"))

    def called(together: list[Pair]) -> set[str]:
        measured = {one: pairs(60, (0, 0, 0)), other: pairs(60, (0, 0, 0)), both: together}
        found = judged(measured, dict.fromkeys(measured, "x"), fallible=True)
        return {it.verdict for it in found if it.subject.kind == "item"}

    assert called(pairs(60, (1, 0, 0))) == {"redundant"}
    assert called(pairs(60, (0, 0, 0))) == {"no effect shown"}
    assert called([one._replace(without=(1.0, 10.0, 100.0)) for one in pairs(60, (0, 0, 0))]) == {"harmful"}
    assert called(pairs(8, (0, 0, 0))) == {"cannot tell"}


def test_pairs_that_were_not_judged_decide_nothing() -> None:
    lost = [one._replace(without=(math.nan, 10.0, 100.0)) for one in pairs(10, (1, 0, 0))]
    assert verdict([*pairs(40, (1, 0, 0)), *lost]) == ("cannot tell", "10 of 50 pairs were not judged")
    one = Subject("item", ("a",))
    assert judged({one: lost}, {one: "item a"}) == []


def test_a_store_on_disk_keeps_what_was_made(tmp_path: Path) -> None:
    with open_store(tmp_path / "s.db") as store:
        planted(store, runs=3)
        forks = Forks(store)
        it = worth_audit.plan(Memory(store, "walks"), forks, n=3)
        worth_audit.carry_out(it, forks)
    with open_store(tmp_path / "s.db") as store:
        again = worth_audit.plan(Memory(store, "walks"), Forks(store), n=3)
        assert (again.cost.forks, again.found) == (0, len(it.jobs))
