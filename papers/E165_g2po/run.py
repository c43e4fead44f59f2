"""E165: the experiment behind the claims of README.md, cell by cell.

    python papers/E165_g2po/run.py [--quick] [--tier 8a|8b] [--out FOLDER]        (or: clew reproduce E165)

A cell is one (tier, arm, variant, rescale, seed); its result is one JSON line of results/TIER.jsonl. Lines that exist
are not computed again, so a killed run goes on where it stopped. With the committed results in place only the report is
made; give another ``--out`` to compute all of it anew.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from papers.E165_g2po import report_a, report_b, tier_a, tier_b  # noqa: E402
from papers.experiment import Experiment, alone, load  # noqa: E402

__all__ = ["HERE", "REPORTS", "TIERS", "alone", "compute", "key", "load", "main", "parse"]

HERE = Path(__file__).resolve().parent
TIERS: dict[str, Any] = {"8a": tier_a, "8b": tier_b}
REPORTS: dict[str, Any] = {"8a": report_a, "8b": report_b}
E165 = Experiment("E165", HERE, ("kind", "arm", "variant", "rescale", "lr", "eps"), TIERS, REPORTS)
key, compute, main, parse = E165.key, E165.compute, E165.main, E165.parse

if __name__ == "__main__":
    raise SystemExit(parse())
