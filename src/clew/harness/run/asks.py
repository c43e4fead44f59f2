"""Asking a model: the request, what is forced in its reply, and the record of the answer."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

from clew.core.errors import BadInput, ClewError, ModelError
from clew.core.keys import REQUEST, canonical, derive, digest, encode, sampling_form, value_digest
from clew.core.protocols import Model
from clew.core.records import Annotation, Call, Cursor, Edit, Node, Request, Sample, changed
from clew.core.values import F32, UNSET, Completion, Message, Reach, Sampling, ToolSpec, Unset, Usage
from clew.harness.run.nodes import Reply, as_message, make_node
from clew.harness.run.path import Path
from clew.harness.run.pending import Pending, batches, revive
from clew.harness.run.run_state import RunState
from clew.models.taps.forms import forms_of, taps_of


@lru_cache(maxsize=4096)
def _sampling_bytes(sampling: Sampling) -> bytes:
    return canonical(sampling_form(sampling))


@lru_cache(maxsize=4096)
def _tools_digest(tools: tuple[tuple[str, str, str], ...]) -> bytes:
    return value_digest(tools)


def tools_digest(tools: tuple[ToolSpec, ...]) -> bytes:
    """Digest of names, descriptions and schemas; empty for no tools."""
    if not tools:
        return b""
    return _tools_digest(tuple((t.name, t.description, json.dumps(t.schema, sort_keys=True)) for t in tools))


def of_run(call: Call, taps: Sequence[Mapping[str, Any]] = ()) -> bool:
    """Whether a recorded ask was put to the run's own model, and not to one that the agent named.

    The digest of the request says so, also where both are the same weights under one name.

    Args:
        taps: forms of the taps that were in force.
    """
    if call.setup is None or call.setup.asked is None:
        return True
    written = (canonical(taps),) if taps else ()
    sampling, tools = _sampling_bytes(call.setup.asked), tools_digest(call.setup.tools)
    return call.request == digest(REQUEST, b"ask", call.node_in, sampling, tools, encode(""), *written)


class Asked:
    """How one ask is made: its model (None while a record is followed without one), sampling and taps.

    Taps stay forms, which name their vectors, until a model is asked: a replay needs no vector.
    """

    __slots__ = ("model", "sampling", "taps")

    def __init__(self, run: RunState, path: Path, overrides: dict[str, Any]) -> None:
        """Take the edits into account that hold from here on; a swapped model renders the path anew."""
        if path.waiting:
            raise BadInput("a conversation was asked while its last ask is unanswered", remedy="Use chat.branch().")
        changed: dict[str, Any] = {}
        self.taps: Sequence[Mapping[str, Any]] = ()
        for edit in run.later:
            if edit.seq > run.seq:
                break
            if edit.kind == "model" and not path.named:
                swapped = run.model_for(edit.value)
                if swapped is not None and swapped is not path.model:
                    path.rerender(swapped)
            elif edit.kind == "sampling":
                changed.update(edit.value)
            elif edit.kind == "tap":
                self.taps = forms_of(edit.value)
        self.sampling = path.resolve(run.sampling, overrides, changed)
        self.model = path.model

    def key(self, path: Path) -> bytes:
        tip, tools = path.nodes[-1].key, tools_digest(path.tools)
        written = (canonical(self.taps),) if self.taps else ()
        return digest(REQUEST, b"ask", tip, _sampling_bytes(self.sampling), tools, encode(path.named), *written)

    def meet(self, run: RunState, path: Path, key: Callable[[], bytes], what: str) -> tuple[bytes, int]:
        """Digest of the request and the number of its Call, with the path in the tokens of the record where that says
        the same in others: a record is followed without its models. An ask that is made anew is compared first, then
        put in its own model's tokens."""
        tape, said = run.tape, path.nodes
        if tape is None:
            return key(), run.seq

        def request(seq: int) -> bytes:
            path.nodes = tape.same_words(seq, said[-1]) or said
            return key()

        seq = run.turn_of("ask", request)
        asked = request(seq)
        path.index = tape.conversation(seq, asked, path.index)
        if self.model is not None and not run.on_tape(seq) and path.foreign(self.model):
            tape.check(seq, "ask", asked, what, path.nodes)
            tape.checked = seq
            path.rerender(self.model)
            asked = key()
        return asked, seq

    def live(self, run: RunState) -> Model:
        """The model that is asked now.

        Raises:
            BadInput: the run has no model.
        """
        if self.model is None:
            why = run.spec.models.missing
            told = "this run has no model" + (f": {why.message}" if why is not None else "")
            raise BadInput(told, remedy="Give Runner a model, or the verb --model, or chat(model=...).")
        return self.model

    def request(self, run: RunState, path: Path, seq: int, seed: int, sample: int = -1, **fields: Any) -> Request:
        again = f"{run.row.id}-{seq}"
        return Request(
            path=tuple(path.nodes),
            sampling=self.sampling,
            seed=seed,
            tools=path.tools,
            head=head_of(self.model),
            taps=taps_of(self.taps, run.dispatch.store.blob) if self.taps else (),
            deadline=run.budget.deadline(),
            order=(*run.row.order, path.index),
            run=run.row.id,
            conversation=path.index,
            sample=sample,
            idempotency=again if sample < 0 else f"{again}-{sample}",
            **fields,
        )


def head_of(model: Model | None) -> tuple[int, ...]:
    return model.renderer.head() if model is not None and model.renderer is not None else ()


# ---- one reply -------------------------------------------------------------------------------------------------------


async def ask(run: RunState, path: Path, overrides: dict[str, Any]) -> Reply:
    """Issue an ask; give the recorded reply, or a live one. ``seed`` among the overrides is this ask's own."""
    own: int | None = overrides.pop("seed", None)
    asked, made = Asked(run, path, overrides), list[Node]()  # made: the reply's node, once it is here
    request, seq = asked.meet(run, path, partial(asked.key, path), "a reply")
    tip, apply = path.nodes[-1].key, partial(_replied, run, path, made)
    how = {"conversation": path.index, "node_in": tip}
    pending, recorded = run.begin("ask", request, "a reply", apply, path.nodes, seq, **how)
    path.waiting = True
    ordinal, path.asked = path.asked, path.asked + 1
    if recorded is not None:
        return await run.follow(pending, recorded)
    with run.issuing(pending, ModelError):
        run.put_fresh()  # what was said before
        pending.call = changed(pending.call, setup=path.setup(asked.model, asked.sampling))
        if run.edits.edits or run.kept:
            reply, kept = run.at.get(("reply", seq)), run.kept.get((path.index, ordinal))
            if reply is not None or kept is not None:
                given = partial(_given, run, path, pending, asked.model, reply, kept, made)
                pending.record = run.issuing(pending, ModelError)(lambda _: given())
                return await run.result(pending, None)
        model = asked.live(run)
        seed = derive(run.row.seed, seq) if own is None or _reseeded(run) else own
        head, (forced, text) = head_of(model), _forced(model, run.at.get(("prefix", seq)))
        pending.call = changed(pending.call, head=len(head), forced=len(forced) or len(text), seed=seed)
        answered = partial(_answered, run, path, pending, model, (*head, *forced), made)
        pending.record = run.issuing(pending, ModelError)(answered)
        run.open_calls[seq] = pending
        if not batches(model):
            run.intend(pending)
        run.dispatch.ask(pending, model, asked.request(run, path, seq, seed, forced=forced, forced_text=text))
    return await pending.taken()


def _forced(model: Model, prefix: Edit | None) -> tuple[tuple[int, ...], str]:
    """What an edit forces at the beginning of the reply: token ids, or text where the model takes no ids."""
    if prefix is None:
        return (), ""
    if isinstance(prefix.value, str):
        return ((), prefix.value) if model.renderer is None else (tuple(model.renderer.encode(prefix.value)), "")
    _need_renderer(model)
    return tuple(prefix.value), ""


def _need_renderer(model: Model | None) -> None:
    if model is None or model.renderer is None:
        who = "this run has no model" if model is None else f"{model.ref} takes no token ids"
        raise BadInput(f"token ids are given in a reply, and {who}", remedy="Give the reply as text.")


def _reseeded(run: RunState) -> bool:
    """Whether the run is a fork that was to draw anew, or a fork of one."""
    row, passed = run.row, set[str]()
    while row.parent and row.id not in passed:  # a file of others may say that a run is its own parent
        passed.add(row.id)
        parent = run.spec.store.row(Cursor.parse(row.parent).run)
        if parent.seed != row.seed:
            return True
        row = parent
    return False


def _given(
    run: RunState,
    path: Path,
    pending: Pending[Reply],
    model: Model | None,
    edit: Edit | None,
    kept: Node | None,
    made: list[Node],
) -> Reply:
    """Record a reply that is given and not sampled: an edit's text, Message fields or token ids, or a kept node."""
    renderer, start = model.renderer if model is not None else None, head_of(model)
    value: Any = edit.value if edit is not None else kept.message if kept is not None else ""
    by_ids = isinstance(value, (list, tuple)) and not isinstance(value, Message)
    if by_ids:
        _need_renderer(model)
    plain = by_ids or isinstance(value, str)
    message = Message("assistant", "" if by_ids else value) if plain else as_message(value)
    ids: tuple[int, ...] | None = None
    head = 0
    if renderer is not None:
        if by_ids:
            ids = (*start, *value)
        elif edit is None and kept is not None and kept.ids is not None and kept.tokenizer == renderer.ref:
            ids = kept.ids
        else:
            ids = renderer.delta(path.tip, path.closed, message, path.tools)
        head = len(start) if ids[: len(start)] == start else 0
        message = renderer.parse(ids[head:])
    node = make_node(path.tip, message, ids, renderer.ref if renderer else "")
    made.append(node)
    run.dispatch.store.put_nodes((node,))
    forced = len(ids) - head if ids is not None else len(message.text)
    return run.complete(pending, node_out=node.key, head=head, forced=forced, finish="forced")


def _answered(
    run: RunState,
    path: Path,
    pending: Pending[Reply],
    model: Model,
    given: tuple[int, ...],
    made: list[Node],
    result: Completion | BaseException,
) -> Reply:
    """Record a model's completion and give the Reply, or record its failure and raise it."""
    if isinstance(result, BaseException):
        error = as_model_error(model, result)
        run.fail(pending, error, attempts=getattr(error, "attempts", ()))
    call = pending.call
    assert call.setup is not None
    ids: tuple[int, ...] | None = None
    tokenizer = ""
    if result.tokens is not None and model.renderer is not None:
        ids, tokenizer = (*given, *result.tokens), model.renderer.ref
    node = make_node(path.tip, result.message, ids, tokenizer)
    made.append(node)
    run.dispatch.store.put_nodes((node,))
    _note_reach(run, call, [result])
    return run.complete(
        pending,
        node_out=node.key,
        setup=run.spec.models.setup(call.setup, result),
        logprobs=result.logprobs,
        entropies=result.entropies,
        kept=result.kept,
        finish=result.finish,
        usage=result.usage,
        cost=result.cost,
        seconds=result.seconds or time.time() - call.started,
        attempts=result.attempts,
        inner=result.inner,
    )


def _note_reach(run: RunState, call: Call, results: Sequence[Completion]) -> None:
    """Note on a Call how many tokens each of its writes into hidden states reached, over all its samples."""
    counts = [done.reached for done in results if done.reached]
    if counts:
        each = [Reach(*map(sum, zip(*write, strict=True)))._asdict() for write in zip(*counts, strict=True)]
        data = json.dumps({"reached": each})
        run.drifted.append(Annotation("call", "taps", run=call.run, seq=call.seq, scope=run.row.id, data=data))


def as_model_error(model: Model, error: BaseException) -> ClewError:
    return error if isinstance(error, ClewError) else ModelError(f"{model.ref}: {type(error).__name__}: {error}")


def _replied(run: RunState, path: Path, made: Sequence[Node], call: Call) -> Reply:
    """Take the result of an ask: the path goes on with the reply."""
    path.waiting = False
    if call.error:
        raise revive(call.error)
    node = made[0] if made else run.node(call.node_out)
    path.extend(node, call.finish)
    return _reply(run, call, node, call.logprobs, call.finish)


def _reply(run: RunState, call: Call, node: Node, logprobs: F32 | None, finish: str) -> Reply:
    message, tokens = node.message, node.ids[call.head :] if node.ids is not None else None
    at = Cursor(run.row.id, call.seq)
    return Reply(message.text, message.reasoning, message.calls, tokens, logprobs, finish, at, node)


# ---- several samples -------------------------------------------------------------------------------------------------


async def sample(run: RunState, path: Path, n: int, overrides: dict[str, Any]) -> list[Reply]:
    """Issue n samples of one request as one Call; the conversation does not move."""
    asked = Asked(run, path, overrides)

    def key() -> bytes:
        return digest(REQUEST, b"sample", asked.key(path), n.to_bytes(4, "little"))

    request, seq = asked.meet(run, path, key, f"{n} samples")
    tip, apply = path.nodes[-1].key, partial(_unpacked, run, path)
    how = {"conversation": path.index, "node_in": tip}
    pending, recorded = run.begin("ask", request, f"{n} samples", apply, (), seq, **how)
    path.waiting = True
    if recorded is not None:
        return await run.follow(pending, recorded)
    with run.issuing(pending, ModelError):
        run.put_fresh()
        seed = derive(run.row.seed, seq)
        pending.call = changed(pending.call, seed=seed, setup=path.setup(asked.model, asked.sampling))
        model = asked.live(run)
        run.open_calls[seq] = pending
        run.intend(pending)
        results: dict[int, Completion | BaseException] = {}

        def arrived(index: int, result: Completion | BaseException) -> list[Reply] | Unset:
            results[index] = result
            return _gathered(run, pending, model, [results[i] for i in range(n)]) if len(results) == n else UNSET

        parts = [pending.part(partial(arrived, index)) for index in range(n)]
        pending.stop = lambda: [part.stop() for part in parts if part.stop is not None]
        for index, part in enumerate(parts):
            run.dispatch.ask(part, model, asked.request(run, path, seq, derive(seed, index), index))
    return await pending.taken()


def _gathered(
    run: RunState, pending: Pending[list[Reply]], model: Model, results: Sequence[Completion | BaseException]
) -> list[Reply]:
    """Record a Call with all its samples packed and give the replies, or record the first failure and raise it."""
    done = [result for result in results if not isinstance(result, BaseException)]
    if len(done) < len(results):
        failed = next(result for result in results if isinstance(result, BaseException))
        run.fail(pending, as_model_error(model, failed))
    head, call = head_of(model), pending.call
    _note_reach(run, call, done)
    packed = tuple(
        Sample(
            derive(call.seed, index),
            result.message,
            (*head, *result.tokens) if result.tokens is not None and model.renderer is not None else None,
            result.logprobs,
            result.finish,
            result.kept,
        )
        for index, result in enumerate(done)
    )
    assert call.setup is not None
    return run.complete(
        pending,
        packed=packed,
        head=len(head),
        setup=run.spec.models.setup(call.setup, done[0]),
        usage=Usage(*(sum(r.usage[i] for r in done) for i in range(3))),
        cost=sum(r.cost for r in done),
        inner=tuple(one for r in done for one in r.inner),
        seconds=max(r.seconds for r in done) or time.time() - call.started,
        finish="packed",
    )


def _unpacked(run: RunState, path: Path, call: Call) -> list[Reply]:
    """Take the samples of a Call as replies; none of their nodes is on a path until a conversation takes one."""
    path.waiting = False
    if call.error:
        raise revive(call.error)
    tip, replies = path.nodes[-1], list[Reply]()
    for sample in call.packed:
        node = make_node(tip, sample.message, sample.ids, tip.tokenizer if sample.ids is not None else "")
        replies.append(_reply(run, call, node, sample.logprobs, sample.finish))
    return replies
