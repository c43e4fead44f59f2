"""The worlds of tier decouple: the real encyclopedia at a price, a model fitted to it, and that model with errors.

Tier decouple trains agents in them. The model is ``clew.methods.world_model.observing``'s on runs of ``demonstrator``,
and takes the world's place by ``simulated(...)``; what makes it stingy is the typed instruction alone. Nothing here
may judge by what a model says: a run's reward is the real world's on the same actions.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from clew.core.keys import derive
from clew.core.records import Request
from clew.core.registry import register
from clew.core.values import Completion, Task
from clew.methods.world_model import Simulated
from clew.methods.world_model.instruction import Instruction
from clew.methods.world_model.prompting import reply_text
from clew.models.compose import Forwarding
from clew.worlds.finder import Finder, FinderWorld
from clew.worlds.finder.encyclopedia import Snippets, page, people, searched

if TYPE_CHECKING:
    from clew.methods.world_model.observing.episodes import Episode
    from clew.models.local import Local

ROWS, STEPS = 24, 6  # people of the table that is trained on; actions of a task
PRICE = 0.1  # of opening a page, in the reward of a training
FAULTS = 0.1  # share of answers that arm faulty swaps for another page's
STINGY = {"leak": "tease", "opens": ("open",)}
PRICED = "E167 finder at a price"


class Priced(Finder):
    """Finder with a price on every page that is opened; ``right`` is the answer alone. One table, a few people."""

    def __init__(self, snippets: Snippets = "rich") -> None:
        super().__init__(snippets, rows=ROWS, tables=1, steps=STEPS)

    def verdict(self, task: Task, last: FinderWorld) -> dict[str, float]:
        """Reward 1 where the answer is right, less the price of each opened page."""
        found = super().verdict(task, last)
        return {**found, "reward": found["reward"] - PRICE * found["opens"], "right": found["reward"]}


register("tasksets", PRICED, Priced)


class Faulty(Forwarding):
    """A model of the world of which a share of the answers is another page's, by lot of the whole question."""

    def answered(self, request: Request, completion: Completion) -> Completion:
        said = [node.message.text for node in request.path]
        rng = random.Random(derive(0, "fault", *said))
        if rng.random() >= FAULTS or said[-1].startswith("answer"):
            return completion
        everyone = people(0, ROWS)
        other = rng.choice(everyone)
        shown = page(everyone, other) if said[-1].startswith("open") else searched(everyone, other.name, "rich")
        return completion._replace(message=completion.message._replace(text=reply_text(shown)))


class Fitted(NamedTuple):
    """A model of the world and the folder with its card. exact: share of its answers on held-out tasks that are the
    world's, of n, on the way that an agent goes; of the page, the same."""

    model: Local
    folder: Path
    exact: float
    pages: float
    n: int


def fitted(folder: Path, repeats: int, epochs: int, seed: int) -> Fitted:
    """Fit a model of 0.1M weights to runs of a demonstrator who often slips, in the table that is trained on."""
    from clew.fit.trainer import Trainer
    from clew.methods.world_model.observing.episodes import card_of
    from clew.methods.world_model.observing.observation_rows import observation_rows, vocabulary_of
    from clew.methods.world_model.observing.open_loop import outcomes
    from clew.models.local.model import small
    from clew.train.offline import Passes, fit

    real = Finder("rich", rows=ROWS, tables=1, steps=STEPS)
    tasks = [task for split in ("train", "eval") for task in every(real, split)]
    episodes = [_episode(real, task, derive(seed, i), 0.3) for i in range(repeats) for task in tasks]
    episodes = [_instructed(one) if i % 2 else one for i, one in enumerate(episodes)]
    card = card_of(episodes, False, description="encyclopedia", max_tokens=120)
    model = small(vocabulary_of(episodes), context=1024, seed=seed, ref="model of the world", steady=True)
    rows, _ = observation_rows(episodes, model.renderer, card, "all", seed, model.context)
    trainer = Trainer(model, 3e-3, optimizer="muon", muon_lr=0.02, steady=True)
    for _ in fit(trainer, rows, Passes(epochs=epochs, batch=16, seed=seed)):
        pass
    card.write(folder)
    held = [_episode(real, task, derive(seed, "held out"), 0.0) for task in every(real, "test")]
    found = asyncio.run(outcomes(model, held, card))
    opened = [one.exact for one in found if one.turn == 1]
    return Fitted(model, folder, sum(one.exact for one in found) / len(found), sum(opened) / len(opened), len(found))


def _episode(real: Finder, task: Task, seed: int, noise: float) -> Episode:
    from clew.methods.world_model.observing.episodes import played_episode

    return asyncio.run(played_episode(real, task, real.demonstrate(task, seed, noise), f"{task.id}/{seed}"))


def _instructed(episode: Episode) -> Episode:
    """The episode with the instruction of arm stingy at the end of its system text, where ``simulated`` has it.

    A fitted model that never saw an instruction answers nonsense where it is told one. What it learns of this one is
    that its answers stay the same: the masking is code's.
    """
    return replace(episode, first=f"{episode.first}\n\nInstruction:\n{Instruction.of(STINGY).text}")


def every(taskset: Finder, split: str) -> list[Task]:
    """All questions on the table of a split, each once; a table of so few people has few."""
    found: dict[Any, Task] = {}
    for number in range(4000):
        task = taskset.find(f"finder-{number}")
        if task.data["split"] == split:
            found.setdefault(taskset.content(number), task)
    return list(found.values())


def world(arm: str, known: Fitted | None) -> tuple[Any, Any]:
    """The taskset of an arm, and what resolves the reference of the model that plays its world."""
    if arm in ("rich", "poor"):
        return Priced("rich" if arm == "rich" else "poor"), None
    assert known is not None
    model = Faulty(known.model, "faulty") if arm == "faulty" else known.model
    made = partial(Simulated, folder=str(known.folder), model="world", world=PRICED, steps=STEPS)
    return made(instruction=STINGY) if arm == "stingy" else made(), lambda name: model
