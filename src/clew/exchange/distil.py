"""Supervised data from runs, with or without their recoveries, and the acts that such data teaches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from clew.core.errors import BadInput
from clew.core.values import Message
from clew.exchange import files, openai_jsonl
from clew.exchange.transcript import Transcript
from clew.methods.recoveries.coverage import Trail, trails
from clew.store import Run
from clew.store.protocol import Tables
from clew.worlds.loops import loop_erase

NEEDS = (
    "Give a file made by `clew export --sft` or `clew export FILE.jsonl`, whose lines name their run. For "
    "demonstrations of your own, name runs of the same tasks too: clew audit coverage FILE.jsonl RUNS."
)


def demonstration(run: Run, erase: bool = False) -> Transcript:
    """A run as a conversation to imitate: what was seen from the user, what was done by the assistant.

    Args:
        erase: keep only the acts that loop erasure of the state keys keeps, so that no state is entered twice; what was
            seen before each of them stays as it was recorded.

    Raises:
        BadInput: the world names no states, or the acts are tool calls.
    """
    path = trails([run])[0]
    kept = loop_erase(path.states) if erase else list(range(len(path.actions)))
    steps, messages = run.steps, list[Message]()
    for number in (path.steps[i] for i in kept):
        step = steps[number]
        assert step.act is not None
        assert step.before is not None
        if step.act.finish == "tool":
            raise BadInput(
                f"run {run.id} acts by tool calls, which cannot be taken out of their conversation",
                remedy="Distil runs of a world that takes text; for whole conversations use `clew export FILE.jsonl`.",
            )
        reply = run.store.node(step.asks[-1].node_out).message if step.asks and step.asks[-1].node_out else None
        said = reply if reply and reply.text else Message("assistant", step.act.action)
        messages += [Message("user", step.before.text), said]
    about = {
        "run": run.id,
        "taskset": run.taskset,
        "steps": [path.steps[i] for i in kept],
        "recoveries": "erased" if erase else "kept",
    }
    return Transcript(tuple(messages), run.task_id, reward=run.reward, model=run.model, about=about)


def sources(path: Path) -> Iterator[tuple[str, list[int] | None]]:
    """The run of each line of a data set, and which of its steps the line holds (None: all).

    Raises:
        BadInput: the file cannot be read, or a line does not name its run.
    """
    for number, line in files.lines(path):
        try:
            about = files.loads(line)["clew"]
            run, steps = about["run"], about.get("steps")
            if not isinstance(run, str) or not (steps is None or all(isinstance(i, int) for i in steps)):
                raise TypeError
        except (ValueError, TypeError, KeyError, AttributeError):
            raise BadInput(f"{path.name}:{number} does not say which run it was made of", remedy=NEEDS) from None
        yield run, steps


def taught(path: Path, store: Tables) -> tuple[list[Trail], list[tuple[str, Any, str]]]:
    """The whole trails of the runs a data set was made of, and (task, state, action) of every act it teaches.

    Raises:
        BadInput: the file is empty or names no runs, or none acted on a world that names its states.
        UnknownName: a run is not in the store.
    """
    lines = list(sources(path))
    if not lines:
        raise BadInput(f"{path} is empty", remedy=NEEDS)
    whole = {trail.run: trail for trail in trails(Run(store, run) for run in dict.fromkeys(run for run, _ in lines))}
    acts = []
    for run, steps in lines:
        if run in whole:
            wanted = whole[run].steps if steps is None else steps
            acts += [act for act, i in zip(whole[run].acts(), whole[run].steps, strict=True) if i in set(wanted)]
    return list(whole.values()), acts


def shown(path: Path, runs: Sequence[Run]) -> tuple[list[Trail], list[tuple[str, Any, str]], int]:
    """The trails of runs, (task, state, action) of every act that demonstrations of others teach there, and how many
    acts they teach elsewhere.

    A demonstration is a line with ``messages``: an observation as a user's message, then the act as the assistant's. It
    teaches in every state of the runs that shows the same text, since nobody who reads it sees a difference; where the
    line has a ``task_id``, only in the states of that task.

    Raises:
        BadRecord: a line is no demonstration. BadInput: the file is empty, or no run acted on a world with state keys.
    """
    found, by_id = trails(runs), {run.id: run for run in runs}
    places: dict[str, dict[tuple[str, Any], str]] = {}
    for trail in found:
        steps, task_id = by_id[trail.run].steps, by_id[trail.run].task_id
        for state, number in zip(trail.states, trail.steps, strict=False):
            before = steps[number].before
            if before is not None:
                places.setdefault(before.text.strip(), {})[trail.task, state] = task_id
    known = {(task, state, action.strip()): action for trail in found for task, state, action in trail.acts()}
    acts, elsewhere, empty = list[tuple[str, Any, str]](), 0, True
    for demonstration in openai_jsonl.read(path):
        if not isinstance(demonstration, Transcript):
            raise demonstration
        empty = False
        for seen, said in pairwise(demonstration.messages):
            if (seen.role, said.role) == ("user", "assistant"):
                wanted = demonstration.task_id
                at = [p for p, task in places.get(seen.text.strip(), {}).items() if wanted in ("", task)]
                acts += [(*p, known.get((*p, said.text.strip()), said.text)) for p in at]
                elsewhere += not at
    if empty:
        raise BadInput(f"{path} is empty", remedy=NEEDS)
    return found, acts, elsewhere
