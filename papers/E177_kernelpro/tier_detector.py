"""The cells of tier detector: K1, labelled builds; K2, whether utilisation tells slow paths from fast ones."""

import re
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from clew.methods.kernels import counts
from clew.methods.kernels.rules import BY_NAME
from papers.E177_kernelpro.builds import BUILDS, PAIRS
from papers.experiment import Line, grid

DETECTOR = ("ScalarFallback", "Vectorization", "Uncoalesced")  # the tools that look at the path taken
BY = {build.name: build for build in BUILDS}
N, REPEATS, BLOCKS = 4096, 200, 9
MAIN = Path(__file__).with_name("timed.c").read_text()


def cells(quick: bool) -> Iterator[Line]:
    yield from grid(kind="build", name=BY, seed=0)
    yield from grid(kind="pair", name=[slow for slow, _ in PAIRS[:: 5 if quick else 1]], seed=0)


def cost(cell: Line) -> float:
    return 0.3 if cell["kind"] == "build" else 4.0


def run(setting: Line, seeds: Sequence[int]) -> list[Line]:
    """K1: the label and the rules that fire. K2: seconds and instructions of a call on both paths."""
    if setting["kind"] == "build":
        build = BY[setting["name"]]
        with tempfile.TemporaryDirectory() as folder:
            made = compiled(build.source, build.flags, Path(folder))
            metrics = counts.x86_metrics(made, "k")
        fired = [name for name, rule in BY_NAME.items() if rule(metrics, "cpu")]
        return [{"label": build.kind, "fired": fired, "metrics": {k: round(v, 3) for k, v in metrics.items() if v}}]
    slow = setting["name"]
    fast = dict(PAIRS)[slow]
    return [{"slow": measured(slow), "fast": measured(fast), "against": fast}]


def compiled(source: str, flags: str, folder: Path) -> Path:
    (folder / "k.c").write_text(source)
    subprocess.run(["gcc", "-g", *flags.split(), "-c", "k.c", "-o", "k.o"], cwd=folder, check=True, timeout=60)
    return folder / "k.o"


def measured(name: str) -> Line:
    """Median CPU seconds of a call, and instructions of a call by cachegrind."""
    build = BY[name]
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        compiled(build.source, build.flags, folder)
        (folder / "main.c").write_text(MAIN)
        subprocess.run(["gcc", "-O1", "main.c", "k.o", "-o", "main", "-lm"], cwd=folder, check=True, timeout=60)
        times = sorted(
            float(subprocess.run(["./main", str(N), str(REPEATS)], cwd=folder, capture_output=True, text=True).stdout)
            for _ in range(BLOCKS)
        )
        counts = []
        for repeats in (1, 11):
            command = ["valgrind", "--tool=cachegrind", "--cache-sim=no",
                       "--cachegrind-out-file=/dev/null", "./main", str(N), str(repeats)]  # fmt: skip
            said = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120).stderr
            found = re.search(r"I\s+refs:\s+([\d,]+)", said)
            counts.append(int(found[1].replace(",", "")) if found else 0)
    return {"seconds": times[len(times) // 2], "instructions": (counts[1] - counts[0]) / 10}
