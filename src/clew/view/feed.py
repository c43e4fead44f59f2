"""Changes of a store as events for the browser, whichever process made them."""

from __future__ import annotations

import asyncio
import json
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any

from clew.core.errors import StoreError, UnknownName
from clew.core.json_values import plain
from clew.store import Keeper, Summary
from clew.store.protocol import rewards
from clew.view.pages import labels_page
from clew.view.pages.list_pages import Names

Event = tuple[str, dict[str, Any]]

EVERY = 0.2  # seconds between two looks
SLOWLY = 0.5  # seconds between two reports of one unfinished run
RATHER = 1.0  # seconds between two looks at what changes rarely
WINDOW = 60.0  # seconds whose ended runs make up the live success rate, and in which a verdict is waited for
RATE = 5.0  # seconds over which tokens are counted
BACKLOG = 2000  # events a client may lag behind before it is let go; it connects anew and reads the lists again
BEAT = 15.0  # seconds of silence after which a comment shows that the connection lives


class Watcher:
    """Looks at a store again and again; ``look`` gives the events since the last time."""

    def __init__(self, store: Keeper, clock: Callable[[], float] = time.time) -> None:
        self.store, self.clock = store, clock
        self.mark, _ = store.changed()
        self.tags = store.tags()
        self.progress = store.progress()
        self.reports = set(store.reports())
        self.begun = clock()
        self._known: dict[str, tuple[int, float]] = {}  # unfinished runs: tokens, and when they were last reported
        self._late: set[str] = set()  # unfinished runs whose change was held back
        self._unjudged: dict[str, float] = {}  # ended runs that wait for their verdict: since when
        self._ended: deque[tuple[float, str, float | None]] = deque()
        self._sampled: deque[tuple[float, int]] = deque()
        self._rarely, self._live = 0.0, {"runs": 0, "success": None, "tokens_per_second": 0.0, "ended": 0}

    def look(self) -> list[Event]:
        """The events since the last look."""
        now = self.clock()
        self.mark, changed = self.store.changed(self.mark)
        rare = now - self._rarely >= RATHER
        verdicts = rewards(self.store, list(self._unjudged)) if self._unjudged else {}
        moved = self._retagged() if rare else set()
        rows = self._rows([*changed, *verdicts, *moved], now)
        events: list[Event] = [("runs", {"rows": rows})] if rows else []
        if rare:
            self._rarely = now
            events += [*self._training(), *self._reports(), *self._pace(now)]
        return events

    def _rows(self, changed: list[str], now: float) -> list[dict[str, Any]]:
        """Lines of runs that changed; an unfinished one is held back if it was reported just now."""
        names, rows = Names(self.store), []
        due = {run for run in self._late if now - self._known.get(run, (0, 0.0))[1] >= SLOWLY}
        self._late -= due
        for run in dict.fromkeys([*changed, *due]):
            before = self._known.get(run)
            if before is not None and run not in due and now - before[1] < SLOWLY and self._open(run):
                self._late.add(run)
                continue
            row = self._summary(run)
            if row is not None:
                self._note(row, before, now)
                rows.append(names.row(row))
        return labels_page.add(self.store, rows)

    def _open(self, run: str) -> bool:
        row = self._summary(run)
        return row is not None and not row.stop

    def _summary(self, run: str) -> Summary | None:
        try:
            return self.store.summary(run)
        except UnknownName:
            return None  # removed meanwhile

    def _note(self, row: Summary, before: tuple[int, float] | None, now: float) -> None:
        """Count what a run sampled and how it ended."""
        mine = row.tokens - (before[0] if before else row.tokens if row.parent or row.created < self.begun else 0)
        if mine > 0:
            self._sampled.append((now, mine))
        if not row.stop:
            self._known[row.run] = (row.tokens, now)
            return
        self._known.pop(row.run, None)
        self._late.discard(row.run)
        if before is not None or row.created >= self.begun or row.run in self._unjudged:
            self._ended = deque(entry for entry in self._ended if entry[1] != row.run)
            self._ended.append((now, row.run, row.reward))
        if row.reward is None:
            self._unjudged.setdefault(row.run, now)
        else:
            self._unjudged.pop(row.run, None)
        self._unjudged = {run: since for run, since in self._unjudged.items() if now - since < WINDOW}

    def _retagged(self) -> set[str]:
        before, self.tags = self.tags, self.store.tags()
        names = [name for name in {*before, *self.tags} if before.get(name) != self.tags.get(name)]
        return {run for name in names for run in {*before.get(name, ())} ^ {*self.tags.get(name, ())}}

    def _training(self) -> list[Event]:
        before, self.progress = self.progress, self.store.progress()
        events: list[Event] = []
        for name, (step, count) in self.progress.items():
            if before.get(name) == (step, count):
                continue
            kept, last = self.store.metrics(name), before.get(name, (-1, 0))[0]
            fresh = [s for s in kept if s > last or s == step]
            events += [("training", {"name": name, "step": s, "metrics": plain(kept[s])}) for s in fresh]
        return events

    def _reports(self) -> list[Event]:
        before, self.reports = self.reports, set(self.store.reports())
        fresh = sorted(self.reports - before)
        return [("reports", {"ids": fresh})] if fresh else []

    def _pace(self, now: float) -> list[Event]:
        """How it goes: only while it changes."""
        while self._ended and now - self._ended[0][0] > WINDOW:
            self._ended.popleft()
        while self._sampled and now - self._sampled[0][0] > RATE:
            self._sampled.popleft()
        judged = [reward for _, _, reward in self._ended if reward is not None]
        live = {
            "runs": len(self.store.leased()),
            "success": sum(reward > 0.5 for reward in judged) / len(judged) if judged else None,
            "tokens_per_second": sum(count for _, count in self._sampled) / RATE,
            "ended": len(self._ended),
        }
        if live == self._live:
            return []
        self._live = live
        return [("live", live)]


class Feed:
    """Hands the events of one watcher to every client that listens; looks only while one does."""

    def __init__(self, open_store: Callable[[], Keeper]) -> None:
        self._open = open_store
        self._clients: set[asyncio.Queue[Event | None]] = set()
        self._task: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def tell(self, kind: str, data: dict[str, Any]) -> None:
        """Send an event to all; from any thread."""
        if self._loop is not None:
            with suppress(RuntimeError):  # the server is gone
                self._loop.call_soon_threadsafe(self._send, [(kind, data)])

    def _send(self, events: list[Event]) -> None:
        for client in list(self._clients):
            for event in events:
                if client.qsize() > BACKLOG:
                    self._clients.discard(client)
                    client.put_nowait(None)
                    break
                client.put_nowait(event)

    async def listen(self) -> AsyncIterator[bytes]:
        """Events as a server sends them, without an end."""
        self._loop = asyncio.get_running_loop()
        client: asyncio.Queue[Event | None] = asyncio.Queue()
        self._clients.add(client)
        try:
            if self._task is None or self._task.done():
                watcher = await asyncio.to_thread(lambda: Watcher(self._open()))
                if self._task is None or self._task.done():
                    self._task = asyncio.create_task(self._watch(watcher))
            yield b"retry: 1000\n\n: connected\n\n"
            while True:
                try:
                    event = await asyncio.wait_for(client.get(), BEAT)
                except TimeoutError:
                    yield b": still here\n\n"
                    continue
                if event is None:
                    return
                yield f"event: {event[0]}\ndata: {json.dumps(event[1], allow_nan=False)}\n\n".encode()
        finally:
            self._clients.discard(client)

    async def _watch(self, watcher: Watcher) -> None:
        try:
            while self._clients:
                with suppress(StoreError):  # a busy or full disk: look again
                    if events := await asyncio.to_thread(watcher.look):
                        self._send(events)
                await asyncio.sleep(EVERY)
        finally:
            self._let_go()  # who still listens connects anew

    def end(self) -> None:
        """Let every client go; from any thread."""
        if self._loop is not None:
            with suppress(RuntimeError):  # the server is gone
                self._loop.call_soon_threadsafe(self._let_go)

    def _let_go(self) -> None:
        for client in self._clients:
            client.put_nowait(None)
        self._clients.clear()

    async def close(self) -> None:
        """Let every client go, and look no more."""
        self._let_go()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
