"""clew tune: schedules, optimiser and adapters as of clew train, the table of sources, and rows of a file."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from clew.store import open_store

pytest.importorskip("transformers", reason="did not run: transformers is not installed")

WORDS = ["left", "right", "up", "down", "yes", "no", "a", "b", "c", "d", "e", "f"]


@pytest.fixture
def at(clew):
    from clew.models.local import small

    small(WORDS, 16, 1, 2, 2, context=64, seed=1).save(Path("tiny"))
    rows = [{"question": f"{WORDS[i % 12]} {WORDS[i // 12]}", "answer": WORDS[i % 2]} for i in range(60)]
    Path("rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return clew


def taught(at, name, *more, data="rows.jsonl", loss="sft", code=0):
    line = ("tune", "--data", data, "--loss", loss, "--name", name, "--model", "tiny", "--batch", 8, "--epochs", 2)
    return at(*line, *more, code=code)


def weights(name: str) -> dict[str, np.ndarray]:
    from safetensors.numpy import load_file

    return load_file(next(Path(f".clew/trainings/{name}/checkpoint").rglob("model.safetensors")))


def test_rows_of_a_file_teach_replies_of_the_train_split_alone(at):
    told = taught(at, "t", "--lr", 0.01, "--epochs", 20, "--steady").output
    from clew.exchange.dataset.tasks import Dataset

    mine = len(Dataset("rows.jsonl").rows("train"))
    assert 30 < mine < 60
    assert f"{mine} rows, {2 * mine} tokens with loss" in told  # a word and the end of the reply
    assert "answer from column 'answer'" in told
    (line,) = [row.strip() for row in told.splitlines() if row.startswith("  clew ")]
    assert line == "clew run answerer --data rows.jsonl --split test --model .clew/trainings/t/checkpoint".replace(
        ".clew", str(Path(".clew").absolute())
    )
    at(*line.split()[1:], "--temperature", 0)
    with open_store(".clew/store.db") as store:
        said = [run.conversation()[-1].message.text.strip() for run in store.runs()]
        assert set(said) <= {"left", "right"}, "what the rows of the split train say, on others"
        assert len(store.metrics("t")) == 20 * -(-mine // 8)


def test_each_value_is_told_with_its_source_and_schedules_end_where_they_say(at):
    Path("clew.toml").write_text("[tune]\nweight-decay = 0.1\n")
    told = taught(at, "a", "--schedule", "linear", "--warmup", 0.25, "--lora", 2, "--track", "jsonl", "--json").stdout
    fields = json.loads(told)["settings"]["fields"]
    assert fields["schedule"] == {"value": "linear", "from": "option"}
    assert fields["weight_decay"] == {"value": 0.1, "from": "file"}
    assert fields["optimizer"] == {"value": "adamw", "from": "default"}
    assert fields["lr"]["from"].startswith("size of the model")
    kept = json.loads(Path(".clew/trainings/a/offline.json").read_text())
    assert kept["passes"]["schedule"] == "linear"
    assert kept["settings"]["weight_decay"] == 0.1
    rates = [json.loads(line) for line in Path(".clew/trainings/a/metrics.jsonl").read_text().splitlines()]
    assert len(rates) == len(open_store(".clew/store.db").metrics("a"))
    assert {row["step"] for row in rates} >= {1, 2}
    shown = taught(at, "b", "--schedule", "constant", "--optimizer", "muon", "--steady").output
    assert "from option:" in shown
    assert "from file:" in shown
    assert "weight_decay 0.1" in shown.replace("\n", " ")


def test_another_schedule_gives_other_weights_and_a_changed_one_is_refused(at):
    for name, schedule in (("one", "constant"), ("two", "linear"), ("same", "constant")):
        taught(at, name, "--schedule", schedule, "--lr", 0.01)
    one, two, same = (weights(name) for name in ("one", "two", "same"))
    assert any((one[key] != two[key]).any() for key in one)
    assert all((one[key] == same[key]).all() for key in one)
    told = taught(at, "one", "--schedule", "linear", "--lr", 0.01, "--betas", "0.8,0.9", code=2).output
    assert "other settings: schedule was constant and is linear, betas was not set and is 0.8,0.9" in told


def test_preferences_of_a_file_move_the_model_towards_what_is_chosen(at):
    from clew.core.values import Message
    from clew.models import load
    from clew.train.rows import render

    rows = [{"prompt": f"{a} {b}", "chosen": "yes", "rejected": "no"} for a in WORDS[:4] for b in WORDS[6:]]
    Path("pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    taught(at, "p", "--lr", 0.01, data="pairs.jsonl", loss="dpo")
    lines = [
        {"chosen": [{"role": "user", "content": row["prompt"]}, {"role": "assistant", "content": "yes"}]}
        | {"rejected": [{"role": "user", "content": row["prompt"]}, {"role": "assistant", "content": "no"}]}
        for row in rows
    ]
    Path("whole.jsonl").write_text("".join(json.dumps(row) + "\n" for row in lines))
    taught(at, "w", "--lr", 0.01, data="whole.jsonl", loss="dpo")
    for name in ("p", "w"):
        gained = []
        for folder in ("tiny", f".clew/trainings/{name}/checkpoint"):
            model = load(folder)
            said = [
                render([Message("user", "up e"), Message("assistant", word)], model.renderer) for word in WORDS[4:6]
            ]
            ids = [[t for piece, _ in pieces for t in piece] for pieces in said]
            better, worse = (float(np.sum(scores)) for scores in model.score(ids))
            gained.append(better - worse)
        assert gained[1] > gained[0] + 0.5


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--loss", "sft"], "neither runs nor data are named"),
        (["--loss", "sft", "--data", "rows.jsonl", "x"], "runs and data are named"),
        (["--loss", "cliff-dpo", "--data", "rows.jsonl"], "neither cliffs nor labels"),
        (["--loss", "dpo", "--data", "rows.jsonl"], "has no column 'chosen'"),
        (["--loss", "sft", "--data", "empty.jsonl"], "has no reply to imitate"),
        (["--loss", "sft", "--data", "calls.jsonl"], "calls tools"),
        (["--loss", "dpo", "--data", "same.jsonl"], "same.jsonl:1 prefers nothing"),
        (["--loss", "sft", "--data", "rows.jsonl", "--lora-alpha", "2"], "without --lora sets nothing"),
        (["--loss", "sft", "--data", "rows.jsonl", "--warmup", "1"], "out of bounds"),
        (["--loss", "sft", "--data", "nowhere.jsonl"], "nowhere.jsonl"),
    ],
)
def test_bad_input_is_one_sentence_with_a_remedy(at, args, said):
    call = {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}
    told = {"empty": {"prompt": "a"}, "calls": {"prompt": "a", "completion": [call]}}
    told["same"] = {"prompt": "a", "chosen": "b", "rejected": "b"}
    for name, row in told.items():
        Path(f"{name}.jsonl").write_text(json.dumps({**row, "split": "train"}) + "\n")
    Path(".clew").mkdir()
    open_store(".clew/store.db").close()
    done = at("tune", *args, "--name", "n", "--model", "tiny", code=2)
    assert said in done.output
    assert "Traceback" not in done.output
