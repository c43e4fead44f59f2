"""The agent of tier warm: one small model that acts in the household world, and can be asked what the world answers.

Tier warm begins all its arms with ``begun``: a model that imitates imperfect demonstrations and has seen, in the form
of ``clew.methods.world_model.prompting``, a few answers of the world, as a general model can be asked for either. Then
come the extra updates of an arm, here too. Nothing may read tasks of the test split, except to measure.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from clew.core.keys import derive
from clew.methods.world_model.model_folder import ModelCard
from clew.worlds.household import Household

if TYPE_CHECKING:
    from clew.methods.world_model.observing.episodes import Episode
    from clew.models.local import Local

CARD = ModelCard(description="predict", max_tokens=32)
NOISE = 0.5  # share of random actions in what is recorded
BATCH = 8  # prompts of one extra update, and answers to each
RATE = 2e-4  # of the extra updates; 7e-4, which the RL of the agent takes, lost accuracy in a pilot


def episodes(n: int, seed: int, split: str = "train") -> list[Episode]:
    """Recorded runs of a demonstrator who often slips."""
    from clew.methods.world_model.observing.episodes import played_episode

    taskset, made = Household(), list[Any]()
    for i, task in enumerate(taskset.sample(n, derive(seed, "recorded", split), split)):
        actions = taskset.demonstrate(task, derive(seed, i), NOISE)
        made.append(asyncio.run(played_episode(taskset, task, actions, f"{task.id}/{i}")))
    return [one for one in made if len(one.turns) > 1]


def begun(steps: int, seed: int) -> Local:
    """The policy before any arm: 0.1M weights, three rows of demonstrations for one of the world's answers."""
    import numpy as np

    from clew.fit.trainer import Trainer
    from clew.methods.world_model.observing.observation_rows import observation_rows, vocabulary_of
    from clew.models.local.model import small
    from clew.train.warmstart import Recipe, demonstrated

    known = episodes(400, derive(seed, "start"))
    words = [*dict.fromkeys([*Household().vocabulary(), *vocabulary_of(known), CARD.description])]
    model = small(words, context=512, seed=seed, ref="housemind", steady=True)
    acts = demonstrated(Household(), Recipe(demonstrations=2000, seed=seed), model.renderer)
    seen, _ = observation_rows(known, model.renderer, CARD, "all", seed)
    trainer = Trainer(model, lr=3e-3, optimizer="muon", muon_lr=0.02, steady=True)
    rng = np.random.default_rng(derive(seed, "start"))
    for step in range(steps):
        chosen = [acts[i] for i in rng.choice(len(acts), 12, replace=False)]
        chosen += [seen[i] for i in rng.choice(len(seen), 4, replace=False)]
        trainer.step(chosen, min(1.0, 3 * (steps - step) / steps))
    return model


def turns(n: int, seed: int) -> list[dict[str, Any]]:
    """Rows of single turns, one of each recorded run, as `clew world turns` writes them."""
    from clew.methods.world_model.observing.single_turns import turn_rows

    return list(turn_rows(episodes(n, derive(seed, "turns")), CARD, seed))


def warmed(model: Local, rows: Sequence[dict[str, Any]], updates: int, seed: int, lot: bool = False) -> list[float]:
    """Next-observation RL by ``clew train``'s own parts: GRPO on single turns; the mean reward of each update.

    Args:
        lot: every reward is drawn by lot, which teaches nothing; the control.
    """
    from clew import credit
    from clew.exchange.dataset.tasks import Dataset
    from clew.fit.trainer import Trainer
    from clew.harness import Runner
    from clew.train.loop import Plan, Training

    data = Dataset(list(rows), by_lot if lot else "observation", held_out=0.0)
    sampling = {"max_tokens": CARD.max_tokens}
    runner = Runner("clew.harness.agents:answerer", data, model, ":memory:", sampling=sampling)
    plan = Plan(name="warm", iterations=updates, tasks=BATCH, rollouts=BATCH, seed=seed, checkpoint_every=10**6)
    found = []
    for done in Training(runner, Trainer(model, RATE), credit.grpo, plan).run():
        rewards = [run.reward for run in done.groups.runs if run.reward is not None]
        found.append(sum(rewards) / max(len(rewards), 1))
    return found


def by_lot(reply: str, id: str) -> float:
    """A reward that is drawn by lot for each row and reply."""
    return random.Random(derive(0, "lot", id, reply)).random()


def read(model: Local, rows: Sequence[dict[str, Any]], updates: int, seed: int) -> None:
    """As many updates of plain cross-entropy on the world's answers of the same rows; the control."""
    import numpy as np

    from clew.core.values import Message
    from clew.fit.trainer import Trainer
    from clew.methods.world_model.prompting import reply_text
    from clew.train.text_rows import reply_rows

    written = [
        ([Message(m["role"], m["content"]) for m in row["messages"]], [Message("assistant", reply_text(row["answer"]))])
        for row in rows
    ]
    made, rng = reply_rows(written, model.renderer), np.random.default_rng(derive(seed, "read"))
    trainer = Trainer(model, RATE)
    for _ in range(updates):
        trainer.step([made[i] for i in rng.choice(len(made), BATCH, replace=False)])


def foreseen(model: Local, n: int, seed: int) -> dict[str, float]:
    """Which share of the world's ``n`` answers on the model's own test runs it says, each after the true ones before
    it (``exact``); ``words``: their mean F1. What a closed receptacle holds nobody can foresee."""
    from clew.harness import Runner
    from clew.methods.world_model.observing.episodes import episodes_of
    from clew.methods.world_model.observing.open_loop import outcomes

    taskset = Household()
    runner = Runner("clew.harness.agents:player", taskset, model, ":memory:", sampling={"max_tokens": 8})
    groups = runner.collect(taskset.sample(n, derive(seed, "traces"), "test"), 1, seed, name="traces")
    found = asyncio.run(outcomes(model, episodes_of(groups.runs).episodes, CARD))
    n = max(len(found), 1)
    exact, words = sum(one.exact for one in found) / n, sum(one.words for one in found) / n
    return {"exact": exact, "words": words, "n": float(len(found))}
