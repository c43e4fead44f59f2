"""Hidden states of recorded runs at the places that probes look at: the prompt's end, along the thinking, its end.

``study`` calls ``features`` with a model that is ``Taps``; a model without hidden states is refused there with a
sentence, and the audit goes on without probes. Nothing here fits or samples.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from clew.core.errors import BadInput
from clew.core.protocols import Model
from clew.core.values import F32
from clew.methods.early.thinking import Trace
from clew.models.taps import Source, read, sources_of

POSITIONS = 21  # shares of the thinking at which states are read for the probes by position


class States(NamedTuple):
    """States of runs: of the last ``prompt`` token, the ``first`` and ``last`` thinking token, and ``along`` thinking.

    Each maps a layer to float32 [runs, width]; ``along`` to [runs, positions, width]. layers: as read, the last being
    what the vocabulary head reads.
    """

    layers: tuple[int | str, ...]
    prompt: dict[int | str, F32]
    first: dict[int | str, F32]
    last: dict[int | str, F32]
    along: dict[int | str, F32]


def layer_grid(model: Model) -> tuple[int | str, ...]:
    """The published layers: 0, a quarter, half, three quarters of the blocks, and the last after its norm."""
    module: Any = getattr(model, "module", None)
    config = getattr(module, "config", None)
    count = getattr(getattr(config, "text_config", config), "num_hidden_layers", None)
    if not isinstance(count, int):
        return ("embed", "norm")
    # Block i is hidden state i + 1, so the state after k blocks is that of block k - 1.
    inner = dict.fromkeys(count * part // 4 - 1 for part in (1, 2, 3))
    return ("embed", *(layer for layer in inner if 0 <= layer < count - 1), "norm")


def features(
    model: Model,
    traces: Sequence[Trace],
    advance: Callable[[int, int], None] = lambda done, total: None,
    positions: int = POSITIONS,
) -> States:
    """Read the states of some runs' thinking.

    Raises:
        BadInput: the model has no hidden states here; the runs have no token ids.
    """
    if any(isinstance(one.thought, str) and one.kind != "calls" for one in traces):
        raise BadInput("the replies are recorded without tokens", remedy="Record runs of local weights.")
    each = [_sources(one) for one in traces]
    sources = [source for some in each for source in some]
    number = {(source.run, source.seq): i for i, source in enumerate(sources)}
    wanted = [
        [(number[source.run, source.seq], place) for source, place in _places(one, some, positions)]
        for one, some in zip(traces, each, strict=True)
    ]
    order: dict[int, set[int]] = {}
    for where in wanted:
        for i, place in where:
            order.setdefault(i, set()).add(place)
    layers = layer_grid(model)
    with tempfile.TemporaryDirectory(prefix="clew-early-") as folder:
        states = read(
            model, sources, list(layers), lambda source: sorted(order.get(number[source.run, source.seq], {0})),
            folder=Path(folder) / "states", advance=advance, dtype="float32",
        )  # fmt: skip
        at = {
            (int(s), int(p)): row
            for row, (s, p) in enumerate(zip(states.index["source"], states.index["position"], strict=True))
        }
        rows = np.array([[at[place] for place in where] for where in wanted])
        parts: list[dict[int | str, F32]] = [{}, {}, {}, {}]
        for layer in layers:
            taken = states.take(layer, rows.ravel()).reshape(*rows.shape, -1)
            for part, value in zip(parts, (taken[:, 0], taken[:, 1], taken[:, -1], taken[:, 1:]), strict=True):
                part[layer] = np.array(value)
    return States(layers, *parts)


def _sources(one: Trace) -> list[Source]:
    """The ids of the calls that think, prompt and reply, with what was written into their states."""
    seqs = set(one.calls or (one.seq,))
    return [source for source in sources_of([one.run]) if source.seq in seqs]


def _places(one: Trace, sources: Sequence[Source], positions: int) -> list[tuple[Source, int]]:
    """The last prompt token, then so many thinking tokens at equal shares, the first and the last among them. The
    thinking of several calls is their replies, one behind the other."""
    if one.kind != "calls":
        tokens = [(sources[0], sources[0].prompt + one.start + int(k)) for k in offsets(one, positions)]
    else:
        every = [(source, place) for source in sources for place in range(source.prompt, len(source.ids))]
        if not every:
            raise BadInput(f"the model calls of run {one.run.id} that think have no reply tokens")
        shares = np.floor(np.linspace(0, len(every) - 1, positions)).astype(np.int64)
        tokens = [every[k] for k in shares]
    return [(sources[0], sources[0].prompt - 1), *tokens]


def offsets(one: Trace, positions: int = POSITIONS) -> npt.NDArray[np.int64]:
    """So many tokens of a run's thinking at equal shares of it, counted from its first; a short one repeats some."""
    return np.floor(np.linspace(0, max(one.tokens - 1, 0), positions)).astype(np.int64)
