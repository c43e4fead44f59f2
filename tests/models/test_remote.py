"""HTTP models against a loopback endpoint: what is sent, what comes back, and everything that can go wrong."""

from __future__ import annotations

import asyncio
import email.utils
import gc
import logging
import time
import weakref

import numpy as np
import pytest
from starlette.responses import PlainTextResponse

from clew.core.errors import BadInput, ContextOverflow, Refused, Unreachable
from clew.core.protocols import Streams
from clew.core.values import Completion, Message, Sampling, ToolCall, ToolSpec
from clew.models.dialects import messages as messages_dialect
from clew.models.dialects import responses as responses_dialect
from clew.models.fakes import Markov
from clew.models.remote import Price, Remote
from clew.models.remote.failures import pause_of
from clew.models.remote.limits import Purse, RateLimiter
from clew.models.shaping import written

from .helpers import ask
from .server import chat, chunks, failing, serving

KEY = "sk-canary-4711"


@pytest.fixture(scope="module")
def server():
    with serving() as peer:
        yield peer


@pytest.fixture
def peer(server):
    server.bodies.clear()
    server.headers.clear()
    server.paths.clear()
    server.most_at_once = 0
    server.say(chat())
    while server.at_once:  # answers that an earlier test did not wait for
        time.sleep(0.01)
    return server


def remote(peer, **options):
    return Remote(peer.url, "m", **{"backoff": 0.001, "timeout": 5.0, **options})


def run(model, request):
    return asyncio.run(model.complete(request))


def streamed(model, request):
    async def collect():
        return [item async for item in model.stream(request)]

    return asyncio.run(collect())


def test_a_plain_answer_and_what_was_sent(peer):
    model = remote(peer, api_key=KEY)
    done = run(model, ask(Message("system", "be brief"), "hi", seed=2**40 + 7, idempotency="run-3"))
    assert done.message == Message("assistant", "hello")
    assert (done.finish, done.model, done.usage, done.in_force) == ("stop", "served-name", (10, 4, 2), None)
    assert [a.status for a in done.attempts] == [200]
    body = peer.bodies[0]
    assert body["messages"] == [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"}]
    assert (body["model"], body["seed"], body["temperature"], body["max_tokens"]) == ("m", 7, 1.0, 256)
    assert peer.headers[0]["authorization"] == f"Bearer {KEY}"
    assert peer.headers[0]["idempotency-key"] == "run-3"
    assert model.ref == f"{peer.url}#m"


def test_tool_calls_both_ways(peer):
    call = {"id": "c9", "type": "function", "function": {"name": "look", "arguments": '{"at": "door"}'}}
    peer.say(chat(None, tool_calls=[call]))
    tool = ToolSpec("look", "looks", {"type": "object", "properties": {"at": {"type": "string"}}})
    done = run(remote(peer), ask("go", tools=(tool,)))
    assert done.message == Message("assistant", "", calls=(ToolCall("c9", "look", '{"at": "door"}'),))
    assert done.finish == "tool_calls"
    assert peer.bodies[0]["tools"][0]["function"]["parameters"] == tool.schema
    run(remote(peer), ask("go", done.message, Message("tool", "a door", call_id="c9")))
    assert peer.bodies[1]["messages"][1:] == [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": "a door", "tool_call_id": "c9"},
    ]


def test_streaming_gives_pieces_and_the_same_completion(peer):
    peer.answer = lambda body, count: chunks("he", "l", "lo")
    model = remote(peer)
    assert isinstance(model, Streams)
    *pieces, last = streamed(model, ask("hi"))
    assert pieces == ["he", "l", "lo"]
    assert (last.message.text, last.finish, last.usage.completion) == ("hello", "stop", 4)
    assert peer.bodies[0]["stream_options"] == {"include_usage": True}
    assert run(remote(peer, stream=True), ask("hi")).message.text == "hello"


def test_a_server_that_does_not_stream_still_answers(peer):
    assert [i.message.text for i in streamed(remote(peer), ask("hi"))] == ["hello"]


def test_logprobs_and_token_ids(peer):
    answer = chat("ab")
    answer["choices"][0] |= {
        "logprobs": {"content": [{"token": "a", "logprob": -0.5}, {"token": "b", "logprob": -0.25}]},
        "token_ids": [5, 6],
    }
    answer["prompt_token_ids"] = [1, 2, 3]
    peer.say(answer)
    done = run(remote(peer), ask("q"))
    assert (done.tokens, done.prompt) == ((5, 6), (1, 2, 3))
    np.testing.assert_array_equal(done.logprobs, np.array([-0.5, -0.25], np.float32))
    assert peer.bodies[0]["return_token_ids"] is True
    cold = ask("q", sampling=Sampling(temperature=0.5))
    assert run(remote(peer), cold).logprobs is None  # raw logprobs are not those of the distribution in force
    assert run(remote(peer, logprobs="processed"), cold).logprobs is not None


def test_fields_the_server_refuses_are_left_out_from_then_on(peer):
    def answer(body, count):
        for name in ("return_token_ids", "logprobs", "temperature"):
            if name in body:
                return failing(400, f"Unrecognized request argument supplied: {name}")
        return failing(400, "use 'max_completion_tokens' instead of 'max_tokens'") if "max_tokens" in body else chat()

    peer.answer = answer
    model = remote(peer)
    done = run(model, ask("q", sampling=Sampling(30, 0.2)))
    assert [a.status for a in done.attempts] == [400] * 4 + [200]
    assert done.in_force == Sampling(30, 1.0)
    assert peer.bodies[-1]["max_completion_tokens"] == 30
    assert len(run(model, ask("q")).attempts) == 1


def test_shapes_are_sent_by_their_names_and_a_server_that_refuses_one_is_believed(peer):
    shape = written({"min_p": 0.1, "logit_bias": {"3": 2}, "presence_penalty": 0.5})
    done = run(remote(peer), ask("q", sampling=Sampling(30, shape=shape)))
    sent = {name: peer.bodies[-1][name] for name in ("min_p", "logit_bias", "presence_penalty")}
    assert sent == {"min_p": 0.1, "logit_bias": {"3": 2}, "presence_penalty": 0.5}
    assert (done.in_force, done.logprobs) == (None, None), "logprobs of the model's own law are not those in force"
    peer.answer = lambda body, count: failing(400, "Unrecognized request argument supplied: min_p")
    with pytest.raises(Refused, match="min_p"):
        run(remote(peer), ask("q", sampling=Sampling(30, shape=shape)))
    with pytest.raises(BadInput, match="the messages dialect cannot ask for min_p"):
        run(remote(peer, dialect="messages"), ask("q", sampling=Sampling(30, shape=written({"min_p": 0.1}))))


def test_failures_that_may_pass_are_tried_again(peer):
    peer.say(failing(500), failing(503), chat())
    done = run(remote(peer), ask("q"))
    assert [(a.status, a.error) for a in done.attempts] == [(500, "it failed"), (503, "it failed"), (200, "")]
    peer.say(failing(500))
    with pytest.raises(Unreachable, match=r"in 3 attempts; the last one: 500: it failed") as caught:
        run(remote(peer, attempts=3), ask("q"))
    assert len(caught.value.attempts) == 3
    assert peer.url in str(caught.value)


def test_back_off_is_bounded_and_depends_on_the_seed_alone():
    pauses = [[pause_of(8.0, i, seed) for i in range(1, 7)] for seed in (1, 1, 2)]
    assert pauses[0] == pauses[1] != pauses[2]
    for i, seconds in enumerate(pauses[0]):
        assert min(60, 8 * 2**i) / 2 <= seconds < min(60, 8 * 2**i)


def test_retry_after_holds_everybody(peer):
    stamps = {}

    def answer(body, count):
        name = body["messages"][0]["content"]
        stamps.setdefault(name, []).append(time.monotonic())
        return failing(429, "slow down", retry_after="0.4") if count == 0 else chat()

    peer.answer = answer

    async def both():
        model = remote(peer)
        first = asyncio.create_task(model.complete(ask("first")))
        while not peer.bodies:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
        await asyncio.gather(first, model.complete(ask("second")))

    asyncio.run(both())
    refused, again = stamps["first"]
    assert again - refused >= 0.4
    assert stamps["second"][0] - refused >= 0.4


def test_retry_after_as_a_date_and_too_far_away(peer):
    peer.say(failing(429, "later", retry_after=email.utils.formatdate(time.time() + 3600, usegmt=True)))
    with pytest.raises(Unreachable, match=r"asks to wait 3[56]\d\d s"):
        run(remote(peer), ask("q"))
    assert len(peer.bodies) == 1


def test_a_used_up_quota_is_not_waited_for(peer):
    peer.say(failing(429, "You exceeded your current quota: insufficient_quota"))
    with pytest.raises(Refused, match="insufficient_quota"):
        run(remote(peer), ask("q"))
    assert len(peer.bodies) == 1


@pytest.mark.parametrize(
    ("status", "message", "kind", "says"),
    [
        (401, "bad key", Refused, "api_key"),
        (403, "not yours", Refused, "another api_key"),
        (404, "no model m", Refused, "model's name"),
        (400, "tools: wrong shape", Refused, "tools: wrong shape"),
        (400, "This model's maximum context length is 8192 tokens", ContextOverflow, "Shorten"),
        (400, {"code": "context_length_exceeded"}, ContextOverflow, "Shorten"),
        (413, "prompt is too long: 300000 tokens", ContextOverflow, "Shorten"),
    ],
)
def test_refusals_name_the_remedy(peer, status, message, kind, says):
    peer.say(failing(status, message))
    with pytest.raises(kind, match=says) as caught:
        run(remote(peer), ask("q"))
    assert len(peer.bodies) == len(caught.value.attempts) == 1


def test_nobody_listens():
    with serving() as gone:
        url = gone.url
    with pytest.raises(Unreachable, match="ConnectError") as caught:
        run(Remote(url, "m", backoff=0.001, attempts=2), ask("q"))
    assert url in str(caught.value)
    assert "Check that the server runs" in caught.value.remedy


def test_an_answer_that_is_no_json(peer):
    peer.say(PlainTextResponse("<html>welcome</html>"))
    with pytest.raises(Refused, match="did not answer with JSON"):
        run(remote(peer), ask("q"))
    peer.say({"object": "list"})
    with pytest.raises(Refused, match="no choices"):
        run(remote(peer), ask("q"))


def slow(seconds, answer):
    async def wait(body, count):
        await asyncio.sleep(seconds)
        return answer

    return wait


def test_deadlines(peer):
    peer.answer = slow(1.0, chat())
    cut = run(remote(peer), ask("q", deadline=0.2))
    assert (cut.finish, cut.message.text) == ("cut", "")
    assert cut.attempts[-1].error == "cut by the deadline"
    with pytest.raises(Unreachable, match=r"no answer within 0.2 s"):
        run(remote(peer, deadline=0.2), ask("q"))
    with pytest.raises(Unreachable, match="ReadTimeout"):
        run(remote(peer, timeout=0.2, attempts=1), ask("q"))


def test_a_stream_cut_by_the_deadline_keeps_what_arrived(peer):
    peer.answer = lambda body, count: chunks("one ", "two ", *["more "] * 50, gap=0.1)
    cut = run(remote(peer, stream=True), ask("q", deadline=0.5))
    assert cut.finish == "cut"
    assert cut.message.text.startswith("one two")


def test_a_broken_stream_is_a_cut_and_is_not_asked_again(peer):
    peer.say(chunks("half", finish=None))
    assert run(remote(peer, stream=True), ask("q"))[:1] == (Message("assistant", "half"),)
    assert len(peer.bodies) == 1
    peer.say(chunks(finish=None), chunks("whole"))
    done = run(remote(peer, stream=True), ask("q"))
    assert done.message.text == "whole"
    assert [a.error for a in done.attempts] == ["the stream ended before it began", ""]


def test_many_event_loops_one_after_another_and_side_by_side(peer):
    model = remote(peer)

    async def many(n):
        return await asyncio.gather(*[model.complete(ask(f"q{i}")) for i in range(n)])

    for _ in range(3):
        assert len(asyncio.run(many(5))) == 5
    gc.collect()  # an unclosed connection would warn here, and warnings are errors
    assert not model.endpoint._loops


def test_connections_of_a_model_that_nobody_holds_are_closed_by_the_next_one(peer):
    """In a loop that goes on. Found by the garbage collector, they would warn, and warnings are errors."""

    async def main():
        model = remote(peer)
        await model.complete(ask())
        here = model.endpoint._loops[asyncio.get_running_loop()]
        connection = weakref.ref(here.client._transport._pool.connections[0])
        circle = [model]
        circle.append(circle)
        del model, here, circle
        gc.collect()
        assert not connection().is_closed()
        last = remote(peer)
        await last.complete(ask())
        gc.collect()
        assert connection() is None or connection().is_closed()
        del last
        gc.collect()

    asyncio.run(main())
    gc.collect()


def test_concurrency_is_capped(peer):
    peer.answer = slow(0.03, chat())
    model = remote(peer, concurrency=3)

    async def many():
        await asyncio.gather(*[model.complete(ask(f"q{i}")) for i in range(12)])

    asyncio.run(many())
    assert peer.most_at_once == 3


def test_models_that_share_a_purse_spend_its_dollars_together(peer):
    purse = Purse(0.0015)
    first, second = (remote(peer, price=(1.0, 10.0, 0.5), max_cost=purse) for _ in range(2))
    run(first, ask("q", sampling=Sampling(100)))
    run(second, ask("q", sampling=Sampling(100)))
    assert purse.spent == first.gate.purse.spent > 0
    with pytest.raises(Refused, match=r"exceed the budget of \$0.0015"):
        run(second, ask("q", sampling=Sampling(144)))
    assert len(peer.bodies) == 2


def test_cost_and_budget(peer):
    model = remote(peer, price=(1.0, 10.0, 0.5), max_cost=0.005)
    done = run(model, ask("q", sampling=Sampling(100)))
    assert done.cost == pytest.approx((8 * 1.0 + 2 * 0.5 + 4 * 10.0) / 1e6)
    assert model.gate.purse.spent == done.cost
    with pytest.raises(Refused, match=r"exceed the budget of \$0.005"):
        run(model, ask("q", sampling=Sampling(1000)))
    assert len(peer.bodies) == 1
    run(model, ask("q", sampling=Sampling(100)))
    with pytest.raises(BadInput, match="needs a price"):
        Remote(peer.url, "nobody-knows", max_cost=1.0)
    assert Remote(peer.url, "openai/gpt-4o-2024-08-06").price == Price(2.5, 10.0, 1.25)


def test_a_given_beginning_is_continued_where_the_server_can(peer):
    peer.models = [{"id": "m", "owned_by": "vllm"}]
    peer.say(chat(" world"))
    done = run(remote(peer), ask("q", forced_text="hello"))
    assert done.message.text == "hello world"
    body = peer.bodies[0]
    assert body["messages"][-1] == {"role": "assistant", "content": "hello"}
    assert (body["continue_final_message"], body["add_generation_prompt"]) == (True, False)
    peer.models = [{"id": "m", "owned_by": "somebody"}]
    with pytest.raises(Refused, match="not known to continue"):
        run(remote(peer), ask("q", forced_text="hello"))
    assert run(remote(peer, prefill=True), ask("q", forced_text="hello")).message.text == "hello world"


@pytest.mark.parametrize("name", ["responses", "messages"])
def test_other_dialects(peer, name):
    dialect = {"responses": responses_dialect, "messages": messages_dialect}[name]
    whole = Completion(Message("assistant", "hello", calls=(ToolCall("c", "f", "{}"),)), finish="tool_calls")
    frame = {"id": "i", "created": 1, "model": "served"}
    peer.say(dialect.completion_to_wire(whole, **frame))
    model = remote(peer, dialect=name, api_key=KEY)
    done = run(model, ask(Message("system", "s"), "q"))
    assert (done.message, done.finish) == (whole.message, "tool_calls")
    assert peer.paths == [f"/v1{dialect.PATH}"]
    assert KEY in (peer.headers[0].get("x-api-key"), peer.headers[0].get("authorization", "").removeprefix("Bearer "))
    assert model.ref == f"{name}:m@{peer.url}"


@pytest.mark.parametrize("stream", [False, True])
def test_token_ids_in_and_out_equal_the_model_behind_the_endpoint(peer, stream):
    """A token endpoint over Markov: asked through HTTP it gives what it gives in this process."""
    markov = Markov(tokens=True)

    async def answer(body, count):
        inner = ask(seed=body["seed"], sampling=Sampling(body["max_tokens"], body["temperature"], body["top_p"]))
        node = ask("x").path[0]._replace(ids=tuple(body["prompt"]))
        done = await markov.complete(inner._replace(path=(node,), head=()))
        ids = [f"token_id:{t}" for t in done.tokens]
        choice = {"index": 0, "text": done.message.text, "finish_reason": done.finish}
        choice["logprobs"] = {"tokens": ids, "token_logprobs": done.logprobs.tolist()}
        return {"model": "m", "choices": [choice], "usage": {"prompt_tokens": 3, "completion_tokens": len(ids)}}

    class Headless(Markov):
        def _prompt(self, request):
            return [i for node in request.path for i in node.ids]

    markov = Headless(tokens=True)
    peer.answer = answer
    there, here = remote(peer, renderer=markov.renderer, stream=stream), Markov(tokens=True)
    for seed in range(5):
        request = ask("go on", renderer=markov.renderer, seed=seed, head=markov.renderer.head(), sampling=Sampling(20))
        got, want = run(there, request), run(here, request)
        assert (got.tokens, got.message, got.finish) == (want.tokens, want.message, want.finish)
        np.testing.assert_array_equal(got.logprobs, want.logprobs)
        assert peer.bodies[-1]["prompt"] == [i for n in request.path for i in n.ids] + list(request.head)
    ended = run(there, request._replace(forced=want.tokens))
    assert (ended.tokens, ended.message) == ((), want.message)


def test_the_credential_appears_nowhere(peer, caplog):
    caplog.set_level(logging.DEBUG)
    shown = []

    def told(model, request):
        try:
            shown.append(repr(run(model, request)))
        except (Refused, Unreachable) as error:
            shown.extend([str(error), repr(error), repr(error.attempts)])
        shown.extend([repr(model), model.ref])

    url = peer.url.replace("http://", "http://user:pa55canary@")
    models = [(KEY, remote(peer, api_key=KEY)), (KEY, remote(peer, api_key=lambda: KEY))]
    for key, model in [*models, ("pa55canary", Remote(url, "m", backoff=0.001))]:
        for answer in (chat(), failing(401, f"{key} unknown"), failing(500, f"no {key}"), PlainTextResponse(key)):
            peer.say(answer)
            told(model, ask("q"))
    text = "\n".join(shown) + caplog.text
    assert KEY not in text
    assert "pa55canary" not in text
    assert peer.headers[-1]["authorization"].startswith("Basic ")


def test_what_makes_no_sense_is_refused_at_once():
    for url in ("localhost:8000", "ftp://x/v1", "", "http://"):
        with pytest.raises(BadInput, match="not the URL of an endpoint"):
            Remote(url, "m")
    with pytest.raises(BadInput, match="dialect 'morse'"):
        Remote("http://x/v1", "m", dialect="morse")
    with pytest.raises(BadInput, match="attempts=0"):
        Remote("http://x/v1", "m", attempts=0)
    with pytest.raises(BadInput, match="rate of -1"):
        Remote("http://x/v1", "m", requests_per_minute=-1)


def test_a_gate_paces_requests_and_tokens():
    now = [0.0]
    gate = RateLimiter(requests=60, tokens=6000, clock=lambda: now[0])
    assert [gate.enter(1) for _ in range(3)] == [0.0, 1.0, 2.0]
    now[0] = 10.0
    assert gate.enter(1000) == pytest.approx(9.0)
    gate.settle(1000, 100)
    now[0] = 11.0
    assert gate.enter(1) == 0.0
    gate.pause(5)
    assert gate.enter(1) == pytest.approx(5.0)
    now[0] = 17.0
    assert gate.paused() == 0.0


def test_a_long_message_and_lone_surrogates_travel(peer):
    long = "x" * 10_000_000
    run(remote(peer), ask(long))
    assert len(peer.bodies[0]["messages"][0]["content"]) == len(long)
    peer.say(chat("\ud800"))
    assert run(remote(peer), ask("\udfff")).message.text == "\ud800"
    assert peer.bodies[-1]["messages"][0]["content"] == "\udfff"


ECHOES = [chat(f"your key is {KEY}."), chat("x", reasoning_content=f"it sent {KEY}"), chat("x", deep={"a": [KEY]}),
          chat(None, tool_calls=[{"id": "c", "function": {"name": "f", "arguments": f'{{"k": "{KEY}"}}'}}]),
          {**chat(), "model": KEY}, {"choices": [], "echo": KEY}, {"echo": f"Bearer {KEY}"}]  # fmt: skip


@pytest.mark.parametrize("index", range(len(ECHOES)))
def test_a_key_that_a_reply_echoes_is_taken_out(peer, index):
    peer.say(ECHOES[index])
    try:
        told = repr(run(remote(peer, api_key=KEY), ask("q")))
    except Refused as error:
        told = repr(error) + error.message
    assert KEY not in told
    assert "***" in told


@pytest.mark.parametrize("size", [1, 3, 5, 40])
def test_a_key_that_comes_in_pieces_is_taken_out_of_each(peer, size):
    said = f"sk- and sk-can, then {KEY}, {KEY}{KEY[:-2]}: sk-"
    peer.answer = lambda body, count: chunks(*(said[i : i + size] for i in range(0, len(said), size)))
    *pieces, last = streamed(remote(peer, api_key=KEY), ask("q"))
    assert "".join(pieces) == last.message.text == said.replace(KEY, "***")
    assert not any(KEY in piece for piece in pieces)


def test_a_key_that_is_a_word_changes_no_reply(peer):
    for key in ("EMPTY", "x", "not-needed", "none"):
        peer.say(chat(f"the key is {key}"))
        assert run(remote(peer, api_key=key), ask("q")).message.text == f"the key is {key}"


def test_token_ids_of_a_key_are_left_out_or_refused(peer):
    entries = [{"token": "a", "logprob": -0.5}]
    answer = chat(KEY)
    answer["choices"][0] |= {"token_ids": [5], "logprobs": {"content": entries}}
    peer.say(answer)
    done = run(remote(peer, api_key=KEY), ask("q"))
    assert (done.message.text, done.tokens, done.logprobs) == ("***", None, None)
