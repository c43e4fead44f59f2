"""One model in front of a pool: who is asked, who never is, and what becomes of failures. The workers are sockets."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import clew
from clew.core.errors import BadInput, BadRecord, Busy, ModelError, Refused, UnknownName, Unreachable
from clew.core.keys import node_key, text_key
from clew.core.records import Node, Request, Wire
from clew.core.values import Completion, Inner, Message, Sampling, ToolCall, ToolSpec
from clew.models.compose import router
from clew.models.compose.breaker import Breaker
from clew.models.compose.decision import decision_of
from clew.models.compose.ledger import Ledger, key_of, read_ledger
from clew.models.compose.ngrams import Ngrams
from clew.models.compose.policy import Policy
from clew.models.compose.routed import Routed
from clew.models.compose.router import Worker
from clew.models.contract import check_model
from clew.models.images import image, with_images
from clew.models.rendering import WordRenderer

from .pool import Server, folder, said, servers, worker

WEATHER = ToolSpec("weather", "Tells it.", {"type": "object", "properties": {"city": {"type": "string"}}})


def asked(*messages: Message | str, **fields: Any) -> Request:
    nodes = list[Node]()
    for one in messages:
        message, prev = Message("user", one) if isinstance(one, str) else one, nodes[-1] if nodes else None
        parent, text = (prev.key, prev.text_key) if prev else (b"", b"")
        key = node_key(parent, message, None, "")
        nodes.append(Node(key, parent, message, None, "", text_key(text, message)))
    return Request(tuple(nodes), **fields)


def routed(path: Path, tail: str = "", **options: Any) -> Any:
    return clew.model(f"route:{path}{tail}", **options)


def complete(model: Any, *messages: Message | str, **fields: Any) -> Completion:
    done: Completion = asyncio.run(model.complete(asked(*messages, **fields)))
    return done


def one_by_one(model: Any, count: int) -> list[Any]:
    """Answers and errors of requests one after another, over the connections of one event loop."""

    async def ask() -> list[Any]:
        return [(await asyncio.gather(model.complete(asked("hi")), return_exceptions=True))[0] for _ in range(count)]

    return asyncio.run(ask())


def told(done: Completion) -> Any:
    decision = decision_of(done.inner)
    assert decision is not None
    return decision


def test_the_whole_request_goes_on_and_the_answer_comes_back(tmp_path: Path) -> None:
    with servers("small", "large") as (small, large):
        folder(tmp_path, [worker(small), worker(large)], [0, 1])
        call = {"id": "c9", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Lima"}'}}
        large.answer = lambda body: said("", tool_calls=[call])
        done = complete(routed(tmp_path), "How is it in Lima?", tools=(WEATHER,), sampling=Sampling(77, 0.5))
        assert done.message.calls == (ToolCall("c9", "weather", '{"city": "Lima"}'),)
        assert (done.model, done.finish, done.usage[:2]) == ("large", "tool_calls", (10, 4))
        assert (small.accepted, large.accepted) == (0, 1)
        (body,) = large.bodies
        assert body["tools"][0]["function"]["name"] == "weather"
        assert (body["model"], body["temperature"], body["max_tokens"]) == ("m", 0.5, 77)
        decision, answer = done.inner
        assert done.cost == answer.cost == pytest.approx((10 * 1 + 4 * 2) / 1e6)
        assert decision.cost == 0
        assert told(done).worker == told(done).first == "large"
        assert told(done).scores["large"] > told(done).scores["small"]


def test_streams_come_through_and_a_worker_that_fails_before_them_is_replaced(tmp_path: Path) -> None:
    with servers("first", "second") as (first, second):
        folder(tmp_path, [worker(first), worker(second)])
        first.answer = lambda body: (500, {"error": {"message": "down"}})

        async def pieces() -> list[Any]:
            return [item async for item in routed(tmp_path).stream(asked("hi"))]

        *parts, done = asyncio.run(pieces())
        assert parts == ["I ", "am ", "second"]
        assert done.message.text == "I am second"
        assert (told(done).worker, told(done).first) == ("second", "first")
        assert "500: down" in told(done).failed["first"]
        assert [one.status for one in done.attempts] == [500, 200]
        assert any("in place of first" in line for line in told(done).lines())


PIXEL = b"GIF89a\x01\x00\x01\x00\x00\x00\x00;"


class Reads:
    """A worker that takes token ids: says the prompt's words back."""

    ref, version, renderer = "reads", 3, WordRenderer(["where", "is", "it"])

    async def complete(self, request: Request) -> Completion:
        ids = [i for node in request.path for i in node.ids or ()]
        text = self.renderer.decode((*ids, *request.head, *request.forced))
        spoken = self.renderer.encode(text)
        return Completion(Message("assistant", text), spoken, np.zeros(len(spoken), np.float32), version=3)


def test_workers_that_do_not_stream_or_take_tokens_keep_the_contract(tmp_path: Path) -> None:
    folder(tmp_path, [Worker("words", "markov"), Worker("echo", "echo")])
    assert "check_streams" in check_model(routed(tmp_path))
    assert "check_streams" in check_model(routed(tmp_path, "#echo"))
    done = complete(Routed(made(), [Reads()]), "where is", "it", forced_text="is")
    assert done.message.text == "where is it is"
    assert (done.tokens, done.logprobs, done.version) == (None, None, 0)
    assert len(done.inner[1].tokens or ()) == 4, "what was sampled is in the record of the worker"
    assert done.inner[1].version == 3
    with pytest.raises(BadInput, match="cannot show tools"):
        complete(Routed(made(), [Reads()]), "where", tools=(WEATHER,))
    shown = with_images(Message("user", "where"), [image(PIXEL)])
    with pytest.raises(BadInput, match="reads text alone"):
        complete(Routed(made(), [Reads()]), shown)


# ---- masks: no connection at all -------------------------------------------------------------------------------------


SUBSETS = [subset for size in range(5) for subset in itertools.combinations("abcd", size)]


def test_a_masked_worker_is_never_connected_to_for_any_subset(tmp_path: Path) -> None:
    """All subsets of four, where every worker fails: each that is allowed is tried once, each masked one never."""
    with servers("a", "b", "c", "d") as pool:
        for one in pool:
            one.answer = lambda body: (503, {"error": {"message": "down"}})
        folder(tmp_path, [worker(one) for one in pool], [0.1, 0.4, 0.2, 0.3])
        model = routed(tmp_path, failures=1000)

        async def each() -> None:
            for subset in SUBSETS:
                before = [one.accepted for one in pool]
                with pytest.raises(Unreachable if len(subset) else Refused):
                    await model.complete(asked("hi", policy={"allow": list(subset)}))
                after = [one.accepted - old for one, old in zip(pool, before, strict=True)]
                assert after == [int(one.name in subset) for one in pool], subset

        asyncio.run(each())


def test_the_best_of_those_allowed_answers_for_any_subset(tmp_path: Path) -> None:
    with servers("a", "b", "c", "d") as pool:
        folder(tmp_path, [worker(one) for one in pool], [0.1, 0.4, 0.2, 0.3])
        model = routed(tmp_path)

        async def each() -> None:
            for subset in SUBSETS[1:]:
                denied = [name for name in "abcd" if name not in subset]
                before = [one.accepted for one in pool]
                done = await model.complete(asked("hi", policy={"deny": denied}))
                assert done.model == next(name for name in "bdca" if name in subset)
                assert set(told(done).refused) == set(denied)
                new = [one.accepted - old for one, old in zip(pool, before, strict=True)]
                assert new == [int(one.name == done.model) for one in pool]

        asyncio.run(each())


LABELS = {"region": "eu", "retention_days": 0, "seconds": 1.0, "clearance": ("health",)}


@pytest.mark.parametrize(
    ("policy", "label"),
    [
        ({"regions": "eu"}, "region"),
        ({"retention": 0}, "retention_days"),
        ({"max_latency": 2}, "seconds"),
        ({"data_class": "health"}, "clearance"),
        ({"max_cost": 0.01}, "price_in"),
        ({"max_cost": 0.01}, "price_out"),
    ],
)
def test_what_is_unknown_of_a_worker_is_refused_before_any_connection(
    tmp_path: Path, policy: dict[str, Any], label: str
) -> None:
    with servers("unlabelled", "labelled") as (unlabelled, labelled):
        some = {"price_in": 1.0, "price_out": 1.0, **LABELS}
        del some[label]
        others = {"price_in": None} if "price_in" not in some else {}
        workers = [worker(unlabelled, **some, **others), worker(labelled, price_in=1.0, price_out=1.0, **LABELS)]
        folder(tmp_path, workers)
        done = complete(routed(tmp_path), "hi", policy=policy)
        assert done.model == "labelled"
        assert list(told(done).refused) == ["unlabelled"]
        with pytest.raises(Refused, match="no worker may answer"):
            complete(routed(tmp_path, "#unlabelled"), "hi", policy=policy)
        assert unlabelled.accepted == 0


def test_a_long_request_costs_more_than_a_short_one(tmp_path: Path) -> None:
    with servers("one") as (one,):
        folder(tmp_path, [worker(one)])
        model = routed(tmp_path, "?max_cost=0.001")
        assert complete(model, "hi", sampling=Sampling(100)).model == "one"
        with pytest.raises(Refused, match=r"could cost \$0\.00"):
            complete(model, "x" * 4000, sampling=Sampling(100))
        with pytest.raises(Refused, match="could cost"):
            complete(model, "hi", sampling=Sampling(1000))
        assert one.accepted == 1


def test_a_request_can_only_narrow_what_the_operator_allows(tmp_path: Path) -> None:
    with servers("a", "b") as (a, b):
        folder(tmp_path, [worker(a), worker(b)])
        model = routed(tmp_path, "?deny=a")
        refused: list[dict[str, Any]] = [{"allow": ["a"]}, {"allow": []}, {"deny": ["b"]}]
        for policy in refused:
            with pytest.raises(Refused, match="a: "):
                complete(model, "hi", policy=policy)
        assert complete(model, "hi", policy={}).model == "b"
        assert model.under(Policy(allow=("a",))).policy == Policy(allow=("a",), deny=("a",))
        assert (a.accepted, b.accepted) == (0, 1)


def test_policies_read_write_and_narrow() -> None:
    policy = Policy(("a",), ("b",), ("eu", "us"), 0, ("health",), 0.00012345678, 2.5, "remove")
    assert Policy.parse(str(policy)) == policy
    assert str(Policy()) == ""
    assert Policy.parse(str(Policy(allow=()))).allow == ()
    both = Policy(regions=("eu", "ch"), retention=30).narrowed(Policy(regions=("eu", "us"), retention=7, max_cost=1))
    assert both == Policy(regions=("eu",), retention=7, max_cost=1)


@pytest.mark.parametrize(
    "said",
    [{"forbid": 1}, {"allow": 3}, {"allow": [1]}, {"retention": "long"}, {"max_cost": -1}, {"max_cost": True},
     {"flow": "leak"}, {"flow": 1}, {"data_class": ["A B"]}, [], "eu", {"deny": ["x"] * 100}],
)  # fmt: skip
def test_a_policy_that_is_none_is_refused(said: object) -> None:
    with pytest.raises(BadInput, match=r"^(policy|a policy)") as refused:
        Policy.read(said)
    assert refused.value.remedy


def test_a_policy_that_names_nobody_known_is_refused(tmp_path: Path) -> None:
    """A misspelt ``deny`` must not let its worker be asked."""
    with servers("a") as (a,):
        folder(tmp_path, [worker(a)])
        with pytest.raises(UnknownName, match="'A'"):
            routed(tmp_path, "?deny=A")
        with pytest.raises(UnknownName, match="'A'"):
            complete(routed(tmp_path), "hi", policy={"deny": ["A"]})
        with pytest.raises(UnknownName, match="'b'"):
            routed(tmp_path, "#b")
        assert a.accepted == 0


# ---- failures --------------------------------------------------------------------------------------------------------


def hangs(body: object) -> Any:
    time.sleep(0.5)
    return said("late")


@pytest.mark.parametrize(
    "answer",
    [
        lambda body: (429, {"error": {"message": "slow down"}}),
        lambda body: (500, {"error": {"message": "broken"}}),
        lambda body: (401, {"error": {"message": "no key"}}),
        lambda body: (200, b"<html>not an API</html>"),
        lambda body: (200, b'{"choices": 7}'),
        hangs,
    ],
    ids=["429", "500", "401", "no JSON", "garbled", "timeout"],
)
def test_the_next_best_of_those_allowed_answers_where_the_chosen_one_fails(tmp_path: Path, answer: Any) -> None:
    """The fallback is resolved against the worker that was chosen: by score among the allowed, not by place."""
    with servers("a", "b", "c", "d") as (a, b, c, d):
        folder(tmp_path, [worker(one) for one in (a, b, c, d)], [0.1, 0.4, 0.2, 0.3])
        b.answer = answer
        model = routed(tmp_path, "?deny=d", timeout=0.15)
        done = one_by_one(model, 6)
        assert {one.model for one in done} == {"c"}, "success is not lost with one worker down"
        assert {told(one).first for one in done} == {"b"}
        assert b.accepted == 3, "three failures open the breaker"
        assert told(done[5]).failed == {"b": "rests after failures"}
        assert (a.accepted, d.accepted) == (0, 0)


def test_a_breaker_opens_tries_one_request_and_closes(tmp_path: Path) -> None:
    now = 0.0
    with servers("a") as (a,):
        folder(tmp_path, [worker(a)])
        model = routed(tmp_path, clock=lambda: now, pause=30)
        a.answer = lambda body: (500, {"error": {"message": "down"}})
        *failed, busy = one_by_one(model, 4)
        assert [type(one) for one in failed] == [Unreachable] * 3
        assert isinstance(busy, Busy)
        assert busy.message.endswith("rest after failures: a")
        assert busy.wait == 30
        assert a.accepted == 3
        now = 31.0
        assert [type(one) for one in one_by_one(model, 2)] == [Unreachable, Busy]
        assert a.accepted == 4, "one failed try opens it again"
        now = 62.0
        a.answer = lambda body: said("back")

        async def at_once() -> list[Any]:
            return await asyncio.gather(*(model.complete(asked("hi")) for _ in range(5)), return_exceptions=True)

        done = asyncio.run(at_once())
        assert [type(one) for one in done] == [Completion, *[Busy] * 4]
        assert a.accepted == 5, "half open: one request at a time"
        assert complete(model, "hi").message.text == "back"


def test_failures_count_within_their_window_only() -> None:
    now = 0.0
    breaker = Breaker(3, window=60, pause=30, clock=lambda: now)
    for at in (0.0, 59.0, 61.0):
        now = at
        assert breaker.enter()
        breaker.failed()
    assert breaker.wait() == 0
    now = 62.0
    assert breaker.enter()
    breaker.failed()
    assert breaker.wait() == 30
    now = 93.0
    assert breaker.enter()
    assert not breaker.enter()
    breaker.released()
    assert breaker.enter(), "a try that was given up makes room for another"
    with pytest.raises(BadInput):
        Breaker(0)


def test_bad_requests_shut_nobody_out(tmp_path: Path) -> None:
    with servers("a", "b") as (a, b):
        folder(tmp_path, [worker(a), worker(b)])
        model = routed(tmp_path)
        for one in (a, b):
            one.answer = lambda body: (400, {"error": {"message": "what is that"}})
        for error in one_by_one(model, 5):
            assert isinstance(error, Refused)
            assert re.search("a: .*400.*; b: .*400", error.message)
        a.answer = lambda body: said("fine")
        assert complete(model, "hi").model == "a"


def test_a_worker_that_nobody_runs_is_told_with_a_remedy(tmp_path: Path) -> None:
    with servers("a") as (a,):
        gone = worker(a)
    folder(tmp_path, [gone])
    with pytest.raises(ModelError, match="no answer from") as refused:
        complete(routed(tmp_path), "hi")
    assert refused.value.remedy


# ---- whose words they are --------------------------------------------------------------------------------------------

CANARY = "canary-7131"


def clinic(path: Path, pool: Sequence[Server], flow: str = "", **options: Any) -> Any:
    """``clinic`` writes what only ``ward`` is cleared for; ``open`` is cleared for nothing."""
    clinic, ward, public = pool
    clinic.answer = lambda body: said(f"the finding is {CANARY}")
    workers = [worker(clinic, data_class="health"), worker(ward, clearance=("health",)), worker(public)]
    folder(path, workers, [0.3, 0.2, 0.4])
    return routed(path, f"?flow={flow}" if flow else "", **options)


def test_words_of_a_class_are_refused_to_workers_that_are_not_cleared(tmp_path: Path) -> None:
    with servers("clinic", "ward", "open") as pool:
        model = clinic(tmp_path, pool)
        first = complete(model, "what is it", policy={"allow": ["clinic"]})
        turn = (Message("user", "what is it"), first.message, Message("user", "and now"))
        second = complete(model, *turn)
        assert second.model == "clinic"
        assert told(second).refused == {"open": "not cleared for health, which the conversation holds"}
        third = complete(model, *turn, policy={"deny": ["clinic"]})
        assert third.model == "ward"
        after = (*turn, third.message, Message("user", "go on"))
        with pytest.raises(Refused, match="open: not cleared for health"):
            complete(model, *after[3:], policy={"allow": ["open"]})
        assert pool[2].accepted == 0
        assert all(CANARY not in json.dumps(body) for body in pool[2].bodies)


def test_words_of_a_class_are_removed_for_workers_that_are_not_cleared(tmp_path: Path) -> None:
    with servers("clinic", "ward", "open") as pool:
        model = clinic(tmp_path, pool, "remove")
        call = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
        first = complete(model, "what is it", policy={"allow": ["clinic"]})
        pool[0].answer = lambda body: said(f"look up {CANARY}", tool_calls=[call])
        calling = complete(model, "look it up", tools=(WEATHER,), policy={"allow": ["clinic"]})
        result = Message("tool", f"rain, {CANARY}", call_id="c1")
        turn = ("what is it", first.message, "look it up", calling.message, result, "and now")
        wire = Wire("chat", {"messages": [{"role": "user", "content": CANARY}]})
        done = complete(model, *turn, wire=wire)
        assert done.model == "open"
        (body,) = pool[2].bodies
        assert [m["content"] for m in body["messages"]] == ["what is it", "look it up", "and now"]
        last = complete(model, *turn[:-1])
        assert last.model == "clinic"
        assert told(last).refused == {"open": "not cleared for health, which the last message is"}


def test_words_of_nobody_known_are_of_the_class_unknown(tmp_path: Path) -> None:
    with servers("clinic", "ward", "open") as pool:
        model = clinic(tmp_path, pool)
        first = complete(model, "what is it", policy={"allow": ["clinic"]}).message
        for altered in (first._replace(text=first.text.upper()), Message("assistant", "well")):
            with pytest.raises(Refused, match="not cleared for unknown"):
                complete(model, "what is it", altered, "and now")
        spelt = first._replace(text=f" {first.text}\n", reasoning="left out by the client")
        assert complete(model, "what is it", spelt, "and now").model == "clinic"
        assert pool[2].accepted == 0


def test_answers_to_what_is_of_a_class_are_of_that_class(tmp_path: Path) -> None:
    with servers("a", "b") as (a, b):
        folder(tmp_path, [worker(a, clearance=("health",)), worker(b, data_class="notes")], [0, 1])
        model = routed(tmp_path)
        first = complete(model, CANARY, policy={"data_class": "health"})
        assert first.model == "a"
        with pytest.raises(Refused, match="b: not cleared for health"):
            complete(model, "x", first.message, "y", policy={"allow": ["b"]})
        assert b.accepted == 0


# ---- the ledger ------------------------------------------------------------------------------------------------------


def test_every_decision_is_signed_and_origins_outlive_the_process(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("0123456789abcdef" * 2)
    file, key = tmp_path / "ledger.jsonl", key_of(tmp_path / "key")
    options = {"ledger": str(file), "ledger_key": str(tmp_path / "key")}
    with servers("clinic", "ward", "open") as pool:
        model = clinic(tmp_path / "r", pool, **options)
        first = complete(model, "what is it", policy={"allow": ["clinic"]})
        with pytest.raises(Refused):
            complete(model, "x", first.message, "y", policy={"allow": ["open"]})
        with pytest.raises(BadInput, match="written by another router"):
            Ledger(file, key)
        model.ledger.close()
        again = clinic(tmp_path / "r", pool, **options)
        assert complete(again, "x", first.message, "y").model == "clinic"
        again.ledger.close()
    entries = list(read_ledger(file, key))
    assert [one["kind"] for one in entries] == ["asked", "said", "refused", "asked", "said"]
    assert entries[0]["worker"] == entries[1]["worker"] == "clinic"
    assert entries[1]["classes"] == ["health"]
    assert entries[2]["refused"]["open"].startswith("not cleared")
    assert CANARY not in file.read_text()
    lines = file.read_bytes().splitlines(keepends=True)
    changed = lines[1].replace(b"health", b"public")
    for wrong in ([lines[0], changed, *lines[2:]], lines[1:], [lines[0], *lines[2:]], [*lines, b"{}\n"], [b"["]):
        file.write_bytes(b"".join(wrong))
        with pytest.raises(BadRecord, match="line"):
            Ledger(file, key)
    file.write_bytes(b"".join(lines))
    with pytest.raises(BadRecord, match="line 1 is not signed with this key"):
        list(read_ledger(file, b"another key of 16 bytes"))
    (tmp_path / "key").write_text("short")
    with pytest.raises(BadInput, match="has 5 bytes"):
        key_of(tmp_path / "key")


def test_nobody_is_asked_where_the_ledger_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("0123456789abcdef" * 2)
    with servers("a") as (a,):
        folder(tmp_path, [worker(a)])
        model = routed(tmp_path, ledger=str(tmp_path / "ledger"), ledger_key=str(tmp_path / "key"))
        model.ledger.close()
        with pytest.raises(BadInput, match="Bad file descriptor"):
            complete(model, "hi")
        assert a.accepted == 0


# ---- loading ---------------------------------------------------------------------------------------------------------


def test_a_key_goes_only_where_its_owner_sends_it(tmp_path: Path) -> None:
    refs = {"home": "openai:x", "here": "openai:x@http://127.0.0.1:1/v1", "far": "http://far.example/v1#x"}
    refs["trick"] = "http://localhost:80@far.example/v1#x"
    folder(tmp_path, [Worker(name, ref) for name, ref in refs.items()])
    model = routed(tmp_path, api_key="general")
    assert [one.endpoint.key() for one in model.models] == ["general", "general", None, None]
    model = routed(tmp_path, api_key="general", keys={"FAR": "own"})
    assert model.models[2].endpoint.key() == "own"


def test_references_and_options(tmp_path: Path) -> None:
    folder(tmp_path, [Worker("a", "echo"), Worker("b", "echo")])
    model = routed(tmp_path, "?regions=eu&deny=b#a", policy={"max_latency": 3})
    assert model.ref == f"route:{tmp_path}?deny=b&regions=eu&max_latency=3.0#a"
    assert clew.model(model.ref).ref == model.ref
    assert routed(tmp_path, model.ref.partition(str(tmp_path))[2]).weights_name == model.weights_name
    assert model.weights_name != routed(tmp_path).weights_name
    for wrong, what in (({"colour": 1}, "colour"), ({"ledger": "x"}, "needs a key"), ({"policy": 3}, "no JSON object")):
        with pytest.raises(BadInput, match=what):
            routed(tmp_path, **wrong)
    with pytest.raises(BadInput, match="given twice"):
        routed(tmp_path, "?deny=a&deny=b")
    with pytest.raises(BadRecord, match="holds no router"):
        routed(tmp_path / "elsewhere")
    with pytest.raises(BadInput, match="0 models for 1 workers"):
        Routed(made(), [])


def made() -> router.Router:
    return router.Router((Worker("a", "echo"),), Ngrams(16), router.Head(np.zeros((1, 16), np.float32)))


@pytest.mark.parametrize(
    "text",
    ["", "{", '{"route"', '{"route": 3}', '{"route": {"worker": "a"}}', '{"route": [' * 9000,
     '{"route": ' + "1" * 99_999,
     '{"route": {"worker": "a", "first": "a", "scores": {"a": NaN}}}',
     '{"route": {"worker": "a", "first": "a", "scores": {"a": 1}, "failed": 3}}'],
)  # fmt: skip
def test_what_is_no_decision_is_shown_as_none(text: str) -> None:
    assert decision_of((Inner("route:x", text=text),)) is None
    whole = '{"route": {"worker": "a", "first": "a", "scores": {"a": 1}}}'
    assert decision_of((Inner("somebody", text=whole),)) is None
    assert decision_of((Inner("route:x", text=whole),)) is not None
