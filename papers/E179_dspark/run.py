"""E179: the experiment behind the claims of README.md, cell by cell.

    python papers/E179_dspark/run.py [--quick] [--tier NAME] [--out FOLDER]        (or: clew reproduce E179)

A cell is one setting at one seed; its result is one JSON line of results/TIER.jsonl. Lines that exist are not computed
again, so a killed run goes on where it stopped. With the committed results in place only the reports are made; give
another ``--out`` to compute all of it anew. Targets and drafters are made below .clew/e179 of the present folder, once.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from papers.experiment import Experiment  # noqa: E402

HERE = "papers.E179_dspark"
# Marks of specs/E179: toy T1; exact T2, T3, T9; draft T4, T5; confidence T6; speed T7; load T8, T10.
NAMES = [name for name in ("toy", "exact", "draft", "confidence", "speed", "load") if find_spec(f"{HERE}.tier_{name}")]
TIERS: dict[str, Any] = {name: import_module(f"{HERE}.tier_{name}") for name in NAMES}
REPORTS: dict[str, Any] = {name: import_module(f"{HERE}.report_{name}") for name in NAMES}
SETTINGS = (
    "kind", "arm", "block", "table", "policy", "r", "m", "noise",
    "target", "drafter", "lengths", "sampling", "rows", "n", "temperature",
)  # fmt: skip
E179 = Experiment("E179", Path(__file__).resolve().parent, SETTINGS, TIERS, REPORTS)
main, parse = E179.main, E179.parse

if __name__ == "__main__":
    raise SystemExit(parse())
