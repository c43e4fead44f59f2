"""The cells of tier warm (specs/E167, E7): does an agent that first learns what its world answers learn to act sooner?

Arms by what comes between one start and the same RL of the agent in ``household``. none: nothing. warm: updates of
single-turn next-observation RL, by the reward ``observation`` on one turn of each recorded run. read: as many updates
of plain cross-entropy on the answers of the same turns. lot: as warm with rewards by lot, in which the effect must
vanish. Before and after, the model is asked for the world's answers on its own test runs.

The agent's RL is G2PO at unit RMS, as GRPO had not brought the start of a pilot (seed 0) to half in 24 iterations.
The start is one for all trainings, as another for each seed would not fit the budget; seeds differ in the turns, tasks
and samples of both stages.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import lru_cache, partial
from tempfile import TemporaryDirectory
from typing import Any

from papers.experiment import Line, apart, each, grid

ARMS = ("none", "warm", "read", "lot")
SEEDS = range(1, 5)  # the budget ended the fifth; settings were chosen on seed 0, which is in no report
SHARED = 1  # seed of the start
SIZES = {"full": {"start": 500, "recorded": 300, "updates": 30, "iterations": 20, "traces": 40},
         "quick": {"start": 30, "recorded": 20, "updates": 1, "iterations": 1, "traces": 4}}  # fmt: skip
portions = apart


def cells(quick: bool) -> Iterator[Line]:
    """Seed by seed, so that results cut short are balanced over the arms."""
    if quick:
        yield from grid(kind="warm", arm=("warm", "read"), size="quick", seed=0)
        return
    yield from grid(seed=SEEDS, kind="warm", arm=ARMS, size="full")


def cost(cell: Line) -> float:
    """CPU-seconds, the start shared out."""
    return 8.0 if cell["size"] == "quick" else {"none": 25.0, "read": 30.0}.get(cell["arm"], 48.0)


@lru_cache(maxsize=1)
def start(size: str) -> TemporaryDirectory[str]:
    """A folder with the weights that all trainings begin with; it goes as the process ends."""
    from papers.E167_agentworld.housemind import begun

    folder = TemporaryDirectory(prefix="clew-e167-")
    begun(SIZES[size]["start"], SHARED).save(folder.name)
    return folder


def train(setting: Line, seed: int) -> Line:
    """One training: what was foreseen before and after the extra updates, and success of rollouts by iteration."""
    import torch

    from clew import credit
    from clew.fit.adapters import quiet
    from clew.fit.trainer import Trainer
    from clew.harness import Runner
    from clew.models.local import Local
    from clew.train.loop import Plan, Training
    from clew.worlds.household import Household
    from papers.E167_agentworld import housemind

    torch.set_num_threads(1)
    how, arm = SIZES[setting["size"]], setting["arm"]
    with quiet():
        model: Any = Local(start(setting["size"]).name, ref="housemind", steady=True)
    before = housemind.foreseen(model, how["traces"], seed)
    began, rewards = time.process_time(), list[float]()
    if arm != "none":
        rows = housemind.turns(how["recorded"], seed)
        if arm == "read":
            housemind.read(model, rows, how["updates"], seed)
        else:
            rewards = housemind.warmed(model, rows, how["updates"], seed, lot=arm == "lot")
    extra = time.process_time() - began
    after = housemind.foreseen(model, how["traces"], seed) if arm != "none" else before
    runner = Runner("clew.harness.agents:player", Household(), model, ":memory:", sampling={"max_tokens": 8})
    learnt = partial(credit.g2po, rescale="rms")
    plan = Plan(name="E167", iterations=how["iterations"], seed=seed, checkpoint_every=10**6)
    curve = [done.success.estimate for done in Training(runner, Trainer(model), learnt, plan).run()]
    model.close()
    return {
        "before": {name: round(value, 4) for name, value in before.items()},
        "after": {name: round(value, 4) for name, value in after.items()},
        "rewards": [round(one, 4) for one in rewards],
        "curve": [round(one, 4) for one in curve],
        "extra_s": round(extra, 1),
    }


run = each(train)
