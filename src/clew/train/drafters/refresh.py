"""Speculative decoding of a training's rollouts: the drafter is refreshed as the policy moves.

The law of what is sampled stays the policy's (clew.models.engine.speculation.verification), so only time can be won by
a drafter. What is recorded are the policy's own tokens and logprobs. But which noise draws a token depends on how its
drafts were cut, and so on what ran beside it: a training that is taken up again samples the same law, not the same
runs.
"""

from __future__ import annotations

import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from clew.core.errors import BadInput, BadRecord, UnknownName
from clew.models.drafters import folder as folders
from clew.models.drafters import load, ready
from clew.models.drafters.eagle import Eagle
from clew.models.drafters.layers import Trained
from clew.models.drafters.parallel import DSpark
from clew.models.engine.forwards.weights import matrices, weights_digest
from clew.models.engine.speculation.costs import Costs
from clew.models.engine.speculation.lengths import Fixed, Held, Scheduler
from clew.models.engine.speculation.profile import measure
from clew.models.engine.speculation.proposal import Drafter
from clew.models.local.model import Local
from clew.train.drafters import drafter_losses, target_text
from clew.train.drafters.drafter_job import CE_ONLY
from clew.train.drafters.drafter_losses import Schooling, Step

FOLDER = "drafter"  # in a checkpoint
STEPS = 16  # of a refresh
AGAIN = 16  # iterations after which the way that was slower is tried again


class Drafting:
    """A drafter for the rollouts of a training, and how it is refreshed.

    How much of a draft is verified, and whether one is made at all, is decided by the scheduler (2607.05147, section
    3.2.3) from costs measured on this machine and from chances as far as they held in the iteration before. A table of
    ``clew draft calibrate`` is not used: it was fitted for weights that the first refresh leaves behind.

    A cost table knows little of replies that are over after two rounds. So whole iterations are tried with the drafter
    and without, and timed; where it does not pay it is put aside, and not refreshed.

    Args:
        model: the policy, not steady, its weights those the drafter was made for. Adapters are attached later.
        source: a folder of ``clew draft train``, or "lookup", which needs no refreshing.
        kept: folder in which measured costs are kept, and looked for after the model's own; None keeps none.
        how: a refresh; by default 16 steps, of the losses that the drafter's kind is trained with.
        rows: most runs at once, up to which costs are measured.
        advance: see ``profile.measure``.

    Raises:
        UnknownName: no drafter there. BadInput: it was made for another model or tokenizer, or the engine is steady.
    """

    def __init__(
        self,
        model: Local,
        source: str | Path,
        *,
        kept: Path | None = None,
        how: Schooling | None = None,
        rows: int = 256,
        advance: Callable[[str, int, int], object] = lambda what, done, all: None,
    ) -> None:
        self.model, self.source = model, str(source)
        self.module: Trained | None = None
        self.digest = self.source
        if self.source != "lookup":
            device = next(model.module.parameters()).device
            self.module = folders.read(source, model.module, model.tokenizer).to(device)
            self.digest = weights_digest(self.module)
        self.how = how or schooling(self.module)
        self._drafter = self._ready()
        model.engine.draft(self._drafter, Fixed(0))  # refuses what it cannot verify, before anything is measured
        costs = find_costs(model, self.digest, kept)
        if costs is None:
            costs = measure(model, self._ready(), self.digest, max_rows=rows, advance=advance)
            if kept is not None:
                kept.mkdir(parents=True, exist_ok=True)
                costs.save(kept)
        # Process time where it is that of the one thread that computes: other programs do not disturb it.
        alone = next(model.module.parameters()).device.type == "cpu" and costs.threads == 1 and costs.plain_cpu
        self._lengths = Held(Scheduler(costs.by_process_time() if alone else costs), self._drafter.block)
        self._clock: Callable[[], float] = time.process_time if alone else time.perf_counter
        self._began, self._sampled = (0.0, 0), 0
        self.trial, self.on = Trial(), False

    def _ready(self) -> Drafter:
        """The drafter as the engine runs it, of the present weights."""
        return load("lookup", self.model.module) if self.module is None else ready(self.module)

    def begin(self) -> None:
        """An iteration begins, with drafts or, where they do not pay, without; counts begin anew. Nothing may run."""
        self.on = self.trial.next()
        self.model.engine.draft(*((self._drafter, self._lengths) if self.on else (None,)))
        self._began = self._clock(), self.model.engine.stats().counts.sampled

    def end(self, seconds: float) -> dict[str, float]:
        """What came of drafts since ``begin``, for the curves of a training: ``gain``, tokens a second with the drafter
        (its refresh included) by those without, once both were tried; in iterations with drafts also ``length``, tokens
        a round, at least 1; ``drafted``, share of the rounds in which something was verified; ``share`` of the
        ``seconds`` of collecting that went into drafting.
        """
        spent, self._sampled = self._clock() - self._began[0], self.model.engine.stats().counts.sampled - self._began[1]
        if self._sampled:
            self.trial.note(self.on, spent / self._sampled)
        found = {} if self.trial.gain is None else {"gain": self.trial.gain}
        counts = self.model.engine.drafted
        if counts is not None and counts.rounds:
            self._lengths.learn(counts)
            found["length"] = counts.emitted / counts.rounds
            found["drafted"] = (counts.recovered + counts.bonus) / counts.rounds
            found["share"] = counts.seconds / max(seconds, 1e-9)
        return found

    def refresh(self, runs: Iterable[Any], seed: int = 0) -> list[Step]:
        """Train the drafter on the text of these runs, with what the present policy computes on it; the new weights
        are drafted with from the next ``begin`` on. Nothing for prompt lookup, for a drafter that does not pay, or
        where no run has text enough.

        Args:
            runs: of which each has sampled tokens. seed: of rows and anchors.
        """
        texts = [] if self.module is None or not self.trial.pays else target_text.of_runs(runs)
        cut = [(t.ids[: self.model.context], t.first) for t in texts]
        cut = [(ids, first) for ids, first in cut if first + 2 <= len(ids)]
        if not cut:
            return []
        began = self._clock()
        assert self.module is not None
        self._adopt(self.module)
        with tempfile.TemporaryDirectory() as folder:
            ids, first = [ids for ids, _ in cut], [first for _, first in cut]
            data = drafter_losses.tap(self.model.module, ids, first, self.module.design.taps, Path(folder) / "taps")
            steps = list(drafter_losses.train(self.module, data, replace(self.how, seed=seed)))
        self._drafter = self._ready()
        if self.on and self._sampled:
            self.trial.charge((self._clock() - began) / self._sampled)
        return steps

    @torch.no_grad()
    def _adopt(self, drafter: Trained) -> None:
        """The frozen copies of the policy's embedding and output matrix, as they are now."""
        embedding, output = matrices(self.model.module)
        drafter.lm_head.weight.copy_(output)
        if isinstance(drafter, (DSpark, Eagle)):
            drafter.embed_tokens.weight.copy_(embedding)

    def save(self, checkpoint: Path) -> None:
        """Put the drafter into a checkpoint, as a drafter of the weights that lie there."""
        if self.module is not None:
            (checkpoint / FOLDER).mkdir()
            target = folders.target_of(self.model.module, self.model.tokenizer, self.model.ref)
            folders.write(self.module, checkpoint / FOLDER, target, {"of": self.digest, "refresh": asdict(self.how)})

    def load(self, checkpoint: Path) -> None:
        """Go on with the drafter of a checkpoint, where one lies there that came of the one this was made with."""
        here = checkpoint / FOLDER
        if self.module is None or not here.exists() or folders.about(here)["made"].get("of") != self.digest:
            return
        self.module = folders.unchecked(here, self.model.module).to(self.module.lm_head.weight.device)
        self._drafter = self._ready()


class Trial:
    """Which of two ways is faster, with drafts or without: both in turn at first, then the faster, and after every 16
    the other once more.

    A way counts with the better of its last two paces (seconds a token): other programs only ever make it slower.
    """

    def __init__(self) -> None:
        self._paces: dict[bool, deque[float]] = {True: deque(maxlen=2), False: deque(maxlen=2)}
        self._count = 0

    def next(self) -> bool:
        """Whether to draft now."""
        tried = sum(map(len, self._paces.values()))
        if tried < 4:
            return tried % 2 == 0
        self._count += 1
        return self.pays != (self._count % AGAIN == 0)

    def note(self, on: bool, pace: float) -> None:
        self._paces[on].append(pace)

    def charge(self, pace: float) -> None:
        """What the last drafted pace takes besides."""
        if self._paces[True]:
            self._paces[True][-1] += pace

    @property
    def gain(self) -> float | None:
        """Speed with drafts by that without; None until both are known."""
        return min(self._paces[False]) / min(self._paces[True]) if all(self._paces.values()) else None

    @property
    def pays(self) -> bool:
        """Whether drafts are faster; so they are taken to be until both ways were tried twice."""
        known = all(len(paces) == 2 for paces in self._paces.values())
        return not known or (self.gain or 0.0) > 1.0


def schooling(module: Trained | None, steps: int = STEPS) -> Schooling:
    """How a drafter is refreshed: few steps, of the losses it was trained with."""
    how = Schooling(steps=steps, lr=1e-3)
    if module is not None and module.design.kind in CE_ONLY:
        how = replace(how, ce=1.0, tv=0.0, confidence=0.0)
    return how


def find_costs(model: Local, digest: str, kept: Path | None) -> Costs | None:
    """Costs of this model and drafter on this machine, from beside the model or from ``kept``."""
    device = str(next(model.module.parameters()).device)
    for folder in (Path(model.ref), kept):
        if folder is not None and folder.is_dir():
            try:
                return Costs.load(folder, model.digest(), digest, device)
            except (UnknownName, BadInput, BadRecord):
                continue  # there are none, or none that hold here
    return None
