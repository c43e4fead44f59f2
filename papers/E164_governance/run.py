"""E164: the experiment behind the claims of README.md, cell by cell.

    python papers/E164_governance/run.py [--quick] [--tier A|R|B] [--out FOLDER]        (or: clew reproduce E164)

A cell is one setting at one seed; its result is one JSON line of results/TIER.jsonl. Lines that exist are not computed
again, so a killed run goes on where it stopped. Tier A needs the frameworks, R the shared data, B torch.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from papers.E164_governance import report_a, report_b, report_r, tier_a, tier_b, tier_r  # noqa: E402
from papers.experiment import Experiment  # noqa: E402

TIERS: dict[str, Any] = {"A": tier_a, "R": tier_r, "B": tier_b}
REPORTS: dict[str, Any] = {"A": report_a, "R": report_r, "B": report_b}
SETTINGS = ("kind", "stack", "delivery", "condition", "strategy", "summariser", "budget", "pinned", "size")
E164 = Experiment("E164", Path(__file__).resolve().parent, SETTINGS, TIERS, REPORTS)
main, parse = E164.main, E164.parse

if __name__ == "__main__":
    raise SystemExit(parse())
