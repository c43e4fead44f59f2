"""Asking a pool: every sample of a worker at a question is a stored run, and a run that is there is not asked again.

``clew route measure`` calls it. What counts as one sample: the model, the agent with its source and settings, the
task, and the seed. A run that ended because its model or its world failed is no sample; it is asked again.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from clew.core.aio import run_sync
from clew.core.errors import BadInput
from clew.core.protocols import answers_for, weights_of
from clew.core.values import StopReason, Task, Usage
from clew.harness import Runner
from clew.harness.executors import Prepared, driven
from clew.harness.run.spec import OnRun
from clew.methods.routing.reward_matrix import FAMILY, Matrix, Scored, matrix
from clew.models.compose.ngrams import transcript
from clew.store import Run
from clew.store.base import Keeper
from clew.store.protocol import Summary
from clew.worlds.scorers.numeric import last_number

NO_SAMPLE = frozenset({StopReason.MODEL_ERROR, StopReason.WORLD_ERROR, StopReason.AGENT_ERROR, StopReason.CANCELLED})
LETTERS = 3.0  # characters of a token, on the low side


@dataclass(slots=True)
class Wanted:
    """What one worker has answered and what is missing.

    had: ids of runs that count, by task. open: runs that a stopped measuring left. missing: tasks by how many samples
    they have, each of which is to get ``n``. cost: mean US dollars of the runs it has; NaN where there is none.
    """

    worker: str
    runner: Runner
    n: int
    had: dict[str, list[str]] = field(default_factory=dict)
    open: list[str] = field(default_factory=list)
    missing: dict[int, list[Task]] = field(default_factory=dict)
    cost: float = math.nan

    @property
    def calls(self) -> int:
        """Runs to make or to finish."""
        return len(self.open) + sum((self.n - have) * len(tasks) for have, tasks in self.missing.items())

    @property
    def dollars(self) -> float:
        """What these will cost, in US dollars: by the mean of the runs there are, else at most, by price and tokens.

        0 where the model costs nothing here, NaN where its price is not known.
        """
        if not self.calls:
            return 0.0
        model = self.runner.model
        price = getattr(model, "price", None)
        if price is None and hasattr(model, "price"):
            return math.nan
        if not math.isnan(self.cost):
            return self.cost * self.calls
        if price is None:
            return 0.0
        tasks = [task for tasks in self.missing.values() for task in tasks]
        letters = sum(len(task.prompt) for task in tasks) / max(1, len(tasks))
        most = int(self.runner.sampling.get("max_tokens", 256))
        return float(price.cost(Usage(math.ceil(letters / LETTERS), most))) * self.calls


def wanted(worker: str, runner: Runner, tasks: Sequence[Task], n: int) -> Wanted:
    """What the store has of a worker's samples of these tasks, and what is missing.

    Args:
        runner: with the worker as its model. n: samples of each task.
    """
    out = Wanted(worker, runner, n)
    like = runner.row(Task("", ""))
    names, costs = {task.id for task in tasks}, list[float]()
    for one in _runs_of(runner.store, like.model):
        if one.task not in names or one.world != like.taskset or one.agent != like.agent:
            continue
        if one.stop in NO_SAMPLE or not _same(runner, one.run):
            continue
        if one.stop:
            costs.append(one.cost)
            out.had.setdefault(one.task, []).append(one.run)
        else:
            out.open.append(one.run)
    waiting = [runner.store.row(run).task_id for run in out.open]
    for task in tasks:
        have = len(out.had.get(task.id, ())) + waiting.count(task.id)
        if have < n:
            out.missing.setdefault(have, []).append(task)
    if costs:
        out.cost = sum(costs) / len(costs)
    return out


def _runs_of(store: Keeper, model: str) -> list[Summary]:
    quoted = model.replace("\\", "\\\\").replace('"', '\\"')
    rows = store.page(f'origin=collect model="{quoted}"').rows
    return [row for row in rows if row.model == model]


def _same(runner: Runner, run: str) -> bool:
    """Whether a run was made as the runner would make it: agent, sampling, tools, weights."""
    row, like = runner.store.row(run), runner.row(Task("", ""))
    if (row.agent_digest, row.config) != (like.agent_digest, like.config):
        return False
    a, b = (json.loads(one.settings) for one in (row, like))
    if any(a.get(name) != b.get(name) for name in ("sampling", "tools", "limits")):
        return False
    model = runner.model
    if model is None or not weights_of(model):
        return True
    asked = next((call for call in Run(runner.store, row).calls if call.kind == "ask" and call.setup is not None), None)
    return asked is None or asked.setup is None or answers_for(model, asked.setup)


def ask(it: Wanted, seed: int = 0, on_run: OnRun | None = None) -> None:
    """Finish what a stopped measuring left, and collect what is missing, all in the worker's store.

    Seeds derive from (seed, samples there were, task, number), so that a later sample never repeats an earlier one.

    Raises:
        BadInput: the worker did not answer a single time.
    """
    runner = it.runner
    left = [Prepared(row, runner.task_of(row)) for row in map(runner.store.row, it.open)]

    async def finished() -> list[Run]:
        async with aclosing(driven(runner.executor, runner.spec, left, on_run)) as ended:
            return [run async for run in ended]

    runs = run_sync(finished())
    for have, tasks in sorted(it.missing.items()):
        runs += runner.collect(tasks, it.n - have, seed, iteration=have, on_run=on_run).runs
    failed = [run for run in runs if run.stop in (StopReason.MODEL_ERROR, StopReason.WORLD_ERROR)]
    if runs and len(failed) == len(runs):
        raise BadInput(
            f"{it.worker} did not answer: {failed[0].calls[-1].error}",
            remedy="Mend what the error names and run the line again; answers of the other workers are kept.",
        )


def gathered(pool: Iterable[Wanted], tasks: Sequence[Task]) -> list[Run]:
    """The runs of these tasks that count, first ``n`` of each worker and task, in the order in which they were made."""
    out = list[Run]()
    for it in pool:
        now = wanted(it.worker, it.runner, tasks, it.n)
        for task in tasks:
            out += [Run(it.runner.store, run) for run in now.had.get(task.id, ())[: it.n]]
    return out


def rewards_of(runs: Iterable[Run]) -> dict[str, float]:
    """Mean reward by task, of the runs that count and were judged."""
    found: dict[str, list[float]] = {}
    for run in runs:
        reward = run.reward
        if reward is not None and run.stop is not None and run.stop not in NO_SAMPLE:
            found.setdefault(run.task_id, []).append(reward)
    return {task: sum(rewards) / len(rewards) for task, rewards in found.items()}


def of_runs(
    runs: Sequence[Run], *, family: str = "", workers: Sequence[str] = (), told: Callable[[], None] = lambda: None
) -> Matrix:
    """The matrix of stored runs: a worker is the model of a run, a question its task.

    Args:
        family: field of the tasks' data that names the family; default: family, subject or category, else the world
            where there are several.
        workers: names of the models, in order; default: as the runs bring them. told: called after each run.

    Raises:
        BadInput: no run, none of them was judged, or see ``matrix``.
    """
    if not runs:
        raise BadInput("there is no run to read", remedy="Measure a pool with `clew route measure`.")
    worlds, ways = len({run.row.taskset for run in runs}), {(run.row.agent, run.row.config) for run in runs}
    out, undecided, failed = list[Scored](), 0, 0
    texts = dict[str, str]()
    for run in runs:
        reward = run.reward
        told()
        if run.stop is None or run.stop in NO_SAMPLE:
            failed += 1
        elif reward is None:
            undecided += 1
        else:
            out.append(_scored(run, reward, family, worlds > 1, texts))
    if not out:
        said = f"none of {len(runs)} runs has a reward"
        remedy = "Give --reward with --data, or a world that judges; `clew show RUN` tells why a run has none."
        raise BadInput(f"{said}: their questions have no checker, or every run failed", remedy=remedy)
    notes = [f"{undecided} runs without a reward are left out"] if undecided else []
    notes += [f"{failed} runs that failed or have not ended are left out"] if failed else []
    notes += [f"runs of {len(ways)} agents or settings are taken together"] if len(ways) > 1 else []
    return matrix(out, workers, notes)


def _scored(run: Run, reward: float, family: str, several: bool, texts: dict[str, str]) -> Scored:
    """``texts``: what the worker of each question was sent first, filled here: it is read once."""
    task: Mapping[str, Any] = json.loads(run.row.task or "{}")
    data = task.get("data") or {}
    named = (family,) if family else FAMILY
    found = next((str(data[name]) for name in named if data.get(name) not in (None, "")), "")
    asks = [call for call in run.calls if call.kind == "ask" and call.node_out]
    answer = answered(run.reply(asks[-1].seq).message.text) if len(asks) == 1 else ""
    price = run.cost if any(call.cost for call in asks) or not _priced(asks) else math.nan
    question = question_of(run, several)
    kind = found or (run.row.taskset if several else "")
    if question not in texts:
        sent = run.store.thread(asks[0].node_in) if asks else ()
        texts[question] = transcript([node.message for node in sent]) or run.task_id
    return Scored(question, texts[question], run.model, reward, kind, price, answer, run.id)


def question_of(run: Run, several: bool) -> str:
    """What a matrix calls the task of a run; ``several``: whether it holds tasks of several worlds."""
    return f"{run.row.taskset}\n{run.task_id}" if several else run.task_id


def _priced(asks: Sequence[Any]) -> bool:
    """Whether an endpoint answered, whose price may be unknown; weights in this process cost nothing."""
    return any(call.attempts for call in asks)


def answered(text: str) -> str:
    """What a reply comes to, for a majority: its last number, else its last line in small letters."""
    number = last_number(text)
    if number is not None:
        return str(number)
    line = next((line for line in reversed(text.splitlines()) if line.strip()), "")
    return " ".join(line.split()).casefold()[:200]
