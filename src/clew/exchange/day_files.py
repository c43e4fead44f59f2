"""A folder of Parquet files by day, for DuckDB, Polars and pandas: what `clew export --to` appends to.

    folder/day=2026-11-27/runs-x7k2….parquet

A row is a run that ended, with the columns of a list of runs and those of ``parquet``. A file is written once, whole,
and never again: a run that the folder holds stays as it was when it was exported, its reward too. What a killed export
left half-written has a name that begins with a dot: readers pass over it, and the next export removes it.
"""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import NamedTuple, get_type_hints

from clew.core.errors import BadInput, need
from clew.exchange import files, parquet
from clew.exchange.transcript import recall
from clew.store import Keeper, Summary, new_id

_OURS = [name for name in Summary._fields if name not in ("task", "model", "reward")]  # the others are in ``parquet``


class Appended(NamedTuple):
    """Runs that were written, that the folder held before, and that still go on and were left out."""

    written: int
    known: int
    open: int


def append(
    store: Keeper, runs: Sequence[str], folder: Path, *, progress: Callable[[int], None] | None = None
) -> Appended:
    """Write the runs that ended and that the folder does not hold, each into a new file of the day of its begin (UTC).

    Args:
        runs: ids. progress: called with the number of runs written so far.

    Raises:
        BadInput: the folder cannot be written, holds other Parquet files, or another process appends to it.
        MissingExtra: pyarrow is not installed.
    """
    need("pyarrow", "frames")
    with _alone(folder):
        for left in folder.glob("day=*/.runs-*.*.parquet"):  # of an export that was killed: nobody else writes now
            left.unlink()
        held, wanted = known_runs(folder), set(runs)
        rows = sorted((row for row in store.summaries() if row.run in wanted), key=lambda row: (row.created, row.run))
        fresh = [row for row in rows if row.stop and row.run not in held]
        written = 0
        for day, of_day in groupby(fresh, key=lambda row: datetime.fromtimestamp(row.created, UTC).date()):
            place = folder / f"day={day}"
            place.mkdir(exist_ok=True)
            for number in _write(store, place / f"runs-{new_id()}.parquet", of_day):
                if progress is not None:
                    progress(written + number)
            written += number
        open_ = sum(not row.stop for row in rows)
        return Appended(written, len(rows) - written - open_, open_)


def known_runs(folder: Path) -> set[str]:
    """Ids of the runs that a folder holds.

    Raises:
        BadInput: a Parquet file in it is none of ours.
    """
    pa, reader = need("pyarrow", "frames"), need("pyarrow.parquet", "frames")
    found: set[str] = set()
    for file in sorted(path for path in folder.glob("day=*/*.parquet") if not path.name.startswith(".")):
        try:
            found.update(reader.read_table(file, columns=["run"], partitioning=None)["run"].to_pylist())
        except (OSError, pa.ArrowException, KeyError, ValueError) as error:
            remedy = "Give a folder of its own, or move that file away."
            raise BadInput(f"{file} is no file that `clew export --to` wrote", remedy=remedy) from error
    return found


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Keep every other process from appending, so that no run is written twice."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / ".lock").open("a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                remedy = "Wait for it to end; the runs that it leaves are appended next time."
                raise BadInput(f"another process is appending to {folder}", remedy=remedy) from None
            yield
    except OSError as error:
        raise files.unusable(folder, error) from error


def _write(store: Keeper, path: Path, rows: Iterator[Summary]) -> Iterator[int]:
    """Write one file; gives the number of its runs so far, after each piece."""
    pa, writer_of = need("pyarrow", "frames"), need("pyarrow.parquet", "frames")
    kinds = {str: pa.large_string(), int: pa.int64(), float: pa.float64()}
    hints = get_type_hints(Summary)
    plain = [pa.field(name, kinds[hints[name]]) for name in _OURS]
    schema, count, piece = pa.schema([*plain, *parquet.schema(pa)]), 0, []
    with files.replacing(path) as beside, writer_of.ParquetWriter(beside, schema) as writer:
        for row in rows:
            shown = {name: parquet.clean(getattr(row, name)) for name in _OURS}
            piece.append(shown | parquet.row_of(recall(store.run(row.run))))
            if len(piece) == parquet.ROWS:
                writer.write_table(pa.Table.from_pylist(piece, schema))
                count += len(piece)
                piece.clear()
                yield count
        writer.write_table(pa.Table.from_pylist(piece, schema))
    yield count + len(piece)
