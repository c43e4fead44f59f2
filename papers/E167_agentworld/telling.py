"""The world's own account of its state, told again to a model of it every so many turns (specs/E167, E8).

It is what no simulated world has, whose state nobody knows but the model: an upper bound, for the experiment alone. The
episodes to learn from and the model that is asked are told in one form, that of ``worlds.learned.prompting``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from clew.core.protocols import Model
from clew.core.records import Request
from clew.core.values import Completion
from clew.methods.world_model.model_folder import ModelCard
from clew.methods.world_model.observing.episodes import Episode
from clew.methods.world_model.observing.open_loop import request_of
from clew.methods.world_model.prompting import Turn, conversation, turn_text

EVERY = 3  # turns


def reminded(one: Episode) -> Episode:
    """An episode in which the world says beside every third action what is true before it, and nobody thinks."""
    turns, state = list[Turn](), ""
    for i, turn in enumerate(one.turns):
        asked = conversation("", [], turn.action, state if i and i % EVERY == 0 else "")[0].text
        turns.append(turn._replace(action=asked, state=""))
        state = turn.state
    return replace(one, turns=tuple(turns))


class Told:
    """A model before which the world's account is put into the actions; what was told stays in the past.

    Args:
        episodes: as they were played in the real world; any other conversation goes through as it is.
    """

    def __init__(self, model: Model, episodes: Sequence[Episode], card: ModelCard) -> None:
        self.model, self.ref, self.version, self.renderer = model, model.ref, model.version, model.renderer
        self._told = dict[tuple[str, ...], str]()
        for one in episodes:
            asked: tuple[str, ...] = (one.system(card),)
            for turn, with_state in zip(one.turns, reminded(one).turns, strict=True):
                asked = (*asked, turn_text(turn.action))
                self._told[asked] = turn_text(with_state.action)

    async def complete(self, request: Request) -> Completion:
        """The model's answer to the request with what is true in it."""
        asked: tuple[str, ...] = ()
        messages = []
        for node in request.path:
            message = node.message
            if message.role in ("system", "user"):
                asked = (*asked, message.text)
                message = message._replace(text=self._told.get(asked, message.text))
            messages.append(message)
        return await self.model.complete(request_of(self.model, messages, request.sampling))
