"""A run as a tree of text: its steps, their values, its children, and the runs forked from it."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from clew.core.printable import short, store_option, visible
from clew.core.records import Annotation, Call, Cursor, Edit
from clew.core.values import Message
from clew.models.compose.decision import asked_of, decision_of
from clew.models.images import unnamed
from clew.store import Run, labels
from clew.store.protocol import Tables, latest_last
from clew.store.run import did, said, sampled
from clew.view.pages.tokens import tokens


class Line(NamedTuple):
    """One line: where it hangs in the tree, what it says, and in which voice (a key of ``STYLES``)."""

    lead: str
    text: str
    voice: str = ""


def _plain(line: Line) -> Iterator[Line]:
    first, *more = visible(line.text).split("\n")
    yield line._replace(text=first)
    for text in more:
        yield line._replace(lead=line.lead.replace("├", "│").replace("└", " ").replace("╰", " "), text=f"  {text}")


LARGEST = 6  # tokens of a reply that are told by a method's values
STYLES = {"head": "bold", "act": "", "saw": "dim", "fork": "cyan", "good": "green", "bad": "red", "note": "yellow"}


class Tree:
    """Lines of a tree. ``str`` gives plain text; a notebook shows it as it is; rich shows it in colour.

    What runs say is hostile: hidden characters become signs, and a newline in a text begins no line of the tree.
    """

    def __init__(self, lines: Iterable[Line]) -> None:
        self.lines = [plain for line in lines for plain in _plain(line)]

    def __str__(self) -> str:
        return "\n".join((line.lead + line.text).rstrip() for line in self.lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"

    def __rich__(self) -> object:
        from rich.text import Text

        pieces = [(Text(line.lead, "dim"), Text(line.text, STYLES.get(line.voice, ""))) for line in self.lines]
        return Text("\n").join(lead + text for lead, text in pieces)


def tree(
    run: Run,
    forks: Iterable[Run] | None = None,
    *,
    full: bool = False,
    width: int = 100,
    depth: int = 1,
    by: str = "",
) -> Tree:
    """Draw a run.

    Args:
        forks: runs forked from it: draws only where they part, and what became of each. Without it the whole run is
            drawn, every fork in the store hanging at its step.
        full: also what the agent saw and what the models replied, whole.
        width: characters of a line, above which texts are cut.
        depth: how many levels of runs are drawn whole; forks below are one line each.
        by: a method that gives tokens values; below each reply stand its tokens where these are largest.
    """
    if forks is not None:
        return Tree(_parting(run, list(forks), width))
    return Tree(_Drawing(run.store, full, width, by).run(run, "", depth))


def children_of(store: Tables, run: Run) -> dict[int, list[Run]]:
    """Runs forked directly from a run, oldest first, by the Call they were forked at."""
    found: dict[int, list[Run]] = {}
    forks = [Run(store, name) for name in store.find(f"parent={run.id}@")]
    for fork in sorted(forks, key=lambda fork: (fork.row.created, fork.row.order)):
        if fork.parent is not None and fork.parent.run == run.id:
            found.setdefault(fork.parent.seq, []).append(fork)
    return found


def describe(edit: Edit) -> str:
    """An edit of an Intervention in a few words."""
    value = edit.value if isinstance(edit.value, str) else json.dumps(edit.value, ensure_ascii=False, default=str)
    place = f" {edit.conversation}.{edit.index}" if edit.kind in ("say", "insert", "delete") else ""
    return f"{edit.kind}{place}" + ("" if edit.value is None else f" := {short(value, 40) or '(nothing)'}")


def seen(text: str, extra: str) -> str:
    """What was seen, with a note of each image that the text does not name."""
    return " ".join(filter(None, (text, *(unnamed(Message("", text, extra=extra)) if extra else ()))))


def replied(store: Tables, call: Call) -> str:
    """What a model replied to an ask."""
    return said(store.node(call.node_out).message)


def outcome(run: Run) -> str:
    """How a run ended: ``reward 1  done``."""
    reward = run.reward
    return ("reward –" if reward is None else f"reward {reward:g}") + f"  {run.stop or 'unfinished'}"


def headline(run: Run) -> str:
    """A run in one line: id, task, model, size, end."""
    parts = [f"run {run.id}", short(run.task_id, 80), short(run.model.rstrip("/").rsplit("/", 1)[-1], 40)]
    uncounted = not run.tokens and any(call.kind == "ask" and call.node_out for call in run.calls)
    parts += [f"{len(run.steps)} steps", "tokens not counted" if uncounted else f"{run.tokens} tokens", outcome(run)]
    if run.cost:
        parts.append(f"${run.cost:.4f}")
    return "  ".join(part for part in parts if part)


def _parting(run: Run, forks: Sequence[Run], width: int) -> Iterator[Line]:
    places = [fork.parent for fork in forks if fork.parent is not None]
    shared = min((fork.shared for fork in forks), default=0)
    yield Line("", f"run {run.id}  {short(run.task_id, 80)}  {len(run.calls)} calls, {shared} shared", "head")
    at = Cursor(run.id, min((place.seq for place in places), default=0))
    rows = [(run, "(recorded)"), *((fork, ", ".join(describe(e) for e in _own_edits(fork))) for fork in forks)]
    names = max(len(f"{r.id}@{at.seq}") for r, _ in rows)
    acts = [short(_next_act(r, at.seq), width - names - 40) for r, _ in rows]
    column = max(map(len, acts))
    for i, ((member, remark), act) in enumerate(zip(rows, acts, strict=True)):
        mark = "└" if i == len(rows) - 1 else "├"
        name = f"{member.id}@{at.seq}".rjust(names)
        text = f"{name}  > {act.ljust(column)}   {outcome(member)}"
        yield Line(f"  {mark} ", f"{text}  {remark}".rstrip(), _voice(member.reward))


def _next_act(run: Run, seq: int) -> str:
    """What a run does from a Call on: its next act, else, where it only talks, its next reply."""
    calls = run.calls[seq:]
    if not run.relayed and (act := next((call for call in calls if call.kind == "act"), None)):
        return did(act)
    reply = next((call for call in calls if call.node_out), None)
    return f"“{replied(run.store, reply)}”" if reply is not None else "(ends)"


def _own_edits(run: Run) -> list[Edit]:
    """The edits a fork adds to those it inherits."""
    if run.parent is None:
        return list(run.changes.edits)
    inherited = Run(run.store, run.parent.run).changes.edits
    return [edit for edit in run.changes.edits if edit not in inherited]


def _voice(reward: float | None) -> str:
    return "" if reward is None else "good" if reward > 0.5 else "bad"


class _Drawing:
    """Draws runs of one store; remembers how."""

    def __init__(self, store: Tables, full: bool, width: int, by: str = "") -> None:
        self.store, self.full, self.width, self.by = store, full, width, by
        self.marks: dict[tuple[str, int], list[float]] = {}  # of the chosen method, by Call
        self.drawn: set[bytes] = set()  # nodes that need not be drawn again

    def run(self, run: Run, lead: str, depth: int, start: int = 0) -> Iterator[Line]:
        """The run's headline and, below it, everything from Call ``start`` on."""
        yield Line(lead, headline(run), "head")
        if start == 0 and run.row.task:
            yield Line(lead + "│ ", "task: " + short(json.loads(run.row.task).get("prompt", ""), self.width), "saw")
        for note in self._grades(run):
            yield Line(lead + "│ ", note, "note")
        values, told = _values(run), dict[tuple[str, int], list[labels.Label]]()
        for label in run.labels:
            told.setdefault((label.run, label.seq), []).append(label)
        for a in latest_last(run.annotations(self.by, "tokens")) if self.by else ():
            self.marks[a.run, a.seq] = [] if a.values is None else a.values.tolist()
        forks = children_of(self.store, run)
        step, errands = 0, run.relayed
        for beat in self._beats(run.calls):
            if beat[-1].seq >= start:
                if (self.full or errands) and beat[0].kind == "ask":
                    yield from self._context(run, beat[0], lead)
                if not (errands and beat[-1].kind == "act"):
                    yield from self._beat(beat, step, lead, values)
                elif beat[-1].text == "nobody listens":
                    yield Line(lead + "│ ", f"@{beat[-1].seq}  the program had hung up", "bad")
                for label in (label for call in beat for label in told.get((call.run, call.seq), ())):
                    part = "" if label.span is None else f" of {label.place.partition('+')[2]}"
                    yield Line(lead + "│ ", f"label{part}: {labels.said(label)}", "note")
                for call in beat:
                    for fork in forks.get(call.seq, ()):
                        yield from self._fork(fork, lead, depth)
            step += beat[-1].kind == "act"
        if run.stop is None:
            line = f"clew resume {run.id}{store_option(self.store.path)}"
            yield Line(lead + "└ ", f"unfinished; go on with: {line}", "note")

    def _beats(self, calls: Sequence[Call]) -> Iterator[tuple[Call, ...]]:
        """Calls, an ask together with the act that does just what its reply says."""
        held: Call | None = None
        for call in calls:
            if held is not None:
                if call.kind == "act" and did(call) == replied(self.store, held):
                    yield held, call
                    held = None
                    continue
                yield (held,)
                held = None
            if call.kind == "ask" and call.node_out:
                held = call
            else:
                yield (call,)
        if held is not None:
            yield (held,)

    def _beat(
        self, beat: tuple[Call, ...], step: int, lead: str, values: Mapping[tuple[str, int], str]
    ) -> Iterator[Line]:
        call = beat[-1]
        if call.kind == "open":
            yield from self._text(lead, seen(call.text, call.extra))
        elif call.kind == "ask":
            yield from self._ask(call, lead, values)
            yield from self._largest(call, lead)
        elif call.kind == "act":
            told = self._told(beat[0], values) if len(beat) > 1 else ""
            reward = "" if call.reward is None else f"  reward {call.reward:g}"
            text = f"{step}@{beat[0].seq}  > {self._cut(did(call))}{reward}  {told}"
            yield Line(lead + "├ ", text.rstrip(), "good" if (call.reward or 0) > 0 else "act")
            yield from self._largest(beat[0], lead)
            yield from self._text(lead, seen(call.text, call.extra))
        elif call.kind == "spawn":
            yield Line(lead + "├ ", f"@{call.seq}  child {call.child}", "fork")
            if call.child:
                yield from self.run(Run(self.store, call.child), lead + "│   ", 0)
        elif call.kind == "end":
            yield Line(lead + "└ ", f"@{call.seq}  {self._cut(call.action)}")
        else:
            text = f"@{call.seq}  {call.kind} {self._cut(call.action)} {self._cut(call.text)}"
            yield Line(lead + "├ ", text.rstrip(), "saw")
        for one in beat:
            yield from self._inner(one, lead)
        failed = [f"{a.status or ''} {a.error}".strip() for a in call.attempts if a.error]
        if failed:
            told = f"{len(call.attempts)} attempts upstream; failed: {'; '.join(failed)}"
            yield Line(lead + "│ ", self._cut(told), "bad")
        if call.error:
            yield Line(lead + "│ ", f"error: {call.error if self.full else short(call.error, self.width)}", "bad")

    def _largest(self, call: Call, lead: str) -> Iterator[Line]:
        """The tokens of a reply at which the chosen method's values are largest, in the order of the reply."""
        values = self.marks.get((call.run, call.seq), [])
        shown = tokens(call, self.store.node(call.node_out)) if values else None
        if shown is None:
            return
        told = [(abs(value), i) for i, value in enumerate(values[: len(shown)]) if value and value == value]
        words = []
        for i in sorted(place for _, place in sorted(told, reverse=True)[:LARGEST]):
            text, number, kind = shown[i]
            word = "(prompt)" if kind == "h" else short((text or "").strip(), 30) or f"(token {number})"
            words.append(f"{word} {values[i]:.2f}")
        yield Line(lead + "│ ", f"{self.by}: {'  '.join(words) or 'nowhere in this reply'}", "note")

    def _context(self, run: Run, call: Call, lead: str) -> Iterator[Line]:
        """What the agent said since the last ask, but for what it only passed on from the world."""
        shown = run.view(call.seq).text
        for node in self.store.thread(call.node_in):
            if node.key not in self.drawn and node.message.text != shown:
                yield from self._text(lead, f"{node.message.role}: {seen(node.message.text, node.message.extra)}")
            self.drawn.add(node.key)
        self.drawn.add(call.node_out)

    def _ask(self, call: Call, lead: str, values: Mapping[tuple[str, int], str]) -> Iterator[Line]:
        if not call.node_out:
            yield Line(lead + "├ ", f"@{call.seq}  asked, not answered", "bad")
            return
        yield Line(lead + "├ ", f"@{call.seq}  “{self._cut(replied(self.store, call))}”  {self._told(call, values)}")
        thought = self.store.node(call.node_out).message.reasoning
        if self.full and thought:
            yield from self._text(lead, f"thought: {thought}")

    def _inner(self, call: Call, lead: str) -> Iterator[Line]:
        """What a model over models, or a world, asked of others; of a router, who answered and why not another."""
        if not call.inner:
            return
        decision = decision_of(call.inner)
        if decision is not None:
            head, *others = decision.lines()
            cost = f"  ${call.cost:.6f}" if call.cost else ""
            yield Line(lead + "│ ", self._cut(head) + cost, "note")
            shown = others if self.full else others[: len(decision.failed)]
            yield from (Line(lead + "│ ", self._cut(one), "bad") for one in shown)
        if self.full:
            yield from (Line(lead + "│ ", self._cut(one), "saw") for one in asked_of(call.inner))

    def _text(self, lead: str, text: str) -> Iterator[Line]:
        """A text below its step: whole, line by line, or cut to one."""
        lines = visible(text).split("\n") if self.full else [short(text, self.width)]
        for line in lines if lines[-1] else lines[:-1]:  # a newline at the end begins no line
            yield Line(lead + "│ ", line, "saw")

    def _told(self, call: Call, values: Mapping[tuple[str, int], str]) -> str:
        """What is known of a reply: its tokens, how likely they were, what methods say of it."""
        count = f"{sampled(call)} tok" if sampled(call) else ""
        count += f" + {call.forced} forced" if call.forced else ""
        logp = "" if call.logprobs is None else f"  logp {float(call.logprobs.sum()):.2f}"
        chat = f"chat {call.conversation}  " if call.conversation > 0 else ""
        return f"{chat}{count}{logp}{values.get((call.run, call.seq), '')}".strip()

    def _fork(self, fork: Run, lead: str, depth: int) -> Iterator[Line]:
        edits = ", ".join(describe(e) for e in _own_edits(fork)) or "sampled again"
        start = fork.parent.seq if fork.parent else 0
        if depth > 1:
            yield Line(lead + "│ ╰ ", f"fork at {fork.parent}: {edits}", "fork")
            yield from self.run(fork, lead + "│   ", depth - 1, start)
        else:
            act = short(_next_act(fork, start), 40)
            yield Line(lead + "│ ╰ ", f"fork {fork.id}  {edits}  > {act}   {outcome(fork)}", "fork")

    def _grades(self, run: Run) -> Iterator[str]:
        """Values and labels on the whole run, and the tags it bears."""
        said = {a.method: a.value for a in latest_last(run.annotations(target="run")) if a.value is not None}
        if said:
            yield "grades: " + "  ".join(f"{method} {value:g}" for method, value in said.items())
        yield from (f"label: {labels.said(label)}" for label in run.labels if label.seq < 0)
        if tags := run.tags:
            yield "tags: " + "  ".join(tags)

    def _cut(self, text: str) -> str:
        return text if self.full else short(text, self.width)


def _values(run: Run) -> dict[tuple[str, int], str]:
    """What methods say of each Call, as text: ``  g2po -0.31``."""
    latest: dict[tuple[str, int, str], Annotation] = {}
    for a in latest_last(run.annotations(target="call")):
        if a.value is not None:
            latest[a.run, a.seq, a.method] = a
    out: dict[tuple[str, int], str] = {}
    for (name, seq, method), a in sorted(latest.items()):
        out[name, seq] = out.get((name, seq), "") + f"  {method} {a.value:+.2f}"
    return out
