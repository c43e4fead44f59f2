"""What the tape holds a fork and a replay to: the request at the fork point, every message, the ticks of the record."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from clew.core.errors import ReplayDiverged
from clew.core.records import Call, Node, Request
from clew.core.values import Completion, Limits, Message, StopReason, Task, Usage
from clew.harness import LiveRun, Runner
from clew.harness.run.tape import Tape
from clew.models.fakes import Scripted
from clew.store import MemoryStore, Run, open_store

from .conftest import Jittery

SAID = {"second": "and then?"}


async def talk(run: LiveRun) -> None:
    chat = run.chat("be short")
    await chat.ask("what is it?")
    await chat.ask(SAID["second"])
    await chat.ask("bye")


def talked(store: Any = ":memory:") -> tuple[Runner, Run]:
    runner = Runner(talk, None, Scripted(["a", "b", "c", "d", "e", "f"], by="call"), store)
    return runner, runner.collect([Task("t", "")], n=1).runs[0]


def test_a_fork_of_a_changed_agent_names_the_message_that_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    runner, run = talked()
    before = len(runner.store.find(""))
    monkeypatch.setitem(SAID, "second", "what else?")
    with pytest.raises(ReplayDiverged, match=r"message 3 is user 'and then\?', .*where it is user 'what else\?'") as it:
        runner.fork(run, 2)
    assert it.value.at.endswith("@2")
    with pytest.raises(ReplayDiverged, match=r"message 3 is user 'and then\?'"):
        runner.fork(run, 2, reply="given")
    for made in runner.store.find("")[:-before]:
        assert len(runner.store.calls(made)) <= 2, "nothing was asked anew"
    assert runner.fork(run, 1, rewrite={1: "why is it?"})[0].stop is StopReason.RETURNED


def test_an_altered_message_is_found_by_a_replay(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    runner, run = talked(path)
    name = run.reply(2).key
    runner.store.close()
    with sqlite3.connect(path) as db:
        assert db.execute("UPDATE node SET text = 'B' WHERE key = ?", (name,)).rowcount == 1
    db.close()
    with pytest.raises(ReplayDiverged, match="content does not give its key") as it:
        Runner(talk, None, None, path).replay(run.id)
    assert it.value.at == f"{run.id}@2"


def test_a_given_reply_beside_another_ask_has_a_tick_of_its_own() -> None:
    async def agent(run: LiveRun) -> None:
        async def part(index: int) -> None:
            chat = run.chat(f"part {index}")
            for turn in range(3):
                reply = await chat.ask(f"question {turn}")
                run.note("heard", index=index, text=reply.text)

        await asyncio.gather(*(part(i) for i in range(3)))

    runner = Runner(agent, None, Jittery())
    for attempt in range(4):
        run = runner.collect([Task("t", "")], n=1, seed=attempt).runs[0]
        for call in run.calls:
            if call.kind == "ask":
                for fork in (*runner.fork(run, call.seq, reply="given"), *runner.fork(run, call.seq)):
                    assert runner.replay(fork).calls == len(fork.calls)
    assert runner.store.verify() == []


class Priced(Scripted):
    async def complete(self, request: Request) -> Completion:
        answer = await super().complete(request)
        return answer._replace(cost=0.25, usage=Usage(3, 1))


def test_a_cost_limit_ends_a_run_once_it_is_spent() -> None:
    async def agent(run: LiveRun) -> None:
        chat = run.chat()
        for _ in range(9):
            await chat.ask("again")

    for limit, asks in ((0.5, 2), (0.6, 3), (10.0, 9)):
        runner = Runner(agent, None, Priced(["x"] * 9, by="call"), limits=Limits(cost=limit))
        run = runner.collect([Task("t", "")], n=1).runs[0]
        assert sum(c.kind == "ask" for c in run.calls) == asks
        assert run.stop is (StopReason.RETURNED if asks == 9 else StopReason.COST_LIMIT)
        runner.replay(run)


def test_a_limit_ends_the_run_whoever_catches_it() -> None:
    async def agent(run: LiveRun) -> None:
        chat = run.chat()
        try:
            for _ in range(5):
                await chat.ask("again")
        finally:
            run.note("cleaning up")

    runner = Runner(agent, None, Priced(["x"] * 9, by="call"), limits=Limits(cost=0.5))
    run = runner.collect([Task("t", "")], n=1).runs[0]
    assert run.stop is StopReason.COST_LIMIT
    assert [c.kind for c in run.calls] == ["open", "ask", "ask", "end"]
    runner.replay(run)


def test_two_rewrites_in_two_conversations_and_a_message_as_reply() -> None:
    async def agent(run: LiveRun) -> None:
        first, second = run.chat("one"), run.chat("two")
        await first.ask("a")
        await second.ask("b")
        await first.ask("c")

    runner = Runner(agent, None, Scripted({"": lambda request: " ".join(n.message.text for n in request.path)}))
    run = runner.collect([Task("t", "")], n=1).runs[0]
    fork = runner.fork(run, rewrite={(0, 2): "C", (1, 1): "B"})[0]
    assert [fork.reply(seq).message.text for seq in (1, 2, 3)] == ["one a", "two B", "one a one a C"]
    assert fork.parent is not None
    assert fork.parent.seq == 2, "the first ask that an edited message reaches"
    dropped = runner.fork(run, rewrite={(0, 0): None, (0, 1): Message("user", "A")})[0]
    assert [dropped.reply(seq).message.text for seq in (1, 3)] == ["A", "A A c"]
    told = Message("assistant", "told", reasoning="since I was")
    given = runner.fork(run, 3, reply=told)[0]
    assert given.reply(3).message == told
    for it in (fork, dropped, given):
        runner.replay(it)
    assert runner.store.verify() == []


def test_kept_replies_pass_over_asks_that_never_answered() -> None:
    async def agent(run: LiveRun) -> None:
        chat = run.chat("one")
        for question in ("a", "never", "c"):
            try:
                async with asyncio.timeout(0.05 if question == "never" else 30):
                    await chat.ask(question)
            except TimeoutError:
                run.note("no answer")

    class Late(Scripted):
        async def complete(self, request: Request) -> Completion:
            if request.path[-1].message.text == "never":
                await asyncio.sleep(30)
            return await super().complete(request)

    runner = Runner(agent, None, Late(["1", "2", "3", "4", "5", "6"], by="call"))
    run = runner.collect([Task("t", "")], n=1).runs[0]
    kept = runner.fork(run, rewrite={0: "uno"}, keep=True)[0]
    asks = [c for c in kept.calls if c.kind == "ask"]
    assert [c.finish for c in asks] == ["forced", "", "forced"]
    assert [n.message.text for n in kept.conversation()] == ["uno", "a", "1", "never", "c", "2"]
    runner.replay(kept)
    assert runner.store.verify() == []


def test_a_fork_at_the_very_start_shares_nothing() -> None:
    runner, run = talked()
    fork = runner.fork(run, 0)[0]
    assert fork.shared == 0
    assert [c.run for c in fork.calls] == [fork.id] * len(run.calls)
    assert fork.row.lineage == ()
    runner.replay(fork)
    assert open_store(runner.store).verify() == []


@pytest.mark.parametrize("tokens_first", [True, False])
def test_a_run_of_two_models_follows_its_record_whatever_models_are_at_hand(tokens_first: bool) -> None:
    from clew.models import load

    words = load("markov", corpus="up\nup\ndown\nstop", order=1, tokens=True)
    plain = Scripted({"": lambda request: "stop up"})
    first, second = (words, plain) if tokens_first else (plain, words)

    async def agent(run: LiveRun) -> None:
        one, other = run.chat("be good"), run.chat("be good", model=second)
        said = await one.ask("up or down")
        said = await other.ask(said.text)
        await one.ask(said.text)
        await other.ask("again")

    runner = Runner(agent, None, first)
    run = runner.collect([Task("t", "")], n=1).runs[0]
    anyone = [runner, *(Runner(agent, None, model, runner.store) for model in (None, words, plain))]
    for call in run.calls[1:5]:
        for change in ({}, {"model": second}, {"reply": "up"}):
            fork = runner.fork(run, call.seq, **change)[0]
            assert fork.stop is StopReason.RETURNED, fork.calls[-1].error
            for it in anyone:
                assert it.replay(fork).calls == len(fork.calls)
    for it in anyone:
        it.replay(run)
    other = Runner(agent, None, second, runner.store).fork(run, 3)[0]
    asked = other.calls[3]
    assert asked.setup is not None
    assert asked.setup.model == second.ref
    tokenizers = {n.tokenizer for n in other.store.thread(asked.node_in)}  # type: ignore[attr-defined]
    assert tokenizers == {second.renderer.ref if second.renderer else ""}, "one path, one tokenizer"
    assert runner.store.verify() == []


def test_a_thread_is_read_once_however_many_calls_lie_on_it() -> None:
    class Counting(MemoryStore):
        read = 0

        def thread(self, tip: bytes) -> list[Node]:
            self.read += 1
            return super().thread(tip)

    store = Counting()
    runner = Runner(talk, None, Scripted(["one", "two", "three"]), store)
    run = runner.collect([Task("t", "")], n=1).runs[0]
    tape, store.read = Tape(run.id, run.calls), 0
    tape.load(store)
    assert len(tape.by_key) == 7
    assert store.read == 1


def test_what_another_task_issued_later_may_come_first_once() -> None:
    """Records in which results came together do not tell how long each task took from there to its next Call."""
    opened = Call("r", 0, "open", b"open", 0, 0)
    one, other = (Call("r", seq, "ask", b"q%d" % seq, 1, seq) for seq in (1, 2))
    later = Call("r", 3, "ask", b"q2", 3, 3)
    tape = Tape("r", [opened, one, other, later])
    assert tape.issue(0) == tape.next(1).seq + 1 == 1  # type: ignore[union-attr]
    tape.position += 1
    assert tape.turn(1, "ask", lambda _: b"q2") == 2
    assert tape.issue(2) == 1
    assert tape.turn(1, "ask", lambda _: b"q2") == 1, "it is issued already, and what comes after it knows more"
    assert tape.turn(1, "ask", lambda _: b"q1") == 1
    assert tape.issue(1) == 3
