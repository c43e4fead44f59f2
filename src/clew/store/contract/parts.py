# ruff: noqa: PT018  (checks are plain functions, not tests)
"""Checks of partial reads: pages of lists, changes, ranges of Calls, nodes and annotations."""

from __future__ import annotations

import re

import numpy as np

from clew.core.errors import BadQuery, UnknownName
from clew.core.records import Annotation, GroupRow
from clew.store.contract.script import Factory, Script, expect, fork_at
from clew.store.query import choose, parse
from clew.store.summary import fold

QUERIES = """
return>0.4 | -return>0.4 | return!=1 | steps>1 sort:-return | sort:return sort:-steps | stop=open | -stop=open
stop!=done | group=g1 | group!=g1 | tag:odd | tag!=odd | -tag:odd | name=first* | has:m | has!=m | text:result
id=r0 | id!=r0 | parent=r1 | world=toy | world!=toy | model:TIN | agent=play | sort:id | sort:-id
sort:task sort:-id | before:1d cost>0 tokens<7 | task=t? sort:-created | origin=fork
label=good | label:GO | label!=good | -label:bad | stars>3 | stars!=5 | stars<=5 -stars=5 | labelled-by:AN
labelled-by=b* | labelled-by!=ann | note:"too slow" | has=label
"""  # one between two bars or line ends; the first and the last are empty


def pages_runs(make: Factory) -> None:
    """A page holds what lies there in the whole list, and says how long that is; groups come whole."""
    store = make()
    made = []
    for number in range(12):
        script = Script(
            store, f"r{number:02}", task=f"t{number % 3}", created=float(number // 2), group=f"g{number % 4}"
        )
        made.append(script.play(number % 4, None if number % 5 == 4 else number % 3 / 2, end=number % 6 != 5))
    fork_at(store, made[11], 3, run="fork", created=3.0, group="").end()
    Script(store, "half", task="\udfff", created=99.0).play(1)
    store.put_group(GroupRow("g1", "iid", "t1", ("r01", "r05", "r09"), "first/0/0"))
    store.tag("r01", "odd")
    store.tag("r03", "odd")
    store.annotate([Annotation("call", "m", 1.0, "r02", 1), Annotation("run", "reward", 0.9, "r02", version="2")])
    store.label("r04", by="ann", stars=4, verdict="good")
    store.label("r05@1", by="bob", stars=5, note="too slow")
    store.label("r06", by="ann", stars=1, verdict="bad")
    store.commit()
    assert [store.find(q) for q in ("stars!=5 sort:id", "labelled-by=b*")] == [["r04", "r06"], ["r05"]]
    for _ in range(2):  # before and after the derived tables are filled
        rows = store.summaries()
        assert [row.run for row in rows] == store.run_ids()
        assert rows == [store.summary(row.run) for row in rows]
        for query in re.split(r" \| |\n", QUERIES):
            chosen = choose(store, parse(query), rows)
            whole = store.page(query)
            assert whole.rows == chosen and whole.total == len(chosen), f"{query!r}"
            assert store.find(query, 3) == [row.run for row in chosen[:3]]
            for start in (0, 2, 50):
                part = store.page(query, 4, start)
                assert part.rows == chosen[start : start + 4] and part.total == len(chosen), f"{query!r} from {start}"
                assert store.folds(query, 2, start) == fold(rows, chosen, 2, start), f"groups of {query!r} from {start}"
            assert store.folds(query) == fold(rows, chosen, None, 0), f"groups of {query!r}"
    assert store.page("", 0).total == 14 and store.page("", 0).rows == []
    assert [len(group) for group in store.folds("tag:odd").groups] == [3, 3], "the whole group of a selected run"
    expect(BadQuery, lambda: store.page("wrld=x"))
    expect(BadQuery, lambda: store.folds("wrld=x"))
    expect(UnknownName, lambda: store.summary("nobody"))


def tells_what_changed(make: Factory) -> None:
    """A mark, and the runs that changed since: begun, continued, ended; each of them once."""
    store = make()
    Script(store, "old").play(2, 1.0)
    mark, none = store.changed()
    assert none == [] and store.changed(mark) == (mark, [])
    a, b = Script(store, "aaa"), Script(store, "bbb")
    a.open()
    store.commit()
    second, changed = store.changed(mark)
    assert sorted(changed) == ["aaa", "bbb"] and second > mark
    assert store.changed(second) == (second, [])
    b.open()
    a.ask("what", "this")
    a.end()
    b.put("ask", done=-1)
    store.commit()
    third, changed = store.changed(second)
    assert sorted(changed) == ["aaa", "bbb"], "continued or ended"
    assert sorted(store.changed(mark)[1]) == ["aaa", "bbb"], "an earlier mark still holds"
    b.seq -= 1
    b.put("ask")  # the result of what was an intent
    Script(store, "ccc").play(1)  # begun and ended in between
    store.commit()
    assert sorted(store.changed(third)[1]) == ["bbb", "ccc"]


def reads_parts(make: Factory) -> None:
    """Nodes, paths, annotations and numbers by range; names without their rows."""
    store = make()
    one = Script(store, "aaa", group="g").play(3, 1.0)
    fork = fork_at(store, one, 5, run="bbb")
    fork.ask("other", "> way")
    fork.act("> way", "there", reward=0.5)
    store.put_group(GroupRow("g", "iid", one.task_id, ("aaa",), "n/0/0"))
    values = [Annotation("call", "m", seq / 8, "aaa", seq) for seq in (1, 3, 5)]
    store.annotate([*values, Annotation("run", "grade", 0.5, "bbb")])
    packed = np.array([[np.nan, -2.0, 1.0], [0.0, 3.0, np.nan]], np.float32)
    store.annotate(
        [Annotation("tokens", "token", None, "aaa", 1 + 2 * i, scope="s", values=packed[i]) for i in range(2)]
    )
    store.put_metrics("t", 4, {"x": 1.0, "y": 2.0})
    for _ in range(2):  # before the commit and after
        asks = [call for call in store.calls("aaa") if call.kind == "ask"]
        tip = asks[-1].node_out
        path = store.thread(tip)
        assert len(path) == 6
        assert store.thread(tip, asks[0].node_out) == path[2:]
        assert store.thread(tip, b"", 3) == path[3:]
        assert store.thread(tip, asks[0].node_out, 2) == path[4:]
        assert store.thread(tip, tip) == [] and store.thread(tip, b"elsewhere") == path
        assert store.nodes([tip, b"elsewhere", tip, path[0].key]) == {tip: path[-1], path[0].key: path[0]}
        assert sorted(a.seq for a in store.annotations(["aaa"], "m", seqs=(1, 5))) == [1, 3]
        assert store.annotations(["aaa"], "m", seqs=(6, 9)) == []
        assert store.valued("m", ">", 0.6) == {"aaa"} and store.valued("m", ">", 0.625) == set()
        assert store.valued("m", "!=", 0.125) == {"aaa"} and store.valued("grade", "!=", 0.5) == set()
        assert store.valued("token", "<", -1.5) == {"aaa"} and store.valued("token", "<=", -2.5) == set()
        assert store.valued("token", "=", 3.0) == {"aaa"} and store.valued("nobody", "<", 9.0) == set()
        assert store.annotated("m") == {"aaa"} and store.annotated("grade") == {"bbb"}
        assert store.conversations("bbb") == [0] and store.group_names() == {"g": "n/0/0"}
        assert store.forks() == {"bbb": "aaa@5"} and store.progress() == {"t": (4, 2)}
        assert store.ranges("aaa") == [
            ("m", "call", "", 0.125, 0.625, 3),
            ("reward", "run", "", 1.0, 1.0, 1),
            ("token", "tokens", "s", -2.0, 3.0, 2),
        ]
        assert store.numbers("bbb", "reward") == {2: 0.0, 4: 0.0, 6: 0.5}
        assert store.keys("bbb") == [call.key for call in store.calls("bbb")]
        assert list(store.numbers("bbb", "logprob")) == [1, 3, 5]
        assert np.isclose(store.numbers("bbb", "entropy")[5], 0.55)
        store.commit()
    Script(store, "empty")
    assert store.conversations("empty") == [] and store.numbers("empty", "logprob") == {}
