"""What a lesson says, looked up in the run it comes from: in what the agent did, and in what was answered to it.

The screen calls it. Only what the agent did counts as experience: an answer may be written by anybody, a web page or an
e-mail too, so that what stands in answers alone is a claim. Words are compared by their stems, specific terms (names in
code, quoted words, addresses, paths) as they stand.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cached_property, lru_cache
from typing import NamedTuple

from clew.harness.memory.ranking import words
from clew.methods.memory.lessons.run_view import Moment, RunView

_STOP = """a about after again all also always an and any are as at be because been before being both but by can cannot
could did do does doing done each else ever every few first for from get gets go goes had has have having how if in
instead into is it its just last later less like make makes many may more most must need needs never new next no none
nor not nothing now of off on once one only or other others our out over own per rather same shall should since so some
still such take takes than that the their them then there these they thing things this those through thus to too two
under until up upon use used uses using very was way well were what when where whether which while who whole why will
with within without would yet you your"""
STOP = frozenset(_STOP.split())  # words that say nothing of what a text is about
ADDRESS = re.compile(
    r"https?://[^\s\"'<>)]{1,500}|[\w.+-]{1,64}@[\w-]{1,63}\.[\w.-]{0,99}\w|(?:\w[\w-]{0,62}\.){1,8}(?:com|net|org|io|dev|ai|co|xyz|example|test)\b"
)
_FAILED = re.compile(r"\W*(error|traceback|\w*(error|exception)\b|fail|denied|invalid|[45]\d\d\b)", re.IGNORECASE)
_TERM = re.compile(
    r"`([^`\n]{1,80})`|(?<!\w)'([^'\n]{1,80})'(?!\w)|\"([^\"\n]{1,80})\"|(?<![\w/])((?:~|\.{1,2})?/[\w./-]{2,80})"
    r"|(?<!\w)(--[\w-]{2,40})|\b(\w*[a-z0-9]_[\w]*\w|[a-z]+[A-Z]\w*|\w+\.\w[\w.]*\w|\w+(?=\())"
)
ANSWER = 200_000  # characters of one answer that are looked at
LONG_WORD = 3  # letters of a word that says something


def stem(word: str) -> str:
    """A word without the endings of English that say nothing of what it is about."""
    for end in ("ings", "ing", "ied", "ies", "ed", "es", "s"):
        if word.endswith(end) and len(word) - len(end) >= LONG_WORD:
            return word[: -len(end)] + ("y" if end in ("ied", "ies") else "")
    return word.removesuffix("e") if len(word) > LONG_WORD + 1 else word


def content(text: str) -> list[str]:
    """Stems of the words of a text that say something, each once; what stands between underscores are words."""
    apart = words(re.sub(r"([a-z])([A-Z])", r"\1 \2", text).replace("_", " "))
    return list(dict.fromkeys(stem(one) for one in apart if len(one) >= LONG_WORD and one not in STOP))


def terms(text: str) -> list[str]:
    """What is specific in a text: quoted words, names in code, paths, options, addresses; each once."""
    found = ADDRESS.findall(text)
    for groups in _TERM.findall(ADDRESS.sub(" ", text)):
        found += [one for one in groups if one]
    return list(dict.fromkeys(one.strip(".,;:") for one in found if one.strip(".,;: ")))


def holds(text: str, term: str) -> bool:
    """Whether a text has a term as a whole word, in whatever case."""
    start, end = (r"(?<!\w)" if term[0].isalnum() else ""), (r"(?!\w)" if term[-1].isalnum() else "")
    return re.search(start + re.escape(term) + end, text, re.IGNORECASE) is not None


def shares(mine: Iterable[str], theirs: Iterable[str]) -> float:
    """Which part of some stems are among others, or begin one of them, or are begun by one; 0 of none."""
    wanted, there = list(mine), set(theirs)
    return sum(found_in(one, there) for one in wanted) / len(wanted) if wanted else 0.0


def found_in(one: str, there: set[str]) -> bool:
    """Whether a stem is among others: as it is, or one of four letters or more as the beginning of another."""
    if one in there:
        return True
    return any(min(len(one), len(other)) >= 4 and (one.startswith(other) or other.startswith(one)) for other in there)


class Told(NamedTuple):
    """One answer of the world or a tool. ``error``: it says that what was done failed."""

    seq: int
    text: str
    error: bool


class Grounds:
    """What a run shows, made ready for many lookups.

    Args:
        revealed: what was told about the run after it, by a judge or the environment; see ``Lesson``.
        seen: what a reflector did in copies of the run's world, and was answered. The answers count as those of the
            run; of the acts those count as tried that were answered and changed nothing, and none as the agent's.
    """

    def __init__(self, run: RunView, revealed: str = "", seen: tuple[Moment, ...] = ()) -> None:
        self.run, self.revealed, self.seen = run, revealed[:ANSWER], seen

    @cached_property
    def told(self) -> tuple[Told, ...]:
        """The answers, in order. The first is the task's opening where it says what the prompt says."""
        return tuple(
            Told(seq, text[:ANSWER], failed(text[:ANSWER]))
            for seq, text in [*self.run.answered, *((one.seq, one.saw) for one in self.seen)]
            if text != self.run.prompt
        )

    @cached_property
    def operator(self) -> str:
        """What no answer of the run could plant: the task, the tools that the agent was offered, what was revealed."""
        offered = [tool for call in self.run.run.calls if call.setup for tool in call.setup.tools]
        tools = dict.fromkeys(f"{tool.name} {tool.description} {tool.schema}" for tool in offered)
        return "\n".join([self.run.prompt, self.revealed, *tools])

    @cached_property
    def deeds(self) -> str:
        """Everything the agent did."""
        return "\n".join(text for _, text in self.run.done)

    @cached_property
    def looks(self) -> str:
        """Everything that a reflector did in copies of the world that was answered and changed nothing."""
        return "\n".join(one.did for one in self.seen if one.acted)

    @cached_property
    def trusted(self) -> set[str]:
        """Stems of what the agent did and was asked. What a reflector wrote into an act of its own is none of it."""
        return {*content(self.deeds), *content(self.operator)}

    @cached_property
    def all(self) -> set[str]:
        """Stems of everything in the run but what the agent only said."""
        return {*self.trusted, *(one for told in self.told for one in content(told.text))}

    def was_done(self, term: str) -> bool:
        """Whether the agent did something by that name."""
        return holds(self.deeds, term)

    def was_tried(self, term: str) -> bool:
        """Whether the agent did something by that name, or it was tried after the run."""
        return self.was_done(term) or holds(self.looks, term)

    def was_asked(self, term: str) -> bool:
        """Whether the task or the tools name it."""
        return holds(self.operator, term)

    def was_revealed(self, term: str) -> bool:
        """Whether what was told after the run names it."""
        return holds(self.revealed, term)

    def answers(self, term: str, errors: bool | None = None) -> list[int]:
        """Calls whose answers name it; with ``errors`` only those that are errors, or that are none."""
        return [one.seq for one in self.told if errors in (None, one.error) and holds(one.text, term)]

    def near(self, calls: Sequence[int]) -> set[str]:
        """Stems of what was done and answered at some Calls and the two after each (a reply is numbered before its
        act), and of all that was seen after the run."""
        wanted = {seq + more for seq in calls for more in range(3)}
        moments = [*(one for one in self.run.moments if one.seq in wanted), *self.seen]
        seen = {word for one in moments for word in content(f"{one.did} {one.saw}")}
        return seen.union(content(self.revealed))


@lru_cache(maxsize=2)
def grounds_of(run: RunView, revealed: str = "", seen: tuple[Moment, ...] = ()) -> Grounds:
    """The grounds of a run, made once for all its lessons of which the same was revealed and seen."""
    return Grounds(run, revealed, seen)


def failed(text: str) -> bool:
    """Whether an answer says that what was done failed."""
    return _FAILED.match(text) is not None
