"""Forks of foreign programs that were changed in between: the model is sent what the program sends, or nothing."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from clew.cli.programs.started import _told_of_record
from clew.core.records import Cursor, Edit, Intervention
from clew.serve.gateway.matching import Matching
from clew.serve.gateway.session import Session
from clew.serve.published.masks import Masks
from clew.serve.published.published_agents import MASKS
from clew.store import Run
from tests.models.server import Peer, chat, serving
from tests.serve.foreign import Client, asks, before, bodies, notes, only, using

CALLS = [{"id": "c1", "type": "function", "function": {"name": "price", "arguments": '{"of": "tea"}'}}]
TOOLS = [{"type": "function", "function": {"name": "price", "parameters": {"type": "object", "properties": {}}}}]
MATCHINGS = [Matching(), Matching(Masks(MASKS)), Matching(Masks(MASKS), position=True)]


async def shop(client: Client, base: str, result: str, prompt: str = "Help.", turns: int = 3) -> list[httpx.Response]:
    """An agent with one tool, whose results are what ``result`` says; it stops at an error."""
    messages: list[dict[str, Any]] = [{"role": "system", "content": prompt}, {"role": "user", "content": "Tea?"}]
    got = []
    for _ in range(turns):
        body = {"model": "m", "messages": messages, "tools": TOOLS}
        got.append(await client.post(f"{base}/v1/chat/completions", json=body))
        if got[-1].status_code != 200:
            break
        reply = got[-1].json()["choices"][0]["message"]
        messages.append({k: v for k, v in reply.items() if v is not None})
        calls = reply.get("tool_calls") or []
        more = [{"role": "tool", "tool_call_id": c["id"], "content": result} for c in calls]
        messages += more or [{"role": "user", "content": "Sure?"}]
    return got


def broken(peer: Peer, matching: Matching) -> tuple[Any, Run]:
    """A recorded run whose tool failed, with the gateway that recorded it."""
    peer.say(chat("", tool_calls=CALLS), chat("I cannot say."), chat("Yes."))
    it = before(peer, matching=matching)
    using(it, lambda c: shop(c, "/r/one", '{"error": "no such file"}'))
    peer.answer = lambda body, count: chat("live")
    return it, only(it)


def forked(it: Any, run: Run, at: int, *edits: Edit, **program: Any) -> tuple[Session, list[httpx.Response]]:
    async def go(client: Client) -> tuple[Session, list[httpx.Response]]:
        (session,) = it.fork(Cursor(run.id, at), 1, Intervention(edits))
        return session, await shop(client, f"/r/{session.name}", **program)

    found: tuple[Session, list[httpx.Response]] = using(it, go)
    return found


@pytest.mark.parametrize("matching", MATCHINGS)
def test_the_model_is_sent_the_repaired_result_and_the_difference_is_told(matching: Matching, capsys: Any) -> None:
    with serving() as peer:
        it, run = broken(peer, matching)
        begun = len(peer.bodies)
        session, got = forked(it, run, asks(run)[1].seq, result="4 euros", turns=2)
        sent = peer.bodies[begun:]
    assert [g.status_code for g in got] == [200, 200]
    assert got[1].json()["choices"][0]["message"]["content"] == "live"
    assert [body["messages"][-1] for body in sent] == [{"role": "tool", "tool_call_id": "c1", "content": "4 euros"}]
    view = Run(it.store, session.run)
    assert bodies(view)[-1]["messages"] == sent[0]["messages"], "the record holds what was sent"
    assert [(n["note"], n["request"]) for n in notes(view)] == [("changed", 1)]
    _told_of_record(session)
    told = capsys.readouterr().err
    assert 'request 1, the first that a model was asked, differs from the recorded one: messages[3].text: "4 eu' in told
    assert not it.store.verify()


@pytest.mark.parametrize("matching", MATCHINGS[:2])
def test_a_program_changed_before_the_fork_is_refused_and_nothing_is_sent(matching: Matching) -> None:
    with serving() as peer:
        it, run = broken(peer, matching)
        begun = len(peer.bodies)
        session, got = forked(it, run, asks(run)[2].seq, result="4 euros")
        assert len(peer.bodies) == begun
    assert got[-1].status_code == 404, "which agents that speak chat do not send again"
    assert got[-1].headers["x-should-retry"] == "false"
    assert '"4 euros" instead of' in got[-1].json()["error"]["message"]
    assert session.refusals
    assert session.live is None


def test_by_place_a_change_before_the_fork_reaches_the_model_and_is_counted(capsys: Any) -> None:
    with serving() as peer:
        it, run = broken(peer, MATCHINGS[2])
        begun = len(peer.bodies)
        session, got = forked(it, run, asks(run)[2].seq, result="4 euros")
        sent = peer.bodies[begun:]
    assert [g.status_code for g in got] == [200, 200, 200]
    assert len(sent) == 1
    assert [m["content"] for m in sent[0]["messages"] if m["role"] == "tool"] == ["4 euros"]
    _told_of_record(session)
    told = capsys.readouterr().err
    assert "2 recorded requests were answered for their place, 1 of them differ" in told
    assert "all " not in told


@pytest.mark.parametrize("matching", MATCHINGS)
def test_a_given_beginning_is_not_sampled_for_a_request_that_the_program_does_not_make(matching: Matching) -> None:
    with serving() as peer:
        it, run = broken(peer, matching)
        begun, second = len(peer.bodies), asks(run)[1].seq
        _, got = forked(it, run, second, Edit("prefix", second, "I "), result="4 euros")
        assert len(peer.bodies) == begun
    assert got[-1].status_code in (400, 404)
    assert "4 euros" in json.dumps(got[-1].json())


def test_a_program_that_never_comes_costs_nothing_and_is_told(capsys: Any) -> None:
    with serving() as peer:
        it, run = broken(peer, MATCHINGS[1])
        begun = len(peer.bodies)
        session, _ = forked(it, run, asks(run)[1].seq, result="", turns=0)
        assert len(peer.bodies) == begun
    _told_of_record(session)
    assert "request 0 of the 1 recorded was not made again" in (told := capsys.readouterr().err)
    assert "did not come to the fork; no model was asked" in told


@pytest.mark.parametrize("place", [0, 1, 2])
def test_an_unchanged_program_goes_on_live_from_each_place(place: int, capsys: Any) -> None:
    with serving() as peer:
        it, run = broken(peer, MATCHINGS[1])
        begun = len(peer.bodies)
        session, got = forked(it, run, asks(run)[place].seq, result='{"error": "no such file"}', turns=place + 1)
        assert len(peer.bodies) == begun + 1
        assert peer.bodies[-1]["messages"] == bodies(run)[place]["messages"]
    assert got[-1].json()["choices"][0]["message"]["content"] == "live"
    _told_of_record(session)
    assert "the first that a model was asked, is the recorded one" in capsys.readouterr().err
    assert not notes(Run(it.store, session.run))


def test_a_given_reply_is_still_what_the_program_gets_in_that_place() -> None:
    with serving() as peer:
        it, run = broken(peer, MATCHINGS[2])
        second = asks(run)[1].seq
        _, got = forked(it, run, second, Edit("reply", second, "Four."), result="4 euros")
    assert [g.json()["choices"][0]["message"]["content"] for g in got] == [None, "Four.", "live"]
    assert [m["content"] for m in peer.bodies[-1]["messages"] if m["role"] == "tool"] == ["4 euros"]
