"""The cells of tier exact: marks T2, T3 and T9 of specs/E179 on trained models, through the engine that serves.

greedy: replies under drafts against ``generate(do_sample=False)``, float64. law: the joint law of the second and third
token of replies (the first round of drafts gives both) against the exact chain of the target, its first token summed
out. surprise: long replies of eight requests side by side; logprob + entropy of a sampled token has mean 0 under the
target's law, whatever came before it, so that a bias towards tokens that are easy to go on from shows.

``BIASED`` policies look at the whole block before they fix a length; they must fail what the others pass.
"""

import asyncio
import copy
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np
import torch
import transformers

from clew.core.records import Node, Request
from clew.core.values import Completion, Message, Sampling
from clew.models.drafters import ready
from clew.models.drafters.plain import Lookup
from clew.models.engine.speculation.costs import Costs
from clew.models.engine.speculation.lengths import Algorithm1, Fixed, Scheduler, Threshold
from clew.models.engine.speculation.proposal import F64, I64, Proposal
from clew.models.local import Local
from clew.models.sampling import Laws, draw, in_force
from papers.E179_dspark import drafting, small, toy
from papers.experiment import Line, apart, by_kind

BLOCK, PROMPT, PROMPTS, REPLY = 7, 24, 50, 128
TRAINED = ("D0", "D2", "D3", "D5", "D6")
POLICIES = ("whole", "fixed 2", "threshold", "algorithm 1", "scheduler")
BIASED = ("anticipating", "whole-block")
SETTINGS = {"plain": Sampling(), "top": Sampling(temperature=0.8, top_k=12, top_p=0.9)}
CHUNK = 2048  # contexts of the exact chain computed at once


class Plain:
    """A renderer of bare ids: a reply ends at a stop token, or by its length."""

    def __init__(self, stop: tuple[int, ...]) -> None:
        self.stop, self.ref = stop, "ids"

    def parse(self, ids: Sequence[int]) -> Message:
        return Message("assistant", "")


class Noise:
    """A drafter that knows nothing: laws at random by the token before, or (stubborn) always one and the same token."""

    taps: tuple[int, ...] = ()

    def __init__(self, vocabulary: int, stubborn: bool) -> None:
        self.vocabulary, self.block = vocabulary, BLOCK
        rng = torch.Generator().manual_seed(0)
        self._table = 2 * torch.randn(vocabulary, vocabulary, generator=rng)
        if stubborn:
            self._table = torch.full_like(self._table, -torch.inf)
            self._table[:, 32] = 0.0
        self._trust = torch.rand(vocabulary, generator=rng)

    def resize(self, rows: int, size: int) -> None: ...
    def clear(self) -> None: ...
    def move(self, sources: Sequence[int], targets: Sequence[int], length: int) -> None: ...
    def extend(self, rows: I64, ids: Sequence[Sequence[int]], starts: I64, hidden: torch.Tensor) -> None: ...

    def propose(self, rows: I64, anchors: I64, positions: I64, laws: Laws, u: F64) -> Proposal:
        last, found = torch.from_numpy(np.array(anchors)), []
        for k in range(self.block):
            logits, chance = self._table[last], self._trust[last]
            last = draw(logits, laws, torch.from_numpy(u[:, k : k + 1].copy()), True)[0][:, 0]
            found.append((last, in_force(logits, laws), chance))
        tokens, logq, chances = (torch.stack(part, 1) for part in zip(*found, strict=True))
        return Proposal(tokens, logq, chances)


class Capricious:
    """A trained drafter whose confidence hangs on the token before alone, at random: near 0 or near 1.

    What a length policy makes of such confidence shows, where that of a small drafter hardly hangs on the token at all.
    """

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        rng = torch.Generator().manual_seed(1)
        self._trust = torch.where(torch.rand(inner.vocabulary, generator=rng) < 0.5, 0.02, 0.98)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def propose(self, rows: I64, anchors: I64, positions: I64, laws: Laws, u: F64) -> Proposal:
        found = self._inner.propose(rows, anchors, positions, laws, u)
        before = torch.cat((torch.from_numpy(np.array(anchors))[:, None], found.tokens[:, :-1]), 1)
        return found._replace(chance=self._trust[before])


class WholeBlock:
    """Biased: each row's length maximises (1 + sum of its own chances) / T(1 + length), the whole block known.

    T is that of the paper's counter-example (section 3.2.2): two tokens cost hardly more than one, so that the first
    is verified only where the second, whose chance depends on it, is likely to pass too.
    """

    SECONDS = 1 / np.array([1.0, 0.5, 0.45, 0.42, 0.4, 0.38, 0.36, 0.34])

    def draft(self, rows: Any) -> bool:
        return True

    def choose(self, rows: Any, fresh: Any, chance: F64) -> I64:
        gain = np.cumsum(chance.cumprod(1), 1)
        tokens = np.hstack([np.ones((len(rows), 1)), 1 + gain])
        found: I64 = (tokens / self.SECONDS[: tokens.shape[1]]).argmax(1)
        return found


def costs(rows: int, steps: bool = True) -> Costs:
    """A staircase, each eighth token beyond the rows dear, so that lengths hang on chances; or its slope alone."""
    sizes, several = np.arange(1, rows * (BLOCK + 1) + 1), tuple(range(1, rows + 1))
    more = np.maximum(sizes - rows, 0) / 8
    seconds = 1 + 0.25 * (np.ceil(more) if steps else more)
    return Costs(
        tuple(sizes.tolist()), tuple(seconds.tolist()), several, (1.0,) * rows, (0.1,) * rows, BLOCK, steps=steps
    )  # fmt: skip


def policy(name: str, rows: int) -> Any:
    return {
        "whole": lambda: Fixed(BLOCK), "fixed 2": lambda: Fixed(2), "threshold": lambda: Threshold(0.5),
        "algorithm 1": lambda: Algorithm1(costs(rows, False)), "scheduler": lambda: Scheduler(costs(rows)),
        "anticipating": lambda: toy.Anticipating(costs(rows)), "whole-block": WholeBlock,
    }[name]()  # fmt: skip


portions = apart


def cells(quick: bool) -> Iterator[Line]:
    """A seed is a portion of the prompts (greedy, surprise), a context (law; of 8 rows a run of all four).

    ``quick``: fewer of all. First seeds come first, so that a run cut short has something of everything.
    """
    which, arms = ("quick", ("D0", "D3")) if quick else ("small", TRAINED)
    found: list[Line] = []
    for lengths, rows, seeds in (("whole", 64, 4), ("scheduler", 8, 2), ("whole-block", 8, 2), ("anticipating", 8, 2)):
        for drafter in ("D3",) if lengths == "whole" else ("D3", "capricious"):
            one = {"kind": "law", "target": which, "drafter": drafter, "lengths": lengths, "sampling": "plain"}
            one |= {"rows": rows, "n": 4000 if quick else 50_000}
            found += [{**one, "seed": seed} for seed in range(1 if quick else seeds)]
    for lengths in ("whole", "scheduler", "algorithm 1", "threshold", *BIASED):
        one = {"kind": "surprise", "target": which, "drafter": "D3", "lengths": lengths, "rows": 8}
        found += [{**one, "n": 64 if quick else 400, "seed": seed} for seed in range(1 if quick else 3)]
    for drafter in ("lookup", "noise", "stubborn", *arms):
        for lengths in POLICIES:
            one = {"kind": "greedy", "target": which, "drafter": drafter, "lengths": lengths, "rows": 8}
            found += [{**one, "n": 8 if quick else PROMPTS, "seed": seed} for seed in range(1 if quick else 4)]
    others = (("D3", "whole", "top"), ("D0", "whole", "plain"), ("lookup", "whole", "plain"), ("D6", "whole", "top"))
    for drafter, lengths, sampling in () if quick else others:
        one = {"kind": "law", "target": which, "drafter": drafter, "lengths": lengths, "sampling": sampling, "rows": 64}
        found += [{**one, "n": 10_000, "seed": seed} for seed in range(4)]
    yield from sorted(found, key=lambda cell: int(cell["seed"]))


def cost(cell: Line) -> float:
    """CPU-seconds, from a first run."""
    if cell["target"] == "quick":
        return 4.0
    return {"law": cell["n"] / 900, "greedy": 9.0, "surprise": 20.0}[cell["kind"]]


# The engine


@cache
def target(name: str, double: bool) -> Any:
    model, _ = drafting.target(name)
    return copy.deepcopy(model).double() if double else model


def _model(setting: Line, double: bool, stop: tuple[int, ...] = ()) -> Local:
    torch.set_num_threads(1)
    module, name = target(setting["target"], double), setting["drafter"]
    vocabulary = module.config.vocab_size
    drafter: Any
    if name in ("noise", "stubborn"):
        drafter = Noise(vocabulary, name == "stubborn")
    elif name == "lookup":
        drafter = Lookup(vocabulary, BLOCK)
    else:
        drafter = ready(drafting.drafter(setting["target"], "D3" if name == "capricious" else name, BLOCK, 0))
        drafter = Capricious(drafter) if name == "capricious" else drafter
    rows = setting["rows"]
    renderer: Any = Plain(stop)
    return Local(module, renderer=renderer, max_rows=rows, draft=drafter, lengths=policy(setting["lengths"], rows))


def _ask(
    model: Local, prompts: Sequence[Sequence[int]], sampling: Sampling, seeds: Sequence[int], at_once: int
) -> list[Completion]:
    """Answers in order; so many requests under way that rows are left and taken again."""
    nodes = {tuple(p): Node(b"", b"", Message("user", ""), tuple(p), "ids", b"") for p in prompts}
    requests = [Request((nodes[tuple(p)],), sampling, s) for p, s in zip(prompts, seeds, strict=True)]

    async def some_at_a_time() -> list[Completion]:
        found: list[Completion] = []
        for i in range(0, len(requests), at_once):
            found += await asyncio.gather(*[model.complete(r) for r in requests[i : i + at_once]])
        return found

    return asyncio.run(some_at_a_time())


def _told(model: Local) -> Line:
    counts = model.engine.drafted
    assert counts is not None
    assert not counts.faults
    model.close()
    reached = np.maximum(counts.reached, 1)
    return {
        "tau": round(counts.emitted / max(1, counts.rounds), 4),
        "conditional": (counts.accepted / reached).round(4).tolist(), "reached": counts.reached.tolist(),
    }  # fmt: skip


@cache
def _windows(name: str, n: int, seed: int) -> I64:
    """Held-out prompts of the three domains in turn."""
    _, corpus = small.prepare(small.RECIPES[name], small.FOLDER)
    rng = np.random.default_rng((179, 3, seed))
    each = [corpus.windows(d, -(-n // 3), PROMPT, rng, held=True) for d in small.DOMAINS]
    return np.stack(each, 1).reshape(-1, PROMPT)[:n]


# T2


@cache
def _generated(name: str, n: int, seed: int) -> tuple[tuple[tuple[int, ...], ...], F64]:
    """Replies of generate, and how far the first token is ahead of the second at each place."""
    module = target(name, True)
    prompts = torch.from_numpy(_windows(name, n, seed))
    out = module.generate(
        prompts, do_sample=False, max_new_tokens=REPLY, output_logits=True, return_dict_in_generate=True
    )  # fmt: skip
    best = torch.stack(out.logits, 1).topk(2).values
    end = module.config.eos_token_id
    replies = []
    for row in out.sequences[:, PROMPT:].tolist():
        replies.append(tuple(row[: row.index(end) + 1] if end in row else row))
    return tuple(replies), (best[..., 0] - best[..., 1]).numpy()


def _greedy(setting: Line, seed: int) -> Line:
    n = setting["n"]
    expected, gaps = _generated(setting["target"], n, seed)
    model = _model(setting, True, (target(setting["target"], True).config.eos_token_id,))
    prompts = _windows(setting["target"], n, seed).tolist()
    answers = _ask(model, prompts, Sampling(temperature=0.0, max_tokens=REPLY), range(n), n)
    wrong = [i for i, (a, e) in enumerate(zip(answers, expected, strict=True)) if a.tokens != e]
    return {"mismatches": len(wrong), "tokens": sum(map(len, expected)), "gap": float(gaps.min()), **_told(model)}


# T3 and T9


@cache
def _chain(name: str, sampling: str, context: int) -> F64:
    """Exact joint law [V, V] of the second and third token behind a context, float64."""
    module, laws = target(name, True), Laws.of([SETTINGS[sampling]])
    prompt = torch.from_numpy(_windows(name, 4, 99)[context : context + 1])

    def behind(ids: torch.Tensor) -> torch.Tensor:
        """Laws in force [n, V] after the context and n continuations ids [n, t]."""
        found = []
        for part in ids.split(CHUNK):
            past = transformers.DynamicCache()
            with torch.no_grad():
                module(input_ids=prompt[:, :-1], past_key_values=past, use_cache=True)
                past.batch_repeat_interleave(len(part))
                given = torch.cat((prompt[:, -1:].expand(len(part), 1), part), 1)
                logits = module(input_ids=given, past_key_values=past, use_cache=True).logits[:, -1]
            found.append(in_force(logits, laws).exp())
        return torch.cat(found)

    vocabulary = module.config.vocab_size
    everything = torch.arange(vocabulary)
    first = behind(torch.zeros(1, 0, dtype=torch.long))[0]
    pair = first[:, None] * behind(everything[:, None])  # [x1, x2]
    likely = (pair > 1e-9).nonzero()
    joint = torch.zeros(vocabulary, vocabulary, dtype=torch.float64)
    joint.index_add_(0, likely[:, 1], pair[likely[:, 0], likely[:, 1], None] * behind(likely))
    out: F64 = joint.numpy()
    return out


def _law(setting: Line, seed: int) -> Line:
    """Test of the pairs drawn behind context ``seed``; the other three are asked for side by side where rows are 8."""
    n, name = setting["n"], setting["target"]
    model = _model(setting, False)
    contexts = _windows(name, 4, 99).tolist()
    mixed = setting["rows"] == 8
    prompts = [contexts[(seed + i) % 4 if mixed else seed] for i in range(n)]
    asked = SETTINGS[setting["sampling"]]._replace(max_tokens=5)
    answers = _ask(model, prompts, asked, [(seed << 40) + i for i in range(n)], 2 * setting["rows"])
    found: dict[str, Any] = dict.fromkeys(("chi2", "df", "chi2_first", "df_first", "tv", "tv_expected"), 0.0)
    for context in range(4) if mixed else (seed,):
        law = _chain(name, setting["sampling"], context)
        of = [a.tokens or () for i, a in enumerate(answers) if ((seed + i) % 4 if mixed else seed) == context]
        pairs = np.array([t[1:3] for t in of])
        counts = np.bincount(pairs[:, 0] * len(law) + pairs[:, 1], minlength=law.size)
        first = _compared(counts.reshape(law.shape).sum(1), law.sum(1), context)
        both = _compared(counts, law.ravel(), context)
        for key, value in {**both, "chi2_first": first["chi2"], "df_first": first["df"]}.items():
            found[key] += value / (4 if mixed and key.startswith("tv") else 1)
    return {**found, **_told(model)}


def _compared(counts: I64, law: F64, seed: int) -> Line:
    """Pearson's statistic with cells of expectation below 5 pooled; TV distance, and what chance makes of it."""
    n = int(counts.sum())
    large = law * n >= 5
    seen = np.append(counts[large], counts[~large].sum())
    expected = np.append(law[large], max(law[~large].sum(), 1e-12)) * n
    if expected[-1] < 5:  # to the smallest of the others
        smallest = int(expected[:-1].argmin())
        seen[smallest], expected[smallest] = seen[smallest] + seen[-1], expected[smallest] + expected[-1]
        seen, expected = seen[:-1], expected[:-1]
    rng, scale = np.random.default_rng(seed), law / law.sum()
    by_chance = [np.abs(rng.multinomial(n, scale) / n - law).sum() / 2 for _ in range(20)]
    return {
        "chi2": float(((seen - expected) ** 2 / expected).sum()), "df": len(seen) - 1,
        "tv": float(np.abs(counts / n - law).sum() / 2), "tv_expected": float(np.mean(by_chance)),
    }  # fmt: skip


def _surprise(setting: Line, seed: int) -> Line:
    """Sums of logprob + entropy over the tokens of long replies, and of its square."""
    model = _model(setting, False)
    prompts = _windows(setting["target"], setting["n"], 1000 + seed).tolist()
    seeds = [(seed << 40) + i for i in range(setting["n"])]
    answers = _ask(model, prompts, Sampling(max_tokens=96), seeds, setting["n"])
    off = []
    for a in answers:
        assert a.logprobs is not None
        assert a.entropies is not None
        off.append(a.logprobs[1:].astype(np.float64) + a.entropies[1:])  # the first comes of the prefill
    every = np.concatenate(off)
    return {"sum": float(every.sum()), "squares": float((every**2).sum()), "tokens": len(every), **_told(model)}


run = by_kind({"greedy": _greedy, "law": _law, "surprise": _surprise})
