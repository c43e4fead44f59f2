"""Training on several ranks equals training in one process. CLEW_RANKS=4 also tries four ranks."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from clew.fit.sharding.ranks import Ranks

from . import sharded

ROOT = Path(__file__).resolve().parents[2]
MOST = int(os.environ.get("CLEW_RANKS", "2"))
JOBS = ("adamw", "packed", "muon", "lora", *(["double"] if MOST > 2 else []))
ALIKE = {"adamw": 1e-5, "packed": 1e-5, "double": 1e-12, "lora": 1e-5}  # largest difference of a weight at the end


def launched(world: int, folder: Path, *jobs: str) -> Path:
    """What these jobs found at so many ranks, by torchrun on this machine."""
    folder.mkdir(exist_ok=True)
    line = [sys.executable, "-P", "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={world}"]
    done = subprocess.run(
        [*line, "-m", "tests.fit.sharded", folder, *jobs], cwd=ROOT, capture_output=True, text=True, timeout=300,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder


def here(folder: Path, *jobs: str) -> Path:
    """The same in this process."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    for text in jobs:
        torch.save(sharded.job(Ranks(), folder, text), folder / sharded.file_of(text))
    torch.set_num_threads(threads)
    return folder


def found(folder: Path, job: str) -> dict:
    return torch.load(folder / sharded.file_of(job), weights_only=False)


def apart(one: dict, other: dict) -> float:
    """The largest difference of a weight."""
    assert one["weights"].keys() == other["weights"].keys()
    return max(float((other["weights"][name] - w).abs().max()) for name, w in one["weights"].items())


def bound(alone: Path, job: str) -> float:
    """How far weights may be apart at the end.

    Muon orthogonalises in bfloat16, so that another order of summing moves weights in one process too: some times that.
    """
    return ALIKE[job] if job in ALIKE else 4 * apart(found(alone, "muon"), found(alone, "reversed"))


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    return here(tmp_path_factory.mktemp("alone"), *JOBS, "bits", "reversed")


@pytest.fixture(scope="module", params=[2, 4])
def several(request, alone, tmp_path_factory):
    if request.param > MOST:
        pytest.skip("did not run: CLEW_RANKS=4 tries four ranks, which takes a minute")
    jobs = [*JOBS, "bits", "disagreeing", *(f"{job}<{alone / job}.half" for job in ("adamw", "muon"))]
    return launched(request.param, tmp_path_factory.mktemp("ranks") / str(request.param), *jobs)


@pytest.mark.whole
@pytest.mark.parametrize("job", JOBS)
def test_weights_norms_and_figures_equal_those_of_one_process(several, alone, job):
    one, many = found(alone, job), found(several, job)
    start = {"weights": sharded.Larger(dtype=next(iter(one["weights"].values())).dtype).weights()}
    if job != "lora":
        assert apart(one, start) > 2 * bound(alone, job)
    assert apart(one, many) <= bound(alone, job)
    for was, now in zip(one["told"], many["told"], strict=True):
        if job == "muon":
            assert now["norm"] == pytest.approx(was["norm"], rel=5e-2)
        else:
            assert now == pytest.approx(was, rel=1e-4, abs=1e-5)
    assert many["mismatch"] == pytest.approx(one["mismatch"], abs=1e-6)


def test_ranks_that_disagree_are_all_told_of_what(several):
    told = found(several, "disagreeing")
    last = len(told) - 1
    for one in told:
        assert f"disagree: lr is 0.0007 at rank 0 and 0.0001 at rank {last}\n  Start every rank" in one["lr"]
        for name in ("weights", "rows"):
            said = rf"the ranks disagree: {name} is \w+ at rank 0 and \w+ at rank {last}\n  (Let|Give) every rank"
            assert re.match(said, one[name])


def test_muon_steps_whole_matrices_to_the_bit(several, alone):
    hidden = [name for name in found(alone, "bits")["weights"] if name.endswith("proj.weight")]
    for name in hidden:
        assert torch.equal(found(alone, "bits")["weights"][name], found(several, "bits")["weights"][name]), name


@pytest.mark.parametrize("job", ["adamw", "muon", "lora"])
def test_a_checkpoint_of_several_ranks_goes_on_in_one_process(several, alone, job, tmp_path):
    text = f"{job}<{several / job}.half"
    assert apart(found(alone, job), found(here(tmp_path, text), text)) <= bound(alone, job)


@pytest.mark.parametrize("job", ["adamw", "muon"])
def test_a_checkpoint_of_one_process_goes_on_at_several_ranks(several, alone, job):
    assert apart(found(alone, job), found(several, f"{job}<{alone / job}.half")) <= bound(alone, job)


@pytest.mark.skipif(MOST < 4, reason="did not run: CLEW_RANKS=4 tries four ranks, which takes a minute")
def test_a_checkpoint_of_two_ranks_goes_on_at_four_and_at_two_to_the_bit(alone, tmp_path):
    two = launched(2, tmp_path / "two", "adamw", "muon")
    texts = [f"{job}<{two / job}.half" for job in ("adamw", "muon")]
    again, four = launched(2, tmp_path / "again", *texts), launched(4, tmp_path / "four", *texts)
    for job, text in zip(("adamw", "muon"), texts, strict=True):
        assert apart(found(two, job), found(again, text)) == 0
        assert apart(found(two, job), found(four, text)) <= bound(alone, job)


def test_a_checkpoint_of_several_ranks_is_a_model_folder(several, alone):
    from transformers import AutoModelForCausalLM

    loaded = AutoModelForCausalLM.from_pretrained(several / "adamw.half")
    twin = AutoModelForCausalLM.from_pretrained(alone / "adamw.half")
    for name, weight in twin.state_dict().items():
        assert float((loaded.state_dict()[name] - weight).abs().max()) <= ALIKE["adamw"]
