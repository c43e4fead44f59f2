"""Runs of a routed model: the decision is in the record, a replay opens no connection, a fork names another worker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import clew
from clew.core.values import Sampling, Task
from clew.harness import LiveRun, Runner
from clew.models.compose.decision import decision_of
from clew.store import open_store
from clew.view.pages.transcript_page import call as detail
from clew.view.terminal import tree
from tests.models.pool import folder, said, servers, worker


async def talk(run: LiveRun) -> None:
    """Two turns of one conversation."""
    chat = run.chat()
    for text in ("first", "second"):
        chat.say("user", text)
        await chat.ask()


def text_of(run: Any, **options: Any) -> str:
    return str(tree(run, width=200, **options))


def test_a_run_is_shown_replayed_and_forked(tmp_path: Path) -> None:
    with servers("small", "large") as (small, large):
        folder(tmp_path / "r", [worker(small), worker(large)])
        small.answer = lambda body: said("small talk") if len(body["messages"]) == 1 else (500, {"error": "down"})
        store = open_store(tmp_path / "s.db")
        runner = Runner(talk, None, clew.model(f"route:{tmp_path / 'r'}"), store, sampling=Sampling(16)._asdict())
        (run,) = runner.collect([Task("t", "go")], n=1).runs
        asks = [call for call in run.calls if call.kind == "ask"]
        decisions = [decision_of(call.inner) for call in asks]
        assert [one and (one.worker, one.first) for one in decisions] == [("small", "small"), ("large", "small")]
        assert [call.setup and call.setup.served_by for call in asks] == ["small", "large"]
        assert all(call.cost == sum(one.cost for one in call.inner) > 0 for call in asks)
        assert "answered by large, in place of small" in text_of(run)
        assert "small did not answer: no answer from" in text_of(run)
        assert "10 + 4 tok, $0.000018" in text_of(run, full=True)
        shown = detail(store, run.id, asks[1].seq)
        assert shown is not None
        assert shown["decided"][0].startswith("answered by large, in place of small")
        assert len(shown["asked"]) == 1

        before = (small.accepted, large.accepted)
        assert runner.replay(run).calls == len(run.calls)
        again = Runner.of(store, run.id)
        assert again.replay(run.id).calls == len(run.calls)
        assert (small.accepted, large.accepted) == before, "a replay opens no connection"

        (fork,) = runner.fork(run, asks[0].seq, model=f"{run.model}#large")
        assert [c.setup and c.setup.served_by for c in fork.calls if c.kind == "ask"] == ["large", "large"]
        assert small.accepted == before[0]
        store.close()
