"""The models of tier ``clerk``: stage R, supervised on imperfect demonstrations, and stage T, GRPO from there.

Weights are kept under ``.clew/models/E173`` of the checkout, named by a digest of how they were made; a stopped
training goes on from its last checkpoint.
"""

import shutil
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from clew import credit
from clew.core.keys import derive, value_digest
from clew.fit import checkpoint
from clew.fit.adapters import quiet
from clew.fit.trainer import Trainer
from clew.harness import Runner
from clew.models.local import Local, small
from clew.train.loop import Plan, Training
from clew.train.warmstart import Recipe, pretrain
from clew.worlds.clerk import Clerk

HOME = Path(__file__).resolve().parents[2] / ".clew" / "models" / "E173"
PLAYER, SAMPLING = "clew.harness.agents:player", {"max_tokens": 16, "temperature": 1.0}
RARE = 0.1  # share of training tasks in the rare syntax, so that it is known
SLIPS = {"random": 0.3, "habit": 0.7}  # demonstrations with so many slips succeed in 52 % and 44 % of tasks
LR = 7e-4


class Size(NamedTuple):
    """Steps of stage R, checkpoints of stage T, tasks of a grading, of attribution, steps labelled for the PRM."""

    steps: int
    at: tuple[int, ...]
    tasks: int
    blames: int
    labels: int


FULL = Size(1400, (5, 20, 50, 100), 125, 300, 500)
QUICK = Size(400, (5, 20), 40, 60, 60)


def size(name: str) -> Size:
    return QUICK if name == "quick" else FULL


def recipe(slips: str, seed: int, name: str) -> Recipe:
    return Recipe(
        taskset=f"clerk(rare={RARE}, slips={slips!r})", noise=SLIPS[slips], steps=size(name).steps, target=0.0,
        decay=0.3, demonstrations=4000, seed=seed,
    )  # fmt: skip


def reference_folder(slips: str, seed: int, name: str) -> Path:
    """Weights of stage R, made on first use."""
    made = recipe(slips, seed, name)
    folder = HOME / f"ref-{made.digest}"
    if not checkpoint.exists(folder):
        *_, (_, _, model) = pretrain(made, steady=False)
        with quiet():
            checkpoint.replace(folder, model.save)
        model.close()
    return checkpoint.locate(folder)


@lru_cache(maxsize=3)
def reference(slips: str, seed: int, name: str) -> Local:
    with quiet():
        return Local(reference_folder(slips, seed, name), ref=f"ref-{slips}-{seed}")


def untrained(seed: int) -> Local:
    return small(Clerk().vocabulary(), seed=derive(seed, "untrained"), ref=f"untrained-{seed}")


def policy(slips: str, kl: float, at: int, seed: int, name: str) -> Local:
    """The policy after ``at`` iterations of stage T: GRPO, 8 tasks x 16 runs, a k3 penalty of weight ``kl``."""
    settings = {"ref": recipe(slips, seed, name).digest, "kl": kl, "at": size(name).at, "seed": seed, "lr": LR}
    folder = HOME / f"rl-{value_digest(settings).hex()[:12]}"
    wanted = folder / f"at-{at}"
    if not checkpoint.exists(wanted):
        _train(folder, slips, kl, seed, name)
    with quiet():
        return Local(checkpoint.locate(wanted), ref=f"policy-{slips}-{kl:g}-{at}-{seed}")


def _train(folder: Path, slips: str, kl: float, seed: int, name: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    frozen, points = reference(slips, seed, name), size(name).at
    with quiet():
        model = Local(reference_folder(slips, seed, name), ref="E173")
    world: Any = Clerk(rare=RARE)
    runner = Runner(PLAYER, world, model, folder / "runs.db", sampling=SAMPLING)
    plan = Plan(name="E173", iterations=points[-1], tasks=8, rollouts=16, seed=seed, kl=kl, checkpoint_every=5)
    training = Training(
        runner, Trainer(model, LR, steady=False), credit.grpo, plan, folder=folder / "training",
        ref=frozen if kl else None,
    )  # fmt: skip
    for done in training.run():
        if done.number + 1 in points:
            with quiet():
                checkpoint.replace(folder / f"at-{done.number + 1}", model.save)
    model.close()
    runner.store.close()
    for file in folder.glob("runs.db*"):
        file.unlink()
    shutil.rmtree(folder / "training")
