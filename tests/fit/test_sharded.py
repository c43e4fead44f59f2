"""Training on several ranks equals training in one process. CLEW_RANKS=4 also tries four ranks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from clew.fit.sharding.ranks import Ranks

from . import sharded

ROOT = Path(__file__).resolve().parents[2]
MOST = int(os.environ.get("CLEW_RANKS", "2"))
JOBS = ("adamw", "double")
ALIKE = {"adamw": 1e-5, "double": 1e-12}  # largest difference of a weight after 20 steps


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


def found(folder: Path, job: str) -> dict:
    return torch.load(folder / f"{job}.pt", weights_only=False)


@pytest.fixture(scope="module", params=[2, 4])
def several(request, tmp_path_factory):
    if request.param > MOST:
        pytest.skip("did not run: CLEW_RANKS=4 tries four ranks, which takes a minute")
    return launched(request.param, tmp_path_factory.mktemp("ranks") / str(request.param), *JOBS)


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    folder = tmp_path_factory.mktemp("alone")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    for job in JOBS:
        torch.save(getattr(sharded, job)(Ranks(), folder), folder / f"{job}.pt")
    torch.set_num_threads(threads)
    return folder


@pytest.mark.parametrize("job", JOBS)
def test_weights_norms_and_figures_equal_those_of_one_process(several, alone, job):
    one, many = found(alone, job), found(several, job)
    assert one["weights"].keys() == many["weights"].keys()
    start = sharded.Larger(dtype=next(iter(one["weights"].values())).dtype).weights()
    assert max(float((one["weights"][name] - w).abs().max()) for name, w in start.items()) > 1e-3
    for name, weight in one["weights"].items():
        assert float((many["weights"][name] - weight).abs().max()) <= ALIKE[job], name
    for was, now in zip(one["told"], many["told"], strict=True):
        assert now == pytest.approx(was, rel=1e-4, abs=1e-5)
    assert many["mismatch"] == pytest.approx(one["mismatch"], abs=1e-6)
