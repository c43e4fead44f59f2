"""Small files at which imports and exports failed, or held; each was made for this and has what a public report had."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from clew.core.errors import BadInput, BadRecord
from clew.exchange import export, import_file, inspect_log, recall
from clew.models.dialects.foreign import neutral
from clew.models.remote.client import DIALECTS
from clew.store import MemoryStore, Run

CASES = Path(__file__).with_name("cases")


def taken(*files: str, said: list[BadRecord] | None = None, bad: bool = False) -> tuple[MemoryStore, list[Run]]:
    """A store with the runs of these files; ``said`` gets what is told of lines that were left out."""
    store, told = MemoryStore(), [] if said is None else said
    runs = [id for file in files for id in import_file(store, CASES / file, on_bad=told.append, skip_bad=bad)]
    assert not store.verify()
    return store, [Run(store, id) for id in runs]


def texts(run: Run) -> list[str]:
    return [m.text for m in recall(run).messages]


def test_an_image_of_one_dialect_stops_no_export_and_stands_where_it_stood(tmp_path):
    store, runs = taken("claude-image/session.jsonl", "claude-repeated-id/session.jsonl")
    assert export(store, runs, tmp_path / "x.jsonl") == 2
    first = json.loads((tmp_path / "x.jsonl").read_text().splitlines()[0])["messages"]
    parts = [(m["role"], m["content"]) for m in first if isinstance(m["content"], list)]
    pictures = [[p["type"] for p in content if p["type"] != "text"] for _, content in parts]
    assert [role for role, _ in parts] == ["user", "tool"]
    assert pictures == [["image_url"], ["image_url"]]
    assert first[0]["content"][1]["image_url"]["url"].startswith("data:image/png;base64,iVBORw0KGgo")
    assert first[0]["content"][0]["text"] == "what is here"
    assert export(store, runs, tmp_path / "x.parquet") == 2
    for name in ("x.jsonl", "x.parquet"):
        again = MemoryStore()
        ids = import_file(again, tmp_path / name)
        assert [texts(Run(again, id)) for id in ids] == [texts(run) for run in runs]


@pytest.mark.parametrize("dialect", ["chat", "responses", "messages"])
def test_images_of_each_dialect_are_sent_in_every_other(dialect):
    data = "iVBORw0KGgo="
    url = f"data:image/png;base64,{data}"
    anthropic = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}
    said = {
        "chat": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}],
        "responses": [{"type": "message", "role": "user", "content": [{"type": "input_image", "image_url": url}]}],
        "messages": [
            {"role": "assistant", "content": [{"type": "tool_use", "id": i, "name": "f", "input": {}} for i in "ab"]},
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "a", "content": "plain"},
                    {"type": "tool_result", "tool_use_id": "b", "content": [anthropic]},
                ],
            },
        ],
    }[dialect]
    read = DIALECTS[dialect].messages_from_wire(said)
    for other in {"chat", "responses", "messages"} - {dialect}:
        wire = DIALECTS[other].messages_to_wire(neutral(read, other))
        assert json.dumps(wire).count(data) == 1, other
        again = neutral(DIALECTS[other].messages_from_wire(wire), dialect)
        assert [(m.role, m.text) for m in again] == [(m.role, m.text) for m in read]
    if dialect == "messages":
        assert [bool(m.extra) for m in neutral(read, "chat")] == [False, False, True], "with the result that has it"


def test_what_no_other_dialect_has_is_refused_when_sent_and_named_when_exported(tmp_path):
    document = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBE"}}
    lines = [json.loads(line) for line in (CASES / "claude-image/session.jsonl").read_text().splitlines()]
    lines[0]["message"]["content"][0] = document
    (tmp_path / "s.jsonl").write_text("\n".join(map(json.dumps, lines)))
    store = MemoryStore()
    runs = import_file(store, tmp_path / "s.jsonl")
    export(store, runs, tmp_path / "x.jsonl")
    told = json.loads((tmp_path / "x.jsonl").read_text())["messages"][0]
    assert told["content"] == "what is here\n[document, left out]"
    with pytest.raises(BadRecord, match="parts of the messages format cannot be written as chat"):
        DIALECTS["chat"].messages_to_wire(neutral(recall(Run(store, runs[0])).messages, "chat"))


def test_a_line_that_repeats_the_blocks_of_its_reply_replaces_them():
    _, (run,) = taken("claude-snapshots/session.jsonl")
    assert texts(run) == ["list the folder", "I look.", "a.txt", "One file."]
    _, (run,) = taken("claude-repeated-id/session.jsonl")
    found = recall(run)
    assert [len(m.calls) for m in found.messages if m.role == "assistant"] == [1, 0]
    assert sum(meter.usage.completion for meter in found.meters) == 97


def test_trajectories_of_sub_agents_become_conversations_and_are_written_again(tmp_path):
    store, (run,) = taken("atif-sub/trajectory.json")
    found = recall(run)
    assert [m.text for m in found.messages] == ["Find it", "I ask a helper.", "It is in b.", "In b."]
    assert [[m.text for m in other] for other in found.others] == [["look", "b"]]
    assert found.other_meters[0][0].model == "m2"
    export(store, [run], tmp_path / "x.json", "atif")
    written = json.loads((tmp_path / "x.json").read_text())
    assert written["subagent_trajectories"][0]["trajectory_id"] == "sub1"
    again, said = MemoryStore(), list[BadRecord]()
    (id,) = import_file(again, tmp_path / "x.json", on_bad=said.append)
    assert recall(Run(again, id)).others == found.others
    assert not said
    data = json.loads((CASES / "atif-sub/trajectory.json").read_text())
    del data["subagent_trajectories"]
    (tmp_path / "named.json").write_text(json.dumps(data))
    import_file(MemoryStore(), tmp_path / "named.json", on_bad=said.append)
    assert "1 trajectories of sub-agents are in other files: 'sub1'" in said[0].message


def test_lines_of_a_log_that_no_reader_knows_are_counted_and_named():
    said = list[BadRecord]()
    _, (run,) = taken("codex-torn-line/rollout-2026-07-08T03-20-00-y.jsonl", said=said)
    assert ["y.jsonl:5: " in one.message for one in said] == [True, False]
    assert "y.jsonl:3: lines of unknown kinds are left out: 1 'web_search_call', 1 'world_state'" in said[1].message
    assert texts(run)[-1] == "Added."


PACKED = CASES / "codex-zst/rollout-2026-07-08T03-20-00-x.jsonl.zst"


def test_a_log_packed_by_zstandard_is_read(tmp_path):
    pytest.importorskip("zstandard", reason="did not run: zstandard is not installed")
    _, (run,) = taken(f"codex-zst/{PACKED.name}")
    assert texts(run)[-1] == "Added."
    (tmp_path / "torn.jsonl.zst").write_bytes(PACKED.read_bytes()[:300])
    with pytest.raises(BadRecord, match="breaks off"):
        import_file(MemoryStore(), tmp_path / "torn.jsonl.zst", "codex")


def test_without_the_package_a_packed_log_is_named_as_such(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(BadInput, match="is compressed by Zstandard") as error:
        import_file(MemoryStore(), PACKED)
    assert "zstd -d " in error.value.remedy
    store, runs = taken("claude-repeated-id/session.jsonl")
    with pytest.raises(BadInput, match="Zstandard is read, not written"):
        export(store, runs, tmp_path / "x.jsonl.zst")


@pytest.mark.parametrize(("file", "runs"), [("bom.json", 1), ("bom.jsonl", 2), ("crlf.jsonl", 2)])
def test_a_byte_order_mark_is_passed_over(file, runs):
    assert len(taken(f"openai-bom/{file}")[1]) == runs


def test_another_encoding_is_named():
    with pytest.raises(BadRecord, match="is saved as UTF-16"):
        taken("openai-bom/utf16.jsonl")


@pytest.mark.parametrize(
    ("file", "said"),
    [
        ("prompt_completion", ["2+2=", " 4"]),
        ("trl_prompt_completion", ["What is 2+2?", "4"]),
        ("sharegpt", ["Brief.", "2+2?", "4"]),
        ("completion_choice", ["What is 2+2?", "4"]),
        ("function_call", ["What is 2+2?", "", "4", "4"]),
        ("args_object", ["What is 2+2?", "", "90", "90"]),
        ("developer_parts", ["Brief.", "ab", "c"]),
        ("same_call_id", ["What is 2+2?", "", "1", "", "2", "ok"]),
        ("tool_calls_null_ids", ["What is 2+2?", "", "1", "2", "ok"]),
        ("two_assistants", ["What is 2+2?", "", "It is 4."]),
        ("weight0", ["What is 2+2?", "5", "Sure?", "4"]),
    ],
)
def test_rows_in_the_forms_of_trainers_are_read_and_written_again(tmp_path, file, said):
    store, (run,) = taken(f"finetune-forms/{file}.jsonl")
    assert texts(run) == said
    assert any(m.role == "assistant" for m in recall(run).messages)
    export(store, [run], tmp_path / "x.jsonl")
    again = MemoryStore()
    (id,) = import_file(again, tmp_path / "x.jsonl")
    assert [(m.role, m.text, m.calls) for m in recall(Run(again, id)).messages] == [
        (m.role, m.text, m.calls) for m in recall(run).messages
    ]


def test_the_old_form_of_a_call_is_a_call_and_its_tools_are_tools():
    _, (run,) = taken("finetune-forms/function_call.jsonl")
    found = recall(run)
    assert [call.name for call in found.messages[1].calls] == ["add"]
    assert [tool.name for tool in found.tools] == ["add"]
    assert [call.kind for call in run.calls] == ["open", "ask", "act", "ask", "end"]


@pytest.mark.parametrize(
    ("file", "form"),
    [("dpo_openai", "a preference pair"), ("batch_output", "an answer of OpenAI's batch API, without what was asked")],
)
def test_a_form_that_is_no_run_is_refused_by_its_name(file, form):
    with pytest.raises(BadRecord, match=form) as error:
        taken(f"finetune-forms/{file}.jsonl")
    assert "messages" in error.value.remedy


@pytest.mark.parametrize(
    ("file", "runs", "left"),
    [
        ("bytes", 1, "'image'"),
        ("json_text", 1, ""),
        ("nan", 2, ""),
        ("nan_bytes", 1, "'raw'"),
        ("nan_reward", 2, ""),
        ("pref", 1, ""),
        ("sharegpt", 1, ""),
        ("struct_args_no_tools", 2, ""),
    ],
)
def test_parquet_as_trainers_store_it(file, runs, left):
    told = list[BadRecord]()
    _, found = taken(f"parquet-hub/{file}.parquet", said=told)
    assert len(found) == runs
    assert [f"the column {left} holds bytes and is left out" in one.message for one in told] == [True] * bool(left)
    if file == "nan_reward":
        assert [run.reward for run in found] == [None, 1.0]
    if file == "struct_args_no_tools":
        arguments = [json.loads(call.arguments) for run in found for m in recall(run).messages for call in m.calls]
        assert arguments == [{"town": "Oslo"}, {"when": "now"}], "Arrow fills the fields of other rows with null"


def test_tools_of_parquet_may_be_json_text(tmp_path):
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    tools = json.dumps([{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}])
    messages = [{"role": "user", "content": "go"}, {"role": "assistant", "content": "4"}]
    rows = [{"messages": messages, "tools": tools}, {"messages": messages, "tools": None}]
    parquet.write_table(pa.Table.from_pylist(rows), tmp_path / "x.parquet")
    store = MemoryStore()
    ids = import_file(store, tmp_path / "x.parquet")
    assert [[tool.name for tool in recall(Run(store, id)).tools] for id in ids] == [["f"], []]


@pytest.mark.parametrize(
    ("scores", "reward"),
    [
        ({"dicty": {"a": float("nan"), "b": 1.0}}, None),
        ({"dicty": {"a": float("nan"), "b": 1.0}, "plain": "I"}, 0.0),
        ({"dicty": {"a": 0.5, "b": 1.0}}, 0.5),
        ({"letter": "B"}, None),
        ({"nan": float("nan")}, None),
        ({"inc": "I", "letter": "B"}, 0.0),
        ({}, None),
    ],
)
def test_a_score_of_inspect_with_a_part_that_is_no_number_is_no_reward(scores, reward):
    sample = SimpleNamespace(scores={name: SimpleNamespace(value=value) for name, value in scores.items()})
    assert inspect_log._reward(sample, inspect_log._scores(sample)) == reward


def test_the_same_content_imported_twice_stands_once(tmp_path):
    told = list[BadRecord]()
    store, runs = taken("openai-bom/bom.jsonl", "claude-image/session.jsonl", said=told)
    (tmp_path / "other-name.jsonl").write_bytes((CASES / "openai-bom/bom.jsonl").read_bytes())
    again = import_file(store, tmp_path / "other-name.jsonl", on_bad=told.append)
    assert again == [run.id for run in runs[:2]]
    assert "2 of its 2 runs are here already, of the same content" in told[0].message
    assert len(store.run_ids()) == len(runs) == 3
    line = (CASES / "openai-bom/crlf.jsonl").read_text().splitlines()[0]
    (tmp_path / "twice.jsonl").write_text(f"{line}\n{line}\n")
    assert len(set(import_file(store, tmp_path / "twice.jsonl"))) == 2, "equal rows of one file are two samples"
    assert not store.verify()
