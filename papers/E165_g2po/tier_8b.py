"""The cells of tier 8b: a small transformer in ``household``, trained by each estimator from the same start.

Stage 0 pre-trains one model per split on imperfect demonstrations (kept under ``.clew/models``). Stage 1 is RL as in
the quickstart. A cell is one training; tasks, seeds and the held-out panel are the same for every arm.
"""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from clew import credit
from papers.experiment import Line, apart, each, grid

ROOT = Path(__file__).resolve().parents[2]
ARMS = ("grpo", "gigpo", "g2po", "graphgpo", "bellman")
PANEL = Path(__file__).with_name("panel_8b.json")  # ids of 256 held-out tasks of each split
SAMPLING = {"max_tokens": 8}


class Split(NamedTuple):
    """A taskset, the steps of pre-training, the iterations of RL, CPU-seconds of a cell as measured, and its panel."""

    taskset: str
    pretraining: int
    iterations: int
    seconds: float
    panel: str


SPLITS = {
    "quickstart": Split("household", 700, 30, 22.0, "quickstart"),
    "aliased": Split("household(aliased=True)", 700, 30, 24.0, "aliased"),
    "long": Split("household(goals=('clean', 'heat'), layout='ring', rooms=4, steps=25)", 300, 40, 48.0, "long"),
}
SEEDS = 5
SMALL = Split(
    "household", 150, 4, 4.0, "quickstart"
)  # --quick: shows that everything runs; says nothing about estimators
portions = apart


def cells(quick: bool) -> Iterator[Line]:
    """Seed by seed, so that results cut short are balanced over arms; first at unit RMS, then, in the quickstart split,
    as it comes. The two other splits at unit RMS only, and the long one with 40 iterations, to fit 90 CPU-minutes."""
    if quick:
        yield from grid(kind="train", arm=("grpo", "g2po"), variant="quick", rescale=True, seed=0)
        return
    for rescale, variants in ((True, SPLITS), (False, "quickstart")):
        yield from grid(seed=range(SEEDS), kind="train", variant=variants, arm=ARMS, rescale=rescale)


def cost(setting: Line) -> float:
    return split(setting["variant"]).seconds


def split(name: str) -> Split:
    return SMALL if name == "quick" else SPLITS[name]


def pretrained(which: Split) -> Path:
    """The folder of the split's pre-trained weights, made on first use."""
    from clew.fit import checkpoint
    from clew.train.warmstart import Recipe, household_sft

    changes = {"taskset": which.taskset, "steps": which.pretraining, "target": 0.0}
    folder = ROOT / ".clew" / "models" / f"household-sft-{Recipe(**changes).digest}"
    if not checkpoint.exists(folder):
        household_sft(folder, **changes).close()
    return Path(checkpoint.locate(folder))


def train(setting: Line, seed: int) -> Line:
    """One training: rollouts' success by iteration, process time so far, and the held-out panel before and after."""
    import torch
    from transformers.utils import logging

    from clew.core.registry import build
    from clew.fit.trainer import Trainer
    from clew.harness import Runner
    from clew.models.local import Local
    from clew.train.loop import Plan, Training

    torch.set_num_threads(1)
    logging.disable_progress_bar()
    which = split(setting["variant"])
    taskset = build("tasksets", which.taskset)
    model = Local(pretrained(which), ref="E165", steady=True)
    runner = Runner("clew.harness.agents:player", taskset, model, ":memory:", sampling=SAMPLING)
    method, rescale = getattr(credit, setting["arm"]), "rms" if setting["rescale"] else None
    plan = Plan(name="E165", iterations=which.iterations, seed=seed, checkpoint_every=10**6)
    training = Training(runner, Trainer(model), lambda groups: method(groups, rescale=rescale), plan)
    held_out = [taskset.find(name) for name in json.loads(PANEL.read_text())[which.panel]]
    before = panel(taskset, model, held_out, seed)
    began, cpu, curve, dead, spent = time.process_time(), [], [], [], dict[str, float]()
    for done in training.run():
        cpu.append(round(time.process_time() - began, 2))
        curve.append(round(done.success.estimate, 4))
        dead.append(done.dead)
        for part, seconds in done.seconds.items():
            spent[part] = spent.get(part, 0.0) + seconds
    after = panel(taskset, model, held_out, seed)
    model.close()
    return {
        "before": before[0],
        "final": after[0],
        "length_before": before[1],
        "length": after[1],
        "curve": curve,
        "cpu": cpu,
        "silent_groups": round(sum(dead) / len(dead), 4),
        "credit_share": round(spent["credit"] / sum(spent.values()), 4),
    }


def panel(taskset: Any, model: Any, tasks: list[Any], seed: int) -> tuple[float, float]:
    """Success and mean number of steps on the held-out tasks, one sampled run each; a store of its own."""
    from clew.harness import Runner

    runner = Runner("clew.harness.agents:player", taskset, model, ":memory:", sampling=SAMPLING)
    groups = runner.collect(tasks, 1, seed, name="panel")
    steps = [len(run.steps) for run in groups.runs]
    return round(groups.success().estimate, 5), round(sum(steps) / len(steps), 3)


run = each(train)
