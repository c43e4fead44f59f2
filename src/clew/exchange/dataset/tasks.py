"""Rows of data as a taskset: each row a task, its answer kept from the agent, its runs judged by rewards.

``clew.dataset``, ``--data`` and references ``dataset(path=...)`` make one. The reference holds the digests of the file
and of the rewards' sources, so that another process judges and forks by what the runs were made with, or says that this
is gone. A task must never hold its answer where an agent or a world can read it.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from clew.core.errors import BadInput, CannotRestore, Undecided, UnknownName
from clew.core.keys import derive
from clew.core.protocols import Model, World
from clew.core.reading import Record
from clew.core.registry import make_ref
from clew.core.sources import file_of, gone, placed
from clew.core.values import Limits, Scored, Task
from clew.exchange.dataset import box
from clew.exchange.dataset.given import Given, Reward, Verdict
from clew.exchange.dataset.layout import PARTS, Layout, Row
from clew.exchange.dataset.table import OBJECT, Table, digest_of, held, read
from clew.exchange.files import brief
from clew.worlds.one_reply import Question


class Dataset:
    """Tasks from rows of data, judged by rewards.

    Args:
        path: of a JSONL, JSON, Parquet or CSV file, or a folder that `datasets` saved; or, in Python, a ``Dataset`` or
            ``DatasetDict`` of `datasets` or a list of mappings, which no other process can read again.
        reward: a scorer of the box (``"numeric"``), ``"file.py:function"``, a function, ``"0.2*..."`` or a pair of
            weight and one of these; or a list of them, whose weighted sum is the reward.
        prompt: a template such as ``"{question} Answer briefly."``, or a column of texts or of messages; default: the
            first column with a usual name.
        answer: column of the known answers, which only rewards see; default: the first with a usual name.
        id: column of ids; default: ``id``, else a hash of what is asked.
        split: column that says train, eval or test; default: by hash of the id.
        held_out: share of the rows held out for eval, and as much for test, where no column says it.
        system: first message, of role system.
        visible: further columns that the agent may read, as ``task.data``.
        limits: column of each task's limits: ``{"steps": 3, "tokens": 500}``.
        seconds: how long a function may take for one reward.
        digest, sources: of the file and of the rewards, in references; what differs now is refused.

    Raises:
        BadInput: there is no such file, column or reward; a row has no prompt. MissingExtra: see ``table.read``.
    """

    def __init__(
        self,
        path: str | Path | Iterable[Mapping[str, Any]] | Mapping[str, Any],
        reward: object = (),
        *,
        prompt: str = "",
        answer: str = "",
        id: str = "",
        split: str = "",
        held_out: float = 0.1,
        system: str = "",
        visible: Sequence[str] = (),
        limits: str = "",
        seconds: float = 60.0,
        digest: str = "",
        sources: Sequence[str] = (),
    ) -> None:
        if not seconds > 0:
            raise BadInput(f"seconds is {seconds}", remedy="Give a time above 0.")
        self.layout = Layout(prompt=prompt, answer=answer, id=id, split=split, system=system, held_out=held_out)
        self.visible, self.limits, self.seconds = tuple(visible), limits, seconds
        self.load_model: Callable[[str], Model] = _load_model  # for a reward that asks one
        self._table: Table | None = None
        self._rows: dict[str, Row] = {}
        self._parts: dict[str, list[str]] = {part: [] for part in PARTS}  # ids by split
        self._rewards: list[Reward] | None = None
        self._chosen = box.references(reward) if reward else []
        if isinstance(path, (str, Path)):
            self.path = path if path == OBJECT else os.path.abspath(os.path.expanduser(path))
        else:
            self.path, self._table = OBJECT, held(path)
        self.digest, self.sources = digest, tuple(sources)
        if not digest:  # made here and now, and not from a reference
            self._read()
            self.sources = tuple(reward.source for reward in self.rewards)
        self.ref = self._reference()

    def _reference(self) -> str:
        refs = tuple(box.written(weight, ref) for weight, ref, _ in self._chosen)
        how = {name: getattr(self.layout, name) for name in ("prompt", "answer", "id", "split", "held_out", "system")}
        how |= {"visible": self.visible, "limits": self.limits, "seconds": self.seconds, "digest": self.digest}
        sources = self.sources if any(self.sources) else ()
        return make_ref("dataset", {"path": self.path, "reward": refs, **how, "sources": sources}, Dataset)

    def __repr__(self) -> str:
        return f"<Dataset {self.name}>"

    @property
    def name(self) -> str:
        """The file's name without its folder."""
        return os.path.basename(self.path)

    @property
    def about(self) -> str:
        """What was found in the data: rows, the columns that were chosen, splits. One line in plain words."""
        return self.layout.about(self._read(), list(self._rows.values()))

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns."""
        return tuple(self._read().columns)

    def rows(self, split: str = "train") -> list[Row]:
        """The rows of a split, in the order of the file.

        Raises:
            BadInput: no such split, or no row in it.
        """
        return [self._rows[name] for name in self._part(1, split)]

    def holds(self, split: str) -> bool:
        """Whether a split has a row."""
        self._read()
        return bool(self._parts[split])

    # ---- the taskset ---------------------------------------------------------------------------------------------

    def sample(self, n: int, seed: int = 0, split: str = "train") -> list[Task]:
        """``n`` rows of a split in an order that the seed decides, each once; all of them where there are fewer.

        Raises:
            BadInput: no such split, or no row in it.
        """
        mine = self._part(n, split)
        drawn = random.Random(derive(seed, "dataset", split)).sample(mine, min(n, len(mine)))
        return [self.find(name) for name in drawn]

    def batch(self, n: int, index: int, seed: int = 0, split: str = "train") -> list[Task]:
        """Batch ``index`` (from 0) of passes over a split, ``n`` rows each; a training draws its tasks so.

        A pass (epoch) has each row at most once, in an order of its own. Rows that fill no batch wait for a later pass.

        Raises:
            As ``sample``.
        """
        mine = self._part(n, split)
        batches = max(1, len(mine) // n) if n else 1
        number, at = divmod(index, batches)
        order = random.Random(derive(seed, "pass", split, number)).sample(mine, len(mine))
        return [self.find(name) for name in order[at * n : (at + 1) * n]]

    def _part(self, n: int, split: str) -> list[str]:
        """Ids of a split of which ``n`` are wanted."""
        self._read()
        if split not in PARTS:
            raise BadInput(f"no split is called {split!r}", remedy=f"Known: {', '.join(PARTS)}.")
        if n < 0:
            raise BadInput(f"cannot sample {n} tasks", remedy="Ask for zero or more.")
        if n and not self._parts[split]:
            remedy = "Give more rows, hold out another share (--held-out), or name a column of splits."
            raise BadInput(f"{self.name} has no row in the split {split}", remedy=remedy)
        return self._parts[split]

    def find(self, task_id: str) -> Task:
        """The task of a row.

        Raises:
            UnknownName: no row has that id, or the data are not what the reference names.
        """
        try:
            self._read()
        except (BadInput, CannotRestore) as error:
            raise UnknownName(error.message, remedy=error.remedy) from error
        row = self._rows.get(task_id)
        if row is None:
            remedy = f"`clew worlds --data {self.name}` shows some."
            raise UnknownName(f"{brief(task_id)} is no row of {self.name}", remedy=remedy)
        data: dict[str, Any] = {name: row.columns.get(name) for name in self.visible}
        if row.messages:
            data["messages"] = list(row.messages)
        secret = {"answer": row.answer, "columns": row.columns, "row": row.number}
        return Task(row.id, row.prompt, data, self._limits_of(row), secret)

    def open(self, task: Task) -> World:
        """A world that shows the prompt and takes one reply.

        Raises:
            CannotRestore: the data or a reward are not what the reference names.
        """
        self._unchanged()
        return Question(task.id, task.prompt)

    async def judge(self, task: Task, run: Record, world: World | None) -> Mapping[str, float]:
        """``reward``, the weighted sum; and each reward by its name, where there are several or one has parts.

        The reply is the last text that the agent gave the world, else the last that the model said.

        Raises:
            Undecided: a reward with a weight is. CannotRestore: see ``open``.
        """
        self._unchanged()
        secret = task.secret if isinstance(task.secret, Mapping) else self.find(task.id).secret
        assert isinstance(secret, Mapping)
        talk = task.data.get("messages") or [{"role": "user", "content": task.prompt}]
        columns, answer = secret["columns"], secret["answer"]
        given = Given(_reply(run), answer, task.prompt, talk, columns, task, run, self.load_model)
        return _summed([(reward, await reward.score(given)) for reward in self.rewards])

    # ---- what lies behind it -------------------------------------------------------------------------------------

    @property
    def rewards(self) -> list[Reward]:
        """The rewards, loaded.

        Raises:
            BadInput: one is not to be had.
        """
        if self._rewards is None:
            self._rewards = box.rewards(self._chosen, self._read().columns, self.seconds)
        return self._rewards

    def _read(self) -> Table:
        """The table, read and laid out once.

        Raises:
            BadInput: it cannot be. CannotRestore: it is not what the reference names.
        """
        if self._rows:
            assert self._table is not None
            return self._table
        if self._table is None:
            self._table = self._file()
        if self.digest and self._table.digest != self.digest:
            raise CannotRestore(f"{self.path} is not what it was when these runs were made", remedy=_RESTORE)
        self.digest = self._table.digest
        names = self._table.columns
        for name in (*self.visible, *filter(None, [self.limits])):
            if name not in names:
                raise BadInput(f"{self.name} has no column {name!r}", remedy=f"The columns are {', '.join(names)}.")
        self._rows = {row.id: row for row in self.layout.rows(self._table)}
        for row in self._rows.values():
            self._parts[row.split].append(row.id)
        return self._table

    def _file(self) -> Table:
        if self.path == OBJECT:
            remedy = "Save the rows to a file or with save_to_disk, and give the dataset its path."
            raise CannotRestore("these runs were made on rows that only their own program held", remedy=remedy)
        path = Path(placed(self.path))
        if self.digest and not path.exists():
            remedy = f"{_RESTORE} {gone(self.path)}"
            raise CannotRestore(f"{path}, on whose rows these runs were made, is gone", remedy=remedy)
        if self.digest and digest_of(path) != self.digest:
            raise CannotRestore(f"{path} is not what it was when these runs were made", remedy=_RESTORE)
        return read(path)

    def _unchanged(self) -> None:
        """Raises CannotRestore where the data or the rewards are not what the reference names."""
        self._read()
        if self._rewards is not None:
            return
        for (_, ref, function), source in zip(self._chosen, self.sources, strict=False):
            try:
                now = box.source_of(ref, function)
            except UnknownName as error:
                raise CannotRestore(error.message, remedy=_RESTORE) from error
            if source and now != source:
                raise CannotRestore(
                    f"{file_of(ref) or ref} is not what it was when these runs were made", remedy=_RESTORE
                )
        try:
            self._rewards = self.rewards
        except UnknownName as error:
            raise CannotRestore(error.message, remedy=error.remedy) from error

    def _limits_of(self, row: Row) -> Limits:
        told = row.columns.get(self.limits) if self.limits else None
        if told is None:
            return Limits()
        try:
            return Limits(**{k: v for k, v in dict(told).items() if v is not None})
        except (TypeError, ValueError) as error:
            remedy = 'Write {"steps": 3, "tokens": 500, "seconds": 60, "cost": 0.1}, or some of these.'
            raise BadInput(f"{self.name}:{row.number} has {brief(told)} for limits", remedy=remedy) from error


_RESTORE = """Put it back as it was. Or go on with what there is now: `clew fork ... --data FILE --reward REWARD`, in
Python runner.taskset = clew.dataset(...).""".replace("\n", " ")


def _load_model(ref: str) -> Model:
    from clew.models import load  # the clients of all providers: only where a reward asks a model

    return load(ref)


def _reply(run: Record) -> str:
    acts = [c for c in run.calls if c.kind == "act" and c.state and c.finish != "tool" and not c.error]
    if acts:
        return acts[-1].action
    asks = [c for c in run.calls if c.kind == "ask" and c.node_out and not c.error]
    return run.store.node(asks[-1].node_out).message.text if asks else ""


def _summed(found: Sequence[tuple[Reward, Verdict]]) -> dict[str, float]:
    """The verdict of several rewards.

    Raises:
        Undecided: one with a weight is; what the others say is kept.
    """
    parts: dict[str, float] = {}
    for reward, said in found:
        if said.value is not None and (len(found) > 1 or reward.weight != 1 or said.data or said.parts):
            parts[reward.name] = Scored(said.value, said.data)
        parts |= {f"{reward.name}.{name}": value for name, value in said.parts.items()}
    missing = [(reward, said) for reward, said in found if said.value is None and reward.weight]
    if missing:
        raise Undecided(missing[0][1].why or f"{missing[0][0].ref} is undecided", parts, missing[0][1].data)
    if not found:
        return {}
    return {"reward": sum(reward.weight * said.value for reward, said in found if said.value is not None), **parts}
