"""A judge of one's own, named by its file, run over labelled runs from their records.

`clew audit judge --judge judges.py:brevity` calls this. What the judge says is filed beside the runs, as `runner.judge`
files it; a judge that raises leaves its run undecided and stops nothing.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import cast

from clew.core.errors import BadInput
from clew.core.protocols import Judge
from clew.core.sources import load_file
from clew.harness import Runner
from clew.store import Run, open_store

AGENT = "clew.harness.agents:player"  # a runner has one; a judge never meets it


def load_judge(ref: str) -> Judge:
    """The judge of ``file.py:function`` or ``module:function``: an async function of task, run and world.

    Raises:
        BadInput: there is none.
    """
    place, _, name = ref.rpartition(":")
    try:
        found = getattr(load_file(place) if place.endswith(".py") else import_module(place), name)
    except (ImportError, AttributeError) as error:
        raise BadInput(f"{ref} cannot be loaded: {error}", remedy="Write file.py:function.") from error
    if not inspect.iscoroutinefunction(found):
        remedy = "Write: async def brevity(task, run, world): return {'brevity': 1 / len(run.steps)}"
        raise BadInput(f"{ref} is no async function", remedy=remedy)
    return cast(Judge, found)


def run_judge(
    runs: Sequence[Run], judge: Judge, ref: str, component: str | None, progress: Callable[[int], None]
) -> str:
    """Judge runs from their records, and file what is said; the name of the value to compare.

    Raises:
        BadInput: it decided nothing, or gives several values and none is named.
    """
    if not runs:
        raise BadInput("none of these runs is labelled", remedy="Label some: clew label RUN --verdict good.")
    store = open_store(runs[0].store)  # type: ignore[arg-type]
    runner = Runner(AGENT, None, None, store)
    names: dict[str, int] = {}
    why = ""
    for count, run in enumerate(runs, 1):
        for filed in runner.judge([run], judge):
            if filed.method == "undecided":
                why = filed.data
            else:
                names[filed.method] = names.get(filed.method, 0) + 1
        progress(count)
    if not names:
        raise BadInput(f"{ref} decided none of {len(runs)} runs: {why}", remedy="See what it raises, and mend it.")
    if component is not None and component not in names:
        raise BadInput(f"{ref} gives no {component!r}", remedy=f"Known: {', '.join(names)}.")
    if component is None and len(names) > 1:
        raise BadInput(f"{ref} gives {', '.join(names)}", remedy="Name one with --component.")
    return component or next(iter(names))
