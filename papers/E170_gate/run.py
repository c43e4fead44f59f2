"""E170: the experiment behind the claims of README.md, cell by cell.

    python papers/E170_gate/run.py [--quick] [--tier bench|sim|shell] [--out FOLDER]      (or: clew reproduce E170)

A cell is one function, one setting, or one repository at one seed; its result is one JSON line of results/TIER.jsonl.
Lines that exist are not computed again, so a killed run goes on where it stopped. ``sim`` reads what ``bench`` found.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from papers.E170_gate import report_bench, report_shell, report_sim, tier_bench, tier_shell, tier_sim  # noqa: E402
from papers.experiment import Experiment  # noqa: E402

TIERS: dict[str, Any] = {"bench": tier_bench, "sim": tier_sim, "shell": tier_shell}
REPORTS: dict[str, Any] = {"bench": report_bench, "sim": report_sim, "shell": report_shell}
SETTINGS = ("kind", "program", "level", "prior", "verify")
E170 = Experiment("E170", Path(__file__).resolve().parent, SETTINGS, TIERS, REPORTS)
main, parse = E170.main, E170.parse

if __name__ == "__main__":
    raise SystemExit(parse())
