"""What a router decided for one request, as the record keeps it: the first entry of the answer's ``inner``.

``clew.models.compose.routed`` writes it, and whatever shows a run reads it. The entry names the router as its model and
holds the decision as JSON in place of a text; the entries after it are what the workers answered. What is read here may
come from a record of strangers: it is bounded, and is nothing but names, numbers and short texts.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from clew.core.values import Inner

SCHEME = "route:"
LONGEST = 1 << 16  # characters that are read
SHORT = 300  # characters of a reason


class Decision(NamedTuple):
    """Who answered, and why not another.

    worker: who answered. first: whom the scores named, of all that were allowed. scores: of all workers by name.
    refused: why a worker was not allowed. failed: why an allowed one of a higher score did not answer.
    """

    worker: str
    first: str
    scores: Mapping[str, float]
    refused: Mapping[str, str] = {}
    failed: Mapping[str, str] = {}

    def entry(self, ref: str, seconds: float) -> Inner:
        """As the record keeps it: of the router ``ref``, which took so many seconds to decide."""
        scores = {name: round(score, 6) for name, score in self.scores.items()}
        told = self._asdict() | {"scores": scores, "refused": dict(self.refused), "failed": dict(self.failed)}
        said = {name: value for name, value in told.items() if value not in ({}, "")}
        return Inner(ref, seconds=seconds, text=json.dumps({"route": said}))

    def lines(self) -> list[str]:
        """In words: who answered, and a line for each worker that did not because of a rule or a failure."""
        order = sorted(self.scores, key=lambda name: -self.scores[name])
        told = ", ".join(f"{name} {self.scores[name]:.3g}" for name in order[:8])
        more = f", and {len(order) - 8} more" if len(order) > 8 else ""
        head = f"answered by {self.worker}" + (f", in place of {self.first}" if self.first != self.worker else "")
        found = [f"{head}  (scores: {told}{more})"]
        found += [f"{name} did not answer: {why}" for name, why in self.failed.items()]
        return found + [f"{name} was not asked: {why}" for name, why in self.refused.items()]


def asked_of(inner: Sequence[Inner]) -> list[str]:
    """A line for each model that was asked: its tokens, cost and time."""
    found = list[str]()
    for one in inner:
        if not _is_decision(one):
            cost = f", ${one.cost:.6f}" if one.cost else ""
            tokens = f"{one.usage.prompt} + {one.usage.completion} tok"
            found.append(f"{one.model} answered: {tokens}{cost}, {one.seconds:.3g} s")
    return found


def _is_decision(one: Inner) -> bool:
    return one.model.startswith(SCHEME) and one.text.startswith('{"route"')


def decision_of(inner: Sequence[Inner]) -> Decision | None:
    """The decision of an answer, where a router gave it; None elsewhere, and where it is not what it should be."""
    if not inner or not _is_decision(inner[0]) or len(inner[0].text) > LONGEST:
        return None
    try:
        said = json.loads(inner[0].text)["route"]
        texts = [{str(k): str(v) for k, v in dict(said.get(name, {})).items()} for name in ("refused", "failed")]
        scores = {str(name): float(score) for name, score in dict(said["scores"]).items()}
        found = Decision(str(said["worker"]), str(said["first"]), scores, *texts)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError):
        return None
    return found if all(map(math.isfinite, scores.values())) else None
