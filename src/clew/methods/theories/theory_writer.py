"""A proposer that asks a model for a theory: it reads the best theories and where they miss, and writes another.

The closed loop calls it. What the model answers is source that is never run here: it is read by the whitelist of
``theory_code`` and, where it passes, asked in the sandbox. What was refused is counted by kind, so that a search can
tell at its end how its proposals failed.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from clew.core.errors import ModelError
from clew.core.protocols import Model
from clew.core.values import Sampling
from clew.methods.coevolve.prompt_rewriter import marked
from clew.methods.theories.choice_fits import Choices, cells
from clew.methods.theories.theory_code import ARGUMENTS, LONGEST, NAMES, BadTheory, TheoryCode
from clew.models.asking import request

TOLD, PAIRS = 12_000, 12  # characters of what is told of theories; pairs that are shown of an experiment
SAMPLING = Sampling(max_tokens=3000, temperature=1.0)
ASK = """People chose between two products, A and B, each rated by experts of known validity (the chance that an \
expert is right). Propose a theory of how they choose: a rule that no theory below is.

Theories so far, the best first, with the mean squared error of their predicted share of B on experiments left out:

{theories}

Of each experiment some pairs, with the share of people's choices that fell on B:

{data}

Write Python that defines, outside any function, PARAMETERS, a dictionary from at most 8 names to [lowest, highest], and
def {head}: the probability of choosing B.
a and b are lists of ratings, validities is a list, history is the list of this person's earlier choices (1 for B), p a
dictionary of parameters. No imports, no attributes: beside arithmetic, lists, loops and functions of your own there are
{names}.
Say in a docstring what the mind does. Answer with the source between <theory> and </theory>, and nothing else."""
_SOURCE = re.compile(r"<theory>(.*?)</theory>", re.DOTALL)
_FENCE = re.compile(r"\A```(?:python)?\n(.*)```\Z", re.DOTALL)


class Known(NamedTuple):
    """A theory that the writer is told of: its source or a description, and its error on experiments left out."""

    text: str
    error: float


class Written(NamedTuple):
    """theory: None where there is none that may be run, and then ``why``. cost: tokens, and dollars where known."""

    theory: TheoryCode | None
    cost: Mapping[str, float]
    why: str = ""


class TheoryWriter:
    """Asks a model for one theory at a time.

    Args:
        model: asked once for each theory.

    ``refused`` counts what was not taken, by kind: "import", "attribute", "call", "no source", "no answer" and so on,
    each kind once for an answer.
    """

    def __init__(self, model: Model, sampling: Sampling = SAMPLING) -> None:
        self.model, self.sampling = model, sampling
        self.refused: Counter[str] = Counter()

    async def write(self, known: Sequence[Known], experiments: Sequence[Choices], luck: int) -> Written:
        """A new theory, read and not run. ``luck`` seeds the model."""
        text = ask(known, experiments)
        try:
            done = await self.model.complete(request(self.model, text, seed=luck % 2**31, sampling=self.sampling))
        except ModelError as error:
            return self._refuse(["no answer"], {}, f"the model gave no answer: {error.message}")
        cost = {"tokens": float(done.usage.prompt + (done.usage.completion or len(done.tokens or ())))}
        if done.cost:
            cost["dollars"] = float(done.cost)
        found = _SOURCE.search(done.message.text[: 4 * LONGEST])
        if not found:
            return self._refuse(["no source"], cost, "the answer held no source between <theory> and </theory>")
        source = found[1].strip()
        fenced = _FENCE.match(source)
        try:
            return Written(TheoryCode.read(fenced[1] if fenced else source), cost)
        except BadTheory as error:
            return self._refuse(sorted(error.counted), cost, error.message)

    def _refuse(self, kinds: Sequence[str], cost: Mapping[str, float], why: str) -> Written:
        self.refused.update(kinds)
        return Written(None, cost, why)


def ask(known: Sequence[Known], experiments: Sequence[Choices]) -> str:
    """What the model is asked: theories and data stand between marks, as data and within bounds."""
    share = TOLD // max(1, len(known))
    theories = "\n".join(f"error {one.error:.4f}\n{one.text[:share]}" for one in known) or "none"
    rows = []
    for number, one in enumerate(experiments, 1):
        rows.append(f"experiment {number}, validities {[round(float(v), 3) for v in one.validities]}")
        pairs = cells(one)
        for a, b, chosen in list(zip(pairs.a.tolist(), pairs.b.tolist(), pairs.share.tolist(), strict=True))[:PAIRS]:
            rows.append(f"  A {a} B {b}: {chosen:.2f}")
    head = f"choose_b({', '.join(ARGUMENTS)})"
    shown, data = marked(theories, "theories"), marked("\n".join(rows)[:TOLD], "choices")
    return ASK.format(theories=shown, data=data, head=head, names=", ".join(NAMES))
