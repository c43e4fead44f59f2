"""Whether two texts of a memory say the same, or cannot both hold, by their words alone: no run and no model is asked.

The screen of lessons sets one lesson beside its neighbours (``relative``), the audit sets all items beside each other
(``copies``, ``contradictions``); both go by the same two rules, ``clash`` and ``same``. Words are all that is compared:
one thing said in other words is not found, and a contradiction is found only where two texts say nearly the same and
differ in a denial, in one number or name, or in a pair of opposites. What items say is data: it is cut into words and
never run.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from typing import Literal, NamedTuple

from clew.harness.memory import Item
from clew.harness.memory.item_kinds import text_of
from clew.methods.memory.lessons.grounds import LONG_WORD, STOP, stem, terms

Relation = Literal["same", "more", "contrary"]
SAME, NEAR = 0.8, 0.5  # words in common, of those of both, from which texts say the same; from which they may clash
WITHIN = 0.9  # of the words of one
READ = 200  # words of a text that are compared
SHORT = 2  # words that may differ on each side
_NOT = "not no never none nothing without cannot neither nor dont doesnt isnt arent wont cant"
_SAYS_WORDS = """is are was be equals means takes needs uses expects returns holds has have at called named costs lasts
starts begins ends opens closes"""
_COUNTS = "two three four five six seven eight nine ten eleven twelve twenty thirty hundred thousand twice thrice"
_OPPOSITE = """always never, before after, first last, open closed, on off, true false, yes no, include exclude,
includes excludes, included excluded, allowed forbidden, required optional, enabled disabled, ascending descending,
minimum maximum, least most, more fewer, up down, start end, public private, works fails"""
NEGATIONS = frozenset(_NOT.split())
FEW = 2  # telling words below which a text says nothing
REPEATED, LONG = 0.3, 20  # share of different words below which a text of so many words repeats itself
_EMPTY = (
    "accurate accurately again all always answer approach appropriate attention aware best better careful carefully "
    "check clear clearly complete completely consider correct correctly detail details double efficient ensure every "
    "everything follow give good help helpful important instruction instructions keep know look make mind mistake "
    "mistakes must necessary need needed note plan please possible proceed proper properly provide quality question "
    "read remember request requirements response review right step steps successfully sure take task tasks thing "
    "things think thoroughly time try understand use user verify way well work works"
)
EMPTY = frozenset(_EMPTY.split())  # words of advice that fits every task
_SAYS, _NUMBERS = frozenset(_SAYS_WORDS.split()), frozenset(_COUNTS.split())
_OPPOSITES = frozenset(frozenset(pair.split()) for pair in _OPPOSITE.replace("\n", " ").split(", "))
_PLAIN = STOP - NEGATIONS - _NUMBERS - {"one"}.union(*_OPPOSITES)
_SHORTENED = re.compile(r"\b(\w+)n['’]t\b")  # don't, isn't, can't
_WORD = re.compile(r"[\w'./@:-]*\w")
_FIGURE = re.compile(r"[\d.,:]+")


class Relative(NamedTuple):
    """An item and how a lesson stands to it."""

    item: Item
    how: Relation


class Clash(NamedTuple):
    """Where two texts differ that cannot both hold, as far as words tell. sure: the difference is a denial, an opposite
    or a value; else what stands last is another, which may be a second thing that is true."""

    why: str
    sure: bool


class Contradiction(NamedTuple):
    """Two items, by id, and where they differ."""

    items: tuple[str, str]
    why: str


class Said(NamedTuple):
    """A text, read. words: in order, without those that say nothing. at: the place of each in the text. says: whether a
    word such as "is" leads to it. stems: of what it is about. special: terms and numbers. denials: how often it
    says no."""

    words: tuple[str, ...]
    at: tuple[int, ...]
    says: tuple[bool, ...]
    stems: frozenset[str]
    special: frozenset[str]
    denials: int


def plain_words(text: str) -> list[str]:
    """The words of a text in lower case, up to 200; a negation that was drawn together stands by itself."""
    return [one.lower() for one in _WORD.findall(_SHORTENED.sub(r"\1 not", text))][:READ]


def telling(text: str) -> frozenset[str]:
    """The words of a text that say something."""
    return frozenset(plain_words(text)) - STOP


def says_nothing(text: str) -> str:
    """Why a text looks as if it said nothing, so that it would be true of any run; empty where it does not."""
    telling_words, every = telling(text), plain_words(text)
    if len(telling_words) < FEW:
        return "it has no two words that say something"
    if not telling_words - EMPTY - NEGATIONS:
        return "it is advice that fits every task: " + " ".join(sorted(telling_words)[:6])
    if len(every) >= LONG and len({*every}) < REPEATED * len(every):
        return "it repeats the same few words"
    return ""


def said(text: str) -> Said:
    """Read a text for comparing it."""
    every = plain_words(text)
    kept = [at for at, word in enumerate(every) if word not in _PLAIN]
    gaps = zip([0, *kept], kept, strict=False)  # from the word before to each
    special = {one.lower() for one in terms(text)}.union(one for one in every if _number(one))
    return Said(
        tuple(every[at] for at in kept),
        tuple(kept),
        tuple(not _SAYS.isdisjoint(every[start:at]) for start, at in gaps),
        frozenset(stem(one) for one in every if len(one) >= LONG_WORD and one not in STOP),
        frozenset(special),
        sum(word in NEGATIONS for word in every),
    )


def clash(a: Said, b: Said) -> Clash | None:
    """Where two texts differ, if it is one thing that cannot be both ways; None where they may both hold."""
    if a.denials != b.denials:
        bare = [frozenset(one for one in it.words if one not in NEGATIONS) for it in (a, b)]
        odd = (a.denials - b.denials) % 2 == 1
        return Clash("one of them says not", True) if odd and _share(*bare) >= SAME else None
    changes = [op for op in SequenceMatcher(None, a.words, b.words, autojunk=False).get_opcodes() if op[0] != "equal"]
    if len(changes) != 1 or changes[0][0] != "replace":
        return None
    _, i, j, k, m = changes[0]
    left, right = a.words[i:j], b.words[k:m]
    if max(len(left), len(right)) > SHORT:
        return None
    why = f"{' '.join(left)} against {' '.join(right)}"
    if any(frozenset((x, y)) in _OPPOSITES for x in left for y in right):
        return Clash(why, True)
    # A value is led to by a word such as "is", or is a number that does not name its noun ("page 1").
    value = len(left) == len(right) == 1 and min(a.at[i], b.at[k]) >= 2
    if value and ((a.says[i] and b.says[k]) or (_number(left[0]) and _number(right[0]))):
        return Clash(why, True)
    # What stands behind most of a sentence is what is said of its subject; before it, the subject itself differs.
    return Clash(why, False) if i >= max(2, (len(a.words) - len(left)) / 2) else None


def same(a: Said, b: Said) -> bool:
    """Whether two texts say nearly the same: four stems of five in common, the same terms, numbers and denials."""
    if a.denials != b.denials or a.special != b.special:
        return False
    return _share(a.stems, b.stems) >= SAME and clash(a, b) is None


# ---- one lesson beside its neighbours --------------------------------------------------------------------------------


def relative(kind: str, body: dict[str, str], scope: Sequence[str], neighbours: Sequence[Item]) -> Relative | None:
    """The first of the neighbours that a lesson repeats, completes or contradicts; None where it is new."""
    mine = said(text_of(kind, body))
    for item in neighbours:
        if item.kind == kind and (how := _relation(mine, tuple(scope), item)) is not None:
            return Relative(item, how)
    return None


def _relation(mine: Said, scope: tuple[str, ...], item: Item) -> Relation | None:
    alike = not scope or not item.scope or not set(scope).isdisjoint(item.scope)
    theirs = said(item.text)
    found = clash(mine, theirs)
    if found is not None:
        return "contrary" if alike and found.sure else None
    if same(mine, theirs):
        return "same"
    if not alike or mine.denials != theirs.denials:
        return None
    both = mine.stems & theirs.stems
    if mine.special <= theirs.special and len(both) >= WITHIN * len(mine.stems):
        return "same"
    return "more" if theirs.special <= mine.special and len(both) >= WITHIN * len(theirs.stems) else None


# ---- all items of a memory -------------------------------------------------------------------------------------------


def copies(items: Sequence[Item]) -> list[tuple[str, ...]]:
    """Groups of items of one scope that say nearly the same, in the order of the items. Kinds may differ."""
    alike: dict[str, set[str]] = {}
    for a, b, mine, theirs in _pairs(items, SAME):
        if a.scope == b.scope and same(mine, theirs):
            joined = {a.id, b.id} | alike.get(a.id, set()) | alike.get(b.id, set())
            alike |= dict.fromkeys(joined, joined)
    groups: dict[tuple[str, ...], None] = {}
    for item in items:
        if item.id in alike:
            groups[tuple(one.id for one in items if one.id in alike[item.id])] = None
    return list(groups)


def contradictions(items: Sequence[Item]) -> list[Contradiction]:
    """Pairs of one kind that hold for one scope and clash, the unsure ones too: a person decides."""
    found = []
    for a, b, mine, theirs in _pairs(items, NEAR):
        meet = a.scope == b.scope or not set(a.scope).isdisjoint(b.scope)
        if a.kind == b.kind and meet and (it := clash(mine, theirs)) is not None:
            found.append(Contradiction((a.id, b.id), it.why))
    return found


def _pairs(items: Sequence[Item], least: float) -> Iterator[tuple[Item, Item, Said, Said]]:
    """Pairs that share at least so much of their stems, terms and numbers, each once, in the order of the items.

    Two sets with a Jaccard of t share a word among the first (1 - t) |x| + 1 of each, rarest first (Bayardo et al.
    2007, 10.1145/1242572.1242591), so only those are indexed.
    """
    every = [said(item.text) for item in items]
    sets = [one.stems | {stem(term) for term in one.special} for one in every]
    often = Counter(word for one in sets for word in one)
    index: dict[str, list[int]] = {}
    for at, mine in enumerate(sets):
        near: dict[int, None] = {}
        for word in _rarest(mine, often, least):
            near |= dict.fromkeys(index.get(word, ()))
            index.setdefault(word, []).append(at)
        for other in near:
            if _share(mine, sets[other]) >= least:
                yield items[other], items[at], every[other], every[at]


def _rarest(one: Iterable[str], often: Counter[str], least: float) -> list[str]:
    ordered = sorted(one, key=lambda word: (often[word], word))
    return ordered[: len(ordered) - int(-(-least * len(ordered) // 1)) + 1]


def _share(a: frozenset[str], b: frozenset[str]) -> float:
    """Jaccard: words in common of all words."""
    return len(a & b) / len(a | b) if a or b else 0.0


def _number(word: str) -> bool:
    return word in _NUMBERS or _FIGURE.fullmatch(word) is not None
