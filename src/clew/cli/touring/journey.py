"""What a stop of `clew tour` does: it types lines of the command line, and says what they found.

A stop is a function of a ``Walk``. Each line runs as a process of its own, exactly as it is printed, and what it
printed is kept, so that a tour that was stopped goes on at the line at which it was. A stop must never reach into the
store by itself, nor show more than its lines printed: what it shows, its reader can type.
"""

from __future__ import annotations

import inspect
import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from clew.cli.shared import common
from clew.core.errors import ClewError
from clew.core.keys import value_digest
from clew.core.records import Report
from clew.exchange.files import replacing

INTERRUPTED = 130  # exit code
TAIL = 12  # lines of a failed line's errors that are shown


class Failed(ClewError):
    """A line of a stop failed; the text says which, and the remedy what it printed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a stop says of this store.

    Args:
        figure: its one figure, with n and interval.
        control: the same where the effect must vanish, or what it is held against; None where the figure has its own.
        means: one sentence of what the figure means.
        place: where the viewer shows it, as ``clew view --page`` takes it.
        unit: ``%`` where the figure is a share that is shown in percent.
    """

    figure: Report
    means: str
    place: str
    control: Report | None = None
    unit: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """One stop: a method, the question that it answers, and the function that asks it.

    Args:
        name: as ``--only`` takes it.
        paper: its id here, as ``clew reproduce`` takes it; ``arxiv``: its source.
        asks: the question of somebody who needs it; ``does``: one sentence of what the method does.
        after: stops whose work it builds on.
        needs: programs without which it cannot be walked.
    """

    name: str
    paper: str
    arxiv: str
    method: str
    asks: str
    does: str
    walk: Callable[[Walk], Found]
    after: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()

    def lacking(self) -> str:
        """The first program that it needs and that is not installed; empty where all are."""
        return next((program for program in self.needs if shutil.which(program) is None), "")


@dataclass(frozen=True, slots=True)
class Line:
    """A line that was typed, and what it took in seconds of wall and process time."""

    typed: str
    seconds: float
    cpu: float


@dataclass(slots=True)
class Walk:
    """A stop that is being walked.

    Args:
        folder: of the tour; its store and all files that it makes lie there.
        name: of the stop.
        quick: everything is made as small as still runs.
    """

    folder: Path
    name: str
    quick: bool
    lines: list[Line] = field(default_factory=list)

    def few(self, whole: int, quick: int) -> int:
        """A size: of the whole tour, or of the quick one."""
        return quick if self.quick else whole

    def path(self, name: str) -> str:
        """A file or folder of the tour, as lines name it: quoted where a shell needs that."""
        return shlex.quote(str(self.folder / name))

    def type(self, line: str, *, codes: tuple[int, ...] = (0,)) -> dict[str, Any]:
        """Type a line of `clew` and give the object that it printed as JSON.

        Args:
            codes: exit codes that are no failure.

        Raises:
            Failed: the line ended otherwise, or printed no object.
        """
        found = self._printed(line, codes)
        if not isinstance(found, dict):
            raise Failed(f"`clew {line}` printed no object", remedy=str(found)[:200])
        return found

    def rows(self, line: str, *, codes: tuple[int, ...] = (0,)) -> list[dict[str, Any]]:
        """As ``type``, of a line that prints a list of objects; it has one at least.

        Raises:
            Failed: the line failed, or printed no list, or an empty one.
        """
        found = self._printed(line, codes)
        if not isinstance(found, list) or not found:
            raise Failed(f"`clew {line}` found nothing", remedy=str(found)[:200])
        return found

    def _printed(self, line: str, codes: tuple[int, ...]) -> object:
        typed = f"clew {line} --json"
        said = self._kept(typed, [sys.executable, "-m", "clew.cli", *shlex.split(typed)[1:]], codes)
        try:
            return json.loads(said)
        except ValueError as error:
            raise Failed(f"`{typed}` printed no JSON: {error}", remedy=said[:200]) from error

    def shell(self, line: str) -> None:
        """Type a line of another program.

        Raises:
            Failed: the line ended with another exit code than 0.
        """
        self._kept(line, shlex.split(line), (0,))

    def _kept(self, typed: str, words: list[str], codes: tuple[int, ...]) -> str:
        """What a line prints; one that was typed before at this place of the stop is not typed again."""
        kept = self.folder / "lines" / self.name / f"{len(self.lines) + 1:02d}.json"
        known = read(kept)
        if known is None or known["typed"] != typed:
            common.say(f"  $ {typed}")
            known = {"typed": typed, **self._run(typed, words, codes)}
            write(kept, known)
        self.lines.append(Line(typed, known["seconds"], known["cpu"]))
        return str(known["printed"])

    def _run(self, typed: str, words: list[str], codes: tuple[int, ...]) -> dict[str, Any]:
        """Run a line as a process with the tour's store as its store; a screen shows its progress."""
        began, before = time.perf_counter(), os.times()
        seen = None if sys.stderr.isatty() else subprocess.PIPE
        environment = {**os.environ, "CLEW_STORE": str(self.folder / "store.db")}
        null, pipe = subprocess.DEVNULL, subprocess.PIPE
        done = subprocess.run(words, stdin=null, stdout=pipe, stderr=seen, env=environment, check=False)
        after = os.times()
        if done.returncode == INTERRUPTED:
            raise KeyboardInterrupt
        if done.returncode not in codes:
            said = (done.stderr or b"").decode("utf-8", "replace").splitlines()[-TAIL:]
            raise Failed(f"`{typed}` ended with exit code {done.returncode}", remedy="\n".join(said))
        cpu = after.children_user + after.children_system - before.children_user - before.children_system
        printed = done.stdout.decode("utf-8", "replace")
        return {"seconds": time.perf_counter() - began, "cpu": cpu, "printed": printed}

    def unpack(self, *names: str) -> None:
        """Put bundled files, or folders of them, into the folder of the tour; what is there already stays."""
        for name in names:
            _unpack(files("clew.cli.touring") / "materials", name, self.folder / name)


def _unpack(materials: Traversable, name: str, target: Path) -> None:
    source = materials / name
    if source.is_dir():
        for inner in source.iterdir():
            plain = inner.name.removesuffix(".txt")
            _unpack(source, plain, target / plain)
    elif not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text((materials / f"{name}.txt").read_text())


def figure(claim: str, estimate: float, low: float, high: float, n: int, design: str) -> Report:
    """A figure as a Report."""
    return Report(claim=claim, estimate=estimate, low=low, high=high, n=n, design=design)


def report(of: Mapping[str, Any], claim: str, design: str = "") -> Report:
    """A figure from what a line printed: ``estimate``, ``low``, ``high``, ``n`` and perhaps ``design``."""
    return figure(claim, of["estimate"], of["low"], of["high"], of["n"], design or of.get("design", ""))


def walked(folder: Path, stop: Stop, quick: bool) -> dict[str, Any] | None:
    """What a stop said, where it was walked before, at this size and by the same code."""
    kept = read(folder / "stops" / f"{stop.name}.json")
    return kept if kept is not None and (kept.get("code"), kept["quick"]) == (_code(stop), quick) else None


def _code(stop: Stop) -> str:
    """A digest of the module that walks a stop; where it changed, lines that stayed the same are not typed again."""
    return value_digest(inspect.getsource(inspect.getmodule(stop.walk) or stop.walk)).hex()[:12]


def take(folder: Path, stop: Stop, quick: bool) -> dict[str, Any]:
    """Walk a stop and keep what it said.

    Raises:
        Failed: one of its lines failed.
    """
    walk = Walk(folder, stop.name, quick)
    found = stop.walk(walk)
    said = {
        "code": _code(stop),
        "stop": stop.name,
        "paper": stop.paper,
        "arxiv": stop.arxiv,
        "method": stop.method,
        "asks": stop.asks,
        "does": stop.does,
        "quick": quick,
        "seconds": sum(line.seconds for line in walk.lines),
        "cpu": sum(line.cpu for line in walk.lines),
        "lines": [asdict(line) for line in walk.lines],
        **asdict(found),
    }
    write(folder / "stops" / f"{stop.name}.json", said)
    return said


def read(path: Path) -> dict[str, Any] | None:
    """A kept answer; None where there is none, or where it was cut off while it was written."""
    try:
        kept = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return kept if isinstance(kept, dict) else None


def write(path: Path, value: Mapping[str, Any]) -> None:
    """Keep an answer, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as beside:
        beside.write_text(json.dumps(value, indent=1))


def figure_text(of: Mapping[str, Any], unit: str) -> str:
    """A figure in words: estimate, 95 % interval and n."""
    estimate, low, high = of["estimate"], of["low"], of["high"]
    if unit == "%":
        return f"{estimate:.0%} [{low:.0%}, {high:.0%}] n={of['n']}"
    digits = 2 if max(abs(estimate), abs(low), abs(high)) > 0.03 else 4
    return f"{estimate:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}] n={of['n']}"
