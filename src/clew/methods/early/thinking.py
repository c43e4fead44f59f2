"""Where the thinking of a run lies: which tokens of which reply, and what ends them.

``clew audit early`` asks for it before anything is sampled. Thinking is one of three things: the reasoning of a reply,
as its renderer parses it; what comes before a marker in the reply's text; or the model calls before the last. Of a
model that does not think the reply itself may be cut instead, all but its last token. Nothing here may guess: a run
without thinking is refused, with what would help.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

from clew.core.errors import BadInput
from clew.core.protocols import Renderer
from clew.core.records import Call
from clew.harness.fork.continuations import Start
from clew.store import Run

Kind = Literal["reasoning", "marker", "calls", "reply"]


class Trace(NamedTuple):
    """The thinking of one run.

    seq: the model call whose reply thinks (of kind ``calls``: the last call). start, stop: where its thinking begins
    and ends in the reply, tokens counted after the head, or characters where the reply has no token ids. thought: what
    stands there. close: what stands between the thinking and the answer. calls: the model calls that are thinking.
    prompt: names what the model was shown, equal for runs of one prompt.
    """

    run: Run
    seq: int
    kind: Kind
    start: int
    stop: int
    thought: tuple[int, ...] | str
    close: tuple[int, ...] | str
    length: int
    calls: tuple[int, ...] = ()
    prompt: str = ""

    @property
    def tokens(self) -> int:
        """How long the thinking is: tokens, or characters, or calls."""
        return len(self.calls) if self.kind == "calls" else self.stop - self.start

    def kept(self, share: float) -> int:
        """How many tokens, characters or calls of the thinking a share of it is.

        A text is never cut behind a blank: most vocabularies hold a word with the blank before it, so that a model
        cannot go on from a lone blank as it would have from the word before.
        """
        kept = min(self.tokens, int(share * self.tokens + 0.5))
        return len(self.thought[:kept].rstrip()) if isinstance(self.thought, str) and self.thought else kept

    def resumed(self, kept: int) -> Start:
        """Where thinking goes on after its first ``kept`` tokens, so that the rest is thought anew."""
        if self.kind == "calls":
            places = (*self.calls, self.seq)
            return Start(self.run.id, places[kept])
        return Start(self.run.id, self.seq, self.start + kept)

    def answered(self, kept: int, close: tuple[int, ...] | str) -> Start:
        """Where the answer begins if thinking is closed after its first ``kept`` tokens: a forced answer."""
        return Start(self.run.id, self.seq, self.start + kept, close)

    def given(self, other: Trace, close: tuple[int, ...] | str) -> Start:
        """Where the answer begins if the thinking of another run stands in place of all of this one's."""
        return Start(self.run.id, self.seq, self.start, other.thought + close)  # type: ignore[operator]


def traces(
    runs: Sequence[Run], renderer: Renderer | None, until: str = "", kind: str = "auto", at: int | None = None
) -> tuple[list[Trace], dict[str, int]]:
    """The thinking of each run that has any, and how many runs were left out, by reason.

    Args:
        renderer: the model's, which parses replies that have token ids.
        until: text with which the answer begins, where thinking is not marked as reasoning; its last occurrence counts.
        kind: "auto", "reasoning", "marker", "calls" or "reply".
        at: the model call that thinks; default the first with thinking in it.

    Raises:
        BadInput: no run has any thinking.
    """
    wanted = kind if kind != "auto" else "marker" if until else "reasoning"
    if (wanted == "marker") != bool(until):
        raise BadInput(
            f"thinking of kind {wanted} {'needs' if wanted == 'marker' else 'has no'} marker",
            remedy="Give --until TEXT with --thinking marker, and with nothing else.",
        )
    found, left = [], Counter[str]()
    for run in runs:
        one = _calls(run) if wanted == "calls" else _reply(run, renderer, until, at, wanted == "reply")
        if isinstance(one, Trace):
            found.append(one)
        else:
            left[one] += 1
    if not found:
        why = left.most_common(1)[0][0] if left else "there are none"
        remedy = {
            "reasoning": "Name the text with which answers begin (--until), or take earlier calls (--thinking calls).",
            "marker": "Give --until a text that stands in the replies, or leave it out where replies have reasoning.",
            "calls": "Choose runs that ask a model at least twice.",
            "reply": "Choose runs of local weights, with replies of two tokens and more.",
        }[wanted]
        raise BadInput(f"no thinking is found in any of {len(runs)} runs: {why}", remedy=remedy)
    return found, dict(left)


def closing(found: Sequence[Trace]) -> tuple[int, ...] | str:
    """What most runs put between thinking and answer."""
    return Counter(one.close for one in found).most_common(1)[0][0]


def _calls(run: Run) -> Trace | str:
    asks = [call for call in run.calls if call.kind == "ask" and call.node_out]
    if len(asks) < 2:
        return "a run asks its model once"
    *before, last = (call.seq for call in asks)
    return Trace(run, last, "calls", 0, 0, "", "", len(asks), tuple(before), asks[0].node_in.hex())


def _reply(run: Run, renderer: Renderer | None, until: str, at: int | None, whole: bool) -> Trace | str:
    why = "a run asks no model"
    for call in run.calls:
        if call.kind != "ask" or not call.node_out or at not in (None, call.seq):
            continue
        found = _in_call(run, call, renderer, until, whole)
        if isinstance(found, Trace):
            return found
        why = found
    return why


def _in_call(run: Run, call: Call, renderer: Renderer | None, until: str, whole: bool) -> Trace | str:
    node = run.store.node(call.node_out)
    if node.ids is None:
        if whole:
            return "its reply is recorded without tokens"
        if not until:
            return "its reasoning is recorded without tokens, so that it cannot be continued"
        place = node.message.text.rfind(until)
        if place <= 0:
            return f"no reply holds {until!r} after some text"
        text = node.message.text
        thought = text[:place].rstrip()  # the blank belongs to the word behind it, as ``Trace.kept`` says
        close = text[len(thought) : place + len(until)]
        return Trace(run, call.seq, "marker", 0, len(thought), thought, close, len(text), (), call.node_in.hex())
    if renderer is None:
        return "its model shows no tokens"
    if node.tokenizer != renderer.ref:
        raise BadInput(
            f"the model call {run.id}@{call.seq} is in tokens of {node.tokenizer!r}, and the model has those of "
            f"{renderer.ref!r}",
            remedy="Name the model that answered it, or one of the same tokenizer, with --model.",
        )
    ids = node.ids[call.head :]
    if whole:  # the last token, which ends the reply, is always drawn anew
        if len(ids) < 2:
            return "its reply has a single token"
        stop = len(ids) - 1
        return Trace(run, call.seq, "reply", 0, stop, ids[:stop], (), len(ids), (), call.node_in.hex())
    cut = _marked(ids, renderer, until) if until else _reasoned(ids, renderer)
    if isinstance(cut, str):
        return cut
    start, stop, end = cut
    return Trace(
        run, call.seq, "marker" if until else "reasoning", start, stop, ids[start:stop], ids[stop:end], len(ids), (),
        call.node_in.hex(),
    )  # fmt: skip


def _first(count: int, test: Callable[[int], bool]) -> int:
    """The smallest number up to ``count`` that passes a test which all larger ones pass too."""
    return bisect_left(range(count), True, key=test)


def _reasoned(ids: Sequence[int], renderer: Renderer) -> tuple[int, int, int] | str:
    """Where the reasoning begins and ends, and where the answer begins."""
    whole = renderer.parse(ids)
    if not whole.reasoning:
        return "no reply has reasoning"
    n = len(ids)
    begin = _first(n, lambda k: bool(renderer.parse(ids[:k]).reasoning)) - 1
    stop = _first(n, lambda k: renderer.parse(ids[:k]).reasoning.startswith(whole.reasoning))
    answer = _first(n, lambda k: bool((m := renderer.parse(ids[:k])).text.strip() or m.calls))
    if not (whole.text.strip() or whole.calls):
        return "its thinking never ended"
    return max(begin, 0), stop, max(answer - 1, stop)


def _marked(ids: Sequence[int], renderer: Renderer, until: str) -> tuple[int, int, int] | str:
    """Where the text before the last marker begins and ends, and where the marker ends."""
    decode: Callable[[Sequence[int]], str] = getattr(renderer, "decode", lambda some: renderer.parse(some).text)
    text, n = decode(ids), len(ids)
    place = text.rfind(until)
    if place < 0 or not text[:place].strip():
        return f"no reply holds {until!r} after some text"
    begin = _first(n, lambda k: bool(decode(ids[:k]).strip())) - 1
    stop = _first(n, lambda k: len(decode(ids[:k]).rstrip()) > place) - 1
    end = _first(n, lambda k: len(decode(ids[:k])) >= place + len(until))
    return max(begin, 0), stop, max(end, stop)
