"""Small files at which imports and exports failed, or held; each was made for this and has what a public report had."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from clew.core.errors import BadRecord
from clew.exchange import export, import_file, recall
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
