"""The contract of models, as plain functions that anyone can run on their own.

    from clew.models.contract import check_model
    check_model(MyModel())

Each function raises AssertionError with a sentence on what is broken; ``check_model`` runs those that apply and gives
their names.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from clew.core.doors import SchemeOpener
from clew.core.errors import BadInput
from clew.core.protocols import Batches, Model, Ranks, Scores, Streams, Taps, Tops
from clew.core.values import Completion, Sampling
from clew.models.asking import request

Check = Callable[[Model, Sequence[str]], None]
FINISHES = {"stop", "length", "tool_calls", "cut", "filter"}


def check_model(model: Model, prompts: Sequence[str] = ("Where is the cup?", "Go on."), same: bool = True) -> list[str]:
    """Run the whole contract.

    Args:
        prompts: what to ask; each must be answerable by itself.
        same: whether the same request gives the same reply, as it must for all but foreign endpoints.

    Returns:
        Names of the checks that were run.
    """
    done = []
    always: list[Check] = [check_identity, check_answers, check_limit, check_concurrency]
    for check in [*always, check_seeds] if same else always:
        check(model, prompts)
        done.append(check.__name__)
    powers: list[tuple[bool, Check]] = [
        (model.renderer is not None, check_tokens),
        (model.renderer is not None and same, check_forced),
        (isinstance(model, Streams), check_streams),
        (isinstance(model, Batches), check_batches),
        (isinstance(model, Scores) and model.renderer is not None, check_scores),
        (isinstance(model, Ranks) and model.renderer is not None, check_ranked),
        (isinstance(model, Tops) and model.renderer is not None, check_top),
        (isinstance(model, Taps) and model.renderer is not None, check_states),
    ]
    for applies, check in powers:
        if applies:
            check(model, prompts)
            done.append(check.__name__)
    return done


def check_scheme(opens: SchemeOpener, ref: str, same: bool = True, **options: object) -> list[str]:
    """Run the contract of what opens models of a scheme (``clew.schemes``), and that of the model it opens.

    Args:
        ref: a reference that can be opened here.
        same: as ``check_model``.
        options: passed to the opener.

    Returns:
        Names of the checks of the model that were run.
    """
    model = opens(ref, api_key=None, keys={}, **options)
    check_identity(model, ())
    found = opens(model.ref, api_key=None, keys={}, **options)
    assert found.ref == model.ref, f"{ref!r} opens {model.ref!r}, by which {found.ref!r} is found again"
    refused: BadInput | None = None
    try:
        opens(ref, api_key=None, keys={}, **options, no_such_option=1)
    except BadInput as error:
        refused = error
    assert refused is not None, "an option that nobody takes is accepted in silence"
    assert refused.remedy, "an option that is not taken is refused without a remedy"
    return check_model(model, same=same)


def check_identity(model: Model, prompts: Sequence[str]) -> None:
    """A model has a ref to be found by, a version, and a renderer or none."""
    assert isinstance(model.ref, str), f"ref is a {type(model.ref).__name__}"
    assert model.ref, "ref is empty; nothing could say later who answered"
    assert isinstance(model.version, int), f"version is a {type(model.version).__name__}"
    if model.renderer is not None:
        assert model.renderer.ref, "the renderer has no ref; its ids could not be told from another's"
        assert model.renderer.stop, "the renderer names no stop token; no reply would end"


def check_answers(model: Model, prompts: Sequence[str]) -> None:
    """Every prompt gets a whole Completion, in several event loops one after another."""
    for prompt in prompts:
        check_completion(model, asyncio.run(model.complete(request(model, prompt, seed=1))))


def check_completion(model: Model, done: object) -> None:
    """A Completion's parts fit each other."""
    assert isinstance(done, Completion), f"complete() gave a {type(done).__name__}"
    assert done.message.role == "assistant", f"the reply has role {done.message.role!r}"
    assert done.finish in FINISHES, f"finish {done.finish!r} is none of {sorted(FINISHES)}"
    assert done.version == model.version, f"version {done.version} answered, the model says {model.version}"
    assert min(done.usage) >= 0, f"usage {done.usage} is negative"
    for name in ("logprobs", "entropies"):
        values = getattr(done, name)
        if values is not None:
            assert values.dtype == np.float32, f"{name} are {values.dtype}, not float32"
            assert done.tokens is None or len(values) == len(done.tokens), f"{len(values)} {name} of {len(done.tokens)}"
            low, high = (-np.inf, 1e-4) if name == "logprobs" else (-1e-4, np.inf)
            assert np.all((values >= low) & (values <= high)), f"{name} out of range: {values}"


def check_limit(model: Model, prompts: Sequence[str]) -> None:
    """``max_tokens`` is kept, where tokens can be counted."""
    done = asyncio.run(model.complete(request(model, prompts[0], sampling=Sampling(max_tokens=2))))
    if done.tokens is not None:
        assert len(done.tokens) <= 2, f"{len(done.tokens)} tokens where 2 were allowed"
        assert len(done.tokens) < 2 or done.finish in FINISHES - {"cut"}, f"finish {done.finish!r} at the limit"


def check_concurrency(model: Model, prompts: Sequence[str]) -> None:
    """Requests at once are answered each by itself."""
    requests = [request(model, prompt, seed=seed) for seed in range(4) for prompt in prompts]

    async def together() -> list[Completion]:
        return list(await asyncio.gather(*[model.complete(r) for r in requests]))

    for done in asyncio.run(together()):
        check_completion(model, done)


def check_seeds(model: Model, prompts: Sequence[str]) -> None:
    """The same request gives the same reply, alone and among others."""
    requests = [request(model, prompts[0], seed=seed) for seed in range(6)]

    async def together() -> list[Completion]:
        return list(await asyncio.gather(*[model.complete(r) for r in requests]))

    alone = [asyncio.run(model.complete(r)) for r in requests]
    for seed, (one, other) in enumerate(zip(alone, asyncio.run(together()), strict=True)):
        assert (one.message, one.tokens) == (other.message, other.tokens), f"seed {seed} gave {one} and then {other}"


def check_tokens(model: Model, prompts: Sequence[str]) -> None:
    """With a renderer, the message is what the sampled ids stand for, and they end where a stop token is."""
    assert model.renderer is not None
    asked = request(model, prompts[0], seed=3)
    done = asyncio.run(model.complete(asked))
    assert done.tokens is not None, "a model with a renderer gave no token ids"
    read = model.renderer.parse((*asked.head, *done.tokens))
    assert read == done.message, f"the ids stand for {read}, the message is {done.message}"
    early = [i for i, token in enumerate(done.tokens[:-1]) if token in model.renderer.stop]
    assert not early, f"a stop token at {early[0]} of {len(done.tokens)} did not end the reply"


def check_forced(model: Model, prompts: Sequence[str]) -> None:
    """A reply whose first tokens are given goes on, under the same seed, as it did when they were sampled."""
    asked = request(model, prompts[0], seed=4, sampling=Sampling(max_tokens=12))
    whole = asyncio.run(model.complete(asked))
    assert whole.tokens is not None
    for cut in {1, len(whole.tokens) // 2, len(whole.tokens)}:
        part = asyncio.run(model.complete(asked._replace(forced=whole.tokens[:cut])))
        assert part.tokens == whole.tokens[cut:], f"after {cut} forced tokens it went on {part.tokens}"
        assert part.message == whole.message, f"after {cut} forced tokens the message is {part.message}"


def check_streams(model: Model, prompts: Sequence[str]) -> None:
    """A stream's pieces are the reply's text; it ends in one Completion."""
    assert isinstance(model, Streams), "the model has no such power"

    async def collect() -> list[str | Completion]:
        return [item async for item in model.stream(request(model, prompts[0], seed=5))]

    *pieces, last = asyncio.run(collect())
    check_completion(model, last)
    assert isinstance(last, Completion)
    text = "".join(p for p in pieces if isinstance(p, str))
    assert text == last.message.text, f"the pieces say {text!r}, the Completion {last.message.text!r}"


def check_batches(model: Model, prompts: Sequence[str]) -> None:
    """Every request of a batch is handed back exactly once."""
    assert isinstance(model, Batches), "the model has no such power"
    requests = [request(model, prompts[0], seed=seed) for seed in range(5)]
    seen: list[tuple[int, Any]] = []
    whole = threading.Event()

    def done(results: list[tuple[int, Any]]) -> None:
        seen.extend(results)
        if len(seen) >= len(requests):
            whole.set()

    model.seat(1)
    try:
        model.submit(requests, done)
        assert whole.wait(60), f"{len(seen)} of {len(requests)} requests came back within a minute"
    finally:
        model.seat(-1)
    assert sorted(i for i, _ in seen) == list(range(len(requests))), f"handed back {[i for i, _ in seen]}"
    for _, result in seen:
        check_completion(model, result)


def check_scores(model: Model, prompts: Sequence[str]) -> None:
    """Scores of given ids are their logprobs, each given those before it, as the sampler had them."""
    assert isinstance(model, Scores), "the model has no such power"
    asked = request(model, prompts[0], seed=6)
    done = asyncio.run(model.complete(asked))
    if done.tokens is None or done.logprobs is None:
        return
    ids = [i for node in asked.path for i in node.ids or ()] + [*asked.head, *done.tokens]
    (scores,) = model.score([ids])
    assert scores.shape == (len(ids) - 1,), f"{scores.shape} scores of {len(ids)} ids"
    off = np.abs(scores[len(ids) - 1 - len(done.tokens) :] - done.logprobs).max(initial=0.0)
    assert off < 1e-3, f"scores differ from the sampler's logprobs by {off}"


def check_ranked(model: Model, prompts: Sequence[str]) -> None:
    """What is ranked at each place agrees with the scores there, and with what is listed after the last."""
    assert isinstance(model, Ranks), "the model has no such power"
    assert isinstance(model, Scores), "a model that ranks gives scores as well"
    assert isinstance(model, Tops), "a model that ranks lists next tokens as well"
    ids = [i for node in request(model, *prompts).path for i in node.ids or ()]
    ((own, ranks),), (scores,) = model.ranked([ids], 3), model.score([ids])
    assert np.abs(own - scores).max(initial=0.0) < 1e-3, "ranked and score differ"
    assert len(ranks) == len(ids) - 1, f"{len(ranks)} places of {len(ids)} ids"
    for place, row in enumerate(ranks):
        values = [value for _, value in row]
        assert values == sorted(values, reverse=True), f"place {place} is not in order of chance: {row}"
        known = dict(row).get(ids[place + 1])
        assert known is None or abs(known - own[place]) < 1e-3, f"place {place} gives a token two chances"
        assert known is not None or own[place] <= values[-1] + 1e-3, f"place {place} leaves out a likelier token"
    ((listed, _),) = model.top([ids[:-1]], 3)
    assert [t for t, _ in ranks[-1]] == list(listed), "the last place differs from what is listed there"


def check_top(model: Model, prompts: Sequence[str]) -> None:
    """Listed next tokens are distinct, likeliest first, and hold what was sampled with its own chance."""
    assert isinstance(model, Tops), "the model has no such power"
    asked = request(model, prompts[0], seed=6)
    done = asyncio.run(model.complete(asked))
    if not done.tokens or done.logprobs is None:
        return
    ids = [i for node in asked.path for i in node.ids or ()] + [*asked.head]
    ((listed, logprobs),) = model.top([ids], 1 << 20)
    assert len(set(listed)) == len(listed) == len(logprobs), (
        f"{len(listed)} ids, {len(logprobs)} logprobs, or one twice"
    )
    assert (np.diff(logprobs) <= 0).all(), "not in order of their chance"
    assert np.exp(logprobs.astype(float)).sum() < 1 + 1e-3, "their chances exceed 1"
    own = logprobs[listed.index(done.tokens[0])] if done.tokens[0] in listed else float("-inf")
    assert abs(own - done.logprobs[0]) < 1e-3, (
        f"a sampled token is listed with {own}, was sampled with {done.logprobs[0]}"
    )
    assert len(model.top([ids], 1)[0][0]) == 1, "more than k are listed"


def check_states(model: Model, prompts: Sequence[str]) -> None:
    """Hidden states of a row do not depend on the rows beside it, on what follows, or on which positions are read."""
    assert isinstance(model, Taps), "the model has no such power"
    ids = [[i for node in request(model, prompt).path for i in node.ids or ()] for prompt in prompts]
    whole = model.states(ids, [0, "norm"])
    for row, states in zip(ids, whole, strict=True):
        assert states.dtype == np.float32, f"states are {states.dtype}, not float32"
        assert states.shape[:2] == (len(row), 2), f"{states.shape} states of {len(row)} ids and 2 layers"
        (part,) = model.states([row[: len(row) // 2 + 1]], ["norm"], [[len(row) // 2]])
        off = np.abs(part[0, 0] - states[len(row) // 2, 1]).max()
        assert off < 1e-3 * max(1.0, float(np.abs(states).max())), f"alone a state differs by {off}"
