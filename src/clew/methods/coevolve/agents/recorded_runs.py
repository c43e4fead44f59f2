"""Runs of a search: each job is a run in the store, under a name that says whose genome, which task, which repeat.

A run that a killed search has made already is found by that name and not made again; one that failed by model or world
is. The names are ``evolve/SEARCH/PART/GENOME/TASK/REPEAT/0``. This file must never judge: it performs and shows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from clew.core.errors import ModelError
from clew.core.keys import value_digest
from clew.core.records import Call, GroupRow, action_of
from clew.core.values import StopReason, Task, ToolCall
from clew.harness import Runner
from clew.harness.collecting import Opened, ended, named, open_groups
from clew.store import Run

Cost = Mapping[str, float]
FAILED = (StopReason.MODEL_ERROR, StopReason.WORLD_ERROR, StopReason.AGENT_ERROR, StopReason.NO_WORLD)
AGAIN = (StopReason.MODEL_ERROR, StopReason.WORLD_ERROR, StopReason.CANCELLED)
DOWN = 3  # batches that failed as a whole, one after the other, after which the endpoint is given up
LONGEST = 30_000  # characters of work that are kept
LINE = 2_000  # characters of one answer


class Piece(NamedTuple):
    """A task for a genome. luck: the seed of its run."""

    genome: str
    task: Task
    repeat: int
    luck: int


class RecordedRuns:
    """Performs pieces with one agent.

    Args:
        runner: of the agent, its world, model and store; its config is what the agent is given besides.
        argument: of the agent that is the genome.
        name: of the search.
        on_run: called with each run that has ended.
    """

    def __init__(
        self, runner: Runner, argument: str, name: str, on_run: Callable[[Run], None] = lambda run: None
    ) -> None:
        self.runner, self.argument, self.name, self.on_run = runner, argument, f"evolve/{name}", on_run
        self._known: dict[str, GroupRow] | None = None
        self._down = 0

    async def perform(self, part: str, pieces: Sequence[Piece]) -> list[Run | None]:
        """Each piece's run; None where model, world or agent failed.

        Raises:
            ModelError: the model has failed in all runs of several batches: it will not answer.
        """
        store = self.runner.store
        if self._known is None:
            self._known = named(store, self.name)
        opened, of = list[Opened](), dict[tuple[str, str, int], str]()
        for piece in pieces:
            key = (piece.genome, piece.task.id, piece.repeat)
            if key not in of:
                one = self._open(part, piece)
                of[key] = one.group.runs[0]
                opened.append(one)
        made = dict[str, Run]()
        async for group in ended(self.runner.spec, self.runner.executor, opened, self.on_run):
            made |= {run.id: run for run in group}
        self._refuse_down(list(made.values()))
        found = [made[of[piece.genome, piece.task.id, piece.repeat]] for piece in pieces]
        return [None if run.stop in FAILED else run for run in found]

    def _open(self, part: str, piece: Piece) -> Opened:
        """The group of a piece, as the store has it or a new one."""
        assert self._known is not None
        spec = self.runner.spec
        spec = replace(spec, config={**spec.config, self.argument: piece.genome})
        name, again = f"{self.name}/{part}/{genome_name(piece.genome)}/{piece.task.id}", 0
        while (found := self._known.get(label := f"{name}{f'.{again}' * bool(again)}/{piece.repeat}/0")) is not None:
            if Run(spec.store, found.runs[0]).stop not in AGAIN:
                break
            again += 1
        known = {} if found is None else {label: found}
        (one,) = open_groups(
            spec, [piece.task], 1, piece.luck, label.removesuffix(f"/{piece.repeat}/0"), piece.repeat, known
        )
        self._known[label] = one.group
        return one

    def _refuse_down(self, runs: Sequence[Run]) -> None:
        failed = [run for run in runs if run.stop is StopReason.MODEL_ERROR]
        self._down = self._down + 1 if failed and len(failed) == len(runs) else 0
        if self._down >= DOWN:
            remedy = "Mend what the error names, and give the same line again: nothing is lost."
            raise ModelError(f"the model fails in every run: {failed[0].calls[-1].error}", remedy=remedy)


def genome_name(genome: str) -> str:
    """The short name of a genome in the names of its runs: 8 hexadecimal digits."""
    return value_digest(genome).hex()[:8]


def spent(runs: Sequence[Run | None]) -> Cost:
    """Tokens and dollars of runs, and how many failed."""
    total = Counter[str]()
    for run in runs:
        if run is None:
            total["failed"] += 1
            continue
        total["tokens"] += sum(c.usage.prompt + c.usage.completion for c in run.calls)
        if run.cost:
            total["dollars"] += run.cost  # type: ignore[assignment]  # dollars are no whole numbers
    return dict(total)


def last_reply(run: Run) -> str:
    """The last text that the model said; "" where it said none."""
    asks = [call for call in run.calls if call.kind == "ask" and call.node_out and not call.error]
    return run.store.node(asks[-1].node_out).message.text if asks else ""


def shown_work(run: Run, task: Task) -> dict[str, str]:
    """A run as judges and proposers see it (JSON): the task's text, and the work, a line for each act, then what the
    model said last. Bounded; neither rewards nor ids of tasks are in it."""
    lines = [_line(call) for call in run.calls if call.kind == "act" and call.state and not call.error]
    if last := last_reply(run):
        # What was said cannot pass for a line of what was done.
        lines.append("said: " + last.replace("\n", "\n  ") if lines else last)
    asked = task.prompt or "\n".join(str(said.get("content", "")) for said in task.data.get("messages", ()))
    return {"task": asked[:LONGEST], "work": "\n".join(lines)[-LONGEST:]}


def _line(call: Call) -> str:
    action = action_of(call)
    done = f"{action.name} {action.arguments}" if isinstance(action, ToolCall) else action
    return f"{' '.join(done.split())[:LINE]} -> {' '.join(call.text.split())[:LINE]}"
