"""Renderers: messages to token deltas that are only ever appended, and sampled ids back to messages.

A sampled span is never tokenised again. Along a path the deltas concatenate to exactly what the model received,
whatever a chat template would make of the whole history (DESIGN.md rule 7).
"""

from __future__ import annotations

import copy
import inspect
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from clew.core.errors import BadInput, need
from clew.core.keys import encode as utf8
from clew.core.keys import value_digest
from clew.core.records import Node
from clew.core.values import Message, ToolCall, ToolSpec
from clew.models.replies import FORMATS, call_grammar, parse_reply, settled_reply
from clew.models.template_bounds import rendered

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Json = dict[str, Any]
UNKNOWN, BOS, END = "<|unk|>", "<|bos|>", "<|end|>"
ROLES = {"system": "<|system|>", "user": "<|user|>", "assistant": "<|assistant|>", "tool": "<|tool|>"}
SPECIALS = (UNKNOWN, BOS, END, *ROLES.values())
SENTINEL = "Q7sentinelZ"
_PIECE = re.compile(r"</?[a-z_]+>|[a-zA-Z]+|[^a-zA-Z0-9<]+|[\s\S]")


def is_closed(prev: Node, closed: bool, stop: frozenset[int]) -> bool:
    """Whether ``prev`` ended its own message. Tokens decide where there are any: a doubled end token ruins training."""
    if prev.message.role == "assistant" and prev.ids:
        return prev.ids[-1] in stop
    return closed


class WordRenderer:
    """Terse renderer of a word-level vocabulary: ``<|role|> word word ... <|end|>``, ``<|bos|>`` at the root.

    Content is split at white space; a word outside the vocabulary becomes ``<|unk|>``, and so does the name of a
    special token, so that no observation can open or end a message.

    Args:
        words: the vocabulary in order of id; the special tokens come first and are added where missing.
        whole: refuse what is not one word.
    """

    rewrites = False

    def __init__(self, words: Iterable[str], whole: bool = True) -> None:
        self.words = list(dict.fromkeys([*SPECIALS, *words]))
        bad = [w for w in self.words if len(w.split()) != 1]
        if bad and whole:
            raise BadInput(f"{bad[0]!r} is not one word", remedy="Give words without white space in them.")
        ids = {word: i for i, word in enumerate(self.words)}
        self._unknown, self._bos, self._end = ids[UNKNOWN], ids[BOS], ids[END]
        self._role = {role: ids[token] for role, token in ROLES.items()}
        self._ids = {word: i for word, i in ids.items() if word not in SPECIALS}
        self._shown = {i: None if word in SPECIALS and word != UNKNOWN else word for i, word in enumerate(self.words)}
        self.stop = frozenset([self._end])
        self.ref = f"words:{value_digest(self.words).hex()[:16]}"

    def delta(self, prev: Node | None, closed: bool, message: Message, tools: Sequence[ToolSpec]) -> tuple[int, ...]:
        """Ids that ``message`` adds after ``prev``; a reply that was cut gets its end token here.

        Raises:
            BadInput: tools are given, which a word vocabulary cannot describe, or a role it has no token for.
        """
        if tools:
            raise BadInput("a word-level renderer cannot show tools", remedy="Use a tokenizer with a chat template.")
        if message.role not in self._role:
            raise BadInput(f"no token for role {message.role!r}", remedy=f"Use one of {', '.join(self._role)}.")
        start = (self._bos,) if prev is None else () if is_closed(prev, closed, self.stop) else (self._end,)
        return (*start, self._role[message.role], *self.encode(message.text), self._end)

    def head(self) -> tuple[int, ...]:
        return (self._role["assistant"],)

    def encode(self, text: str) -> tuple[int, ...]:
        ids, unknown = self._ids, self._unknown
        return tuple([ids.get(word, unknown) for word in text.split()])

    def decode(self, ids: Sequence[int]) -> str:
        shown = self._shown.get  # a model's matrix may have more rows than there are words
        return " ".join([word for i in ids if (word := shown(i, UNKNOWN)) is not None])

    def parse(self, ids: Sequence[int]) -> Message:
        return Message("assistant", self.decode(ids))

    def tokenizer(self) -> PreTrainedTokenizerBase:
        """The same vocabulary as a Hugging Face tokenizer, for saving beside the weights.

        Raises:
            MissingExtra: transformers is not installed.
        """
        transformers, tokenizers = need("transformers", "local"), need("tokenizers", "local")
        vocabulary = {word: i for i, word in enumerate(self.words)}
        inner = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token=UNKNOWN))
        inner.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
        named: dict[str, Any] = {"unk_token": UNKNOWN, "pad_token": UNKNOWN, "bos_token": BOS, "eos_token": END}
        named["additional_special_tokens"] = [t for t in SPECIALS if t not in (UNKNOWN, BOS, END)]
        return transformers.PreTrainedTokenizerFast(tokenizer_object=inner, **named)

    def settings(self) -> dict[str, Any]:
        """What rebuilds this renderer."""
        return {"kind": "words", "words": self.words}


def pieces_of(text: str) -> list[str]:
    """A text cut at every place where letters, digits and signs meet, each digit alone, nothing lost: ids and numbers
    that were never seen are made of pieces that were. A tag like ``<state>`` is one piece."""
    return _PIECE.findall(text)


class PieceRenderer(WordRenderer):
    """The same of a vocabulary of pieces of words, as ``pieces_of`` cuts them, white space among them.

    Args:
        words: the pieces in order of id.
    """

    def __init__(self, words: Iterable[str]) -> None:
        super().__init__(words, whole=False)
        self.ref = self.ref.replace("words:", "pieces:")

    def encode(self, text: str) -> tuple[int, ...]:
        ids, unknown = self._ids, self._unknown
        return tuple([ids.get(piece, unknown) for piece in pieces_of(text)])

    def decode(self, ids: Sequence[int]) -> str:
        shown = self._shown.get
        return "".join([piece for i in ids if (piece := shown(i, UNKNOWN)) is not None])

    def tokenizer(self) -> PreTrainedTokenizerBase:
        """The same vocabulary as a Hugging Face tokenizer.

        Raises:
            MissingExtra: transformers is not installed.
        """
        tokenizers, made = need("tokenizers", "local"), super().tokenizer()
        inner: Any = getattr(made, "backend_tokenizer", None)
        inner.pre_tokenizer = tokenizers.pre_tokenizers.Split(tokenizers.Regex(_PIECE.pattern), "isolated")
        inner.decoder = tokenizers.decoders.Fuse()
        return made

    def settings(self) -> dict[str, Any]:
        return {"kind": "pieces", "words": self.words}


class ChatTemplateRenderer:
    """Deltas of any Hugging Face tokenizer with a chat template.

    The delta after a reply is what the template puts behind a sentinel reply; elsewhere it is what the template
    adds to the shortest history that ends in the message before. ``rewrites`` says whether the template's own
    rendering of a longer history differs from these deltas, as where earlier reasoning is dropped.

    Args:
        tokenizer: with a ``chat_template``.
        stop: ids that end a reply, beside the tokenizer's own end token.
        template: variables of the chat template, such as ``{"enable_thinking": False}``.

    Raises:
        BadInput: no chat template, or one that cannot render a user message and a reply.
    """

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase, stop: Iterable[int] = (), template: Mapping[str, object] | None = None
    ) -> None:
        if not tokenizer.chat_template:
            raise BadInput(
                "the tokenizer has no chat template", remedy="Set tokenizer.chat_template, or pass renderer=."
            )
        self.tokenizer: Any = tokenizer
        self._parts = [self._vocabulary(), str(tokenizer.chat_template)]
        self._extra = frozenset(stop)
        self._read(dict(template or {}))

    def varied(self, template: Mapping[str, object]) -> ChatTemplateRenderer:
        """This renderer with more variables of the chat template, or other values of its own.

        Raises:
            BadInput: a name that is not free, or the template cannot render a user message and a reply under them.
        """
        other = copy.copy(self)
        other._read({**self.template, **template})
        return other

    def _read(self, template: dict[str, object]) -> None:
        """Find out how the chat template writes messages under these variables."""
        own = inspect.signature(self.tokenizer.apply_chat_template).parameters
        if taken := template.keys() & {
            "messages",
            "tools",
            *(n for n, p in own.items() if p.kind is not p.VAR_KEYWORD),
        }:
            told = f"the chat template's variable {min(taken)!r} is not free"
            raise BadInput(told, remedy="Set others, such as enable_thinking.")
        self.template = template
        self._user = {"role": "user", "content": "hi"}
        asked = self._text([self._user])
        self._head_text = self._after(asked, self._text([self._user], head=True), "the generation prompt")
        self._tail = self._text([self._user, {"role": "assistant", "content": SENTINEL}]).partition(SENTINEL)[2]
        tail, end = self.encode(self._tail), self.tokenizer.eos_token_id
        special = set(self.tokenizer.all_special_ids)
        ends = [i for i in tail[:1] if i in special or i == end]
        self.stop = frozenset([*self._extra, *ends, *([] if end is None else [end])])
        if not self.stop:
            raise BadInput("the tokenizer names no end token", remedy="Set tokenizer.eos_token, or pass stop ids.")
        self._head = self.encode(self._head_text)
        parts = [*self._parts, sorted(self.stop)]
        digest = value_digest([*parts, self.template] if self.template else parts)
        self.ref = f"chat:{digest.hex()[:16]}"
        self.rewrites = self._finds_rewriting()

    def delta(self, prev: Node | None, closed: bool, message: Message, tools: Sequence[ToolSpec]) -> tuple[int, ...]:
        """Ids that ``message`` adds after ``prev``; a reply that was cut gets its end token here.

        Raises:
            BadInput: the template refuses this order of roles, or changes what came before.
        """
        schemas = [_schema(t) for t in tools] or None
        before = [] if prev is None else self._history(prev.message)
        base = self._text(before, schemas) if before else ""
        whole = self._text([*before, _wire(message)], schemas)
        if prev is not None and prev.message.role == "assistant":
            place = whole.rfind(SENTINEL)
            if place < 0:
                raise BadInput("the chat template drops the reply before a message", remedy="Use another template.")
            text = whole[place + len(SENTINEL) :]
        else:
            text = self._after(base, whole, f"a {message.role} message")
        ids = self.encode(text)
        if prev is not None and prev.message.role == "assistant":
            ids = self._join(ids, is_closed(prev, closed, self.stop))
        return self._trim(ids) if message.role == "assistant" else ids

    def head(self) -> tuple[int, ...]:
        return self._head

    def encode(self, text: str) -> tuple[int, ...]:
        """Ids of ``text`` as it stands; lone surrogates become U+FFFD, the node's text keeps them."""
        clean = utf8(text).decode("utf-8", "replace")
        return tuple(self.tokenizer.encode(clean, add_special_tokens=False))

    def decode(self, ids: Sequence[int]) -> str:
        return str(self.tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False))

    def parse(self, ids: Sequence[int]) -> Message:
        """Reply text, reasoning (``<think>``) and tool calls of sampled ids; end tokens are not text."""
        ids = list(ids)
        while ids and ids[-1] in self.stop:
            ids.pop()
        return parse_reply(self._thought(self.decode(ids)))

    def settled(self, text: str) -> tuple[str, str]:
        """Text and reasoning that a reply beginning with ``text`` is sure to have."""
        return settled_reply(self._thought(text))

    def _thought(self, text: str) -> str:
        """A reply to a generation prompt that opens a thought, which has not ended, is all thought."""
        open_ = self._head_text.rstrip().endswith("<think>") and "</think>" not in text
        return "<think>" + text if open_ else text

    def call_grammar(self, tools: Sequence[ToolSpec], parallel: bool = True) -> str:
        """A ``Sampling.grammar`` under which a reply calls one of ``tools``, or several, and says nothing else.

        Raises:
            BadInput: no tools are given, or the template writes calls in a form that is not known here.
        """
        form = self.called()
        if not form or not tools:
            raise BadInput(
                "no tools to choose from"
                if form
                else "this model's template does not write tool calls in a known form",
                remedy="Name the tools." if form else "Leave the choice of tools to the model (tool_choice auto).",
            )
        special = {t.content: i for i, t in self.tokenizer.added_tokens_decoder.items() if t.special}
        return call_grammar(
            tools, form, lambda tag: f"<[{special[tag]}]>" if tag in special else json.dumps(tag), parallel
        )

    def called(self) -> str:
        """How the template writes a tool call: ``hermes``, ``mistral``, or nothing that ``parse`` would find again."""
        call = {"role": "assistant", "content": "", "tool_calls": [_wire_call(ToolCall("call000ab", SENTINEL, "{}"))]}
        try:
            text = self._text([self._user, call])
        except (BadInput, TypeError, ValueError):
            return ""
        for form, tag in FORMATS.items():
            if tag in text.partition(SENTINEL)[0]:
                return form if parse_reply(text[text.rfind(tag) :].removesuffix(self._tail)).calls else ""
        return ""

    def settings(self) -> dict[str, Any]:
        return {"kind": "chat", "stop": sorted(self.stop)} | ({"template": self.template} if self.template else {})

    def _text(self, messages: list[dict[str, Any]], tools: list[Json] | None = None, head: bool = False) -> str:
        import jinja2

        try:
            how = {"tools": tools, "tokenize": False, "add_generation_prompt": head, **self.template}
            return rendered(lambda: self.tokenizer.apply_chat_template(messages, **how))
        except jinja2.TemplateError as error:
            roles = ", ".join(m["role"] for m in messages)
            raise BadInput(f"the chat template refuses the roles {roles}: {error}") from error

    def _after(self, base: str, whole: str, what: str) -> str:
        if not whole.startswith(base):
            raise BadInput(
                f"the chat template changes earlier messages when it adds {what}",
                remedy="Put system text and tools in the first message, or use another template.",
            )
        return whole[len(base) :]

    def _history(self, last: Message) -> list[dict[str, Any]]:
        """The shortest history that ends in a message of ``last``'s kind."""
        if last.role == "assistant":
            return [self._user, {"role": "assistant", "content": SENTINEL}]
        if last.role != "tool":
            return [_wire(last)]
        call = {
            "role": "assistant",
            "content": "",
            "tool_calls": [_wire_call(ToolCall(last.call_id or "0", "f", "{}"))],
        }
        return [self._user, call, _wire(last)]

    def _join(self, ids: tuple[int, ...], closed: bool) -> tuple[int, ...]:
        """After a reply: drop the end token it sampled, or supply the one it was cut before."""
        ends = bool(ids) and ids[0] in self.stop
        if closed:
            return ids[1:] if ends else ids
        return ids

    def _trim(self, ids: tuple[int, ...]) -> tuple[int, ...]:
        """A reply written by the agent ends where a sampled one does: what follows belongs to the next delta."""
        last = max((i for i, token in enumerate(ids) if token in self.stop), default=len(ids) - 1)
        return ids[: last + 1]

    def _vocabulary(self) -> str:
        backend = getattr(self.tokenizer, "backend_tokenizer", None)
        return backend.to_str() if backend is not None else json.dumps(self.tokenizer.get_vocab(), sort_keys=True)

    def _finds_rewriting(self) -> bool:
        thought = {"role": "assistant", "content": "<think>\nfirst\n</think>\n\none", "reasoning_content": "first"}
        for reply in ({"role": "assistant", "content": "one"}, thought):
            try:
                short = self._text([self._user, reply])
                if not self._text([self._user, reply, self._user]).startswith(short):
                    return True
                if reply is thought and "first" not in short:
                    return True
            except BadInput:
                return True
        return False


def _wire_call(call: ToolCall) -> dict[str, Any]:
    try:
        arguments = json.loads(call.arguments)
    except ValueError:
        arguments = call.arguments
    return {"type": "function", "id": call.id, "function": {"name": call.name, "arguments": arguments}}


def _wire(message: Message) -> dict[str, Any]:
    wire: dict[str, Any] = {"role": message.role, "content": message.text}
    if message.reasoning:
        wire["reasoning_content"] = message.reasoning
    if message.calls:
        wire["tool_calls"] = [_wire_call(call) for call in message.calls]
    if message.call_id is not None:
        wire["tool_call_id"] = message.call_id
    return wire


def _schema(tool: ToolSpec) -> dict[str, Any]:
    return {
        "type": "function",
        "function": {"name": tool.name, "description": tool.description, "parameters": _plain(tool.schema)},
    }


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return {k: _plain(v) for k, v in value.items()}
    return [_plain(v) for v in value] if isinstance(value, (list, tuple)) else value
