"""E162: the experiment behind the claims of README.md, cell by cell.

    python papers/E162_uucb/run.py [--quick] [--tier chain|sums] [--out FOLDER]        (or: clew reproduce E162)

A cell is one (kind, arm, prompts, seed); its result is one JSON line of results/TIER.jsonl. Lines that exist are not
computed again, so a killed run goes on where it stopped.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from papers.E162_uucb import report, report_sums, tier, tier_sums  # noqa: E402
from papers.experiment import Experiment  # noqa: E402

HERE = Path(__file__).resolve().parent
TIERS: dict[str, Any] = {"chain": tier, "sums": tier_sums}
REPORTS: dict[str, Any] = {"chain": report, "sums": report_sums}
E162 = Experiment("E162", HERE, ("kind", "arm", "prompts", "depth", "seeds"), TIERS, REPORTS)
main, parse = E162.main, E162.parse

if __name__ == "__main__":
    raise SystemExit(parse())
