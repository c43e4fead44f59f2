"""The cells of tier mask: is it worth leaving echoes out of the loss (E2)?

The runs are of the shell, by one who notes words to himself with ``echo`` after a share of the actions, which the
shell repeats. Arms: ``all``, every answer is learnt; ``same``, the same runs with the classes masked as Clew masks
them; ``more``, masked, and as many more runs as it takes for the same tokens with loss. Without notes only the last
answer of a run, to ``exit``, is an echo: the control.
"""

from __future__ import annotations

from collections.abc import Iterator

from clew.methods.world_model.observing.episodes import Episode, card_of
from clew.methods.world_model.observing.masking import Keep
from clew.methods.world_model.observing.observation_rows import observation_rows, vocabulary_of
from clew.models.local.model import small
from papers.E167_agentworld.episodes import drawn, without_accounts
from papers.E167_agentworld.fitting import CONTEXT, HEADS, LONGEST, measured, trained
from papers.experiment import Line, apart, each

RUNS, EPOCHS, MEASURED = 500, 4, 100
WIDTH, BLOCKS = 96, 3
NOTES = 0.5  # notes after an action
SEEDS = range(2)
cost = 60.0
portions = apart


def cells(quick: bool) -> Iterator[Line]:
    if quick:
        yield {"arm": "same", "share": NOTES, "size": "small", "seed": 0}
        return
    for seed in SEEDS:
        for share, arms in ((NOTES, ("all", "same", "more")), (0.0, ("all", "same"))):
            yield from ({"arm": arm, "share": share, "seed": seed} for arm in arms)


def _loss_tokens(learnt: list[Episode], keep: Keep, seed: int) -> float:
    words = small(vocabulary_of(learnt), 8, 1, 2, 1, CONTEXT).renderer
    return observation_rows(learnt, words, card_of(learnt, False), keep, seed)[1].weighing


def _cell(setting: Line, seed: int) -> Line:
    arm, share, tiny = setting["arm"], setting["share"], setting.get("size") == "small"
    runs = 100 if tiny else RUNS
    learnt = without_accounts(drawn("shell", runs, seed, notes=share))
    if arm == "more":
        wanted, have = _loss_tokens(learnt, "all", seed), _loss_tokens(learnt, "turn", seed)
        learnt = without_accounts(drawn("shell", round(runs * wanted / have), seed, notes=share))
    asked = without_accounts(drawn("shell", 20 if tiny else MEASURED, 1, "test", notes=share))
    card = card_of(learnt, False, max_tokens=LONGEST)
    model = small(vocabulary_of(learnt), WIDTH, BLOCKS, HEADS, 2, CONTEXT, seed, steady=True)
    rows, counts = observation_rows(learnt, model.renderer, card, "all" if arm == "all" else "turn", seed, CONTEXT)
    spent = trained(model, rows, 1 if tiny else EPOCHS, seed)
    kept = {"kept": dict(counts.kept), "turns": dict(counts.turns)}
    return {"learnt": len(learnt), **spent, **kept, **measured(model, asked, card)}


run = each(_cell)
