"""The cells of tier toy: exact laws of what is emitted under each policy of lengths, mark T1 of specs/E179."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from clew.models.engine.speculation.lengths import Algorithm1, Fixed, Scheduler, Threshold
from papers.E179_dspark import toy
from papers.experiment import Line, grid

COSTS = toy.table(toy.JAGGED, 3)
POLICIES: dict[str, Callable[[int], Any]] = {
    "none": lambda seed: Fixed(0),
    "fixed 1": lambda seed: Fixed(1),
    "whole block": lambda seed: Fixed(3),
    "threshold .5": lambda seed: Threshold(0.5),
    "Algorithm 1": lambda seed: Algorithm1(COSTS),
    "scheduler": lambda seed: toy.used(Scheduler(COSTS), 3, seed),
    "scheduler, one round back": lambda seed: toy.used(Scheduler(COSTS, lag=1), 3, seed),
    "anticipating": lambda seed: toy.Anticipating(COSTS),
    "own probability": lambda seed: Threshold(0.3),
}
BIASED = ("anticipating", "own probability")
cost = 0.5


def cells(quick: bool) -> Iterator[Line]:
    """A seed is a game. ``quick``: fewer games."""
    yield {"kind": "paper", "seed": 0}
    yield from grid(kind="game", policy=POLICIES, seed=range(4 if quick else 20))
    back = [f"scheduler, {lag} back" for lag in (1, 2)]
    yield from grid(kind="three rounds", policy=back, seed=range(2 if quick else 10))


def run(setting: Line, seeds: Sequence[int]) -> list[Line]:
    """Total variation distances to the target's law; for the paper's counter-example the chance of its token A."""
    if setting["kind"] == "paper":
        costs, game = toy.table((1.0, 0.5, 0.45), 2), toy.paper_game()
        kinds = {"scheduler": Scheduler, "anticipating": toy.Anticipating, "Algorithm 1": Algorithm1}
        return [{n: float(toy.emitted_law(game, k(costs), 1, requests=1)[0]) for n, k in kinds.items()} for _ in seeds]
    if setting["kind"] == "three rounds":
        costs, lag = toy.table(toy.JAGGED[:6], 2), int(setting["policy"].split()[1])
        its = [Scheduler(costs, lag=lag, probe=1) for _ in seeds]
        return [
            {"tv": toy.bias(toy.random_game(s, 2, 2), it, tokens=4, rounds=3)} for s, it in zip(seeds, its, strict=True)
        ]
    out = []
    for seed in seeds:
        name, game = setting["policy"], toy.random_game(seed)
        game = toy.own_chance(game) if name == "own probability" else game
        out.append({"tv": toy.bias(game, POLICIES[name](seed), fresh="scheduler" not in name)})
    return out
