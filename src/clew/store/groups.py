"""Read-only views of runs that are compared with each other: ``Group`` and ``Groups``, which ``collect`` returns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, overload

import numpy as np
import numpy.typing as npt

from clew.core import stats
from clew.core.errors import BadInput, need
from clew.core.records import GroupRow, Report, RunRow
from clew.store.protocol import Tables, rewards, undecided
from clew.store.run import Run

if TYPE_CHECKING:
    from pandas import DataFrame


class Group(Sequence[Run]):
    """Runs of one task that are compared with each other, in order."""

    def __init__(self, store: Tables, row: GroupRow | str) -> None:
        self.store = store
        self.row = store.group(row) if isinstance(row, str) else row
        self._runs = [Run(store, run) for run in self.row.runs]

    @property
    def id(self) -> str:
        return self.row.id

    @property
    def kind(self) -> str:
        """iid, tree or matched."""
        return self.row.kind

    @property
    def task_id(self) -> str:
        return self.row.task_id

    @overload
    def __getitem__(self, index: int) -> Run: ...
    @overload
    def __getitem__(self, index: slice) -> list[Run]: ...
    def __getitem__(self, index: int | slice) -> Run | list[Run]:
        return self._runs[index]

    def __len__(self) -> int:
        return len(self._runs)

    def __repr__(self) -> str:
        return f"<Group {self.id} {self.kind} {self.task_id} {len(self)} runs>"

    @property
    def rewards(self) -> npt.NDArray[np.float64]:
        """The judge's rewards, float64 [runs]; NaN where a run was not judged."""
        found = rewards(self.store, self.row.runs)
        return np.array([found.get(run, np.nan) for run in self.row.runs], np.float64)

    @property
    def signal(self) -> bool:
        """Whether two judged rewards differ: by inequality, since a deviation of equal rewards may round above 0."""
        rewards = self.rewards
        return len(np.unique(rewards[~np.isnan(rewards)])) > 1

    def frame(self) -> DataFrame:
        """A pandas DataFrame with one row per run."""
        return Groups([self]).frame()

    def _repr_html_(self) -> str:
        return _table(f"group {self.id} {self.kind} {self.task_id}", [self])


class Groups(Sequence[Group]):
    """What ``collect`` hands back."""

    def __init__(self, groups: Iterable[Group]) -> None:
        self._groups = list(groups)

    @overload
    def __getitem__(self, index: int) -> Group: ...
    @overload
    def __getitem__(self, index: slice) -> Groups: ...
    def __getitem__(self, index: int | slice) -> Group | Groups:
        return Groups(self._groups[index]) if isinstance(index, slice) else self._groups[index]

    def __len__(self) -> int:
        return len(self._groups)

    def __repr__(self) -> str:
        return f"<Groups {len(self)} groups {len(self.runs)} runs>"

    @property
    def runs(self) -> list[Run]:
        return [run for group in self._groups for run in group]

    def _judged(self) -> Iterator[tuple[Run, float]]:
        for group in self._groups:
            for run, reward in zip(group, group.rewards, strict=True):
                if not np.isnan(reward):
                    yield run, float(reward)

    def _verdicts(self) -> list[tuple[Run, float]]:
        """Judged runs with their rewards. Raises BadInput where there is none."""
        judged = list(self._judged())
        if not judged:
            why = undecided(self.runs[0].store, [run.id for run in self.runs]) if self.runs else ""
            said = f"no run of these groups has a reward: {why}" if why else "no run of these groups was judged"
            raise BadInput(said, remedy="" if why else "Judge them with `Runner.judge`.")
        return judged

    def worst(self) -> Run:
        """The run with the lowest reward; among equals the longest, then the first.

        Raises:
            BadInput: no run was judged.
        """
        return min(self._verdicts(), key=lambda pair: (pair[1], -len(pair[0].calls)))[0]

    def success(self, threshold: float = 0.5) -> Report:
        """Share of judged runs whose reward exceeds ``threshold``, with Wilson's interval (1927) at 95 %.

        The interval takes runs as independent draws from the groups' tasks; the design line says how many tasks
        those are, since runs of one task are alike.

        Raises:
            BadInput: no run was judged.
        """
        judged = self._verdicts()
        wins, n = sum(reward > threshold for _, reward in judged), len(judged)
        low, high = stats.wilson(wins, n, stats.deviate(0.95))
        tasks = len({run.task_id for run, _ in judged})
        left = len(self.runs) - n
        return Report(
            claim=f"success (reward > {threshold:g})",
            estimate=wins / n,
            low=min(low, wins / n),
            high=max(high, wins / n),
            n=n,
            design=f"share of {n} runs clustered in {tasks} tasks; Wilson interval, runs taken as independent",
            runs=tuple(run.id for run, _ in judged),
            caveats=(
                *(("several runs per task: the interval speaks of these tasks, not of new ones",) if tasks < n else ()),
                *((f"{left} runs were not judged",) if left else ()),
            ),
        )

    def frame(self) -> DataFrame:
        """A pandas DataFrame with one row per run."""
        rows = []
        for group in self._groups:
            for run, reward in zip(group, group.rewards, strict=True):
                row = {"run": run.id, "group": group.id, "task": run.task_id, "reward": reward}
                row |= {"steps": len(run.steps), "calls": len(run.calls), "tokens": run.tokens, "cost": run.cost}
                stop = str(run.stop) if run.stop else None
                rows.append(row | {"seconds": run.seconds, "stop": stop, "parent": run.row.parent})
        return need("pandas", "frames").DataFrame(rows)

    def _repr_html_(self) -> str:
        return _table(f"{len(self)} groups", self._groups)


def _table(title: str, groups: Iterable[Group]) -> str:
    body = "".join(
        f"<tr><td>{escape(group.id)}</td><td>{escape(run.id)}</td><td>{escape(run.task_id)}</td>"
        f"<td>{'' if np.isnan(reward) else format(reward, 'g')}</td><td>{escape(str(run.stop or 'open'))}</td></tr>"
        for group in groups
        for run, reward in zip(group, group.rewards, strict=True)
    )
    return f"<b>{escape(title)}</b><table><tr><th>group<th>run<th>task<th>reward<th>stop</tr>{body}</table>"


def family_of(rows: Mapping[str, RunRow], run: str) -> set[str]:
    """Runs joined to a run by shared Calls or by spawning, at any distance."""
    joined: dict[str, set[str]] = {id: set() for id in rows}
    for id, row in rows.items():
        for near in (*(s.run for s in row.lineage), *filter(None, (row.parent, row.spawned_by))):
            near = near.partition("@")[0]
            if near in joined:
                joined[id].add(near)
                joined[near].add(id)
    family, edge = set[str](), [run]
    while edge:
        id = edge.pop()
        if id not in family:
            family.add(id)
            edge += joined.get(id, ())
    return family
