"""Spans that arrive bit by bit, kept on disk by trace until the trace is whole, then imported as a run.

The receiver (``receiver.py``) calls it. A request is answered only when its spans are on disk, so that nothing is lost
where the process ends; what lies in the folder is taken up by the next one. Nothing here knows HTTP.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from clew.core.errors import BadInput, BadRecord
from clew.exchange import files, import_file
from clew.exchange.telemetry.file import BYTES
from clew.exchange.telemetry.from_spans import kept
from clew.exchange.telemetry.span import Span, document, spans_of
from clew.store import Keeper

QUIET = 10.0  # seconds without a span after which a trace whose root has come is whole; exporters send every 5 s
SILENT = 300.0  # seconds after which any trace is
TRACES = 10_000  # that are open at once
FILES = "*.otlp.jsonl"  # one for each trace


class Arrived(NamedTuple):
    """What became of a trace: its run, or why there is none and where its spans lie."""

    trace: str
    run: str = ""
    why: str = ""
    file: Path | None = None


@dataclass(slots=True)
class _Open:
    """A trace that is not imported yet: when its last span came, and whether one without a parent did."""

    last: float = 0.0
    rooted: bool = False


@dataclass
class Inbox:
    """The folder of open traces beside a store.

    Args:
        store: where runs are recorded.
        folder: where spans wait, a file for each trace; it is made where it is not there.
        quiet: seconds without a span after which a trace whose root span has come is imported.
        clock: seconds.
    """

    store: Keeper
    folder: Path
    quiet: float = QUIET
    clock: Callable[[], float] = time.monotonic
    _open: dict[str, _Open] = field(default_factory=dict)
    _done: set[str] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BadInput(f"{self.folder} cannot be made: {error.strerror}", remedy="Name another --store.") from None
        left = (path.name.partition(".")[0] for path in self.folder.glob(FILES) if _named(path))
        self._open = {trace: _Open(self.clock()) for trace in left}

    def __len__(self) -> int:
        """Traces that are not imported yet."""
        return len(self._open)

    def take(self, data: object) -> int:
        """Keep the spans of one request of OTLP, as JSON values; gives how many belong to agents and models.

        Raises:
            ValueError: it is no such request. BadInput: too much waits, or the disk takes nothing.
        """
        found = list(spans_of(data))
        roots = {span.trace for span in found if not span.parent}
        mine: dict[str, list[Span]] = {}
        for span in filter(None, map(kept, found)):
            mine.setdefault(span.trace, []).append(span)
        with self._lock:
            for trace, spans in mine.items():
                self._add(trace, files.dumps(document(spans)) + b"\n")
                if trace not in self._done:
                    self._open.setdefault(trace, _Open())
            for trace in {span.trace for span in found} & self._open.keys():
                self._open[trace].last = self.clock()
                self._open[trace].rooted |= trace in roots
        return sum(map(len, mine.values()))

    def _add(self, trace: str, line: bytes) -> None:
        path = self.folder / ("late" if trace in self._done else ".") / f"{trace}.otlp.jsonl"
        if trace not in self._open and len(self._open) >= TRACES:
            raise BadInput(f"{TRACES:,} traces wait already", remedy="Wait, or send fewer at once.")
        if path.exists() and path.stat().st_size + len(line) > BYTES:
            raise BadInput(f"trace {trace} has over {BYTES >> 20} MiB of spans", remedy=files.SHORTER)
        try:
            path.parent.mkdir(exist_ok=True)
            with path.open("ab") as file:
                file.write(line)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise BadInput(f"{path} cannot be written: {error.strerror}", remedy="Make room on the disk.") from None

    def imported(self, everything: bool = False) -> list[Arrived]:
        """Import each trace that is whole (all of them with ``everything``), and say what became of it."""
        now = self.clock()
        with self._lock:
            whole = [
                trace
                for trace, state in self._open.items()
                if everything or now - state.last >= (self.quiet if state.rooted else SILENT)
            ]
            return [found for trace in whole if (found := self._import(trace)) is not None]

    def _import(self, trace: str) -> Arrived | None:
        path = self.folder / f"{trace}.otlp.jsonl"
        refused: list[BadRecord] = []
        try:
            (run,) = import_file(self.store, path, "otel", skip_bad=True, on_bad=refused.append, name="otel")
        except BadRecord:
            self._forget(trace)
            if not refused:
                path.unlink()  # no model replied in it
                return None
            aside = self.folder / "refused" / path.name
            aside.parent.mkdir(exist_ok=True)
            path.replace(aside)
            return Arrived(trace, why=str(refused[-1]), file=aside)
        self._forget(trace)
        path.unlink()
        return Arrived(trace, run)

    def _forget(self, trace: str) -> None:
        del self._open[trace]
        self._done.add(trace)

    def late(self) -> list[Path]:
        """Files of spans that came when their trace had been imported."""
        return sorted((self.folder / "late").glob(FILES))


def _named(path: Path) -> bool:
    name = path.name.partition(".")[0]
    return len(name) == 32 and all(digit in "0123456789abcdef" for digit in name)
