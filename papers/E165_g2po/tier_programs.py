"""The cells of tier programs: a program that knows nothing of Clew is the agent, and its model learns by RL.

Each run starts ``examples/plain_coder.py`` in the sandbox, which asks over HTTP and runs in a shell what it is told.
Its requests are the run's asks, its files are the states. The model is 0.1M weights that imitate slipshod repairs
(``calc_model``), the tasks are ``calc_tasks``. A training is 10 iterations of 8 tasks with 8 runs each, as
``clew train --command`` makes it. Arms: G2PO on independent runs, G2PO on trees whose forks start the program again,
and as control G2PO with the rewards of an iteration dealt to its runs by lot.

Settings were chosen on seeds 100 and 101 and in a simulation of the commands. No such seed is in a report. All
trainings begin with the same weights; seeds differ in tasks and samples of RL and in those of the held-out panel.
"""

from __future__ import annotations

import os
import shlex
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from papers.experiment import Line, apart, each, grid

ARMS = ("g2po", "g2po-tree", "g2po-lot")
SEEDS = range(1, 6)
SIZES = {
    "calc": {"iterations": 10, "tasks": 8, "rollouts": 8, "panel": 128, "habits": {}},
    "quick": {"iterations": 2, "tasks": 2, "rollouts": 4, "panel": 8, "habits": {"episodes": 2000, "steps": 250}},
}
RATE = 4e-3
SAMPLING = {"max_tokens": 16}
HELD = ("max_tokens", "temperature", "top_p")  # as clew train holds them, whatever the program asks for
CODER = Path(__file__).resolve().parents[2] / "examples" / "plain_coder.py"
portions = apart


def cells(quick: bool) -> Iterator[Line]:
    """Seed by seed, so that results cut short are balanced over the arms."""
    if quick:
        yield from grid(kind="train", arm=("g2po", "g2po-tree"), variant="quick", seed=0)
        return
    for seed in SEEDS:
        yield from grid(kind="start", variant="calc", seed=seed)
        yield from grid(kind="train", arm=ARMS, variant="calc", seed=seed)


def cost(cell: Line) -> float:
    """CPU-seconds; the first line on a machine also teaches the model, a minute."""
    return 60.0 if cell["variant"] == "quick" else 32.0 if cell["kind"] == "start" else 175.0


def command() -> str:
    """The command line of the program."""
    from papers.E165_g2po.calc_model import SYSTEM, TURNS

    words = ["env", f"SYSTEM={SYSTEM}", f"TURNS={TURNS}", sys.executable, "-I", "-S", str(CODER)]
    return shlex.join(words)


class Place:
    """What a cell works with: the taskset of the program, the model, and what hears it, all gone at the end."""

    def __init__(self, variant: str) -> None:
        import torch

        from clew.fit.adapters import quiet
        from clew.models.local import Local
        from clew.serve.programs.program_world import Programs
        from papers.E165_g2po.calc_model import Habits, kept
        from papers.E165_g2po.calc_tasks import CalcTasks
        from papers.E165_g2po.token_truth import Ear

        torch.set_num_threads(1)
        self.size: dict[str, Any] = SIZES[variant]
        self._folder = TemporaryDirectory(prefix="clew-e165-")
        self.taskset = Programs(CalcTasks(shelf=f"{self._folder.name}/files"), command())
        with quiet():
            self.model = Local(kept(Habits(**self.size["habits"])), ref="calc-sft", steady=True)
        self.ear = Ear()
        self.ear.listen(self.model)

    def runner(self) -> Any:
        from clew.harness import Runner
        from clew.serve.programs.commanded import commanded

        config = {"held": sorted(HELD)}
        return Runner(commanded, self.taskset, self.model, ":memory:", config, sampling=SAMPLING)

    def held_out(self, seed: int) -> float:
        """Success on the tasks of the panel, one run each; a store of its own."""
        tasks = self.taskset.sample(self.size["panel"], seed, "test")
        return round(self.runner().collect(tasks, 1, seed, name="panel").success().estimate, 5)

    def close(self) -> None:
        self.model.close()
        self._folder.cleanup()


def start(setting: Line, seed: int) -> Line:
    """The held-out success that the trainings of a seed begin with."""
    place = Place(setting["variant"])
    found = place.held_out(seed)
    place.close()
    return {"success": found}


def train(setting: Line, seed: int) -> Line:
    """One training and the held-out success after it; what its tokens and its seconds say."""
    from clew.harness.trees.grow import Growth
    from clew.train import recipes
    from clew.train.loop import Training
    from papers.E165_g2po.token_truth import Weighed, matched

    place, arm = Place(setting["variant"]), setting["arm"]
    size, recipe = place.size, recipes.online("g2po")
    growth = Growth(leaves=size["rollouts"]) if arm == "g2po-tree" else None
    fields = {name: size[name] for name in ("iterations", "tasks", "rollouts")}
    plan = recipe.plan("E165", **fields, seed=seed, growth=growth, checkpoint_every=10**6)
    trainer = Weighed(place.model, place.ear, lr=RATE, losses=recipe.losses(), weight_by=recipe.weight_by)
    training = Training(place.runner(), trainer, by_lot(seed) if arm == "g2po-lot" else recipe.estimator(), plan)
    clock = Clock()
    curve, dead, tokens, runs, wall, said = [], [], 0, 0, dict[str, float](), [0, 0, 0]
    for done in training.run():
        curve.append(round(done.success.estimate, 4))
        dead.append(done.dead)
        tokens, runs = tokens + done.tokens, runs + len(done.groups.runs)
        said = [a + b for a, b in zip(said, matched(done.groups.runs), strict=True)]
        for part, seconds in done.seconds.items():
            wall[part] = wall.get(part, 0.0) + seconds
    spent, truth = clock.spent(), trainer.truth
    out = {"after": place.held_out(seed), "curve": curve, "silent_groups": round(sum(dead) / len(dead), 4)}
    out |= {"runs": runs, "tokens": tokens, "rows": truth.rows, "true_rows": truth.true, "replies": truth.replies}
    out |= {"mismatch": truth.mismatch, "repeats": said[0], "matched": said[1], "anew": said[2]}
    out |= {"wall": {name: round(seconds, 2) for name, seconds in wall.items()}, "cpu": spent}
    place.close()
    return out


def by_lot(seed: int) -> Callable[[Any], Any]:
    """G2PO with the rewards of all runs of an iteration dealt among these runs by lot."""
    import numpy as np

    from clew.credit import assign, presets, steps
    from clew.credit.steps import as_groups

    drawn = np.random.default_rng([seed, 165])

    def credit(groups: Any) -> Any:
        found = steps(as_groups(groups))
        rewards = np.zeros(len(found.runs))
        rewards[found.run] = found.outcome
        outcome = drawn.permutation(rewards)[found.run]
        dealt = found.with_rewards(np.where(found.last, outcome, 0.0), outcome)
        return assign(groups, "g2po-lot", presets.g2po(), {"lot": seed}, columns=dealt)

    return credit


class Clock:
    """CPU-seconds since it was made, by who used them."""

    def __init__(self) -> None:
        self._began = self._now()

    def _now(self) -> dict[str, float]:
        from clew.sandbox.sandbox import spent

        engine = next((t.native_id for t in threading.enumerate() if t.name == "clew-engine"), None)
        ticks = Path(f"/proc/self/task/{engine}/schedstat").read_text().split()[0] if engine else 0
        times = os.times()
        own, children = times.user + times.system, times.children_user + times.children_system
        return {"sandbox": spent(), "engine": int(ticks) / 1e9, "own": own, "starting": children, "wall": time.time()}

    def spent(self) -> dict[str, float]:
        """sandbox: programs, their commands and judges. engine: the model. starting: what makes sandboxes. own: this
        process, the engine included. wall: seconds that passed."""
        now = self._now()
        return {name: round(now[name] - began, 2) for name, began in self._began.items()}


run = each(lambda setting, seed: (start if setting["kind"] == "start" else train)(setting, seed))
