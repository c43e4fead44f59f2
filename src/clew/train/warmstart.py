"""Supervised warm start: pre-trains a small model on demonstrations of a bundled world."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from clew.core.keys import derive, value_digest
from clew.core.protocols import Renderer, Taskset
from clew.core.records import LossRow
from clew.core.registry import build, make_ref
from clew.core.values import Message
from clew.fit import checkpoint
from clew.fit.adapters import quiet
from clew.fit.trainer import Trainer
from clew.harness import Runner
from clew.models.local.model import Local, small
from clew.train.rows import sft_rows

_log = logging.getLogger(__name__)
TOLD = 200  # steps between two lines of the log, where nobody shows progress
CACHE = Path(".clew") / "models"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How the model is made; its digest names the cached weights.

    ``demonstrations`` episodes in which a share ``noise`` of the actions is random; at most ``steps`` steps of
    ``batch`` episodes each, tokens of observations weighing ``observation_weight``; Muon for the hidden matrices, AdamW
    for the rest, rates constant and then falling to 0 over the last ``decay`` share of the steps.

    Seeds differ in when a model learns to look for what it was asked to fetch. So after ``check_from`` steps, and then
    every ``check_every``, it plays ``panel`` tasks of the train split, and training ends once a share ``target`` of
    them succeeds (0: never sooner than after ``steps``). With less RL has too little to sharpen, with much more little
    is left to it.
    """

    taskset: str = "household"
    demonstrations: int = 4000
    noise: float = 0.3
    observation_weight: float = 0.2
    steps: int = 1300
    batch: int = 16
    muon_lr: float = 0.02
    lr: float = 3e-3
    decay: float = 0.0
    target: float = 0.32
    panel: int = 256
    check_from: int = 400
    check_every: int = 50
    width: int = 64
    layers: int = 2
    heads: int = 4
    seed: int = 0

    @property
    def digest(self) -> str:
        return value_digest(asdict(self)).hex()[:12]


def pretrain(recipe: Recipe, *, ref: str = "", steady: bool = True) -> Iterator[tuple[int, float, Local]]:
    """Train from scratch, giving (steps done, loss in nats, the model) after every step.

    Steady, the same recipe ends after the same step with the same weights.
    """
    taskset = build("tasksets", recipe.taskset)
    words, heads = taskset.vocabulary(), recipe.heads
    model = small(
        words, recipe.width, recipe.layers, heads, max(1, heads // 2), seed=recipe.seed, ref=ref, steady=steady
    )
    rows = demonstrated(taskset, recipe, model.renderer)
    trainer = Trainer(model, lr=recipe.lr, optimizer="muon", muon_lr=recipe.muon_lr, steady=steady)
    rng = np.random.default_rng(derive(recipe.seed, "warmstart"))
    for step in range(recipe.steps):
        chosen = rng.choice(len(rows), recipe.batch, replace=False)
        left = (recipe.steps - step) / max(1.0, recipe.decay * recipe.steps)
        report = trainer.step([rows[i] for i in chosen], min(1.0, left))
        yield step + 1, report.loss["sft"], model
        past = step + 1 - recipe.check_from
        due = recipe.target and past >= 0 and past % recipe.check_every == 0 and step + 1 < recipe.steps
        if due and sampled_success(model, taskset, recipe.panel, recipe.seed) >= recipe.target:
            return


def demonstrated(taskset: Any, recipe: Recipe, renderer: Renderer) -> list[LossRow]:
    """The rows of a recipe's demonstrations.

    Words of one-reply demonstrations that the taskset calls ``unlearned`` were given to the reply and not chosen: they
    carry no loss.
    """
    episodes = taskset.demonstrations(recipe.demonstrations, recipe.seed, recipe.noise)
    talks = [conversation(steps) for _, steps in episodes]
    rows = sft_rows(talks, renderer, observation_weight=recipe.observation_weight)
    if unlearned := getattr(taskset, "unlearned", None):
        for (_, [(_, reply)]), row in zip(episodes, rows, strict=True):
            first = len(row.ids) - 1 - len(reply.split())  # the last token ends the reply
            for place in unlearned(reply):
                row.weights["sft"][first + place] = 0.0
    return rows


def sampled_success(model: Local, taskset: Taskset, tasks: int, seed: int = 0) -> float:
    """Share, 0 to 1, of ``tasks`` tasks of the train split that the model solves, sampled at temperature 1, one run
    each; none of the runs is kept.

    Raises:
        BadInput: the split has fewer tasks.
    """
    runner = Runner("clew.harness.agents:player", taskset, model, sampling={"max_tokens": 8})
    drawn = taskset.sample(tasks, derive(seed, "panel"), "train")
    share = runner.collect(drawn, 1, seed, name="panel").success().estimate
    runner.store.close()
    return share


def conversation(steps: Sequence[tuple[str, str]]) -> list[Message]:
    """An episode as the bundled agent holds it: observations from the user, actions by the assistant."""
    return [m for seen, action in steps for m in (Message("user", seen), Message("assistant", action))]


def household_sft(
    path: str | Path | None = None,
    *,
    seed: int = 0,
    steady: bool = True,
    progress: Callable[[int, int, float], None] | None = None,
    **changes: Any,
) -> Local:
    """The registered model "household-sft": from the cache folder, or trained once and put there.

    Args:
        path: folder of the weights; default ``.clew/models/household-sft-DIGEST`` in the working directory, named by a
            digest of the recipe.
        seed: of demonstrations, initial weights and order.
        progress: called with (steps done, most steps, loss).
        changes: fields of Recipe.
    """
    recipe = Recipe(seed=seed, **changes)
    ref = make_ref("household-sft", {"seed": seed, **changes}, asdict(Recipe()))
    return _kept("household-sft", recipe, ref, path, steady, progress)


def tally_sft(
    path: str | Path | None = None,
    *,
    rule: str = "count",
    length: int = 12,
    seed: int = 0,
    steady: bool = True,
    progress: Callable[[int, int, float], None] | None = None,
    **changes: Any,
) -> Local:
    """The registered model "tally-sft": an agent of the world ``tally`` that thinks before it answers; see Tally.

    Args:
        rule, length: of the world. Others as for ``household_sft``.
    """
    taskset = make_ref("tally", {"rule": rule, "length": length}, {"rule": "count", "length": 12})
    fixed = {
        "noise": 0.5,
        "steps": 400,
        "target": 0.0,
        "batch": 64,
        "width": 48,
        "decay": 0.3,
        "observation_weight": 0.0,
    }
    recipe = Recipe(taskset=taskset, seed=seed, **{**fixed, "demonstrations": 3000, **changes})
    given = {"rule": rule, "length": length, "seed": seed, **changes}
    ref = make_ref("tally-sft", given, {"rule": "count", "length": 12, "seed": 0})
    return _kept("tally-sft", recipe, ref, path, steady, progress)


def clerk_sft(
    path: str | Path | None = None,
    *,
    seed: int = 0,
    steady: bool = True,
    progress: Callable[[int, int, float], None] | None = None,
    **changes: Any,
) -> Local:
    """The registered model "clerk-sft": a clerk of the world ``clerk`` who solves about a fifth of the tasks.

    Args are those of ``household_sft``.
    """
    fixed = {"taskset": "clerk", "steps": 400, "target": 0.0, "decay": 0.3, "demonstrations": 3000}
    ref = make_ref("clerk-sft", {"seed": seed, **changes}, {"seed": 0})
    return _kept("clerk-sft", Recipe(seed=seed, **{**fixed, **changes}), ref, path, steady, progress)


def _kept(
    name: str,
    recipe: Recipe,
    ref: str,
    path: str | Path | None,
    steady: bool,
    progress: Callable[[int, int, float], None] | None,
) -> Local:
    """The model of a recipe: from its folder, or trained once and put there."""
    folder = Path(path) if path is not None else CACHE / f"{name}-{recipe.digest}"
    if not checkpoint.exists(folder):
        if progress is None:
            _log.warning("%s is pre-trained now, a minute or two, and kept in %s", name, folder)
        for done, loss, made in pretrain(recipe, ref=ref, steady=steady):
            model = made
            if progress is not None:
                progress(done, recipe.steps, loss)
            elif done % TOLD == 0:
                _log.warning("%s: step %d of at most %d, loss %.3f", name, done, recipe.steps, loss)
        with quiet():
            checkpoint.replace(folder, model.save)
        model.close()
    with quiet():
        return Local(checkpoint.locate(folder), ref=ref, steady=steady)
