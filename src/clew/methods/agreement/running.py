"""A judge that is run over labelled runs from their records: a function of a file, or a model with a rubric.

`clew audit judge` calls this. What the judge says is filed beside the runs under the judge's version, so that a run
which the same judge has judged is not judged again. A verdict without a number is filed without one: it is undecided. A
judge that fails on a run (its own error, a model that gives no answer) files nothing there and stops nothing.
"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, cast

from clew.core.aio import run_sync
from clew.core.errors import BadInput, Undecided
from clew.core.keys import value_digest
from clew.core.protocols import Judge, World
from clew.core.reading import Record
from clew.core.records import Annotation
from clew.core.sources import digests, load_file, load_named
from clew.core.values import Task
from clew.harness import Runner
from clew.harness.loading import source_digest
from clew.harness.verdicts import verdict
from clew.store import Run, open_store

AGENT = "clew.harness.agents:player"  # a runner has one; a judge never meets it
AT_ONCE = 8  # runs that are judged side by side
GIVE_UP = 8  # failures, without any verdict before them, after which nothing more is asked


class OwnJudge(NamedTuple):
    """A judge with what names it: ``name``, under which a verdict without a number is filed, and ``version``, hex
    digits that change with whatever its verdicts hang on. cost: what judging runs takes, where that can be told."""

    name: str
    version: str
    judge: Judge
    cost: Callable[[list[Run]], dict[str, float | None]] | None = None


class Judged(NamedTuple):
    """What a judge said of some runs. method, version: name and parameters of the values to compare. asked: runs judged
    now; kept: judged before. undecided: of all of them, with a verdict that holds no number. failed: without any
    verdict, to be asked again. why: the first reason."""

    method: str
    version: str
    asked: int
    kept: int
    undecided: int
    failed: int
    why: str


def load_judge(ref: str) -> OwnJudge:
    """The judge of ``file.py:function`` or ``module:function``: an async function of task, run and world.

    Raises:
        BadInput: there is none.
    """
    place, _, name = ref.rpartition(":")
    try:
        found = getattr(load_file(place) if place.endswith(".py") else load_named(place), name)
    except (ImportError, AttributeError) as error:
        raise BadInput(f"{ref} cannot be loaded: {error}", remedy="Write file.py:function.") from error
    if not inspect.iscoroutinefunction(found):
        remedy = "Write: async def brevity(task, run, world): return {'brevity': 1 / len(run.steps)}"
        raise BadInput(f"{ref} is no async function", remedy=remedy)
    says = list(digests([ref]).values()) or [source_digest(found)]
    return OwnJudge(name, value_digest([name, *says]).hex()[:16], cast(Judge, found))


def unjudged(runs: Sequence[Run], version: str) -> list[Run]:
    """Those of the runs that no judge of that version has judged."""
    return [run for run in runs if not any(a.params == version for a in run.annotations(target="run"))]


def run_judge(
    runs: Sequence[Run], own: OwnJudge, component: str | None, progress: Callable[[int], None] = lambda count: None
) -> Judged:
    """Judge those runs that this judge has not judged, from their records; each verdict is filed as it comes.

    Args:
        component: which of several values is wanted.
        progress: called with the number of runs that have been looked at.

    Raises:
        BadInput: it decided nothing, or gives several values and none is named.
    """
    if not runs:
        raise BadInput("none of these runs is labelled", remedy="Label some: clew label RUN --verdict good.")
    wanted = unjudged(runs, own.version)
    failed = run_sync(_judge_all(wanted, own, progress))
    said = [a for run in runs for a in run.annotations(target="run") if a.params == own.version]
    names = list(dict.fromkeys(a.method for a in said if a.value is not None))
    silent = [a for a in said if a.value is None]
    why = failed[0] if failed else _reason(silent[0].data) if silent else ""
    if not names:
        raise BadInput(f"{own.name} decided none of {len(runs)} runs: {why}", remedy="See what it raises, and mend it.")
    if component is not None and component not in names:
        raise BadInput(f"{own.name} gives no {component!r}", remedy=f"Known: {', '.join(names)}.")
    if component is None and len(names) > 1:
        raise BadInput(f"{own.name} gives {', '.join(names)}", remedy="Name one with --component.")
    missing = len(unjudged(runs, own.version))
    counts = (len(wanted) - missing, len(runs) - len(wanted), len({a.run for a in silent}), missing)
    return Judged(component or names[0], own.version, *counts, why)


async def _judge_all(runs: Sequence[Run], own: OwnJudge, progress: Callable[[int], None]) -> list[str]:
    """File what the judge says of each run as it comes; how it failed on others, in words."""
    failed, done, filed, turn = list[str](), 0, 0, asyncio.Semaphore(AT_ONCE)
    if not runs:
        return failed
    store = open_store(runs[0].store)  # type: ignore[arg-type]
    spec = Runner(AGENT, None, None, store).spec

    async def judged(run: Run) -> None:
        nonlocal done, filed
        broke: BaseException | None = None

        async def watched(task: Task, run: Record, world: World | None) -> Mapping[str, float | None]:
            nonlocal broke
            try:
                return await own.judge(task, run, world)
            except Undecided:
                raise
            except BaseException as error:
                broke = error
                raise

        async with turn:
            if filed or len(failed) < GIVE_UP:
                found = await verdict(spec, run, spec.task_of(run.row), None, watched)
                if broke is not None:
                    failed.append(_reason(found[-1].data))
                else:
                    filed += 1
                    store.annotate(_filed(found, own, run))
                    store.commit()
            done += 1
            progress(done)

    await asyncio.gather(*map(judged, runs))
    return failed


def _filed(found: Sequence[Annotation], own: OwnJudge, run: Run) -> list[Annotation]:
    """As they are filed: under the judge's version. A verdict without a number stands under the judge's name, without
    a value; so does a ``reward``, with its value, because the run's own reward stays what it was."""
    mine = {"reward": own.name, "undecided": own.name}
    out = [said._replace(params=own.version, method=mine.get(said.method, said.method)) for said in found]
    why = json.dumps({"error": "the judge gave no number"})
    return out or [Annotation("run", own.name, run=run.id, scope=run.id, params=own.version, data=why)]


def _reason(data: str) -> str:
    return str(json.loads(data or "{}").get("error", ""))
