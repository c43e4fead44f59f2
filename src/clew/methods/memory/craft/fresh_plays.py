"""Shadow tasks that are played anew, with the plan as text, where too few stored runs followed it.

``workshop.build`` asks for them one by one. A new task is one of the runs' own taskset; what made the stored runs plays
it, as it played those, and the run is kept and judged like any other, so that it is never paid for twice. It is not
counted in the ledgers of items: a plan must not recur because its tool was being checked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from typing import NamedTuple

from clew.core.errors import AgentFailed, CannotRestore, ClewError, StoreError
from clew.core.keys import derive, value_digest
from clew.core.printable import short
from clew.core.protocols import Model, Taskset
from clew.core.records import Call, GroupRow, RunRow
from clew.core.values import Task
from clew.harness.collecting import named
from clew.harness.memory import Item, Memory
from clew.harness.memory.ranking import words
from clew.harness.memory.recalled import Shown, first_recall
from clew.harness.memory.recalling import Asked, Memories
from clew.harness.runner import Runner
from clew.methods.memory.craft.query_shapes import plain
from clew.methods.memory.craft.stored_plays import Play, by_text
from clew.methods.memory.lessons.spent import executed, spend
from clew.store import Run
from clew.store.base import Keeper
from clew.worlds.world_asks import open_world

POOL = 256  # tasks of the taskset among which those are taken that ask for what the plan was given for


class Expected(NamedTuple):
    """What a task played anew takes, by the stored runs that followed the plan: means."""

    tokens: float
    dollars: float
    seconds: float


class FreshPlays:
    """New plays of a plan, as many as are asked for and no more than ``most``.

    Args:
        taskset: of the stored runs.
        some: stored runs that followed the plan; the first says how new ones are played.
        most: tasks that are played now at most. Those that were played before cost nothing and come first.
        resolve: gives the model of a reference.
        progress: called with how many were begun, before each that is played now.
    """

    def __init__(
        self,
        memory: Memory,
        plan: Item,
        taskset: Taskset,
        some: Sequence[Play],
        most: int,
        resolve: Callable[[str], Model] | None = None,
        progress: Callable[[int], None] = lambda begun: None,
    ) -> None:
        self.memory, self.plan, self.taskset, self.most = memory, plan, taskset, most
        self.played = self.given = 0  # tasks that were played now; of all that were played those that got the plan
        self._some, self._resolve, self._progress, self._why = some, resolve, progress, ""

    def __iter__(self) -> Iterator[Play]:
        """Play on until there is one that followed the plan. It ends where no more may be played, and where what made
        the runs cannot be had any more; ``told`` says so."""
        known = named(self.memory.store, self._label())
        try:
            self._in_earnest()
            for task in sorted(self._tasks(), key=lambda task: self._group(task) not in known):
                group = known.get(self._group(task))
                if group is None and self.played >= self.most:
                    return
                if group is None:
                    self.played += 1
                    self._progress(self.played)
                run = self._play(task, group)
                found = run and play_of(self.memory.store, run, self.plan.id)
                if found:
                    self.given += 1
                    yield found
        except StoreError:
            raise
        except ClewError as error:
            self._why = f" ({short(error.message, 200)})"

    @property
    def told(self) -> str:
        """What came of it, for a sentence."""
        return f"{self.played} more tasks were played, and {self.given} of all that were were given the plan{self._why}"

    def _in_earnest(self) -> None:
        """Refuse a world that is not made again: no tool could be tried there afterwards, and its tasks may have
        effects that stay.

        Raises:
            CannotRestore: it is of kind ``none``.
        """
        row = self.memory.store.row(self._some[0].run)
        with closing(open_world(self.taskset, self.taskset.find(row.task_id))) as world:
            if world.restores not in ("exact", "reenact"):
                raise CannotRestore(f"a world of kind {world.restores} is not played in for a shadow run")

    def _play(self, task: Task, group: GroupRow | None) -> Run | None:
        """Play one task, or finish it where it was begun; the cost is written down when it has ended."""
        store = self.memory.store
        if group is not None and Run(store, group.runs[0]).stop is not None:
            return Run(store, group.runs[0])
        runner = Runner.of(store, self._some[0].run, resolve_model=self._resolve)
        runner.memories = _Uncounted(store)
        try:
            (run,) = runner.collect([task], 1, derive(0, "shadow", self.plan.id), name=self._label(task)).runs
        except AgentFailed:
            return None
        else:
            cost = executed(store.calls(run.id))
            store.put_entries([spend(self.memory.name, "checking", cost, plan=self.plan.id, run=run.id)])
        return run

    def _tasks(self) -> list[Task]:
        """Tasks that no stored run is of and nobody asked yet, those first that are likest to the plan's queries."""
        store, asked = self.memory.store, [given.query for given in self.plan.given]
        done, said = {store.row(play.run).task_id for play in self._some}, {*map(plain, asked)}
        fresh = [task for task in drawn(self.taskset, derive(0, "shadow", self.plan.id)) if task.id not in done]
        own = [{*words(query)} for query in asked]
        likest = {task.id: max((_share({*words(task.prompt)}, one) for one in own), default=0.0) for task in fresh}
        return sorted((task for task in fresh if plain(task.prompt) not in said), key=lambda task: -likest[task.id])

    def _label(self, task: Task | None = None) -> str:
        """The name of the collection that a task is played in, or of all of this plan's."""
        of_plan = f"shadow/{self.plan.id}"
        return f"{of_plan}/{value_digest(task.id).hex()[:12]}" if task is not None else of_plan

    def _group(self, task: Task) -> str:
        return f"{self._label(task)}/0/0"


class _Uncounted(Memories):
    """Recalls as ever, and writes nothing into the ledgers."""

    def count(self, asked: Asked, runs: Keeper, row: RunRow, call: Call, items: Iterable[Shown]) -> None:
        return


def play_of(store: Keeper, run: Run, plan: str) -> Play | None:
    """A run at the place where it was given a plan; None where it was not, did not end, or a tool answered in it."""
    seq, _ = first_recall(run.calls, [plan])
    return Play(run.id, seq, run.calls[seq].action) if seq >= 0 and by_text(run) else None


def drawn(taskset: Taskset, seed: int) -> list[Task]:
    """Tasks of a taskset, 256 or, where it has fewer, as many as a half of that, and so on; each once."""
    n = POOL
    while True:
        try:
            found = taskset.sample(n, seed)
        except ClewError:
            if n == 1:
                raise
            n //= 2
        else:
            return list({task.id: task for task in found}.values())


def expected(store: Keeper, some: Sequence[Play]) -> Expected:
    """What a new task will take, by the stored runs that followed the plan."""
    costs, seconds = [executed(store.calls(play.run)) for play in some], 0.0
    for play in some:
        seconds += sum(call.seconds for call in store.calls(play.run))
    n = max(len(some), 1)
    return Expected(sum(cost.tokens for cost in costs) / n, sum(cost.dollars for cost in costs) / n, seconds / n)


def _share(a: set[str], b: set[str]) -> float:
    return len(a & b) / len(a | b) if a or b else 0.0
