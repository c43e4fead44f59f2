# ruff: noqa: PT018  (checks are plain functions, not tests)
"""Checks of what a store keeps: nodes, blobs, Calls, runs, annotations, small tables."""

from __future__ import annotations

import numpy as np

from clew.core.errors import BadInput, StoreError, UnknownName
from clew.core.records import Annotation, Call, GroupRow, Report, RunRow, Sample, Segment
from clew.core.values import Attempt, Inner, Message, ToolCall, Usage
from clew.store.contract.script import PICTURE, SETUP, Factory, Script, expect, fork_at, make_node, same
from clew.store.run import Run


def keeps_nodes(make: Factory) -> None:
    """Nodes come back equal, as a path, with every field a message can have; surrogates and NUL included."""
    store = make()
    tool = ToolCall("c1", "look", '{"at": "door"}')
    path = [make_node(None, "system", "Rules: \ud83d alone and \x00 \U0001f9f5")]
    path.append(make_node(path[-1], "user", "", (1, 2**31 - 1, 0)))
    path.append(make_node(path[-1], "assistant", "ok", None, reasoning="hm \udc00", calls=(tool,), extra='{"a":1}'))
    path.append(make_node(path[-1], "tool", "a door", (), call_id="c1"))
    store.put_nodes(path)
    assert [store.node(n.key) for n in path] == path, "nodes before commit"
    store.commit()
    late = make_node(path[-1], "assistant", "go")
    store.put_nodes([late])
    for _ in range(2):
        assert store.thread(late.key) == [*path, late], "a path over committed and uncommitted nodes"
        assert [len(store.thread(late.key, limit=n)) for n in range(7)] == [0, 1, 2, 3, 4, 5, 5]
        assert store.thread(late.key, limit=2) == [path[-1], late]
        store.put_nodes(path)
    assert store.thread(b"") == []
    expect(UnknownName, lambda: store.node(b"\1" * 16))
    expect(UnknownName, lambda: store.thread(make_node(late, "user", "?").key))


def keeps_blobs(make: Factory) -> None:
    """Bytes by their digest."""
    store = make()
    keys = [store.put_blob(data) for data in (b"", b"\0snapshot", b"x" * 100_000)]
    store.commit()
    assert [store.blob(key) for key in keys] == [b"", b"\0snapshot", b"x" * 100_000]
    expect(UnknownName, lambda: store.blob(b"\2" * 16))


def keeps_calls(make: Factory) -> None:
    """Every field of a Call comes back as it was, before and after commit."""
    store = make()
    store.put_run(RunRow("r", "a.py:f"))
    sample = Sample(7, Message("assistant", "hi"), (1, 2), np.array([-0.5], np.float32), "stop", b"\1\0\0\0\1\2")
    full = Call("r", 1, "ask", b"q" * 16, 1, 4, b"k" * 16, 2, b"i" * 16, b"o" * 16, "act \ud800", "te\0xt")
    full = full._replace(state=b"s" * 16, snapshot=b"n" * 16)
    full = full._replace(reward=-0.25, terminal=True, legal=("a", "b \ud801"), child="child", head=3, forced=2)
    full = full._replace(logprobs=np.array([-1, -0.1], np.float32), entropies=np.array([0.5, np.inf], np.float32))
    full = full._replace(
        seed=2**63 - 1, setup=SETUP, packed=(sample, sample._replace(ids=None, logprobs=None, kept=b""))
    )
    full = full._replace(finish="length", usage=Usage(5, 2, 3), cost=0.02, started=1.7e9, seconds=0.5, error="boom")
    inner = (Inner("small", "s-1", 2, Usage(1, 2, 0), 0.01, 0.3, "hi \ud802", (1, 2), "5e"), Inner("large"))
    full = full._replace(
        attempts=(Attempt(0.1, 429, "slow down"), Attempt(0.4, 200)), inner=inner, extra=PICTURE, kept=b"\2\0\0\0\0\1\5"
    )
    assert not [name for name, unset in Call._field_defaults.items() if same(getattr(full, name), unset)]
    calls = [Call("r", 0, "open", b"", 0, 0, text="see"), full]
    calls += [Call("r", 2 + n, kind, b"r", 2 + n, action="x") for n, kind in enumerate(("act", "spawn", "note"))]  # type: ignore[arg-type]
    calls.append(full._replace(seq=5, packed=(), inner=full.inner[:1], setup=SETUP._replace(weights="5e")))
    calls += [Call("r", 6, "act", b"r", 6, extra='{"a": "short"}'), Call("r", 7, "act", b"r", 7, extra=f"{PICTURE}x")]
    for call in calls:
        store.put_call("r", call)
    assert same(tuple(store.calls("r")), tuple(calls)), "before commit"
    store.commit()
    assert same(tuple(store.calls("r")), tuple(calls)), "after commit"
    assert same(tuple(store.calls("r", 1, 3)), tuple(calls[1:3]))
    done = calls[2]._replace(done=2, key=b"z" * 16, text="came")
    store.put_call("r", done)
    assert store.calls("r", 2, 3) == [done], "a result over its intent, before commit"
    store.commit()
    assert store.calls("r", 2, 3) == [done], "a result over its intent, after commit"


def refuses_to_rewrite(make: Factory) -> None:
    """A completed Call stays what it is; the same Call again is no rewriting."""
    store = make()
    run = Script(store).play(1)
    store.put_call(run.id, run.calls[0])
    store.commit()

    def rewrite() -> None:
        store.put_call(run.id, run.calls[1]._replace(key=b"other", seed=1))
        store.commit()

    assert "@1" in expect(StoreError, rewrite).at
    assert same(tuple(store.calls(run.id)), tuple(run.calls)) and not store.verify()
    expect(UnknownName, lambda: store.put_call("nobody", run.calls[0]))
    expect(BadInput, lambda: store.put_call(run.id, run.calls[2]._replace(reward=float("nan"))))
    expect(BadInput, lambda: store.put_call(run.id, run.calls[2]._replace(seed=2**63)))


def keeps_runs(make: Factory) -> None:
    """Run rows, in order of creation; a row is written once."""
    store = make()
    row = RunRow("r1", "a.py:f", "toy(x=1)", "tiny", "t\ud800", '{"prompt": "x"}', "d1", '{"k": 1}', -5, "g", (1, 2, 3))
    row = row._replace(parent="r0@3+2", changes='{"keep": true}', lineage=(Segment("r0", 0, 3),), spawned_by="r0@1")
    row = row._replace(origin="fork", created=1.5, meta='{"from": "x\ud800"}', settings='{"snapshot_every": 4}')
    assert not [name for name, unset in RunRow._field_defaults.items() if getattr(row, name) == unset]
    store.put_run(row)
    store.put_run(RunRow("r2", "b.py:g"))
    assert store.row("r1") == row
    store.commit()
    store.put_run(row._replace(agent="other"))
    store.commit()
    assert store.row("r1") == row and store.run_ids() == ["r1", "r2"]
    group = GroupRow("g", "tree", "t", ("r1", "r2"), "named")
    store.put_group(group)
    assert store.group("g") == group and store.groups() == ["g"]
    store.commit()
    assert store.group("g") == group and store.groups() == ["g"]
    for ask in (store.row, store.group, store.calls):
        expect(UnknownName, lambda ask=ask: ask("r9"))  # type: ignore[misc]


def shares_calls(make: Factory) -> None:
    """A fork of a fork reads its whole path and stores its own Calls only; reading never recurses."""
    store = make()
    first = Script(store).play(4)
    script = fork_at(store, first, 5)
    script.act("other", "elsewhere")
    script.end("step_limit")
    store.commit()
    second = Run(store, script.run)
    assert [c.run for c in second.calls] == [first.id] * 5 + [second.id] * 2
    third = fork_at(store, second, 6)
    third.end("cancelled")
    store.commit()
    deep = Run(store, third.run)
    assert [c.run for c in deep.calls] == [first.id] * 5 + [second.id, deep.id]
    assert same(tuple(deep.calls[:5]), tuple(first.calls[:5]))
    assert store.calls(deep.id, 4, 6) == deep.calls[4:6]
    assert first.diff(second) == (first.id, 5, 0) and deep.diff(second) == (deep.id, 6, 0)
    assert deep.diff(deep) is None and second.parent == (first.id, 5, 0)
    assert not store.verify()
    many = first
    for _ in range(50):
        script = fork_at(store, many, len(many.calls) - 1)
        script.act("on", "and on")
        script.end()
        many = Run(store, script.run)
    assert len(many.calls) == len(first.calls) + 50 and not store.verify()


def keeps_annotations(make: Factory) -> None:
    """Keyed by target, method, version, parameters and scope; sparse; several methods side by side."""
    store = make()
    run = Script(store).play(2)
    tip = run.calls[1].node_out
    rows = [
        Annotation("call", "g2po", 0.5, run.id, 1, scope="g1"),
        Annotation("call", "g2po", -0.5, run.id, 1, scope="g2"),
        Annotation("call", "grpo", 1.0, run.id, 1, version="2", params="ab12", data='{"n": 1}'),
        Annotation("tokens", "kl", None, run.id, 1, values=np.array([np.nan, 0.25, 1.0], np.float32)),
        Annotation("node", "probe", 0.1, node=tip),
        Annotation("group", "spread", 2.0, "g1"),
        Annotation("run", "reward", 0.0, run.id),
    ]
    for commit in (False, True):
        store.annotate(rows)
        if commit:
            store.commit()
        found = store.annotations()
        assert {repr(a) for a in found} == {repr(a) for a in rows}, f"all, commit {commit}"
        assert store.annotations([run.id], "g2po", scope="g2") == [rows[1]]
        assert store.annotations(["g1"]) == [rows[5]] and store.annotations(target="node") == [rows[4]]
        assert store.annotations(["nobody"]) == [] and store.annotations([]) == []
    store.annotate([rows[0]._replace(value=0.75)])
    assert [a.value for a in store.annotations([run.id], "g2po", scope="g1")] == [0.75], "the same place is replaced"
    store.commit()
    assert [a.value for a in store.annotations([run.id], "g2po", scope="g1")] == [0.75]
    assert run.reward == 0.0 and run.low_point("g2po") == (run.id, 1, 0)
    expect(BadInput, lambda: run.low_point("unknown"))
    expect(BadInput, lambda: store.annotate([rows[0]._replace(value=float("nan"))]))


def keeps_small_tables(make: Factory) -> None:
    """Tags, reports, packed outcomes, metrics, names of trainings."""
    store = make()
    run = Script(store).play(1)
    store.tag(run.id, "best")
    store.tag(run.id, "best")
    assert store.tags() == {"best": [run.id]} and run.tags == ["best"] and store.run("best") == run
    expect(BadInput, lambda: store.tag(run.id, "two words"))
    expect(UnknownName, lambda: store.tag("nobody", "x"))
    store.untag(run.id, "best")
    assert store.tags() == {}
    expect(UnknownName, lambda: store.untag(run.id, "best"))
    report = Report(claim="c", estimate=0.5, low=0.1, high=0.9, n=3, design="d", runs=(run.id,), caveats=("few",))
    id = store.put_report(report)
    assert store.reports() == {id: report}
    store.put_outcomes("rewind", f"{run.id}@1", [1, 2**62], [0.5, 1], [0, 0.25])
    seeds, outcomes, costs = store.outcomes("rewind", f"{run.id}@1")
    assert seeds.tolist() == [1, 2**62] and outcomes.tolist() == [0.5, 1] and costs.tolist() == [0, 0.25]
    assert store.outcome_places() == [("rewind", f"{run.id}@1")]
    expect(UnknownName, lambda: store.outcomes("rewind", "elsewhere@1"))
    expect(BadInput, lambda: store.put_outcomes("rewind", "x", [1], [], []))
    store.put_metrics("warm-up", 1, {"loss": 0.5, "broken": float("nan")})
    store.put_metrics("warm-up", 0, {"loss": 1})
    store.put_metrics("warm-up", 1, {"lr": 0.1})
    assert store.metrics("warm-up") == {0: {"loss": 1.0}, 1: {"loss": 0.5, "lr": 0.1}}
    assert store.trainings() == ["warm-up"] and store.metrics("other") == {}
