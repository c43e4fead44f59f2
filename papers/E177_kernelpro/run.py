"""E177: the experiment behind the claims of README.md, cell by cell.

    python papers/E177_kernelpro/run.py [--quick] [--tier TIER] [--out FOLDER]        (or: clew reproduce E177)

Tiers: detector (K1, K2), search (K3, K4), wall (K5, K10), tree (K6, K7), machine (K8, the final table), cuda (K9).
A cell's result is one JSON line of results/TIER.jsonl; lines that exist are not computed again. With the committed
results in place only the reports are made; give another ``--out`` to compute all of it anew, on this machine.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from papers.E177_kernelpro import (  # noqa: E402
    report_machine,
    report_rules,
    report_search,
    tier_cuda,
    tier_detector,
    tier_machine,
    tier_search,
    tier_tree,
    tier_wall,
)  # fmt: skip
from papers.experiment import Experiment  # noqa: E402

TIERS: dict[str, Any] = {
    "detector": tier_detector, "search": tier_search, "wall": tier_wall, "tree": tier_tree, "machine": tier_machine,
    "cuda": tier_cuda,
}  # fmt: skip
REPORTS: dict[str, Any] = {
    "detector": report_rules.DETECTOR, "cuda": report_rules.CUDA, "search": report_search.SEARCH,
    "tree": report_search.TREE, "wall": report_machine.WALL, "machine": report_machine.MACHINE,
}  # fmt: skip
E177 = Experiment("E177", Path(__file__).resolve().parent, ("kind", "name", "arm"), TIERS, REPORTS)
main, parse = E177.main, E177.parse

if __name__ == "__main__":
    raise SystemExit(parse())
