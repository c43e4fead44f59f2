"""E173: the experiment behind the claims of README.md, cell by cell.

    python papers/E173_progress/run.py [--quick] [--tier tabular|clerk] [--out FOLDER]      (or: clew reproduce E173)

A cell is one setting at one seed; its result is one JSON line of results/TIER.jsonl. Lines that exist are not computed
again, so a killed run goes on where it stopped; trained weights are kept under .clew/models/E173.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from papers.E173_progress import report_clerk, report_tabular, tier_clerk, tier_tabular  # noqa: E402
from papers.experiment import Experiment  # noqa: E402

HERE = Path(__file__).resolve().parent
TIERS: dict[str, Any] = {"tabular": tier_tabular, "clerk": tier_clerk}
REPORTS: dict[str, Any] = {"tabular": report_tabular, "clerk": report_clerk}
SETTINGS = ("kind", "slips", "kl", "at", "noise", "n", "tilt", "size")
E173 = Experiment("E173", HERE, SETTINGS, TIERS, REPORTS)
main, parse = E173.main, E173.parse

if __name__ == "__main__":
    raise SystemExit(parse())
