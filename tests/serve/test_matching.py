"""A program that draws ids anew at each start, answered from its record: through masks, by place, or not at all."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from typing import Any

import httpx
import pytest

from clew.core.records import Cursor, Edit, Intervention
from clew.harness import Runner
from clew.serve.gateway.matching import Matching
from clew.serve.gateway.proxy import Gateway
from clew.serve.published.masks import Masks, own
from clew.serve.published.published_agents import MASKS
from tests.models.server import Peer, chat, serving
from tests.serve.foreign import Client, asks, before, bodies, notes, only, using

MASKED = Matching(Masks(MASKS))
CALLED = {"role": "assistant", "content": "look", "tool_calls": [
    {"id": "c1", "type": "function", "function": {"name": "sh", "arguments": '{"command": "ls -l"}'}}]}  # fmt: skip


class Volatile:
    """A small agent in the ways of published ones: ids of a session, a date in its prompt, times in what tools print.

    Args:
        started: of the clock, drawn anew at each start. name: a further word of its prompt.
    """

    def __init__(self, started: int, name: str = "ann", headers: dict[str, str] | None = None) -> None:
        self.session = str(uuid.UUID(int=started))
        self.date, self.name, self.headers = f"2026-11-{10 + started}", name, headers or {}
        tool = {"type": "function", "function": {"name": "sh", "description": f"Today's date is {self.date}.",
                "parameters": {"type": "object", "properties": {"command": {"type": "string"}}}}}  # fmt: skip
        self.body = {"model": "m", "tools": [tool], "user": self.session}
        self.messages: list[dict[str, Any]] = [
            {"role": "system", "content": f"You help {name}. Today's date is {self.date}."},
            {"role": "user", "content": f"msg_{self.session} do it"},
        ]

    async def ask(self, client: Client, base: str) -> httpx.Response:
        body = self.body | {"messages": self.messages}
        return await client.post(f"{base}/v1/chat/completions", json=body, headers=self.headers)

    async def turns(self, client: Client, base: str, count: int) -> list[str]:
        said = []
        for turn in range(count):
            got = await self.ask(client, base)
            assert got.status_code == 200, got.text
            reply = got.json()["choices"][0]["message"]
            said.append(reply["content"])
            self.messages.append({k: v for k, v in reply.items() if v is not None})
            listed = f"-rw-r--r-- 1 ann ann 4 Nov 25 19:1{self.session[-1]} a.txt\nturn {turn}"
            calls = reply.get("tool_calls") or []
            more = [{"role": "tool", "tool_call_id": c["id"], "content": listed} for c in calls]
            self.messages += more or [{"role": "user", "content": listed}]
        return said


def recorded(peer: Peer, replies: Sequence[Any], turns: int = 3, **options: Any) -> tuple[Gateway, str, list[str]]:
    peer.say(*replies)
    it = before(peer, **options)
    said = using(it, lambda c: Volatile(1).turns(c, "/r/one", turns))
    return it, only(it).id, said


REPLIES = [chat(tool_calls=CALLED["tool_calls"]), chat("two"), chat("three"), chat("four"), chat("five")]


def test_another_start_is_answered_through_masks_without_a_model() -> None:
    with serving() as peer:
        it, run, said = recorded(peer, REPLIES, matching=MASKED)

        async def again(client: Client) -> tuple[list[str], Any]:
            session = it.replay(run)
            return await Volatile(2).turns(client, f"/r/{run}", 3), session

        count = len(it.store.calls(run))
        got, session = using(it, again)
        assert got == said
        assert len(peer.bodies) == 3
    assert [set(met.masked) for met in session.met] == [
        {"codex: item", "date in a prompt", "field user"},
        {"codex: item", "date in a prompt", "field user", "ls: times and columns"},
        {"codex: item", "date in a prompt", "field user", "ls: times and columns"},
    ]
    assert not any(met.differs for met in session.met)
    assert not session.refusals
    assert len(it.store.calls(run)) == count, "a replay adds nothing to the record"


@pytest.mark.parametrize(
    ("matching", "other", "told"),
    [
        (None, Volatile(2), "2026-11-12"),
        (MASKED, Volatile(1, "bob"), "You help bob"),
    ],
)
def test_what_no_mask_leaves_out_stops_the_program(matching: Any, other: Volatile, told: str) -> None:
    with serving() as peer:
        it, run, _ = recorded(peer, REPLIES, matching=matching)

        async def again(client: Client) -> tuple[httpx.Response, Any]:
            session = it.replay(run)
            return await other.ask(client, f"/r/{run}"), session

        got, session = using(it, again)
        assert len(peer.bodies) == 3
    assert got.status_code == 404
    text = got.json()["error"]["message"]
    assert "messages[0].text: " in text
    assert told in text
    assert "You help ann" in text or "2026-11-11" in text
    assert len(session.refusals) == 1


def test_masks_of_ones_own_are_used_too() -> None:
    with serving() as peer:
        matching = Matching(Masks([*MASKS, *own([r"You help (\w+)"])]))
        it, run, said = recorded(peer, REPLIES, matching=matching)

        async def again(client: Client) -> list[str]:
            it.replay(run)
            return await Volatile(2, "bob").turns(client, f"/r/{run}", 3)

        assert using(it, again) == said


def test_a_fork_goes_on_in_its_conversation_and_sends_what_the_program_wrote() -> None:
    with serving() as peer:
        it, run, _ = recorded(peer, REPLIES, matching=MASKED)
        second = asks(only(it))[1].seq

        async def forked(client: Client) -> str:
            edit = Edit("reply", second, {"role": "assistant", "text": "otherwise"})
            (session,) = it.fork(Cursor(run, second), 1, Intervention((edit,)))
            said = await Volatile(2).turns(client, f"/r/{session.name}", 4)
            assert said[1:] == ["otherwise", "four", "five"]
            return session.run

        begun = len(peer.bodies)
        fork = using(it, forked)
        sent = peer.bodies[begun:]
    assert len(sent) == 2
    for body in sent:  # the ids of this start, not those of the record
        assert body["messages"][1]["content"] == f"msg_{uuid.UUID(int=2)} do it"
        assert body["user"] == str(uuid.UUID(int=2))
        assert "2026-11-12" in body["tools"][0]["function"]["description"]
    from clew.store import Run

    view = Run(it.store, fork)
    assert not [note for note in notes(view) if note["note"] == "drift"]
    told = [note for note in notes(view) if note["note"] == "masked"]
    assert told[0]["request"] == 0
    assert set(told[0]["masks"]) == {"codex: item", "date in a prompt", "field user"}
    assert sum("ls: times and columns" in note["masks"] for note in told) == 1, "each mask once a conversation"
    assert {c.conversation for c in asks(view)} == {0}
    written = bodies(view)[-1]
    assert written["messages"] == sent[-1]["messages"], "the record holds each body to the letter"
    assert written["tools"] == sent[-1]["tools"]
    assert Runner.of(it.store, view).replay(view).calls == len(view.calls)
    assert not it.store.verify()


def test_a_fork_of_such_a_fork_is_answered_from_both() -> None:
    with serving() as peer:
        it, run, _ = recorded(peer, REPLIES, matching=MASKED)

        async def forked(client: Client, at: Cursor, started: int, turns: int) -> tuple[str, list[str]]:
            edit = Edit("reply", at.seq, {"role": "assistant", "text": f"otherwise {started}"})
            (session,) = it.fork(at, 1, Intervention((edit,)))
            return session.run, await Volatile(started).turns(client, f"/r/{session.name}", turns)

        async def both(client: Client) -> list[str]:
            fork, _ = await forked(client, Cursor(run, asks(only(it))[1].seq), 2, 3)
            await client.post(f"/r/{fork}/end")
            from clew.store import Run

            third = asks(Run(it.store, fork))[2].seq
            _, said = await forked(client, Cursor(fork, third), 3, 4)
            return said

        said = using(it, both)
        assert said[1:3] == ["otherwise 2", "otherwise 3"]
    assert not it.store.verify()


def test_by_its_place_a_request_is_answered_whatever_it_says_and_what_differs_is_told() -> None:
    with serving() as peer:
        it, run, said = recorded(peer, REPLIES, matching=Matching(Masks(MASKS), position=True))

        async def again(client: Client) -> Any:
            session = it.replay(run)
            assert await Volatile(2, "bob").turns(client, f"/r/{run}", 3) == said
            over = await Volatile(2, "bob").ask(client, f"/r/{run}")
            assert over.status_code == 404, "the record has one answer for each place"
            return session

        session = using(it, again)
        assert len(peer.bodies) == 3
    assert all(met.differs.startswith('messages[0].text: "You help bob.') for met in session.met)
    assert all("You help ann" in met.differs for met in session.met)


def test_a_fork_by_place_notes_what_differs_and_leaves_a_further_request_to_the_model() -> None:
    with serving() as peer:
        it, run, _ = recorded(peer, REPLIES, matching=Matching(Masks(MASKS), position=True))
        second = asks(only(it))[1].seq

        async def forked(client: Client) -> str:
            edit = Edit("reply", second, {"role": "assistant", "text": "otherwise"})
            (session,) = it.fork(Cursor(run, second), 1, Intervention((edit,)))
            said = await Volatile(2, "bob").turns(client, f"/r/{session.name}", 3)
            assert said[1:] == ["otherwise", "four"]
            return session.run

        fork = using(it, forked)
    from clew.store import Run

    told = [note for note in notes(Run(it.store, fork)) if note["note"] == "differs"]
    assert [note["request"] for note in told] == [0, 1]
    assert all("bob" in note["why"] for note in told)
    drifts = [note for note in notes(Run(it.store, fork)) if note["note"] == "drift"]
    assert len(drifts) == 1, "its history is not the recorded one, and says so"


def test_side_by_side_conversations_are_not_mixed_by_place() -> None:
    """A request with no reply before it stands for a recorded one of that kind, never for one with replies."""
    with serving() as peer:
        peer.say(chat("title"), *REPLIES)
        it = before(peer, matching=Matching(position=True))

        async def program(client: Client, base: str, started: int) -> list[str]:
            body = {"model": "small", "messages": [{"role": "user", "content": f"name it, {started}"}]}
            title = (await client.post(f"{base}/v1/chat/completions", json=body)).json()
            said = await Volatile(started).turns(client, base, 2)
            return [title["choices"][0]["message"]["content"], *said]

        said = using(it, lambda c: program(c, "/r/one", 1))
        run = only(it).id

        async def without_title(client: Client) -> list[str]:
            it.replay(run)
            return await Volatile(2).turns(client, f"/r/{run}", 2)

        assert using(it, without_title) == said[1:]


@pytest.mark.parametrize(
    ("headers", "kind"),
    [
        ({"x-claude-code-agent-id": "a" * 16}, "sub-agent"),
        ({"x-codex-turn-metadata": json.dumps({"request_kind": "compaction"})}, "compaction"),
        ({"x-codex-turn-metadata": json.dumps({"request_kind": "turn"})}, ""),
        ({"x-claude-code-agent-id": "a" * 16, "x-clew-request": "compaction"}, "compaction"),
    ],
)
def test_what_an_agent_declares_in_its_own_way_is_noted(headers: dict[str, str], kind: str) -> None:
    with serving() as peer:
        it = before(peer)
        using(it, lambda c: Volatile(1, headers=headers).ask(c, "/r/one"))
    assert [note["note"] for note in notes(only(it))] == ([kind] if kind else [])
