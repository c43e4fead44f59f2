"""A pool behind a router on the command line: run by a reference with a policy, shown, and forked by worker."""

from __future__ import annotations

import json

from clew.models.compose.router import Worker
from clew.store import open_store
from tests.models.pool import folder, servers, worker


def test_the_command_line_runs_shows_and_forks_by_worker(clew, tmp_path):
    with servers("small", "large") as (small, large):
        ref = f"route:{folder(tmp_path / 'r', [worker(small), worker(large, region='eu')])}"
        clew("run", "chatter", "--world", "counter", "--model", f"{ref}?regions=eu,us", "--tasks", 1, "-n", 1)
        assert small.accepted == 0, "the policy in the reference holds"
        assert large.accepted > 0
        with open_store(tmp_path / ".clew" / "store.db") as store:
            run = store.run(store.find("")[0])
            seq = next(call.seq for call in run.calls if call.kind == "ask")
        assert "answered by large" in clew("show", run.id).output
        assert "small was not asked: its region is unknown" in clew("show", run.id, "--full").output
        forked = json.loads(clew("fork", f"{run.id}@{seq}", "--model", "#large", "--json").output)
        with open_store(tmp_path / ".clew" / "store.db") as store:
            calls = store.run(forked["forks"][0]["run"]).calls
            setup = next(call.setup for call in calls if call.kind == "ask")
        assert setup.model == f"{ref}?regions=eu,us#large", "a fork keeps the policy"
        assert "no worker is called 'tiny'" in clew("fork", f"{run.id}@{seq}", "--model", "#tiny", code=2).output
        assert small.accepted == 0


def test_references_that_lead_nowhere_are_one_sentence(clew, tmp_path):
    folder(tmp_path / "r", [Worker("a", "echo")])
    for ref, told in (
        ("route:elsewhere", "holds no router"),
        ("route:r?colour=red", "there is no 'colour'"),
        ("route:r?deny=b", "no worker is called 'b'"),
    ):
        assert told in clew("run", "chatter", "--world", "counter", "--model", ref, code=2).output
