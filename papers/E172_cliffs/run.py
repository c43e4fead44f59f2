"""E172: the experiment behind the claims of README.md, cell by cell.

    python papers/E172_cliffs/run.py [--quick] [--tier toy|data|model] [--out FOLDER]        (or: clew reproduce E172)

A cell's result is one JSON line of results/TIER.jsonl. Lines that exist are not computed again, so a killed run goes on
where it stopped.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from papers.E172_cliffs import report_data, report_model, report_toy, tier_data, tier_model, tier_toy  # noqa: E402
from papers.experiment import Experiment  # noqa: E402

HERE = Path(__file__).resolve().parent
TIERS: dict[str, Any] = {"toy": tier_toy, "data": tier_data, "model": tier_model}
REPORTS: dict[str, Any] = {"toy": report_toy, "data": report_data, "model": report_model}
E172 = Experiment("E172", HERE, ("kind", "arm", "budget", "stems", "path"), TIERS, REPORTS)
main, parse = E172.main, E172.parse

if __name__ == "__main__":
    raise SystemExit(parse())
