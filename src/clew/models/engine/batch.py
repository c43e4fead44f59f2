"""The rows under way: which requests run, what they have sampled, and when each is done."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from clew.core.errors import BadInput, ClewError, ContextOverflow, ModelError
from clew.core.records import Request
from clew.core.values import Completion, Message, Usage
from clew.models.engine.fast import LEAST, Fast
from clew.models.engine.generic import Generic
from clew.models.engine.slots import Slots
from clew.models.engine.state import Joining, Live, Result, Waiting
from clew.models.sampling import Laws, check, draw, noise

AHEAD = 8  # uniforms are made for this many tokens at a time
SHARE = 16  # shortest prefix for which a request waits until another of the same tick has cached it
PARSED = 4096  # replies whose parse is remembered: small policies say the same things


class Batch:
    """Requests that run, each in a row of the cache; idle rows keep prefixes for whoever comes back."""

    # Per row of the cache; the last three [rows, longest reply].
    _seed: npt.NDArray[np.uint64]
    _offset: npt.NDArray[np.uint64]  # forced tokens
    _count: npt.NDArray[np.int64]  # tokens sampled
    _last: npt.NDArray[np.int64]
    _tokens: npt.NDArray[np.int64]
    _logprobs: npt.NDArray[np.float32]
    _entropies: npt.NDArray[np.float32]  # negative, as they are drawn

    def __init__(
        self, forward: Fast | Generic, renderer: Any, model: str, steady: bool, max_rows: int, cache_bytes: int
    ) -> None:
        self.forward, self._renderer, self._model, self._steady = forward, renderer, model, steady
        self._max_rows, self._cache_bytes = max(max_rows, LEAST if steady else 1), cache_bytes
        self.version = 0
        self.active = 0  # requests that still sample
        self._clock = 0
        self._slots = Slots()
        self._joined: list[Joining | None] = []
        self._stops = np.zeros(forward.vocabulary, bool)
        self._stops[[i for i in renderer.stop if i < forward.vocabulary]] = True
        self._parsed: dict[tuple[int, ...], Message] = {}
        self._columns(0, 0)
        self._resize(min(LEAST, self._max_rows), 128)
        self._live = self._lively(np.zeros(0, np.int64))

    def use(self, version: int, weights: Any) -> None:
        """New weights: nothing cached before is used again. Only while nothing runs."""
        self.forward.use(weights)
        self._slots.clear()
        self.version = version

    def release(self, holders: Sequence[str]) -> None:
        """Rows of these holders are the next to be given away."""
        for holder in holders:
            slot = self._slots.where.get(holder)
            if slot is not None and not self._slots.busy[slot]:
                self._slots.used[slot] = 0

    def abandon(self) -> None:
        """After a failure nothing in the cache can be trusted."""
        self._slots.busy[:] = False
        self._slots.clear()
        self.forward.clear()
        self._joined = [None] * self._slots.rows
        self._live, self.active = self._lively(np.zeros(0, np.int64)), 0

    def admit(self, entries: Sequence[Waiting], results: list[Result]) -> list[Waiting]:
        """Prefill requests and sample their first tokens. Gives back those for which there is no row yet."""
        self._clock += 1
        slots = self._slots
        slots.ready[:] = slots.length
        slots.wave[:] = 0
        if self._steady:
            entries = sorted(entries, key=lambda e: (e.request.order, e.request.holder, e.request.seed))
        joining: list[Joining] = []
        later: list[Waiting] = []
        for entry in entries:
            try:
                placed = self._place(entry)
            except ClewError as error:
                _answer(entry, error, results)
                continue
            if isinstance(placed, Joining):
                joining.append(placed)
            elif placed is None:
                later.append(entry)
            else:
                _answer(entry, placed, results)
        if joining:
            self._join(joining, results)
        return later

    def step(self, results: list[Result]) -> None:
        """One more token for every request that runs."""
        if len(self._live.rows) > LEAST and 2 * self.active <= len(self._live.rows):
            self._gather()
        live = self._live
        logits = self.forward.decode(live.rows, live.last, live.at)
        live.at += live.act
        self._sample(live, logits, results)

    def _gather(self) -> None:
        """Decode neighbours where at least half of them run: views of the cache instead of copies."""
        self._put_back()
        run = np.flatnonzero(self._slots.busy)
        if not run.size:
            self._live = self._lively(run)
            return
        between = np.arange(run[0], run[-1] + 1)
        rows = between if 2 * len(run) > len(between) else run
        if self._steady and len(rows) < LEAST:
            idle = np.setdiff1d(np.arange(self._slots.rows), rows)  # these compute in vain, behind what they hold
            rows = np.sort(np.concatenate([rows, idle[: LEAST - len(rows)]]))
        self._live = self._lively(rows)

    def _lively(self, rows: Any) -> Live:
        live, slots = Live(), self._slots
        live.rows, live.act = rows, slots.busy[rows]
        live.count, live.last = self._count[rows], self._last[rows]
        live.at = slots.length[rows] + np.where(live.act, np.maximum(live.count - 1, 0), 0)
        live.limit = np.zeros(len(rows), np.int64)
        joined = [self._joined[i] for i in rows.tolist()]
        asked = [None if j is None else j.entry.request for j in joined]
        some = next((r for r in asked if r is not None), None)
        if some is not None:
            live.limit[:] = [0 if j is None else j.limit for j in joined]
            live.laws = Laws.of([(r or some).sampling for r in asked], self.forward.device)
        live.watched = any(r is not None and (r.sampling.stop or r.deadline is not None) for r in asked)
        live.ahead = AHEAD
        return live

    def _put_back(self) -> None:
        """Note per row what the arrays of the live rows hold."""
        live = self._live
        self._count[live.rows], self._last[live.rows] = live.count, live.last

    def _place(self, entry: Waiting) -> Joining | Completion | None:
        """Check a request, give it a row, and find what of its prompt is cached; None: no row is free."""
        request, slots = entry.request, self._slots
        check(request.sampling)
        if request.taps:
            raise BadInput("this engine has no taps", remedy="Ask without taps.")
        forced = request.forced
        limit = request.sampling.max_tokens - len(forced)
        own = slots.where.get(request.holder) if request.holder else None
        new = slots.continued(own, request) if own is not None and self.forward.reuses and not slots.busy[own] else None
        ids: list[int] | None = None
        if own is None or new is None:
            new = ids = _prompt(request)
        start = 0 if ids is not None or own is None else int(slots.length[own])
        total = start + len(new)
        if not new or min(new) < 0 or max(new) >= self.forward.vocabulary:
            raise BadInput(
                f"a prompt of {len(new)} tokens has none, or ids outside 0..{self.forward.vocabulary - 1}",
                remedy="Render it with this model's own renderer.",
            )
        if limit <= 0 or (forced and self._stops[forced[-1]]):
            finish = "stop" if forced and self._stops[forced[-1]] else "length"
            return self._completion(entry, total, 0, finish, (), np.zeros((2, 0), np.float32))
        if total >= self.forward.context:
            raise ContextOverflow(
                f"{total} prompt tokens leave no room for a reply in the context of {self.forward.context}",
                remedy="Shorten the conversation, for instance with `player(window=4)`.",
            )
        limit = min(limit, self.forward.context - total)
        slot = own if own is not None and not slots.busy[own] else self._vacant()
        if slot is None:
            return None
        if total + limit >= slots.size or limit >= self._tokens.shape[1]:
            self._lengthen(total + limit + 1, limit + 1)
        source, wave = slot, 0
        if ids is not None:
            source, start, wave = self._shared(np.array(ids, np.int32), slot)
            new = ids[start:]
        slots.tokens[slot, start:total] = new
        if source != slot:
            slots.tokens[slot, :start] = slots.tokens[source, :start]
        slots.hold(slot, request.holder if own is None or own == slot else "")
        slots.path[slot], slots.busy[slot], slots.used[slot], slots.length[slot] = (), True, self._clock, total
        slots.ready[slot], slots.wave[slot] = start if source == slot else 0, wave
        return Joining(entry, slot, new, start, source, wave, limit)

    def _shared(self, ids: Any, slot: int) -> tuple[int, int, int]:
        """Row with the longest prefix of ``ids``, its length, and the wave that may copy it."""
        if not self.forward.reuses:
            return slot, 0, 0
        source, start = self._slots.match(ids, slot)
        ready = int(self._slots.ready[source])
        if start <= ready:
            return source, start, 0
        return (source, start, int(self._slots.wave[source]) + 1) if start >= SHARE else (source, min(start, ready), 0)

    def _vacant(self) -> int | None:
        """A row nobody comes back to, else a new one, else the least used; None where all are busy."""
        slots, slot = self._slots, self._slots.idle()
        if slot is not None and slots.used[slot] == 0:
            return slot
        most = min(self._max_rows, self._cache_bytes // (self.forward.token_bytes * slots.size))
        if slots.rows < most or (slot is None and slots.rows < LEAST):
            slot = slots.rows
            self._resize(min(max(most, slot + 1), 2 * slots.rows), slots.size)
        return slot

    def _lengthen(self, positions: int, reply: int) -> None:
        size = self._slots.size
        if positions > size:
            size = min(max(positions, 2 * size), self.forward.context + 1)
        self._columns(self._slots.rows, max(reply, self._tokens.shape[1]))
        if size != self._slots.size:
            self._resize(self._slots.rows, size)

    def _resize(self, rows: int, size: int) -> None:
        self.forward.resize(rows, size)
        self._slots.resize(rows, size)
        self._joined = (self._joined + [None] * rows)[:rows]
        self._columns(rows, self._tokens.shape[1])

    def _columns(self, rows: int, reply: int) -> None:
        """Make the per-row arrays [rows] and [rows, reply] at least this large, keeping what they hold."""
        for name, kind, width in (
            ("seed", np.uint64, ()), ("offset", np.uint64, ()), ("count", np.int64, ()), ("last", np.int64, ()),
            ("tokens", np.int64, (reply,)), ("logprobs", np.float32, (reply,)), ("entropies", np.float32, (reply,)),
        ):  # fmt: skip
            new: Any = np.zeros((rows, *width), kind)
            old = getattr(self, f"_{name}", new[:0])
            new[(slice(len(old)), *(slice(w) for w in old.shape[1:]))] = old
            setattr(self, f"_{name}", new)

    def _join(self, joining: list[Joining], results: list[Result]) -> None:
        joining.sort(key=lambda j: j.slot)
        rows = np.array([j.slot for j in joining])
        requests = [j.entry.request for j in joining]
        for j in joining:
            self._joined[j.slot] = j
        self._seed[rows] = [r.seed & 0xFFFFFFFFFFFFFFFF for r in requests]
        self._offset[rows] = [len(r.forced) for r in requests]
        self._count[rows] = 0
        self.active += len(rows)
        live = self._lively(rows)
        self._sample(live, self._prefill(joining), results)
        self._put_back()
        self._live = live
        self._gather()

    def _prefill(self, joining: list[Joining]) -> Tensor:
        logits: Tensor | None = None
        for wave in range(max(j.wave for j in joining) + 1):
            which = [i for i, j in enumerate(joining) if j.wave == wave]
            group = [joining[i] for i in which]
            if not group:
                continue
            copied = [j for j in group if j.source != j.slot and j.start]
            if copied:
                self.forward.move([j.source for j in copied], [j.slot for j in copied], max(j.start for j in copied))
            part = self.forward.prefill(
                np.array([j.slot for j in group]), [j.new for j in group], np.array([j.start for j in group])
            )  # fmt: skip
            if len(group) == len(joining):
                return part
            if logits is None:
                logits = part.new_empty(len(joining), part.shape[1])
            logits[torch.tensor(which, device=part.device)] = part
        assert logits is not None
        return logits

    def _sample(self, live: Live, logits: Tensor, results: list[Result]) -> None:
        """Draw a token for each of the rows, note it, and finish those that are done."""
        if live.ahead == AHEAD:
            start = self._offset[live.rows] + live.count.astype(np.uint64)
            live.noise = np.ascontiguousarray(noise(self._seed[live.rows], start, AHEAD).T)[..., None]
            live.ahead = 0
        u = torch.from_numpy(live.noise[live.ahead]).to(logits.device)
        live.ahead += 1
        drawn, logprobs, negentropies = (t.cpu().numpy() for t in draw(logits, live.laws, u))
        drawn, logprobs, rows, count = drawn[:, 0], logprobs[:, 0], live.rows, live.count
        if np.isnan(logprobs.sum()):
            raise ModelError("the logits are not numbers", remedy="The weights have diverged: load earlier ones.")
        self._tokens[rows, count] = live.last = drawn
        self._logprobs[rows, count] = logprobs
        self._entropies[rows, count] = negentropies
        count += live.act
        ends = self._stops[drawn]
        done = live.act & (ends | (count >= live.limit))
        if done.any():
            live.act &= ~done
            which = np.flatnonzero(done)
            self._finish(rows[which], count[which], ["stop" if e else "length" for e in ends[which]], results)
        if live.watched:
            for i in np.flatnonzero(live.act).tolist():
                finish = self._watch(int(rows[i]), int(count[i]))
                if finish:
                    live.act[i] = False
                    self._finish(rows[i : i + 1], count[i : i + 1], [finish], results)

    def _watch(self, slot: int, count: int) -> str:
        """How a request ends whose text holds a stop string, or whose time is up; else nothing."""
        joined = self._joined[slot]
        assert joined is not None
        request, stops = joined.entry.request, joined.entry.request.sampling.stop
        if stops:
            reach = max(map(len, stops)) + 8  # tokens, of which each shows at least a character
            tail = [*request.forced, *self._tokens[slot, max(0, count - reach) : count].tolist()][-reach:]
            text = self._renderer.decode(tail)
            if any(stop in text for stop in stops):
                return "stop"
        late = request.deadline is not None and time.monotonic() > joined.entry.arrived + request.deadline
        return "cut" if late else ""

    def _finish(self, rows: Any, counts: Any, finishes: Sequence[str], results: list[Result]) -> None:
        """Answer the requests of some rows, [n] each, and let the rows go."""
        slots, most = self._slots, int(counts.max())
        tokens, logprobs = self._tokens[rows, :most], self._logprobs[rows, :most]  # copies, of which answers keep views
        entropies = -self._entropies[rows, :most]
        written = tokens.tolist()
        for i, (slot, count, finish) in enumerate(zip(rows.tolist(), counts.tolist(), finishes, strict=True)):
            joined = self._joined[slot]
            assert joined is not None
            entry, prompt = joined.entry, joined.start + len(joined.new)
            request, ids = entry.request, tuple(written[i][:count])
            numbers = logprobs[i, :count], entropies[i, :count]
            _answer(entry, self._completion(entry, prompt, joined.start, finish, ids, numbers), results)
            self._joined[slot] = None
            slots.length[slot] = prompt + count - 1
            slots.tokens[slot, prompt : prompt + count - 1] = tokens[i, : count - 1]
            if request.holder and slots.holder[slot] == request.holder:
                slots.path[slot], slots.reply[slot] = request.path, request.head + request.forced + ids
        slots.busy[rows] = False
        self.active -= len(rows)

    def _completion(
        self, entry: Waiting, prompt: int, cached: int, finish: str, ids: tuple[int, ...], numbers: Any
    ) -> Completion:
        request = entry.request
        whole = request.forced + ids if request.forced else ids
        message = self._parsed.get(whole)
        if message is None:
            if len(self._parsed) >= PARSED:
                self._parsed.clear()
            message = self._parsed[whole] = self._renderer.parse(whole)
        for stop in request.sampling.stop:
            message = message._replace(text=message.text.partition(stop)[0])
        asked, most = request.sampling, len(request.forced) + self.forward.context - prompt
        in_force = asked._replace(max_tokens=most) if most < asked.max_tokens else None
        return Completion(
            message, ids, numbers[0], numbers[1], finish, in_force, self.version, self._model,
            Usage(prompt, len(ids), cached), 0.0, time.monotonic() - entry.arrived,
        )  # fmt: skip


def _prompt(request: Request) -> list[int]:
    ids: list[int] = []
    for node in request.path:
        if node.ids is None:
            raise BadInput(
                f"a {node.message.role} message has no token ids", remedy="Tokenise it with the model's renderer."
            )
        ids += node.ids
    return [*ids, *request.head, *request.forced]


def _answer(entry: Waiting, answer: Completion | BaseException, results: list[Result]) -> None:
    entry.answered = True
    results.append(Result(entry, answer))
