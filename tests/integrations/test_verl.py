"""Clew's GRPO, registered in verl, gives verl's own advantages."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="did not run: the extra [local] is not installed")
pytest.importorskip("verl", reason="did not run: verl is not installed (pip install verl==0.9.1)")


@pytest.mark.timeout(120)
def test_a_registered_estimator_is_verls_own() -> None:
    program = Path(__file__).with_name("on_verl.py")
    done = subprocess.run([sys.executable, "-W", "ignore", program], capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stderr[-2000:]
    out = json.loads(done.stdout.splitlines()[-1])
    assert out["size"] > 0.1
    assert out["off"] < 1e-6
    assert out["dead"] == 0.0
