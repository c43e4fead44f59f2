"""E163: the experiment behind the claims of README.md, cell by cell.

    python papers/E163_backtrack/run.py [--quick] [--tier T|S|D|N] [--out FOLDER]        (or: clew reproduce E163)

A cell is one setting at one seed; its result is one JSON line of results/TIER.jsonl. Lines that exist are not computed
again, so a killed run goes on where it stopped. With the committed results in place only the report is made; give
another ``--out`` to compute all of it anew.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from papers.E163_backtrack import report_d, report_n, report_s, report_t, tier_d, tier_n, tier_s, tier_t  # noqa: E402
from papers.experiment import Experiment  # noqa: E402

TIERS: dict[str, Any] = {"T": tier_t, "S": tier_s, "D": tier_d, "N": tier_n}
REPORTS: dict[str, Any] = {"T": report_t, "S": report_s, "D": report_d, "N": report_n}
SETTINGS = ("kind", "n", "share", "w", "k", "l")
E163 = Experiment("E163", Path(__file__).resolve().parent, SETTINGS, TIERS, REPORTS)
main, parse = E163.main, E163.parse

if __name__ == "__main__":
    raise SystemExit(parse())
