"""Replies held to a grammar: JSON of a schema, a regular expression, or a context-free grammar, by llguidance."""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from clew.core.errors import BadInput, need

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

KEPT = 64  # grammars that stay compiled
BLANKS = {"whitespace_pattern": r" ?|\n[ \t]{0,32}"}  # JSON allows any number, and a weak model fills a page with them
FORMS = 'Write "json", "json:" and a schema, "regex:" and an expression, or "lark:" and a grammar.'


class Grammars:
    """Guides for the replies of one tokenizer.

    Args:
        tokenizer: a fast Hugging Face tokenizer.
        stop: ids that end a reply.
        vocabulary: number of logits, which may be more than the tokenizer has ids.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, stop: Sequence[int], vocabulary: int) -> None:
        self._tokenizer, self._stop, self._vocabulary = tokenizer, sorted(stop), vocabulary
        self._words: Any = None
        self._made: OrderedDict[str, Any] = OrderedDict()
        self._lock = threading.Lock()

    def guide(self, grammar: str) -> Guide:
        """A guide at the start of a reply.

        Raises:
            BadInput: the text is no grammar, or one llguidance cannot enforce. MissingExtra: it is not installed.
        """
        with self._lock:
            matcher = self._made.get(grammar)
            if matcher is None:
                matcher = self._made[grammar] = self._compiled(grammar)
                if len(self._made) > KEPT:
                    self._made.popitem(last=False)
            self._made.move_to_end(grammar)
            return Guide(matcher.deep_copy(), self._stop, self._vocabulary)

    def _compiled(self, grammar: str) -> Any:
        library = need("llguidance", "local")
        if self._words is None:
            hf = need("llguidance.hf", "local")
            self._words = hf.from_tokenizer(self._tokenizer, n_vocab=self._vocabulary, eos_token=list(self._stop))
        kind, _, text = grammar.partition(":")
        make = library.LLMatcher
        if kind == "json":
            source = make.grammar_from_json_schema(json.dumps(schema_of(text)), defaults=BLANKS)
        elif kind in ("regex", "lark") and text:
            source = make.grammar_from_regex(text) if kind == "regex" else make.grammar_from_lark(text)
        else:
            raise BadInput(f"{grammar[:60]!r} is not a grammar", remedy=FORMS)
        matcher = make(self._words, source, log_level=0)
        if matcher.is_error():
            said = " ".join(matcher.get_error().split())[:300]
            raise BadInput(f"cannot hold a reply to {grammar[:60]!r}: {said}", remedy="Change the grammar, or drop it.")
        return matcher


class Guide:
    """Where one reply stands in its grammar."""

    def __init__(self, matcher: Any, stop: Sequence[int], vocabulary: int) -> None:
        self._matcher, self._stop, self._vocabulary = matcher, frozenset(stop), vocabulary

    def take(self, tokens: Sequence[int]) -> bool:
        """Go on by these tokens; False where the grammar does not allow them."""
        return bool(self._matcher.consume_tokens([t for t in tokens if t not in self._stop]))

    def banned(self) -> npt.NDArray[np.bool_] | None:
        """Tokens that may not come next, [vocabulary]; None where none may."""
        if self._matcher.is_error():
            return None
        if self._matcher.is_stopped():
            found = np.ones(self._vocabulary, bool)
        else:
            found = np.frombuffer(self._matcher.compute_logit_bias(), np.uint8)[: self._vocabulary] == 0
        if self._matcher.is_accepting():
            found[[t for t in self._stop if t < self._vocabulary]] = False
        return None if found.all() else found

    def error(self) -> str:
        return " ".join(self._matcher.get_error().split())[:300] or "its end is not a token of this model"


def schema_of(text: str) -> dict[str, object] | bool:
    """The schema after ``json:``; every JSON value where there is none.

    Raises:
        BadInput: it is not a JSON object or a truth value.
    """
    try:
        schema = json.loads(text) if text.strip() else {}
    except ValueError as error:
        raise BadInput(f"the JSON schema is not JSON: {error}", remedy=FORMS) from None
    if not isinstance(schema, (dict, bool)):
        raise BadInput(f"the JSON schema is a {type(schema).__name__}", remedy="Give an object.")
    return schema
