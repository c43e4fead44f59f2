"""Reading the hidden states of runs or ids to a folder: in batches, with progress, to be interrupted and gone on with.

Audits and their experiments call ``read``. It asks any model that is ``Taps``; it never samples.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from clew.core.errors import BadInput
from clew.core.keys import value_digest
from clew.core.protocols import Model, Taps
from clew.models.taps.forms import form_of
from clew.models.taps.no_states import no_states
from clew.models.taps.source import I32, I64, Positions, Source, places, sources_of
from clew.models.taps.states_folder import INDEX, STORED, Precision, States

OURS = r"(index|done|states-\d+|scales-\d+)\.npy|taps\.part"  # without taps.json they are of a reading that never began


class Job(NamedTuple):
    """Ids that pass once, and the sources that are read of them: all of these begin with the same tokens."""

    ids: I32
    members: list[int]


def read(
    model: Model,
    given: Iterable[Any],
    layers: Sequence[int | str],
    positions: Positions = "all",
    *,
    folder: str | Path,
    dtype: Precision = "float16",
    batch: int = 64,
    advance: Callable[[int, int], None] = lambda done, total: None,
) -> States:
    """Read hidden states to ``folder``; called again after an interruption, it goes on where it was.

    A steered run is read with the writes that were in force at each of its calls. Calls of one conversation, and forks,
    pass what they have in common once.

    Args:
        model: local weights, or another model that is ``clew.core.protocols.Taps``.
        given: runs (all their answered model calls), or rows of token ids, or Sources.
        layers: blocks counted from 0; "embed" is what enters the first, "norm" what the vocabulary head reads.
        positions: "all"; "prompt"; "reply"; "last" token of the prompt; "first" token of the reply; numbers, from 0
            or back from the end of the prompt (-1); or a function of a Source that gives such numbers.
        folder: where the states go; made where it is not there.
        dtype: of the files. float16 has a scale for each row and layer, so that no number overflows; it and bfloat16
            keep 11 and 8 significant bits.
        batch: rows of ids that pass together.
        advance: told after each batch how many rows of states are written, and of how many.

    Raises:
        BadInput: the model has no such layers or no hidden states; a call of another tokenizer; a folder that holds
            something else.
    """
    if not isinstance(model, Taps):
        raise no_states(model.ref)
    if dtype not in STORED or batch < 1:
        raise BadInput(f"cannot read in {dtype!r} by {batch}", remedy=f"Use one of {', '.join(STORED)}, and 1 or more.")
    sources = sources_of(given)
    at = [places(source, positions) for source in sources]
    _check(model, sources)
    starts = np.concatenate([[0], np.cumsum([len(place) for place in at])])
    jobs = list(_batched(_jobs(sources, at), batch))
    states = _folder(model, Path(folder), sources, at, tuple(layers), dtype, len(jobs))
    ready = [job for number, lot in enumerate(jobs) if states.done[number] for job in lot]
    written = sum(len(at[i]) for job in ready for i in job.members)
    for number, lot in enumerate(jobs):
        if states.done[number]:
            continue
        for i, found in _states(model, lot, sources, at, layers):
            states.put(int(starts[i]), found)
            written += len(found)
        states.note(number)
        advance(written, len(states))
    return States.open(folder)


def _check(model: Model, sources: Sequence[Source]) -> None:
    """Refuse ids that are no tokens of this model."""
    vocabulary, own = getattr(model, "vocabulary", None), model.renderer.ref if model.renderer is not None else ""
    for source in sources:
        highest = int(source.ids.max(initial=0))
        if source.tokenizer and own and source.tokenizer != own:
            told = f"{source.name} is in tokens of {source.tokenizer!r}, and {model.ref} has those of {own!r}"
        elif vocabulary is not None and highest >= vocabulary:
            told = f"{source.name} has token {highest}, and {model.ref} has {vocabulary} tokens"
        else:
            continue
        raise BadInput(told, remedy="Read runs with the model that answered them, or one of the same tokenizer.")


def _jobs(sources: Sequence[Source], at: Sequence[I64]) -> list[Job]:
    """Sources in an order where neighbours begin alike; one that begins another is read with it."""
    kept = [i for i in range(len(sources)) if len(at[i])]
    order = sorted(kept, key=lambda i: sources[i].ids.astype(">i4").tobytes())
    jobs: list[Job] = []
    for i in order:
        ids = sources[i].ids
        if jobs and not sources[i].taps and not sources[jobs[-1].members[0]].taps:
            last = jobs[-1]
            if len(last.ids) <= len(ids) and np.array_equal(last.ids, ids[: len(last.ids)]):
                jobs[-1] = Job(ids, [*last.members, i])
                continue
        jobs.append(Job(ids, [i]))
    return jobs


def _batched(jobs: Sequence[Job], size: int) -> Iterator[Sequence[Job]]:
    for start in range(0, len(jobs), size):
        yield jobs[start : start + size]


def _states(
    model: Taps, lot: Sequence[Job], sources: Sequence[Source], at: Sequence[I64], layers: Sequence[int | str]
) -> Iterator[tuple[int, Any]]:
    """What is read of each source of some jobs."""
    wanted = [np.unique(np.concatenate([at[i] for i in job.members])) for job in lot]
    firsts = [sources[job.members[0]] for job in lot]
    tapped = any(source.taps for source in firsts)
    taps, prompts = ([s.taps for s in firsts], [s.prompt for s in firsts]) if tapped else (None, None)
    ids, positions = [job.ids.tolist() for job in lot], [where.tolist() for where in wanted]
    for job, where, found in zip(lot, wanted, model.states(ids, layers, positions, taps, prompts), strict=True):
        for i in job.members:
            yield i, found[np.searchsorted(where, at[i])]


def _folder(
    model: Model,
    folder: Path,
    sources: Sequence[Source],
    at: Sequence[I64],
    layers: tuple[int | str, ...],
    dtype: Precision,
    batches: int,
) -> States:
    """The folder of a reading: a new one, or what an earlier call of the same reading left.

    Raises:
        BadInput: it holds something else.
    """
    digest = getattr(model, "digest", None)
    weights = digest() if callable(digest) else ""
    asked = [
        [*named, source.ids.tobytes(), place.tobytes(), [form_of(tap) for tap in source.taps]]
        for source, place in zip(sources, at, strict=True)
        for named in [(source.run, source.seq, source.prompt)]
    ]
    plan = value_digest([model.ref, model.version, weights, list(layers), dtype, batches, asked]).hex()
    known = States.found(folder, "r+")
    if known is not None:
        if known.about.get("plan") != plan:
            raise BadInput(
                f"{folder} holds hidden states of other tokens, layers or weights", remedy="Give another folder."
            )
        return known
    if folder.exists() and not (folder.is_dir() and all(re.fullmatch(OURS, file.name) for file in folder.iterdir())):
        raise BadInput(f"{folder} holds other files", remedy="Give a new folder, or an empty one.")
    assert isinstance(model, Taps)
    (one,) = model.states([sources[0].ids[:1].tolist()], layers)
    index = np.zeros(sum(map(len, at)), INDEX)
    index["source"] = np.repeat(np.arange(len(at)), [len(place) for place in at])
    index["position"] = np.concatenate(at)
    index["token"] = np.concatenate([place - source.prompt for source, place in zip(sources, at, strict=True)])
    about = {"layers": list(layers), "width": int(one.shape[-1]), "dtype": dtype, "plan": plan, "model": model.ref}
    about |= {"version": model.version, "weights": weights, "sources": [[s.run, s.seq] for s in sources]}
    return States.make(folder, about, index, batches)
