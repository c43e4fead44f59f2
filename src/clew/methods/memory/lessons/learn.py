"""``learn``: from stored, judged runs to items of a memory. ``clew memory learn`` calls it, experiments do.

It reads the record and no live agent, so it is off the critical path of every task. All that comes of one run is
written in one transaction, with the line that says that the run was reflected: whoever is stopped, even by kill -9,
leaves nothing half, and goes on where it stopped.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from clew.core.errors import BadInput, ClewError, LeaseHeld, ModelError, StoreError
from clew.core.keys import value_digest
from clew.core.printable import short
from clew.harness.memory import Item, Memory
from clew.harness.memory.item_kinds import (
    CURSORS,
    SCOPES,
    check_body,
    check_provenance,
    check_scope,
    content,
    text_of,
)
from clew.harness.memory.recalling import Memories, asked_of
from clew.methods.memory.lessons.lesson import Learnt, Lesson, Reflection, Reflector, Ruled, Ruling, Screen
from clew.methods.memory.lessons.likeness import relative
from clew.methods.memory.lessons.run_view import Moment, RunView
from clew.methods.memory.lessons.screens import RuleScreen
from clew.methods.memory.lessons.spent import Spent, lines_of, spend
from clew.store import Run
from clew.store.entries import Entry, entry
from clew.store.names import new_id
from clew.store.owners import owner_name

NAME = 200  # characters of a reflector's name
NEAR = 8  # items beside which a lesson is put
MOST = 32  # lessons of one run that are screened
GIVE_UP = 5  # runs in a row on which the reflector fails, after which no more are asked
NOW = 1e12  # later than any item was added, in seconds since the epoch
LEASE = 900.0  # seconds in which one run is reflected on


async def learn(
    memory: Memory,
    runs: Run | Iterable[Run],
    reflector: Reflector,
    screen: Screen | None = None,
    *,
    again: bool = False,
    progress: Callable[[int], None] = lambda done: None,
) -> Learnt:
    """Reflect on runs, the oldest first, and let the memory take what the screen lets through.

    A reflector's, a screen's or a model's own failure ends nothing: it is a sentence in ``notes``, and the next run
    goes on. A run on which the reflector failed altogether counts as not reflected, and is asked again by the next
    call; one whose answers could not be used counts as reflected, and was paid for.

    Args:
        memory: of the store that holds the runs.
        runs: ended and judged ones; others are passed over, each with a sentence.
        screen: ``RuleScreen()`` where none is given.
        again: also reflect on runs that this reflector has seen.
        progress: called with the number of runs that are done.

    Raises:
        MissingExtra: bm25s is not installed. StoreError: nothing can be written.
    """
    every = sorted([runs] if isinstance(runs, Run) else runs, key=lambda run: (run.row.created, run.id))
    work = _Work(memory, reflector, screen or RuleScreen(), again)
    for done, run in enumerate(every, 1):
        if work.failed < GIVE_UP:
            await work.take(run)
        progress(done)
        if work.failed == GIVE_UP:
            work.failed += 1
            work.notes.append(f"the reflector failed on {GIVE_UP} runs in a row; no more were asked")
    return Learnt(tuple(work.ruled), work.reflected, work.passed, tuple(work.notes), work.spent, work.failures)


def reflected(memory: Memory, reflector: Reflector) -> set[str]:
    """Runs on which a reflector of that name has reflected for a memory."""
    lines, by = lines_of(memory.store, memory.name, "reflection"), _name(reflector)
    return {str(one.get("run")) for one in lines if one.get("by") == by}


def _name(reflector: Reflector) -> str:
    """What the ledger calls a reflector: its name, or a digest of one that is too long to keep."""
    name = str(reflector.name)
    return name if len(name) <= NAME else value_digest(name).hex()[:16]


def seen_again(memory: Memory) -> dict[str, list[str]]:
    """Where else items were seen: places (``run@call``) of lessons that were merged into them, by their ids."""
    found: dict[str, list[str]] = {}
    for line in lines_of(memory.store, memory.name, "reflection"):
        rulings = line.get("rulings")
        for one in rulings if isinstance(rulings, list) else []:
            if isinstance(one, dict) and one.get("what") == "merge" and isinstance(one.get("places"), list):
                found.setdefault(str(one.get("item")), []).extend(map(str, one["places"]))
    return found


class _Work:
    """One call of ``learn``."""

    def __init__(self, memory: Memory, reflector: Reflector, screen: Screen, again: bool) -> None:
        self.memory, self.reflector, self.screen, self.again = memory, reflector, screen, again
        self.search, self.owner = Memories(memory.store), owner_name()
        self.known = set[str]() if again else reflected(memory, reflector)
        self.ruled, self.notes, self.spent = list[Ruled](), list[str](), Spent()
        self.reflected = self.passed = self.failures = 0
        self.failed = 0  # runs in a row on which the reflector failed

    async def take(self, run: Run) -> None:
        """Reflect on one run, unless there is a reason not to."""
        if run.id in self.known:
            self.passed += 1
            return
        if run.stop is None or run.reward is None:
            self.notes.append(f"run {run.id} {'has not ended' if run.stop is None else 'was not judged'}: passed over")
            return
        try:
            self.memory.store.lease(run.id, self.owner, LEASE)
        except LeaseHeld:
            self.notes.append(f"run {run.id} is in the hands of another process: passed over")
            return
        try:
            if not self.again and run.id in reflected(self.memory, self.reflector):
                self.passed += 1  # by another process, since this one began
            else:
                await self._reflect(RunView(run))
        finally:
            self.memory.store.release(run.id, self.owner)

    async def _reflect(self, view: RunView) -> None:
        try:
            found = await self.reflector.reflect(view)
            if not isinstance(found, Reflection):
                raise BadInput("it gave no Reflection")
        except StoreError:
            raise
        except Exception as error:  # a model's, or whatever a reflector of the user's own raises
            self.failed, self.failures = self.failed + 1, self.failures + 1
            self.notes.append(f"run {view.id}: the reflector failed: {_told(error)}")
            return
        self.failed = 0
        self.notes += [f"run {view.id}: {short(note, 300)}" for note in found.notes]
        lessons = [one for one in found.lessons if isinstance(one, Lesson) and _sound(one)]
        if len(lessons) < len(found.lessons):
            self.notes.append(f"run {view.id}: {len(found.lessons) - len(lessons)} candidates are no lessons; dropped")
        if len(lessons) > MOST:
            self.notes.append(f"run {view.id}: only the first {MOST} of {len(lessons)} lessons were read")
        page, spent = _Page(self.memory, view), found.spent
        for lesson in lessons[:MOST]:
            near = self._neighbours(lesson, page)
            ruling = await self._judged(lesson, near, view, page)
            spent = spent.plus(ruling.spent)
            page.write(lesson, ruling, near)
        self.memory.store.put_entries([*page.entries, *page.ledger(_name(self.reflector), spent, len(found.notes))])
        self.spent = self.spent.plus(spent)
        self.ruled += page.ruled
        self.reflected += 1
        self.known.add(view.id)

    def _neighbours(self, lesson: Lesson, page: _Page) -> list[Item]:
        """Items in use of the lesson's kind that share words with it, those of this run first."""
        mine = [item for item in page.fresh if item.kind == lesson.kind]
        try:
            text = text_of(lesson.kind, check_body(lesson.kind, lesson.body))
            asked = asked_of(self.memory.name, text, NEAR, (), lesson.kind)
        except BadInput:  # of a form that no screen lets through
            return mine
        found = self.search.search(asked, NOW) if page.standing else []
        return mine + [page.standing[one.id] for one in found if one.id in page.standing]

    async def _judged(self, lesson: Lesson, near: Sequence[Item], view: RunView, page: _Page) -> Ruling:
        try:
            ruling = await self.screen.judge(lesson, near, view)
            gone = page.retired_like(lesson) if ruling.what in ("add", "replace") else ""
        except Exception as error:  # a screen of the user's own
            self.notes.append(f"run {view.id}: the screen failed, and the lesson was dropped: {_told(error)}")
            return Ruling("drop", why="the screen failed")
        if gone:
            return ruling._replace(what="drop", item="", why=f"item {gone} says so, and was retired")
        if ruling.what in ("merge", "replace") and ruling.item not in {item.id for item in near}:
            self.notes.append(f"run {view.id}: the screen named an item that is none of the neighbours; dropped")
            return ruling._replace(what="drop", item="", why="the screen named no item that it was shown")
        return ruling


class _Page:
    """What one run adds to a memory, before it is written."""

    def __init__(self, memory: Memory, view: RunView) -> None:
        self.memory, self.view, self.now = memory, view, time.time()
        items = memory.items()
        self.standing = {item.id: item for item in items if item.state in ("active", "promoted")}
        self.retired = [item for item in items if item.state == "retired"]
        self.entries, self.fresh, self.ruled = list[Entry](), list[Item](), list[Ruled]()

    def retired_like(self, lesson: Lesson) -> str:
        """The id of an item that says what a lesson says and was taken out of use; it does not come back by itself."""
        found = relative(lesson.kind, dict(lesson.body), lesson.scope, self.retired)
        return found.item.id if found is not None and found.how == "same" else ""

    def write(self, lesson: Lesson, ruling: Ruling, near: Sequence[Item]) -> None:
        """Turn a ruling into entries. What cannot be kept after all is dropped, and the ruling says so."""
        old = next((item for item in near if item.id == ruling.item), None)
        try:
            item = self._written(lesson, ruling, old)
        except (ClewError, TypeError, ValueError) as error:  # a screen of the user's own let it through
            ruling, item = Ruling("drop", why=_told(error), spent=ruling.spent), ""
        self.ruled.append(Ruled(self.view.id, lesson, ruling, item))

    def _written(self, lesson: Lesson, ruling: Ruling, old: Item | None) -> str:
        if ruling.what == "drop":
            return ""
        places = [*dict.fromkeys((*lesson.provenance, *ruling.sources))]
        if ruling.what == "merge" and old is not None:
            keys = tuple(sorted({*old.scope, *lesson.scope}))
            wider = old.scope and lesson.scope and keys != tuple(sorted(old.scope)) and len(keys) <= SCOPES
            if not wider or not old.provenance:
                return old.id
            where = [*dict.fromkeys((*old.provenance, *places))][-CURSORS:]
            return self._add(old.kind, old.body, keys, where, old, f"it holds for {', '.join(lesson.scope)} too")
        why = ruling.why if old is not None else ""
        return self._add(lesson.kind, lesson.body, lesson.scope, places[:CURSORS], old, why)

    def _add(
        self,
        kind: str,
        body: Mapping[str, object],
        scope: Sequence[str],
        places: Sequence[str],
        old: Item | None,
        why: str,
    ) -> str:
        told, new = content(kind, body, scope, places, ""), new_id()
        self.entries.append(entry(self.memory.name, new, self.now, "add", told))
        if old is not None:
            end = {"by": new, "why": short(why, 300)}
            self.entries.append(entry(self.memory.name, old.id, self.now, "supersede", end))
            self.standing.pop(old.id, None)
            self.fresh = [item for item in self.fresh if item.id != old.id]
        words, keys, where = check_body(kind, body), check_scope(scope), check_provenance(places, "")
        kept = Item(id=new, memory=self.memory.name, kind=kind, body=words, scope=keys, provenance=where, made=self.now)
        self.fresh.append(kept)
        return new

    def ledger(self, by: str, spent: Spent, unread: int) -> list[Entry]:
        """The lines that say that the run was reflected, what that cost, and what became of its lessons. They quote no
        lesson, so that nothing of an item stays when it is deleted."""
        rulings = [
            {
                "what": one.ruling.what,
                "kind": short(one.lesson.kind, 20),
                "item": one.item,
                "why": short(one.ruling.why, 300),
                "places": list(one.lesson.provenance)[:8] if one.ruling.what != "drop" else [],
            }
            for one in self.ruled
        ]
        name, at = self.memory.name, self.now
        about = {"run": self.view.id, "by": by, "rulings": rulings, "unread": unread}
        lines = [spend(name, "reflection", spent.reflection, at, **about)]
        more = (("building", spent.building), ("checking", spent.checking), ("retrieval", spent.retrieval))
        return lines + [spend(name, part, cost, at, run=self.view.id) for part, cost in more if any(cost)]  # type: ignore[arg-type]


def _sound(lesson: Lesson) -> bool:
    """Whether a lesson is of the types it should be; a reflector of the user's own may give anything."""
    if not isinstance(lesson.body, Mapping) or not all(isinstance(it, tuple | list) for it in lesson[2:4]):
        return False
    if not isinstance(lesson.seen, tuple) or not all(isinstance(one, Moment) for one in lesson.seen):
        return False
    return all(
        isinstance(text, str) for text in (lesson.kind, lesson.why, lesson.revealed, *lesson.scope, *lesson.provenance)
    )


def _told(error: Exception) -> str:
    """An error in one sentence."""
    text = error.message if isinstance(error, ClewError) else f"{type(error).__name__}: {error}"
    return short(text, 300) if not isinstance(error, ModelError) else short(f"the model did not answer: {text}", 300)
