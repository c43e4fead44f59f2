"""The recorded Calls a run is fed before it goes live, handed over in their recorded order."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate, zip_longest

from clew.core.errors import ReplayDiverged
from clew.core.keys import node_key
from clew.core.legality import call_key, issue_key
from clew.core.protocols import Store
from clew.core.records import Call, Cursor, Node, RunRow
from clew.core.values import Message, StopReason
from clew.harness.run.pending import CUT_OFF, GIVEN_UP
from clew.store.protocol import Tables
from clew.store.redaction import marked


def unanswered(calls: Sequence[Call], place: Call | None) -> list[Call]:
    """Of the Calls before ``place``, those that did not answer, as far as was known when it was issued.

    What became of them (they were given up or cut off) may hang on what a fork changes there: it makes them anew.
    """
    open_ = [c for c in calls if place is None or c.done < 0 or c.done >= place.after or c.error == CUT_OFF]
    return [c for c in open_ if c.done < 0 or c.error in (CUT_OFF, GIVEN_UP)]


class Tape:
    """Calls of one run, by ``seq``, and the order in which their results were handed over.

    A result with tick ``done`` may be handed over once every recorded Call with ``after <= done`` has been issued
    again: then the agent knows exactly what it knew when it was recorded. ``after`` never falls with ``seq``, so this
    is one comparison.

    Args:
        run: id of the run that is replayed, for messages.
        calls: recorded Calls, in seq order; intents (``done`` -1) are checked when issued and then performed anew.
        hold: the Call at the fork point: issued when it was recorded to be, performed anew; or None.
        same: whether the Call at the fork point must be the recorded request (nothing before it was changed).
        place: the Call from which a fork is its own; until it is issued the run knows nothing beyond the record.
    """

    def __init__(
        self,
        run: str,
        calls: Sequence[Call],
        hold: Call | None = None,
        same: bool = False,
        place: int = -1,
    ) -> None:
        self.run, self.place = run, place
        self.calls = {c.seq: c for c in calls}
        self._held = hold._replace(done=-1, child="") if hold is not None and same and hold.kind != "end" else None
        issued = [*calls, hold] if hold else calls
        afters = [c.after for c in issued]
        told = (c for c in calls if c.done >= 0 and c.kind != "end" and c.error != CUT_OFF)
        self.order = sorted(told, key=lambda c: c.done)
        self._need = [issued[bisect_right(afters, c.done) - 1].seq for c in self.order]
        self.position = 0
        self.together = _together(issued)
        self.issued, self._first = set[int](), 0
        self.issues = dict[int, bytes]()  # the issue digest of each recorded Call
        issue = b""
        for call in calls:
            issue = self.issues[call.seq] = issue_key(issue, call)
        self.checked = -1  # the Call that is known to be as recorded, and is now issued in other tokens
        self.horizon = self.order[-1].done + 1 if self.order else 0  # the first tick that no recorded result has
        self.nodes: dict[tuple[bytes, Message, str], Node] = {}
        self.by_key: dict[bytes, Node] = {}

    def tokenizer_below(self, parent: bytes) -> str:
        """The tokenizer of what stands below a node, by which a replay without a model finds it: the node's own, at
        the root that of the recorded roots; empty where there are no tokens."""
        if parent in self.by_key:
            return self.by_key[parent].tokenizer
        return next((n.tokenizer for n in self.by_key.values() if not n.parent), "")

    @property
    def pending(self) -> bool:
        """Whether recorded results are still to be handed over."""
        return self.position < len(self.order)

    def past(self) -> int:
        """A tick after all that the record has, for what is made while it goes on."""
        self.horizon += 1
        return self.horizon - 1

    def next(self, issued: int) -> Call | None:
        """The recorded Call whose result may be handed over now that ``issued`` Calls have been issued."""
        if self.position < len(self.order) and self._need[self.position] < issued:
            return self.order[self.position]
        return None

    def load(self, store: Store) -> None:
        """Read the nodes that the Calls name, that at the fork point among them, each once, and prove their keys.

        Raises:
            ReplayDiverged: a node's content does not give its key; names the first Call that holds it.
        """
        known = (*self.calls.values(), *([self._held] if self._held else []))
        for call in reversed([c for c in known if c.kind == "ask"]):
            for tip in (call.node_in,) if call is self._held else (call.node_out, call.node_in):
                if tip and tip not in self.by_key:
                    for node in store.thread(tip):
                        self.nodes[node.parent, node.message, node.tokenizer] = node
                        self.by_key[node.key] = node
        bad = {n.key for n in self.by_key.values() if node_key(n.parent, n.message, n.ids, n.tokenizer) != n.key}
        if bad:
            self._blame(bad)

    def _blame(self, bad: set[bytes]) -> None:
        for call in sorted(self.calls.values(), key=lambda c: c.seq):
            tip = call.node_out or call.node_in
            while tip:
                if tip in bad and self.by_key[tip].message.redacted:
                    raise redacted(self.run, call.seq)
                if tip in bad:
                    raise ReplayDiverged(
                        f"the record of Call {call.seq} was altered: a message's content does not give its key",
                        remedy="Run `clew store verify` for the whole list; restore the store from a copy.",
                        at=str(Cursor(self.run, call.seq)),
                    )
                tip = self.by_key[tip].parent if tip in self.by_key else b""
        raise ReplayDiverged(f"run {self.run}: a message was altered", at=self.run)

    @property
    def cancelled(self) -> bool:
        """Whether the recorded run was ended from outside."""
        last = self.calls[max(self.calls)] if self.calls else None
        return last is not None and last.kind == "end" and last.action == StopReason.CANCELLED

    def outlasted(self, issued: int) -> bool:
        """Whether all that is left of the record, now that ``issued`` Calls have been issued, is that time was over."""
        last = self._at(issued)
        return not self.pending and last is not None and last.kind == "end" and last.action == StopReason.TIME_LIMIT

    def known(self, run: str) -> list[Call]:
        """What is known of the world when ``run`` goes live: the recorded Calls, but of intents only its own."""
        return [c for c in self.calls.values() if c.done >= 0 or c.run == run]

    def waits(self, issued: int) -> bool:
        """Whether the record must go on before anything new is known, now that ``issued`` Calls have been issued."""
        return self.pending or issued <= self.place

    def turn(self, first: int, kind: str, request: Callable[[int], bytes]) -> int:
        """Which Call is issued now: the ``first`` that is not issued again yet, as a rule.

        Tasks of an agent that wake together need not issue in the order of the record, since nobody records how long
        each takes. A later Call may come before, where the agent knew nothing when it was recorded that it does not
        know now. From a note it learns nothing.
        """
        call = self._at(first)
        if call is None or (call.kind == kind and call.request == request(first)):
            return first
        left = (c for c in self.order[self.position :] if c.seq in self.issued and c.kind != "note")
        waits = next((c.done for c in left), self.horizon)
        for seq in range(first + 1, max(self.calls, default=0) + 2):
            call = self._at(seq)
            if call is None or call.after > waits:
                break
            if seq not in self.issued and call.kind == kind and call.request == request(seq):
                return seq
        return first

    def issue(self, seq: int) -> int:
        """Note that a Call is issued again; gives the first that is not."""
        self.issued.add(seq)
        while self._first in self.issued:
            self._first += 1
        return self._first

    def conversation(self, seq: int, request: bytes, index: int) -> int:
        """The number that the conversation of an ask has in the record, else ``index``."""
        call = self._at(seq)
        return call.conversation if call is not None and call.kind == "ask" and call.request == request else index

    def same_words(self, seq: int, tip: Node) -> list[Node]:
        """The path that Call ``seq`` was asked at, where it says what the path to ``tip`` says in other tokens."""
        call = self._at(seq)
        found = self.by_key.get(call.node_in) if call is not None and call.kind == "ask" else None
        if found is None or found.key == tip.key or found.text_key != tip.text_key:
            return []
        path = [found]
        while path[-1].parent in self.by_key:
            path.append(self.by_key[path[-1].parent])
        return path[::-1]

    def _at(self, seq: int) -> Call | None:
        call = self.calls.get(seq)
        return self._held if call is None and self._held is not None and self._held.seq == seq else call

    def check(self, seq: int, kind: str, request: bytes, what: str, path: Sequence[Node] = ()) -> Call | None:
        """The recorded Call ``seq`` if there is one, once it is proved to be what is asked now.

        Raises:
            ReplayDiverged: it is another request.
        """
        call = self._at(seq)
        if call is not None and call.kind == "end" and not call.text:
            why = f"was recorded as the end ({call.action}), the agent now asks for {what}"
            raise diverged(call._replace(run=self.run), why)
        if call is None or call.kind == "end" or seq == self.checked:
            return call
        if call.kind != kind or call.request != request:
            recorded = f"{call.kind} {call.action[:60]!r}" if call.action else call.kind
            if kind == call.kind == "ask":
                recorded, what = self._differing(call, path)
            raise diverged(call._replace(run=self.run), f"was recorded as {recorded}, the agent now asks for {what}")
        return call

    def _differing(self, call: Call, path: Sequence[Node]) -> tuple[str, str]:
        """What two asks differ in: the first message that is not the recorded one, or how the model is asked."""
        before: list[Node] = []
        key = call.node_in
        while key in self.by_key:
            before.append(self.by_key[key])
            key = before[-1].parent
        for index, (old, new) in enumerate(zip_longest(reversed(before), path)):
            if old is None or new is None or old.key != new.key:
                was, now = (
                    f"{n.message.role} {n.message.text[:60]!r}" if n is not None else "absent" for n in (old, new)
                )
                if old and new and old.message != new.message and _bare(old) == _bare(new):
                    now = "the same text with other images or fields"
                return f"an ask whose message {index} is {was}", f"a reply where it is {now}"
        return "an ask with other sampling or tools", "a reply"

    def prove(self, call: Call) -> None:
        """Check a completed Call's key against its content.

        Raises:
            ReplayDiverged: the Call was altered after it was recorded.
        """
        if call_key(self.issues[call.seq], call) != call.key:
            raise ReplayDiverged(
                f"the record of Call {call.seq} of run {self.run} was altered: its content does not give its key",
                remedy="Run `clew store verify` for the whole list; restore the store from a copy.",
                at=str(Cursor(self.run, call.seq)),
            )


def _bare(node: Node) -> Message:
    return node.message._replace(extra="")


def _together(calls: Sequence[Call]) -> bool:
    """Whether results that came together were handed over together. Older records show that by a result in the tick of
    its issue though another Call was issued before it came; now it has a later tick (see ``RunState.record``)."""
    seen = list(accumulate((c.after for c in reversed(calls)), min, initial=1 << 62))[::-1][1:]
    pairs = zip(calls, seen, strict=True)
    return any(c.done == c.after and later <= c.done and c.error != CUT_OFF for c, later in pairs)


def check_whole(store: Tables, row: RunRow, calls: Sequence[Call]) -> None:
    """Refuse to follow a run whose content was erased.

    Raises:
        ReplayDiverged: it was redacted: one of its Calls, or what it was started with.
    """
    if what := marked(row):
        raise redacted(row.id, what=what)
    tombs = store.tombstones() if calls else {}
    for call in calls:
        if call.redacted or f"{call.run}@{call.seq}" in tombs:
            raise redacted(row.id, call.seq)


def redacted(run: str, seq: int | None = None, what: Sequence[str] = ()) -> ReplayDiverged:
    """The error where a run cannot be followed because its content was erased: a Call, or what it was started with."""
    told = f"Call {seq} of run {run}" if seq is not None else f"run {run} ({', '.join(what)})"
    earlier = f"Fork the run before Call {seq}, or run its task anew" if seq else "Run its task anew"
    return ReplayDiverged(
        f"{told} was redacted, so that the run can be neither replayed, resumed nor forked there",
        remedy=f"{earlier}: what was redacted is gone for good, and no copy is to bring it back.",
        at=str(Cursor(run, seq)) if seq is not None else run,
    )


def diverged(call: Call, what: str) -> ReplayDiverged:
    """The error where an agent does not do again what was recorded."""
    return ReplayDiverged(
        f"Call {call.seq} of run {call.run} {what}",
        remedy="The agent's code or arguments differ from those recorded, or it reads more than its run.",
        at=str(Cursor(call.run, call.seq)),
    )
