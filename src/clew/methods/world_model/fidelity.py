"""Whether a simulated world answers as the real one: the same actions played there, compared turn by turn.

``clew world check`` and the judge of ``simulated`` call it. Playing a run's actions changes the real world that it is
given, so that this must be one that was opened for it. Texts of answers are compared, never opinions of them. Ids that
the simulated world made up are no names in the real one: there an action is played with the real world's ids in their
place, and answers are compared twice, word for word and up to such ids.
"""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from clew.core.errors import BadInput, WorldError
from clew.core.protocols import World
from clew.core.stats import deviate, wilson
from clew.core.values import Observation, ToolCall
from clew.methods.world_model.content_kinds import is_runtime, rewritten, words_of

BETS = (0.1, 0.2, 0.4, 0.7)  # shares of the largest bet that cannot ruin


class Acted(NamedTuple):
    """An act of a run as a simulated world answered it.

    ``played``: it has an effect in the world, which one that was refused on its way has not. ``compared``: its answer
    is the model's own, so that the real one can be held against it.
    """

    action: str | ToolCall
    observation: str
    done: bool = False
    played: bool = True
    compared: bool = True


class Compared(NamedTuple):
    """An act, what the real world answers to it, and whether the two are the same; None where they are not compared.

    form: whether they are the same up to ids, times and long numbers, each of which must stand for one of the real
    world's throughout; what the real world had told before must be told as it was.
    """

    act: Acted
    real: Observation
    state: bytes
    same: bool | None
    form: bool | None = None


def canonical_text(text: str) -> str:
    """A text as it is compared: JSON with sorted keys, anything else with its white space as single blanks."""
    try:
        value = json.loads(text)
        if isinstance(value, (dict, list)):
            return json.dumps(value, sort_keys=True)
    except (ValueError, RecursionError):
        pass
    return " ".join(text.split())


class Names:
    """Which of the real world's ids each id of the simulated one stands for, as far as answers have told."""

    def __init__(self) -> None:
        self._real, self._said = dict[str, str](), dict[str, str]()

    def alike(self, said: str, real: str, known: Collection[str]) -> bool:
        """Whether two texts are the same up to ids, and these stand for one another throughout; takes in new ones.

        Args:
            known: words that the real world has told before: they are no new ids.
        """
        one, other = words_of(said), words_of(real)
        if rewritten(said, _placed) != rewritten(real, _placed) or len(one) != len(other):
            return False
        new = dict[str, str]()
        for a, b in zip(one, other, strict=True):
            if self._real.get(a, new.get(a, b)) != b or self._said.get(b, a) != a:
                return False
            if a not in self._real and (a != b and b in known):
                return False
            new[a] = b
        if len(set(new.values())) < len(new):
            return False
        fresh = {a: b for a, b in new.items() if is_runtime(b)}
        self._real |= fresh
        self._said |= {b: a for a, b in fresh.items()}
        return True

    def played(self, action: str | ToolCall) -> str | ToolCall:
        """An action with the real world's ids in place of those that were made up."""
        if isinstance(action, ToolCall):
            return action._replace(arguments=rewritten(action.arguments, self._name))
        return rewritten(action, self._name)

    def _name(self, word: str) -> str:
        names = any(map(str.isalpha, word)) or (word.isdigit() and len(word) > 3)  # no amount, and no time
        return self._real.get(word, word) if names else word


def _placed(word: str) -> str:
    return "#" if is_runtime(word) else word


async def played(world: World, acts: Iterable[Acted], told: str = "") -> list[Compared]:
    """Perform the acts in a real world that was opened for this, up to its end or the last of them.

    After the real world's end, a turn differs by that alone.

    Args:
        told: what the agent was told before them.
    """
    found, names = list[Compared](), Names()
    first = world.observe()
    over, known = first.done, {*words_of(told), *words_of(first.text)}
    for act in acts:
        if not act.played:
            found.append(Compared(act, Observation(""), world.state_key, None))
            continue
        seen = Observation("(the real world was over before)", done=True)
        if not over:
            try:
                answer = world.step(names.played(act.action))
                seen = await answer if inspect.isawaitable(answer) else answer
            except WorldError as error:
                seen = Observation(f"(the real world failed: {error.message})")
        said, real = canonical_text(act.observation), canonical_text(seen.text)
        ended = act.done == seen.done and not over
        given = act.action.arguments if isinstance(act.action, ToolCall) else act.action
        alike = act.compared and ended and names.alike(said, real, known | {*words_of(given)})
        same = ended and said == real
        kept = (same, same or alike) if act.compared else (None, None)
        found.append(Compared(act, seen, world.state_key, *kept))
        known |= {*words_of(real)}
        over = over or seen.done
    return found


def share(turns: Sequence[Compared]) -> float | None:
    """The share of the compared turns in which the worlds answer the same; None where none is compared."""
    told = [turn.same for turn in turns if turn.same is not None]
    return sum(told) / len(told) if told else None


class Monitor:
    """Watches the turns of a training in a simulated world, and falls when their agreement is below a bound for sure.

    A bet against the claim that at least ``bound`` of the turns agree: while the claim holds, the wealth grows beyond
    1 / ``alpha`` with a chance of at most ``alpha``, however often one looks (Ville's inequality; arXiv 2010.09686).
    Turns of one run go together, so that a run counts once, by its share of turns that agree.

    Raises:
        BadInput: a bound outside (0, 1), or a chance outside (0, 1).
    """

    def __init__(self, bound: float, alpha: float = 0.01) -> None:
        if not 0 < bound < 1 or not 0 < alpha < 1:
            raise BadInput(f"a monitor of bound {bound} and chance {alpha}", remedy="Give both between 0 and 1.")
        self.bound, self.alpha = bound, alpha
        self.agreeing, self.n = 0.0, 0
        self._wealth = [0.0] * len(BETS)  # logarithms

    def add(self, agreement: float) -> None:
        """Count a run by the share of its turns that agree."""
        self.n += 1
        self.agreeing += agreement
        for i, bet in enumerate(BETS):
            self._wealth[i] += math.log1p(bet / (1 - self.bound) * (self.bound - agreement))

    @property
    def fallen(self) -> bool:
        """Whether the agreement is below the bound, by all runs so far."""
        most = max(self._wealth)
        mean = most + math.log(sum(math.exp(one - most) for one in self._wealth) / len(BETS))
        return mean >= -math.log(self.alpha)

    def __str__(self) -> str:
        low, high = wilson(self.agreeing, float(self.n), deviate(0.95))
        mean = self.agreeing / max(self.n, 1)
        told = f"{mean:.2f} of the turns of a run [{low:.2f}, {high:.2f}], n={self.n} runs"
        return f"{told}, against a bound of {self.bound}"
