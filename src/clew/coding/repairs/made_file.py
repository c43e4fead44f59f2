"""The file that made tasks are written to, and beside it what was tried: a line is added as soon as it is known.

``clew repairs`` writes it and goes on with it after an interrupt: what was proven stays, and nothing is tried twice.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from clew.coding.repairs.making import Candidate, Proof
from clew.coding.repairs.repair_rows import rows_in
from clew.core.errors import BadInput

TRIED = ".tried"  # what the name of the file beside ends with


class MadeFile:
    """Rows that were made, and candidates that were left out.

    Args:
        path: of the rows. how: of what they are made, which is the same for all rows of a file.

    Raises:
        BadInput: the file holds rows that were made of something else, or no rows at all.
    """

    def __init__(self, path: Path, how: Mapping[str, str]) -> None:
        self.path, self.beside = path, path.with_name(path.name + TRIED)
        self.left_out: Counter[str] = Counter()
        self.unsteady = 0
        self._tried = set[str]()
        had, made = _lines(self.beside), path.exists() and path.stat().st_size > 0
        if made and not had:
            raise BadInput(f"{path} was made by something else", remedy="Name another file with -o, or remove it.")
        if len(had) == 1 and not made:  # it was begun, and nothing tried: another beginning loses nothing
            self.beside.unlink()
            had = []
        self._rows = {row.instance_id for row in rows_in(path)} if made else set[str]()
        if had and {name: str(had[0].get(name)) for name in how} != dict(how):
            first = next(name for name in how if str(had[0].get(name)) != how[name])
            told = f"{path} was begun with {first} {str(had[0].get(first))[:80]!r}, not {how[first][:80]!r}"
            raise BadInput(told, remedy=f"Name another file with -o, or remove {path.name} and {self.beside.name}.")
        for line in had[1:]:
            self._tried.add(str(line.get("key")))
            if line.get("why"):
                self.left_out[str(line["why"])] += 1
            self.unsteady += found if isinstance(found := line.get("unsteady"), int) else 0
        if not had:
            self._add(self.beside, json.dumps(dict(how)))

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def tried(self) -> int:
        """How many candidates were looked at."""
        return len(self._tried)

    def had(self, candidate: Candidate) -> bool:
        """Whether a candidate was tried before."""
        return candidate.key in self._tried or candidate.row.instance_id in self._rows

    def add(self, proof: Proof) -> None:
        """Keep what a candidate came to."""
        if proof.row is not None:
            self._add(self.path, proof.row.written())
            self._rows.add(proof.row.instance_id)
        told = {"key": proof.key, "why": proof.why, "unsteady": proof.unsteady}
        self._add(self.beside, json.dumps(told))
        self._tried.add(proof.key)
        self.unsteady += proof.unsteady
        if proof.why:
            self.left_out[proof.why] += 1

    def _add(self, path: Path, line: str) -> None:
        """Add a line; one that a kill cut short is ended first."""
        try:
            with path.open("a+b") as file:
                if file.tell() and file.seek(-1, 2) >= 0 and file.read(1) != b"\n":
                    file.truncate(_whole(path))
                file.write(line.encode("utf-8", "surrogatepass") + b"\n")
        except OSError as error:
            raise BadInput(f"{path} cannot be written: {error.strerror}", remedy="Name another file with -o.") from None


def _whole(path: Path) -> int:
    """Bytes up to the end of the last whole line."""
    return path.read_bytes().rfind(b"\n") + 1


def _lines(path: Path) -> list[Mapping[str, object]]:
    """What was tried, without a line that a kill cut short."""
    if not path.is_file():
        return []
    found = list[Mapping[str, object]]()
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            told = json.loads(line)
        except ValueError:
            continue
        if isinstance(told, dict):
            found.append(told)
    return found
