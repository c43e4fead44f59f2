"""Golden vectors: what was recorded years ago must verify for ever. A line of them is never edited, only added."""

from __future__ import annotations

import json
from hashlib import blake2b

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clew.core import keys
from clew.core.errors import BadInput
from clew.core.legality import call_key, issue_key, setup_bytes
from clew.core.records import Call, Sample, Setup
from clew.core.values import Inner, Message, Sampling, ToolCall, ToolSpec, Usage

MESSAGES = {
    "plain": Message("user", "hello"),
    "empty": Message("", ""),
    "surrogate": Message("user", "a\ud800b\x00c"),
    "tool": Message("assistant", "", "let me look", (ToolCall("c1", "look", '{"at": 1}'),)),
    "answer": Message("tool", "a door", call_id="c1", extra='{"name":"look"}'),
}
SETUP = Setup(
    "m", 2, Sampling(16, 0.5, 0.9, 5, ("\n", "x")), None, (ToolSpec("look", "Look.", {"type": "object"}),), "served"
)
OPEN = Call("r", 0, "open", b"", 0, 0, text="You see a door.", state=b"s" * 16, legal=("open", "wait"))
ASK = Call(
    "r", 1, "ask", b"q" * 16, 1, 3, conversation=0, node_in=b"i" * 16, node_out=b"o" * 16, head=2, forced=1,
    logprobs=np.array([-0.5, -0.25], np.float32), entropies=np.array([1, 0], np.float32), seed=2**62, setup=SETUP,
    finish="stop", packed=(Sample(-1, Message("assistant", "b"), (1, 2), np.array([-1], np.float32), "length"),),
)  # fmt: skip
ACT = Call("r", 2, "act", b"p" * 16, 1, 1, action="open \ud801", text="", reward=-0.5, terminal=True, error="late")

CANONICAL = [
    (None, "6e", "eda262c8173f9b184dbe03095e7c3fec"),
    (True, "74", "e627cceeca41aa6dd6f4957c51a9c2b2"),
    (False, "66", "ca5352c7cb3973c4c1618230b19c80b0"),
    (1, "690100000031", "426e1c225485cd683ba9316fc71f5b8a"),
    (-12, "69030000002d3132", "5d2b2084850de2784a4f3ffb913fa4e5"),
    (1.0, "64000000000000f03f", "b992d83ce78f7ac0886a8ba8b555c234"),
    ("", "7300000000", "b2faf1e59b1ac9f4c41c0cd6baf950b0"),
    ("\xe9\ud800", "7305000000c3a9eda080", "6178de5bb3faeb082a590fa8459468d7"),
    (b"bytes", "62044ea97227c3922b2c9667fcb2d42afe", "e176eacfaa9686da620201deabb782bb"),
    ([1, [2.5]], "6c020000006901000000316c01000000640000000000000440", "c74974e038bfdadd29068f0819d68bb9"),
    (
        {"b": 1, "a": None, "\xe9": []},
        "6d0300000001000000616e010000006269010000003102000000c3a96c00000000",
        "a920abf00330883b474033e659315725",
    ),
]

NODES = {
    "plain": (
        "f4b55d62f5d1ec02380869232e332452",
        "3d907e6a265390ee0b3f6e0fe796b1c9",
        "7ecac30db6c7989f5d6ba9f66e2138a1",
    ),
    "empty": (
        "3ac3fd4fc05474dc2e8d21739c247d32",
        "d33e04e37b4f89aa39750389e1ada385",
        "50c9fe85d44613768434103d79babb03",
    ),
    "surrogate": (
        "4fb211c0097cb8864faaf8366b069dfc",
        "b3d16da0b37f3600c67d65056639b37a",
        "cfa3275ac3da3af39325cc736ded76f4",
    ),
    "tool": (
        "3d379b8ebe12ea92ea5c7723776be3b1",
        "1824ec4a53a70cff4eaa74db7f967da8",
        "8b96f523b49d1483ad9b7aced8169182",
    ),
    "answer": (
        "9e8f865b9f70d9eeff0f16eb5c9fc4ad",
        "981124a41c50736ab8f9c98173ed673d",
        "6c0f799f10b0ae7f5f9636fe403fd422",
    ),
}

CALLS = [
    ("a0b750c62b20058b518f41ec531f3107", "135e2f13293a40746b67b6c6ef7de0ee"),
    ("cafc8c3fd2eee3614cdeb25ce2f0ed5e", "66c429bff4fef1b9d54e60c797507a37"),
    ("5881635b14b283646774aeade09c328b", "a1b4654ae999e1dc4cc596698f22a773"),
]


text = st.text(st.characters())  # lone surrogates included
floats = st.floats(allow_nan=False, allow_infinity=False)
scalars = st.none() | st.booleans() | st.integers() | floats | text
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4))
ids = st.none() | st.lists(st.integers(0, 2**31 - 1), max_size=3).map(tuple)
calls = st.builds(ToolCall, text, text, text)
messages = st.builds(Message, text, text, text, st.lists(calls, max_size=2).map(tuple), st.none() | text, text)


def test_canonical_form_is_the_one_written_down():
    for value, form, digest in CANONICAL:
        assert keys.canonical(value).hex() == form
        assert keys.value_digest(value).hex() == digest
    assert keys.canonical({"a": 1, "b": 2}) == keys.canonical({"b": 2, "a": 1})
    assert keys.canonical(np.int64(3)) == keys.canonical(3)
    assert keys.canonical(np.float32(0.5)) == keys.canonical(0.5)


def test_node_keys_are_those_written_down():
    for name, (bare, tokens, without) in NODES.items():
        message = MESSAGES[name]
        assert keys.node_key(b"", message, None, "").hex() == bare
        assert keys.node_key(b"p" * 16, message, (1, 2**31 - 1), "t").hex() == tokens
        assert keys.text_key(b"p" * 16, message).hex() == without
    assert keys.blob_key(b"x").hex() == "95ce8c5e95aa55d40f9bfd5e14fa0969"
    assert keys.state_key("a", "b").hex() == "40fd2392959b7ee68aa23043647e66d2"


def test_call_keys_are_those_written_down():
    issue = b""
    for call, (asked, key) in zip([OPEN, ASK, ACT], CALLS, strict=True):
        issue = issue_key(issue, call)
        assert (issue.hex(), call_key(issue, call).hex()) == (asked, key)
    assert setup_bytes(SETUP).hex() == (
        "02000000000000000001060000000100000006000000200000000400000001000000010000006d7365727665641000000000"
        "000000000000000000e03fcdccccccccccec3f0500000000000000020000000a78030000000400000005000000120000006c"
        "6f6f6b4c6f6f6b2e7b2274797065223a20226f626a656374227d"
    )


def test_seeds_and_uniforms_are_those_written_down():
    assert keys.derive(0) == 5758874364883174388
    assert keys.derive(5, 3, "task") == 2612027327916322984
    found = keys.uniforms(np.array([1, 2**62], np.uint64), np.array([0, 7], np.uint64))
    assert found.tolist() == [0.8628561488610587, 0.5096593913139165]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {"a": [float("-inf")]}, np.float32("nan"), {1: 2}, {1}])
def test_what_has_no_canonical_form_is_refused(value):
    with pytest.raises(BadInput) as caught:
        keys.canonical(value)
    assert caught.value.remedy


@given(values, values)
def test_canonical_form_tells_values_apart(a, b):
    def typed(value):
        """JSON keeps int and float, True and 1 apart; a set of pairs forgets the order of keys."""
        if isinstance(value, dict):
            return ("map", frozenset((key, typed(item)) for key, item in value.items()))
        if isinstance(value, list):
            return ("list", *map(typed, value))
        return (type(value).__name__, repr(value) if isinstance(value, float) else value)

    assert (keys.canonical(a) == keys.canonical(b)) == (typed(a) == typed(b))


@given(messages, ids, messages, ids)
def test_node_keys_tell_nodes_apart(a, a_ids, b, b_ids):
    same = (a, a_ids) == (b, b_ids)
    assert (keys.node_key(b"", a, a_ids, "t") == keys.node_key(b"", b, b_ids, "t")) == same
    assert (keys.text_key(b"", a) == keys.text_key(b"", b)) == (a == b)


def test_pieces_cannot_be_shifted_from_one_field_to_the_next():
    packed = keys.pack_ids((0x41414141,)).decode()
    with_ids = keys.node_key(b"", Message("user", "x"), (0x41414141,), "t")
    assert with_ids != keys.node_key(b"", Message("user", "x", "ids", (), "t", packed), None, "")
    shifted = Message("user", "x", calls=(ToolCall("ids", "t", packed),))
    assert with_ids != keys.node_key(b"", shifted, None, "t")
    assert keys.text_key(b"", Message("user", "x", call_id="")) != keys.text_key(b"", Message("user", "x"))
    assert keys.digest(b"t", b"a", b"b") != keys.digest(b"t", b"ab", b"")


def test_a_tag_keeps_kinds_apart():
    assert len({keys.digest(tag, b"x") for tag in (keys.NODE, keys.TEXT, keys.CALL, keys.REQUEST, keys.BLOB)}) == 5


ALTERED = {
    "seq": 9, "kind": "note", "request": b"z" * 16, "after": 0, "done": 9, "conversation": 1, "node_in": b"z" * 16,
    "node_out": b"", "action": "x", "text": "x", "reward": 0.0, "terminal": True, "legal": ("x",), "state": b"z",
    "child": "x", "head": 9, "forced": 9, "logprobs": None, "entropies": None, "seed": 9,
    "setup": SETUP._replace(served_by="else"), "finish": "cut", "packed": (), "error": "x",
    "inner": (Inner("small"),), "extra": "{}",
}  # fmt: skip
OUTSIDE = {
    "run": "other", "key": b"x", "snapshot": b"x" * 16, "cost": 1.0, "started": 5.0, "seconds": 5.0, "usage": (1, 2, 3),
    "attempts": ((0.1, 200, ""),), "kept": b"x",
}  # fmt: skip


def test_every_field_of_a_call_is_covered_or_named_as_left_out():
    assert set(ALTERED) | set(OUTSIDE) == set(Call._fields)
    key = call_key(issue_key(b"", ASK), ASK)
    for field, value in ALTERED.items():
        changed = ASK._replace(**{field: value})
        assert call_key(issue_key(b"", changed), changed) != key, field
    for field, value in OUTSIDE.items():
        changed = ASK._replace(**{field: value})
        assert call_key(issue_key(b"", changed), changed) == key, field
    assert issue_key(b"p", ASK) != issue_key(b"", ASK)
    said = call_key(b"", ASK._replace(inner=(Inner("small"),), extra="{}"))
    assert said != call_key(b"", ASK._replace(inner=(Inner("small"),), extra="[]"))


def test_answers_inside_an_answer_enter_its_key_and_their_absence_leaves_it_as_it_was():
    """Their costs, times and tokens used do not, as those of the whole answer do not."""
    one = Inner("small", "s-1", 2, Usage(1, 2, 0), 0.5, 3.0, "x", (1, 2))
    told = [
        (one,), (one, one), (one._replace(model="large"),), (one._replace(served_by=""),), (one._replace(version=3),),
        (one._replace(text="y"),), (one._replace(tokens=None),), (one._replace(tokens=()),), (),
    ]  # fmt: skip
    plain = ASK._replace(packed=())
    for call in (ASK, plain):
        assert len({call_key(b"i", call._replace(inner=inner)) for inner in told}) == len(told)
    same = one._replace(usage=Usage(), cost=0.0, seconds=0.0)
    assert call_key(b"i", plain._replace(inner=(same,))) == call_key(b"i", plain._replace(inner=(one,)))
    assert call_key(b"i", plain._replace(inner=(one,))).hex() == "8ee1accebd9722ea7e366e03fd13338f"


def test_an_issue_digest_needs_no_result():
    intent = ASK._replace(done=-1, node_out=b"", logprobs=None, entropies=None, finish="", packed=())
    assert issue_key(b"p", intent) == issue_key(b"p", ASK)


def test_equal_setups_have_equal_bytes_and_like_ones_do_not():
    again = Setup("m", 2, Sampling(16, 0.5, 0.9, 5, ("\n", "x")), None, (ToolSpec(*_fields(SETUP.tools[0])),), "served")
    assert setup_bytes(again) == setup_bytes(SETUP)
    seen = {setup_bytes(SETUP)}
    for schema in ({"minimum": 1}, {"minimum": 1.0}, {"minimum": True}):
        seen.add(setup_bytes(SETUP._replace(tools=(ToolSpec("look", "Look.", schema),))))
    seen.add(setup_bytes(SETUP._replace(in_force=SETUP.asked)))
    seen.add(setup_bytes(SETUP._replace(in_force=SETUP.asked, asked=None)))
    assert len(seen) == 6
    with pytest.raises(BadInput, match="look"):
        setup_bytes(SETUP._replace(tools=(ToolSpec("look", "", {"minimum": float("nan")}),)))


def _fields(tool):
    return tool.name, tool.description, json.loads(json.dumps(tool.schema))


@given(st.integers(0, 2**63 - 1), st.lists(st.integers(-(2**63), 2**63 - 1) | text, max_size=3))
def test_derived_seeds_are_63_bits_and_depend_on_the_path(seed, path):
    found = keys.derive(seed, *path)
    assert 0 <= found < 2**63
    assert found == keys.derive(seed, *path)
    assert found != keys.derive(seed, *path, 0)


def test_uniforms_depend_on_seed_and_offset_only_and_are_uniform():
    seeds, offsets = np.arange(20_000, dtype=np.uint64), np.full(20_000, 3, np.uint64)
    found = keys.uniforms(seeds, offsets)
    assert (found == keys.uniforms(seeds[::-1], offsets)[::-1]).all()
    assert keys.uniforms(seeds[7:8], offsets[:1])[0] == found[7]
    assert found.min() >= 0
    assert found.max() < 1
    counts = np.histogram(found, 20, (0, 1))[0]
    assert ((counts - 1000) ** 2 / 1000).sum() < 45.3  # chi-square, 19 degrees, p = 0.0006
    across = np.corrcoef(found, keys.uniforms(seeds, offsets + np.uint64(1)))[0, 1]
    assert abs(across) < 0.03


def test_a_grammar_enters_the_digests_and_its_absence_leaves_them_as_they_were():
    plain, bound = Sampling(16, 0.5, 0.9, 5, ("\n",)), Sampling(16, 0.5, 0.9, 5, ("\n",), "json")
    form = {"max_tokens": 16, "temperature": 0.5, "top_p": 0.9, "top_k": 5, "stop": ("\n",)}
    assert keys.canonical(keys.sampling_form(plain)) == keys.canonical(form)
    assert keys.canonical(keys.sampling_form(bound)) == keys.canonical(form | {"grammar": "json"})
    settings = [plain, bound, plain._replace(stop=("\n", "json")), bound._replace(grammar="regex:a")]
    assert len({setup_bytes(Setup("m", asked=a, in_force=f)) for a in settings for f in settings}) == 16


@pytest.mark.parametrize("size", [0, 1, 1023, 1024, 1025, 70_000])
def test_a_piece_of_any_length_is_prefixed_by_its_length(size):
    """Short lengths come from a table, whose last entry is that of 1,023 bytes."""
    piece = b"x" * size
    form = size.to_bytes(4, "little") + piece + (3).to_bytes(4, "little") + b"end"
    assert keys.digest(keys.NODE, piece, b"end") == blake2b(form, digest_size=16, person=keys.NODE).digest()
