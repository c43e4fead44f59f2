"""Runs on two raylets are those of one process, and stay so when a worker or a raylet is killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("ray", reason="did not run: Ray is not installed (make extras)")
pytest.importorskip("torch", reason="did not run: the extra [local] is not installed")

from clew.core.errors import BadInput
from clew.harness.workers.cluster import ray_workers

KILLS = int(os.environ.get("CLEW_KILLS", "1"))


@pytest.mark.timeout(280 + 60 * KILLS)
def test_two_raylets(tmp_path: Path) -> None:
    program = Path(__file__).with_name("on_ray.py")
    done = subprocess.run([sys.executable, program, tmp_path], capture_output=True, text=True, timeout=270 + 60 * KILLS)
    assert done.returncode == 0, done.stderr[-2000:]
    out = json.loads(done.stdout.splitlines()[-1])
    seconds = out.pop("seconds for each")
    assert 0 < seconds < 120
    wanted = {"nodes": 2, "faults": 0, "judged": True}
    same = dict.fromkeys(("groups", "forks", "trees", "a worker killed", "a raylet killed"), True)
    assert out == wanted | same


def test_a_cluster_that_does_not_answer() -> None:
    with pytest.raises(BadInput, match=r"no Ray cluster can be used at '127\.0\.0\.1:9'"):
        ray_workers(2, "127.0.0.1:9")
