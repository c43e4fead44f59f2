"""Replies held to a grammar: they match it, their logprobs are of the law in force, and others do not notice."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from clew.core.errors import BadInput
from clew.core.values import ToolSpec
from clew.models.local import Local
from clew.models.remote.request_body import held_to
from clew.models.rendering import ChatTemplateRenderer
from tests.engine.helpers import Talk, ask
from tests.engine.test_rendering import PLAIN, local, tokenizer

pytest.importorskip("llguidance")
SCHEMA = {
    "type": "object",
    "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 99}, "kind": {"enum": ["x", "yy"]}},
    "required": ["n", "kind"],
    "additionalProperties": False,
}
ONE = """'{"name": "' + c.function.name + '", "arguments": ' + (c.function.arguments | tojson) + '}'"""
TURN = """{%- for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content }}CALLS
{{- '<|im_end|>\n' }}{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{%- endif %}"""
HERMES = TURN.replace("CALLS", """{%- for c in m.tool_calls or [] %}
{{- '<tool_call>\n' + ONE + '\n</tool_call>' }}{%- endfor %}""").replace("ONE", ONE)  # fmt: skip
MISTRAL = TURN.replace("CALLS", """{%- if m.tool_calls %}{{ '[TOOL_CALLS] [' }}{%- for c in m.tool_calls %}
{{- ONE }}{%- endfor %}{{ ']' }}{%- endif %}""").replace("ONE", ONE)  # fmt: skip
SIDES = {"side": {"enum": ["left", "right"]}}
LOOK = ToolSpec("look", "", {"type": "object", "properties": {"at": {"$ref": "#/$defs/side"}}, "required": ["at"],
                             "additionalProperties": False, "$defs": SIDES})  # fmt: skip
WAIT = ToolSpec("wait", "", {"type": "object", "properties": {}, "additionalProperties": False})


@pytest.fixture(scope="module")
def model() -> Local:
    return local(ChatTemplateRenderer(tokenizer(PLAIN)))


def test_replies_match_their_schema(model: Local) -> None:
    talk, grammar = Talk(model).say("hi"), "json:" + json.dumps(SCHEMA)
    whole = ask(model, [talk.request(i, max_tokens=200, grammar=grammar) for i in range(12)])
    read = [json.loads(c.message.text) for c in whole if c.finish == "stop"]
    assert len(read) == 12
    assert all(list(r) == ["n", "kind"] and 0 <= r["n"] <= 99 and r["kind"] in ("x", "yy") for r in read)
    assert len({r["n"] for r in read}) > 3
    for done in ask(model, [talk.request(i, max_tokens=60, grammar="json") for i in range(6)]):
        if done.finish == "stop":
            json.loads(done.message.text)


@pytest.mark.parametrize("settings", [{}, {"temperature": 0.7, "top_k": 3}, {"temperature": 0.0}], ids=str)
def test_logprobs_are_of_the_masked_law_renormalised(model: Local, settings: dict[str, Any]) -> None:
    """Of a grammar whose allowed tokens can be said by hand."""
    talk = Talk(model).say("hi")
    asked = talk.request(4, max_tokens=40, grammar="regex:[a-f]{6}", tops=2, **settings)
    (done,) = ask(model, [asked])
    assert re.fullmatch("[a-f]{6}", done.message.text)
    letters = [model.renderer.encode(c)[0] for c in "abcdef"]
    ids = [*talk.ids, *asked.head, *(done.tokens or ())]
    with torch.no_grad():
        logits = model.module(torch.tensor([ids]), use_cache=False).logits[0].double()
    at = len(ids) - len(done.tokens or ()) - 1
    for place in range(6):
        row = torch.full_like(logits[0], float("-inf"))
        row[letters] = logits[at + place, letters] / (settings.get("temperature") or 1)
        if settings:
            k = 1 if settings["temperature"] == 0 else 3
            row[row < row.topk(k).values[-1]] = float("-inf")
        law = row.log_softmax(-1)
        assert done.logprobs is not None
        assert done.entropies is not None
        assert done.plain is not None
        assert done.logprobs[place] == pytest.approx(float(law[ids[at + place + 1]]), abs=1e-4)
        assert done.entropies[place] == pytest.approx(float(-(law.exp() * law.clamp(min=-1e30)).sum()), abs=1e-4)
        free = logits[at + place].log_softmax(-1)
        assert done.plain[place] == pytest.approx(float(free[ids[at + place + 1]]), abs=1e-4)
    assert done.logprobs is not None
    assert (done.tokens or ())[-1] in model.renderer.stop
    assert done.logprobs[-1] == 0  # nothing else may follow


def test_free_rows_keep_their_bits_beside_held_ones() -> None:
    renderer = ChatTemplateRenderer(tokenizer(PLAIN))
    talks = [Talk(local(renderer), f"r{i}").say(f"say {i}") for i in range(6)]
    free = [t.request(i, max_tokens=50) for i, t in enumerate(talks)]
    held = [t.request(9 + i, max_tokens=50, grammar="regex:[ab]{40,}")._replace(run="") for i, t in enumerate(talks)]
    for steady in (True, False):
        model, alone = Local(talks[0].model.module, renderer=renderer, steady=steady), local(renderer)
        if steady:
            alone = Local(talks[0].model.module, renderer=renderer, steady=True)
        mixed, apart = ask(model, [r for pair in zip(free, held, strict=True) for r in pair]), ask(alone, free)
        for one, other in zip(mixed[::2], apart, strict=True):
            assert one.tokens == other.tokens
            if steady:
                np.testing.assert_array_equal(one.logprobs, other.logprobs)
        assert all(re.fullmatch("[ab]*", c.message.text) for c in mixed[1::2])


def test_forced_tokens_go_through_the_grammar(model: Local) -> None:
    talk, forced = Talk(model).say("hi"), model.renderer.encode("abc")
    grammar = "regex:abc[de]{3}"
    (done,) = ask(model, [talk.request(1, forced, max_tokens=30, grammar=grammar)])
    assert re.fullmatch(grammar[6:], done.message.text)
    with pytest.raises(BadInput, match="forced"):
        ask(model, [talk.request(1, model.renderer.encode("x"), max_tokens=30, grammar=grammar)])


@pytest.mark.parametrize(
    "grammar",
    ["json:{", "json:[1]", 'json:{"type":"nothing"}', 'json:{"type":"string","pattern":"(?=a)b"}', "regex:(", "regex:",
     "lark:start: nowhere", "yaml:a"],
)  # fmt: skip
def test_what_is_no_grammar_is_refused_with_the_reason(model: Local, grammar: str) -> None:
    with pytest.raises(BadInput) as told:
        ask(model, [Talk(model).say("hi").request(1, grammar=grammar)])
    assert len(told.value.message) > len("cannot hold a reply")
    assert told.value.remedy


def test_a_word_vocabulary_cannot_be_held(make: Callable[..., Local]) -> None:
    model = make()
    with pytest.raises(BadInput, match="grammar"):
        ask(model, [Talk(model).say("w1").request(1, grammar="json")])


@pytest.mark.parametrize(("template", "special"), [(HERMES, False), (HERMES, True), (MISTRAL, True)])
def test_a_required_call_is_one_that_parses(template: str, special: bool) -> None:
    words = tokenizer(template)
    if special:
        words.add_special_tokens({"additional_special_tokens": ["<tool_call>", "</tool_call>", "[TOOL_CALLS]"]})
    model = local(ChatTemplateRenderer(words))
    talk = Talk(model).say("hi")
    assert isinstance(model.renderer, ChatTemplateRenderer)
    names = set()
    for parallel in (False, True):
        grammar = model.renderer.call_grammar([LOOK, WAIT], parallel)
        for done in ask(model, [talk.request(i, max_tokens=200, grammar=grammar) for i in range(8)]):
            if done.finish == "stop":
                assert done.message.calls
                assert parallel or len(done.message.calls) == 1
                assert done.message.text == ""
                names |= {(c.name, c.arguments) for c in done.message.calls}
    assert names == {("look", '{"at": "left"}'), ("look", '{"at": "right"}'), ("wait", "{}")}


def test_calls_of_an_unknown_form_are_refused(model: Local) -> None:
    assert isinstance(model.renderer, ChatTemplateRenderer)
    with pytest.raises(BadInput, match="known form"):
        model.renderer.call_grammar([LOOK])


def test_endpoints_are_asked_in_their_own_words() -> None:
    schema = {"type": "object"}
    assert held_to("json", "chat") == {"response_format": {"type": "json_object"}}
    asked = held_to("json:" + json.dumps(schema), "chat")["response_format"]
    assert asked == {"type": "json_schema", "json_schema": {"name": "reply", "schema": schema, "strict": True}}
    assert held_to("regex:a:b", "completions") == {"structured_outputs": {"regex": "a:b"}}
    with pytest.raises(BadInput, match="messages"):
        held_to("json", "messages")
