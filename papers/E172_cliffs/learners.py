"""A small transformer on `sums`, what finding its cliffs costs, and three ways of learning from its rollouts."""

import copy
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np

from clew.core.keys import derive
from clew.core.records import LossRow
from clew.credit import grpo
from clew.fit.trainer import Trainer
from clew.harness import Runner
from clew.harness.fork.continuations import Continuations
from clew.methods.cliffs import Counts
from clew.methods.cliffs.detect import Found, Search, detect, survey
from clew.methods.cliffs.effect import Candidates, Pairs, pairs
from clew.models.local import Local
from clew.store import Groups, Run
from clew.train.losses import dpo
from clew.train.offline import Passes
from clew.train.pairs import outcome_pairs, pair_rows
from clew.train.rows import reference, rows
from clew.train.warmstart import Recipe, pretrain
from clew.worlds.sums import Sums

PLAYER = "clew.harness.agents:player"
WORLD, LOW, HIGH = "sums(high=6,low=4)", 4, 6
REPLY, TARGET, PANEL = 64, 0.55, 256
DRAWN, AGAIN = 16, 32  # continuations of a place, and of the fresh batch, where Cliff-DPO looks for its pairs
KINDS = ("uncertain", "sampled-off")  # those that Cliff-DPO learns from
GROUP, TASKS = 8, 8  # rollouts of a task, and tasks of an iteration, of the baselines
HELD, TIMES = 256, 4  # held-out tasks, and samples of each
# Learning rates and passes, chosen on a model of seed 100, which is no test seed (README.md says how).
RATES = {"cliff-dpo": 1e-4, "sequence dpo": 1e-5, "reinforce": 3e-4}
PASSES = 10


def tasks(split: str, n: int, *path: int | str) -> list[Any]:
    return Sums(LOW, HIGH).sample(n, derive(0, *path), split)


def runner(model: Local, temperature: float = 1.0) -> Runner:
    return Runner(
        PLAYER, Sums(LOW, HIGH), model, sampling={"max_tokens": REPLY, "temperature": temperature}, concurrency=512
    )


def collected(model: Local, split: str, n: int, each: int, *path: int | str, temperature: float = 1.0) -> Groups:
    return runner(model, temperature).collect(tasks(split, n, *path), each, derive(0, "sampling", *path))


@lru_cache(maxsize=8)
def base(seed: int) -> Local:
    """0.1M parameters that have seen correct scratchpads until about .55 of sampled answers are right."""
    recipe = Recipe(taskset=WORLD, noise=0.0, steps=400, target=0.0, batch=32, demonstrations=6000, seed=seed)
    for done, _, model in pretrain(recipe, steady=False):
        if done >= 100 and done % 10 == 0:
            groups = collected(model, "train", PANEL, 1, "panel", seed)
            share = groups.success().estimate
            groups[0].store.close()
            if share >= TARGET:
                break
    return model


def fresh(seed: int) -> Local:
    """A copy of the base model, to be trained."""
    model = base(seed)
    return Local(copy.deepcopy(model.module), renderer=model.renderer)


def accuracy(model: Local) -> dict[str, float]:
    """Held-out share of right answers, sampled (the same tasks and seeds for every model) and greedy."""
    out = {}
    for name, times, heat in (("sampled", TIMES, 1.0), ("greedy", 1, 0.0)):
        groups = collected(model, "eval", HELD, times, "held out", temperature=heat)
        out[name] = float(np.mean([r.reward or 0.0 for r in groups.runs]))
        groups[0].store.close()
    return out


@dataclass(frozen=True, slots=True)
class Searched:
    """A search for cliffs, and what it took: CPU-seconds and rollouts, solutions and continuations alike."""

    runs: list[Run]
    found: Found
    pairs: Pairs
    seconds: float
    rollouts: int


@lru_cache(maxsize=8)
def searched(seed: int, stems: int) -> Searched:
    """Wrong solutions among ``stems`` of the base model, their cliffs by the mended detector, pairs of both kinds."""
    model = base(seed)
    began = time.process_time()
    runs = [run for run in collected(model, "train", stems, 1, "stems", seed).runs if not run.reward]
    hands = Continuations(runner_of(runs, model), seed=seed)
    found = detect(survey(runs, lambda run: hands, Search(n=DRAWN, fresh=AGAIN)))
    made = pairs(found, Candidates(n=DRAWN, kinds=KINDS))
    made.file()
    spent = time.process_time() - began
    return Searched(runs, found, made, spent, stems + found.continuations + made.continuations)


def runner_of(runs: Sequence[Run], model: Local) -> Runner:
    return Runner.of(runs[0].store, runs[0], model=model, concurrency=512)  # type: ignore[arg-type]


@dataclass(slots=True)
class Budget:
    """CPU-seconds or rollouts that a learner may spend; training counts like sampling."""

    seconds: float = float("inf")
    rollouts: float = float("inf")
    began: float = 0.0
    used: int = 0

    def __post_init__(self) -> None:
        self.began = time.process_time()

    @property
    def spent(self) -> float:
        return time.process_time() - self.began

    @property
    def over(self) -> bool:
        return self.spent >= self.seconds or self.used >= self.rollouts


@dataclass(slots=True)
class Learnt:
    """A trained model, tokens that carried loss over all steps, and CPU-seconds of it all."""

    model: Local
    loss_tokens: int
    seconds: float
    rollouts: int
    steps: int
    extra: dict[str, float]


def cliff_dpo(seed: int, stems: int, eos: bool = False, rate: float | None = None, passes: int = PASSES) -> Learnt:
    """DPO on the single tokens of the search's pairs."""
    found, model = searched(seed, stems), fresh(seed)
    began = time.process_time()
    made = pair_rows(found.runs, eos=_end(model) if eos else None)
    reference(made, model)
    trainer = Trainer(model, rate or RATES["cliff-dpo"], {"cliff-dpo": partial(dpo, beta=0.1)}, steady=False)
    plan, trained = Passes(epochs=passes, seed=seed), 0
    before = ends(base(seed), found.runs)
    order = plan.steps(made)
    for step, chosen in enumerate(order):
        trained += trainer.step([made[i] for i in chosen], plan.rate(step, len(order))).trained
    spent = found.seconds + time.process_time() - began
    extra = {"end before": before, "end after": ends(model, found.runs), "pairs": float(len(found.pairs))}
    return Learnt(model, trained, spent, found.rollouts, len(order), extra)


def _end(model: Local) -> int:
    return min(model.renderer.stop)


def ends(model: Local, runs: Sequence[Run]) -> float:
    """Mean chance that the reply ends right after a chosen token."""
    made = [row for row in pair_rows(runs) if row.role == "chosen"]
    scores = model.score([[*row.ids.tolist(), _end(model)] for row in made])
    return float(np.mean([np.exp(s[-1]) for s in scores]))


def sequence_dpo(seed: int, budget: Budget, rate: float | None = None, passes: int = 1) -> Learnt:
    """DPO on whole replies, right against wrong ones of one task, both sampled by the base model.

    Up to half of a budget of time goes into rollouts, the rest into passes; of a budget of rollouts all, and then
    ``passes`` passes.
    """
    model, groups, made = fresh(seed), list[Any](), list[LossRow]()
    timed = budget.seconds < float("inf")
    while (budget.spent < budget.seconds / 2) and budget.used < budget.rollouts:
        count = int(min(4 * TASKS, max(1, (budget.rollouts - budget.used) // GROUP)))
        some = collected(model, "train", count, GROUP, "pairs", seed, len(groups))
        groups.append(some)
        budget.used += count * GROUP
        made += reference(outcome_pairs(some, "dpo"), model)
    trainer = Trainer(model, rate or RATES["sequence dpo"], {"dpo": partial(dpo, beta=0.1)}, steady=False)
    trained = steps = 0
    order = Passes(epochs=1000 if timed else passes, seed=seed).steps(made)
    for chosen in order:
        if budget.spent >= budget.seconds:
            break
        trained += trainer.step([made[i] for i in chosen]).trained
        steps += 1
    return Learnt(model, trained, budget.spent, budget.used, steps, {"pairs": len(made) / 2})


def reinforce(seed: int, budget: Budget, rate: float | None = None) -> Learnt:
    """Policy gradient on fresh rollouts, each reward against the mean of its task's others."""
    model, trained, steps = fresh(seed), 0, 0
    trainer = Trainer(model, rate or RATES["reinforce"], steady=False)
    while not budget.over:
        count = int(min(TASKS, max(1, (budget.rollouts - budget.used) // GROUP)))
        groups = collected(model, "train", count, GROUP, "reinforce", seed, steps)
        budget.used += count * GROUP
        if any(group.signal for group in groups):
            trained += trainer.step(rows(groups, grpo(groups, mode="mean", store=False))).trained
        groups[0].store.close()
        steps += 1
    return Learnt(model, trained, budget.spent, budget.used, steps, {})


@lru_cache(maxsize=8)
def taken(seed: int, stems: int) -> float:
    """CPU-seconds of Cliff-DPO, detection included: what the others may spend."""
    return cliff_dpo(seed, stems).seconds


def learn(arm: str, budget: str, seed: int, stems: int) -> Learnt:
    """A learner with its own cost, or with the CPU-seconds or the rollouts that Cliff-DPO took."""
    if budget == "own":
        return cliff_dpo(seed, stems, eos=arm.endswith("eos"))
    many = {"seconds": taken(seed, stems)} if budget == "cpu" else {"rollouts": searched(seed, stems).rollouts}
    return {"sequence dpo": sequence_dpo, "reinforce": reinforce}[arm](seed, Budget(**many))  # type: ignore[operator]


def injected(counts: Counts, where: np.ndarray, decided: bool) -> Counts:
    """The counts with all gradings of some places marked wrong, or, as they should be, undecided."""
    right, wrong, undecided = (x.copy() for x in counts)
    n = (right + wrong)[where]
    right[where] = 0
    wrong[where], undecided[where] = (n, undecided[where]) if decided else (0, undecided[where] + n)
    return Counts(right, wrong, undecided)
