"""Counts whether a training's rows hold the very tokens that its model was asked with and sampled.

Tier ``programs`` wraps a model and a trainer with it, and ``tests/train/test_program_training.py`` does. It listens
between the runs and the engine, where nothing of the record is known, and must never change what it hears.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from clew.core.protocols import Done
from clew.core.records import LossRow, Request
from clew.core.values import Completion
from clew.fit.trainer import StepReport, Trainer
from clew.models.local import Local
from clew.serve.programs.commanded import Told
from clew.store import Run


@dataclass(slots=True)
class Truth:
    """rows, true: rows trained on, and those of them whose every sampled stretch, and all that stood before it, is what
    the engine was given and gave. replies: sampled stretches in them. mismatch: largest difference, in nats, of the
    trainer's logprobs and those that were recorded, over tokens that the very weights being trained have sampled.
    """

    rows: int = 0
    true: int = 0
    replies: int = 0
    mismatch: float = 0.0


@dataclass(slots=True)
class Ear:
    """What a model was asked with, and what it sampled: (prompt, reply) in tokens, by run and call."""

    heard: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = field(default_factory=dict)

    def listen(self, model: Local) -> None:
        """Hear all that is asked of a model from now on."""
        plain = model.submit

        def submit(requests: Sequence[Request], done: Done) -> None:
            def told(results: list[tuple[int, Completion | BaseException]]) -> None:
                for index, result in results:
                    if isinstance(result, Completion) and result.tokens is not None:
                        request = requests[index]
                        ids = [token for node in request.path for token in node.ids or ()]
                        prompt = (*ids, *request.head, *request.forced)
                        self.heard[request.idempotency] = (prompt, tuple(result.tokens))
                done(results)

            plain(requests, told)

        model.submit = submit  # type: ignore[method-assign]

    def says(self, row: LossRow) -> bool:
        """Whether a row is what was heard: each sampled stretch with all that stood before it."""
        ids, sampled = tuple(row.ids.tolist()), 0
        for start, at in row.source or ():
            prompt, reply = self.heard.get(f"{at.run}-{at.seq}", ((), ()))
            if not reply or ids[:start] != prompt or ids[start : start + len(reply)] != reply:
                return False
            sampled += len(reply)
        return sampled == int(row.sampled.sum())


class Weighed(Trainer):
    """A trainer that counts whether the rows of each step are true."""

    def __init__(self, model: Any, ear: Ear, **settings: Any) -> None:
        super().__init__(model, **settings)
        self.ear, self.truth = ear, Truth()

    def step(self, rows: Sequence[LossRow], lr_scale: float = 1.0) -> StepReport:
        truth = self.truth
        truth.rows += len(rows)
        truth.true += sum(map(self.ear.says, rows))
        truth.replies += sum(len(row.source or ()) for row in rows)
        report = super().step(rows, lr_scale)
        truth.mismatch = max(truth.mismatch, report.mismatch or 0.0)
        return report


def matched(runs: Sequence[Run]) -> tuple[int, int, int]:
    """Of the requests of programs: those that repeat a history, those whose history the record knew to its last
    message, and the model's own replies that stand on a path in other tokens than they were sampled in."""
    repeat = known = anew = 0
    for run in runs:
        told = [
            it for call in run.calls if call.kind == "act" and call.done >= 0 for it in Told.read(call.text).requests
        ]
        repeat += sum(it.number > 0 for it in told)
        known += sum(it.goes_on for it in told)
        asks = [call for call in run.calls if call.kind == "ask" and call.node_out]
        sampled = {call.node_out for call in asks}
        path = {node.key: node for call in asks for node in run.store.thread(call.node_in)}
        anew += sum(node.message.role == "assistant" and node.key not in sampled for node in path.values())
    return repeat, known, anew
