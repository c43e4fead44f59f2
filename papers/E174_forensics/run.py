"""E174: the experiment behind the claims of README.md, cell by cell.

    python papers/E174_forensics/run.py [--quick] [--tier A] [--out FOLDER]        (or: clew reproduce E174)

A cell is one check of specs/E174 section 9 at one seed; its result is one JSON line of results/A.jsonl. Lines that
exist are not computed again, so a killed run goes on where it stopped. With the committed results in place only the
report is made; give another ``--out`` to compute all of it anew.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from papers.E174_forensics import report_a, tier_a  # noqa: E402
from papers.experiment import Experiment  # noqa: E402

TIERS: dict[str, Any] = {"A": tier_a}
REPORTS: dict[str, Any] = {"A": report_a}
E174 = Experiment("E174", Path(__file__).resolve().parent, ("check",), TIERS, REPORTS)
main, parse = E174.main, E174.parse

if __name__ == "__main__":
    raise SystemExit(parse())
