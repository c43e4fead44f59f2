"""``Visit``: a run that stands for an agent Clew does not own, as far as it asks a memory.

The MCP server and the LangGraph store make one for each task. Every item that leaves a memory by them is so in a recall
Call of a stored run: the ledger counts it, ``clew memory show`` tells it, and deleting the item erases it there. A
visit must never hand out an item that is not in the record first. Stored runs name its agent as
``harness.loading.RECORDED`` says.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple

from clew.core.errors import BadInput, ClewError, MissingExtra
from clew.core.keys import REQUEST, canonical, digest, encode
from clew.core.records import Annotation, Call, Cursor, RunRow
from clew.core.values import StopReason, Task
from clew.harness import LiveRun, Runner
from clew.harness.chain import Chain
from clew.harness.memory.book import Memory
from clew.harness.memory.fork_view import Found
from clew.harness.memory.item_kinds import Item
from clew.harness.memory.meaning import Embeds
from clew.harness.memory.recalled import Recalled, Shown, recorded, short_of
from clew.harness.memory.recalling import MOST, Asked, Memories, asked_of
from clew.harness.run.notes import SHORT, written
from clew.harness.run.pending import describe
from clew.store import Keeper, Run, resolve

AGENT = "clew.serve.doors.visit:visitor"
RIGHTS = ("add", "retire", "delete")  # what an operator may allow beside recalling
QUERY = 8000  # characters of a query
Choice = Callable[[Sequence[Shown]], Sequence[Shown]]


async def visitor(run: LiveRun) -> None:
    """The agent of such a run: repeats what is recorded; the note of vectors that failed is the recall's own. What the
    foreign agent did else is not known."""
    for call in run.record:
        if call.kind == "recall":
            told = json.loads(call.text or "{}")
            how = {name: told[name] for name in ("k", "scope", "kinds") if name in told}
            await run.memory(told.get("memory", "")).recall(call.action, **how)


class Visit:
    """What a foreign agent asks one memory, a run for each task: from its first recall to ``judge`` or ``end``.

    Args:
        store: where the memory and the run are kept.
        memory: its name.
        who: names the program, as it is to be told in provenance.
        run: names a run of the store, or run@call, in which the agent works; its visits are filed as runs that it
            spawned. One that is not there when a task begins is kept as a name alone.
        allow: of ``add``, ``retire`` (items of others too) and ``delete``, what the agent may do beside recalling.
        embedder: as in ``Runner``: ranks items by their vectors too.

    Raises:
        BadInput: no such right, or a name that cannot be kept.
    """

    def __init__(
        self,
        store: Keeper,
        memory: str,
        who: str,
        run: str = "",
        allow: Collection[str] = (),
        embedder: Embeds | None = None,
    ) -> None:
        if unknown := [right for right in allow if right not in RIGHTS]:
            raise BadInput(f"there is no right {unknown[0][:40]!r}", remedy=f"Rights are {', '.join(RIGHTS)}.")
        self.store, self.book, self.who, self.allow = store, Memory(store, memory), who, frozenset(allow)
        self._memories, self._guard = Memories(store, embedder), threading.RLock()
        self._within, self._last = run, ""
        self._open: _Opened | None = None

    @property
    def run(self) -> str:
        """The run of the task that is under way, or else of the last one; empty before the first recall."""
        return self._last

    def recall(
        self,
        query: str,
        *,
        k: int = 8,
        scope: str | Iterable[str] = (),
        kinds: str | Iterable[str] = (),
        within: Collection[str] = (),
        choose: Choice | None = None,
    ) -> Recalled:
        """As ``LiveMemory.recall``: what fits, likeliest first, recorded before it is given.

        Args:
            within: more scope keys, of any number.
            choose: which of those found are given, and in what order.

        Raises:
            BadInput: as there, or a query that is too long. MissingExtra: the extra ``memory`` is not installed.
        """
        asked = asked_of(self.book.name, _query(query), k, scope, kinds)
        asked = asked._replace(scope=tuple(sorted({*asked.scope, *within})))
        choice = choose or list

        def found(row: RunRow, call: Call) -> Found:
            fit = self._memories.fitting(asked, self.store, row, call)
            return fit._replace(items=choice(fit.items))

        return self._given(asked, found)

    def hand(self, items: Sequence[Item], why: str) -> Recalled:
        """Record that items are given that were asked for by name, or listed; ``why`` stands for the query."""
        shown = [Shown(item.id, item.kind, item.text) for item in items]
        asked = Asked(self.book.name, _query(why), min(max(len(shown), 1), MOST))
        return self._given(asked, lambda row, call: Found(shown))

    def judge(self, reward: float) -> str:
        """Say how the task went, from 0 to 1, and end its run; gives the run.

        Raises:
            BadInput: nothing was recalled since the last outcome, or it is no such number.
        """
        if not 0.0 <= reward <= 1.0:
            raise BadInput(f"an outcome of {reward}", remedy="Give a number from 0 (failed) to 1 (succeeded).")
        with self._guard:
            if self._open is None:
                raise BadInput("an outcome of no task", remedy="Recall first: an outcome is that of what was given.")
            row = self._open.row
            self.store.annotate([Annotation("run", "reward", reward, run=row.id, scope=row.id)])
            self.end()
            return row.id

    def end(self) -> None:
        """End the run of the task that is under way, if one is."""
        with self._guard:
            if self._open is not None:
                row, chain = self._open
                self._open = None
                self._put(row, chain.add("end", digest(REQUEST, b"end"), action=StopReason.RETURNED))

    def may(self, right: str) -> None:
        """See that the operator allowed something.

        Raises:
            BadInput: it was not.
        """
        if right not in self.allow:
            remedy = f"Its operator says so with {right!r} among the rights that are given."
            raise BadInput(f"{self.who[:80]} may not {right} items of memory {self.book.name}", remedy=remedy)

    def learnt_at(self) -> tuple[str, ...]:
        """Where an item that the agent adds now was learnt: the run it works in, or else that of its visit."""
        if place := self._place():
            return (place,)
        with self._guard:
            return () if self._open is None else (f"{self._open.row.id}@{len(self._open.chain.calls) - 1}",)

    def _given(self, asked: Asked, find: Callable[[RunRow, Call], Found]) -> Recalled:
        with self._guard:
            row, chain = self._open or self._begun(asked)
            began = time.time()
            request = digest(REQUEST, b"recall", canonical(asked._asdict()))
            draft = Call(row.id, len(chain.calls), "recall", request, len(chain.calls), started=began)
            error, found = "", Found()
            try:
                found = find(row, draft)
                self._memories.count(asked, self.store, row, draft, found.items)
            except MissingExtra:
                raise
            except Exception as failed:
                error = describe(failed)
            text, seconds = recorded(asked.memory, asked.how | found.how, found.items), time.time() - began
            more = {"action": asked.query, "text": text, "error": error, "started": began, "seconds": seconds}
            if self._open is None:
                self.store.put_run(row)
                self.store.tag(row.id, f"visit-{asked.memory}")
                self.store.put_call(row.id, chain.calls[0])
                self._open, self._last = _Opened(row, chain), row.id
            self._put(row, chain.add("recall", request, **more))
            short = short_of(found.ranked)
            if short and not any(call.kind == "note" for call in chain.calls):
                told, noted = written(SHORT, {"memory": asked.memory, "why": short})
                self._put(row, chain.add("note", noted, action=SHORT, text=told))
            return Recalled(asked.memory, tuple(found.items), error, short)

    def _begun(self, asked: Asked) -> _Opened:
        """A run that is not in the store yet."""
        task = Task(f"visit-{digest(REQUEST, encode(asked.query)).hex()[:12]}", asked.query)
        row = Runner(AGENT, None, None, self.store).row(task)
        about = {"who": self.who, "memory": asked.memory, **({"within": self._within} if self._within else {})}
        meta = json.dumps({"visit": about}, sort_keys=True)
        chain = Chain(row.id)
        chain.add("open", digest(REQUEST, b"open", encode(task.id)), started=time.time())
        return _Opened(row._replace(origin="import", spawned_by=self._place(), meta=meta), chain)

    def _place(self) -> str:
        """The place in a run at which the agent is now, as run@call; empty where that is not known."""
        name, sign, _ = self._within.partition("@")
        try:
            run = Run(self.store, resolve(self.store, name)) if name else None
            if run is None or not run.calls:
                return ""
            at = Cursor.parse(run.id + self._within[len(name) :]).seq if sign else run.calls[-1].seq
            return f"{run.id}@{at}" if 0 <= at < len(run.calls) else ""
        except ClewError:
            return ""

    def _put(self, row: RunRow, call: Call) -> None:
        self.store.put_call(row.id, call)
        self.store.commit()


class _Opened(NamedTuple):
    row: RunRow
    chain: Chain


def _query(text: str) -> str:
    if len(text) > QUERY:
        raise BadInput(f"a query of {len(text):,} characters", remedy=f"Write at most {QUERY:,}.")
    return text
