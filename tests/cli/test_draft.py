"""clew draft from prompts to a calibrated drafter that the engine runs, and from stored runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from clew.cli import verbs
from clew.models.drafters import calibration, load
from clew.models.local import Local, small

pytest.importorskip("transformers")
WORDS = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p"]
BRIEF = ("--steps", "12", "--batch", "4", "--block", "3", "--tokens", "16")


def clew(*words: str) -> Result:
    return CliRunner().invoke(verbs, words, standalone_mode=False)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("draft") / "model"
    made = small(WORDS, d=32, layers=3, heads=2, kv_heads=1, context=64)
    made.save(folder)
    made.close()
    return folder


@pytest.fixture(scope="module")
def prompts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("text") / "letters.jsonl"
    lines: list[dict[str, Any]] = [{"prompt": " ".join(WORDS[i : i + 4])} for i in range(8)]
    lines += [{"messages": [{"role": "user", "content": WORDS[i]}], "domain": "asked"} for i in range(8)]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


@pytest.fixture(scope="module")
def drafter(model: Path, prompts: Path) -> Path:
    found = clew("draft", "train", str(model), "--data", str(prompts), "--samples", "2", *BRIEF)
    assert found.exception is None, found.output
    where = model / "drafters" / "dspark-3"
    assert "accepted length" in found.output
    assert str(where) in found.output
    assert "CPU-minutes" in found.output  # told before it is spent
    return where


def test_trained_calibrated_and_served(model: Path, prompts: Path, drafter: Path, tmp_path: Path) -> None:
    where = [str(model), str(drafter), "--data", str(prompts), "--rounds", "300", "--tokens", "16"]
    found = clew("draft", "calibrate", *where, "--json")
    assert found.exception is None, found.output
    told = json.loads(found.stdout[found.stdout.index("{") :])
    assert len(told["table"]["temperatures"]) == 3
    assert told["table"]["rounds"] >= 100
    plain = Local(str(model))
    ready = load(drafter, plain.module, plain.tokenizer, temperature=1.0)
    assert [t.temperature for t in calibration.tables(drafter)] == [1.0]
    plain.close()
    served = Local(str(model), draft=ready)
    try:
        import asyncio

        from clew.train.drafters.target_text import Prompt, asked

        reply = asyncio.run(served.complete(asked(Prompt((1, 4, 9), ""), 20, 1.0, 5)))
        assert reply.tokens
        assert served.engine.drafted is not None
        assert served.engine.drafted.rounds > 0
    finally:
        served.close()


def test_the_same_line_again_repeats_no_work(model: Path, prompts: Path, tmp_path: Path) -> None:
    line = [
        "draft",
        "train",
        str(model),
        "--data",
        str(prompts),
        *BRIEF,
        "--kind",
        "dflash",
        "--out",
        str(tmp_path / "d"),
    ]
    first = clew(*line, "--json")
    assert first.exception is None, first.output
    kept = next((tmp_path / "d.making").glob("own-*.jsonl"))
    written, stamp = kept.read_text(), kept.stat().st_mtime_ns
    told = json.loads(first.stdout[first.stdout.index("{") :])
    assert set(told["accepted"]) >= {"all"}
    assert all(1 <= one["low"] <= one["length"] <= one["high"] for one in told["accepted"].values())
    assert told["steps"] == 12
    again = clew(*line)
    assert again.exit_code == 2
    assert "exists already" in again.output
    (tmp_path / "d").rename(tmp_path / "was")
    second = clew(*line, "--json")
    assert second.exception is None, second.output
    assert (kept.read_text(), kept.stat().st_mtime_ns) == (written, stamp)
    retold = json.loads(second.stdout[second.stdout.index("{") :])
    assert retold["accepted"] == told["accepted"]
    assert retold["cpu_s"] == told["cpu_s"]


def test_learns_from_stored_runs(model: Path, tmp_path: Path) -> None:
    store = tmp_path / "s.db"
    made = clew(
        "run", "--world", "sums", "--model", str(model), "--tasks", "6", "--max-tokens", "8", "--store", str(store)
    )
    assert made.exception is None, made.output
    found = clew("draft", "train", str(model), "--data", "world=sums", *BRIEF, "--out", str(tmp_path / "d"),
                 "--store", str(store))  # fmt: skip
    assert found.exception is None, found.output
    assert (tmp_path / "d" / "model.safetensors").exists()


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--data", "nowhere.txt"], "there is no file nowhere.txt"),
        (["--data", "EMPTY"], "holds no prompt"),
        (["--data", "BROKEN"], "broken.jsonl:1 is not JSON"),
        (["--data", "DEEP"], "deep.jsonl:1 is not JSON"),
        (["--data", "NO_TEXT"], "no_text.txt is saved as UTF-16"),
        (["--data", "HALF"], 'half.jsonl:1 has neither "prompt" nor "messages"'),
        (["--data", "PROMPTS", "--kind", "dflash", "--rank", "4"], "dflash has no sequential head"),
        (["--data", "PROMPTS", "--block", "0"], "0 is out of bounds"),
    ],
)
def test_what_cannot_be_trained_is_refused(
    more: list[str], said: str, model: Path, prompts: Path, tmp_path: Path
) -> None:
    (tmp_path / "empty.txt").write_text("\n\n")
    (tmp_path / "broken.jsonl").write_text("{no\n")
    (tmp_path / "deep.jsonl").write_text("[" * 100_000)
    (tmp_path / "no_text.txt").write_bytes(b"\xff\xfe\0")
    (tmp_path / "half.jsonl").write_text('{"messages": [{"role": "user"}, 3]}')
    names = {path.stem.upper(): path for path in tmp_path.iterdir()} | {"PROMPTS": prompts}
    found = clew("draft", "train", str(model), "--out", str(tmp_path / "d"), *(str(names.get(w, w)) for w in more))
    assert found.exit_code == 2
    assert said in found.output
    assert not (tmp_path / "d").exists()
