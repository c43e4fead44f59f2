"""Files that mean harm: each is refused in one sentence, in bounded memory and time, and nothing of it is imported."""

from __future__ import annotations

import gzip
import json
import struct
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from clew.core.errors import BadInput, BadRecord
from clew.exchange import export, files, import_file, recall
from clew.store import MemoryStore, Run, open_store

HELLO = {"messages": [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "hi"}]}
START = '{"messages": [{"role": "user", "content": "hello"}'

CHILD = """
import resource, sys
from clew.exchange import import_file
from clew.store import MemoryStore
import clew.exchange.parquet, clew.exchange.atif
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    import_file(MemoryStore(), sys.argv[1])
    print("imported")
except Exception as error:
    print(type(error).__name__, error, sep=": ")
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10)
"""


def attacked(path: Path, seconds: float = 60) -> tuple[str, int]:
    """What another process says of a file, and by how many MiB that process grew."""
    command = [sys.executable, "-c", CHILD, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=True)
    *said, grown = done.stdout.strip().splitlines()
    return "\n".join(said), int(grown)


def refused(path: Path, at: str, why: str) -> None:
    store = MemoryStore()
    with pytest.raises(BadRecord) as caught:
        import_file(store, path)
    said = str(caught.value)
    assert said.startswith(at)
    assert why in said
    assert caught.value.remedy
    assert len(said) < 400
    assert said.isprintable() or said.replace("\n", "").isprintable()
    assert store.run_ids() == []


def packed(path: Path, piece: bytes, times: int, end: bytes = b"", start: bytes = START.encode()[:-7]) -> Path:
    with gzip.open(path, "wb") as file:
        file.write(start)
        for _ in range(times):
            file.write(piece)
        file.write(end)
    return path


def test_a_gzip_bomb_of_one_line(tmp_path):
    path = packed(tmp_path / "bomb.jsonl.gz", b"x" * (1 << 20), 300, b'"}]}\n')
    assert path.stat().st_size < 2 << 20
    said, grown = attacked(path)
    assert said.startswith("BadRecord: bomb.jsonl.gz:1: a line of more than 64 MiB")
    assert grown < 250


def test_a_gzip_bomb_of_many_lines(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "UNPACKED", 16 << 20)  # the bound itself, reached sooner
    path = packed(tmp_path / "bomb.jsonl.gz", b'"}]}\n' + START.encode()[:-7] + b"x" * (1 << 20), 40, b'"}]}\n')
    refused(path, "bomb.jsonl.gz: unpacks to more than 16 MiB", "unpack it or split it")


def test_blank_lines_are_counted_too(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "UNPACKED", 16 << 20)
    refused(
        packed(tmp_path / "b.jsonl.gz", b" " * (1 << 20) + b"\n", 17, start=b""),
        "b.jsonl.gz",
        "unpacks to more than 16 MiB",
    )


def test_a_file_that_packs_well_may_unpack_to_a_hundred_times_its_size(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "UNPACKED", 1 << 10)
    line = json.dumps(HELLO).encode() + b"\n"
    (tmp_path / "fair.jsonl.gz").write_bytes(gzip.compress(line * 30))
    assert len(import_file(MemoryStore(), tmp_path / "fair.jsonl.gz")) == 30


@pytest.mark.whole
@pytest.mark.parametrize("ending", [".jsonl", ".json", ".atif.jsonl"])
def test_a_document_without_end(tmp_path, ending):
    path = tmp_path / f"long{ending}"
    with open(path, "wb") as file:
        file.truncate(3 << 30)  # a hole: 3 GiB of NUL bytes that take no room
    said, grown = attacked(path)
    assert said.startswith(f"BadRecord: long{ending}")
    assert "more than 64 MiB" in said
    assert grown < 300


@pytest.mark.parametrize("ending", [".jsonl", ".json", ".atif.jsonl"])
@pytest.mark.parametrize(("open_", "close"), [("[", "]"), ('{"a":', "}")])
@pytest.mark.parametrize("depth", [201, 900, 100_000])
def test_deep_nesting(tmp_path, ending, open_, close, depth):
    path = tmp_path / f"deep{ending}"
    path.write_text('{"schema_version": "ATIF-v1.6", "messages": ' + open_ * depth + "1" + close * depth + "}\n")
    refused(path, f"deep{ending}", "nested more than 200 deep")


def test_what_is_nested_less_is_read_and_written(tmp_path):
    nested: object = 1
    for _ in range(150):
        nested = [{"a": nested}] if _ % 2 else nested
    path = tmp_path / "in.jsonl"
    path.write_text(json.dumps(HELLO | {"tree": nested}) + "\n")
    store = MemoryStore()
    export(store, import_file(store, path), tmp_path / "out.jsonl")
    assert json.loads((tmp_path / "out.jsonl").read_text())["tree"] == nested


def test_a_line_of_many_small_values(tmp_path):
    """Sixty megabytes of empty objects would be two gigabytes of memory."""
    path = tmp_path / "many.jsonl"
    path.write_text('{"messages": [' + "{}," * 15_000_000 + "{}]}")
    said, grown = attacked(path)
    assert said.startswith("BadRecord: many.jsonl:1: more than 4,000,000 values")
    assert grown < 350


BAD_VALUES = [
    ('"reward": NaN', "NaN"),
    ('"reward": -Infinity', "-Infinity"),
    ('"reward": 1e400', "1e400"),
    (f'"reward": 1{"0" * 400}', "reward is 1000"),
    (f'"reward": 1{"0" * 5000}', "4300 digits"),
    (f'"scores": {{"style": 1{"0" * 400}}}', "style is 1000"),
    ('"reward": "\\u001b[31mred\\ud800"', "reward is '\\x1b[31mred\\ud800'"),
    (f'"reward": "{"x" * 100_000}"', "reward is 'xxx"),
    ('"reward": 1, "reward": 0', "'reward' stands twice"),
    ('"messages": [{"role": "user", "content": "else"}]', "'messages' stands twice"),
    ('"scores": {"\\ud800": 1}', "a score is called '\\ud800'"),
]


@pytest.mark.parametrize(("field", "why"), BAD_VALUES)
def test_values_that_are_none(tmp_path, field, why):
    (tmp_path / "in.jsonl").write_text(START + "], " + field + "}\n")
    refused(tmp_path / "in.jsonl", "in.jsonl:1: ", why)


METRICS = [{"prompt_tokens": 10**400}, {"prompt_tokens": -1}, {"cost_usd": "NaN"}, {"completion_tokens": 2**63},
           {"cost_usd": [1]}, {"completion_token_ids": [1], "logprobs": [10**400]}]  # fmt: skip


@pytest.mark.parametrize("metrics", METRICS)
def test_what_a_step_cannot_have_taken(tmp_path, metrics):
    steps = [{"source": "user", "message": "hello"}, {"source": "agent", "message": "hi", "metrics": metrics}]
    (tmp_path / "in.json").write_text(json.dumps({"schema_version": "ATIF-v1.6", "steps": steps}))
    refused(tmp_path / "in.json", "in.json: ", "")


STRANGE = [
    "\x00",
    "a\x00b",
    "\ud800",
    "\udfff\ud800",
    "\u202etxt.exe",
    "\x1b]0;owned\x07",
    "\ufeff",
    "..",
    "/etc/passwd",
    "'; drop table run; --",
]


@pytest.mark.parametrize("ending", [".jsonl", ".parquet", ".eval", ".atif.jsonl"])
def test_strange_texts_are_kept_everywhere(tmp_path, ending):
    """NUL bytes, lone surrogates and the like in every text that a file may hold."""
    if ending == ".eval":
        pytest.importorskip("inspect_ai", reason="did not run: inspect-ai is not installed")
    lines = []
    for text in STRANGE:
        call = {"id": text, "type": "function", "function": {"name": text, "arguments": text}}
        messages = [
            {"role": "system", "content": text},
            {"role": "user", "content": text, "name": text},
            {"role": "assistant", "content": text, "reasoning_content": text, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": text, "content": text},
        ]
        tools = [{"type": "function", "function": {"name": text, "description": text, "parameters": {text: text}}}]
        score = text.encode("utf-8", "replace").decode()
        more = {"task_id": f"t{text}", "model": text, "tools": tools, "scores": {score: 0.5}, text: text}
        lines.append({"messages": messages, **more})
    path = tmp_path / "in.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    store = open_store(tmp_path / "runs.db")
    runs = import_file(store, path)
    store.close()
    store = open_store(tmp_path / "runs.db")
    assert not store.verify()
    export(store, runs, tmp_path / f"out{ending}")
    again = open_store(tmp_path / "again.db")
    back = import_file(again, tmp_path / f"out{ending}")
    for old, new in zip(runs, back, strict=True):
        was, now = recall(Run(store, old)), recall(Run(again, new))
        assert now.messages == was.messages
        assert (now.task_id, now.tools, now.model, now.scores) == (was.task_id, was.tools, was.model, was.scores)
        assert {k: now.fields[k] for k in was.fields} == was.fields
    store.find("text:hello sort:-tokens")
    store.close()
    again.close()


# ---- Parquet


def rows(path: Path, table: object, **how: object) -> Path:
    parquet = pytest.importorskip("pyarrow.parquet", reason="did not run: pyarrow is not installed")
    parquet.write_table(table, path, **how)
    return path


@pytest.mark.whole
def test_a_parquet_file_that_says_one_text_many_times(tmp_path, monkeypatch):
    pa = pytest.importorskip("pyarrow", reason="did not run: pyarrow is not installed")
    line = START[:-7] + "x" * (20 << 20) + '"}]}'
    texts = pa.DictionaryArray.from_arrays(pa.array([0] * 5000, pa.int32()), pa.array([line]))
    path = rows(tmp_path / "bomb.parquet", pa.table({"line": texts}), compression="zstd", store_schema=False)
    assert path.stat().st_size < 1 << 20
    said, grown = attacked(path, 240)
    assert said.startswith("BadRecord: bomb.parquet: unpacks to more than 1024 MiB")
    assert grown < 1200  # what is read is held until all of it is known to be good: 1 GiB at most


def test_a_parquet_file_that_lies_about_its_size(tmp_path):
    """The footer says that there are a few bytes; the page holds 80 MiB."""
    pa = pytest.importorskip("pyarrow", reason="did not run: pyarrow is not installed")
    line = START[:-7] + "x" * (80 << 20) + '"}]}'
    path = tmp_path / "lie.parquet"
    how = {"compression": "zstd", "use_dictionary": False, "write_statistics": False, "store_schema": False}
    rows(path, pa.table({"line": [line]}), data_page_size=1 << 30, **how)
    data = bytearray(path.read_bytes())
    (length,) = struct.unpack("<I", data[-8:-4])
    start, size = len(data) - 8 - length, pa.parquet.read_metadata(path).row_group(0).total_byte_size
    true = varint(2 * size)
    assert data.count(true, start) >= 1
    lie = varint(2 * 1000).rjust(1)
    lie = bytes([b | 0x80 for b in lie] + [0x80] * (len(true) - len(lie) - 1) + [0])
    data[start:] = data[start:].replace(true, lie)
    path.write_bytes(data)
    assert pa.parquet.read_metadata(path).row_group(0).total_byte_size == 1000
    said, grown = attacked(path)
    assert said.startswith("BadRecord: lie.parquet:1: more than 64 MiB of JSON")
    assert grown < 500


def varint(number: int) -> bytes:
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


@pytest.mark.parametrize("at", range(8, 400, 37))
def test_a_parquet_file_with_a_torn_footer(tmp_path, at):
    pa = pytest.importorskip("pyarrow", reason="did not run: pyarrow is not installed")
    path = rows(tmp_path / "in.parquet", pa.table({"line": [json.dumps(HELLO)] * 3}))
    data = bytearray(path.read_bytes())
    data[-at] ^= 0xFF
    path.write_bytes(data)
    told = "3 runs"
    try:
        told = f"{len(import_file(MemoryStore(), path))} runs"
    except BadInput as error:
        told = str(error)
    assert told == "3 runs" or (told.startswith("in.parquet") and "Give a Parquet file." in told)


def test_parquet_values_that_json_does_not_know(tmp_path):
    import datetime

    pa = pytest.importorskip("pyarrow", reason="did not run: pyarrow is not installed")
    messages = [HELLO["messages"]]
    when = rows(tmp_path / "when.parquet", pa.table({"messages": messages, "at": [datetime.datetime(2026, 1, 2)]}))
    store = MemoryStore()
    (run,) = import_file(store, when)
    assert recall(Run(store, run)).fields["at"] == "2026-01-02 00:00:00"
    nan = rows(tmp_path / "nan.parquet", pa.table({"messages": messages, "score": [float("nan")]}))
    (run,) = import_file(store, nan)
    assert "score" not in recall(Run(store, run)).fields, "data frames write NaN where there is nothing"
    raw = rows(tmp_path / "raw.parquet", pa.table({"messages": messages, "score": [b"\xff"]}))
    told = list[BadRecord]()
    (run,) = import_file(store, raw, on_bad=told.append)
    assert "score" not in recall(Run(store, run)).fields
    assert "the column 'score' holds bytes" in told[0].message


# ---- Inspect logs


@pytest.fixture
def log(tmp_path):
    pytest.importorskip("inspect_ai", reason="did not run: inspect-ai is not installed")
    store, path = MemoryStore(), tmp_path / "in.jsonl"
    path.write_text(json.dumps(HELLO) + "\n")
    export(store, import_file(store, path), tmp_path / "log.eval")
    return tmp_path / "log.eval"


def with_part(log: Path, name: str, content: bytes) -> Path:
    with zipfile.ZipFile(log, "a", zipfile.ZIP_DEFLATED) as file:
        file.writestr(name, content)
    return log


def test_a_zip_bomb(log, monkeypatch):
    monkeypatch.setattr(files, "UNPACKED", 16 << 20)
    refused(with_part(log, "samples/2_epoch_1.json", b" " * (17 << 20)), "log.eval", "unpacks to more than 16 MiB")


def test_a_zip_whose_directory_lies_about_a_size(log):
    bomb = with_part(log, "samples/2_epoch_1.json", b" " * (17 << 20))
    data = bomb.read_bytes()
    assert data.count(struct.pack("<I", 17 << 20)) == 2
    bomb.write_bytes(data.replace(struct.pack("<I", 17 << 20), struct.pack("<I", 100)))
    refused(bomb, "log.eval: ", "CRC")


def test_a_zip_with_deep_and_with_many_values(log, tmp_path):
    whole = log.read_bytes()
    refused(with_part(log, "samples/2_epoch_1.json", b"[" * 100_000), "log.eval: ", "")
    log.write_bytes(whole)
    refused(with_part(log, "samples/2_epoch_1.json", b"[" + b"{}," * 5_000_000 + b"{}]"), "log.eval: ", "values")


def test_paths_inside_a_zip_reach_nothing_outside(log, tmp_path):
    before = sorted(p.name for p in tmp_path.iterdir())
    with_part(log, "../../evil.json", b"{}")
    with_part(log, "/etc/evil.json", b"{}")
    import_file(MemoryStore(), log)
    assert sorted(p.name for p in tmp_path.iterdir()) == before
