"""The whole cost of a memory: read from the store where it is recorded, and told with when it is back."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from clew.core.errors import BadInput
from clew.core.records import Report
from clew.harness.memory import Memory
from clew.methods.memory.lessons import Cost, Lesson, Reflection, Spent, learn
from clew.methods.memory.lessons.references import FunctionReflector
from clew.methods.memory.lessons.spent import ledger, lines_of, spend
from clew.store import MemoryStore
from clew.store.contract import Script
from clew.store.entries import entry
from tests.audit.reflected import played


def saved(estimate: float, low: float, high: float) -> Report:
    return Report(claim="tokens saved per task", estimate=estimate, low=low, high=high, n=20, design="paired")


SPENT = Spent(executor=Cost(9000, 100, 30), reflection=Cost(700, 200, 4), building=Cost(90, 10, 1))


def test_costs_add_up_part_by_part():
    both = SPENT.plus(SPENT)
    assert both.reflection == Cost(1400, 400, 8)
    assert both.checking == Cost()
    assert SPENT.overhead == Cost(790, 210, 5)
    assert SPENT.overhead.tokens == 1000


@pytest.mark.parametrize(
    ("report", "says"),
    [
        (saved(50, 20, 100), "20 tasks [10, 50]"),
        (saved(50, 0, 100), "not known: the saving's interval reaches 0, at least 10 tasks"),
        (saved(50, -10, 100), "not known: the saving's interval reaches 0, at least 10 tasks"),
        (saved(-5, -10, 100), "not known: the saving's interval reaches 0, at least 10 tasks"),
        (saved(-5, -10, 0), "never: 1,000 tokens were spent and none are saved"),
        (saved(-5, -10, -1), "never: 1,000 tokens were spent and none are saved"),
    ],
)
def test_when_what_was_spent_is_back(report, says):
    assert SPENT.back(report).text == says


def test_the_limits_of_when_it_is_back_are_those_of_the_saving():
    back = SPENT.back(saved(50, 20, 100))
    assert (back.tasks, back.low, back.high) == (20.0, 10.0, 50.0)
    assert SPENT.back(saved(50, 0, 100)).high is None
    assert Spent(executor=Cost(5, 5, 1)).back(saved(1, 1, 1)).tasks == 0.0


def test_a_saving_is_told_with_its_cost_and_without_one_nothing_is_promised():
    assert SPENT.beside(saved(50, 20, 100)) == [
        "cost in tokens: executor 9,100 (30 calls); reflection 900 (4 calls); building 100 (1 call)",
        "break-even: 20 tasks [10, 50]",
    ]
    assert SPENT.beside()[1] == "break-even: not known, no saving was measured; 1,000 tokens to earn"


def test_the_published_figures_do_not_pay_within_their_test_set():
    """arXiv 2606.24151, resampled split: 11.8 M tokens of reflection, 23.2 K tokens saved in each of 168 tasks."""
    back = Spent(reflection=Cost(11_800_000)).back(saved(23_200, 23_200, 23_200))
    assert back.tasks is not None
    assert 500 < back.tasks < 520


def test_the_ledger_is_read_where_the_figures_are_recorded():
    store = MemoryStore()
    memory = Memory(store, "shop")
    item = memory.add("fact", {"text": "the bakery opens at six"}, by="ann")
    with_item, without = Script(store).play(3), Script(store).play(5)
    store.put_entries([entry("shop", item.id, 5.0, "selected", {"place": f"{with_item.id}@1", "query": "q"})])
    store.put_entries([spend("shop", "building", Cost(30, 10, 2, 0.5), plan=item.id)])
    store.put_entries([spend("shop", "checking", Cost(5, 0, 1))])
    store.put_entries([spend("elsewhere", "checking", Cost(500, 0, 1))])
    found = ledger(store, "shop")
    assert (found.executor.read, found.executor.written, found.executor.calls) == (6, 6, 3)
    assert found.executor.dollars == pytest.approx(0.003)
    assert found.building == Cost(30, 10, 2, 0.5)
    assert found.checking == Cost(5, 0, 1)
    assert found.retrieval == Cost(calls=1)
    assert found.reflection == Cost()
    assert without.id not in {str(line) for line in lines_of(store, "shop")}
    assert [line["plan"] for line in lines_of(store, "shop", "building")] == [item.id]


def test_what_reflection_costs_is_in_the_ledger_and_survives_the_deletion_of_items():
    pytest.importorskip("bm25s", reason="did not run: the extra [memory] is not installed")
    store = MemoryStore()
    memory, run = Memory(store, "shop"), played(store)
    lesson = Lesson("fact", {"text": "A fetch before the login fails with error 401."}, (), (f"{run.id}@2",))
    found = Reflection((lesson,), Spent(reflection=Cost(100, 20, 2), checking=Cost(1, 1, 1)))
    done = asyncio.run(learn(memory, run, FunctionReflector(lambda view: found, "mine")))
    assert done.spent == ledger(store, "shop") == found.spent
    memory.delete([memory.items()[0].id])
    assert ledger(store, "shop") == found.spent
    assert store.verify() == []


@pytest.mark.parametrize(
    "figures", [{"read": "many"}, {"read": -5}, {"read": True}, {"part": "magic"}, {"calls": 1e400}]
)
def test_a_line_that_says_nonsense_counts_nothing(figures):
    store = MemoryStore()
    told = {"part": "checking", "read": 0, "written": 0, "calls": 0, **figures}
    with suppress(BadInput):  # infinity is no JSON
        store.put_entries([entry("shop", "x", 1.0, "spent", told)])
    assert ledger(store, "shop").overhead.tokens <= 1


def test_lines_of_the_ledger_unite_with_those_of_another_store():
    one, two = MemoryStore(), MemoryStore()
    one.put_entries([spend("shop", "checking", Cost(5, 0, 1))])
    two.put_entries([spend("shop", "checking", Cost(7, 0, 1))])
    two.merge(one)
    two.merge(one)
    assert ledger(two, "shop").checking == Cost(12, 0, 2)
