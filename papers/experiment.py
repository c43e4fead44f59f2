"""What the experiments of papers share: cells whose results are lines of a file, computed once, resumed, reported.

A cell is one setting at one seed; its result is one JSON line of FOLDER/TIER.jsonl. Lines that exist are not computed
again, so a killed run goes on where it stopped.

A paper is a folder whose ``__init__`` names its TIERS, in the order in which they are run, the SETTINGS that name a
cell, and what it NEEDS beyond the base install: extras by name, programs, data, each with the tiers that need it.
``Experiment.find`` takes the rest from its modules:

tier_NAME.py has ``cells(quick)``, the settings with their seeds; ``run(setting, seeds)``, the results in the order of
the seeds; ``cost``, the CPU-seconds of a cell for the forecast (a function of the cell, a number, or a number by kind);
and, where the seeds of one setting are not run side by side, ``portions(todo)``, settings with the seeds run at once.
report_NAME.py has ``report(lines)``, Markdown, and ``figure(lines)``, a figure of matplotlib or None.
"""

from __future__ import annotations

import argparse
import fcntl
import importlib
import importlib.util
import itertools
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from clew.core.errors import BadInput, ClewError
from clew.sandbox.sandbox import spent

Line = dict[str, Any]  # a cell, or a cell with its results
Run = Callable[[Line, Sequence[int]], list[Line]]
HERE = Path(__file__).resolve().parent


def load(path: Path) -> list[Line]:
    """The lines of a results file; a last line cut short by a kill is dropped, from the file too."""
    if not path.exists():
        return []
    whole, _, torn = path.read_text().rpartition("\n")
    if torn:
        path.write_text(whole + "\n" if whole else "")
    return [json.loads(line) for line in whole.splitlines()]


def append(path: Path, lines: list[Line]) -> None:
    with path.open("a") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)
        file.flush()
        os.fsync(file.fileno())


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """Hold a results file against a second process, whose lines would be lost or doubled.

    Raises:
        BadInput: another process is writing it.
    """
    with path.with_suffix(".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise BadInput(f"another process is writing {path}", remedy="Wait for it, or give another --out.") from None
        yield


def portions(todo: list[Line]) -> Iterator[tuple[Line, list[int]]]:
    """Settings with all their seeds, for tiers that run the seeds of one setting side by side."""
    found: dict[str, tuple[Line, list[int]]] = {}
    for cell in todo:
        setting = {k: v for k, v in cell.items() if k != "seed"}
        found.setdefault(json.dumps(setting), (setting, []))[1].append(cell["seed"])
    yield from found.values()


def apart(todo: list[Line]) -> Iterator[tuple[Line, list[int]]]:
    """One cell at a time, in the order given: each takes long enough to be kept as soon as it is known."""
    for cell in todo:
        yield {k: v for k, v in cell.items() if k != "seed"}, [cell["seed"]]


def grid(**fields: Any) -> Iterator[Line]:
    """Every combination of the fields' values, the last field fastest; a value that is no list stands for itself."""
    many = [v if isinstance(v, Iterable) and not isinstance(v, str) else (v,) for v in fields.values()]
    return (dict(zip(fields, values, strict=True)) for values in itertools.product(*many))


def each(one: Callable[[Line, int], Line]) -> Run:
    """A tier's ``run`` from what computes one setting at one seed."""
    return lambda setting, seeds: [one(setting, seed) for seed in seeds]


def by_kind(work: Mapping[str, Callable[[Line, int], Line]], field: str = "kind") -> Run:
    """A tier's ``run`` from what computes one setting at one seed, by the kind of the cell."""
    return each(lambda setting, seed: work[setting[field]](setting, seed))


def seconds(tier: Any, cell: Line) -> float:
    """The forecast of a cell, in CPU-seconds."""
    cost = tier.cost
    return float(cost(cell) if callable(cost) else cost[cell["kind"]] if isinstance(cost, Mapping) else cost)


def cpu_seconds() -> float:
    """CPU-seconds of this process, of the children it has waited for, and of what it ran in the sandbox."""
    return sum(os.times()[:4]) + spent()


@dataclass(frozen=True, slots=True)
class Experiment:
    """A paper's experiment.

    name: as in ``clew reproduce NAME``. here: its folder. settings: the fields that name a cell, results apart; the
    first few that a cell has are shown while it runs. tiers, reports: modules by the tier's name. options: adds the
    paper's own options to the command line.
    """

    name: str
    here: Path
    settings: tuple[str, ...]
    tiers: Mapping[str, Any]
    reports: Mapping[str, Any]
    options: Callable[[argparse.ArgumentParser], object] = lambda parser: None

    @classmethod
    def find(cls, name: str) -> Experiment:
        """The experiment of a paper, by its number or its folder's name.

        Raises:
            BadInput: there is no such paper.
        """
        known = [path.parent for path in sorted(HERE.glob("E*/__init__.py"))]
        here = next((p for p in known if name.lower() in (p.name.lower(), p.name.split("_")[0].lower())), None)
        if here is None:
            raise BadInput(f"no paper is called {name!r}", remedy=f"Known: {', '.join(p.name for p in known)}.")
        package = f"papers.{here.name}"
        paper = importlib.import_module(package)
        tiers, reports = (
            {tier: importlib.import_module(f"{package}.{part}_{tier.lower()}") for tier in paper.TIERS}
            for part in ("tier", "report")
        )
        more = getattr(paper, "options", cls.__dataclass_fields__["options"].default)
        return cls(here.name.split("_")[0], here, paper.SETTINGS, tiers, reports, more)

    def key(self, cell: Line) -> str:
        """What names a cell: its settings and seed, without its results."""
        return json.dumps({k: cell[k] for k in (*self.settings, "seed") if k in cell}, sort_keys=True)

    def compute(self, name: str, quick: bool, out: Path, console: Console) -> list[Line]:
        """Every cell of a tier, those that were missing computed and appended.

        A tier names fewer cells where data, frameworks or compilers are absent. What is committed of the others counts
        all the same: a report in the paper's own folder never tells of less than its file of results holds.
        """
        tier, path = self.tiers[name], out / f"{name}.jsonl"
        cells, have = list(tier.cells(quick)), {self.key(line) for line in load(path)}
        todo = [cell for cell in cells if self.key(cell) not in have]
        forecast = f"{len(todo)} to compute, about {sum(seconds(tier, cell) for cell in todo) / 60:.1f} CPU-minutes"
        console.print(f"tier {name}: {len(cells)} cells, {forecast} -> {path}")
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=console) as bar:
            task = bar.add_task(f"tier {name}", total=max(len(todo), 1), completed=int(not todo))
            for setting, seeds in getattr(tier, "portions", portions)(todo):
                shown = [str(setting[k]) for k in self.settings if k in setting][:3]
                bar.update(task, description=" ".join(shown))
                start = cpu_seconds()
                results = tier.run(setting, seeds)
                each = round((cpu_seconds() - start) / len(seeds), 3)
                append(path, [{**setting, "seed": s, **r, "cpu_s": each} for s, r in zip(seeds, results, strict=True)])
                bar.advance(task, len(seeds))
        wanted, lines = {self.key(cell) for cell in cells}, load(path)
        known = [line for line in lines if self.key(line) in wanted]
        if out.resolve() != (self.here / "results").resolve() or len(known) == len(lines):
            return known
        console.print(
            f"{len(lines) - len(known)} of {len(lines)} lines stand as committed: not to be made on this machine"
        )
        return lines

    def main(
        self,
        quick: bool = False,
        tier: str | None = None,
        out: Path | str | None = None,
        console: Console | None = None,
    ) -> int:
        """Compute what is missing and report. Returns 0: a pass mark that is not met is a result, not an error.

        Args:
            quick: a smaller version, in minutes; its results go to a folder of their own.
            tier: one tier only.
            out: folder of the results; default ``results`` beside the experiment, for ``quick`` ``.clew/NAME-quick``
                in the present folder.
        """
        console = console or Console()
        folder = Path(out) if out else Path(".clew") / f"{self.name}-quick" if quick else self.here / "results"
        chosen = [tier] if tier else list(self.tiers)
        for name in chosen:
            if name not in self.tiers:
                console.print(f"no tier is called {name!r}; known: {', '.join(self.tiers)}")
                return 2
        folder.mkdir(parents=True, exist_ok=True)
        for name in chosen:
            with alone(folder / f"{name}.jsonl"):
                lines = self.compute(name, quick, folder, console)
            self.write(name, lines, folder, console)
        return 0

    def write(self, name: str, lines: list[Line], folder: Path, console: Console) -> None:
        """Print and keep a tier's report, and its figure where matplotlib is installed."""
        text = self.reports[name].report(lines)
        (folder / f"summary_{name}.md").write_text(text)
        console.print(text, markup=False, highlight=False, soft_wrap=True)
        path = folder / f"figure_{name}.svg"
        console.print(f"figure: {path}" if self.draw(name, lines, path) else "no figure: pip install 'clew[plot]'")

    def draw(self, name: str, lines: list[Line], path: Path) -> bool:
        """Keep a tier's figure; whether matplotlib is installed."""
        if not importlib.util.find_spec("matplotlib"):
            return False
        from papers.drawing import keep

        if figure := self.reports[name].figure(lines):
            keep(figure, path, self.name)
        return True

    def parse(self, argv: list[str] | None = None) -> int:
        """The command line of an experiment."""
        parser = argparse.ArgumentParser(prog=self.name)
        parser.add_argument("--quick", action="store_true", help="a small version that ends in minutes")
        parser.add_argument("--tier", choices=list(self.tiers), help="one tier only")
        parser.add_argument("--out", type=Path, help="folder of the results")
        self.options(parser)
        asked = parser.parse_args(argv)
        try:
            return self.main(asked.quick, asked.tier, asked.out)
        except ClewError as error:
            print(error, file=sys.stderr)
            return 2
