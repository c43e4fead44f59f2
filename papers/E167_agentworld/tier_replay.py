"""The cells of tier replay: what a model forgets of what it knew while it is fitted to a world (E9).

What it knew is another world, ``clerk``, whose words it learns first. It is then fitted to the shell, with a share of
the rows from ``clerk``: 0, a tenth, a quarter; beside the shell's rows, never in their place. Forgetting is the loss on
runs of ``clerk`` that it never learnt from, in nats for a token of an answer. A model that is not fitted to the shell
is the control.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

from clew.core.records import LossRow
from clew.methods.world_model.observing.episodes import Episode, card_of
from clew.methods.world_model.observing.masking import Keep
from clew.methods.world_model.observing.observation_rows import observation_rows, vocabulary_of
from clew.models.local.model import Local, small
from papers.E167_agentworld.episodes import drawn, without_accounts
from papers.E167_agentworld.fitting import CONTEXT, HEADS, LONGEST, measured, trained
from papers.experiment import Line, apart, each

BEFORE, RUNS, MEASURED = 400, 500, 40  # runs of what it knew, of the shell, and of each to measure by
WIDTH, BLOCKS, EPOCHS = 96, 3, 3
SHARES = (-1.0, 0.0, 0.1, 0.25)  # of replay in all rows; -1: not fitted to the shell at all
SEEDS = range(2)
cost = 50.0
portions = apart


def cells(quick: bool) -> Iterator[Line]:
    if quick:
        yield {"share": 0.1, "size": "small", "seed": 0}
        return
    yield from ({"share": share, "seed": seed} for seed in SEEDS for share in SHARES)


@lru_cache(maxsize=2)
def _known(seed: int, small_one: bool) -> tuple[list[str], Any, list[Episode], list[Episode]]:
    """Words of both worlds, the weights of a model that knows ``clerk``, its episodes, and those of the shell."""
    sizes = (60, 60) if small_one else (BEFORE, RUNS)
    clerk, shell = (without_accounts(drawn(ref, n, seed)) for ref, n in zip(("clerk", "shell"), sizes, strict=True))
    words = vocabulary_of([*clerk, *shell])
    model = _model(words, seed)
    trained(model, _rows(clerk, model, seed, "all"), 1 if small_one else EPOCHS, seed)
    return words, {name: value.clone() for name, value in model.module.state_dict().items()}, clerk, shell


def _model(words: list[str], seed: int) -> Local:
    return small(words, WIDTH, BLOCKS, HEADS, 2, CONTEXT, seed, steady=True)


def _rows(episodes: Sequence[Episode], model: Local, seed: int, keep: Keep) -> list[LossRow]:
    return observation_rows(episodes, model.renderer, card_of(episodes, False), keep, seed, CONTEXT)[0]


def _loss(model: Local, rows: Sequence[LossRow]) -> float:
    """Nats for a token of an answer."""
    told = zip(model.score([row.ids.tolist() for row in rows]), rows, strict=True)
    parts = [(-float((logp * row.weights["sft"][1:]).sum()), float(row.weights["sft"][1:].sum())) for logp, row in told]
    return sum(loss for loss, _ in parts) / sum(n for _, n in parts)


def _cell(setting: Line, seed: int) -> Line:
    share, small_one = setting["share"], setting.get("size") == "small"
    words, weights, clerk, shell = _known(seed, small_one)
    model = _model(words, seed)
    model.module.load_state_dict(weights)
    model.publish()
    asked = [without_accounts(drawn(ref, 10 if small_one else MEASURED, 1, "test")) for ref in ("clerk", "shell")]
    unseen = _rows(asked[0], model, seed, "all")
    before, spent, again = _loss(model, unseen), dict[str, Any](), list[Episode]()
    if share >= 0:
        again = clerk[: round(len(shell) * share / (1 - share))]
        rows = [*_rows(shell, model, seed, "turn"), *(_rows(again, model, seed, "all") if again else [])]
        spent = trained(model, rows, 1 if small_one else EPOCHS, seed)
    card = card_of(shell, False, max_tokens=LONGEST)
    told = {"before": round(before, 5), "after": round(_loss(model, unseen), 5), "again": len(again), **spent}
    return told | measured(model, asked[1], card)


run = each(_cell)
