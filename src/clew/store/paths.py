"""The paths of a run's conversations: what the model received, and which Call sampled which tokens.

Exports, training rows (``train.rows``), preference pairs and scoring read them. Nothing is tokenised again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from clew.core.errors import BadInput
from clew.core.reading import Record
from clew.core.records import Call, Node


class Span(NamedTuple):
    """The tokens one ask sampled, at ``start`` up to but excluding ``stop`` of its path."""

    call: Call
    start: int
    stop: int


def ends(run: Record, asks: Sequence[Call]) -> list[list[Node]]:
    """The paths of these asks that no later one of them continues, each with its reply, in order of its last ask.

    A path is the prompt as the model received it. An ask that failed has a prompt and no reply.
    """
    paths: list[list[Node]] = []
    covered: set[bytes] = set()
    for call in reversed(asks):
        tip = call.node_out or call.node_in
        if tip not in covered:
            paths.append(run.store.thread(tip))
            covered.update(node.key for node in paths[-1])
    return paths[::-1]


def leaves(run: Record, wanted: Callable[[Call], bool] | None = None) -> list[tuple[list[Node], list[Span]]]:
    """The leaf paths of a run's conversations in order, each with the spans sampled along it.

    A path is a leaf if no later ask of the run continues it. Equal replies of two asks are one node: then the path
    appears once for each, so that both Calls can train.

    Args:
        wanted: which asks count; the others make no path, and may be of models without token ids.
    """
    asks = [c for c in run.calls if c.kind == "ask" and c.done >= 0 and c.node_out and (not wanted or wanted(c))]
    out = []
    while asks:
        for path in ends(run, asks):
            spans = _along(path, asks, run.id)
            used = {id(s.call) for s in spans}
            asks = [c for c in asks if id(c) not in used]
            out.append((path, spans))
    return out


def _along(path: Sequence[Node], asks: Sequence[Call], run: str) -> list[Span]:
    """The first of ``asks`` for each node of a path."""
    ends: dict[bytes, int] = {}
    total = 0
    for node in path:
        if node.ids is None:
            raise BadInput(
                f"run {run} has messages without token ids",
                remedy="Use runs of a model that gives token ids. (For supervised training, sft_rows takes messages.)",
            )
        total += len(node.ids)
        ends[node.key] = total
    spans: dict[bytes, Span] = {}
    for call in asks:
        if call.node_out in ends and call.node_out not in spans:
            stop = ends[call.node_out]
            spans[call.node_out] = Span(call, stop - (0 if call.logprobs is None else len(call.logprobs)), stop)
    return sorted(spans.values(), key=lambda s: s.start)
