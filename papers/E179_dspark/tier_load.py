"""The cells of tier load: a server under load with drawn requests, mark T8 of specs/E179 (section 9.3)."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from clew.models.engine.speculation.costs import Costs
from clew.models.engine.speculation.lengths import Algorithm1, Fixed, Scheduler, Threshold
from papers.E179_dspark.simulate import Traffic, closed, poisson
from papers.E179_dspark.tables import table
from papers.E179_dspark.toy import Anticipating
from papers.experiment import Line, each, grid

ROUNDS = 300


class Always(Scheduler):
    """The scheduler without its gate: it drafts in every round."""

    def draft(self, rows: Any) -> bool:
        super().draft(rows)
        return True


def free(costs: Costs) -> Costs:
    """The same costs as the paper's rule sees them: drafting is not counted."""
    return replace(costs, draft=(0.0,) * len(costs.rows))


POLICIES: dict[str, Callable[[Costs], Any]] = {
    "none": lambda costs: Fixed(0),
    "fixed 1": lambda costs: Fixed(1),
    "fixed 2": lambda costs: Fixed(2),
    "fixed 3": lambda costs: Fixed(3),
    "fixed 5": lambda costs: Fixed(5),
    "fixed 7": lambda costs: Fixed(7),
    "threshold .7": lambda costs: Threshold(0.7),
    "Algorithm 1": Algorithm1,
    "paper's rule": lambda costs: Always(free(costs)),
    "no gate": Always,
    "scheduler": Scheduler,
    "anticipating": Anticipating,
}
FIXED = [name for name in POLICIES if name.startswith("fixed")]
USERS = {"jagged": (4, 16, 32, 64, 128, 256, 512), "smooth": (4, 16, 32, 64, 128, 256, 512)}
USERS |= {"measured": (1, 4, 8, 16, 32, 64, 128, 256), "knee": (4, 16, 32, 64, 128, 256), "flat": (4, 64, 256)}
ARMS = {"knee": ["none", *FIXED, "threshold .7", "paper's rule", "no gate", "scheduler"]}
ARMS |= {"flat": ["none", "fixed 7", "scheduler"]}
SCALES = ((1.0, 0.0), (0.4, 0.0), (2.5, 0.0), (1.0, 2.0), (1.0, 4.0))
RATES = (5, 20)  # requests per second, 200 tokens each
OPEN = ("none", "fixed 1", "fixed 7", "scheduler")
PROMISED = 50.0  # tokens per second


def cells(quick: bool) -> Iterator[Line]:
    """``quick``: two seeds, the jagged and the measured table."""
    seeds = range(2 if quick else 8)
    for name, users in USERS.items():
        if not quick or name in ("jagged", "measured"):
            yield from grid(kind="closed", table=name, policy=ARMS.get(name, POLICIES), r=users, seed=seeds)
    for scale, noise in SCALES:
        yield from grid(kind="confidence", policy="scheduler", r=128, m=scale, noise=noise, seed=seeds)
    yield from grid(kind="blind", policy=[*FIXED, "scheduler"], r=(16, 64), seed=seeds)
    yield from grid(kind="open", policy=OPEN, r=RATES, seed=seeds[:3])


def cost(cell: Line) -> float:
    return 2.0 if cell["kind"] == "open" else 0.06 + 0.0012 * cell["r"] * (0.5 + ("s" in cell["policy"][:1]))


def _served(setting: Line, seed: int) -> Line:
    """Throughput, speeds and sizes."""
    costs, at = table(setting.get("table", "jagged")), setting["r"]
    traffic = Traffic(scale=setting.get("m", 1.0), noise=setting.get("noise", 0.0), blind=setting["kind"] == "blind")
    lengths = POLICIES[setting["policy"]](costs)
    if setting["kind"] == "open":
        found = poisson(costs, traffic, lengths, at, seed, requests=400, promised=PROMISED)
    else:
        found = closed(costs, traffic, lengths, at, seed, rounds=ROUNDS)
    return {k: round(v, 5) for k, v in found._asdict().items() if k not in ("policy", "at", "seed")}


run = each(_served)
