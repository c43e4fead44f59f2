"""Whether a simulated desk ranks agents as the real one does: Kendall's tau of four graded agents.

    python benchmarks/simulated_desk.py [--tasks 100] [--seed 0] [--json FILE]

No pretrained model is at hand where this runs, so that the simulator is a script, `Nearest`, in a chat model's place:
it reads nothing but the messages that a chat model would get (the tools' schemas, ten recorded runs, the request of the
last ticket as the state at the start) and answers as the most similar recorded turn, with the arguments of the present
call in place of the recorded ones. `--noise` makes a share of its answers useless, to see how much a ranking bears.

The agents are scripts too: each does the right thing at each decision with its own chance (.95, .8, .6, .35), by what
the desk answers it. The ten recorded runs are of all four, on other tasks, through `clew export`. Every agent works the
same tasks in the real desk and in each simulated one, and the desk's own judge decides on the calls. Printed: success
of each agent in each world, the share of turns in which the worlds agree, the shares of runs that the simulator could
not answer, and tau-b over the four agents, with the percentile bootstrap over tasks, which are drawn together.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from clew.core.keys import derive
from clew.core.records import Request
from clew.core.registry import register
from clew.core.values import Completion, Message, ToolCall, Usage
from clew.exchange import export
from clew.harness import Runner
from clew.methods.world_model import Simulated
from clew.methods.world_model.prompting import reply_text
from clew.methods.world_model.tool_files import wire_of
from clew.store import Groups
from clew.worlds.desk import Desk, natural

GRADES = (0.95, 0.8, 0.6, 0.35)
NOISE = (0.0, 0.2, 0.4, 0.8)
REAL = "desk(tickets=1)"
OBSERVED = r"<predicted_observation>\n((?:.*\n)*?)</predicted_observation>(\n<episode_over>)?"
TURN = re.compile(rf"^> (\w+) (.*)\n{OBSERVED}", re.MULTILINE)
ASKED = re.compile(r"in which state is order (\w+)")


class Clerk:
    """An agent's model: does the right thing with a chance, by the last ticket and the last answer that it sees."""

    version, renderer = 0, None

    def __init__(self, grade: float, desk: Desk, tasks: Sequence[str]) -> None:
        self.grade, self.ref = grade, f"clerk-{grade}"
        self.cases = {desk.find(name).prompt: desk.case(name) for name in tasks}

    async def complete(self, request: Request) -> Completion:
        said = [node.message for node in request.path]
        right = random.Random(request.seed).random() < self.grade
        name, given = self._does(said, right)
        call = ToolCall(f"call_{len(said)}", name, json.dumps(given))
        return Completion(Message("assistant", "", calls=(call,)), usage=Usage(1, 1))

    def _does(self, said: Sequence[Message], right: bool) -> tuple[str, dict[str, object]]:
        prompt = next(m.text for m in said if m.role == "user")
        case = self.cases[prompt]
        told = [prompt, *(m.text for m in said if m.role == "tool")]
        at = max(i for i, text in enumerate(told) if "Ticket: " in text)
        ticket, since = told[at].rpartition("Ticket: ")[2], told[at + 1 :]
        if (asked := ASKED.search(ticket)) is not None:
            if not since:
                return ("look_up", {"order": asked[1]}) if right else ("close", {"outcome": "done"})
            found = re.search(r'"state": "([^"]*)"', since[-1])
            return "close", {"outcome": found[1] if found and right else "unknown"}
        if since and (not since[-1].startswith("error") or len(since) > 2):
            return "close", {"outcome": "done"}
        allowed = case.allowed is right
        return natural(case) if allowed else ("escalate", {"reason": case.text})


class Nearest:
    """A model of the desk: the most similar turn of the recorded examples, with the arguments of the present call."""

    ref, version, renderer = "nearest", 0, None

    def __init__(self, noise: float) -> None:
        self.noise, self.calls, self.seconds = noise, 0, 0.0

    async def complete(self, request: Request) -> Completion:
        began = time.perf_counter()
        text = self._answer([node.message for node in request.path])
        self.calls, self.seconds = self.calls + 1, self.seconds + time.perf_counter() - began
        return Completion(Message("assistant", text), usage=Usage(1, 1))

    def _answer(self, said: Sequence[Message]) -> str:
        system = said[0].text
        acts = [m.text for m in said if m.role == "user"]
        name, _, raw = acts[-1].partition(" ")
        if random.Random(derive(0, *acts)).random() < self.noise:
            return reply_text(random.Random(derive(1, *acts)).choice(["done", "error: try later", "{}"]))
        given, closed = json.loads(raw), sum(act.startswith("close ") for act in acts[:-1])
        best, score, last = "error: not possible", -1.0, False
        for example in system.partition("Recorded examples:\n")[2].split("\nTask: "):
            turns, closes = TURN.findall(example), 0
            for tool, arguments, seen, over in turns:
                theirs = json.loads(arguments)
                alike = (
                    1 + sum(theirs.get(k) == v for k, v in given.items()) / 9 + (closes == closed) * (name == "close")
                )
                if tool == name and alike > score:
                    for key, value in theirs.items():
                        if isinstance(value, str) and value and isinstance(given.get(key), str):
                            seen = seen.replace(value, str(given[key]))
                    best, score, last = seen.strip(), alike, bool(over)
                closes += tool == "close"
        if name == "close" and best.startswith("Ticket: "):
            best = "Ticket: " + system.partition("State at the start:\nrequest: ")[2].partition("\n\n")[0]
        return reply_text(best, done=last)


def tau(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Kendall's tau-b over the last axis; 0 where all of one side are equal."""
    i, j = np.triu_indices(x.shape[-1], 1)
    dx, dy = np.sign(x[..., i] - x[..., j]), np.sign(y[..., i] - y[..., j])
    norm = np.sqrt((dx != 0).sum(-1) * (dy != 0).sum(-1))
    return (dx * dy).sum(-1) / np.maximum(norm, 1e-9)


def rewards(groups: Groups, n: int) -> np.ndarray:
    """float64 [n]: the reward of each task's run; NaN where it has none."""
    found = [run.reward for run in groups.runs]
    assert len(found) == n
    return np.array([np.nan if one is None else one for one in found])


def main() -> None:
    parser = argparse.ArgumentParser(description="See the module's docstring.")
    parser.add_argument("--tasks", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--noise", type=float, nargs="+", default=NOISE)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    register("tasksets", "simulated", Simulated)  # as the entry point does
    folder = Path(tempfile.mkdtemp())
    desk = Desk(tickets=1)
    tasks, others = desk.sample(given.tasks, given.seed, "test"), desk.sample(10, given.seed, "train")
    clerks = [Clerk(grade, desk, [t.id for t in [*tasks, *others]]) for grade in GRADES]

    shown = Runner("clew.harness.agents:tool_user", desk, clerks[0])
    recorded = [shown.collect([task], 1, model=clerks[i % 4]).runs[0] for i, task in enumerate(others)]
    export(shown.store, recorded, str(folder / "runs.jsonl"))
    specs = desk.open(tasks[0]).tools
    (folder / "tools.json").write_text(json.dumps([wire_of(spec) for spec in specs]))

    runner = Runner("clew.harness.agents:tool_user", desk, clerks[0])
    real = np.stack([rewards(runner.collect(tasks, 1, given.seed, model=clerk), len(tasks)) for clerk in clerks])
    told = {"tools": str(folder / "tools.json"), "demos": str(folder / "runs.jsonl"), "shots": 10, "told": ["request"]}
    print(f"{len(tasks)} tasks, agents {', '.join(map(str, GRADES))}; success in the real desk: {means(real)}")
    rows = []
    for noise in given.noise:
        model = Nearest(noise)
        taskset = Simulated(world=REAL, model="nearest", kept=False, **told)
        runner = Runner("clew.harness.agents:tool_user", taskset, clerks[0], resolve_model=lambda ref, m=model: m)
        groups = [runner.collect(tasks, 1, given.seed, model=clerk) for clerk in clerks]
        made = np.stack([rewards(group, len(tasks)) for group in groups])
        agree = [[a.value for a in run.annotations("fidelity")] for group in groups for run in group.runs]
        agreeing = np.array([values[0] for values in agree if values], float)
        unanswered = float(np.isnan(made).mean())
        estimate, low, high = interval(real, made, given.seed)
        rows.append({"noise": noise, "success": np.nanmean(made, 1).tolist(), "agreement": float(agreeing.mean()),
                     "unanswered": unanswered, "tau": estimate, "low": low, "high": high})  # fmt: skip
        print(f"noise {noise}: success {means(made)}, turns that agree {agreeing.mean():.2f} (n={agreeing.size} runs), "
              f"unanswered {unanswered:.3f}, tau {estimate:.2f} [{low:.2f}, {high:.2f}]")  # fmt: skip
    if given.json:
        given.json.write_text(json.dumps({"tasks": len(tasks), "real": real.mean(1).tolist(), "rows": rows}))


def means(x: np.ndarray) -> str:
    return " ".join(f"{value:.2f}" for value in np.nanmean(x, 1))


def interval(real: np.ndarray, made: np.ndarray, seed: int, resamples: int = 4000) -> tuple[float, float, float]:
    """Tau of the agents' mean rewards, and the percentile bootstrap over tasks, which both worlds share."""
    picks = np.random.default_rng(seed).integers(0, real.shape[1], (resamples, real.shape[1]))
    drawn = tau(np.nanmean(real[:, picks], 2).T, np.nanmean(made[:, picks], 2).T)
    low, high = np.percentile(drawn, [2.5, 97.5])
    estimate = float(tau(np.nanmean(real, 1), np.nanmean(made, 1)))
    return estimate, min(float(low), estimate), max(float(high), estimate)


if __name__ == "__main__":
    main()
