"""E169: the experiment behind the claims of README.md, cell by cell.

    python papers/E169_sherloc/run.py [--quick] [--tier L|R] [--out FOLDER] [--clones FOLDER]  (or: clew reproduce E169)

Tier L reads the histories of three public projects from clones; tier R needs none. A cell's result is one JSON line of
results/TIER.jsonl. Lines that exist are not computed again, so a killed run goes on where it stopped. With the
committed results in place only the report is made; give another ``--out`` to compute all of it anew.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from papers.E169_sherloc import clones, report_l, report_r, tier_l, tier_r  # noqa: E402
from papers.experiment import Experiment  # noqa: E402

TIERS: dict[str, Any] = {"L": tier_l, "R": tier_r}
REPORTS: dict[str, Any] = {"L": report_l, "R": report_r}
E169 = Experiment("E169", Path(__file__).resolve().parent, ("project", "split", "kind"), TIERS, REPORTS)
main = E169.main


def parse(argv: list[str] | None = None) -> int:
    """The command line: as of any experiment, and where the clones are."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--clones", type=Path, help="folder of clones of pytest, pylint and sphinx")
    given, rest = parser.parse_known_args(argv)
    clones.where[:] = [given.clones] if given.clones else []
    return E169.parse(rest)


if __name__ == "__main__":
    raise SystemExit(parse())
