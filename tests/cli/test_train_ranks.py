"""`clew train --nproc 2` and `clew tune`: one process's weights, nothing lost or left running, whatever ends it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from clew.models.local import small
from clew.store import open_store
from clew.worlds.household import Household

from .shell import Shell

WORLD = """
from clew.worlds.household import Household

class Lenient(Household):
    def __init__(self):
        super().__init__(rooms=2, receptacles=2, objects=2, closed=1, steps=3)

    async def judge(self, task, run, world):
        return {"reward": float(run.row.seed % 3 > 0)}
"""
LINE = "clew train --world lenient.py:Lenient --model tiny --tasks 2 -n 3 --max-tokens 3 --checkpoint-every 2"
LINE += " --eval-every 0 --weight-by run"
MANY = pytest.mark.skipif(
    os.environ.get("CLEW_RANKS", "2") == "2",
    reason="did not run: CLEW_RANKS=4 starts and kills ranks, minutes",
)


@pytest.fixture
def shell(tmp_path) -> Shell:
    made = Shell(tmp_path / "here")
    made.folder.mkdir()
    made.write(lenient_py=WORLD)
    words = Household(rooms=2, receptacles=2, objects=2, closed=1, steps=3).vocabulary()
    tiny = small(words, d=16, layers=2, heads=2, kv_heads=1, context=256, ref="tiny")
    tiny.save(made.folder / "tiny")
    tiny.close()
    made.environment["OMP_NUM_THREADS"] = "1"
    return made


def weights(shell: Shell, name: str) -> dict[str, torch.Tensor]:
    return load_file(shell.folder / f".clew/trainings/{name}/checkpoint/model.safetensors")


def filed(shell: Shell, name: str) -> int:
    """How many runs of a training the store holds, which must be in order."""
    with closing(open_store(shell.folder / ".clew/store.db")) as store:
        assert list(store.verify()) == []
        return len(store.runs(f"name={name}/*"))


def apart(shell: Shell, one: str, other: str) -> float:
    mine, its = weights(shell, one), weights(shell, other)
    return max(float((its[name] - weight).abs().max()) for name, weight in mine.items())


@MANY
def test_two_ranks_learn_as_one_process_does_which_goes_on_from_them(shell):
    said = shell(f"{LINE} --name two --nproc 2 --iterations 1")
    assert "1 iterations, success of the last" in said
    assert said.count("Next:") == 1  # told once
    shell(f"{LINE} --name two --iterations 2")
    shell(f"{LINE} --name one --iterations 2")
    assert 0 < apart(shell, "one", "two") < 1e-5
    start = load_file(shell.folder / "tiny/model.safetensors")
    assert max(float((weights(shell, "one")[name] - w).abs().max()) for name, w in start.items()) > 1e-3
    assert filed(shell, "one") == filed(shell, "two") == 12


@MANY
@pytest.mark.parametrize("more", ["--loss dpo", "--loss sft --lora 2"])
def test_two_ranks_learn_from_a_file_as_one_process_does(shell, more):
    words = Household(rooms=2, receptacles=2, objects=2, closed=1, steps=3).vocabulary()
    rows = [{"prompt": " ".join(words[i : i + 9]), "chosen": words[i + 2], "rejected": words[i + 3]} for i in range(12)]
    shell.write(pairs_jsonl="".join(json.dumps(row) + "\n" for row in rows))
    line = f"clew tune --data pairs.jsonl --model tiny --batch 4 --lr 1e-3 {more}"
    line += " --prompt prompt --answer chosen" if "sft" in more else ""
    said = shell(f"{line} --name two --nproc 2")
    assert said.count("tokens with loss") == 2, "before and after, by rank 0 alone"
    shell(f"{line} --name one")
    start = load_file(shell.folder / "tiny/model.safetensors")
    assert max(float((weights(shell, "one")[name] - w).abs().max()) for name, w in start.items()) > 1e-4
    assert apart(shell, "one", "two") < 1e-5


@MANY
def test_an_error_is_told_once(shell):
    said = shell(f"{LINE} --name two --nproc 2 --model nowhere", code=2)
    assert said.count("no model is called 'nowhere'") == 1
    assert "Traceback" not in said


def living(name: str) -> set[int]:
    """The processes whose command line names a training."""
    found = set()
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if f"--name\0{name}\0" in place.read_text() + "\0":
                found.add(int(place.parent.name))
        except OSError:
            continue  # it has ended
    return found


@MANY
@pytest.mark.parametrize("ended", ["interrupt", "launcher", "rank 0", "rank 1"])
def test_ended_in_any_way_it_leaves_no_process_and_goes_on_to_the_same_bits(shell, ended):
    line = f"{LINE} --nproc 2 --iterations 12"
    name = f"ended-{os.getpid()}-{ended.replace(' ', '')}"
    words = [sys.executable, "-P", "-m", "clew.cli", *f"{line} --name {name}".split()[1:]]
    process = subprocess.Popen(
        words, cwd=shell.folder, env=shell.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    until = time.monotonic() + 60
    while not (shell.folder / f".clew/trainings/{name}/checkpoint").exists() and time.monotonic() < until:
        time.sleep(0.05)
    ranks = sorted(living(name) - {process.pid})
    assert len(ranks) == 2
    whom = {"rank 0": ranks[0], "rank 1": ranks[1]}.get(ended, process.pid)
    os.kill(whom, signal.SIGINT if ended == "interrupt" else signal.SIGKILL)
    said = process.communicate(timeout=60)[0]
    if ended == "interrupt":
        assert process.returncode == 130
        assert said.count("Interrupted. Everything recorded so far is kept. Continue with: the same line again") == 1
    elif ended.startswith("rank"):
        assert process.returncode != 0
        assert f"{ended} of the training failed" in said
    until = time.monotonic() + 20
    while living(name) and time.monotonic() < until:
        time.sleep(0.1)
    assert living(name) == set()
    shell(f"{line} --name {name}", seconds=200)
    shell(f"{line} --name whole", seconds=200)
    assert apart(shell, name, "whole") == 0
    assert filed(shell, name) == filed(shell, "whole") == 72
