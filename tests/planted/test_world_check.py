"""Planted simulated worlds that `clew world check` must tell from faithful ones, one of which has its own ids."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence

import pytest

from clew.cli.world_check import agreement
from clew.core.errors import WorldError
from clew.core.keys import state_key
from clew.core.values import Observation, ToolCall
from clew.methods.world_model.fidelity import Acted, Monitor, played, share
from clew.methods.world_model.run_check import Checked, comparisons, contents, repeats

PRICES = {"tea": 1250, "rice": 480}
CALLS = [("order", "tea"), ("order", "rice"), ("get", "0"), ("get", "1"), ("get", "0"), ("cancel", "0"), ("get", "0")]


class Shop:
    """Takes orders and gives them ids; a simulated shop is one with other ids, and perhaps other faults."""

    restores, tools = "reenact", ()

    def __init__(self, ids: Callable[[int], str], prices: dict[str, int] = PRICES) -> None:
        self.ids, self.prices, self.orders = ids, prices, dict[str, list[str]]()

    @property
    def state_key(self) -> bytes:
        return state_key("shop", json.dumps(self.orders))

    def observe(self) -> Observation:
        return Observation("The shop is open.")

    def step(self, action: ToolCall) -> Observation:
        given = json.loads(action.arguments)
        if action.name == "order":
            id = self.ids(len(self.orders))
            self.orders[id] = [given["what"], "open"]
            return Observation(json.dumps({"id": id, "price": self.prices[given["what"]]}))
        if given["id"] not in self.orders:
            raise WorldError(f"no order {given['id']}")
        if action.name == "cancel":
            self.orders[given["id"]][1] = "cancelled"
        what, how = self.orders[given["id"]]
        return Observation(json.dumps({"id": given["id"], "what": what, "state": how, "price": self.prices[what]}))

    def close(self) -> None:
        pass


def real() -> Shop:
    return Shop(lambda n: f"ord-{9000 + n}")


def acted(world: Shop, spoiled: Callable[[int, str], str] = lambda turn, text: text) -> list[Acted]:
    """The acts of a run in a simulated shop, each with what that answered."""
    ids, found = list[str](), list[Acted]()
    for turn, (name, what) in enumerate(CALLS):
        given = {"what": what} if name == "order" else {"id": ids[int(what)]}
        call = ToolCall(f"c{turn}", name, json.dumps(given))
        text = world.step(call).text
        ids += [json.loads(text)["id"]] if name == "order" else []
        found.append(Acted(call, spoiled(turn, text)))
    return found


def checked(acts: Sequence[Acted], world: object = None, alone: bool = False) -> Checked:
    turns = asyncio.run(played(world or real(), acts, "Serve the shop."))
    return Checked("r", "t", [], turns, "Serve the shop.", alone)


def shares(one: Checked) -> tuple[float, float]:
    return tuple(round(agreement([one], form=form).estimate, 2) for form in (False, True))


# ---- what must be told as faithful, and is ---------------------------------------------------------------------------


def test_the_real_world_agrees_with_itself():
    one = checked(acted(real()))
    assert shares(one) == (1.0, 1.0)
    assert comparisons([one]).tested
    assert [it.same for it in repeats(one)] == [True]


def test_a_consistent_world_with_ids_of_its_own_agrees_in_form():
    one = checked(acted(Shop(lambda n: f"A{7001 - 3 * n}x")))
    assert shares(one) == (0.0, 1.0)
    assert [it.same for it in repeats(one)] == [True]
    assert set(contents([one])[0]) <= {"determined", "stored", "runtime"}


# ---- what must not ---------------------------------------------------------------------------------------------------


def own(n: int) -> str:
    return f"A{7001 + n}x"


def again(turn: int, text: str) -> str:
    return text.replace("open", "lost") if turn == 4 else text


FLATTERERS = {
    "says done to everything": (own, PRICES, lambda turn, text: "Done, as requested!"),
    "one id for two orders": (own, PRICES, lambda turn, text: text.replace("A7002x", "A7001x")),
    "another id each time": (own, PRICES, lambda turn, text: text.replace("x", f"y{turn}{turn}{turn}")),
    "a word of its own": (own, PRICES, lambda turn, text: text.replace("open", "shipped")),
    "a price that changes": (own, PRICES, lambda turn, text: text.replace("1250", f"{1300 + turn}")),
    "two prices swapped later": (own, PRICES, lambda turn, text: text.replace("1250", "480") if turn > 1 else text),
    "contradicts itself": (own, PRICES, again),
}


@pytest.mark.parametrize("planted", FLATTERERS)
def test_a_world_that_is_not_consistent_does_not_agree_in_form(planted):
    ids, prices, spoiled = FLATTERERS[planted]
    exact, form = shares(checked(acted(Shop(ids, prices), spoiled)))
    assert exact == 0
    assert form < 1


def test_a_contradiction_is_found_with_the_real_world_and_without():
    spoiled = acted(Shop(own), again)
    for alone in (False, True):
        found = repeats(checked(spoiled, alone=alone))
        assert [(it.first, it.again, it.same) for it in found] == [(2, 4, False)], "the last get is after a change"


def test_a_real_world_that_always_answers_the_same_tests_nothing():
    class Ok(Shop):
        def step(self, action):
            return Observation("ok")

    one = checked([Acted(act.action, "ok") for act in acted(real())], Ok(own))
    assert comparisons([one]).verdict("agrees") == "not tested: the real world answered all 7 turns the same"


def test_runs_in_which_nothing_is_compared_have_no_share_and_count_for_no_bound():
    turns = asyncio.run(played(real(), [act._replace(compared=False) for act in acted(real())]))
    assert share(turns) is None
    assert not comparisons([Checked("r", "t", [], turns)]).tested
    monitor = Monitor(0.9)
    for _ in range(60):
        monitor.add(0.4)
        if monitor.fallen:
            break
    assert monitor.n < 20


def test_no_repeated_question_is_no_consistency():
    acts = acted(real())[:3]
    assert repeats(checked(acts)) == []
    assert repeats(checked(acts, alone=True)) == []
