"""The cells of tier search: every build of each kernel, measured once (K3, K4; the searches run over these tables)."""

import asyncio
import random
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from clew.methods.kernels.catalogue import CATALOGUE
from clew.methods.kernels.cpu import Cpu, Speed
from clew.methods.kernels.kernel import Candidate, Kernel, Space
from clew.methods.kernels.rules import RULES, advice, diagnose
from clew.methods.kernels.runs import Direct
from clew.methods.kernels.search import SEARCHES, Catalogue, Outcome, Strongest, Tries, guided
from papers.E177_kernelpro.held import FRESH, HELDOUT
from papers.experiment import Line

SETS: dict[str, dict[str, Kernel]] = {"looked at": CATALOGUE, "held out": HELDOUT, "fresh": FRESH}
QUICK = (("looked at", "stencil"), ("held out", next(iter(HELDOUT), "")))
FLAGS = ("opt", "isa", "math", "simd")  # what changes, beside the macros of each source
SECONDS = 1.0  # of one build, check and timing


def cells(quick: bool) -> Iterator[Line]:
    """One a kernel; ``quick``: two kernels."""
    for kind, kernels in SETS.items():
        for name in kernels:
            if not quick or (kind, name) in QUICK:
                yield {"kind": kind, "name": name, "seed": 0}


def cost(cell: Line) -> float:
    return SECONDS * Space(SETS[cell["kind"]][cell["name"]], FLAGS).size


def run(setting: Line, seeds: Sequence[int]) -> list[Line]:
    """Of every build: speed over the plain one with its interval, and the moves the rules advise; 0 where it failed."""
    kernel, rows = SETS[setting["kind"]][setting["name"]], []
    with tempfile.TemporaryDirectory() as folder:
        cpu = Cpu(kernel, Direct(Path(folder)), Space(kernel, FLAGS))
        for candidate in cpu.space.all():
            built = cpu.build(candidate)
            found = (built.path and cpu.check(built)) or (built.path and cpu.time(cpu.plain, built)) or None
            row: Line = {"choice": [i for _, i in candidate.choice], "speed": 0.0}
            if isinstance(found, Speed):
                metrics = cpu.metrics(built, found.b)
                bound, agreed = cpu.bound(metrics)
                row |= {"speed": round(found.ratio, 4), "low": round(found.low, 4), "high": round(found.high, 4)}
                row |= {"seconds": found.b, "bound": bound, "agreed": agreed}
                row["advice"] = list(advice(diagnose(metrics, "cpu", bound)))
            else:
                row["why"] = (found.why if found else built.why)[:120]
            rows.append(row)
    return [{"options": list(cpu.space.values), "rows": rows}]


# ---- searches over a table ------------------------------------------------------------------------------------------

MOVES = sorted({move for rule in RULES for move in rule.moves})


CODERS: dict[str, Any] = {
    "guided": Catalogue,
    "shuffled": Catalogue,
    "one by one": partial(Catalogue, together=0),
    "everything": Strongest,  # the control of advice followed at once
}


def searched(line: Mapping[str, Any], arm: str, seed: int, budget: int = 0) -> list[float]:
    """Speeds along one search over a kernel's table, best so far after each try; ``shuffled``: guided by advice whose
    moves have changed places. The whole table may be tried where no budget is given."""
    space = Space(SETS[line["kind"]][line["name"]], FLAGS)
    rng = random.Random(f"{line['name']} {arm} {seed}")
    swapped = dict(zip(MOVES, rng.sample(MOVES, len(MOVES)), strict=True)) if arm == "shuffled" else {}
    known = {tuple(row["choice"]): row for row in line["rows"]}

    async def evaluate(candidate: Candidate) -> Outcome:
        row = known[tuple(i for _, i in candidate.choice)]
        told = tuple(swapped.get(move, move) for move in row.get("advice", ()))
        return Outcome(row["speed"], told, row.get("why", ""))

    async def go() -> Tries:
        tries = Tries(evaluate, budget or space.size - 1)
        begin = await evaluate(space.start())
        if arm in CODERS:
            await guided(tries, space, rng, begin, CODERS[arm](space, rng))
        else:
            how: dict[str, Any] = {"stale": None} if arm == "mcts" else {}
            await SEARCHES[arm](tries, space, rng, begin, **how)  # type: ignore[operator]
        return tries

    best, out = 1.0, []
    for _, outcome in asyncio.run(go()).done:
        best = max(best, outcome.speed)
        out.append(best)
    return out
