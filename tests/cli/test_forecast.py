"""What `clew tune` and `clew train` say before they begin: steps, parameters and memory; then the time, measured."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

pytest.importorskip("transformers", reason="did not run: transformers is not installed")

from clew.fit.trainer import Trainer
from clew.models.local import devices

WORDS = ["left", "right", "up", "down", "yes", "no", "a", "b", "c", "d", "e", "f"]
TUNE = ("tune", "--data", "rows.jsonl", "--loss", "sft", "--model", "tiny", "--batch", 8, "--epochs", 2, "--json")
TRAIN = ("train", "--data", "rows.jsonl", "--reward", "exact", "--model", "tiny", "--iterations", 3, "--tasks", 4,
         "-n", 4, "--max-tokens", 2, "--json")  # fmt: skip


@pytest.fixture
def at(clew):
    from clew.models.local import small

    made = small(WORDS, 64, 2, 2, 2, context=64, seed=1)
    made.save(Path("tiny"))
    made.close()
    rows = [{"question": f"{WORDS[i % 12]} {WORDS[i // 12]}", "answer": WORDS[i % 2]} for i in range(60)]
    Path("rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return clew


@pytest.fixture
def stepped(monkeypatch):
    """Trainers that have stepped, and what stood on standard error before the first step of each."""
    seen, step, said = {}, Trainer.step, []
    from clew.cli.shared import common

    say = common.say
    monkeypatch.setattr(common, "say", lambda text: (said.append(text), say(text)))

    def counted(self, *args):
        seen.setdefault(self, list(said))
        return step(self, *args)

    monkeypatch.setattr(Trainer, "step", counted)
    return seen


def size(tensors) -> int:
    return sum(t.numel() * t.element_size() for t in {id(t): t for t in tensors}.values())


@pytest.mark.parametrize("verb", [TUNE, TRAIN], ids=["tune", "train"])
@pytest.mark.parametrize("how", [(), ("--optimizer", "muon"), ("--lora", 2)], ids=["adamw", "muon", "lora"])
def test_the_memory_said_before_the_first_step_is_what_the_trainer_then_holds(at, stepped, verb, how):
    told = json.loads(at(*verb, "--name", "t", *how).stdout)["forecast"]
    ((trainer, before),) = stepped.items()
    (line,) = [text for text in before if text.startswith("to train: ")]
    assert not any("at that speed" in text for text in before), "a time was told before anything was measured"
    parameters = list(trainer.module.parameters())
    trained = [p for p in parameters if p.requires_grad]
    states = [t for part in trainer.optimizer.parts for one in part.state.values() for t in one.values()]
    memory = told["memory"]
    assert memory["gradients"] == size(p.grad for p in trained if p.grad is not None)
    assert memory["optimiser"] == size(t for t in states if isinstance(t, torch.Tensor)) > 0
    held = size([*parameters, *trainer.module.buffers()])
    assert held <= memory["loaded"] - memory["copy"] < 1.01 * held
    assert told["parameters"] == {"trained": sum(p.numel() for p in trained), "all": sum(p.numel() for p in parameters)}
    assert (told["parameters"]["trained"] < told["parameters"]["all"]) == ("--lora" in how)
    assert f"{told['parameters']['trained']:,} of {told['parameters']['all']:,} parameters" in line
    assert (memory["cache"] > 0) == ("of cache" in line) == (verb is TRAIN), "tune samples nothing"


def test_more_than_is_free_is_told(at, monkeypatch):
    monkeypatch.setattr(devices, "free_bytes", lambda device: 1_000)
    assert re.search(r"1\.0 kB are free, less than the [\d.]+ MB to come$", at(*TUNE, "--name", "a").stderr, re.M)
    monkeypatch.setattr(devices, "free_bytes", lambda device: 2_000_000)
    told = at(*TRAIN, "--name", "b").stderr
    assert re.search(r"2\.0 MB are free, less than the [\d.]+ MB to come with a full cache$", told, re.M)
    monkeypatch.setattr(devices, "free_bytes", lambda device: None)
    told = at(*TUNE, "--name", "c").stderr
    assert "to train: " in told
    assert "free" not in told


def test_free_memory_is_that_of_the_system_or_less_in_a_container(tmp_path, monkeypatch):
    if not Path("/proc/meminfo").exists():
        pytest.skip("did not run: no /proc/meminfo here")
    whole = int(re.search(r"MemTotal: +(\d+)", Path("/proc/meminfo").read_text())[1]) << 10
    assert 0 < devices.free_bytes(torch.device("cpu")) < whole
    monkeypatch.setattr(devices, "GROUP", tmp_path)
    for name, text in (("max", "9000"), ("current", "5000"), ("stat", "anon 4000\ninactive_file 700\n")):
        (tmp_path / f"memory.{name}").write_text(text)
    assert devices.free_bytes(torch.device("cpu")) == 4700
    (tmp_path / "memory.max").write_text("max\n")
    assert devices.free_bytes(torch.device("cpu")) > 4700


def seconds(text: str) -> float:
    number, unit = re.search(r"about ([\d.,]+) (s|min|h) for", text).groups()
    return float(number.replace(",", "")) * {"s": 1, "min": 60, "h": 3600}[unit]


@pytest.mark.parametrize(("taken", "said"), [(0.5, "0.5 s"), (40.0, "40 s"), (4000.0, "67 min")])
def test_the_time_of_tune_is_the_first_step_s_times_what_is_left(at, monkeypatch, taken, said):
    step = Trainer.step
    monkeypatch.setattr(Trainer, "step", lambda self, *args: replace(step(self, *args), seconds=taken))
    done = at(*TUNE, "--name", "t")
    total = json.loads(done.stdout)["forecast"]["steps"]
    (line,) = [text for text in done.stderr.splitlines() if "at that speed" in text]
    assert line.startswith(f"step 1 took {said}: ")
    assert f"for the {total - 1} left" in line
    assert seconds(line) == pytest.approx(taken * (total - 1), rel=0.05)


def test_the_time_of_train_is_of_the_first_iteration_that_was_sampled_anew(at):
    from clew.store import open_store

    done = at(*TRAIN, "--name", "t")
    (line,) = [text for text in done.stderr.splitlines() if "at that speed" in text]
    with open_store(".clew/store.db") as store:
        first = sum(v for k, v in store.metrics("t")[0].items() if k.startswith("seconds/"))
    assert line.startswith("iteration 1 took ")
    assert "for the 2 left" in line
    assert seconds(line) == pytest.approx(2 * first, rel=0.1)
    shutil.rmtree(".clew/trainings/t")  # the runs are in the store: nothing is sampled again, so no time is told
    assert "at that speed" not in at(*TRAIN, "--name", "t").stderr
    told = at(*TRAIN, "--name", "t", "--iterations", 5).stderr  # the last one wins: two more, of which the first tells
    assert "iteration 4 took" in told
    assert "for the 1 left" in told


def test_dpo_says_it_before_the_reference_which_new_adapters_leave_as_it_is(at, monkeypatch):
    from clew.cli.shared import training_report
    from clew.train import rows as made

    pairs = [{"prompt": f"{a} {b}", "chosen": "yes", "rejected": "no"} for a in WORDS[:4] for b in WORDS[6:]]
    Path("pairs.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs))
    order, given, reference, forecast = [], [], made.reference, training_report.forecast

    def noted(rows, model):
        order.append("reference")
        given.append([row.ref.tolist() for row in reference(rows, model)])

    monkeypatch.setattr(made, "reference", noted)
    monkeypatch.setattr(training_report, "forecast", lambda *a, **k: (order.append("forecast"), forecast(*a, **k))[1])
    for name, more in (("all", ()), ("few", ("--lora", 2, "--lora-dropout", 0.1))):
        at("tune", "--data", "pairs.jsonl", "--loss", "dpo", "--model", "tiny", "--name", name, *more)
    assert order == ["forecast", "reference"] * 2
    assert given[0] == given[1], "the reference is that of the weights that --model names, to the bit"
