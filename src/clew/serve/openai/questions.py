"""Reads one HTTP request, checks it, and turns it into Requests of a Model. The server and its recorder call it. A
request that is refused must never have reached a model or a store."""

from __future__ import annotations

import asyncio
import json
import math
import secrets
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from clew.core.errors import BadInput
from clew.core.keys import derive
from clew.core.protocols import Model, Renderer
from clew.core.records import Node, Request
from clew.core.values import Message, Sampling
from clew.harness.run.nodes import make_node
from clew.models import shaping
from clew.models.dialects import Asked, Json, chat, completions, media, messages, responses, tags
from clew.serve.incoming import in_dialect, question_of
from clew.serve.openai import tool_choice
from clew.serve.openai.parameters import RULES, check
from clew.serve.refusals import Rejected

ROLES = ("system", "developer", "user", "assistant", "tool")  # a developer's message is read as the system's
LONG = 100_000  # characters of a prompt that is tokenised beside the event loop
TOPS = 20  # most likeliest tokens told with each
STOPS, STOP = 16, 256  # most stop strings, and most characters of one
LARGEST = 1_000_000  # tokens of a reply whose length is left to the model
WIRE: Mapping[str, Any] = {"chat": chat, "completions": completions, "responses": responses, "messages": messages}
LIMIT = {"completions": "max_tokens", "responses": "max_output_tokens", "messages": "max_tokens"}


class Limits(NamedTuple):
    """What one server takes. Tokens: ``prompt``, ``output`` of each choice (None: what the model's context holds).

    ``body`` in bytes; ``queue``: choices in work or waiting at once; ``seconds`` for one request; ``stall``: seconds a
    client may read nothing of a stream; ``drain``: seconds that requests in work have once the server is to end.
    """

    prompt: int | None = None
    output: int | None = None
    body: int = 16 << 20
    queue: int = 256
    seconds: float = 600.0
    stall: float = 30.0
    drain: float = 30.0


class Form(NamedTuple):
    """What a reply must match: ``kind`` json (a schema), regex, choice (texts) or grammar."""

    kind: str
    value: Any


class Question(NamedTuple):
    """One HTTP request. ``prompts`` are those of completions, empty elsewhere; ``n`` choices for each prompt.

    tops: likeliest tokens told with each; None where no logprobs are asked for. scored: logprobs of the prompt, with
    so many likeliest tokens. called: names of tools of which the reply must call one. ids_alone: the answer is that of
    ``/inference/v1/generate``.
    """

    endpoint: str
    asked: Asked
    body: Json
    prompts: tuple[str | tuple[int, ...], ...] = ()
    n: int = 1
    tops: int | None = None
    scored: int | None = None
    echo: bool = False
    spelt: bool = False
    form: Form | None = None
    called: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    ids_alone: bool = False

    @property
    def choices(self) -> int:
        return self.n * max(1, len(self.prompts))

    @property
    def usage(self) -> bool:
        """Whether a stream tells its usage."""
        return bool((self.body.get("stream_options") or {}).get("include_usage"))


def read(endpoint: str, data: bytes, limits: Limits) -> Question:
    """Read a request's body.

    Raises:
        Rejected: it is not one of that endpoint, or asks for what the server does not do.
    """
    body = question_of(data)
    ignored = check(RULES[endpoint], body)
    check_types(body)
    raw = in_dialect(endpoint, WIRE[endpoint].request_from_wire, body)
    if endpoint == "completions":
        asked = Asked(raw.model, (), (), raw.sampling, raw.seed, raw.stream, token_ids=raw.token_ids)
        question = Question(endpoint, asked, body, raw.prompts, tops=raw.logprobs, echo=raw.echo)
    else:
        if not raw.messages:
            raise Rejected("the request has no messages", remedy="Send at least one.", param="messages")
        _roles(raw)
        question = Question(endpoint, raw, body, tops=_tops(endpoint, body))
    asked = question.asked._replace(
        sampling=_sampling(endpoint, body, question.asked.sampling, limits),
        seed=body.get("seed"),
        extra={k: body[k] for k in ("previous_response_id",) if body.get(k)},
    )
    question = question._replace(
        asked=asked,
        n=body.get("n") or 1,
        scored=body.get("prompt_logprobs"),
        spelt=bool(body.get("return_tokens_as_token_ids")),
        form=_form(body),
    )
    question = _tools(question)
    if question.choices > limits.queue:
        told = f"{question.choices} choices, more than the {limits.queue} this server works on at once"
        raise Rejected(told, remedy="Ask for fewer at a time.", param="n")
    return question._replace(ignored=tuple(ignored) + _unkept(question))


_KINDS: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    **dict.fromkeys(
        ("max_tokens", "max_completion_tokens", "max_output_tokens", "n", "top_k", "seed", "top_logprobs",
         "prompt_logprobs"),
        (lambda v: type(v) is int, "a whole number"),
    ),
    **dict.fromkeys(("temperature", "top_p"),
                    (lambda v: type(v) in (int, float) and -math.inf < v < math.inf, "a number")),
    **dict.fromkeys(
        ("stream", "echo", "return_token_ids", "return_tokens_as_token_ids", "continue_final_message",
         "return_weight_versions", "normalize", "use_activation", "apply_softmax", "item_first"),
        (lambda v: isinstance(v, bool), "true or false"),
    ),
    **dict.fromkeys(("tools", "include", "stop_token_ids"), (lambda v: isinstance(v, list), "a list")),
    **dict.fromkeys(("stream_options", "text", "response_format", "metadata", "structured_outputs"),
                    (lambda v: isinstance(v, dict), "an object")),
    "request_id": (lambda v: isinstance(v, str) and len(v) <= 200, "a text of at most 200 characters"),
    "logprobs": (lambda v: type(v) in (bool, int), "true, false or a number"),
    "stop": (lambda v: isinstance(v, str) or (isinstance(v, list) and all(isinstance(s, str) for s in v)),
             "a text or a list of texts"),
}  # fmt: skip
_RANGES = {
    "temperature": (0, 1e6), "top_p": (1e-9, 1), "top_k": (-1, 1 << 31), "n": (1, 1 << 20), "top_logprobs": (0, TOPS),
    "prompt_logprobs": (0, TOPS), "max_completion_tokens": (1, LARGEST), "max_output_tokens": (1, LARGEST),
    "max_tokens": (0, LARGEST), "logprobs": (0, TOPS), "seed": (-(1 << 63), (1 << 64) - 1),
}  # fmt: skip


def check_types(body: Json) -> None:
    """Refuse values that are not of their parameter's type, or outside its range.

    Raises:
        Rejected: one is not.
    """
    for name, (fits, what) in _KINDS.items():
        value = body.get(name)
        if value is None:
            continue
        if not fits(value):
            raise Rejected(f"{name} is {str(value)[:60]!r}", remedy=f"It is {what}.", param=name)
        least, most = _RANGES.get(name, (None, None))
        if least is not None and not isinstance(value, bool) and not least <= value <= most:
            raise Rejected(f"{name} is {str(value)[:60]}", remedy=f"It is from {least:g} to {most:g}.", param=name)


def _sampling(endpoint: str, body: Json, read: Sampling, limits: Limits) -> Sampling:
    """Sampling settings within the server's limits; a length that is left open is the most there is."""
    name = LIMIT.get(endpoint) or ("max_completion_tokens" if body.get("max_completion_tokens") else "max_tokens")
    given = body.get(name)
    if given == 0 and endpoint != "completions":
        raise Rejected(f"{name} is 0", remedy="Ask for at least one token.", param=name)
    if given is not None and limits.output is not None and given > limits.output:
        told = f"{name} is {given}; this server writes at most {limits.output} tokens a reply"
        raise Rejected(told, remedy=f"Ask for at most {limits.output}.", param=name)
    stops = tuple(s for s in read.stop if s)
    if len(stops) > STOPS or any(len(s) > STOP for s in stops):
        told = "too many or too long stop strings"
        raise Rejected(told, remedy=f"Send at most {STOPS} of at most {STOP} characters.", param="stop")
    if given is None and endpoint != "completions":
        read = read._replace(max_tokens=limits.output or LARGEST)
    return read._replace(top_k=max(0, read.top_k), stop=stops, shape=_shape(body))


def _shape(body: Json) -> str:
    given = {name: body.get(name) for name in shaping.NAMES}
    try:
        return shaping.written(given)
    except BadInput as error:
        wrong = next((name for name in given if str(error).startswith(f"{name}=")), "")
        raise Rejected(error.message, remedy=error.remedy, param=wrong) from None


def _roles(asked: Asked) -> None:
    for message in asked.messages:
        if message.role not in ROLES:
            told = f"a message has the role {message.role[:60]!r}"
            raise Rejected(told, remedy=f"Use one of {', '.join(ROLES)}.", param="messages")


def _tops(endpoint: str, body: Json) -> int | None:
    if endpoint == "responses":
        wanted = "message.output_text.logprobs" in (body.get("include") or ())
        return (body.get("top_logprobs") or 0) if wanted else None
    if body.get("top_logprobs") and not body.get("logprobs"):
        raise Rejected("top_logprobs without logprobs", remedy="Add logprobs: true.", param="top_logprobs")
    return (body.get("top_logprobs") or 0) if body.get("logprobs") else None


def _form(body: Json) -> Form | None:
    """What the reply must match, from any of the fields that say so.

    Raises:
        Rejected: several do, or one is not understood.
    """
    found: dict[str, Form] = {}
    for where in ("response_format", "text"):
        told = body.get(where) or {}
        told = told.get("format") or {} if where == "text" else told
        kind = told.get("type", "text")
        if kind == "json_object":
            found[where] = Form("json", {"type": "object"})
        elif kind == "json_schema":
            found[where] = Form("json", (told.get("json_schema") or told).get("schema"))
        elif kind != "text":
            told = f"{where} of type {str(kind)[:60]!r}"
            raise Rejected(told, remedy="Use text, json_object or json_schema.", param=where)
    for name, value in (body.get("structured_outputs") or {}).items():
        if value is None or value is False:
            continue
        if name not in ("json", "json_object", "regex", "choice", "grammar"):
            told = f"structured_outputs has {name[:60]!r}"
            raise Rejected(told, remedy="Use json, regex, choice or grammar.", param="structured_outputs")
        found[f"structured_outputs.{name}"] = _formed(name, value, "structured_outputs")
    for name in ("json", "regex", "choice", "grammar"):
        if (value := body.get(f"guided_{name}")) is not None:
            found[f"guided_{name}"] = _formed(name, value, f"guided_{name}")
    if len(found) > 1:
        names = sorted(found)
        raise Rejected(f"{' and '.join(names)} exclude each other", remedy="Send one.", param=names[-1].split(".")[0])
    for where, form in found.items():
        if form.kind == "json" and not isinstance(form.value, (dict, bool)):
            raise Rejected(f"{where} has no schema", remedy="Send a JSON Schema.", param=where.split(".")[0])
    return next(iter(found.values()), None)


def _formed(kind: str, value: object, param: str) -> Form:
    if kind == "json_object":
        return Form("json", {"type": "object"})
    if kind == "json" and isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            value = None
    if kind in ("regex", "grammar") and not isinstance(value, str):
        raise Rejected(f"{param} is no text", remedy=f"Send the {kind} as text.", param=param)
    if kind == "choice" and not (isinstance(value, list) and value and all(isinstance(v, str) and v for v in value)):
        raise Rejected(f"{param} is no list of texts", remedy="Send the texts to choose from.", param=param)
    return Form(kind, value)


def _tools(question: Question) -> Question:
    """Which tools are offered, and which must be called.

    Raises:
        Rejected: a tool that is no function, or a choice that names none of them.
    """
    asked, choice = question.asked, tool_choice.read(question.endpoint, question.body, question.asked.tools)
    if choice.called and question.form is not None:
        told = "a tool must be called, and the reply must have another form"
        raise Rejected(told, remedy="Ask for one of both.", param="tool_choice")
    body = question.body | ({"parallel_tool_calls": False} if choice.single else {})
    asked = asked if choice.offered else asked._replace(tools=())
    return question._replace(asked=asked, body=body, called=choice.called)


def _unkept(question: Question) -> tuple[str, ...]:
    """Wishes of supported parameters that are not met in full, though the answer means the same."""
    strict = any((t.get("function") or t).get("strict") for t in question.body.get("tools") or ())
    single = bool(question.asked.tools) and question.body.get("parallel_tool_calls") is False
    told = ["tools.strict"] * strict + ["parallel_tool_calls"] * single if not question.called else []
    other = {*map(str, question.body.get("include") or ())} - {"message.output_text.logprobs"}
    return (*told, *(f"include.{name}"[:80] for name in sorted(other)))


async def beside(question: Question, model: Model, limits: Limits) -> list[Request]:
    """``requests``, in a thread where the prompt is long: others wait for the event loop meanwhile."""
    long = sum(map(len, _texts(question))) > LONG
    work = partial(requests, question, model, limits)
    return await asyncio.to_thread(work) if long else work()


def _texts(question: Question) -> list[str]:
    asked = question.asked
    called = [c.arguments for m in asked.messages for c in m.calls]
    said = [text for m in asked.messages for text in (m.text, m.reasoning)]
    return [*called, *said, *(p for p in question.prompts if isinstance(p, str))]


def _bounded(question: Question, model: Model, limits: Limits) -> None:
    """Refuse what is far too long before all of it is tokenised: a cut adds one token at most to those of a text.

    Raises:
        Rejected: it is.
    """
    most, renderer = limits.prompt or getattr(model, "context", None), model.renderer
    if most is not None and renderer is not None:
        refuse_long(_texts(question), renderer, most, "messages")


def refuse_long(texts: Sequence[str], renderer: Renderer, most: int, param: str) -> None:
    """Refuse texts that have more tokens together, by a count that ends once that is certain.

    Raises:
        Rejected: they have.
    """
    least = 0
    for text in texts:
        for start in range(0, len(text), LONG):
            least += max(0, len(renderer.encode(text[start : start + LONG])) - 1) if len(text) > LONG else 0
            if least > most:
                told = f"more than {least} prompt tokens; this server takes at most {most}"
                raise Rejected(told, remedy="Shorten the prompt.", code="context_length_exceeded", param=param)


def requests(question: Question, model: Model, limits: Limits) -> list[Request]:
    """One Request for each choice. The first choice of a seed is what ``n`` 1 gives.

    Raises:
        Rejected: the prompt is longer than the server takes, or the model takes none of its kind.
    """
    renderer, asked = model.renderer, question.asked
    _bounded(question, model, limits)
    seed = secrets.randbits(63) if asked.seed is None else asked.seed & ((1 << 64) - 1)
    if question.prompts:
        if renderer is None:
            told = f"{model.ref} takes messages and not text to continue"
            raise Rejected(told, remedy="Use chat completions.", param="prompt")
        found = [renderer.encode(p) if isinstance(p, str) else p for p in question.prompts]
        paths: list[tuple[Node, ...]] = [
            (make_node(None, Message("user", ""), tuple(ids), renderer.ref),) for ids in found
        ]
        base = Request((), asked.sampling)
    else:
        paths = [rendered(model, asked)]
        forced = renderer.encode(asked.prefill) if asked.prefill and renderer is not None else ()
        text = asked.prefill if renderer is None else ""
        head = renderer.head() if renderer is not None else ()
        sampling = asked.sampling._replace(max_tokens=asked.sampling.max_tokens + len(forced))
        base = Request((), sampling, tools=asked.tools, head=head, forced=forced, forced_text=text)
    if renderer is not None and (other := set(question.body.get("stop_token_ids") or ()) - renderer.stop):
        told = f"stop_token_ids has {sorted(other)[:8]}, which end no reply of this model"
        raise Rejected(told, remedy=f"Its own are {sorted(renderer.stop)}.", param="stop_token_ids")
    for path in paths:
        fits(path, len(base.head) + len(base.forced), limits)
    seeds = [seed if not i else derive(seed, "choice", i) for i in range(question.n)]
    base = base._replace(idempotency=question.body.get("request_id") or "")
    return [base._replace(path=path, seed=own) for path in paths for own in seeds]


def rendered(model: Model, asked: Asked) -> tuple[Node, ...]:
    """The messages as nodes, with token ids where the model has a renderer.

    Raises:
        Rejected: one holds more than text. BadInput: the model's template takes no such messages or tools.
    """
    renderer, nodes = model.renderer, list[Node]()
    for message in asked.messages:
        if renderer is not None and any(map(media, tags(message).values())):
            told = "a message with images, files or sound"
            raise Rejected(told, remedy="This model reads text alone.", param="messages")
        prev = nodes[-1] if nodes else None
        ids = renderer.delta(prev, True, message, asked.tools) if renderer is not None else None
        nodes.append(make_node(prev, message, ids, renderer.ref if renderer is not None else ""))
    return tuple(nodes)


def fits(path: Sequence[Node], more: int, limits: Limits) -> None:
    """Refuse a prompt that is longer than the server takes.

    Raises:
        Rejected: it is.
    """
    length = sum(len(node.ids) for node in path if node.ids is not None) + more
    if limits.prompt is not None and length > limits.prompt:
        told = f"{length} prompt tokens; this server takes at most {limits.prompt}"
        raise Rejected(told, remedy="Shorten the conversation.", code="context_length_exceeded")
