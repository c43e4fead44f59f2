"""Token ids in and out over vLLM's completions: the server neither renders nor parses, so tokens stay the truth.

``return_token_ids`` (vLLM 0.10.2 and later, SGLang) brings the sampled ids back, ``return_tokens_as_token_ids`` in
older versions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from clew.core.errors import Refused
from clew.core.protocols import Renderer
from clew.core.values import F32, Completion, Inner, Message, Sampling, Usage
from clew.models.dialects import Json, bad, sampling_from, sampling_to
from clew.models.dialects.chat import BACK, FINISH, usage_from_wire, usage_to_wire
from clew.models.dialects.chat import headers as headers
from clew.models.dialects.logprobs import floats, wrong
from clew.models.kept import from_lists

NAME, PATH = "completions", "/completions"
MADE = "weights:"  # of Inner.model: what follows, if anything, is the endpoint whose weights sampled these tokens
MOST_SPANS, LABEL = 4096, 200  # spans of one reply by weights, and characters of a version's label


class Prompted(NamedTuple):
    """A request as the wire knows it: prompts as texts or token ids, each to be continued."""

    model: str
    prompts: tuple[str | tuple[int, ...], ...]
    sampling: Sampling = Sampling()
    seed: int | None = None
    stream: bool = False
    logprobs: int | None = None  # likeliest tokens told with each; 0 tells the sampled one alone
    echo: bool = False
    token_ids: bool = False
    extra: Mapping[str, Any] = {}


KNOWN = {
    *("model", "prompt", "max_tokens", "temperature", "top_p", "top_k", "seed", "stop", "stream", "stream_options"),
    *("logprobs", "echo", "return_token_ids"),
}


def request_from_wire(body: Json) -> Prompted:
    """Read a request.

    Raises:
        BadRecord: the prompt is neither text nor token ids, nor a list of one of these.
    """
    logprobs, most = body.get("logprobs"), body.get("max_tokens")
    return Prompted(
        str(body.get("model", "")),
        _prompts(body.get("prompt")),
        sampling_from(body)._replace(max_tokens=16 if most is None else int(most)),  # OpenAI's default
        body.get("seed"),
        bool(body.get("stream")),
        int(logprobs) if logprobs is not None and logprobs is not False else None,
        bool(body.get("echo")),
        bool(body.get("return_token_ids")),
        {k: v for k, v in body.items() if k not in KNOWN},
    )


def _prompts(raw: object) -> tuple[str | tuple[int, ...], ...]:
    rows: list[Any] = raw if isinstance(raw, list) and raw and not is_ids(raw) else [raw]
    if not all(isinstance(row, str) or is_ids(row) for row in rows):
        raise bad("a prompt is a text or a list of token ids", raw, "Or send a list of several such prompts.")
    return tuple(row if isinstance(row, str) else tuple(row) for row in rows)


def is_ids(row: object) -> bool:
    """Whether a value is a list of token ids, one or more; which of them a model knows is not asked."""
    return isinstance(row, list) and bool(row) and all(type(token) is int for token in row)


def frame(choices: list[Json], *, id: str, created: int, model: str, usage: Usage | None = None) -> Json:
    """A body, or a chunk of a stream, around its choices."""
    out: Json = {"id": id, "object": "text_completion", "created": created, "model": model, "choices": choices}
    return out if usage is None or usage == Usage() else out | {"usage": usage_to_wire(usage)}


def choice(index: int, text: str, finish: str | None = None, logprobs: Json | None = None) -> Json:
    """A continued prompt, or a piece of one; ``finish`` is ours, None while more is to come."""
    reason = None if finish is None else BACK.get(finish, finish)
    return {"index": index, "text": text, "logprobs": logprobs, "finish_reason": reason}


def request_to_wire(
    model: str, prompt: Sequence[int], sampling: Sampling, seed: int, stop: Sequence[int], stream: bool = False
) -> Json:
    """The request body; ``prompt`` are all ids the model is to continue, ``stop`` the ids that end a reply."""
    s, switches = sampling, {"skip_special_tokens": False, "add_special_tokens": False, "return_token_ids": True}
    body: Json = {"model": model, "prompt": list(prompt), "max_tokens": s.max_tokens, "temperature": s.temperature}
    body |= {"top_p": s.top_p, "seed": seed, "logprobs": 0, "stop_token_ids": sorted(stop), **switches}
    body |= {"return_tokens_as_token_ids": True, **sampling_to(s)}
    if stream:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    return body


def scoring_to_wire(model: str, ids: Sequence[int], echo: bool) -> Json:
    """The request for logprobs of ``ids``: vLLM's ``prompt_logprobs``, or ``echo`` as OpenAI's API had it."""
    body: Json = {"model": model, "prompt": list(ids), "temperature": 1.0, "add_special_tokens": False}
    if echo:
        return body | {"max_tokens": 0, "echo": True, "logprobs": 1, "return_tokens_as_token_ids": True}
    return body | {"max_tokens": 1, "prompt_logprobs": 1}


def scores_from_wire(body: Json, ids: Sequence[int], echo: bool) -> F32 | None:
    """Logprobs [len(ids) - 1] from the answer to ``scoring_to_wire``; None where it holds none.

    Raises:
        BadRecord: it holds them for other tokens than were asked for.
    """
    choice = (body.get("choices") or [{}])[0]
    if echo:
        found = (choice.get("logprobs") or {}).get("token_logprobs")
        named = (choice.get("logprobs") or {}).get("tokens") or ()
        spelt = [int(t[9:]) for t in map(str, named) if t.startswith("token_id:")]
        fits = not spelt or spelt[: len(ids)] == list(ids)
        values = list(found or ())[1 : len(ids)]
    else:
        found = choice.get("prompt_logprobs") or body.get("prompt_logprobs")
        entries = list(found or ())[1 : len(ids)]
        values = [(entry or {}).get(str(i), {}).get("logprob") for entry, i in zip(entries, ids[1:], strict=False)]
        fits = None not in values
    if not found:
        return None
    if not fits or len(values) != len(ids) - 1 or any(not isinstance(v, (int, float)) for v in values):
        what = "the logprobs are not of the tokens that were sent"
        raise bad(what, body, "The server changes the prompt it is given.")
    scores = floats(values)
    if why := wrong(scores):
        raise bad(f"the server gave {why}", why, "Its logprobs cannot be used.")
    return scores


class Stream:
    """Collects chunks, or one whole answer; see the other dialects' ``Stream``."""

    def __init__(self) -> None:
        self.text, self.finish = "", ""
        self.tokens: list[int] = []
        self.logprobs: list[float] = []
        self.mask: list[Any] = []  # ids that truncation left at each token, and the logprobs under that law
        self.in_law: list[float] = []
        self.head: Json = {}
        self.error: Any = None
        self.finished = False
        self.part = 0  # a reply has one text
        self.spans: list[tuple[str, int, int]] = []

    def feed(self, chunk: Json) -> str:
        if chunk.get("error"):
            self.error = chunk["error"]
            return ""
        self.head |= {k: chunk[k] for k in ("model", "usage", "prompt_token_ids") if chunk.get(k)}
        text = ""
        for choice in chunk.get("choices") or ():
            logprobs = choice.get("logprobs") or {}
            ids = choice.get("token_ids")
            spelt = [str(t) for t in logprobs.get("tokens") or ()]
            if ids is None and spelt and all(t.startswith("token_id:") for t in spelt):
                ids = [int(t[9:]) for t in spelt]
            self.tokens += ids or ()
            self.logprobs += logprobs.get("token_logprobs") or ()
            self.mask += choice.get("sampling_mask") or ()
            self.in_law += choice.get("sampling_logprobs") or ()
            text += choice.get("text") or ""
            if choice.get("finish_reason"):
                self.finish, self.finished = choice["finish_reason"], True
            if choice.get("weight_versions"):  # on the last chunk, of the whole reply
                self.spans = spans_from_wire(choice["weight_versions"])
        self.text += text
        return text

    def result(self) -> Completion:
        """What has arrived; its message holds the text alone until ``parsed`` reads the ids."""
        if self.text and not self.tokens:
            remedy = "Serve with vLLM 0.10.2 or later, or leave the renderer out and use the chat dialect."
            raise Refused("the endpoint answered without token ids", remedy=remedy)
        reason = FINISH.get(self.finish, self.finish) if self.finished else "cut"
        own = floats(self.logprobs) if len(self.logprobs) == len(self.tokens) else None
        cut = len(self.in_law) == len(self.tokens) and bool(self.in_law)  # as `clew serve` tells it
        return Completion(
            Message("assistant", self.text),
            tokens=tuple(self.tokens),
            logprobs=floats(self.in_law) if cut else own,
            plain=own if cut else None,
            kept=from_lists(self.mask, self.tokens) if self.mask else b"",
            finish=reason,
            model=str(self.head.get("model") or ""),
            usage=usage_from_wire(self.head.get("usage")),
            inner=made_by(self.spans, self.tokens),
        )


def spans_from_wire(raw: object) -> list[tuple[str, int, int]]:
    """vLLM's ``weight_versions``: the label of weights, and the first and last but one of the tokens that they sampled.

    Raises:
        BadRecord: it is no such list.
    """
    remedy = "The server does not speak vLLM."
    if not isinstance(raw, list) or len(raw) > MOST_SPANS:
        raise bad("weight_versions is no list of spans", raw, remedy)
    spans = list[tuple[str, int, int]]()
    for span in raw:
        told = span if isinstance(span, dict) else {}
        version, start, end = told.get("version"), told.get("start"), told.get("end")
        if not isinstance(version, str) or len(version) > LABEL or type(start) is not int or type(end) is not int:
            raise bad("a span of weight_versions has no version, start and end", span, remedy)
        spans.append((version, start, end))
    return spans


def made_by(spans: Sequence[tuple[str, int, int]], tokens: Sequence[int]) -> tuple[Inner, ...]:
    """The tokens of each span, with the label of the weights that sampled them as the name that served them.

    Raises:
        BadRecord: a token lies in none, or in two: its weights are unknown, and it must not pass for those of others.
    """
    starts, ends = [*(start for _, start, _ in spans), len(tokens)], [0, *(end for _, _, end in spans)]
    if spans and (starts != ends or any(start > end for _, start, end in spans)):
        told = f"weight_versions do not cover the {len(tokens)} tokens of the reply"
        raise bad(told, spans, "Nobody can say which weights sampled them: check the server's version.")
    return tuple(Inner(MADE, version, usage=Usage(0, b - a), tokens=tuple(tokens[a:b])) for version, a, b in spans)


def spans_to_wire(made: Sequence[Inner], version: int, tokens: int) -> list[Json]:
    """The same as vLLM writes it; one span of the model's own version where nothing else is told."""
    listed, at = list[Json](), 0
    for one in made:
        if one.model == MADE and one.tokens is not None:
            listed.append({"version": one.served_by, "start": at, "end": (at := at + len(one.tokens))})
    return listed or [{"version": str(version), "start": 0, "end": tokens}]


def completion_from_wire(body: Json) -> Completion:
    """Read a whole answer.

    Raises:
        BadRecord, Refused: it holds no choice, or no token ids.
    """
    if not isinstance(body.get("choices"), list) or not body["choices"]:
        raise bad("the answer has no choices", body, "The endpoint does not speak completions; check its path.")
    stream = Stream()
    stream.feed(body)
    return stream.result()


def parsed(completion: Completion, renderer: Renderer, before: Sequence[int]) -> Completion:
    """The completion with the message that its ids, after head and forced ids ``before``, stand for."""
    message = renderer.parse((*before, *(completion.tokens or ())))
    finish = "tool_calls" if message.calls and completion.finish == "stop" else completion.finish
    return completion._replace(message=message, finish=finish)
