"""Asking a model: the request, what is forced in its reply, and the record of the answer."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from clew.core.errors import BadInput, ClewError, ModelError
from clew.core.keys import REQUEST, canonical, derive, digest, encode, sampling_form, value_digest
from clew.core.protocols import Model
from clew.core.records import Call, Cursor, Node, Request, Sample, changed
from clew.core.values import Completion, Message, Sampling, ToolSpec, Usage
from clew.harness.run.nodes import Reply, as_message, make_node
from clew.harness.run.pending import Pending, batches, describe

if TYPE_CHECKING:
    from clew.harness.run.live import Conversation
    from clew.harness.run.run_state import Effects


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


def _settings(run: Effects, chat: Conversation, overrides: dict[str, Any]) -> tuple[Sampling, Any]:
    """Sampling and taps of the next ask, with the edits that hold from here on; a swapped model renders anew."""
    if chat.waiting:
        raise BadInput("a conversation was asked while its last ask is unanswered", remedy="Use chat.branch().")
    changed: dict[str, Any] = {}
    taps: Any = None
    for edit in run.later:
        if edit.seq > run.seq:
            break
        if edit.kind == "model" and not chat.named:
            swapped = run.runner.model_of(edit.value, run.replay)
            if swapped is not None and swapped is not chat.model:
                chat.rerender(swapped)
        elif edit.kind == "sampling":
            changed.update(edit.value)
        elif edit.kind == "tap":
            taps = edit.value
    sampling = chat.resolve(run.sampling, overrides, changed)
    return sampling, taps


def _request_digest(chat: Conversation, sampling: Sampling, kind: bytes) -> bytes:
    tip = chat.tip
    assert tip is not None
    return digest(REQUEST, kind, tip.key, _sampling_bytes(sampling), tools_digest(chat.tools), encode(chat.named))


async def ask(run: Effects, chat: Conversation, overrides: dict[str, Any]) -> Reply:
    """Issue an ask; give the recorded reply, or a live one. ``seed`` among the overrides is this ask's own."""
    own = overrides.get("seed")
    sampling, taps = _settings(run, chat, {k: v for k, v in overrides.items() if k != "seed"})
    request = _request_digest(chat, sampling, b"ask")
    tip = chat.nodes[-1].key
    pending, recorded = run.begin("ask", request, "a reply", chat.nodes, conversation=chat.index, node_in=tip)
    pending.chat = chat
    chat.waiting = True
    ordinal, chat.asked = chat.asked, chat.asked + 1
    if recorded is not None:
        return await run.follow(pending, recorded)  # type: ignore[no-any-return]
    model = chat.model
    if model is None:
        raise BadInput("this run has no model", remedy="Give Runner a model, or chat(model=...).")
    run.put_fresh()
    pending.model = model
    if run.edits.edits or run.kept:
        reply, kept = run.at.get(("reply", pending.call.seq)), run.kept.get((chat.index, ordinal))
        if reply is not None or kept is not None:
            pending.call = changed(pending.call, setup=chat.setup(model, sampling))
            return given(run, pending, model, reply.value if reply is not None else kept.message, kept)  # type: ignore[union-attr]
    return await _sampled(run, pending, model, chat, sampling, taps, own)


def _reseeded(run: Effects) -> bool:
    """Whether the run is a fork that was to draw anew, or a fork of one."""
    row = run.row
    while row.parent:
        parent = run.runner.store.row(Cursor.parse(row.parent).run)
        if parent.seed != row.seed:
            return True
        row = parent
    return False


async def _sampled(
    run: Effects,
    pending: Pending,
    model: Model,
    chat: Conversation,
    sampling: Sampling,
    taps: Any,
    own: int | None = None,
) -> Reply:
    call, renderer = pending.call, model.renderer
    head = renderer.head() if renderer else ()
    prefix = run.at.get(("prefix", call.seq))
    text = ""
    if prefix is not None and isinstance(prefix.value, str) and renderer is None:
        text = prefix.value
    elif prefix is not None and renderer is not None:
        pending.forced = tuple(renderer.encode(prefix.value) if isinstance(prefix.value, str) else prefix.value)
    seed = derive(run.row.seed, call.seq) if own is None or _reseeded(run) else own
    pending.call = changed(
        call, head=len(head), forced=len(pending.forced) or len(text), seed=seed, setup=chat.setup(model, sampling)
    )
    run.open_calls[call.seq] = pending
    request = _request(run, chat, sampling, taps, pending, seed, text=text)
    if not batches(model):
        run.intend(pending)
    run.clerk.ask(run, pending, model, request)
    return await run.taken(pending)  # type: ignore[no-any-return]


def _request(
    run: Effects,
    chat: Conversation,
    sampling: Sampling,
    taps: Any,
    pending: Pending,
    seed: int,
    sample: int = -1,
    text: str = "",
) -> Request:
    again = f"{run.row.id}-{pending.call.seq}"
    return Request(
        path=tuple(chat.nodes),
        sampling=sampling,
        seed=seed,
        tools=chat.tools,
        head=chat.model.renderer.head() if chat.model is not None and chat.model.renderer is not None else (),
        forced=pending.forced,
        forced_text=text,
        taps=taps,
        deadline=run.deadline(),
        order=(*run.row.order, chat.index),
        run=run.row.id,
        conversation=chat.index,
        sample=sample,
        idempotency=again if sample < 0 else f"{again}-{sample}",
    )


class _Gathering:
    """Collects the samples of one Call; the clerk sees it where it sees the effects of a run."""

    def __init__(self, run: Effects, whole: Pending, n: int) -> None:
        self.run, self.whole = run, whole
        self.results: list[Any] = [None] * n
        self.left = n

    def answered(self, part: Pending, result: Any) -> Any:
        self.results[part.call.head] = result
        self.left -= 1
        return None if self.left else gathered(self.run, self.whole, self.results)

    def hand(self, part: Pending, value: Any) -> None:
        part.future.cancel()
        if value is not None:
            self.run.hand(self.whole, value)


async def sample(run: Effects, chat: Conversation, n: int, overrides: dict[str, Any]) -> list[Reply]:
    """Issue n samples of one request as one Call; the conversation does not move."""
    sampling, taps = _settings(run, chat, overrides)
    request = digest(REQUEST, b"sample", _request_digest(chat, sampling, b"ask"), n.to_bytes(4, "little"))
    pending, recorded = run.begin("ask", request, f"{n} samples", conversation=chat.index, node_in=chat.nodes[-1].key)
    pending.chat = chat
    chat.waiting = True
    if recorded is not None:
        return await run.follow(pending, recorded)  # type: ignore[no-any-return]
    model = chat.model
    if model is None:
        raise BadInput("this run has no model", remedy="Give Runner a model, or chat(model=...).")
    run.put_fresh()
    pending.model = model
    pending.call = pending.call._replace(seed=derive(run.row.seed, pending.call.seq), setup=chat.setup(model, sampling))
    run.open_calls[pending.call.seq] = pending
    run.intend(pending)
    gathering = _Gathering(run, pending, n)
    for index in range(n):
        part = Pending(pending.call._replace(head=index), pending.issue)
        asked = _request(run, chat, sampling, taps, pending, derive(pending.call.seed, index), index)
        run.clerk.ask(gathering, part, model, asked)  # type: ignore[arg-type]
    return await run.taken(pending)  # type: ignore[no-any-return]


def gathered(run: Effects, pending: Pending, results: list[Any]) -> Any:
    """Record a Call with all its samples packed; give the replies, or the first error."""
    assert pending.chat is not None
    pending.chat.waiting = False
    model, failed = pending.model, next((r for r in results if isinstance(r, BaseException)), None)
    assert model is not None
    run.late(pending)
    if failed is not None:
        error = (
            failed if isinstance(failed, ClewError) else ModelError(f"{model.ref}: {type(failed).__name__}: {failed}")
        )
        run.record(pending, error=describe(error))
        return error
    head = model.renderer.head() if model.renderer is not None else ()
    packed = tuple(
        Sample(
            derive(pending.call.seed, index),
            result.message,
            (*head, *result.tokens) if result.tokens is not None and model.renderer is not None else None,
            result.logprobs,
            result.finish,
        )
        for index, result in enumerate(results)
    )
    usage = Usage(*(sum(r.usage[i] for r in results) for i in range(3)))
    assert pending.call.setup is not None
    call = run.record(
        pending,
        packed=packed,
        head=len(head),
        setup=run.runner.setup(pending.call.setup, results[0]),
        usage=usage,
        cost=sum(r.cost for r in results),
        inner=tuple(one for r in results for one in r.inner),
        seconds=max(r.seconds for r in results),
        finish="packed",
    )
    run.meter(call)
    return unpacked(run, call, pending.chat, model.renderer.ref if model.renderer is not None else "")


def _as_model_error(model: Model, error: BaseException) -> ClewError:
    return error if isinstance(error, ClewError) else ModelError(f"{model.ref}: {type(error).__name__}: {error}")


def unpacked(run: Effects, call: Call, chat: Conversation, tokenizer: str) -> list[Reply]:
    """The samples of a Call as replies; none of their nodes is on a path until a conversation takes one."""
    replies = []
    for sample in call.packed:
        node = make_node(chat.tip, sample.message, sample.ids, tokenizer if sample.ids is not None else "")
        tokens = sample.ids[call.head :] if sample.ids is not None else None
        message, at = sample.message, Cursor(run.row.id, call.seq)
        replies.append(
            Reply(message.text, message.reasoning, message.calls, tokens, sample.logprobs, sample.finish, at, node)
        )
    return replies


def given(run: Effects, pending: Pending, model: Model, value: Any, kept: Node | None = None) -> Reply:
    """Record a reply that is given and not sampled: text, a Message or its fields, token ids, or a kept node."""
    renderer, chat = model.renderer, pending.chat
    assert chat is not None
    by_ids = isinstance(value, (list, tuple)) and not isinstance(value, Message)
    if by_ids:
        message = Message("assistant", "")
    else:
        message = Message("assistant", value) if isinstance(value, str) else as_message(value)
    ids: tuple[int, ...] | None = None
    head = 0
    if renderer is not None:
        start = renderer.head()
        if by_ids:
            ids = (*start, *value)
        elif kept is not None and kept.ids is not None and kept.tokenizer == renderer.ref:
            ids = kept.ids
        else:
            ids = renderer.delta(chat.tip, chat.closed, message, chat.tools)
        head = len(start) if ids[: len(start)] == start else 0
        message = renderer.parse(ids[head:])
    node = make_node(chat.tip, message, ids, renderer.ref if renderer else "")
    run.clerk.store.put_nodes((node,))
    forced = len(ids) - head if ids is not None else len(message.text)
    call = run.record(pending, node_out=node.key, head=head, forced=forced, finish="forced")
    return run.reply(call, chat, node)


def answered(run: Effects, pending: Pending, result: Any) -> Any:
    """Record a model's completion or failure; give the Reply, or the error to raise."""
    chat, model, call = pending.chat, pending.model, pending.call
    assert chat is not None
    assert model is not None
    assert call.setup is not None
    if isinstance(result, BaseException):
        chat.waiting = False
        result = _as_model_error(model, result)
        run.record(pending, error=describe(result), attempts=getattr(result, "attempts", ()))
        return result
    assert isinstance(result, Completion)
    ids: tuple[int, ...] | None = None
    tokenizer = ""
    if result.tokens is not None and model.renderer is not None:
        ids, tokenizer = (*model.renderer.head(), *pending.forced, *result.tokens), model.renderer.ref
    node = make_node(chat.tip, result.message, ids, tokenizer)
    run.clerk.store.put_nodes((node,))
    call = run.record(
        pending,
        node_out=node.key,
        setup=run.runner.setup(call.setup, result),
        logprobs=result.logprobs,
        entropies=result.entropies,
        finish=result.finish,
        usage=result.usage,
        cost=result.cost,
        seconds=result.seconds,
        attempts=result.attempts,
        inner=result.inner,
    )
    run.meter(call)
    return run.reply(call, chat, node)
