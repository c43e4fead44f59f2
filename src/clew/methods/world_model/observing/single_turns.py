"""Turns of stored runs as rows of data, each asking for one answer of the world: what single-turn RL trains on.

`clew world turns` writes them and `clew train --data ... --reward observation` trains on them: the prompt is all that
came before an action, the reply one observation, the reward ``rewarding.observation`` (arXiv 2606.24597, stage 3). One
turn of a run is drawn: all turns of one share a long prefix, and their rewards vary less. A row must never hold the
answer where the model reads it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

from clew.core.keys import derive
from clew.methods.world_model.content_kinds import form_words
from clew.methods.world_model.model_folder import ModelCard
from clew.methods.world_model.observing.episodes import Episode
from clew.methods.world_model.prompting import conversation


def turn_rows(
    episodes: Sequence[Episode], card: ModelCard, seed: int = 0, every: bool = False
) -> Iterator[dict[str, Any]]:
    """Rows ``id``, ``messages``, ``answer``, ``done`` (the episode ended with it) and ``form`` (words of the world's
    form), as JSON has them.

    Args:
        card: how the model is asked, its window of turns too.
        seed: of the turn that is drawn, with the run's id: other runs beside it change nothing.
        every: all turns of each run in place of one.
    """
    form = sorted(form_words((one.task, turn.observation) for one in episodes for turn in one.turns))
    for episode in episodes:
        mine = [i for i, learnt in enumerate(episode.learnt) if learnt]
        if not every and mine:
            mine = [random.Random(derive(seed, "single turn", episode.run)).choice(mine)]
        for turn in mine:
            past = episode.turns[max(0, turn - card.window) if card.window else 0 : turn]
            asked = conversation(episode.system(card), past, episode.turns[turn].action)
            messages = [{"role": one.role, "content": one.text} for one in asked]
            told = {"answer": episode.turns[turn].observation, "done": episode.turns[turn].done}
            yield {"id": f"{episode.run}/{turn}", "messages": messages, **told, "form": form}
