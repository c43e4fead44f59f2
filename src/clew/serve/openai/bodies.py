"""Writes answers as HTTP bodies, whole or as server-sent events, in the format of the endpoint that was asked. The
server makes one Writer for each answer. A Writer must never show tokens or logprobs that nobody asked for."""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any

from clew.core.errors import ClewError
from clew.core.protocols import Model
from clew.core.values import Completion, Message, Piece, Usage
from clew.models.dialects import Json, chat, completions, messages, responses, sse
from clew.models.dialects.logprobs import columns, spelt
from clew.models.kept import listed
from clew.serve.openai.answers import Indexed, Prompt, Raw, raw
from clew.serve.openai.questions import Question
from clew.serve.refusals import error_event, unbroken

PREFIX = {"chat": "chatcmpl-", "completions": "cmpl-", "responses": "resp_", "messages": "msg_"}
NAMED = ("responses", "messages")  # streams whose events have names


class Writer:
    """Writes the answer to one question.

    Args:
        prompts: one for each prompt of the question; what is told of them.
        name: the answer's id; a new one where empty.
    """

    def __init__(self, question: Question, model: Model, prompts: Sequence[Prompt], name: str = "") -> None:
        self.question, self.model, self.prompts = question, model, prompts
        self.about: Json = {
            "id": name or PREFIX[question.endpoint] + uuid.uuid4().hex,
            "created": int(time.time()),
            "model": question.asked.model,
        }
        self.done: dict[int, Completion] = {}
        self._sent: dict[int, str] = {}
        self._thought: dict[int, str] = {}
        self._before: dict[int, Message | None] = {}
        self._tokens: dict[int, int] = {}
        self._raw: dict[int, Raw] = {}

    # ---- whole -----------------------------------------------------------------------------------------------------

    def whole(self, found: Sequence[Completion]) -> Json:
        """The body of an answer with these choices.

        Raises:
            ModelError: one of them broke off.
        """
        found = [unbroken(c) for c in found]
        if self.question.endpoint == "completions":
            choices = [self._choice(i, c) for i, c in enumerate(found)]
            return completions.frame(choices, **self.about, usage=self.usage(found))
        if self.question.endpoint == "responses":
            return self._response(responses.completion_to_wire(self._told(found[0]), **self.about, shown=self.shown))
        if self.question.endpoint == "messages":
            return messages.completion_to_wire(self._told(found[0]), **self.about)
        bodies = [chat.completion_to_wire(self._told(c), **self.about, shown=self.shown) for c in found]
        out = bodies[0] | {"choices": [b["choices"][0] | {"index": i} for i, b in enumerate(bodies)]}
        usage = self.usage(found)
        out |= {"usage": chat.usage_to_wire(usage)} if usage != Usage() else {}
        return self._own(out) | self._of_prompt(0)

    def usage(self, found: Sequence[Completion]) -> Usage:
        """Tokens of all choices together; each prompt counts once."""
        firsts = [c.usage for i, c in enumerate(found) if i % self.question.n == 0]
        prompt, cached = sum(u.prompt for u in firsts), sum(u.cached for u in firsts)
        return Usage(prompt, sum(c.usage.completion for c in found), cached)

    @property
    def shown(self) -> Callable[[int], str]:
        """A token's text."""
        decode = getattr(self.model.renderer, "decode", None)
        if self.question.spelt or decode is None:
            return spelt
        return lambda token: str(decode([token]))

    @property
    def _told_by_token(self) -> bool:
        return self.question.tops is not None or self.question.asked.token_ids

    def _told(self, completion: Completion) -> Completion:
        """Without the tokens and logprobs that nobody asked for."""
        asked = self.question.asked
        if self.question.tops is None:
            completion = completion._replace(logprobs=None, plain=None, tops=None)
        keep = asked.token_ids or self.question.tops is not None
        return completion._replace(tokens=completion.tokens if keep else None, prompt=None)

    def _own(self, body: Json) -> Json:
        """Token ids only where they were asked for."""
        for choice in () if self.question.asked.token_ids else body.get("choices", ()):
            choice.pop("token_ids", None)
        return body

    def _of_prompt(self, index: int) -> Json:
        prompt, out = self.prompts[index], Json()
        if self.question.asked.token_ids:
            out["prompt_token_ids"] = list(prompt.ids)
        if self.question.scored is not None:
            out["prompt_logprobs"] = self._prompt_logprobs(prompt)
        return out

    def _prompt_logprobs(self, prompt: Prompt) -> list[Any]:
        """As vLLM writes them: for each token but the first, by id, it and the likeliest in its place."""
        assert prompt.logprobs is not None
        out: list[Any] = [None]
        for place, (token, value) in enumerate(zip(prompt.ids[1:], prompt.logprobs.tolist(), strict=True)):
            likely = prompt.tops[place] if prompt.tops is not None else ()
            told: Json = {str(token): {"logprob": value, "decoded_token": self.shown(token)}}
            for rank, (other, chance) in enumerate(likely, 1):
                told[str(other)] = {"logprob": chance, "rank": rank, "decoded_token": self.shown(other)}
            out.append(told)
        return out

    def _echoed(self, prompt: Prompt) -> Json | None:
        """Columns of an echoed prompt; its first token has no logprob."""
        if prompt.logprobs is None:
            return None
        tops = [(), *prompt.tops] if prompt.tops is not None else None
        return columns(prompt.ids, [None, *prompt.logprobs.tolist()], tops, self.shown)

    def _choice(self, index: int, completion: Completion) -> Json:
        """A choice of completions: what was sampled as it is, after the prompt where that is echoed."""
        question, place = self.question, index // self.question.n
        prompt, text = self.prompts[place], raw(self.model, completion, question.asked.sampling.stop)
        told = None
        if question.tops is not None:
            told = self._columns(completion, 0, len(prompt.text) if question.echo else 0)
            if question.echo and (before := self._echoed(prompt)) is not None:
                told = {k: [*before[k], *told[k]] if told[k] is not None else None for k in told}
        out = completions.choice(index, (prompt.text if question.echo else "") + text, completion.finish, told)
        if question.asked.token_ids:
            out |= {"token_ids": list(completion.tokens or ()), **law_of(completion)}
        return out | self._of_prompt(place) | self._versions(completion)

    def _versions(self, completion: Completion) -> Json:
        """Which weights sampled which tokens, where that was asked for."""
        if not self.question.body.get("return_weight_versions"):
            return {}
        count = len(completion.tokens or ())
        return {"weight_versions": completions.spans_to_wire(completion.inner, completion.version, count)}

    def _columns(self, completion: Completion | Piece, start: int, offset: int) -> Json:
        values = completion.logprobs if completion.plain is None else completion.plain
        numbers = values.tolist()[start:] if values is not None else []
        tops = completion.tops[start:] if completion.tops is not None and self.question.tops else None
        return columns((completion.tokens or ())[start:], numbers, tops, self.shown, offset)

    def _response(self, body: Json) -> Json:
        """With what the responses API tells of the request."""
        asked = self.question.body
        given = {k: asked.get(k) for k in ("instructions", "previous_response_id", "max_output_tokens")}
        kept: Json = {k: asked[k] for k in ("temperature", "top_p", "metadata", "tools", "tool_choice") if k in asked}
        text = asked.get("text") or {"format": {"type": "text"}}
        plain: Json = {"error": None, "metadata": {}, "tools": [], "tool_choice": "auto", "parallel_tool_calls": True}
        return {**plain, **given, "text": text, "temperature": 1.0, "top_p": 1.0, **kept, **body}

    # ---- streamed --------------------------------------------------------------------------------------------------

    async def events(self, items: Indexed) -> AsyncIterator[str]:
        """The answer as server-sent events.

        Raises:
            ModelError: it broke off.
        """
        write = {"chat": self._chat, "completions": self._completions}.get(self.question.endpoint, self._blocks)
        named, number = self.question.endpoint in NAMED, 0
        async for index, item in items:
            if isinstance(item, Completion):
                self.done[index] = unbroken(item)
            for event in write(index, item):
                if self.question.endpoint == "responses":
                    event["sequence_number"], number = number, number + 1
                yield sse.write(event, str(event["type"]) if named else "")
        found = [self.done[i] for i in sorted(self.done)]
        if named:
            return
        usage = self.usage(found)
        if self.question.usage and usage != Usage():
            last = completions.frame([], **self.about, usage=usage)
            if self.question.endpoint == "chat":
                last |= {"object": "chat.completion.chunk"}
            yield sse.write(last)
        yield "data: [DONE]\n\n"

    def failed(self, error: ClewError) -> str:
        """The end of a stream that cannot go on."""
        endpoint = self.question.endpoint
        return sse.write(error_event(error, endpoint), "error" if endpoint in NAMED else "")

    def _chat(self, index: int, item: Piece | Completion) -> Iterator[Json]:
        for event in self._begun(index) if isinstance(item, Piece) else ():
            yield event
        sent = self._tokens.get(index, 0)
        if isinstance(item, Piece):
            if not (item or item.reasoning or (item.tokens and self._told_by_token)):
                return
            chunk = chat.piece(str(item), **self.about)
            (choice,) = chunk["choices"]
            choice["index"] = index
            if item.reasoning:
                choice["delta"] |= {"reasoning_content": item.reasoning}
            self._note(index, item)
            if item.tokens and item.logprobs is not None:
                part = Completion(_NOTHING, item.tokens, item.logprobs, plain=item.plain, tops=item.tops)
                told = chat.completion_to_wire(self._told(part), **self.about, shown=self.shown)["choices"][0]
                choice |= {k: told[k] for k in ("logprobs", "token_ids") if told.get(k) is not None}
            yield self._own(chunk)
            return
        left, text = self._told(_rest(item, sent)), self._sent.get(index, "")
        message = left.message._replace(reasoning=left.message.reasoning.removeprefix(self._thought.get(index, "")))
        for event in chat.events(left._replace(message=message), **self.about, shown=self.shown, sent=text):
            for choice in event["choices"]:
                choice["index"] = index
                if index in self._sent:
                    choice["delta"].pop("role", None)  # was sent; clients would join the two
            if event["choices"]:  # the usage comes at the end of all
                yield self._own(event | (self._of_prompt(0) if event["choices"][0]["finish_reason"] else {}))

    def _begun(self, index: int) -> Iterator[Json]:
        if index not in self._sent:
            self._sent[index] = ""
            for event in chat.begin(**self.about):
                event["choices"][0]["index"] = index
                yield event

    def _note(self, index: int, item: Piece) -> None:
        self._sent[index] = self._sent.get(index, "") + item
        self._thought[index] = self._thought.get(index, "") + item.reasoning
        self._tokens[index] = self._tokens.get(index, 0) + len(item.tokens)

    def _completions(self, index: int, item: Piece | Completion) -> Iterator[Json]:
        question, place = self.question, index // self.question.n
        stops = question.asked.sampling.stop
        if index not in self._sent:
            self._sent[index], self._raw[index] = "", Raw(self.model, stops)
            if question.echo:
                yield completions.frame([self._echo(index, place)], **self.about)
        before, sent = self._sent[index], self._tokens.get(index, 0)
        if isinstance(item, Piece):
            text, finish, tokens = self._raw[index].add(item.tokens), None, item.tokens
            self._note(index, Piece(text, tokens))
            told = self._columns(item, 0, len(before)) if question.tops is not None else None
            if not (text or (tokens and self._told_by_token)):
                return
        else:
            text, finish = self._raw[index].rest(raw(self.model, item, stops)), item.finish
            tokens = (item.tokens or ())[sent:]
            told = self._columns(item, sent, len(before)) if question.tops is not None else None
        choice = completions.choice(index, text, finish, told)
        if question.asked.token_ids:
            choice |= {"token_ids": list(tokens), **(law_of(item) if isinstance(item, Completion) else {})}
        last = self._of_prompt(place) | self._versions(item) if isinstance(item, Completion) else {}
        yield completions.frame([choice | last], **self.about)

    def _echo(self, index: int, place: int) -> Json:
        prompt = self.prompts[place]
        return completions.choice(index, prompt.text, None, self._echoed(prompt))

    def _blocks(self, index: int, item: Piece | Completion) -> Iterator[Json]:
        """Events of responses and of Anthropic's messages: of blocks, of which a thought stands before the text."""
        dialect: Any = responses if self.question.endpoint == "responses" else messages
        if isinstance(item, Piece):
            thought = self._thought[index] = self._thought.get(index, "") + item.reasoning
            if not item:
                return
            if not self._sent.get(index):
                self._before[index] = item.before or Message("assistant", str(item), thought)
                self._sent[index] = ""
                yield from map(self._whole_response, dialect.begin(**self.about, before=self._before[index]))
            self._sent[index] += item
            yield dialect.piece(str(item), **self.about, before=self._before[index])
            return
        more: Json = {"sent": self._sent.get(index, ""), "before": self._before.get(index)}
        more |= {"shown": self.shown} if dialect is responses else {}
        yield from map(self._whole_response, dialect.events(self._told(item), **self.about, **more))

    def _whole_response(self, event: Json) -> Json:
        return event | ({"response": self._response(event["response"])} if "response" in event else {})


def law_of(completion: Completion) -> Json:
    """What truncation left at each token and the logprobs (nats) under that law, with which such replies train."""
    if not completion.kept or completion.logprobs is None:
        return {}
    return {"sampling_mask": listed(completion.kept), "sampling_logprobs": completion.logprobs.tolist()}


_NOTHING = Message("assistant", "")


def _rest(completion: Completion, sent: int) -> Completion:
    """The completion with the tokens that were not sent yet."""
    names = ("tokens", "logprobs", "plain", "tops")
    given = {name: value for name in names if (value := getattr(completion, name)) is not None}
    return completion._replace(**{name: value[sent:] for name, value in given.items()})
