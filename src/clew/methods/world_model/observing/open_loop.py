"""A model of a world measured answer by answer: told the true past, what does it say next, and is that what was said?

`clew world eval` and `clew world fit` call it. Of the state a model is told what it said of it itself and never the
truth, which would be half of the answer, and which nobody tells it where it stands for a world. Every failure is
counted under its reason and counts as a wrong answer; none is left out of a mean. What a model says is compared as text
and never run.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from clew.core.errors import ClewError
from clew.core.protocols import Model
from clew.core.records import Node, Request
from clew.core.values import Message, Sampling
from clew.harness.run.nodes import make_node
from clew.methods.world_model.content_kinds import CONTENTS, Content, content_of, form_of, form_words, words_of
from clew.methods.world_model.model_folder import ModelCard
from clew.methods.world_model.observing.episodes import Episode
from clew.methods.world_model.observing.masking import Kind, kind_of
from clew.methods.world_model.observing.rewarding import canonical
from clew.methods.world_model.prompting import conversation, extract, extract_done, extract_state, turn_text

AT_ONCE = 64  # episodes that are under way together
NO_ANSWER, CUT = "no marked observation", "cut at the bound of tokens"


class Outcome(NamedTuple):
    """One answer of a model, beside what the world said.

    exact: the same text, and the same said of the end. form: the same with ids, times and unknown words taken out.
    words: F1 of the words. copied: whether the answer before it would have been exact. failure: why there is none, else
    empty. asked, written: tokens. cost: US dollars. seconds: that the model took.
    """

    run: str
    task: str
    turn: int
    content: Content
    kind: Kind
    exact: bool
    form: bool
    words: float
    copied: bool
    failure: str = ""
    asked: int = 0
    written: int = 0
    cost: float = 0.0
    seconds: float = 0.0


def request_of(model: Model, messages: Sequence[Message], sampling: Sampling) -> Request:
    """A request of a conversation, rendered as the model's renderer does."""
    renderer, nodes = model.renderer, list[Node]()
    for message in messages:
        tip = nodes[-1] if nodes else None
        ids = renderer.delta(tip, True, message, ()) if renderer else None
        nodes.append(make_node(tip, message, ids, renderer.ref if renderer else ""))
    return Request(tuple(nodes), sampling, head=renderer.head() if renderer else ())


async def outcomes(
    model: Model, episodes: Sequence[Episode], card: ModelCard, told: Callable[[int], None] = lambda done: None
) -> list[Outcome]:
    """Ask for every answer of the episodes, each after the true turns before it, with the model's own accounts of the
    state where it gives any. The answers of one episode are asked one after another, episodes at once.

    Args:
        card: how the model is asked. told: called with the number of answers so far.
    """
    form = form_words((one.task, turn.observation) for one in episodes for turn in one.turns)
    gate, done = asyncio.Semaphore(AT_ONCE), 0

    async def one(episode: Episode) -> list[Outcome]:
        nonlocal done
        found, told_states = list[Outcome](), list[str]()
        async with gate:
            for _ in episode.turns:
                outcome, state = await _outcome(model, episode, told_states, card, form)
                found.append(outcome)
                told_states.append(state)
                done += 1
                told(done)
        return found

    return [outcome for part in await asyncio.gather(*map(one, episodes)) for outcome in part]


async def _outcome(
    model: Model, episode: Episode, states: Sequence[str], card: ModelCard, form: Collection[str]
) -> tuple[Outcome, str]:
    """The next answer of an episode, and what the model says is true after it.

    Args:
        states: what it said so after each turn before.
    """
    turn = len(states)
    past = [one._replace(state=state) for one, state in zip(episode.turns, states, strict=False)]
    true = episode.turns[turn]
    last = episode.turns[turn - 1].observation if turn else episode.first
    where = (episode.run, episode.task, turn)
    content = content_of(canonical(true.observation), episode.before(turn), form)
    kind = kind_of(turn_text(true.action), true.observation)
    copied = canonical(last) == canonical(true.observation)
    messages = conversation(episode.system(card), past[-card.window :] if card.window else past, true.action)
    try:
        sampling = Sampling(max_tokens=card.max_tokens, temperature=card.temperature)
        answer = await model.complete(request_of(model, messages, sampling))
    except ClewError as error:
        return Outcome(*where, content, kind, False, False, 0.0, copied, type(error).__name__), ""
    spent = Outcome(*where, content, kind, False, False, 0.0, copied, "", answer.usage.prompt, answer.usage.completion)
    spent = spent._replace(cost=answer.cost, seconds=answer.seconds)
    said, state = extract(answer.message.text), extract_state(answer.message.text)
    if said is None:
        return spent._replace(failure=CUT if answer.finish == "length" else NO_ANSWER), state
    ended = extract_done(answer.message.text) == true.done
    found, truth = canonical(said), canonical(true.observation)
    alike = form_of(found, form) == form_of(truth, form)
    exact = found == truth and ended
    return spent._replace(exact=exact, form=alike and ended, words=words_f1(found, truth)), state


def words_f1(one: str, two: str) -> float:
    """F1 of the words of two texts, each as often as it stands there; 1 where both are empty."""
    a, b = Counter(words_of(one)), Counter(words_of(two))
    total = a.total() + b.total()
    return 2 * (a & b).total() / total if total else 1.0


def failures(found: Sequence[Outcome]) -> dict[str, int]:
    """How many answers each reason kept away."""
    return dict(Counter(one.failure for one in found if one.failure).most_common())


def by_content(found: Sequence[Outcome]) -> dict[str, list[Outcome]]:
    """Outcomes of all turns, and of each class of content that occurs."""
    parts = {name: [one for one in found if one.content == name] for name in CONTENTS}
    return {"all": list(found), **{name: part for name, part in parts.items() if part}}
