"""Each address answers what the page needs, from a real store, as JSON."""

from __future__ import annotations

import shlex

import click
import pytest

from clew.cli import verbs
from clew.core.printable import quoted
from clew.core.records import Annotation, Cursor
from clew.harness import Runner
from clew.harness.fork.fork_request import ForkRequest
from clew.store import MemoryStore, Run
from clew.store.contract import Script, fork_at
from clew.view.pages import graph, list_pages, run_page, tokens, transcript_page
from clew.view.pages.strip import strip
from tests.view.conftest import fill


def first(seen):
    """The run that is annotated, and its first ask."""
    found = seen.json("/api/runs", q="tag:keep")["rows"][0]["run"]
    return found, next(c for c in seen.json(f"/api/run/{found}/calls")["calls"] if c["kind"] == "ask")


def test_the_store_at_a_glance(seen, path):
    about = seen.json("/api/store")
    assert about["path"] == str(path)
    assert (about["runs"], about["live"], about["trainings"], about["reports"]) == (8, 0, ["evening"], 1)
    assert (about["readonly"], about["can_fork"]) == (False, True)


def test_runs_are_filtered_sorted_and_paged(seen):
    page = seen.json("/api/runs", q="sort:-steps", limit=3)
    assert (len(page["rows"]), page["total"], page["next"]) == (3, 8, 3)
    steps = [row["steps"] for row in page["rows"]]
    while page["next"] is not None:
        page = seen.json("/api/runs", q="sort:-steps", limit=3, after=page["next"])
        steps += [row["steps"] for row in page["rows"]]
    assert len(steps) == 8
    assert steps == sorted(steps, reverse=True)
    assert seen.json("/api/runs", q='text:"count 0" tag:keep')["total"] == 1
    assert seen.json("/api/runs", q="tag:keep")["rows"][0]["tags"] == ["keep"]
    bad = seen.json("/api/runs", status=400, q="wrld=x")
    assert bad["kind"] == "BadQuery"
    assert "world" in bad["remedy"]
    assert "not a number" in seen.json("/api/runs", status=400, limit="many")["error"]


def test_groups_are_folded_with_their_spread(seen):
    page = seen.json("/api/groups")
    assert page["total"] == 2
    for row in page["rows"]:
        assert (row["n"], row["ended"], row["kind"]) == (4, 4, "iid")
        assert len(row["rewards"]) == 4
        assert row["low"] <= row["mean"] <= row["high"]
        assert row["signal"] == (len(set(row["rewards"])) > 1)
    assert len(seen.json("/api/groups", q="tag:keep")["rows"][0]["rewards"]) == 4, "the whole group of a selected run"


def test_an_interval_needs_two_values():
    assert list_pages.spread([]) == (None, None, None)
    assert list_pages.spread([0.5]) == (0.5, None, None)
    mean, low, high = list_pages.spread([0.0, 2.0])
    assert (mean, round(high - mean, 2), round(mean - low, 2)) == (1.0, 12.71, 12.71)  # t(0.975, 1)
    assert list_pages.share(0, 0) is None
    assert [round(list_pages.share(1, 3)[k], 4) for k in ("low", "high")] == [0.0615, 0.7923]


def test_returns_of_0_or_1_have_an_interval_of_shares():
    for rewards in ([0.0, 1.0], [0.0] * 3 + [1.0], [0.0] * 8, [1.0] * 8):
        mean, low, high = list_pages.spread(rewards)
        share = list_pages.share(int(sum(rewards)), len(rewards))
        assert (mean, low, high) == pytest.approx((share["estimate"], share["low"], share["high"]))
        assert 0.0 <= low <= mean <= high <= 1.0
    assert list_pages.spread([0.0] * 8)[2] == pytest.approx(0.3244, abs=1e-4)
    assert list_pages.spread([-1.0, 1.0])[1] < -1.0, "what is no share has Student's t"


def test_a_run_and_its_calls(seen):
    name, ask = first(seen)
    head = seen.json(f"/api/run/{name[:8]}")
    assert head["summary"]["run"] == name == seen.json("/api/run/keep")["summary"]["run"]
    assert {m["method"] for m in head["methods"]} >= {"g2po", "grade", "reward"}
    assert [(one["run"], one["here"], one["up"]) for one in head["tree"]] == [(name, True, None)]
    assert head["group"]["n"] == 4
    assert head["conversations"] == [0]
    page = seen.json(f"/api/run/{name}/calls", start=1, stop=3)
    assert [c["seq"] for c in page["calls"]] == [1, 2]
    assert page["total"] == head["calls"]
    assert ask["said"][0]["passed"]
    assert (ask["said"][0]["from"], ask["said"][0]["index"], ask["said"][0]["conversation"]) == (0, 0, 0)
    assert ask["marks"] == {"g2po": 0.25}
    assert ask["token_marks"]["grade"][:2] == [None, 1.0]
    shown = ask["reply"]["tokens"]
    assert [kind for _, _, kind in shown] == ["h"] + ["s"] * len(ask["values"]["logprob"])
    assert "".join(text for text, _, _ in shown) == ask["reply"]["text"]


def test_everything_that_produced_a_call(seen):
    name, ask = first(seen)
    told = seen.json(f"/api/run/{name}/call/{ask['seq']}")
    assert told["setup"]["model"].startswith("markov")
    assert {a["method"] for a in told["annotations"]} == {"g2po", "grade"}
    assert told["seed"].lstrip("-").isdigit()
    assert told["usage"]["completion"] == len(ask["values"]["logprob"])
    assert seen.get(f"/api/node/{ask['reply']['key']}/text").text == ask["reply"]["text"]
    assert seen.get("/api/node/-/text", params={"call": f"{name}@0"}).text == "count 0"
    seen.json(f"/api/run/{name}/call/999", status=404)
    seen.json("/api/node/zz/text", status=404)
    seen.json("/api/run/nobody", status=404)
    assert seen.json("/nowhere", status=404)["kind"] == "NotFound"


def test_a_strip_over_a_run_and_a_search_in_it(seen):
    name, ask = first(seen)
    assert seen.json(f"/api/run/{name}/marks", value="g2po") == {"seqs": [ask["seq"]], "values": [0.25]}
    assert seen.json(f"/api/run/{name}/marks", value="grade") == {"seqs": [ask["seq"]], "values": [1.0]}
    logprobs = seen.json(f"/api/run/{name}/marks", value="logprob")
    assert logprobs["values"][0] == pytest.approx(sum(ask["values"]["logprob"]) / len(ask["values"]["logprob"]))
    assert seen.json("/api/find", run=name, text="COUNT", **{"from": 1})["seq"] == 2
    assert seen.json("/api/find", run=name, text="nowhere to be seen")["seq"] is None


def test_a_group_has_a_graph_whose_edges_list_their_steps(seen):
    name, _ = first(seen)
    group = seen.json(f"/api/run/{name}")["group"]["group"]
    page = seen.json(f"/api/group/{group}")
    assert page["methods"] == ["g2po"]
    nodes = {node["id"] for node in page["graph"]["nodes"]}
    assert sum(node["start"] for node in page["graph"]["nodes"]) == 1
    steps = [step for edge in page["graph"]["edges"] for step in edge["steps"]]
    assert len(steps) == sum(row["steps"] for row in page["runs"])
    for edge in page["graph"]["edges"]:
        assert edge["from"] in nodes
        assert edge["to"] in nodes or edge["to"] is None
        assert edge["count"] == len(edge["steps"])
    assert any(edge["value"] == 0.25 for edge in page["graph"]["edges"])


def test_a_group_without_a_verdict_has_an_empty_graph():
    store = MemoryStore()
    from clew.core.records import GroupRow

    a = Script(store, "aaa").play(2)
    store.put_group(GroupRow("g", "iid", a.task_id, ("aaa",)))
    page = graph.page(store, "g")
    assert page["graph"] == graph.EMPTY
    assert page["group"]["signal"] is None


def test_trainings_reports_and_their_figures(seen, path, tmp_path):
    assert seen.json("/api/trainings") == [{"name": "evening", "steps": 1, "last": {"success": 0.5, "tokens": 12.0}}]
    kept = seen.json("/api/training/evening")
    assert kept["metrics"]["success"] == [0.5]
    assert len(kept["iterations"]["0"]) == 2
    rows = seen.json("/api/training/evening/rows", step=0)["rows"]
    assert sum(row["value"] == 0.25 for row in rows) == 1
    name, ask = first(seen)
    assert {"run": name, "seq": ask["seq"]}.items() <= next(row for row in rows if row["value"] == 0.25).items()
    seen.json("/api/training/none", status=404)
    report = seen.json("/api/reports")[0]
    assert (report["id"], report["n"], len(report["runs"])) == ("r1", 8, 8)


def test_reports_of_papers_are_read_and_their_figures_are_named(tmp_path):
    from clew.core.errors import UnknownName
    from clew.view.pages import reports

    results = tmp_path / "papers" / "E1_x" / "results"
    results.mkdir(parents=True)
    said = "## Tier a\n\nHow.\n\n- NOT MET: PF1, at least 2; found -0.2 [-1, 0.5] n=24\n"
    (results / "summary_a.md").write_text(said)
    (results / "figure_a.svg").write_text("<svg/>")
    (tmp_path / "secret.svg").write_text("<svg/>")
    (found,) = reports.reports(MemoryStore(), tmp_path / "papers")
    figures = {"estimate": -0.2, "low": -1.0, "high": 0.5, "n": 24, "met": False, "design": "How."}
    assert figures.items() <= found.items()
    assert found["figures"] == ["/api/figure/E1_x/figure_a.svg"]
    (results / "summary_a.md").write_text(said.replace("NOT MET", "no mark"))
    assert [report["met"] for report in reports.reports(MemoryStore(), tmp_path / "papers")] == [None]
    assert reports.figure(tmp_path / "papers", "E1_x", "figure_a.svg") == (b"<svg/>", "image/svg+xml")
    for paper, name in (
        ("..", "secret.svg"),
        ("E1_x", "../../../secret.svg"),
        ("E1_x", "summary_a.md"),
        ("E1_x", "n.svg"),
    ):
        with pytest.raises(UnknownName):
            reports.figure(tmp_path / "papers", paper, name)


def test_two_runs_part_where_their_calls_do():
    store = MemoryStore()
    one = Script(store, "aaa").play(4, 1.0)
    script = fork_at(store, one, 3, run="bbb")
    script.ask("view 1", "> another")
    script.act("> another", "elsewhere")
    script.end("step_limit")
    found = run_page.diff(store, "aaa", "bbb")
    assert (found["at"], found["total_a"], found["total_b"]) == (3, 10, 6)
    assert found["at"] == one.diff(Run(store, "bbb")).seq
    assert [d["field"] for d in found["differs"]] == ["reply"]
    assert run_page.diff(store, "aaa", "aaa")["at"] is None
    again = fork_at(store, one, 3, run="ccc")  # another reply, after which the same is done again
    again.ask("view 1", "> act 1", sampled=3)
    again.act("> act 1", "result 1", reward=0.0)
    again.end()
    assert run_page.diff(store, "aaa", "ccc")["at"] == one.diff(Run(store, "ccc")).seq == 3
    family = run_page.tree(store, "bbb")
    assert [(one["run"], one["seq"], one["up"]) for one in family] == [
        ("aaa", None, None),
        ("bbb", 3, 0),
        ("ccc", 3, 0),
    ]
    assert [one["here"] for one in family] == [False, True, False]


def test_shared_calls_bring_their_annotations():
    store = MemoryStore()
    one = Script(store, "aaa").play(3, 1.0)
    fork_at(store, one, 4, run="bbb").end()
    store.annotate([Annotation("call", "m", 0.1, "aaa", 1), Annotation("call", "m", 0.2, "aaa", 5)])
    page = transcript_page.calls(store, "bbb", 0, 10)
    assert [c["marks"] for c in page] == [{}, {"m": 0.1}, {}, {}, {}]
    store.annotate([Annotation("call", "m", 0.3, "bbb", 1)])
    assert transcript_page.calls(store, "bbb", 1, 2)[0]["marks"] == {"m": 0.3}, "its own goes before"
    assert strip(store, "bbb", "m") == {"seqs": [1], "values": [0.3]}


def test_a_page_in_the_middle_shows_what_the_whole_shows(monkeypatch):
    store = MemoryStore()
    Script(store, "aaa").play(60)
    whole = transcript_page.calls(store, "aaa", 0, 130)
    monkeypatch.setattr(transcript_page, "COUNTED", 0)
    for start in (1, 30, 77):
        part = transcript_page.calls(store, "aaa", start, start + 7)
        for mine, theirs in zip(part, whole[start : start + 7], strict=True):
            for message in [*mine["said"], *theirs["said"]]:
                message["index"] = None
            assert mine == theirs


def test_long_texts_are_cut_and_say_so():
    store = MemoryStore()
    script = Script(store, "aaa")
    script.open("x" * 50_000)
    (call,) = transcript_page.calls(store, "aaa", 0, 10)
    assert (len(call["text"]), call["cut"]) == (20_000, 50_000)


@pytest.mark.parametrize(
    "asked",
    [
        ForkRequest("abc", 3, 2, n=4, temperature=0.5, max_tokens=7, top_p=0.9, seed="-3", keep=True),
        ForkRequest("abc", 3, reply="-open 'the' \"box\"\n$HOME `x` ; é", model="other"),
        ForkRequest("abc", 3, prefix_ids=(1, 2), act=("go up", "-x"), result="done"),
        ForkRequest("abc", say={"0": "be quick", "1.2": None}),
    ],
)
def test_the_command_line_says_what_the_request_says(asked):
    words = shlex.split(asked.command("s.db"))
    options = verbs.get_command(click.Context(verbs), "fork").make_context("fork", words[2:]).params
    assert words[:2] == ["clew", "fork"]
    assert options["place"] == str(asked.at or "abc")
    assert options["store_path"] == "s.db"
    assert (options["reply"], options["result"], options["keep"]) == (asked.reply, asked.result, asked.keep)
    assert options["acts"] == asked.act
    assert [*options["said"]] == [f"{i}={text or ''}" for i, text in asked.say.items()]
    assert (options["seed"] or "", options["model"] or "", options["n"]) == (asked.seed, asked.model, asked.n)
    assert [options[name] for name in ("temperature", "max_tokens", "top_p")] == [
        asked.temperature,
        asked.max_tokens,
        asked.top_p,
    ]


def test_no_control_character_reaches_a_terminal_by_paste():
    assert quoted("a\x1b[31m\u202eb'\\") == r"$'a\x1b[31m\xe2\x80\xaeb\'\\'"
    assert quoted("\ud800").isascii()


@pytest.mark.parametrize(
    "body",
    [
        [], {"seq": 3}, {"run": "keep"}, {"run": "keep", "seq": -1}, {"run": "keep", "seq": "3"},
        {"run": "nobody", "seq": 1}, {"run": "keep", "seq": 1, "n": 9999}, {"run": "keep", "seq": 1, "surprise": 1},
        {"run": "keep", "seq": 1, "act": "x"}, {"run": "keep", "seq": 1, "seed": "x"},
        {"run": "keep", "say": {"x": "y"}}, {"run": "keep", "say": [1]},
    ],
)  # fmt: skip
def test_a_request_that_makes_no_sense_is_refused(seen, body):
    answer = seen.post("/api/fork/command", json=body)
    assert answer.status_code in (400, 404), answer.text
    assert answer.json()["error"]


def test_a_message_may_be_named_by_its_node(path):
    from clew.store import open_store

    store = open_store(path)
    it = store.run("keep")
    node = store.node(next(c for c in it.calls if c.kind == "ask").node_in)
    asked = ForkRequest.from_json(store, {"run": it.id, "say": {node.key.hex(): "hurry"}, "seed": 5})
    assert asked.say == {"0": "hurry"}
    assert asked.command() == f"clew fork {it.id} --seed 5 --say 0=hurry"
    store.close()


def test_the_same_pages_come_from_a_store_in_memory():
    store = MemoryStore()
    fill(store)
    name = store.find("tag:keep")[0]
    assert len(list_pages.runs(store, "", 3, 0)["rows"]) == 3
    assert list_pages.groups(store, "", 10, 0)["total"] == 2
    assert run_page.head(store, name)["summary"]["tags"] == ["keep"]
    assert len(transcript_page.calls(store, name, 0, 100)) == store.summary(name).calls
    group = Runner.of(store, name).fork(name, Cursor(name, 1), 2, seed="fresh")
    assert {child["run"] for child in run_page.tree(store, name)[1:]} == {fork.id for fork in group}


def test_tokens_without_a_tokenizer_at_hand_have_ids_only():
    store = MemoryStore()
    Script(store, "aaa").play(1)
    (call,) = store.calls("aaa", 1, 2)
    shown = tokens.tokens(call, store.node(call.node_out))
    assert [kind for _, _, kind in shown] == ["h", "s", "s"]
    assert [text for text, _, _ in shown][1:] == [None, None]
