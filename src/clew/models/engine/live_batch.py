"""The running batch: which requests run, which tokens they have sampled, and when each is done."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from typing import Any

import numpy as np
from torch import Tensor

from clew.core.errors import ClewError, ModelError
from clew.core.protocols import Renderer
from clew.models.engine.admission import PIECE, Filling, place, prefill
from clew.models.engine.cache_rows import LEAST, Rows
from clew.models.engine.detokenizer import Answers
from clew.models.engine.extras import Places, asking, fresh, note_kept, plain_law, rank, sort_out
from clew.models.engine.forwards.fast import CHUNK, Fast
from clew.models.engine.forwards.generic import Generic
from clew.models.engine.forwards.transfers import read, sent
from clew.models.engine.shaped_laws import restrict
from clew.models.engine.speculation.drafts import Drafts
from clew.models.engine.speculation.proposal import Drafter, Lengths
from clew.models.engine.speculation.verification import Verdict, judge, ragged, uniforms
from clew.models.engine.state import I64, Counts, Fresh, Inbox, Joining, Live, Result, Waiting, answer
from clew.models.sampling import Laws, draw, in_force, noise

NOTHING = np.zeros(0, np.float32), np.zeros(0, np.float32)  # logprobs and entropies of no tokens
AHEAD = 8  # uniforms are made for this many tokens at a time


class Batch:
    """Requests that run, each in a row of the cache; idle rows keep prefixes for whoever comes back."""

    def __init__(
        self, forward: Fast | Generic, renderer: Renderer, model: str, steady: bool, max_rows: int, cache_bytes: int
    ) -> None:
        self.forward, self._steady = forward, steady
        self.version = 0
        self.active = 0  # requests that have a row
        self.counts = Counts()
        self._clock = 0
        self.drafts: Drafts | None = None
        self._rows = Rows(forward, max_rows, cache_bytes)
        self._filling = Filling(self._rows)
        self._answers = Answers(renderer, model, forward.context)
        self._stops = np.zeros(forward.vocabulary, bool)
        self._stops[[i for i in renderer.stop if i < forward.vocabulary]] = True
        self._live = self._lively(np.zeros(0, np.int64))

    @property
    def cache_bytes(self) -> int:
        """Memory of a full cache."""
        return self._rows.most_bytes

    def attach(self, drafter: Drafter | None, lengths: Lengths) -> None:
        """Draft from now on, or no more. Only while nothing runs; no prefix that the drafter never saw is kept.

        Raises:
            BadInput: see Drafts.
        """
        if drafter is None:
            self._rows.drafts, self.drafts, self.forward.taps = None, None, ()
            return
        drafts = Drafts(drafter, lengths, self.forward, self._steady)
        self._rows.clear()
        drafts.resize(self._rows.slots.rows, self._rows.slots.size)
        self._rows.drafts = self.drafts = drafts

    def use(self, version: int, weights: Any) -> None:
        """New weights: nothing cached before is used again. Only while nothing runs."""
        self.forward.use(weights)
        self._forget()
        self.version = version

    def _forget(self) -> None:
        self._rows.clear()
        if self.drafts is not None:
            self.drafts.clear()

    def release(self, runs: Collection[str]) -> None:
        """These runs hold no rows any more."""
        self._rows.slots.release(runs)

    def abandon(self) -> None:
        """After a failure nothing in the cache can be trusted."""
        self._rows.slots.busy[:] = False
        self._forget()
        self.forward.clear()
        self.forward.writes.clear()
        self._filling.clear()
        self._rows.joined = [None] * self._rows.slots.rows
        self._live, self.active = self._lively(np.zeros(0, np.int64)), 0

    def admit(self, entries: Sequence[Waiting], results: list[Result]) -> list[Waiting]:
        """Prefill requests and sample their first tokens. Gives back those for which there is no row yet."""
        self._clock += 1
        if self.drafts is not None and not self.drafts.on and not self.active:
            self._rows.clear()
            self.drafts.restart()
        self._gather()
        self._rows.begin(not self.active)
        slots = self._rows.slots
        slots.ready[:], slots.wave[:] = slots.length, 0
        if self._steady:
            entries = sorted(entries, key=lambda e: (e.request.order, e.request.holder, e.request.seed))
        joining: list[Joining] = []
        later: list[Waiting] = []
        for number, entry in enumerate(entries):
            try:
                placed = place(self._rows, entry, self._stops, self._clock)
            except ClewError as error:
                answer(entry, error, results)
                continue
            if isinstance(placed, Joining):
                joining.append(placed)
            elif placed is None:  # no row is idle: whoever came later waits as well
                later.extend(entries[number:])
                break
            else:
                done = self._answers.completion(entry, self.version, placed.prompt, 0, placed.finish, (), NOTHING)
                answer(entry, done, results)
        self.active += len(joining)
        if joining := self._filling.defer(joining):
            self._join(joining, results)
        if self._filling:
            self._filling.follow()
            self._gather()
        return later

    def _fill(self, results: list[Result]) -> None:
        """Prefill a piece of a long prompt; with the last one its request joins."""
        slots, most = self._rows.slots, PIECE if self.active > len(self._filling) else CHUNK
        if (filled := self._filling.fill(most)) is not None:
            at = int(slots.length[filled.slot])
            slots.length[filled.slot] = filled.start + len(filled.new)
            self._join([filled], results, [filled._replace(start=at, new=filled.new[at - filled.start :])])
            self._filling.follow()

    def cut(self, entries: Sequence[Waiting], results: list[Result]) -> None:
        """End what these requests sample; what they have is their answer, finish ``cut``."""
        for entry in entries:
            joined = self._rows.joined[entry.slot] if entry.slot >= 0 else None
            if joined is not None and joined.entry is entry:
                place = int(np.flatnonzero(self._live.rows == entry.slot)[0])
                self._live.act[place] = False
                self._finish(self._live.rows[[place]], self._live.count[[place]], ["cut"], results)
            elif (given_up := self._filling.drop(entry)) is not None:
                self.active -= 1
                prompt, cached = given_up.start + len(given_up.new), given_up.start
                done = self._answers.completion(entry, self.version, prompt, cached, "cut", (), NOTHING)
                answer(entry, done, results)

    def refuse(self, entry: Waiting, results: list[Result]) -> None:
        """Answer a request that was dropped before it ran."""
        answer(entry, self._answers.completion(entry, self.version, 0, 0, "cut", (), NOTHING), results)

    def room(self) -> tuple[int, int, int]:
        """Rows of the cache, tokens that lie in it, and tokens it has room for."""
        slots = self._rows.slots
        return slots.rows, int(slots.length.sum()), self.forward.arena.total

    def fresh(self) -> list[tuple[Inbox, Fresh]]:
        """Tokens of streams that have not gone out."""
        return fresh(self._rows, self._live) if self._live.told else []

    def step(self, results: list[Result]) -> None:
        """One more token for every request that runs."""
        if self._filling:
            self._fill(results)
        running = self.active - len(self._filling)
        if not running:
            return
        if len(self._live.rows) > LEAST and 2 * running <= len(self._live.rows):
            self._gather()
        self._make_room(2 if self.drafts is None else self.drafts.drafter.block + 2)
        live = self._live
        if self.drafts is not None and self._verified(self.drafts, live, results):
            return
        logits = self.forward.decode(live.rows, live.last, live.at)
        if self.drafts is not None:
            run = np.flatnonzero(live.act)
            self.drafts.plain(live.rows[run], live.last[run], live.at[run], run)
        live.at += live.act
        self._sample(live, logits, results)

    def _make_room(self, ahead: int) -> None:
        """Room for so many more tokens in each row that runs."""
        rows, live = self._rows, self._live
        rows.replies(int(live.count.max()) + ahead)
        need = np.minimum(live.at + ahead, self.forward.context + 1)
        short = live.act & (need > self.forward.arena.room[live.rows])
        if short.any():
            for slot, positions, at in zip(*(a[short].tolist() for a in (live.rows, need, live.at)), strict=True):
                rows.fit(slot, positions, at)
            self._gather()

    def _verified(self, drafts: Drafts, live: Live, results: list[Result]) -> bool:
        """A round of drafting and verification, several tokens for a row; False where there is no draft."""
        run = np.flatnonzero(live.act)
        rows, last, at, count = live.rows[run], live.last[run], live.at[run], live.count[run]
        laws = live.laws if len(run) == len(live.rows) else live.laws.take(run)
        guided = [(int(np.searchsorted(run, i)), entry) for i, entry in asking(self._rows, live, live.guided)]
        free = np.ones(len(run), bool)
        free[[i for i, _ in guided]] = False  # a drafter knows no grammar
        bent = [(int(np.searchsorted(run, i)), entry) for i, entry in asking(self._rows, live, live.shaped)]
        free[[i for i, _ in bent]] = False
        free &= ~live.steered[run]  # nor writes into hidden states, of which each token counts once
        index = self._rows.offset[rows] + count.astype(np.uint64)
        noise_of = partial(uniforms, self._rows.seed[rows], index, drafts.drafter.block)
        drafted = drafts.propose(rows, last, at, laws, noise_of, free)
        if drafted is None:
            return False
        (proposed, logq, _), lengths, u = drafted
        lengths = np.minimum(lengths, live.limit[run] - count - 1)
        first, tokens = np.cumsum(lengths + 1) - lengths - 1, proposed.tolist()
        ids = [[a, *tokens[i][:n]] for i, (a, n) in enumerate(zip(last.tolist(), lengths.tolist(), strict=True))]
        logits = self.forward.verify(rows, ids, at)
        plain = plain_law(logits, range(len(logits))) if live.listed else None
        held, changed = ([(int(first[i]), entry) for i, entry in places] for places in (guided, bent))
        self._restrict(live, logits, held, changed, count[[i for i, _ in bent]], results)
        logp = in_force(logits, laws.take(np.repeat(np.arange(len(run)), lengths + 1)))
        verdict = judge(logp, proposed, logq, lengths, u)
        kept, finishes = self._note(live, run, verdict)
        for i, entry in asking(self._rows, live, live.listed):
            assert plain is not None
            place = int(np.searchsorted(run, i))
            law = plain[int(first[place]) : int(first[place] + kept[place])]
            rank([entry] * len(law), law, verdict.tokens[place, : kept[place]].tolist())
        for i, entry in asking(self._rows, live, live.truncated):
            place = int(np.searchsorted(run, i))
            note_kept([entry] * int(kept[place]), logp[int(first[place]) : int(first[place] + kept[place])])
        for place, entry in guided:
            entry.guide.take(verdict.tokens[place, : kept[place]].tolist())
        drafts.note(lengths, verdict.accepted, kept, self.counts)
        keep = np.concatenate([np.arange(f, f + n) for f, n in zip(first.tolist(), kept.tolist(), strict=True)])
        drafts.seen(rows, [i[:n] for i, n in zip(ids, kept.tolist(), strict=True)], at, keep)
        done = np.array([bool(f) for f in finishes]) & live.act[run]
        if done.any():
            live.act[run[done]] = False
            self._finish(rows[done], live.count[run[done]], [finishes[i] for i in np.flatnonzero(done)], results)
        return True

    def _note(self, live: Live, run: I64, verdict: Verdict) -> tuple[I64, list[str]]:
        """Note what a round emits for the rows ``run``, up to where their requests end.

        Returns:
            int64 [n], tokens kept of each row; how its request ends, or nothing.
        """
        tokens, every = verdict.tokens, self._rows
        if np.isnan(verdict.logprobs.sum()):
            raise ModelError("the logits are not numbers", remedy="The weights have diverged: load earlier ones.")
        rows, before, kept = live.rows[run], live.count[run], verdict.accepted + 1
        ends = self._stops[tokens] & (np.arange(tokens.shape[1]) < kept[:, None])
        ended: Any = ends.any(1)
        kept[ended] = ends[ended].argmax(1) + 1
        row, place = ragged(kept)
        put = rows[row], before[row] + place
        every.tokens[put], every.logprobs[put] = tokens[row, place], verdict.logprobs[row, place]
        every.entropies[put] = verdict.negentropies[row, place]
        full = before + kept >= live.limit[run]
        finishes = ["stop" if e else "length" if f else "" for e, f in zip(ended.tolist(), full.tolist(), strict=True)]
        if live.watched:
            for i in np.flatnonzero(live.act[run]).tolist():
                joined = every.joined[rows[i]]
                assert joined is not None
                for length in range(int(before[i]) + 1, int(before[i] + kept[i]) + (not finishes[i])):
                    finish = self._answers.watch(joined, every.tokens[rows[i]], length)
                    if finish:
                        kept[i], finishes[i] = length - before[i], finish
                        break
        live.count[run] = before + kept
        live.at[run] += kept
        live.last[run] = tokens[np.arange(len(run)), kept - 1]
        live.ahead = AHEAD  # the noise made for plain steps is of tokens passed by now
        return kept, finishes

    def _gather(self) -> None:
        """Decode the rows that run, and no others."""
        self._put_back()
        self._live = self._lively(np.flatnonzero([j is not None for j in self._rows.joined]))

    def _lively(self, rows: I64) -> Live:
        live, slots = Live(), self._rows.slots
        joined = [self._rows.joined[i] for i in rows.tolist()]
        live.rows, live.act = rows, np.array([j is not None for j in joined], bool)
        live.count, live.last = self._rows.count[rows], self._rows.last[rows]
        live.at = slots.length[rows] + np.where(live.act, np.maximum(live.count - 1, 0), 0)
        live.limit = np.zeros(len(rows), np.int64)
        asked = [None if j is None else j.entry.request for j in joined]
        some = next((r for r in asked if r is not None), None)
        if some is not None:
            live.limit[:] = [0 if j is None else j.limit for j in joined]
            live.laws = Laws.of([(r or some).sampling for r in asked], self.forward.device)
        live.watched = any(r is not None and (r.sampling.stop or r.deadline is not None) for r in asked)
        entries = [(i, j.entry) for i, j in enumerate(joined) if j is not None]
        sort_out(live, entries)
        live.steered = np.array([r is not None and bool(r.taps) for r in asked], bool)
        live.ahead = AHEAD
        return live

    def _put_back(self) -> None:
        """Note per row what the arrays of the live rows hold."""
        live = self._live
        self._rows.count[live.rows], self._rows.last[live.rows] = live.count, live.last

    def _join(self, joining: list[Joining], results: list[Result], left: list[Joining] | None = None) -> None:
        """Prefill requests, or what is ``left`` of them, and sample the first token of each."""
        joining.sort(key=lambda j: j.slot)
        rows = np.array([j.slot for j in joining])
        requests = [j.entry.request for j in joining]
        for j in joining:
            self._rows.joined[j.slot], j.entry.slot = j, j.slot
        self._rows.seed[rows] = [r.seed & 0xFFFFFFFFFFFFFFFF for r in requests]
        self._rows.offset[rows] = [len(r.forced) for r in requests]
        self._rows.count[rows] = 0
        if self.drafts is not None:
            self.drafts.join(rows)
        self.counts.prompt += sum(len(j.new) for j in joining)
        self.counts.cached += sum(j.start for j in joining)
        live = self._lively(rows)
        self._sample(live, prefill(self.forward, left or joining, self.drafts), results)
        self._put_back()
        self._live = live
        self._gather()

    def _sample(self, live: Live, logits: Tensor, results: list[Result]) -> None:
        """Draw a token for each of the rows, note it, and finish those that are done."""
        if live.ahead == AHEAD:
            start = self._rows.offset[live.rows] + live.count.astype(np.uint64)
            live.noise = np.ascontiguousarray(noise(self._rows.seed[live.rows], start, AHEAD).T)[..., None]
            live.ahead = 0
        u = sent(live.noise[live.ahead], logits.device)
        live.ahead += 1
        listed = asking(self._rows, live, live.listed) if live.listed else []
        guided = asking(self._rows, live, live.guided) if live.guided else []
        law = plain_law(logits, [i for i, _ in listed]) if listed else None
        bent = asking(self._rows, live, live.shaped) if live.shaped else []
        self._restrict(live, logits, guided, bent, live.count[[i for i, _ in bent]], results)
        *numbers, in_law = draw(logits, live.laws, u, bool(guided or bent))
        drawn, logprobs, negentropies = read(numbers)
        drawn, logprobs, rows, count = drawn[:, 0], logprobs[:, 0], live.rows, live.count
        if np.isnan(logprobs.sum()):
            raise ModelError("the logits are not numbers", remedy="The weights have diverged: load earlier ones.")
        self._rows.tokens[rows, count] = live.last = drawn
        self._rows.logprobs[rows, count] = logprobs
        self._rows.entropies[rows, count] = negentropies
        if law is not None:
            rank([entry for _, entry in listed], law, [int(drawn[i]) for i, _ in listed])
        if live.truncated and (cut := asking(self._rows, live, live.truncated)):
            note_kept([entry for _, entry in cut], in_law[[i for i, _ in cut]])
        for i, entry in guided:
            entry.guide.take([int(drawn[i])])
        self.counts.sampled += int(live.act.sum())
        count += live.act
        ends = self._stops[drawn]
        done = live.act & (ends | (count >= live.limit))
        if done.any():
            live.act &= ~done
            which = np.flatnonzero(done)
            self._finish(rows[which], count[which], ["stop" if e else "length" for e in ends[which]], results)
        if live.watched:
            for i in np.flatnonzero(live.act).tolist():
                joined = self._rows.joined[rows[i]]
                assert joined is not None
                finish = self._answers.watch(joined, self._rows.tokens[rows[i]], int(count[i]))
                if finish:
                    live.act[i] = False
                    self._finish(rows[i : i + 1], count[i : i + 1], [finish], results)

    def _restrict(
        self, live: Live, logits: Tensor, guided: Places, bent: Places, counts: I64, results: list[Result]
    ) -> None:
        """Hold rows of logits to grammars and shapes; who has nothing left to draw gets an error, and its row goes."""
        failed = restrict(logits, guided, bent, counts.tolist(), self._rows, self._stops) if guided or bent else ()
        for entry, error in failed:
            live.act[live.rows == entry.slot] = False
            self._rows.joined[entry.slot] = None
            self.forward.writes.drop(entry.slot)
            self._rows.slots.busy[entry.slot] = False
            self.active -= 1
            answer(entry, error, results)

    def _finish(self, rows: I64, counts: I64, finishes: Sequence[str], results: list[Result]) -> None:
        """Answer the requests of some rows, [n] each, and let the rows go."""
        every, slots, most = self._rows, self._rows.slots, int(counts.max())
        tokens, logprobs = every.tokens[rows, :most], every.logprobs[rows, :most]  # copies, of which answers keep views
        entropies = -every.entropies[rows, :most]
        written = tokens.tolist()
        for i, (slot, count, finish) in enumerate(zip(rows.tolist(), counts.tolist(), finishes, strict=True)):
            joined = every.joined[slot]
            assert joined is not None
            entry, prompt = joined.entry, joined.start + len(joined.new)
            request, ids = entry.request, tuple(written[i][:count])
            numbers = logprobs[i, :count], entropies[i, :count]
            entry.reached = self.forward.writes.end(slot, joined.start) if request.taps else ()
            done = self._answers.completion(entry, self.version, prompt, joined.start, finish, ids, numbers)
            answer(entry, done, results)
            every.joined[slot] = None
            slots.length[slot] = prompt + count - 1
            slots.write(slot, prompt, tokens[i, : count - 1])
            if request.run and slots.holder[slot] == request.holder:
                slots.path[slot], slots.reply[slot] = request.path, request.head + request.forced + ids
        slots.busy[rows] = False
        self.active -= len(rows)
