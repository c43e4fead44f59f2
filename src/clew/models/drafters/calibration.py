"""Calibration tables beside a drafter (sequential temperature scaling): stores them and finds the one that fits.

A table holds one temperature for each position of a block (2607.05147, section 3.2.1). It is fitted for one drafter,
one block and one sampling temperature, and a table of another is refused.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from clew.core.errors import BadInput
from clew.models.drafters.layers import Trained
from clew.models.engine.forwards.weights import weights_digest

FILE = "calibration.json"


@dataclass(frozen=True, slots=True)
class Table:
    """``temperatures`` [block] divide the confidence logits; ``ece`` before and after are of rounds held out."""

    drafter: str  # digest of its weights
    block: int
    temperature: float  # of sampling
    temperatures: tuple[float, ...]
    rounds: int
    ece_before: float = float("nan")
    ece_after: float = float("nan")


def tables(folder: str | Path) -> list[Table]:
    """All tables beside a drafter."""
    file = Path(folder) / FILE
    if not file.exists():
        return []
    found = json.loads(file.read_text(encoding="utf-8"))["tables"]
    return [Table(**{**t, "temperatures": tuple(t["temperatures"])}) for t in found]


def keep(folder: str | Path, table: Table) -> Path:
    """Put a table beside its drafter, in place of one for the same temperature; those of other drafters are dropped."""
    others = [t for t in tables(folder) if (t.drafter, t.block) == (table.drafter, table.block)]
    others = [t for t in others if t.temperature != table.temperature]
    file = Path(folder) / FILE
    fresh = file.with_suffix(".writing")
    kept = sorted([*others, table], key=lambda t: t.temperature)
    fresh.write_text(json.dumps({"tables": [asdict(t) for t in kept]}, indent=1), encoding="utf-8")
    fresh.replace(file)
    return file


def find(folder: str | Path, module: Trained, temperature: float) -> Table | None:
    """The table for this drafter at this temperature; None where the drafter was never calibrated.

    Raises:
        BadInput: there are tables, but for another drafter or block, or not for this temperature.
    """
    have = tables(folder)
    if not have:
        return None
    digest, block = weights_digest(module), module.design.block
    remedy = f"Run clew draft calibrate MODEL {folder} --temperature {temperature:g}, or delete {Path(folder) / FILE}."
    for table in have:
        if table.drafter != digest:
            raise BadInput(
                f"the calibration in {folder} was fitted for drafter {table.drafter}; this one is {digest}",
                remedy=remedy,
            )
        if table.block != block:
            raise BadInput(
                f"the calibration in {folder} was fitted for blocks of {table.block}; this drafter's have {block}",
                remedy=remedy,
            )
    fitted = next((t for t in have if t.temperature == temperature), None)
    if fitted is None:
        known = ", ".join(f"{t.temperature:g}" for t in have)
        raise BadInput(
            f"the calibration in {folder} was fitted for temperature {known}, not {temperature:g}", remedy=remedy
        )
    return fitted
