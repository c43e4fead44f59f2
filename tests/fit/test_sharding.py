"""Steps taken by several ranks are those of one process, and a checkpoint of some ranks serves any number of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="did not run: the extra [local] is not installed")

from clew.core.errors import BadInput
from clew.fit.sharding import Sharded

RANKS = int(os.environ.get("CLEW_RANKS", "2"))


def ranked(n: int, *arguments: object) -> dict[str, Any]:
    program = Path(__file__).with_name("on_ranks.py")
    line = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        str(n),
        program,
        *arguments,
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(list(map(str, line)), capture_output=True, text=True, timeout=270, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("{")))
    assert found["world"] == n
    return found


def agree(ours: list[list[float]], theirs: list[list[float]], within: float) -> None:
    """Gradient norms, losses, mean ratios and counts of trained tokens of each step."""
    assert len(ours) == len(theirs) > 0
    for one, other in zip(ours, theirs, strict=True):
        assert one == pytest.approx(other, abs=within)


@pytest.mark.timeout(300)
def test_two_ranks_take_the_steps_of_one_process(tmp_path: Path) -> None:
    out = ranked(2, tmp_path, "adamw", "whole")
    agree(out["steps"], out["plain steps"], 1e-5)
    assert out["plain"] < 1e-5
    assert out["own norms"] < 1e-2
    assert out["version"] == 0
    assert out["resumed"] < 1e-6
    assert out["late"].startswith("the optimiser holds parameters that the sharded module has no more")
    assert out["other rows"].startswith("rank 1 has other rows than rank 0")
    assert out["no checkpoint"].startswith("no checkpoint at ")
    assert (tmp_path / "c" / "model.safetensors").exists()


@pytest.mark.skipif(RANKS < 4, reason="did not run: four ranks and Muon take a minute (CLEW_RANKS=4)")
@pytest.mark.timeout(900)
def test_four_ranks_muon_and_a_checkpoint_of_two_at_one_and_four(tmp_path: Path) -> None:
    out = ranked(4, tmp_path / "four", "adamw", "whole")
    agree(out["steps"], out["plain steps"], 1e-5)
    assert out["plain"] < 1e-5
    whole = ranked(2, tmp_path / "two", "adamw", "whole")
    for n in (1, 4):
        again = ranked(n, tmp_path / "two", "adamw", "resume")
        agree(again["steps"], whole["plain steps"][-len(again["steps"]) :], 1e-5)
        assert again["plain"] < 1e-5
    muon = ranked(2, tmp_path / "muon", "muon", "whole")
    assert muon["plain"] < 2e-2  # its matrices are orthogonalised in bfloat16, in other pieces


def test_without_torchrun_it_says_how_to_start() -> None:
    with pytest.raises(BadInput, match="no group of processes trains together here"):
        Sharded()
