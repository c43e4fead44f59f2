"""TRL's GRPO takes the step that Clew's rows and advantages ask for."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="did not run: the extra [local] is not installed")
pytest.importorskip("trl", reason="did not run: TRL is not installed (pip install 'clew[trl]')")


@pytest.mark.timeout(180)
def test_a_step_of_trl_is_the_gradient_of_the_rows(tmp_path: Path) -> None:
    program = Path(__file__).with_name("on_trl.py")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", program, tmp_path], capture_output=True, text=True, timeout=170
    )
    assert done.returncode == 0, done.stderr[-2000:]
    out = json.loads(done.stdout.splitlines()[-1])
    assert out["size"] > 1e-3
    assert out["off"] < 1e-6
    assert (out["runs"], out["faults"], out["mixed"]) == (12, 0, True)
    assert out["tokens"] > 12
    assert out["refused"].startswith("top_p=0.9, top_k=0: a truncated distribution")
