"""When a plan has earned a tool and when a tool returns to text: shapes of queries, ski rental, the Beta bound."""

from __future__ import annotations

import math
import random
from itertools import product

import pytest

from clew.core.errors import BadInput
from clew.harness.memory import Item
from clew.harness.memory.fold import Given
from clew.methods.memory.craft import Fixed, Recurrence, SkiRental, demoted, due
from clew.methods.memory.craft.demotion import beta_below
from clew.methods.memory.craft.query_shapes import WORDS, shape, shapes
from clew.methods.memory.craft.thresholds import NEVER, measured, recurrence


def plan(*queries: str, id: str = "p", state: str = "active") -> Item:
    given = tuple(Given(f"run{i}@1", query, float(i)) for i, query in enumerate(queries))
    return Item(id=id, memory="m", kind="plan", body={"text": "do it"}, by="ann", given=given, state=state)


def tool(plan: str, count: int, state: str = "active") -> Item:
    body = {"name": "t", "doc": "d", "from_plan": plan, "checks": f'{{"count": {count}}}'}
    return Item(id=f"t{count}", memory="m", kind="tool", body=body, state=state, by="ann")


@pytest.mark.parametrize(
    ("queries", "count"),
    [
        (["Pay the bill."] * 9, 1),
        (["Pay bill 12.", "pay bill 4,711", "Pay bill 3!"], 1),
        (["Find 'a b' now", 'Find "c" now', "Find `d` now"], 1),
        (["Open ab12-9f of 2026-01-03", "Open zz99 of 2025-12-24"], 1),
        (["Write to ann@x.org", "Write to bob@y.net", "Write to http://z.org/a"], 1),
        (["Count my bills from Ana", "Count my bills from Bram", "Count my bills from Chloe"], 1),
        (["Count my bills from Ana labelled food", "Count my bills from Bram labelled rent"], 2),
        (["Count my bills", "How many bills are there", "Tell me how many bills I have"], 3),
        ([], 0),
        ([""], 1),
    ],
)
def test_queries_of_one_shape_count_once(queries: list[str], count: int) -> None:
    assert len(shapes(queries)) == count
    assert recurrence(plan(*queries)).shapes == count


def test_a_shape_is_bounded_and_reads_no_pattern_for_ever() -> None:
    assert len(shape("a-1 " * 5000)) == len(shape("'" * 3000)) == WORDS
    assert shape("a-1" * 5000) == ("<id>",)
    assert len(shapes(f"word{chr(97 + i % 26)}{'x' * (i % 300)} here" for i in range(1000))) <= 2


def test_one_repeated_query_earns_no_tool() -> None:
    for threshold in (Fixed(2), SkiRental(100, 50), Fixed(2, "queries"), SkiRental(100, 50, of="queries")):
        assert not due([plan(*["Pay bill 12."] * 50)], threshold)[0].ready
    numbers = plan(*(f"Pay bill {i}." for i in range(50)))
    assert not due([numbers], SkiRental(100, 50))[0].ready, "only its number differs"
    assert due([numbers], SkiRental(100, 50, of="queries"))[0].ready, "asked for by of="
    assert due([plan("Pay bills", "Clear what I owe")], Fixed(2))[0].ready


def test_a_plan_that_was_tried_waits_for_as_many_more() -> None:
    asked = ["Pay bills", "Clear what I owe", "Settle it all", "Take care of payment today", "Please do pay"]

    def ready(n: int, *more: Item, tries: list[int] | None = None) -> bool:
        found = due([plan(*asked[:n]), *more], Fixed(2), tries={"p": tries or []})
        return bool(found) and found[0].ready

    assert [ready(n) for n in (1, 2)] == [False, True]
    assert [ready(n, tries=[2]) for n in (2, 3, 4)] == [False, False, True]
    assert [ready(n, tool("p", 3, "retired")) for n in (4, 5)] == [False, True]
    assert not ready(5, tool("p", 2)), "it has a tool"
    assert due([plan(*asked, state="retired")], Fixed(1)) == []


def cost(n: int, build: float, text: float, tool: float, rule: SkiRental | Fixed, before: bool) -> float:
    """What a stream of n uses costs: ``before`` a use or after it the rule is asked whether to build."""
    spent, built = 0.0, False
    for use in range(1, n + 1):
        seen = Recurrence(use, use, use)
        if not built and before and rule.need(seen, 1).have >= rule.need(seen, 1).theta:
            spent, built = spent + build, True
        spent += tool if built else text
        if not built and not before and rule.need(seen).have >= rule.need(seen).theta:
            spent, built = spent + build, True
    return spent


def test_ski_rental_is_within_twice_the_clairvoyant_choice_on_every_stream() -> None:
    """The clairvoyant choice knows the length of the stream: no tool, or one before the first use."""
    sweep = product((10, 900, 5000, 40_000), (100, 1000, 1700), (0.0, 0.3, 0.74, 0.95), (1, 2, 3, 5, 9, 20, 60, 200))
    rules = {f"theta {theta}": Fixed(theta) for theta in (1, 2, 3, 5, 8)}
    worst = dict.fromkeys(["ski rental", *rules], 0.0)
    for build, text, share, n in sweep:
        tool = share * text
        ski = SkiRental(build, text - tool, floor=1)
        best = min(n * text, build + n * tool)
        for before in (True, False):
            spent = cost(n, build, text, tool, ski, before)
            extra = 0.0 if before else (text - tool)  # a build after a use has paid one use more
            assert spent <= 2 * best + extra + 1e-6, (build, text, share, n, before)
        ratios = {name: cost(n, build, text, tool, rule, True) / best for name, rule in rules.items()}
        ratios["ski rental"] = cost(n, build, text, tool, ski, True) / best
        worst = {name: max(ratio, worst[name]) for name, ratio in ratios.items()}
    assert worst["ski rental"] <= 2
    assert min(ratio for name, ratio in worst.items() if name != "ski rental") > 5, worst


def test_ski_rental_goes_by_what_was_measured() -> None:
    assert SkiRental(1000, 300).theta == 4
    assert SkiRental(1000, 0).theta == NEVER
    assert "never pays" in SkiRental(1000, -1).need(Recurrence(9, 9, 9)).why
    guessed = measured([], [1000.0, 1000.0], [], 2600)
    assert (guessed.build, guessed.theta) == (2600, 6), "half of a text run, until a tool was used"
    known = measured([3000, 1000], [1000], [0.8, 0.8], 0)
    assert (known.build, known.saving, known.theta) == (2000, pytest.approx(700), 3), "the prior counts as one tool"
    assert measured([1000], [1000], [-1.0, -1.0], 0).theta == NEVER
    assert measured([1000], [1000], [], 0, prior=0.25).theta == 4
    assert measured([], [], [], 10).theta == NEVER
    for wrong in ((-1, 1), (math.inf, 1), (1, math.nan)):
        with pytest.raises(BadInput):
            SkiRental(*wrong)
    with pytest.raises(BadInput):
        Fixed(0)
    with pytest.raises(BadInput):
        Fixed(1, "words")  # type: ignore[arg-type]


def test_the_chance_of_one_beta_below_another_is_exact() -> None:
    assert beta_below((1, 1), (1, 1)) == pytest.approx(0.5)
    assert beta_below((2, 1), (1, 2)) == pytest.approx(1 / 6)
    assert beta_below((3, 4), (5, 2)) + beta_below((5, 2), (3, 4)) == pytest.approx(1)


def test_a_tool_returns_to_text_where_it_is_worse_and_not_where_it_is_as_good() -> None:
    assert not demoted([], [True] * 20)
    assert not demoted([True] * 20, [True] * 20), "a bound on the tool alone would demote it"
    assert not demoted([True] * 5 + [False], [True] * 20)
    gone = demoted([True] * 80 + [False] * 8, [True] * 20)
    assert gone
    assert "in 12 of its last 20 runs and the plan in 20 of 20" in gone.why
    dice = random.Random(3)
    falsely, took = 0, []
    for _ in range(60):
        text = [dice.random() < 0.9 for _ in range(20)]
        outcomes = [True] * 3
        for _ in range(60):
            outcomes.append(dice.random() < 0.9)
            if demoted(outcomes, text):
                falsely += 1
                break
        drifted = [dice.random() < 0.9 for _ in range(20)]
        while not demoted(drifted, text):
            drifted.append(False)
        took.append(len(drifted) - 20)
    assert falsely <= 6, "of 60 tools as good as their plans over 60 runs each"
    assert max(took) <= 20, "a tool that always fails returns within the window"
    with pytest.raises(BadInput):
        demoted([True], [True], level=1.0)
