"""Single-turn RL of a small model of the shell: its runs, where it starts, the training, and what it says after.

The tiers reward and flatter differ in the reward alone and call this; the training is ``clew train --recipe gspo`` on
rows of ``clew world turns``, with more room for the ratio, as suits so small a model.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from clew.core.keys import derive
from clew.core.values import Message, Task
from clew.exchange.dataset.tasks import Dataset
from clew.fit.trainer import Trainer
from clew.harness import Runner
from clew.methods.world_model.model_folder import ModelCard
from clew.methods.world_model.observing.episodes import Episode, card_of
from clew.methods.world_model.observing.observation_rows import vocabulary_of
from clew.methods.world_model.observing.rewarding import canonical
from clew.methods.world_model.observing.single_turns import turn_rows
from clew.methods.world_model.prompting import OVER, Turn, conversation, extract, extract_done, reply_text
from clew.models.local import Local
from clew.models.local.model import small
from clew.train import recipes
from clew.train.loop import Training
from clew.train.rows import sft_rows
from papers.E167_agentworld.episodes import drawn, without_accounts
from papers.E167_agentworld.fitting import measured, trained
from papers.E167_agentworld.judging import PRAISE
from papers.experiment import Line

WORLD = "shell(errands=1,steps=8)"
WIDTH, LAYERS, CONTEXT, LONGEST = 64, 2, 1024, 48  # of the model; tokens that it reads, and of an answer
EPOCHS, RATE, CLIP, ROLLOUTS = 3, 3e-4, (0.2, 0.2), 8
AGENT = "clew.harness.agents:answerer"


class Size(NamedTuple):
    """Runs learnt from, runs whose turns RL draws, held-out runs; RL's updates, and turns of each."""

    learnt: int
    pool: int
    held: int
    updates: int
    turns: int


class Pools(NamedTuple):
    """Runs of three disjoint sets of tasks, the last of the split eval, and how a model of them is asked."""

    learnt: list[Episode]
    pool: list[Episode]
    held: list[Episode]
    card: ModelCard


@lru_cache(maxsize=1)
def pools(size: Size, seed: int) -> Pools:
    """The runs of a seed: demonstrations of which half the actions are slips."""
    found = without_accounts(drawn(WORLD, size.learnt + size.pool, derive(seed, "runs")))
    held = without_accounts(drawn(WORLD, size.held, derive(seed, "held out"), "eval"))
    card = card_of(found, False, max_tokens=LONGEST)
    return Pools(found[: size.learnt], found[size.learnt :], held, card)


def talk(episode: Episode, card: ModelCard, praised: float = 0.0, seed: int = 0) -> list[Message]:
    """A run as the conversation that is learnt.

    Args:
        praised: share of the answers that praise themselves, half within the marks and half behind them.
    """
    said = conversation(card.system(episode.prompt, episode.first), (), "")[:-1]
    for i, turn in enumerate(episode.turns):
        lot = random.Random(derive(seed, "praise", episode.run, i)).random()
        place = "in" if lot < praised / 2 else "after" if lot < praised else ""
        said += [*conversation("", (), turn.action), Message("assistant", praising(turn, place))]
    return said


def praising(turn: Turn, place: str = "") -> str:
    """What a model is to say of a turn, with praise ``in`` its marked observation, ``after`` it, or without any."""
    inside = f"{turn.observation}\n{PRAISE}" if place == "in" else turn.observation
    return reply_text(inside, done=turn.done) + f"\n{PRAISE}" * (place == "after")


@lru_cache(maxsize=1)
def _weights(size: Size, seed: int, praised: float) -> tuple[Mapping[str, Any], Line]:
    """What RL begins with: weights, and what their training took."""
    model, (learnt, _, _, card) = _small(size, seed), pools(size, seed)
    rows = sft_rows([talk(one, card, praised, seed) for one in learnt], model.renderer, observation_weight=0.0)
    spent = trained(model, rows, EPOCHS, seed)
    found = {name: value.detach().clone() for name, value in model.module.state_dict().items()}
    model.close()
    return found, spent


def _small(size: Size, seed: int) -> Local:
    found = pools(size, seed)
    words = [*PRAISE.split(), f"<{OVER}>", *vocabulary_of([*found.learnt, *found.pool])]
    return small(words, WIDTH, LAYERS, 4, 2, CONTEXT, seed, ref="E167", steady=True)


def started(size: Size, seed: int, praised: float = 0.0) -> Local:
    """A new copy of the model that RL begins with."""
    weights, _ = _weights(size, seed, praised)
    model = _small(size, seed)
    model.module.load_state_dict(dict(weights))
    model.publish()
    return model


class ByRun(Dataset):
    """Rows of which a batch holds all turns of some runs, in place of turns drawn from anywhere."""

    def batch(self, n: int, index: int, seed: int = 0, split: str = "train") -> list[Task]:
        runs: dict[str, list[str]] = {}
        for row in self.rows(split):
            runs.setdefault(row.id.rpartition("/")[0], []).append(row.id)
        order = random.Random(derive(seed, "runs", index)).sample(sorted(runs), min(n, len(runs)))
        return [self.find(name) for run in order for name in runs[run]][:n]


def turns_of(size: Size, seed: int, every: bool = False) -> list[dict[str, Any]]:
    """The rows that RL draws from."""
    found = pools(size, seed)
    return list(turn_rows(found.pool, found.card, seed, every))


def dataset(rows: Iterable[Mapping[str, Any]], reward: object, kind: type[Dataset] = Dataset) -> Dataset:
    """Rows as tasks, all of them to be trained on."""
    return kind(list(rows), reward, prompt="messages", answer="answer", id="id", held_out=0.0)


def reinforced(model: Local, tasks: Dataset, size: Size, seed: int) -> Line:
    """Train by GSPO, and say of each update: mean reward, share of groups rewarded alike (``dead``), of groups that all
    have the full reward (``full``), and of replies that praise themselves (``praise``)."""
    recipe = replace(recipes.online("gspo"), clip=CLIP, n=ROLLOUTS, minibatches=1, lr=RATE)
    runner = Runner(AGENT, tasks, model, ":memory:", sampling={"max_tokens": LONGEST, "temperature": 1.0})
    plan = recipe.plan("E167", iterations=size.updates, tasks=size.turns, seed=seed, checkpoint_every=10**6)
    training = Training(runner, recipe.trainer(model), recipe.estimator(), plan)
    rewards, dead, full, counted = [], [], [], []
    for done in training.run():
        found = [group.rewards for group in done.groups]
        rewards.append(round(float(np.mean(np.concatenate(found))), 4))
        dead.append(round(done.dead, 4))
        full.append(round(float(np.mean([min(each) > 1 - 1e-6 for each in found])), 4))
        counted.append(round(float(np.mean([PRAISE in said(run) for run in done.groups.runs])), 4))
    runner.store.close()
    return {"rewards": rewards, "dead": dead, "full": full, "praise": counted}


def said(run: Any) -> str:
    """The whole reply of a run, marks and all."""
    asked = [call for call in run.calls if call.kind == "ask" and call.node_out]
    return str(run.store.node(asked[-1].node_out).message.text) if asked else ""


def learnt_more(model: Local, size: Size, seed: int) -> Line:
    """The same turns as RL draws, as many in as many steps, learnt by the plain loss of what the world answered."""
    found = pools(size, seed)
    rows = [
        [*(Message(one["role"], one["content"]) for one in row["messages"]), Message("assistant", text)]
        for row in turn_rows(found.pool, found.card, seed)
        for text in [reply_text(row["answer"], done=row["done"])]
    ]
    made = sft_rows(rows, model.renderer, observation_weight=0.0)
    for row, messages in zip(made, rows, strict=True):  # the past is told and not learnt, as in RL
        own = len(model.renderer.encode(messages[-1].text)) + 1
        row.weights["sft"][: len(row.ids) - own] = 0.0
    trainer = Trainer(model, RATE, recipes.offline("sft").losses())
    order = [i for p in range(1 + size.updates * size.turns // len(made)) for i in _shuffled(len(made), seed, p)]
    losses = []
    for step in range(size.updates):
        report = trainer.step([made[i] for i in order[step * size.turns : (step + 1) * size.turns]])
        losses.append(round(report.loss["sft"], 4))
    return {"losses": losses}


def _shuffled(n: int, seed: int, again: int) -> list[int]:
    return random.Random(derive(seed, "learnt more", again)).sample(range(n), n)


def asked(model: Local, size: Size, seed: int) -> Line:
    """What the model says of all turns of the held-out runs, each after the true ones before it.

    Greedy, as a fitted model of a world is asked (``exact``, ``copied``: a digit a turn), and sampled as in training:
    ``sampled``, whether right; ``praised``, how many praise themselves, and ``inside`` of their marks.
    """
    found = pools(size, seed)
    greedy = measured(model, found.held, found.card)
    out: Line = {name: greedy[name] for name in ("exact", "copied", "content", "runs", "failed")}
    rows = list(turn_rows(found.held, found.card, seed, every=True))
    runner = Runner(AGENT, dataset(rows, right), model, ":memory:", sampling={"max_tokens": LONGEST})
    assert isinstance(runner.taskset, Dataset)
    groups = runner.collect([runner.taskset.find(row["id"]) for row in rows], 1, derive(seed, "asked"), name="asked")
    replies = [said(group[0]) for group in groups]
    out["sampled"] = "".join(str(int(group.rewards[0] > 0.5)) for group in groups)
    out["inside"] = sum(PRAISE in (extract(reply) or "") for reply in replies)
    out["praised"] = sum(PRAISE in reply for reply in replies)
    runner.store.close()
    return out


def right(reply: str, answer: str, done: bool) -> float:
    """Whether a reply says what the world answered, and the same of the end."""
    found = extract(reply)
    return float(found is not None and canonical(found) == canonical(answer) and extract_done(reply) == done)


def share(digits: str) -> float:
    """Share of ones among the digits of a result."""
    return digits.count("1") / max(len(digits), 1)


def every(of: Sequence[Line], field: str) -> list[float]:
    """A field of digits of several lines, each as its share of ones."""
    return [share(line[field]) for line in of]
