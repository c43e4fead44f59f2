"""A model of a world fitted and measured by Clew's own functions, as `clew world fit` and `clew world eval` call them.

Every tier trains here. A result holds a mark for each answer, so that reports can count whatever they ask for.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from clew.core.records import LossRow
from clew.fit.trainer import Trainer
from clew.methods.world_model.content_kinds import CONTENTS
from clew.methods.world_model.model_folder import ModelCard
from clew.methods.world_model.observing.commonest import commonest
from clew.methods.world_model.observing.episodes import Episode
from clew.methods.world_model.observing.masking import KEPT
from clew.methods.world_model.observing.open_loop import Outcome, outcomes
from clew.models.local import Local
from clew.train import recipes
from clew.train.offline import Passes, fit
from papers.experiment import Line

RATE = 3e-3  # of AdamW beside Muon, as `clew world fit --model scratch` has it
HEADS = 4
CONTEXT, LONGEST = 1024, 200  # tokens that a model reads, and of an answer


def trained(model: Local, rows: Sequence[LossRow], epochs: int, seed: int, batch: int = 16, rate: float = RATE) -> Line:
    """Fit to rows, and say what it took: steps, tokens read, tokens with loss, the last loss, CPU-seconds."""
    trainer = Trainer(model, rate, recipes.offline("sft").losses(), optimizer="muon")
    passes, began = Passes(epochs=epochs, batch=batch, seed=seed), time.process_time()
    tokens, last, done = 0, 0.0, 0
    for step_number, _, step in fit(trainer, rows, passes):
        done, tokens, last = step_number, tokens + step.tokens, step.loss["sft"]
    weighing = epochs * sum(float(row.weights["sft"].sum()) for row in rows)
    spent = {"steps": done, "read": tokens, "weighing": round(weighing), "last_loss": round(last, 4)}
    return spent | {"fit_s": round(time.process_time() - began, 1)}


def measured(model: Local, episodes: Sequence[Episode], card: ModelCard) -> Line:
    """What the model says to every action after the true past, answer by answer, as text with a letter for each.

    exact, form, copied: 1 or 0. content: first letter of its class. class: place of its masking class. runs: answers of
    each episode. failed: answers that are none.
    """
    began = time.process_time()
    found: list[Outcome] = asyncio.run(outcomes(model, episodes, card))
    return {
        "exact": "".join(str(int(one.exact)) for one in found),
        "form": "".join(str(int(one.form)) for one in found),
        "copied": "".join(str(int(one.copied)) for one in found),
        "content": "".join(next(c[0] for c in CONTENTS if c == one.content) for one in found),
        "class": "".join(str(list(KEPT).index(one.kind)) for one in found),
        "runs": [len(one.turns) for one in episodes],
        "failed": sum(bool(one.failure) for one in found),
        "ask_s": round(time.process_time() - began, 1),
    }


def guessed(learnt: Sequence[Episode], asked: Sequence[Episode]) -> str:
    """What one reaches without a model: for each answer, 1 or 0, whether the commonest one to its action is right."""
    return "".join(str(int(hit)) for hit in commonest(learnt, asked))
