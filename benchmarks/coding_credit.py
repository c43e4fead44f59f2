"""Credit of commands, where the worth of each is known: estimators on runs in a folder, by the files as states.

    python benchmarks/coding_credit.py [--seeds 24] [-n 16] [--json FILE]

A planted coder in a folder of three files puts right ``left`` and ``right``, which ``verify`` both wants, looks, loses
``data``, which it wants too and nothing brings back, or says that it is done: each with a fixed chance, whatever the
files are, in at most ``--steps`` commands. So the worth of every command in every state is known by enumeration
(``Repair.advantage``). Each seed is a group of ``n`` real runs of the agent coder in the sandbox. Printed for each
estimator: the correlation of its credit with the true advantage over the steps of a group, mean over seeds with a
bootstrap interval, and how much more than that of GRPO it is, paired by seed. "by text" is G2PO with what the agent saw
for the state, in place of the files.

Then the aliasing detector over all groups, by the files and by the text: whether a state hides something that the past
knows. The control judges the same runs by lot, as often right: no command has any worth then, and the same correlations
must vanish. States that occur late in long runs are worth less under a discount even so (``clew.credit``), so G2PO
stands there with gamma 1 too.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from clew import credit
from clew.core.protocols import World
from clew.core.reading import Record
from clew.core.records import Call, Report, Request
from clew.core.values import Completion, Message, Task, Usage
from clew.credit.filing import Credit
from clew.credit.steps import Key
from clew.harness import Runner
from clew.methods.compare.design import bootstrap
from clew.models.fakes import tool_call
from clew.store import Groups, Run
from clew.store.run import brief
from clew.worlds.workspace import Workspace

COMMANDS = {
    "look": "cat left right; test -f data",
    "left": "echo 1 > left",
    "right": "echo 1 > right",
    "lose": "rm -f data",
}
VERIFY = "grep -q 1 left && grep -q 1 right && test -f data"
BEGIN = {"left": "0\n", "right": "0\n", "data": "x\n"}
KEYS: Sequence[Key] = ("state", "text")
SAID = Usage(10, 4)  # tokens of a request and a reply


class State(NamedTuple):
    """What the files hold that counts."""

    left: bool = False
    right: bool = False
    data: bool = True

    def after(self, deed: str) -> State:
        return self._replace(**({"data": False} if deed == "lose" else {deed: True} if deed in self._fields else {}))


class Repair:
    """The planted coder, as a model: chances of its deeds, drawn by the request's seed alone.

    Args:
        plan: deeds of the first replies, as "look left lose"; chances hold after them.
        name: by which luck is drawn apart from that of other such models.
    """

    version, renderer = 0, None

    def __init__(
        self,
        look: float = 0.2,
        left: float = 0.25,
        right: float = 0.25,
        lose: float = 0.1,
        done: float = 0.2,
        steps: int = 6,
        plan: str = "",
        name: str = "",
    ) -> None:
        self.chances = {"look": look, "left": left, "right": right, "lose": lose, "done": done}
        given = {**self.chances, "steps": steps, "plan": plan, "name": name}
        told = ", ".join(f"{key}={value!r}" for key, value in given.items())
        self.ref, self.steps, self.name, self.asked = f"{Path(__file__).resolve()}:Repair({told})", steps, name, 0
        self.plan = plan.split()
        self.worth = cache(self._worth)

    async def complete(self, request: Request) -> Completion:
        self.asked += 1
        dice = random.Random(f"{self.name} {request.seed}")
        turn = sum(node.message.role == "assistant" for node in request.path)
        (deed,) = self.plan[turn : turn + 1] or dice.choices([*self.chances], [*self.chances.values()])
        if deed == "done":
            return Completion(Message("assistant", "All is put right."), usage=SAID)
        call = tool_call("bash", id=f"call_{dice.random()}", command=COMMANDS[deed])
        return Completion(call, finish="tool_calls", usage=SAID)

    # the truth

    def _worth(self, state: State, taken: int) -> float:
        """The chance of success from a state on, after so many commands."""
        return sum(chance * self.of(state, taken, deed) for deed, chance in self.chances.items())

    def of(self, state: State, taken: int, deed: str) -> float:
        """The chance of success where this is done next."""
        then = state.after(deed)
        return float(all(then)) if deed == "done" or taken + 1 == self.steps else self.worth(then, taken + 1)

    def advantages(self, run: Run) -> list[float]:
        """The true advantage of each step of a run."""
        state, found = State(), list[float]()
        for taken, step in enumerate(run.steps):
            deed = deed_of(step.act)
            found.append(self.of(state, taken, deed) - self.worth(state, taken))
            state = state.after(deed)
        return found


def deed_of(act: Call | None) -> str:
    """The deed that a recorded act is."""
    return "done" if act is None else next(name for name, command in COMMANDS.items() if command == brief(act))


def workspace(place: Path, steps: int = 6) -> Workspace:
    """The folder, as it begins, as a world; its snapshots lie beside it."""
    folder = place / "folder"
    folder.mkdir(exist_ok=True)
    for name, text in BEGIN.items():
        (folder / name).write_text(text)
    return Workspace(str(folder), "put it right", VERIFY, shelf=str(place / "files"), steps=steps)


def collected(place: Path, model: Repair, n: int, seeds: int) -> tuple[Runner, list[Groups]]:
    """A group of runs for each seed, in one store."""
    world = workspace(place, model.steps)
    runner = Runner("clew.harness.agents:coder", world, model, concurrency=8)
    return runner, [runner.collect(world.sample(1), n, seed) for seed in range(seeds)]


ESTIMATORS: Mapping[str, Callable[[Groups], Credit]] = {
    "grpo": lambda groups: credit.grpo(groups, store=False),
    "gigpo": lambda groups: credit.gigpo(groups, store=False),
    "g2po": lambda groups: credit.g2po(groups, store=False),
    "g2po, gamma 1": lambda groups: credit.g2po(groups, gamma=1.0, store=False),
    "g2po by text": lambda groups: credit.g2po(groups, key="text", store=False),
    "bellman": lambda groups: credit.bellman(groups, store=False),
}


def correlations(model: Repair, groups: Groups) -> dict[str, float]:
    """Of each estimator's credit with the truth, over the steps of the groups; 0 where it gives all steps the same."""
    found = {}
    for name, estimate in ESTIMATORS.items():
        known = estimate(groups)
        order = {run.id: run for group in groups for run in group}
        truth = [value for run in known.steps.runs for value in model.advantages(order[run])]
        value = np.where(known.diagnostics.present, known.value, 0.0)
        varied = np.ptp(value) > 0 and np.ptp(truth) > 0
        found[name] = float(np.corrcoef(value, truth)[0, 1]) if varied else 0.0
    return found


def aliased(made: Sequence[Groups], key: Key) -> credit.Aliasing:
    """What the detector says of all groups together."""
    return credit.aliasing(credit.steps([group for groups in made for group in groups], key=key))


def by_lot(runner: Runner, groups: Groups, seed: int) -> None:
    """Judge the runs anew: as many succeed, and which is drawn."""
    runs = list(groups.runs)
    rewards = [run.reward for run in runs]
    random.Random(f"lot {seed}").shuffle(rewards)
    drawn = {run.id: reward for run, reward in zip(runs, rewards, strict=True)}

    async def lottery(task: Task, run: Record, world: World | None) -> Mapping[str, float | None]:
        return {"reward": drawn[run.id]}

    runner.judge(runs, lottery)


def mean(claim: str, values: list[float]) -> Report:
    return bootstrap(claim, lambda x: x.mean(-1), np.asarray(values))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=24)
    parser.add_argument("-n", type=int, default=16)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    model, kept = Repair(steps=options.steps), list[dict[str, Any]]()
    found: dict[str, list[dict[str, float]]] = {}
    with tempfile.TemporaryDirectory() as place:
        runner, made = collected(Path(place), model, options.n, options.seeds)
        found["judged by verify"] = [correlations(model, groups) for groups in made]
        detected: dict[Key, credit.Aliasing] = {key: aliased(made, key) for key in KEYS}
        for seed, groups in enumerate(made):
            by_lot(runner, groups, seed)
        found["judged by lot"] = [correlations(model, groups) for groups in made]
    print(f"{options.seeds} groups of {options.n} runs; correlation of credit with the true advantage, 95 % intervals")
    for case, rows in found.items():
        print(f"\n{case:18} {'correlation':24} more than grpo")
        for name in ESTIMATORS:
            own = mean(name, [row[name] for row in rows])
            more = mean(name, [row[name] - row["grpo"] for row in rows])
            print(f"{name:18} {str(own).split(' n=')[0]:24} {str(more).split(' n=')[0]}")
            numbers = {key: [it.estimate, it.low, it.high, it.n] for key, it in (("own", own), ("more", more))}
            kept.append({"case": case, "estimator": name, **numbers})
    print()
    for key, it in detected.items():
        print(f"by {'the files' if key == 'state' else 'the text'}: {it.verdict}. {it.why}")
        kept.append({"aliasing": key, "verdict": it.verdict, "p": it.p, "effect": it.effect, "compared": it.compared})
    if options.json:
        options.json.write_text(json.dumps(kept, indent=1))


if __name__ == "__main__":
    main()
