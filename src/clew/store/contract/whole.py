# ruff: noqa: PT018  (checks are plain functions, not tests)
"""Checks of a store as a whole: queries, leases, verify, merge, redaction, garbage collection, views."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from clew.core.errors import BadInput, BadQuery, LeaseHeld, StoreError, UnknownName
from clew.core.records import Annotation, Call, GroupRow, Report, RunRow, Sample, Segment
from clew.core.values import Inner, Message
from clew.store.contract.script import SETUP, Factory, Script, expect, fork_at, make_node, same, tamper
from clew.store.groups import Group, Groups
from clew.store.run import Run

FOUND = """ -> cba | world=toy -> cba | world=other -> | world="toy(rooms=3)" -> cba | world=t* -> cba
task=kitchen -> ca | -task=kitchen -> b | task:CELL -> b | model=big -> b | agent=play -> cba
agent:agents.py -> cba | return>0.5 -> a | return<=1 -> ba | -return>0.5 -> cb | reward=0 -> b
steps>=1 -> cba | steps>1 return=1 -> a | steps=1 -> b | calls=5 -> c | tokens=4 -> c | tokens>3 -> ca
cost>0.002 -> a | seed=4 -> b | stop=done -> a | stop=open -> b | stop!=open -> ca | stop=*limit -> c
origin=fork -> c | parent=aaa222 -> c | parent=aaa222@3 -> c | id=bb -> b | tag:good -> a | -tag:good -> cb
name:FIRST -> ba | group=g1 -> | has:g2po -> a | has:reward -> ba | text:fridge -> c | text:"fridge is" -> c
text:"is fridge" -> | text:"result 2" -> a | text:solve -> cba | text:frid -> | after:1970-01-01 -> cba
before:1970-01-01 -> | after:1d -> | sort:return -> bac | sort:-return -> abc | sort:steps sort:-task -> bca
sort:-created -> cba | sort:created -> abc | sort:id -> abc"""  # queries, and the runs each finds in order


def finds_runs(make: Factory) -> None:
    """The query language, over ended, running, forked and tagged runs."""
    store = make()
    a = Script(store, "aaa222", task="kitchen", created=10.0).play(3, 1.0)
    b = Script(store, "bbb222", task="cellar", created=20.0, model="big(x=1)", seed=4).play(1, 0.0, end=False)
    script = fork_at(store, a, 3, run="ccc222", created=30.0)
    script.ask("the FRIDGE is open", "> close fridge")
    script.end("step_limit")
    store.put_group(GroupRow("g1", "iid", "kitchen", (a.id, b.id), "first try"))
    store.tag(a.id, "good")
    store.annotate([Annotation("call", "g2po", 1.0, a.id, 1)])
    expected = [line.partition(" ->") for line in re.split(r" \| |\n", FOUND)]
    assert len(expected) == 52
    ids = {"a": a.id, "b": b.id, "c": script.run}
    for _ in range(2):  # before and after the derived tables are filled
        for query, _, names in expected:
            found = store.find(query)
            assert found == [ids[n] for n in names.strip()], f"{query!r} found {found}, not {names}"
    listed = {made.run: made for made in store.summaries()}
    assert all(store.summary(run) == listed[run] for run in ids.values())
    assert store.find("", 2) == [ids["c"], ids["b"]] and [r.id for r in store.runs("tag=good")] == [a.id]
    bad = ["fridge", "wrld=x", "steps:3", "return<x", "stop=dne", "sort:moon", "-sort:id", "after:soon", "text:--"]
    for query in (*bad, "tag:", 'world="x', "world=toy  steps>>1"):
        error = expect(BadQuery, lambda query=query: store.find(query))  # type: ignore[misc]
        assert "position" in error.message and error.remedy, error
    assert store.run("aaa") == a
    expect(UnknownName, lambda: store.run("zzz"))
    Script(store, "aaa333").play(1)
    expect(BadInput, lambda: store.run("aaa"))
    script = Script(store, created=40.0)
    script.open("nothing")
    assert store.find("stop=open") == [script.run, b.id]
    script.end("cancelled")
    assert store.find("stop=cancelled") == [script.run], "a run that ends is counted anew"


def leases_runs(make: Factory) -> None:
    """One live owner at a time; an expired lease is taken over; the old owner's Calls are refused."""
    store = make()
    script = Script(store)
    script.open()
    store.lease(script.run, "one", 60)
    store.lease(script.run, "one", 60)
    assert "one" in expect(LeaseHeld, lambda: store.lease(script.run, "two", 60)).message
    assert store.leased() == [script.run]
    store.release(script.run, "two")
    expect(LeaseHeld, lambda: store.lease(script.run, "two", 60))
    store.lease(script.run, "one", -1)
    assert store.leased() == []
    store.lease(script.run, "two", 60)
    late = Call(script.run, 1, "note", b"", 1, 1, b"k", action="late")
    expect(LeaseHeld, lambda: store.put_call(script.run, late, owner="one"))
    store.put_call(script.run, late, owner="two")
    store.release(script.run, "two")
    store.lease(script.run, "three", 60)
    expect(UnknownName, lambda: store.lease("nobody", "one", 1))


def proves_itself(make: Factory) -> None:
    """``verify`` is silent on a sound store and names each altered field of a Call, and nothing else."""
    store = make()
    run = Script(store).play(3)
    forked = fork_at(store, run, 4)
    forked.end("cancelled")
    store.commit()
    assert store.verify() == [] and store.verify(rebuild=True) == []
    acts = {"text": "altered", "reward": 1.0, "terminal": True, "legal": ("fly",), "state": b"s" * 16, "done": 77}
    asks = {"finish": "length", "seed": 1, "head": 0, "logprobs": np.zeros(2, np.float32), "entropies": None}
    asks |= {"setup": SETUP._replace(version=4), "inner": (Inner("small", "s-1", 2, text="x", tokens=(1, 2)),)}
    asks |= {"kept": b"\1\0\0\0\0"}  # in no key, and found by its count: one set for two logprobs
    asks |= {"packed": (Sample(1, Message("assistant", "x"), None, None, "stop"),)}
    changes = {name: (2, value) for name, value in (acts | {"error": "no", "child": ""}).items()}
    changes |= {name: (3, value) for name, value in asks.items()}
    for field, (seq, value) in changes.items():
        was = getattr(run.calls[seq], field)
        tamper(store, run.id, seq, **{field: value})
        faults = store.verify()
        silent = same(was, value)
        assert silent or f"{run.id}@{seq}" in {f.where for f in faults}, f"{field} was altered unnoticed"
        assert silent or all("@" not in f.where or f.where.endswith(f"@{seq}") for f in faults) or field == "done", (
            faults
        )
        tamper(store, run.id, seq, **{field: was})
        assert store.verify() == [], f"{field} was put back"
    for field, value in {"request": b"r" * 16, "action": "jump", "after": 1}.items():
        was = getattr(run.calls[2], field)
        tamper(store, run.id, 2, **{field: value})
        assert f"{run.id}@2" in {f.where for f in store.verify()}, f"{field} was altered unnoticed"
        tamper(store, run.id, 2, **{field: was})
    assert store.verify() == []


def checks_legality(make: Factory) -> None:
    """Each rule of a legal record is seen to be broken."""

    def broken(write: Callable[[Script], Any]) -> str:
        store = make()
        script = Script(store)
        write(script)
        store.commit()
        return " ".join(fault.what for fault in store.verify())

    def setup_only(script: Script) -> None:
        script.open()
        asked = script.ask("a", "b")
        nine = np.zeros(9, np.float32)
        script.put("ask", conversation=0, node_in=asked.node_in, node_out=asked.node_out, logprobs=nine, setup=SETUP)

    def misplaced(script: Script) -> None:
        script.open()
        script.store.annotate([Annotation("call", "m", 1.0, script.run, 9)])

    def skip(script: Script) -> None:
        script.open()
        script.seq = 2
        script.end()

    assert "place" in broken(skip)
    assert "starts with" in broken(lambda s: s.act("x", "y"))
    assert "after the start" in broken(lambda s: (s.open(), s.open()))
    assert "before the last" in broken(lambda s: (s.open(), s.end(), s.act("x", "y")))
    assert "no known reason" in broken(lambda s: (s.open(), s.end("bored")))
    assert "clock" in broken(lambda s: (s.open(), s.put("now", after=9, done=9)))
    assert "before it was issued" in broken(lambda s: (s.open(), s.put("now", after=1, done=0)))
    assert "as another" in broken(lambda s: (s.open(), s.put("now", after=0, done=0)))
    assert "before the Call before" in broken(lambda s: (s.open(), s.put("now"), s.put("now", after=0, done=5)))
    assert "without node in" in broken(lambda s: (s.open(), s.put("ask")))
    assert "without a child" in broken(lambda s: (s.open(), s.put("spawn")))
    assert "is missing" in broken(lambda s: (s.open(), s.put("spawn", child="nobody")))
    assert "is missing" in broken(lambda s: (s.open(), s.put("act", snapshot=b"x" * 16)))
    assert "is missing" in broken(lambda s: (s.open(), s.put("ask", node_in=b"x" * 16, conversation=0, setup=SETUP)))
    assert "tokens, not" in broken(setup_only)
    assert "lineage" in broken(lambda s: Script(s.store, lineage=(Segment(s.run, 0, 0),)))
    assert "is missing" in broken(lambda s: s.store.put_group(GroupRow("g", "iid", "t", ("nobody",))))
    bad = make_node(None, "user", "x")._replace(message=Message("user", "y"))
    assert "not what its key" in broken(lambda s: s.store.put_nodes([bad]))
    assert "parent" in broken(lambda s: s.store.put_nodes([make_node(bad, "user", "x")]))
    assert "Call that is missing" in broken(misplaced)


def merges(make: Factory) -> None:
    """Union by global ids; twice is once; a disagreement is refused before anything is taken."""
    here, there = make(), make()
    both = Script(here, "both22").play(2, 1.0)
    Script(there, "both22").play(2, 1.0)
    extra = Script(there, "extra2").play(3, 0.5)
    fork = fork_at(there, extra, 3)
    fork.act("x", "y", snapshot=there.put_blob(b"snap"))
    fork.end()
    there.put_group(GroupRow("g", "tree", "t", (extra.id, fork.run)))
    there.tag(extra.id, "kept")
    there.put_report(Report(claim="c", estimate=1, low=0, high=1, n=1, design="d", runs=(extra.id,)))
    there.put_outcomes("m", "extra2@1", [1], [1.0], [0.0])
    there.put_metrics("t", 0, {"x": 1.0})
    new = here.merge(there)
    assert new["runs"] == 2 and new["calls"] == len(extra.calls) + 2 and new["annotations"] == 1, new
    assert set(here.run_ids()) == {"both22", "extra2", fork.run} and here.verify() == []
    assert same(tuple(here.calls(fork.run)), tuple(there.calls(fork.run)))
    assert here.tags() == there.tags() and here.reports() == there.reports() and here.metrics("t") == {0: {"x": 1.0}}
    assert here.outcome_places() == [("m", "extra2@1")] and here.blob(here.calls(fork.run)[3].snapshot) == b"snap"
    assert not any(here.merge(there).values()), "merging again takes nothing"
    begun, ended = make(), make()
    for store in (begun, ended):
        Script(store, "half22").open()
    asked = Call("half22", 1, "note", b"q" * 16, 1)
    begun.put_call("half22", asked)
    ended.put_call("half22", asked._replace(done=1, key=b"k" * 16, text="came"))
    assert not any(ended.merge(begun).values()), "an intent is less than its result"
    assert begun.merge(ended)["calls"] == 1 and begun.calls("half22") == ended.calls("half22")
    assert [*ended.each_node(there)] == [] and len([*there.each_node(ended)]) == len([*there.each_node()]) > 0
    third = make()
    odd = Script(third, "both22")
    odd.open("Another door.")
    odd.store.put_run(RunRow("never2", "x"))
    third.commit()
    assert expect(StoreError, lambda: here.merge(third)).at == f"{both.id}@0"
    assert "never2" not in here.run_ids()


def redacts(make: Factory) -> None:
    """Content goes everywhere it was, keys stay, ``verify`` knows; forks and merging respect it."""
    store = make()
    secret = "the password is swordfish"
    script = Script(store)
    script.open()
    script.ask("view", secret, inner=(Inner("small", text=secret),))
    script.act(secret, "you may pass")
    script.ask("you may pass", "> go")
    script.end()
    forked = fork_at(store, Run(store, script.run), 3)
    forked.ask(secret, "> stay", sampled=1)
    forked.end()
    other = Script(store)
    other.open(secret)
    store.commit()
    assert store.find("text:swordfish") == [other.run, forked.run, script.run]
    keys = [c.key for c in store.calls(forked.run)]
    places = store.redact(f"{script.run}@1")
    assert {f"{script.run}@1", f"{script.run}@2"} <= set(places) and places == sorted(places)
    assert store.find("text:swordfish") == [other.run], "an unrelated run keeps what it says"
    assert [c.key for c in store.calls(forked.run)] == keys and store.verify() == []
    reply = Run(store, script.run).reply(1)
    assert reply.message.text == "(redacted)" and reply.ids is None and reply.message.redacted
    assert store.calls(script.run)[1].inner == ()
    assert store.calls(script.run)[2].action == "(redacted)" and store.calls(script.run)[2].redacted
    assert store.calls(script.run)[0].text
    target = make()
    target.merge(store)
    assert target.tombstones() == store.tombstones() and target.verify() == []
    node = store.node(store.calls(script.run)[3].node_in)
    assert node.key.hex() in store.redact(node.key.hex()) and store.find('text:"may pass"') == []
    assert store.verify() == []
    expect(BadInput, lambda: store.redact(f"{script.run}@4"))
    expect(BadInput, lambda: store.redact(f"{script.run}@99"))
    expect(UnknownName, lambda: store.redact("0" * 32))


def collects_garbage(make: Factory) -> None:
    """Only what no tag, label, group, report or lease reaches goes, and nothing in a dry run."""
    store = make()
    tagged, grouped, reported = (Script(store, created=float(n)).play(1) for n in range(3))
    lonely = Script(store).play(2)
    base = Script(store).play(2)
    child = fork_at(store, base, 3)
    child.act("x", "own words", snapshot=store.put_blob(b"kept"))
    child.end()
    stray = fork_at(store, base, 3)
    stray.ask("nobody", "hears", 1)
    stray.end()
    dropped = store.put_blob(b"dropped")
    store.commit()
    store.tag(tagged.id, "keep")
    store.tag(child.run, "keep")
    store.put_group(GroupRow("g", "iid", "t", (grouped.id,)))
    store.put_report(Report(claim="c", estimate=1, low=0, high=1, n=1, design="d", runs=(reported.id,)))
    garbage = store.gc()
    assert set(garbage.runs) == {lonely.id, stray.run} and garbage.calls == len(lonely.calls) + 2
    assert dropped in garbage.blobs and garbage.nodes and len(store.run_ids()) == 7, "a dry run removes nothing"
    store.lease(lonely.id, "me", 60)
    expect(LeaseHeld, lambda: store.gc(dry_run=False))
    store.release(lonely.id, "me")
    assert store.gc(dry_run=False) == garbage
    assert set(store.run_ids()) == {tagged.id, grouped.id, reported.id, base.id, child.run}
    assert store.verify() == [] and not store.gc().runs and not store.gc().nodes and not store.gc().blobs
    assert store.blob(store.calls(child.run)[3].snapshot) == b"kept" and len(store.find()) == 5
    again = Script(store)
    again.open()
    again.ask("nobody", "hears", 1)
    store.commit()
    assert Run(store, again.run).calls[1].setup == SETUP and store.verify() == [], "interned values are written anew"


def shows_runs(make: Factory) -> None:
    """The views: steps, cursors, conversations, groups, success, frames."""
    store = make()
    runs = [Script(store, task=f"t{n}").play(2 + n, float(n > 0)) for n in range(3)]
    run = runs[0]
    assert [(s.index, len(s.asks), s.act is not None) for s in run.steps] == [(0, 1, True), (1, 1, True)]
    assert run.steps[1].before == run.calls[2] and run.view(3).text == "result 0" and run.state(3) == run.calls[2].state
    assert run.at(3) == (run.id, 3, 0) and run.at(step=1, token=2) == (run.id, 3, 2) and run.at() == (run.id, 5, 0)
    assert run.at(run.calls[2]).seq == 2 and run.at(step=-1).seq == 3
    for wrong in (lambda: run.at(99), lambda: run.at(step=2), lambda: run.reply(0), lambda: run.conversation(1)):
        expect(BadInput, wrong)
    assert [n.message.role for n in run.conversation()] == ["user", "assistant"] * 2
    assert run.reply(1).message.text == "> act 0" and run.tokens == 4 and run.stop == "done" and run.config == {}
    assert run.cost == 0.002 and run.seconds == 2.5 and run.parent is None and not run.changes.edits
    store.put_group(GroupRow("g", "iid", "t", tuple(r.id for r in runs)))
    store.put_group(GroupRow("h", "iid", "t", (runs[1].id,)))
    groups = Groups([Group(store, "g"), Group(store, "h")])
    assert groups[0].signal and not groups[1].signal and groups[0].rewards.tolist() == [0, 1, 1]
    report = groups.success()
    assert report.estimate == 0.75 and report.n == 4 and 0 < report.low < 0.75 < report.high < 1
    assert groups.worst() == run and len(groups.runs) == 4 and groups[:1].runs == runs
    assert list(groups.frame()["steps"]) == [2, 3, 4, 3] and len(run.frame()) == 6 and len(run.steps_frame()) == 2
    script = Script(store)
    script.open("<script>")
    script.act("<b>", "x")
    live = Run(store, script.run)
    html = live._repr_html_() + groups._repr_html_() + groups[0]._repr_html_()
    assert "<script>" not in html and "<b></td>" not in html and live.stop is None and live.reward is None
    script.end()
    assert live.stop == "done", "a run that goes on is read again"
    store.put_group(GroupRow("k", "iid", "t", (script.run,)))
    unjudged = Groups([Group(store, "k")])
    assert np.isnan(unjudged[0].rewards).all() and not unjudged[0].signal
    expect(BadInput, unjudged.worst)
    expect(BadInput, unjudged.success)
