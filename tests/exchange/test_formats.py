"""Files in and out: every format gives back what it was given, and says where a file is broken."""

from __future__ import annotations

import gzip
import json
import sqlite3

import numpy as np
import pytest

from clew.core.errors import BadInput, BadRecord, UnknownName
from clew.core.records import Annotation
from clew.core.values import Message, ToolCall, ToolSpec, Usage
from clew.exchange import Transcript, atif, export, format_of, import_file, openai_jsonl, recall, record
from clew.exchange.transcript import Meter
from clew.harness import Runner
from clew.models.fakes import Markov, Scripted, tool_call
from clew.store import MemoryStore, Run, open_store
from clew.worlds.toys import Counter, Shop

from .test_transcript import TALK

IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
CALL = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{ }"}}
HI = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}]
LINES = [
    {
        "task_id": 7,
        "trial": 0,
        "reward": 1,
        "info": {"a": [1.5, None]},
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "see"}, IMAGE], "name": "ann"},
            {"role": "assistant", "content": None, "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "1", "name": "f", "content": "\ud800 lone"},
            {"role": "assistant", "content": "done", "reasoning_content": "so", "score": 2},
        ],
        "tools": [{"type": "function", "function": {"name": "f", "strict": True, "parameters": {"type": "object"}}}],
    },
    {"task_id": 7, "trial": 1, "reward": None, "messages": HI},
    {"messages": [{"role": "user", "content": "only asked"}]},
]  # fmt: skip
ENDINGS = [".jsonl", ".jsonl.gz", ".parquet", ".eval", ".atif.jsonl"]


def lines_file(path, *lines):
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    return path


def lines_of(path):
    with gzip.open(path) if path.suffix == ".gz" else open(path) as file:
        return [json.loads(line) for line in file]


def shape(store, run):
    """What must not change on the way through a file: the chained keys of the Calls."""
    return [call.key for call in Run(store, run).calls]


def test_openai_lines_come_back_field_for_field(tmp_path):
    store = MemoryStore()
    runs = import_file(store, lines_file(tmp_path / "in.jsonl", *LINES))
    assert len(runs) == 3
    assert sorted(len(store.group(g).runs) for g in store.groups()) == [1, 2]
    assert store.group(store.row(runs[0]).group).runs == tuple(runs[:2])
    assert [Run(store, r).reward for r in runs] == [1.0, None, None]
    assert not store.verify()
    assert export(store, runs, tmp_path / "out.jsonl") == 3
    assert lines_of(tmp_path / "out.jsonl") == LINES
    other = MemoryStore()
    again = import_file(other, tmp_path / "out.jsonl")
    assert [shape(other, r) for r in again] == [shape(store, r) for r in runs]


@pytest.mark.parametrize("ending", ENDINGS)
def test_every_format_keeps_the_record(tmp_path, ending):
    if ending == ".eval":
        pytest.importorskip("inspect_ai", reason="did not run: inspect-ai is not installed")
    store = MemoryStore()
    long = Transcript(TALK, "t1", (ToolSpec("look", "looks"),), 0.5, {"style": 0.25}, "gpt-4o", fields={"k": [1]})
    runs = [*import_file(store, lines_file(tmp_path / "in.jsonl", *LINES)), record(store, long)]
    seen = []
    assert export(store, runs, tmp_path / f"out{ending}", progress=seen.append) == 4
    assert seen == [1, 2, 3, 4]
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []
    other = MemoryStore()
    again = import_file(other, tmp_path / f"out{ending}", progress=seen.append)
    assert not other.verify()
    for old, new in zip(runs, again, strict=True):
        was, now = recall(Run(store, old)), recall(Run(other, new))
        assert now.messages == was.messages
        assert (now.task_id, now.reward) == (was.task_id, was.reward)
        assert {k: now.fields[k] for k in was.fields} == was.fields
        Runner.of(other, new).replay(new)
    assert recall(Run(other, again[3])).scores == {"style": 0.25}
    assert [shape(other, r) for r in again] == [shape(store, r) for r in runs]


def made_here(model=None):
    """Runs that were made and not imported: a text world, and a world of tools."""
    store = MemoryStore()
    counter, shop = Counter(), Shop()
    player = Runner("clew.harness.agents:player", counter, model or Scripted(["up", "stop"]), store)
    groups = [player.collect(counter.sample(1), n=2)]
    scripted = Scripted([tool_call(shop.open(shop.sample(1)[0]).tools[0].name), "that is all"])
    groups.append(Runner("clew.harness.agents:tool_user", shop, scripted, store).collect(shop.sample(1), n=1))
    return store, [run for g in groups for run in g.runs]


@pytest.mark.parametrize("ending", ENDINGS)
def test_runs_made_here_leave_and_come_back(tmp_path, ending):
    if ending == ".eval":
        pytest.importorskip("inspect_ai", reason="did not run: inspect-ai is not installed")
    store, runs = made_here()
    export(store, runs, tmp_path / f"out{ending}")
    other = MemoryStore()
    again = import_file(other, tmp_path / f"out{ending}")
    for old, new in zip(runs, again, strict=True):
        assert recall(Run(other, new)).messages == recall(old).messages
        assert Run(other, new).reward == old.reward
        assert recall(Run(other, new)).tools == recall(old).tools
    assert sorted(len(other.group(g).runs) for g in other.groups()) == [1, 2]


def test_atif_documents_are_valid(tmp_path):
    models = pytest.importorskip("atif", reason="did not run: atif (its models in pydantic) is not installed")
    store, runs = made_here(Markov(tokens=True))
    runs += [Run(store, r) for r in import_file(store, lines_file(tmp_path / "in.jsonl", *LINES))]
    for run in runs:
        document = atif.document_of(recall(run))
        checked = models.Trajectory.model_validate(document)
        assert checked.schema_version == "ATIF-v1.8"
        assert checked.final_metrics.total_steps == len(checked.steps)
    metrics = atif.document_of(recall(runs[0]))["steps"][1]["metrics"]
    assert len(metrics["logprobs"]) == len(metrics["completion_token_ids"]) == metrics["completion_tokens"]
    export(store, [runs[0]], tmp_path / "one.json")
    assert models.Trajectory.model_validate_json((tmp_path / "one.json").read_text())


def test_a_foreign_atif_document(tmp_path):
    parts = [
        {"type": "text", "text": "see "},
        {"type": "image", "source": {"media_type": "image/png", "path": "a.png"}},
    ]
    steps = [
        {"step_id": 1, "source": "system", "message": "s"},
        {"step_id": 2, "source": "user", "message": parts, "timestamp": "2026-01-01T00:00:00Z"},
        {
            "step_id": 3, "source": "agent", "message": "", "reasoning_content": "hm", "model_name": "other",
            "tool_calls": [{"tool_call_id": "c", "function_name": "f", "arguments": {"a": 1}}],
            "observation": {"results": [{"source_call_id": "c", "content": "42", "extra": {"took": 3}}]},
            "metrics": {"prompt_tokens": 9, "completion_tokens": 2, "cost_usd": 0.5},
        },
        {"step_id": 4, "source": "agent", "message": "done", "observation": {"results": [{"content": "over"}]}},
    ]  # fmt: skip
    agent = {"name": "a", "version": "1", "model_name": "m"}
    document = {"schema_version": "ATIF-v1.6", "session_id": "s1", "agent": agent, "steps": steps, "notes": "n"}
    (tmp_path / "one.json").write_text(json.dumps(document))
    store = MemoryStore()
    (run,) = (Run(store, r) for r in import_file(store, tmp_path / "one.json"))
    it = recall(run)
    assert [m.role for m in it.messages] == ["system", "user", "assistant", "tool", "assistant", "user"]
    assert it.messages[2] == Message(
        "assistant", "", "hm", (ToolCall("c", "f", '{"a": 1}'),), extra=it.messages[2].extra
    )
    assert (run.cost, it.meters[0].usage, it.fields["notes"]) == (0.5, Usage(9, 2), "n")
    back = atif.document_of(it)["steps"]
    assert back[1]["message"] == parts
    assert back[1]["timestamp"] == "2026-01-01T00:00:00Z"
    assert back[2]["model_name"] == "other"
    assert back[2]["observation"]["results"] == steps[2]["observation"]["results"]


def test_what_a_reply_took_travels_in_atif():
    meter = Meter(Usage(9, 2, 1), 0.5, 0.0, (4, 5), np.array([-1.0, -0.5], np.float32))
    it = Transcript(TALK[:3], "t", meters=(meter,))
    found = atif.transcript_of(json.loads(json.dumps(atif.document_of(it)))).meters[0]
    assert found[:4] == meter[:4]
    np.testing.assert_array_equal(found.logprobs, meter.logprobs)


def test_an_inspect_log_of_others(tmp_path):
    pytest.importorskip("inspect_ai", reason="did not run: inspect-ai is not installed")
    from inspect_ai.event import InfoEvent, ModelEvent
    from inspect_ai.log import EvalConfig, EvalDataset, EvalLog, EvalSample, EvalSpec, read_eval_log, write_eval_log
    from inspect_ai.model import (
        ChatCompletionChoice,
        ChatMessageAssistant,
        ChatMessageTool,
        ChatMessageUser,
        ContentImage,
        ContentReasoning,
        ContentText,
        GenerateConfig,
        ModelOutput,
        ModelUsage,
    )
    from inspect_ai.scorer import Score
    from inspect_ai.tool import ToolCall as InspectCall
    from inspect_ai.tool import ToolCallError

    seen = ChatMessageUser(content=[ContentText(text="see"), ContentImage(image="data:image/png;base64,AA==")])
    thought = ChatMessageAssistant(
        content=[ContentReasoning(reasoning="hm"), ContentText(text="I look")],
        tool_calls=[InspectCall(id="c", function="look", arguments={"at": "door"})],
    )
    failed = ChatMessageTool(content="", tool_call_id="c", function="look", error=ToolCallError("timeout", "too slow"))
    output = ModelOutput(
        model="openai/gpt",
        choices=[ChatCompletionChoice(message=thought, stop_reason="tool_calls")],
        usage=ModelUsage(input_tokens=7, output_tokens=3, total_tokens=12, input_tokens_cache_read=2, total_cost=0.5),
        time=1.25,
    )
    call = {"model": "openai/gpt", "tools": [], "tool_choice": "auto", "config": GenerateConfig()}
    events = [InfoEvent(data={"note": "begun"}), ModelEvent(**call, input=[seen], output=output)]
    how = {"input": "x", "target": ["y", "z"], "messages": [seen, thought, failed], "events": events, "output": output}
    samples = [
        EvalSample(
            id="a", epoch=e, **how, metadata={"level": 2}, model_usage={"openai/gpt": output.usage}, total_time=2.5,
            scores={"match": Score(value=v, answer="42", explanation="as expected"),
                    "parts": Score(value={"x": 1.0, "y": 0.5}), "unscored": Score(value=float("nan"))},
        )
        for e, v in ((1, "C"), (2, "I"))
    ]  # fmt: skip
    spec = EvalSpec(
        created="2026-01-01T00:00:00+00:00", task="t", dataset=EvalDataset(), model="openai/gpt", config=EvalConfig()
    )
    write_eval_log(EvalLog(status="success", eval=spec, samples=samples), str(tmp_path / "log.eval"))
    store = MemoryStore()
    runs = [Run(store, r) for r in import_file(store, tmp_path / "log.eval")]
    assert [r.reward for r in runs] == [1.0, 0.0]
    assert len(store.group(runs[0].group).runs) == 2
    it = recall(runs[0])
    assert it.messages[0].text == "see"
    assert "image_url" in it.messages[0].extra
    assert it.messages[1] == Message("assistant", "I look", "hm", (ToolCall("c", "look", '{"at": "door"}'),))
    assert it.messages[2] == Message("tool", "too slow", call_id="c")
    assert it.scores == {"match": 1.0, "parts/x": 1.0, "parts/y": 0.5}
    assert (it.model, it.fields["target"], it.fields["metadata"]) == ("openai/gpt", ["y", "z"], {"level": 2})
    assert it.meters == (Meter(Usage(9, 3, 2), 0.5, 1.25),)
    store.annotate([Annotation("run", "reward", 0.25, run=runs[1].id, scope=runs[1].id)])
    store.commit()
    sizes = []
    for name in ("again.eval", "and-again.eval"):  # the second is read from the first
        export(store, runs, tmp_path / name)
        then, log = read_eval_log(str(tmp_path / "log.eval")).samples, read_eval_log(str(tmp_path / name))
        for was, now in zip(then, log.samples, strict=True):
            same = set(EvalSample.model_fields) - {"metadata", "scores"}
            mine, theirs = (json.loads(s.model_dump_json(include=same, exclude_none=True)) for s in (now, was))
            assert mine == theirs
            for score in was.scores:
                assert now.scores[score].model_dump_json() == was.scores[score].model_dump_json()
            assert {k: v for k, v in now.metadata.items() if k != "clew"} == was.metadata
        assert [s.scores.get("reward") and s.scores["reward"].value for s in log.samples] == [None, 0.25]
        assert log.eval.task == "t"
        sizes.append((tmp_path / name).stat().st_size)
        store = MemoryStore()
        runs = [Run(store, r) for r in import_file(store, tmp_path / name)]
        assert [r.reward for r in runs] == [1.0, 0.25]
        assert recall(runs[0]).meters == it.meters
    assert abs(sizes[1] - sizes[0]) < 100  # nothing is kept twice, however often it goes round


BROKEN = [
    ('{"messages": [', "Expecting value"),
    ('{"messages": [{"role": "user", "content": NaN}]}', "NaN"),
    ('{"messages": [], "reward": 1}', "no messages"),
    ('{"messages": [{"content": "x"}]}', "message 0: a message needs a role"),
    ('{"messages": [{"role": "user", "content": 1e999}]}', "1e999"),
    ('{"reward": 1}', "no messages"),
    ('{"messages": [{"role": "user", "content": "x"}], "reward": "high"}', "reward is 'high'"),
    ('"text"', "no messages"),
]


@pytest.mark.parametrize(("line", "says"), BROKEN)
def test_a_broken_line_is_named_and_nothing_is_imported(tmp_path, line, says):
    path, store = lines_file(tmp_path / "in.jsonl", LINES[0], "", line, LINES[1]), MemoryStore()
    with pytest.raises(BadRecord, match=r"in\.jsonl:3: ") as caught:
        import_file(store, path)
    assert says in str(caught.value)
    assert caught.value.remedy
    assert (store.run_ids(), store.groups()) == ([], [])
    bad = []
    assert len(import_file(store, path, skip_bad=True, on_bad=bad.append)) == 2
    assert [e.message.split(": ")[0] for e in bad] == ["in.jsonl:3"]


def test_bytes_that_are_no_text_and_files_that_break_off(tmp_path):
    store = MemoryStore()
    (tmp_path / "bytes.jsonl").write_bytes(b'{"messages": [{"role": "user", "content": "\xff"}]}\n')
    with pytest.raises(BadRecord, match=r"bytes\.jsonl:1: .*utf-8"):
        import_file(store, tmp_path / "bytes.jsonl")
    whole = gzip.compress(b"".join(json.dumps(LINES[1]).encode() + b"\n" for _ in range(2000)))
    (tmp_path / "half.jsonl.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(BadRecord, match=r"half\.jsonl\.gz:\d+: Compressed file ended"):
        import_file(store, tmp_path / "half.jsonl.gz")
    (tmp_path / "not.parquet").write_text("no")
    with pytest.raises(BadRecord, match=r"not\.parquet: "):
        import_file(store, tmp_path / "not.parquet")
    (tmp_path / "old.json").write_text('{"schema_version": "2"}')
    with pytest.raises(BadRecord, match="schema_version '2' is not ATIF-v1"):
        import_file(store, tmp_path / "old.json")
    (tmp_path / "empty.jsonl").write_text("\n")
    with pytest.raises(BadRecord, match="holds no run"):
        import_file(store, tmp_path / "empty.jsonl")
    assert store.run_ids() == []


def test_a_log_that_is_none(tmp_path):
    pytest.importorskip("inspect_ai", reason="did not run: inspect-ai is not installed")
    (tmp_path / "not.eval").write_text("no")
    with pytest.raises(BadRecord, match=r"not\.eval: "):
        import_file(MemoryStore(), tmp_path / "not.eval")


def test_paths_and_formats_that_do_not_work(tmp_path):
    store, runs = made_here()
    for ending in (".jsonl", ".parquet", ".json"):
        with pytest.raises(BadInput, match="No such file"):
            import_file(store, tmp_path / f"none{ending}")
        with pytest.raises(BadInput, match="No such file"):
            export(store, runs[:1], tmp_path / "no" / f"folder{ending}")
    with pytest.raises(BadInput, match="does not say what is in it"):
        format_of("runs.txt")
    with pytest.raises(UnknownName, match="'csv'"):
        export(store, runs, tmp_path / "x", format="csv")
    with pytest.raises(BadInput, match="no run to export"):
        export(store, [], tmp_path / "x.jsonl")
    with pytest.raises(BadInput, match="3 runs and one ATIF document"):
        export(store, runs, tmp_path / "x.json")
    with pytest.raises(UnknownName):
        export(store, ["nobody"], tmp_path / "x.jsonl")
    assert list(tmp_path.iterdir()) == []
    assert format_of("x.txt", "openai") == "openai"


def test_a_long_message_and_lone_surrogates_survive(tmp_path):
    long = {"messages": [{"role": "user", "content": "x" * 10_000_000}, {"role": "assistant", "content": "\udfff"}]}
    store = open_store(tmp_path / "runs.db")
    runs = import_file(store, lines_file(tmp_path / "in.jsonl", long))
    store.close()
    store = open_store(tmp_path / "runs.db")
    export(store, runs, tmp_path / "out.jsonl")
    assert lines_of(tmp_path / "out.jsonl") == [long]
    assert not store.verify()
    store.close()


def test_a_failing_store_keeps_nothing_of_the_file(tmp_path, monkeypatch):
    """An import is one commit: whatever happens before it, the file on disk is as it was."""
    path = tmp_path / "runs.db"
    open_store(path).close()
    store = open_store(path)

    def full(*_):
        raise OSError("no room")

    monkeypatch.setattr(store, "put_group", full)
    with pytest.raises(OSError, match="no room"):
        import_file(store, lines_file(tmp_path / "in.jsonl", *LINES))
    with sqlite3.connect(path) as seen:
        tables = [name for (name,) in seen.execute("select name from sqlite_master where type = 'table'")]
        assert "run" in tables
        assert seen.execute("select count(*) from run").fetchone() == (0,)
    seen.close()


def test_rewards_given_here_are_exported(tmp_path):
    store = MemoryStore()
    runs = import_file(store, lines_file(tmp_path / "in.jsonl", *LINES))
    store.annotate([Annotation("run", "reward", 0.25, run=runs[1], scope=runs[1])])
    store.commit()
    export(store, runs, tmp_path / "out.jsonl")
    rewards = [line.get("reward") for line in lines_of(tmp_path / "out.jsonl")]
    assert rewards == [1, 0.25, None]


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_models_name_does_not_grow_with_each_round_trip(tmp_path, ending):
    if ending == ".eval":
        pytest.importorskip("inspect_ai", reason="did not run: inspect-ai is not installed")
    store = MemoryStore()
    runs = [record(store, Transcript(talk, "t1", model="gpt-4o")) for talk in (TALK, TALK[:2])]  # and without a reply
    for turn in range(3):
        export(store, runs, tmp_path / f"{turn}{ending}")
        store = MemoryStore()
        runs = import_file(store, tmp_path / f"{turn}{ending}")
        assert [recall(Run(store, r)).model for r in runs] == ["gpt-4o", "gpt-4o"]
        assert {Run(store, r).model for r in runs} == {"transcript:gpt-4o"}


@pytest.mark.parametrize("ending", ENDINGS)
def test_what_methods_say_of_replies_goes_along(tmp_path, ending):
    """Advantages, values of tokens and scores go out with the messages, and come in as annotations again."""
    if ending == ".eval":
        pytest.importorskip("inspect_ai", reason="did not run: inspect-ai is not installed")
    store, (run, *_) = made_here()
    first, second = (c.seq for c in run.calls if c.kind == "ask")
    tokens = np.array([0.5, np.nan, -1.0], np.float32)
    store.annotate(
        [
            Annotation("call", "grpo", 0.5, run=run.id, seq=first, scope=run.group),
            Annotation("call", "grpo", 9.0, run=run.id, seq=first, scope="elsewhere"),
            Annotation("call", "g2po", -1.0, run=run.id, seq=second, scope=run.group, version="2", data='{"why": 1}'),
            Annotation("tokens", "potential", run=run.id, seq=second, scope=run.id, values=tokens),
            Annotation("run", "style", 0.25, run=run.id, scope=run.id),
        ]
    )
    store.commit()
    for turn in range(2):
        export(store, [run], tmp_path / f"{turn}{ending}")
        other = MemoryStore()
        (run,) = (Run(other, r) for r in import_file(other, tmp_path / f"{turn}{ending}"))
        asks = [c.seq for c in run.calls if c.kind == "ask"]
        found = {(a.target, a.method): a for a in run.annotations() if a.target != "run"}
        assert len(found) == 3
        assert (found["call", "grpo"].seq, found["call", "grpo"].value) == (asks[0], 0.5)
        last = found["call", "g2po"]
        assert (last.seq, last.value, last.version, last.data) == (asks[1], -1.0, "2", '{"why": 1}')
        np.testing.assert_array_equal(found["tokens", "potential"].values, tokens)
        assert recall(run).scores == {"style": 0.25}
        assert not other.verify()
        store = other


def test_parquet_has_columns_for_scores_and_annotations(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet", reason="did not run: pyarrow is not installed")
    store, (run, *_) = made_here()
    ask = next(c.seq for c in run.calls if c.kind == "ask")
    store.annotate([Annotation("call", "grpo", 0.5, run=run.id, seq=ask, scope=run.group)])
    store.annotate([Annotation("run", "style", 0.25, run=run.id, scope=run.id)])
    store.commit()
    export(store, [run], tmp_path / "out.parquet")
    (row,) = parquet.read_table(tmp_path / "out.parquet").to_pylist()
    assert row["annotations"] == [{"message": 1, "method": "grpo", "value": 0.5, "values": None}]
    assert row["messages"][1]["role"] == "assistant"
    assert dict(row["scores"]) == {"style": 0.25}
    table = parquet.read_table(tmp_path / "out.parquet").drop_columns(["line"])
    parquet.write_table(table, tmp_path / "less.parquet")
    other = MemoryStore()
    (again,) = (Run(other, r) for r in import_file(other, tmp_path / "less.parquet"))
    assert recall(again).scores == {"style": 0.25}
    assert [a.value for a in again.annotations("grpo")] == [0.5]


def test_a_field_called_annotations_that_is_none_of_ours_comes_back_as_it_was(tmp_path):
    for other in ([{"label": "good"}], "text", [{"message": 0, "method": "x"}], [{"message": 99, "method": "x"}], [7]):
        line = {**LINES[0], "annotations": other}
        store = MemoryStore()
        runs = import_file(store, lines_file(tmp_path / "in.jsonl", line))
        export(store, runs, tmp_path / "out.jsonl")
        assert lines_of(tmp_path / "out.jsonl") == [line]


def test_equal_runs_give_equal_bytes(tmp_path):
    store, runs = made_here()
    for name in ("a.jsonl.gz", "b.jsonl.gz"):
        export(store, runs, tmp_path / name)
    assert (tmp_path / "a.jsonl.gz").read_bytes() == (tmp_path / "b.jsonl.gz").read_bytes()


def test_the_airline_runs(shared, tmp_path):
    """100 real runs of GPT-4o: in, shown whole, out again field for field, in again with equal keys."""
    path = shared / "data" / "tau_airline" / "gpt-4o.even-tasks.jsonl.gz"
    originals = lines_of(path)
    store = open_store(tmp_path / "runs.db")
    runs = import_file(store, path)
    assert len(runs) == 100
    assert [len(store.group(g).runs) for g in store.groups()] == [4] * 25
    assert [Run(store, r).reward for r in runs] == [line["reward"] for line in originals]
    asked = sum(c.finish == "tool_calls" for r in runs for c in Run(store, r).calls)
    assert asked == sum("tool_calls" in m for line in originals for m in line["messages"]) == 577
    assert not store.verify()
    for run in runs[:8]:
        Runner.of(store, run).replay(run)
    export(store, runs, tmp_path / "out.jsonl.gz")
    assert lines_of(tmp_path / "out.jsonl.gz") == originals
    other = MemoryStore()
    again = import_file(other, tmp_path / "out.jsonl.gz")
    assert [shape(other, r) for r in again] == [shape(store, r) for r in runs]
    store.close()


def test_results_of_tau_bench_are_read_as_they_are(shared, tmp_path):
    """100 real runs, as tau-bench writes them: one list of runs, which says ``traj`` for ``messages``."""
    originals = lines_of(shared / "data" / "tau_airline" / "gpt-4o.even-tasks.jsonl.gz")
    native = [{"traj" if k == "messages" else k: v for k, v in run.items()} for run in originals]
    (tmp_path / "gpt-4o-airline.json").write_text(json.dumps(native, indent=2))
    lines_file(tmp_path / "results.jsonl", *native)
    for name in ("gpt-4o-airline.json", "results.jsonl"):
        store = MemoryStore()
        runs = import_file(store, tmp_path / name)
        assert [len(store.group(g).runs) for g in store.groups()] == [4] * 25
        assert [Run(store, r).reward for r in runs] == [run["reward"] for run in originals]
        assert not store.verify()
        export(store, runs, tmp_path / "out.jsonl")
        assert lines_of(tmp_path / "out.jsonl") == originals


def test_trajectories_of_mini_swe_agent_are_read_as_they_are(tmp_path):
    """Version 1 wrote the bare list of messages; later ones put what is known of the run around it."""
    talk = [
        {"role": "system", "content": "You are a shell."},
        {"role": "user", "content": "Fix it.", "timestamp": 1760000000.5},
        {"role": "assistant", "content": "```bash\nls\n```", "extra": {"response": {"id": "r1", "cost": 0.01}}},
        {"role": "user", "content": "<returncode>0</returncode>"},
        {"role": "exit", "content": "", "extra": {"exit_status": "Submitted"}},
    ]
    info = {"exit_status": "Submitted", "model_stats": {"api_calls": 1}}
    whole = {
        "instance_id": "django__django-1",
        "info": info,
        "messages": talk,
        "trajectory_format": "mini-swe-agent-1.1",
    }
    store = MemoryStore()
    for name, data, task in (("bare.traj.json", talk, "task-"), ("whole.traj.json", whole, "django__django-1")):
        (tmp_path / name).write_text(json.dumps(data, indent=2))
        (run,) = (Run(store, r) for r in import_file(store, tmp_path / name))
        assert run.task_id.startswith(task)
        assert [m.role for m in recall(run).messages] == [m["role"] for m in talk]
        assert [c.kind for c in run.calls] == ["open", "ask", "act", "end"]
        export(store, [run], tmp_path / "out.jsonl")
        (line,) = lines_of(tmp_path / "out.jsonl")
        assert line["messages"] == talk
    assert line["info"] == info
    assert not store.verify()


def test_a_document_of_neither_kind_says_what_is_looked_for(tmp_path):
    for text, says in (
        ("{}", "no messages"),
        ("[[], 1]", "in.json:1: no messages"),
        ("[", "Expecting value"),
        ("", "Expecting value"),
    ):
        (tmp_path / "in.json").write_text(text)
        with pytest.raises(BadRecord, match=says) as caught:
            import_file(MemoryStore(), tmp_path / "in.json")
        assert "messages" in caught.value.remedy


def test_a_line_is_read_by_itself():
    it = openai_jsonl.transcript_of([{"role": "user", "content": "a bare list"}])
    assert it.messages == (Message("user", "a bare list"),)
