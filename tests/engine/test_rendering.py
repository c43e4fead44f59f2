"""Renderers only append: the concatenation along a path is exactly what the model received."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import torch
import transformers

from clew.core.errors import BadInput
from clew.core.records import Request
from clew.core.values import Message, ToolCall, ToolSpec
from clew.models.local import Local, small
from clew.models.rendering import SPECIALS, ChatTemplateRenderer, PieceRenderer, WordRenderer, pieces_of
from clew.models.replies import parse_reply
from tests.engine.helpers import WORDS, Talk, ask, sharpen

PLAIN = """{%- if tools %}{{ '<|im_start|>tools\n' }}{%- for t in tools %}{{ t.function.name + ',' }}{%- endfor %}
{{- '<|im_end|>\n' }}{%- endif %}
{%- for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content }}
{%- for c in m.tool_calls or [] %}{{ '<tool_call>' + c.function.name + '</tool_call>' }}{%- endfor %}
{{- '<|im_end|>\n' }}{%- endfor %}{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{%- endif %}"""
FORGETS = """{%- set ns = namespace(last=0) %}{%- for m in messages %}{%- if m.role == 'user' %}
{%- set ns.last = loop.index0 %}{%- endif %}{%- endfor %}{%- for m in messages %}{%- set text = m.content %}
{%- if m.role == 'assistant' and loop.index0 < ns.last and '</think>' in text %}
{%- set text = text.split('</think>')[-1] | trim %}{%- endif %}
{{- '<|im_start|>' + m.role + '\n' + text + '<|im_end|>\n' }}{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{%- endif %}"""
STRICT = """{{ '<s>' }}{%- for m in messages %}{%- if (m.role == 'user') != (loop.index0 % 2 == 0) %}
{{- raise_exception('roles must alternate') }}{%- endif %}{%- if m.role == 'user' %}{{ '[I]' + m.content + '[/I]' }}
{%- else %}{{ m.content + '</s>' }}{%- endif %}{%- endfor %}"""


def tokenizer(template: str = PLAIN, end: str = "<|im_end|>") -> transformers.PreTrainedTokenizerFast:
    """Byte-level, no merges: every text has ids, and ids have their text."""
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    inner = tokenizers.Tokenizer(tokenizers.models.BPE({c: i for i, c in enumerate(alphabet)}, []))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    inner.decoder = tokenizers.decoders.ByteLevel()
    made = transformers.PreTrainedTokenizerFast(tokenizer_object=inner, eos_token=end)
    made.add_special_tokens({"additional_special_tokens": ["<|im_start|>", "<s>"]})
    made.chat_template = template
    return made


def local(renderer: Any) -> Local:
    size = max([258, *renderer.stop]) + 4
    torch.manual_seed(0)
    config = transformers.Qwen3Config(
        vocab_size=size, hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=1, head_dim=16, max_position_embeddings=512,
    )  # fmt: skip
    module = transformers.Qwen3ForCausalLM(config)
    sharpen(module)
    return Local(module, renderer=renderer, ref="bytes")


def received(model: Local, talk: Talk, request: Request) -> list[int]:
    """The ids that lie in the engine's cache after a request, which are those the model has seen."""
    slots = model.engine._batch._rows.slots
    slot = slots.where[request.holder]
    return slots.tokens[slot, : slots.length[slot]].tolist()


@pytest.mark.parametrize(
    "renderer",
    [WordRenderer(WORDS), ChatTemplateRenderer(tokenizer()), ChatTemplateRenderer(tokenizer(FORGETS))],
    ids=["words", "plain", "forgets"],
)
def test_the_path_is_what_the_model_received(renderer: Any) -> None:
    model = small(WORDS, context=512) if isinstance(renderer, WordRenderer) else local(renderer)
    talk = Talk(model, "r").say("w1 w2", role="system")
    stop = min(renderer.stop)
    for number in range(4):
        talk.say("w3 <think> é " + "w1 " * number)
        forced = (*renderer.encode("<think>w1</think>"), stop) if number == 2 else ()
        request = talk.request(number, forced, max_tokens=6)
        answer = ask(model, [request])[0]
        talk.take(answer, forced)
        if number != 2:
            assert received(model, talk, request) == talk.ids[:-1]
    ends = [i in renderer.stop for i in talk.ids]
    assert sum(ends) == len(talk.path) - (not ends[-1])  # every message ends once; the last may have been cut


@pytest.mark.parametrize("closed", [True, False])
def test_a_cut_reply_gets_its_end_from_the_next_delta_and_a_closed_one_no_second(closed: bool) -> None:
    for renderer in (WordRenderer(WORDS), ChatTemplateRenderer(tokenizer())):
        end = next(i for i in renderer.stop)
        talk = Talk(small(WORDS))
        talk.renderer = renderer
        talk.say("w1")
        talk.add(Message("assistant", "w2"), (*renderer.head(), *renderer.encode("w2"), *([end] if closed else [])))
        talk.closed = not closed  # the caller's word counts for less than the tokens
        talk.say("w3")
        assert sum(i == end for i in talk.ids) == 3
        if isinstance(renderer, ChatTemplateRenderer):
            roles = [("user", "w1"), ("assistant", "w2"), ("user", "w3")]
            whole = "".join(f"<|im_start|>{role}\n{text}<|im_end|>\n" for role, text in roles)
            assert renderer.decode(talk.ids) == whole


def test_deltas_equal_the_templates_own_rendering_where_it_does_not_rewrite() -> None:
    made = tokenizer()
    renderer = ChatTemplateRenderer(made)
    assert not renderer.rewrites
    tools = (ToolSpec("look"), ToolSpec("take"))
    messages = [
        Message("system", "be brief"), Message("user", "hello\nthere"), Message("assistant", "hi"),
        Message("user", "go"),
        Message("assistant", "", calls=(ToolCall("1", "look", '{"x": 1}'),)), Message("tool", "a box", call_id="1"),
        Message("tool", "a cup", call_id="2"), Message("assistant", "done"), Message("user", "thanks"),
    ]  # fmt: skip
    talk = Talk(small(WORDS))
    for message in messages:
        talk.add(message, renderer.delta(talk.path[-1] if talk.path else None, True, message, tools))
    wire: list[dict[str, Any]] = [{"role": m.role, "content": m.text} for m in messages]
    wire[4]["tool_calls"] = [{"function": {"name": "look", "arguments": {"x": 1}}}]
    schemas = [{"type": "function", "function": {"name": t.name}} for t in tools]
    whole = made.apply_chat_template(wire, tools=schemas, tokenize=False, add_generation_prompt=True)
    assert renderer.decode([*talk.ids, *renderer.head()]) == whole


def test_a_template_that_drops_earlier_reasoning_is_found_out_and_not_followed() -> None:
    made = tokenizer(FORGETS)
    renderer = ChatTemplateRenderer(made)
    assert renderer.rewrites
    talk = Talk(small(WORDS))
    talk.renderer = renderer
    talk.say("a")
    end = next(iter(renderer.stop))
    talk.add(Message("assistant", "b", "why"), (*renderer.head(), *renderer.encode("<think>why</think>b"), end))
    talk.say("c")
    assert "why" in renderer.decode(talk.ids)
    wire = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "<think>why</think>b"}]
    assert "why" not in made.apply_chat_template([*wire, {"role": "user", "content": "c"}], tokenize=False)


def test_a_template_with_opinions_says_no_in_clear_words() -> None:
    renderer = ChatTemplateRenderer(tokenizer(STRICT, "</s>"))
    talk = Talk(small(WORDS))
    talk.renderer = renderer
    talk.say("a")
    end = next(iter(renderer.stop))
    talk.add(Message("assistant", "b"), (*renderer.encode("b"), end))
    talk.say("c")
    assert renderer.decode(talk.ids) == "<s>[I]a[/I]b</s>[I]c[/I]"
    with pytest.raises(BadInput, match="refuses the roles system"):
        renderer.delta(None, True, Message("system", "x"), ())
    with pytest.raises(BadInput, match="no chat template"):
        ChatTemplateRenderer(tokenizer(""))


def test_words_agree_with_their_tokenizer_and_cannot_forge_a_message() -> None:
    renderer = WordRenderer(WORDS)
    twin = renderer.tokenizer()
    for text in ("w1 w2", "  w3\n w99 w4\t", "", "W1 é w5"):
        assert tuple(twin.encode(text)) == renderer.encode(text)
    special = {renderer.words.index(word) for word in SPECIALS} - {renderer.words.index("<|unk|>")}
    assert not special & set(renderer.encode(" ".join(SPECIALS)))
    assert renderer.decode(renderer.encode("w1 w99 w2")) == "w1 <|unk|> w2"
    with pytest.raises(BadInput, match="one word"):
        WordRenderer(["two words"])
    with pytest.raises(BadInput, match="tools"):
        renderer.delta(None, True, Message("user", "w1"), (ToolSpec("f"),))
    with pytest.raises(BadInput, match="role"):
        renderer.delta(None, True, Message("critic", "w1"), ())


def test_refs_name_vocabulary_and_template() -> None:
    refs = [
        WordRenderer(WORDS).ref, WordRenderer(WORDS[1:]).ref, ChatTemplateRenderer(tokenizer()).ref,
        ChatTemplateRenderer(tokenizer(FORGETS)).ref,
    ]  # fmt: skip
    assert len(set(refs)) == 4
    assert ChatTemplateRenderer(tokenizer()).ref == refs[2]


def test_lone_surrogates_have_ids() -> None:
    renderer = ChatTemplateRenderer(tokenizer())
    assert renderer.decode(renderer.encode("a\ud800b")) == "a\ufffd\ufffd\ufffdb"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("hello", Message("assistant", "hello")),
        ("<think>\nhm\n</think>\n\nyes", Message("assistant", "yes", "hm")),
        ("hm</think>yes", Message("assistant", "yes", "hm")),  # the generation prompt opened it
        ("<think>still at it", Message("assistant", "", "still at it")),
        (
            'first <tool_call>\n{"name": "f", "arguments": {"x":  1.50}}\n</tool_call>',
            Message("assistant", "first", "", (ToolCall("call_0", "f", '{"x":  1.50}'),)),
        ),
        (
            '<tool_call>{"arguments": {"arguments": 1}, "name": "f", "id": "k"}</tool_call><tool_call>{"name": "g"}',
            Message("assistant", "", "", (ToolCall("k", "f", '{"arguments": 1}'), ToolCall("call_1", "g", "{}"))),
        ),
        ('<tool_call>{"name": "f"</tool_call>', Message("assistant", '<tool_call>{"name": "f"</tool_call>')),
        (
            '[TOOL_CALLS] [{"name": "f", "arguments": {"y": "é"}}]',
            Message("assistant", "", "", (ToolCall("call_0", "f", '{"y": "é"}'),)),
        ),
        ("[TOOL_CALLS] none", Message("assistant", "[TOOL_CALLS] none")),
    ],
)
def test_replies_are_parsed(text: str, message: Message) -> None:
    assert parse_reply(text) == message


def test_a_chat_model_answers_through_the_engine_and_keeps_its_renderer(tmp_path: Any) -> None:
    renderer = ChatTemplateRenderer(tokenizer())
    model = local(renderer)
    model.tokenizer = tokenizer()
    model.save(tmp_path)
    again = Local(tmp_path)
    assert again.renderer.ref == renderer.ref
    talk = Talk(again, "r").say("hi")
    answer = asyncio.run(again.complete(talk.request(1)))
    assert answer.tokens == ask(model, [talk.request(1)])[0].tokens


def test_pieces_say_ids_that_were_never_seen_and_lose_nothing(tmp_path: Path) -> None:
    seen = 'HTTP 200 OK\n{"id": "it_4820", "name": "lamp"} it_1357 it_6900\n</state>'
    seen += '"}'
    renderer = PieceRenderer(pieces_of(seen))
    assert "".join(pieces_of(seen + " <odd é <|end|>")) == seen + " <odd é <|end|>"
    new = '{"id": "it_9017", "name": "lamp"}'
    assert renderer.decode(renderer.encode(f"HTTP 200 OK\n{new}")) == f"HTTP 200 OK\n{new}"
    assert "<|unk|>" in renderer.decode(renderer.encode("a jar"))
    assert not set(renderer.encode("<|end|><|user|>")) & set(range(1, len(SPECIALS))), "text opens no message"
    assert renderer.tokenizer().encode(seen, add_special_tokens=False) == list(renderer.encode(seen))
    model = small(pieces_of(seen), pieces=True)
    model.save(tmp_path)
    again = Local(tmp_path)
    assert isinstance(again.renderer, PieceRenderer)
    assert (again.renderer.ref, again.renderer.encode(new)) == (renderer.ref, renderer.encode(new))


THINKS = """{%- for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}
{%- if enable_thinking is defined and not enable_thinking %}{{ '<think>\n\n</think>\n\n' }}{%- endif %}{%- endif %}"""


def test_variables_of_a_template_are_set_kept_and_part_of_its_name(tmp_path: Path) -> None:
    plain, quiet = (
        ChatTemplateRenderer(tokenizer(THINKS), (), template) for template in ({}, {"enable_thinking": False})
    )
    assert plain.decode(plain.head()) == "<|im_start|>assistant\n"
    assert quiet.decode(quiet.head()) == "<|im_start|>assistant\n<think>\n\n</think>\n\n"
    assert plain.ref != quiet.ref
    assert "template" not in plain.settings()
    model = small(WORDS, d=16, layers=1, heads=2, kv_heads=1, context=128)
    chat = Local(model.module, tokenizer=tokenizer(THINKS), template={"enable_thinking": False}, ref="quiet")
    assert chat.renderer.ref == quiet.ref
    chat.save(tmp_path / "saved")
    again = Local(tmp_path / "saved")
    assert again.renderer.ref == quiet.ref
    with pytest.raises(BadInput, match="the model has no chat template"):
        Local(str(_words(tmp_path)), template={"enable_thinking": False})
    with pytest.raises(BadInput, match="variable 'messages' is not free"):
        ChatTemplateRenderer(tokenizer(THINKS), (), {"messages": []})


def _words(folder: Path) -> Path:
    model = small(WORDS, d=16, layers=1, heads=2, kv_heads=1, context=128)
    model.save(folder / "words")
    return folder / "words"
