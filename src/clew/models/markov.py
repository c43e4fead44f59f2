"""A word-level Markov chain that answers like a language model: seeded, with token ids and logprobs where asked for."""

from __future__ import annotations

import json
import re
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b
from importlib.resources import files

import numpy as np

from clew.core import keys
from clew.core.errors import BadInput
from clew.core.protocols import Renderer
from clew.core.records import Node, Request
from clew.core.registry import make_ref
from clew.core.values import F32, Completion, Message, Sampling, ToolCall, ToolSpec, Usage
from clew.models.taps import refuse_taps

ROLES = {"system": 256, "user": 257, "assistant": 258, "tool": 259}
END, THINK, SAY, CALL = 260, 261, 262, 263
FIRST_WORD = 264


class Words:
    """A renderer without a learnt tokenizer: a known word, with the blank before it, is one id; all else is bytes.

    Ids 0 to 255 are bytes, 256 to 263 mark roles and parts, words follow in the order of their first appearance.
    The table is fixed by the corpus, so that ids mean the same in every process.
    """

    rewrites = False

    def __init__(self, corpus: str) -> None:
        self.words = list(dict.fromkeys(_pieces(corpus)))
        self.table = {word: FIRST_WORD + i for i, word in enumerate(self.words)}
        self.ref = f"words-{blake2b(keys.encode(corpus), digest_size=4).hexdigest()}"
        self.stop = frozenset({END})

    def encode(self, text: str) -> tuple[int, ...]:
        out: list[int] = []
        for piece in _pieces(text):
            known = self.table.get(piece)
            out += [known] if known is not None else keys.encode(piece)
        return tuple(out)

    def decode(self, ids: Sequence[int]) -> str:
        data = b"".join(
            bytes((i,)) if i < 256 else keys.encode(self.words[i - FIRST_WORD])
            for i in ids
            if i < 256 or FIRST_WORD <= i < FIRST_WORD + len(self.words)
        )
        try:
            return data.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:
            return data.decode("utf-8", "replace")

    def head(self) -> tuple[int, ...]:
        return (ROLES["assistant"],)

    def delta(self, prev: Node | None, closed: bool, message: Message, tools: Sequence[ToolSpec]) -> tuple[int, ...]:
        out: list[int] = []
        if prev is not None and not closed and (prev.ids or (END,))[-1] != END:
            out.append(END)
        if prev is None and tools:
            shown = [{"name": t.name, "description": t.description, "schema": t.schema} for t in tools]
            out += [ROLES["system"], *self.encode(json.dumps(shown, sort_keys=True)), END]
        out.append(ROLES[message.role])
        if message.reasoning:
            out += [THINK, *self.encode(message.reasoning), SAY]
        out += self.encode(message.text)
        for call in message.calls:
            out += [CALL, *self.encode(json.dumps([call.name, call.arguments]))]
        return (*out, END)

    def parse(self, ids: Sequence[int]) -> Message:
        body = list(ids[1:] if ids and ids[0] == ROLES["assistant"] else ids)
        body = body[: body.index(END)] if END in body else body
        reasoning = ""
        if body[:1] == [THINK]:
            cut = body.index(SAY) if SAY in body else len(body)
            reasoning, body = self.decode(body[1:cut]), body[cut + 1 :]
        spans: list[list[int]] = [[]]
        for i in body:
            if i == CALL:
                spans.append([])
            else:
                spans[-1].append(i)
        calls = tuple(call for n, span in enumerate(spans[1:]) if (call := _tool_call(n, self.decode(span))))
        return Message("assistant", self.decode(spans[0]), reasoning, calls)


class Markov:
    """Continues the conversation with a Markov chain over ``corpus`` (ours where None); no weights, no network.

    The next word is drawn from the counts of what followed the last ``order`` words (fewer where those never occurred),
    under temperature, top_p and top_k, from one uniform for each (request seed, offset in the reply): the same request
    gives the same reply everywhere. ``tokens=True`` shows the renderer and returns ids, logprobs and entropies, so that
    everything that works on tokens can be tried without torch.
    """

    version = 0

    def __init__(self, corpus: str | None = None, order: int = 2, tokens: bool = False) -> None:
        if not 1 <= order <= 8:
            raise BadInput(f"order {order} of a Markov model", remedy="Give an order from 1 to 8.")
        text = bundled_corpus() if corpus is None else corpus
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        if not lines:
            raise BadInput("the corpus has no text", remedy="Give some lines of text, or leave the corpus out.")
        arguments: dict[str, object] = {"order": order, "tokens": tokens}
        if corpus is not None and len(corpus) <= 200:
            arguments["corpus"] = corpus
        name = (
            "markov" if corpus is None or len(corpus) <= 200 else f"markov-{keys.blob_key(keys.encode(text)).hex()[:8]}"
        )
        self.ref = make_ref(name, arguments, {"order": 2, "tokens": False})
        self.order, self.tokens, self.calls = order, tokens, 0
        self.words = Words("\n".join(lines))
        self.renderer: Renderer | None = self.words if tokens else None
        self.follow: dict[tuple[int, ...], Counter[int]] = {}
        for line in lines:
            self._learn([ROLES["assistant"], *self.words.encode(line), END])

    def _learn(self, ids: list[int]) -> None:
        for i in range(1, len(ids)):
            for k in range(min(self.order, i) + 1):
                self.follow.setdefault(tuple(ids[i - k : i]), Counter())[ids[i]] += 1

    def distribution(self, before: Sequence[int], sampling: Sampling) -> tuple[list[int], np.ndarray]:
        """Candidate ids, most likely first, and their probabilities (float64) under ``sampling``."""
        for k in range(min(self.order, len(before)), -1, -1):
            if counts := self.follow.get(tuple(before[len(before) - k :]), Counter()):
                break
        ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        ids, p = [i for i, _ in ranked], np.array([n for _, n in ranked], np.float64)
        if sampling.temperature <= 0:
            return ids[:1], np.ones(1)
        p = np.exp((np.log(p) - np.log(p[0])) / sampling.temperature)
        p /= p.sum()
        keep = min(sampling.top_k or len(ids), int(np.searchsorted(np.cumsum(p), sampling.top_p - 1e-12)) + 1, len(ids))
        return ids[:keep], p[:keep] / p[:keep].sum()

    def top(self, ids: Sequence[Sequence[int]], k: int = 20) -> list[tuple[tuple[int, ...], F32]]:
        """The likeliest next tokens after each row at temperature 1, at most ``k``: ids and logprobs in nats."""
        found = [self.distribution(row[-self.order :], Sampling()) for row in ids]
        return [(tuple(some[:k]), np.log(p[:k]).astype(np.float32)) for some, p in found]

    async def complete(self, request: Request) -> Completion:
        refuse_taps(request, self.ref)
        self.calls += 1
        began, sampling = time.perf_counter(), request.sampling
        if sampling.shape:
            raise BadInput(f"{self.ref} knows no {sampling.shape[:80]}", remedy="Use local weights or an endpoint.")
        prompt = self._prompt(request)
        forced = request.forced or (self.words.encode(request.forced_text) if request.forced_text else ())
        reply, logprobs, entropies = list(forced), [], []
        finish = "stop" if forced and forced[-1] == END else "length"
        for offset in range(len(forced), sampling.max_tokens if finish == "length" else 0):
            ids, p = self.distribution([*prompt[-self.order :], *reply][-self.order :], sampling)
            u = keys.uniforms(np.array([request.seed], np.uint64), np.array([offset], np.uint64))[0]
            at = min(bisect_right(np.cumsum(p).tolist(), u), len(ids) - 1)
            reply.append(ids[at])
            logprobs.append(np.log(p[at]))
            entropies.append(-np.sum(p * np.log(p)))
            if ids[at] == END or any(s in self.words.decode(reply) for s in sampling.stop):
                finish = "stop"
                break
        message = self.words.parse(reply)
        if not self.tokens:
            text = message.text
            for stop in sampling.stop:
                text = text.split(stop)[0]
            message = message._replace(text=text)
        sampled = tuple(reply[len(forced) :])
        return Completion(
            message,
            tokens=sampled if self.tokens else None,
            logprobs=np.array(logprobs, np.float32) if self.tokens else None,
            entropies=np.array(entropies, np.float32) if self.tokens else None,
            finish="tool_calls" if message.calls else finish,
            usage=Usage(len(prompt), len(sampled)),
            seconds=time.perf_counter() - began,
        )

    def _prompt(self, request: Request) -> list[int]:
        if self.tokens:
            return [i for node in request.path for i in node.ids or ()] + list(request.head or self.words.head())
        tip = request.path[-1].message if request.path else Message("user", "")
        return [*self.words.delta(None, True, tip, ()), *self.words.head()]


@lru_cache(maxsize=1)
def bundled_corpus() -> str:
    """Forty sentences of our own."""
    return files("clew.models").joinpath("corpus.txt").read_text(encoding="utf-8")


def _pieces(text: str) -> list[str]:
    return re.findall(r" ?[^\s.,]+|[.,]|\s", text)


def _tool_call(n: int, text: str) -> ToolCall | None:
    try:
        name, arguments = json.loads(text)
    except ValueError:
        return None
    return ToolCall(f"call_{n}", str(name), str(arguments))
