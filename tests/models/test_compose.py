"""Models that wrap Models: no power is lost or gained, and what is asked inside an answer is in the record."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest

from clew.core import protocols
from clew.core.errors import ModelError
from clew.core.protocols import Model
from clew.core.records import Request
from clew.core.values import Completion, Limits, Message, Usage
from clew.harness import Runner
from clew.harness.run.pending import batches
from clew.models.compose import Forwarding, combined
from clew.models.compose.forwarding import POWERS
from clew.models.contract import check_model
from clew.models.fakes import Markov, Scripted
from clew.store import open_store
from clew.worlds.sums import Sums

from .helpers import ask


class Shouting(Forwarding):
    """Changes requests and answers."""

    def asked(self, request: Request) -> Request:
        return request._replace(seed=request.seed + 1)

    def answered(self, request: Request, completion: Completion) -> Completion:
        if request.seed == 13:
            raise ModelError("thirteen")
        return completion._replace(message=Message("assistant", completion.message.text.upper()))


class Bare:
    """A Model without further powers."""

    ref, version, renderer = "bare", 0, None

    async def complete(self, request: Request) -> Completion:
        return Completion(Message("assistant", "well"))


def with_powers(kinds: tuple[type, ...]) -> Model:
    """A Bare with the methods of these protocols."""
    methods = {name: lambda self: None for kind in kinds for name in vars(kind) if not name.startswith("_")}
    made: Model = type("Some", (Bare,), methods)()
    return made


@pytest.mark.parametrize("base", [Forwarding, Shouting])
def test_a_wrapper_has_exactly_the_powers_of_what_it_wraps(base: type[Forwarding]) -> None:
    assert set(POWERS) == {
        kind for kind in vars(protocols).values() if getattr(kind, "_is_runtime_protocol", False)
    } - {protocols.Snapshots}, "a new power of models must be forwarded as well"
    for many in range(len(POWERS) + 1):
        for kinds in itertools.combinations(POWERS, many):
            model = with_powers(kinds)
            wrapper = base(base(model))
            for kind in POWERS:
                assert isinstance(wrapper, kind) == issubclass(type(wrapper), kind) == isinstance(model, kind), kind
            assert batches(wrapper) == batches(model)
            assert isinstance(wrapper, base)


def test_the_contract_holds_through_two_wrappers() -> None:
    pytest.importorskip("torch", reason="did not run: torch is not installed")
    from clew.models.local import small

    model = small(["where", "is", "the", "cup", "go", "on"], d=16, layers=1, heads=2, kv_heads=1)
    try:
        wrapper = Forwarding(Forwarding(model), ref="twice")
        prompts = ("where is the cup", "go on")
        assert check_model(wrapper, prompts) == check_model(model, prompts)
        model.publish()
        assert (wrapper.version, wrapper.ref, wrapper.renderer) == (1, "twice", model.renderer)
        assert (wrapper.fingerprint, wrapper.context) == (model.fingerprint, model.context)
        assert not hasattr(wrapper, "price")
        _same_whatever_the_way(Shouting(model), model)
    finally:
        model.close()
    assert check_model(Forwarding(Markov())) == check_model(Markov())


def _same_whatever_the_way(wrapper: Any, model: Any) -> None:
    """complete, submit and stream all pass both hooks; a hook that raises fails its own request."""
    asked = [ask("go on", renderer=model.renderer, head=model.renderer.head(), seed=s) for s in (11, 12, 13)]
    want = [asyncio.run(model.complete(r._replace(seed=r.seed + 1))).message.text.upper() for r in asked[:2]]
    assert [asyncio.run(wrapper.complete(r)).message.text for r in asked[:2]] == want

    async def batch() -> list[Any]:
        loop, came, all_in = asyncio.get_running_loop(), {}, asyncio.Event()

        def take(results: list[Any]) -> None:
            came.update(results)
            if len(came) == 3:
                all_in.set()

        wrapper.submit(asked, lambda results: loop.call_soon_threadsafe(take, results))
        await asyncio.wait_for(all_in.wait(), 30)
        return [came[i] for i in range(3)]

    *good, bad = asyncio.run(batch())
    assert [done.message.text for done in good] == want
    assert isinstance(bad, ModelError)

    async def stream() -> Any:
        return [item async for item in wrapper.stream(asked[0])][-1]

    assert asyncio.run(stream()).message.text == want[0]


class Router:
    """Asks the small model first, and the large one where the small one is unsure."""

    ref, version, renderer = "router", 0, None

    def __init__(self, small: Model, large: Model) -> None:
        self.small, self.large, self.calls = small, large, 0

    async def complete(self, request: Request) -> Completion:
        self.calls += 1
        asked = [(self.small, await self.small.complete(request))]
        if "unsure" in asked[0][1].message.text:
            asked.append((self.large, await self.large.complete(request)))
        return combined(asked[-1][1], asked)


def _says(text: str, name: str, cost: float) -> Completion:
    return Completion(Message("assistant", text), model=name, usage=Usage(5, 2, 1), cost=cost)


def test_what_a_router_asked_is_in_the_record_and_paid_once(tmp_path: Any) -> None:
    path = str(tmp_path / "runs.db")
    small = Scripted([_says("unsure", "s-1", 0.01), _says("= 4", "s-1", 0.01)] * 9)
    large = Scripted({"": _says("2 + 2", "l-1", 0.5)})
    small.ref, large.ref = "small", "large"
    router = Router(small, Router(large, large))
    runner = Runner("clew.harness.agents:player", Sums(), router, path, limits=Limits(steps=2))
    tasks = Sums().sample(1)
    (run,) = runner.collect(tasks, n=1).runs
    asks = [call for call in run.calls if call.kind == "ask"]
    assert [one.model for one in asks[0].inner] == ["small", "large"]
    assert asks[0].cost == pytest.approx(0.51)
    assert asks[0].usage == Usage(10, 4, 2)
    runner.store.close()
    store = open_store(path)
    again = store.run(run.id)
    kept = [call for call in again.calls if call.kind == "ask"]
    assert [call.inner for call in kept] == [call.inner for call in asks]
    first = kept[0].inner[0]
    assert (first.served_by, first.text, first.usage, first.cost) == ("s-1", "unsure", Usage(5, 2, 1), 0.01)
    assert sum(one.cost for one in kept[0].inner) == pytest.approx(kept[0].cost)
    assert again.cost == pytest.approx(sum(call.cost for call in kept))
    assert store.verify() == []
    assert store.find("text:unsure") == [run.id]
    before = router.calls
    replayed = Runner("clew.harness.agents:player", Sums(), router, store).replay(run.id)
    assert router.calls == before
    assert replayed.calls == len(again.calls), "a replay proves every key"
    (other,) = Runner("clew.harness.agents:player", Sums(), router, limits=Limits(steps=2)).collect(tasks, n=1).runs
    assert [call.key for call in other.calls] == [call.key for call in again.calls]
    store.close()
