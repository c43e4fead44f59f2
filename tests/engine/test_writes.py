"""Writes into hidden states equal hooks on a plain forward, reach every token, and touch no other row."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

from clew.core.errors import BadInput
from clew.core.records import Request
from clew.core.values import Completion, Reach, Sampling
from clew.models.engine.speculation.lengths import Fixed
from clew.models.engine.taps.blocks import blocks_of
from clew.models.local import Local
from clew.models.taps.tap import Tap
from tests.engine.drafters import Twin
from tests.engine.helpers import WORDS, Talk, ask
from tests.engine.test_hidden_states import FAMILIES, FAST, built

WIDTH = 32


def vector(seed: int, *shape: int, size: float = 2.0) -> np.ndarray:
    return (np.random.default_rng(seed).normal(size=shape or (WIDTH,)) * size / np.sqrt(WIDTH) * 3).astype(np.float32)


TAPS: dict[str, tuple[Tap, ...]] = {
    "add": (Tap(1, add=vector(1)),),
    "add-reply": (Tap(0, add=vector(2), part="reply"),),
    "add-prompt": (Tap(0, add=vector(2), part="prompt"),),
    "clamp": (Tap(1, along=vector(3), clamp=1.5),),
    "clamp-feature": (Tap(0, along=vector(3), read=vector(4), bias=0.1, clamp=4.0),),
    "scale": (Tap(0, along=vector(5), scale=6.0),),
    "scale-feature": (Tap(1, along=vector(5), read=vector(6), bias=-0.2, scale=6.0),),
    "patch": (Tap(1, positions=(0, 3, -1), patch=vector(7, 3, WIDTH)),),
    "patch-one": (Tap(0, positions=(-2,), patch=vector(8)),),
    "last-layer": (Tap(2, add=vector(9)),),
    "several": (Tap(0, add=vector(1)), Tap(2, along=vector(3), clamp=0.0), Tap(0, along=vector(1), scale=0.0)),
}


def wrote(h: torch.Tensor, tap: Tap, prompt: int) -> torch.Tensor:
    """The states [T, width] of one row after one Tap, worked out from its docstring alone."""
    h = h.clone()
    for place in range(len(h)):
        at = [p if p >= 0 else prompt + p for p in tap.positions]
        if (at and place not in at) or (tap.part == "prompt" and place >= prompt):
            continue
        if tap.part == "reply" and place < prompt:
            continue
        x = h[place].double()
        given = {k: torch.tensor(v.values).double() for k in ("add", "along", "read", "patch") if (v := tap.vector(k))}
        if "add" in given:
            x = x + given["add"]
        elif "patch" in given:
            x = given["patch"][at.index(place)] if given["patch"].dim() == 2 else given["patch"]
        else:
            along = given["along"]
            f = torch.clamp(x @ given["read"] + tap.bias, min=0) if "read" in given else x @ along / (along @ along)
            x = x + (tap.clamp - f if tap.clamp is not None else (tap.scale - 1) * f) * along
        h[place] = x.to(h.dtype)
    return h


def hooked(module: Any, ids: Sequence[int], taps: Sequence[Tap], prompt: int) -> torch.Tensor:
    """Logits [T, V] of a plain forward, nothing cached, with hooks that write."""
    _, blocks = blocks_of(module)
    handles = []
    for tap in taps:

        def hook(_: Any, __: Any, out: Any, tap: Tap = tap) -> Any:
            whole = isinstance(out, torch.Tensor)
            changed = wrote((out if whole else out[0])[0], tap, prompt)[None]
            return changed if whole else (changed, *out[1:])

        handles.append(blocks[tap.layer].register_forward_hook(hook))
    with torch.no_grad():
        logits = module(torch.tensor([list(ids)]), use_cache=False).logits[0]
    for handle in handles:
        handle.remove()
    return logits


def prompt_of(request: Request) -> list[int]:
    return [*(i for node in request.path for i in node.ids or ()), *request.head]


def checked(model: Local, request: Request, done: Completion, atol: float = 1e-5) -> None:
    """Every decoded token's logprob is that of the hooked forward; every write reached every token it was to."""
    prompt, reply = prompt_of(request), [*request.forced, *(done.tokens or ())]
    logits = hooked(model.module, [*prompt, *reply], request.taps, len(prompt)).double()
    law = (logits / (request.sampling.temperature or 1.0)).log_softmax(-1)
    for i, token in enumerate(done.tokens or ()):
        at = len(prompt) + len(request.forced) + i
        assert abs(float(law[at - 1, token]) - float(done.logprobs[i])) < 10 * atol, f"token {i} of {len(reply)}"
    passed = len(prompt) + len(reply) - 1  # the last sampled token passes no model
    for tap, reach in zip(request.taps, done.reached, strict=True):
        at = [p if p >= 0 else len(prompt) + p for p in tap.positions] or list(range(passed))
        at = [p for p in at if tap.part == "all" or (p < len(prompt)) == (tap.part == "prompt")]
        last = len(prompt) + len(request.forced) - 1
        at = [p for p in at if p >= last] if tap.layer == 2 else at
        assert reach.prompt + reach.cached + reach.reply == len(at), (tap, reach)
        assert reach.reply == sum(p >= len(prompt) for p in at), (tap, reach)


def request(model: Local, number: int, taps: Sequence[Tap] = (), **fields: Any) -> Request:
    words = " ".join(WORDS[number % 30 : number % 30 + 4 + number % 5])
    made = Talk(model, f"r{number}").say(words).request(number, **fields)
    return made._replace(taps=tuple(taps))


@pytest.mark.parametrize("family", FAMILIES)
def test_written_replies_equal_hooks_on_a_plain_forward(family: str) -> None:
    model = built(family)
    asked = [request(model, i, taps, max_tokens=9) for i, taps in enumerate(TAPS.values())]
    asked += [request(model, 40 + i, max_tokens=9) for i in range(3)]
    asked.append(request(model, 50, TAPS["add-reply"], max_tokens=9, forced=(3, 4, 5)))
    for one, done in zip(asked, ask(model, asked), strict=True):
        assert done.usage.completion > 0
        checked(model, one, done)
    plain = ask(model, [one._replace(taps=(), run="again") for one in asked])
    steered = ask(model, asked)
    differ = sum(a.tokens != b.tokens for a, b in zip(plain, steered, strict=True))
    assert differ > 5, "writes of this size change what is said"
    model.close()


@pytest.mark.parametrize("batch", [1, 8, 64])
@pytest.mark.parametrize("family", FAST)
def test_writes_hold_in_batches_of_every_size(family: str, batch: int) -> None:
    model, kinds = built(family), list(TAPS.values())
    asked = [request(model, i, kinds[i % len(kinds)] if i % 3 else (), max_tokens=5) for i in range(batch)]
    for one, done in zip(asked, ask(model, asked), strict=True):
        checked(model, one, done)
    model.close()


@pytest.mark.parametrize("steady", [False, True])
@pytest.mark.parametrize("fast", [None, False])
def test_rows_without_writes_keep_their_bits(steady: bool, fast: bool | None) -> None:
    """The same batch twice, with writes in every other row and without any."""
    kept: list[list[Completion]] = []
    for taps in ((), *(TAPS[name] for name in ("add", "clamp-feature", "patch"))):
        model = built("Qwen3", steady=steady, fast=fast)
        model.engine._batch._stops[:] = False  # all replies are of one length, so that batches are alike
        asked = [request(model, i, taps if i % 2 else ()) for i in range(8)]
        kept.append(ask(model, asked))
        model.close()
    for other in kept[1:]:
        for i in range(0, 8, 2):
            assert other[i].tokens == kept[0][i].tokens
            np.testing.assert_array_equal(other[i].logprobs, kept[0][i].logprobs)
            np.testing.assert_array_equal(other[i].entropies, kept[0][i].entropies)
        assert any(not np.array_equal(other[i].logprobs, kept[0][i].logprobs) for i in range(1, 8, 2))


def test_a_steady_engine_gives_a_steered_row_the_same_bits_in_any_company() -> None:
    for name in ("add", "clamp", "scale-feature", "patch"):
        model, other = built("Qwen3", steady=True), built("Qwen3", steady=True)
        alone = ask(model, [request(model, 3, TAPS[name])])[0]
        company = ask(other, [request(other, i, TAPS[name] if i in (3, 5) else ()) for i in range(12)])[3]
        assert alone.tokens == company.tokens, name
        np.testing.assert_array_equal(alone.logprobs, company.logprobs)
        model.close()
        other.close()


@pytest.mark.parametrize("steady", [False, True])
@pytest.mark.parametrize("fast", [None, False])
def test_steered_and_plain_states_never_meet_in_the_cache(steady: bool, fast: bool | None) -> None:
    model = built("Qwen3", steady=steady, fast=fast)
    taps = TAPS["add"][0], Tap(0, add=vector(2), part="reply")
    talk = Talk(model, "one").say(" ".join(WORDS[:20]))
    seen = []
    for turn, writes in enumerate([(), taps[:1], taps[:1], taps[1:], (), taps[1:], taps, taps]):
        asked = talk.request(turn)._replace(taps=writes)
        (done,) = ask(model, [asked])
        checked(model, asked, done, 2e-5)
        seen.append(done.usage.cached)
        talk.take(done)
        talk.say("w3 w4")
    assert seen[1] == 0, "plain states are not steered ones"
    assert seen[2] > 20, "the same writes share what they computed"
    assert seen[3] < seen[2]
    assert seen[4] > 20, "the prompt of a tap on replies is plain up to its reply"
    assert seen[7] > seen[6] or seen[6] == 0
    same = [Talk(model, f"s{i}").say(" ".join(WORDS[:20])).request(5) for i in range(6)]
    asked = [one._replace(taps=taps[:1] if i % 2 else ()) for i, one in enumerate(same)]
    for one, done in zip(asked, ask(model, asked), strict=True):
        checked(model, one, done, 2e-5)
    model.close()


def test_positions_move_with_the_end_of_the_prompt() -> None:
    model = built("Qwen3")
    talk = Talk(model, "one").say("w1 w2 w3 w4 w5")
    for turn in range(3):
        asked = talk.request(turn)._replace(taps=(Tap(0, positions=(-1,), patch=vector(turn)),))
        (done,) = ask(model, [asked])
        checked(model, asked, done, 2e-5)
        assert done.reached == (Reach(prompt=1),)
        talk.take(done)
        talk.say("w7 w8")
    model.close()


def test_long_prompts_that_are_prefilled_in_pieces_are_written_throughout() -> None:
    model = built("Qwen3")
    asked = [
        Talk(model, f"r{i}").say(" ".join(WORDS[(i + j) % 40] for j in range(900))).request(i, max_tokens=6)
        for i in range(3)
    ]
    taps = TAPS["add"], (), (*TAPS["last-layer"], *TAPS["clamp"])
    asked = [one._replace(taps=writes) for one, writes in zip(asked, taps, strict=True)]
    for one, done in zip(asked, ask(model, asked), strict=True):
        checked(model, one, done, 2e-5)
    model.close()


def test_every_token_is_counted_once_beside_a_drafter() -> None:
    model = built("Qwen3")
    model.engine.draft(Twin(model.module, context=1024), Fixed(3))
    asked = [request(model, i, TAPS["add"] if i % 2 else (), max_tokens=20) for i in range(6)]
    for one, done in zip(asked, ask(model, asked), strict=True):
        checked(model, one, done, 2e-5)
    assert model.engine.drafted is not None
    assert model.engine.drafted.proposed.sum() > 0, "the plain rows were drafted for"
    model.close()


def test_a_stream_and_a_cut_reply_say_how_far_a_write_came() -> None:
    model = built("Qwen3")

    async def go() -> tuple[Any, Any]:
        whole = [item async for item in model.stream(request(model, 1, TAPS["add"]))][-1]
        stream = model.stream(request(model, 2, TAPS["add"], max_tokens=200))
        await anext(stream)
        await stream.aclose()
        return whole, stream.completion

    whole, part = asyncio.run(go())
    assert whole.reached[0].reply == len(whole.tokens) - 1
    assert part.finish in ("cut", "stop")
    assert part.reached[0].reply == len(part.tokens) - 1
    assert not model.engine._batch.forward.writes
    model.close()


def test_half_precision_writes_as_hooks_do() -> None:
    model = built("Qwen3", dtype=torch.bfloat16)
    asked = [request(model, i, taps, max_tokens=4) for i, taps in enumerate((TAPS["add"], TAPS["clamp"]))]
    for one, done in zip(asked, ask(model, asked), strict=True):
        checked(model, one._replace(sampling=Sampling(max_tokens=4)), done, 0.05)
    model.close()


@pytest.mark.parametrize("fast", [None, False])
def test_what_cannot_be_written_is_the_result_of_that_request_alone(fast: bool | None) -> None:
    model = built("Qwen3", fast=fast)
    wrong = [
        ((Tap(9, add=vector(1)),), "no layer 9"),
        ((Tap(1, add=(1.0, 2.0)),), "width 2, and the model is 32 wide"),
        ((Tap(1),), "writes nothing"),
        ((Tap(1, positions=(-99,), add=vector(1)),), "positions"),
        ((Tap(1, positions=(1 << 20,), add=vector(1)),), "positions"),
        ((Tap(1, positions=(1,), part="reply", add=vector(1)),), "part 'reply'"),
        ((Tap(1, positions=(0, -6), add=vector(1)),), "positions"),
    ]

    async def go() -> list[Any]:
        asked = [request(model, 0, taps) for taps, _ in wrong] + [request(model, 1, TAPS["add"])]
        return await asyncio.gather(*[model.complete(one) for one in asked], return_exceptions=True)

    *bad, good = asyncio.run(go())
    assert isinstance(good, Completion)
    length = len(prompt_of(request(model, 0)))
    for (_, match), error in zip(wrong[:-1], bad, strict=False):
        assert isinstance(error, BadInput), error
        assert match in error.message
        assert error.remedy
    assert isinstance(bad[-1], BadInput) == (length == 6)
    model.close()


def test_quantised_weights_take_no_writes() -> None:
    model = built("Qwen3", fast=False)
    model.engine._batch.forward.writes.target = model.engine._batch.forward.writes.target._replace(quantised="int8")
    with pytest.raises(BadInput, match=r"quantised \(int8\)"):
        ask(model, [request(model, 1, TAPS["add"])])
    assert ask(model, [request(model, 1)])[0].tokens
    model.close()
