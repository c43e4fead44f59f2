"""Labels: what people say of a run, a Call, or a span of a reply: stars, a verdict, a note.

``Keeper.label``, `clew label` and the page file them; queries, lists, exports and `clew audit judge` read them. Each
entry is an annotation of its own, with author and time. It must never take the place of another: a later entry of the
same author on the same thing stands, and the earlier stays in the record.
"""

from __future__ import annotations

import difflib
import json
import math
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from hashlib import blake2b
from operator import eq, ge, gt, le, lt, ne
from typing import Any, NamedTuple

from clew.core.errors import BadInput
from clew.core.printable import HIDDEN, short
from clew.core.records import Annotation, Call
from clew.store.names import new_id, resolve
from clew.store.protocol import Tables

METHOD = "label"
VERDICTS = ("good", "unsure", "bad")  # best first; a set of one's own is given in the same order
UNSURE = "unsure"  # in any set: no verdict that could be compared with others
STARS = range(1, 6)
NOTE, AUTHOR = 20_000, 80  # characters at most
ASPECTS = ("stars", "verdict", "note")
FIELDS = ("label", "stars", "labelled-by", "note")  # of the query language
_COMPARE = {"<": lt, "<=": le, ">": gt, ">=": ge, "=": eq, "!=": ne}
_PLACE = re.compile(r"(?P<run>[^@]+)(?:@(?P<seq>\d{1,9})(?:\+(?P<start>\d{1,9})(?::(?P<stop>\d{1,9}))?)?)?")
_WORD = re.compile(r"[^\W_][\w.-]{0,39}")


class Label(NamedTuple):
    """What one author says of one thing.

    seq: the Call, -1 for the run as a whole. span: the first and the one after the last token of the reply (after its
    generation prompt; characters where the reply has no ids). at: seconds since the epoch. stars: 1 to 5. withdrawn:
    what of an earlier entry this one takes back; empty in a label that stands.
    """

    run: str
    seq: int = -1
    span: tuple[int, int] | None = None
    by: str = ""
    at: float = 0.0
    stars: int | None = None
    verdict: str = ""
    note: str = ""
    withdrawn: tuple[str, ...] = ()

    @property
    def place(self) -> str:
        """As `clew label` takes it: ``run``, ``run@call``, ``run@call+3:9``."""
        span = "" if self.span is None else f"+{self.span[0]}:{self.span[1]}"
        return self.run if self.seq < 0 else f"{self.run}@{self.seq}{span}"


# writing


def put(
    store: Tables,
    place: str,
    *,
    by: str,
    stars: int | None = None,
    verdict: str = "",
    note: str = "",
    withdraw: Sequence[str] = (),
    verdicts: Sequence[str] = VERDICTS,
) -> Label:
    """File an entry, durably; gives it back.

    Args:
        place: ``run``, ``run@call``, ``run@call+token`` or ``run@call+start:stop``.
        by: who says it.
        withdraw: of ``ASPECTS``, what the author takes back of what they said before.
        verdicts: the words that a verdict may be.

    Raises:
        BadInput: there is no such place, the author has no name, or a value is none. StoreReadOnly: nothing is written.
    """
    entry = found(store, place)._replace(by=_author(by), at=time.time(), withdrawn=tuple(withdraw))
    entry = entry._replace(stars=_stars(stars), verdict=_verdict(verdict, verdicts), note=_note(note))
    if unknown := [word for word in withdraw if word not in ASPECTS]:
        raise BadInput(f"{unknown[0]!r} cannot be withdrawn", remedy=f"Name some of {', '.join(ASPECTS)}.")
    if entry.stars is None and not (entry.verdict or entry.note or entry.withdrawn):
        remedy = "Give stars (1 to 5), a verdict or a note, or withdraw what was said."
        raise BadInput(f"the label of {entry.place} says nothing", remedy=remedy)
    before = [e.at for e in entries(store, [entry.run]) if e.by == entry.by]
    entry = entry._replace(at=max([entry.at, *(at + 1e-6 for at in before)]))  # the clock may have been set back
    store.annotate([_annotation(entry)])
    store.commit()
    return entry


def found(store: Tables, place: str) -> Label:
    """A label of that place that says nothing yet. A Call that a run shares is the run's that issued it.

    Raises:
        UnknownName, BadInput: there is no such run, Call, token or character.
    """
    match = _PLACE.fullmatch(place.strip())
    if not match:
        remedy = "Write run, run@call, run@call+token or run@call+start:stop, as in 4fzk2w@12+3:9."
        raise BadInput(f"{short(place, 60)!r} is no place", remedy=remedy)
    run = resolve(store, match["run"])
    if match["seq"] is None:
        return Label(run)
    seq = int(match["seq"])
    call = next(iter(store.calls(run, seq, seq + 1)), None)
    if call is None:
        remedy = f"`clew show {run}` prints its Calls."
        raise BadInput(f"run {run} has no Call {seq}", remedy=remedy)
    if match["start"] is None:
        return Label(call.run, seq)
    start = int(match["start"])
    stop = start + 1 if match["stop"] is None else int(match["stop"])
    size, unit = _size(store, call)
    if not 0 <= start < stop <= size:
        said = f"{run}@{seq} has no {unit} {start}" + (f" to {stop}" if stop != start + 1 else "")
        remedy = (
            f"Its reply has {size} {unit}s, counted from 0."
            if size
            else "Label the whole Call: only replies have spans."
        )
        raise BadInput(said, remedy=remedy)
    return Label(call.run, seq, (start, stop))


def _size(store: Tables, call: Call) -> tuple[int, str]:
    """How long the reply of a Call is, and in what it is counted; 0 where it has none."""
    if not call.node_out:
        return 0, "token"
    node = store.node(call.node_out)
    return (len(node.message.text), "character") if node.ids is None else (len(node.ids) - call.head, "token")


def _author(by: str) -> str:
    name = " ".join(str(by).split())
    if not name or len(name) > AUTHOR or HIDDEN.search(name):
        remedy = f"Give 1 to {AUTHOR} visible characters."
        raise BadInput(f"{short(name, 40)!r} cannot be the name of an author", remedy=remedy)
    return name


def _stars(stars: int | None) -> int | None:
    if stars is None or (type(stars) is int and stars in STARS):
        return stars
    remedy = f"Give a whole number from {STARS[0]} to {STARS[-1]}."
    raise BadInput(f"{short(str(stars), 40)} stars cannot be given", remedy=remedy)


def _verdict(verdict: str, verdicts: Sequence[str]) -> str:
    word = str(verdict).strip().lower()
    if not word or word in verdict_set(verdicts):
        return word
    near = difflib.get_close_matches(word[:40], verdicts, 1)
    remedy = (
        f"{f'Did you mean {near[0]}? ' if near else ''}Known: {', '.join(verdicts)}; name your own set (--verdicts)."
    )
    raise BadInput(f"{short(word, 40)!r} is no verdict", remedy=remedy)


def verdict_set(words: str | Sequence[str]) -> tuple[str, ...]:
    """A set of verdicts, best first, from words or one text of them.

    Raises:
        BadInput: fewer than two, one is there twice or is no word.
    """
    given = re.split(r"[\s,]+", words.strip()) if isinstance(words, str) else words
    found = tuple(word.strip().lower() for word in given)
    if len(set(found)) < max(2, len(found)) or not all(map(_WORD.fullmatch, found)) or len(found) > 9:
        remedy = "Give 2 to 9 different words of letters, digits, dot and dash, the best first: good,unsure,bad."
        raise BadInput(f"{short(', '.join(found), 60)!r} is no set of verdicts", remedy=remedy)
    return found


def _note(note: str) -> str:
    text = str(note).strip()
    if len(text) > NOTE:
        remedy = f"Write at most {NOTE:,}; keep the rest in a file, and its name in the note."
        raise BadInput(f"a note of {len(text):,} characters is too long", remedy=remedy)
    return text


def _annotation(entry: Label) -> Annotation:
    """An entry as a store keeps it: its version is its time and some chance, so that no two have one place."""
    said = {
        name: getattr(entry, name) for name in (*ASPECTS, "withdrawn") if getattr(entry, name) not in (None, "", ())
    }
    data = json.dumps({"by": entry.by, "at": entry.at, **said, **({"span": entry.span} if entry.span else {})})
    version = f"{int(entry.at * 1e6):020d}-{new_id()}"
    target: Any = "run" if entry.seq < 0 else "call" if entry.span is None else "tokens"
    author = blake2b(entry.by.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    return Annotation(target, METHOD, None, entry.run, entry.seq, b"", version, author, entry.run, None, data)


# reading


def entries(store: Tables, runs: Sequence[str] | None = None) -> list[Label]:
    """Every entry that was ever filed (under some runs), the oldest first."""
    return read(store.annotations(runs, METHOD))


def read(annotations: Iterable[Annotation]) -> list[Label]:
    """Annotations as entries, the oldest first; what says nothing that could be a label is left out."""
    made = ((a.version, entry) for a in annotations if a.method == METHOD and (entry := _entry(a)) is not None)
    return [entry for _, entry in sorted(made, key=lambda pair: (pair[1].at, pair[0]))]


def _entry(a: Annotation) -> Label | None:
    """An annotation as an entry; None where other programs put something else there."""
    try:
        said = json.loads(a.data)
        by, at, span = said["by"], float(said["at"]), said.get("span")
        stars, verdict, note = said.get("stars"), said.get("verdict", ""), said.get("note", "")
        start, stop = span or (0, 1)
        whole = type(start) is int and type(stop) is int and 0 <= start < stop
        texts = isinstance(by, str) and isinstance(verdict, str) and isinstance(note, str) and len(note) <= NOTE
        if not (texts and whole and math.isfinite(at) and (stars is None or (type(stars) is int and stars in STARS))):
            return None
        withdrawn = tuple(word for word in said.get("withdrawn", ()) if word in ASPECTS)
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
    return Label(a.run, a.seq, (start, stop) if span else None, by, at, stars, verdict, note, withdrawn)


def standing(found: Iterable[Label]) -> list[Label]:
    """What stands of entries, the oldest first: one label for each author and place.

    Of each aspect (stars, verdict, note) the author's last word counts. A label all of which was withdrawn is none.
    """
    now: dict[tuple[str, int, tuple[int, int] | None, str], Label] = {}
    for entry in found:
        key = (entry.run, entry.seq, entry.span, entry.by)
        had = now.pop(key, entry._replace(stars=None, verdict="", note=""))
        empty = {name: None if name == "stars" else "" for name in entry.withdrawn}
        given = {name: value for name in ASPECTS if (value := getattr(entry, name)) not in (None, "")}
        now[key] = had._replace(**{**empty, **given, "at": entry.at, "withdrawn": ()})
    return [label for label in now.values() if label.stars is not None or label.verdict or label.note]


def current(store: Tables, runs: Sequence[str] | None = None) -> list[Label]:
    """The labels that stand (under some runs), the oldest first."""
    return standing(entries(store, runs))


def by_run(store: Tables, runs: Sequence[str]) -> dict[str, list[Label]]:
    """The labels that stand, by the run they are filed under; a run without labels is left out."""
    found: dict[str, list[Label]] = {}
    for label in current(store, runs):
        found.setdefault(label.run, []).append(label)
    return found


def brief(labels: Iterable[Label]) -> list[str]:
    """What a list shows of a run: its verdicts and stars, each once with how many say so, and how many lie inside."""
    whole, inside = dict[str, int](), 0
    for label in labels:
        said = [label.verdict] if label.verdict else []
        said += [f"{label.stars}★"] if label.stars is not None else [] if said else ["note"]
        if label.seq >= 0:
            inside += 1
            continue
        for word in said:
            whole[word] = whole.get(word, 0) + 1
    told = [word if count == 1 else f"{word} ×{count}" for word, count in sorted(whole.items())]
    return [*told, f"{inside} inside"] if inside else told


COLUMNS = ("stars", "verdicts", "labelled_by", "notes", "labels_inside")


def columns(labels: Iterable[Label]) -> dict[str, Any]:
    """What a table says of a run's labels: the mean of the stars on the whole run, its verdicts, who labelled it, their
    notes, each an author's; and how many labels lie inside."""
    found = list(labels)
    whole = [label for label in found if label.seq < 0]
    stars = [label.stars for label in whole if label.stars is not None]
    return {
        "stars": sum(stars) / len(stars) if stars else None,
        "verdicts": [label.verdict for label in whole if label.verdict],
        "labelled_by": sorted({label.by for label in found}),
        "notes": "; ".join(f"{label.by}: {label.note}" for label in whole if label.note),
        "labels_inside": len(found) - len(whole),
    }


def stars(store: Tables) -> dict[str, float]:
    """The mean of the stars that stand on each run as a whole; a run without stars is left out."""
    given: dict[str, list[int]] = {}
    for label in current(store):
        if label.seq < 0 and label.stars is not None:
            given.setdefault(label.run, []).append(label.stars)
    return {run: sum(found) / len(found) for run, found in given.items()}


def said(label: Label) -> str:
    """A label in one line: ``good 4★ by ann: too slow``. A note is somebody's text, made fit for a terminal."""
    told = [label.verdict, "" if label.stars is None else f"{label.stars}★", f"by {label.by}"]
    note = f": {short(label.note, 200)}" if label.note else ""
    return short(" ".join(filter(None, told)), 160) + note


def as_json(entry: Label, stands: bool) -> dict[str, Any]:
    """An entry as a line of an export."""
    said = {
        name: getattr(entry, name) for name in (*ASPECTS, "withdrawn") if getattr(entry, name) not in (None, "", ())
    }
    place: Mapping[str, Any] = {"run": entry.run} | ({"seq": entry.seq} if entry.seq >= 0 else {})
    span = {"span": list(entry.span)} if entry.span else {}
    return {"place": entry.place, **place, **span, "by": entry.by, "at": entry.at, **said, "stands": stands}


# asking


def chosen(store: Tables, field: str, op: str, value: str) -> set[str]:
    """Runs of which, or of something in which, some label that stands fulfils a term of a query."""
    found = current(store)
    if field == "stars":
        return {e.run for e in found if e.stars is not None and _COMPARE[op](e.stars, float(value))}
    texts = {"label": "verdict", "labelled-by": "by", "note": "note"}
    return {e.run for e in found if _fits(getattr(e, texts[field]), op, value)}


def _fits(has: str, op: str, value: str) -> bool:
    return value.lower() in has.lower() if op == ":" else has == value or (bool(has) and fnmatchcase(has, value))


def unsaid(store: Tables, runs: Sequence[str], places: set[tuple[str, int]], quotes: Any) -> list[Annotation]:
    """The notes that a redaction empties, as annotations that take their places: those on a Call of ``places``, and
    those of which ``quotes`` says that they hold what is redacted."""
    out = []
    for a in store.annotations(runs, METHOD):
        entry = _entry(a)
        if entry is not None and entry.note and ((a.run, a.seq) in places or quotes(entry.note)):
            data = {**json.loads(a.data), "note": "(redacted)"}
            out.append(a._replace(data=json.dumps(data)))
    return out
