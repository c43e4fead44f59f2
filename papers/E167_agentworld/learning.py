"""One model of one world, learnt and measured, as the tiers fit and think ask for it.

How the past is told is the arm: ``plain``, as it was; ``think``, the model says what is true after the action before it
answers; ``told``, the world says what is true, every third turn, in fitting and in use.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from clew.core.protocols import Model
from clew.methods.world_model import Simulated
from clew.methods.world_model.model_folder import ModelCard
from clew.methods.world_model.observing.closed_loop import drift
from clew.methods.world_model.observing.episodes import Episode, card_of
from clew.methods.world_model.observing.observation_rows import observation_rows, vocabulary_of
from clew.models.local.model import small
from clew.models.rendering import pieces_of
from papers.E167_agentworld.episodes import chained, depths, taskset, to_learn, to_measure, without_accounts
from papers.E167_agentworld.fitting import CONTEXT, HEADS, LONGEST, guessed, measured, trained
from papers.E167_agentworld.telling import Told, reminded
from papers.experiment import Line


class Size(NamedTuple):
    """runs, epochs: learnt from. width, blocks: of the model. measured: episodes as they come; more: those of which the
    ones with rare answers are measured too."""

    runs: int
    epochs: int
    width: int
    blocks: int
    measured: int = 100
    more: int = 400


@lru_cache(maxsize=4)
def _asked(world: str, n: int, more: int) -> tuple[list[Episode], list[int]]:
    """The episodes that a model of a world is measured by, and of each answer, what it depends on."""
    found, real = to_measure(world, n, more), taskset(world)
    return found, [depth for one in found for depth in depths(real, one)]


def learnt(world: str, arm: str, size: Size, seed: int) -> Line:
    """Fit, then measure answer by answer (with the whole past, and with one turn of it: ``exact_last``) and left alone.

    Words are learnt whole in the shell, and in pieces elsewhere, where ids are new in every task.
    """
    runs = to_learn(world, size.runs, seed)
    asked, moved = _asked(world, size.measured, size.more)
    shown = list(map(reminded, runs)) if arm == "told" else runs if arm == "think" else without_accounts(runs)
    card, pieces = card_of(runs, False, max_tokens=LONGEST), world != "shell"
    words = vocabulary_of(shown, cut=pieces_of if pieces else str.split)
    model = small(words, size.width, size.blocks, HEADS, 2, CONTEXT, seed, steady=True, pieces=pieces)
    rows, counts = observation_rows(shown, model.renderer, card, "turn", seed, CONTEXT)
    spent = trained(model, rows, size.epochs, seed)
    asker: Model = Told(model, asked, card) if arm == "told" else model
    found = {
        "weights": sum(p.numel() for p in model.module.parameters()),
        "learnt": len(runs),
        **spent,
        "kept": dict(counts.kept),
        "turns": dict(counts.turns),
        **measured(asker, asked, card),
        "guessed": guessed(runs, asked),
        "busy": "".join(str(int("503" in turn.observation[:8])) for one in asked for turn in one.turns),
        "depth": "".join(str(min(depth, 9)) if depth >= 0 else "+" for depth in moved),
        "pair": "".join(str(int(pair)) for one in asked for pair in chained(one)),
        "plain_runs": size.measured,
        "alone": _alone(world, card, asker, asked[: size.measured]),
    }
    if arm == "plain":
        found["exact_last"] = measured(model, asked, replace(card, window=1))["exact"]
    return found


def _alone(world: str, card: ModelCard, model: Model, asked: Sequence[Episode]) -> list[str]:
    """Of each episode, turn by turn, 1 or 0: whether the model left to itself says what the world says to the same
    actions. Where it gave no answer or ended too soon, the rest is missing."""
    real = taskset(world)
    with tempfile.TemporaryDirectory() as folder:
        replace(card, world=world).write(Path(folder))
        simulated = Simulated(folder=folder, world=world, tries=1, kept=False)
        plans = {one.task: [turn.action for turn in one.turns] for one in asked}
        found = drift(simulated, real, [real.find(one.task) for one in asked], plans, model)
    by_task = {one.task: one for one in found.checked}
    return ["".join(str(int(bool(turn.same))) for turn in by_task[one.task].turns) for one in asked]
