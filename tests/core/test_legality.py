"""Each rule of a legal record: a path that keeps all of them, and for each rule paths that break just that one."""

from __future__ import annotations

import numpy as np
import pytest

from clew.core.errors import BadInput
from clew.core.keys import node_key, text_key
from clew.core.legality import (
    RULES,
    call_key,
    complete,
    lineage_faults,
    node_faults,
    reply_faults,
    setup_bytes,
)
from clew.core.records import Call, Node, RunRow, Segment, Setup
from clew.core.values import Inner, Message, Sampling, ToolSpec

KEY = b"k" * 16
SETUP = Setup("m")


def logprobs(n: int) -> np.ndarray:
    return np.zeros(n, np.float32)


def path() -> list[Call]:
    """A run of every kind of Call: two asks beside each other, the second handed over first, and an open intent."""
    return [
        Call("r", 0, "open", b"", 0, 0, key=KEY),
        Call("r", 1, "ask", b"", 1, 2, key=KEY, conversation=0, node_in=b"n" * 16, setup=SETUP, logprobs=logprobs(2),
             entropies=logprobs(2)),
        Call("r", 2, "ask", b"", 1, 1, key=KEY, conversation=1, node_in=b"n" * 16, setup=SETUP),
        Call("r", 3, "act", b"", 3, 3, key=KEY),
        Call("r", 4, "spawn", b"", 4, 4, key=KEY, child="r-1"),
        Call("r", 5, "spawn", b"", 4, 5, key=KEY, error="no such agent"),
        Call("r", 6, "spawn", b"", 4),
        Call("r", 7, "end", b"", 6, 6, key=KEY, action="done"),
    ]  # fmt: skip


def faults(calls: list[Call]) -> list[tuple[int, str]]:
    return [found for rule in RULES for found in rule(calls)]


def test_a_legal_path_has_no_faults() -> None:
    assert faults(path()) == []
    assert faults(path()[:1]) == []
    assert faults([]) == []


BROKEN = [
    (3, {"seq": 4}, [(4, "stands at place 3 of its run")]),
    (3, {"kind": "open"}, [(3, "an open after the start")]),
    (0, {"kind": "note"}, [(0, "a run that starts with note, not open")]),
    (3, {"kind": "end", "action": "done"}, [(3, "an end before the last Call")]),
    (7, {"action": "tired"}, [(7, "an end for no known reason ('tired')")]),
    (4, {"after": 2}, [(4, "issued at 2, before the Call before it (3)")]),
    (2, {"after": 0}, [(2, "issued at 0, before the Call before it (1)")]),
    (3, {"done": 2}, [(3, "handed over at 2, before it was issued at 3"), (3, "handed over at 2, as another Call was"),
                      (4, "issued at 4, when the clock stood at 3")]),
    (0, {"done": -1}, [(1, "issued at 1, when the clock stood at 0")]),
    (1, {"done": 1}, [(2, "handed over at 1, as another Call was"), (3, "issued at 3, when the clock stood at 2")]),
    (1, {"node_in": b""}, [(1, "an ask without node in, conversation or setup")]),
    (1, {"conversation": -1}, [(1, "an ask without node in, conversation or setup")]),
    (1, {"setup": None}, [(1, "an ask without node in, conversation or setup")]),
    (4, {"child": ""}, [(4, "a spawn without a child")]),
    (0, {"key": b""}, [(0, "a result without a key")]),
    (1, {"entropies": logprobs(3)}, [(1, "2 logprobs and 3 entropies")]),
]  # fmt: skip


@pytest.mark.parametrize(("at", "change", "found"), BROKEN)
def test_each_rule_finds_its_fault_and_nothing_else(
    at: int, change: dict[str, object], found: list[tuple[int, str]]
) -> None:
    calls = path()
    calls[at] = calls[at]._replace(**change)
    assert faults(calls) == found


def test_a_wrong_number_is_said_once() -> None:
    """From the first Call out of place on all are: the first alone is named."""
    calls = path()
    del calls[3]
    assert [said for said in faults(calls) if "stands at" in said[1]] == [(4, "stands at place 3 of its run")]


def test_an_intent_needs_no_result() -> None:
    """What was begun and never ended has neither key nor child, at any rank of the clock."""
    assert [*complete([Call("r", 0, "open", b"", 0), Call("r", 1, "spawn", b"", 0)])] == []
    assert [*complete([Call("r", 0, "spawn", b"", 0, 0, key=KEY)])] == [(0, "a spawn without a child")]


def test_a_reply_hangs_where_it_was_asked_and_has_its_tokens() -> None:
    ask = path()[1]._replace(head=3, forced=1)
    assert [*reply_faults(ask, b"n" * 16, 6)] == []
    assert [*reply_faults(ask, b"n" * 16, None)] == []
    assert [*reply_faults(ask._replace(logprobs=None), b"n" * 16, 9)] == []
    assert [*reply_faults(ask, b"n" * 16, 5)] == ["its reply has 5 tokens, not 3 + 1 + 2"]
    assert [*reply_faults(ask, b"o" * 16, 6)] == ["its reply hangs on another node than it was asked at"]


def test_a_node_is_what_its_keys_say() -> None:
    message = Message("user", "hello")
    keys = node_key(b"", message, (1, 2), "t"), text_key(b"", message)
    node = Node(keys[0], b"", message, (1, 2), "t", text_key=keys[1])
    assert [*node_faults(node, b"")] == []
    assert [*node_faults(node._replace(ids=(1, 3)), b"")] == ["is not what its key says"]
    assert [*node_faults(node, b"p" * 16)] == ["is not what its text key says"]


def test_a_lineage_is_flat() -> None:
    row = RunRow("r", "a", lineage=(Segment("p", 0, 2), Segment("q", 2, 5)))
    assert [*lineage_faults(row)] == []
    gap = row._replace(lineage=(Segment("p", 0, 2), Segment("q", 3, 5)))
    assert [*lineage_faults(gap)] == ["its lineage breaks at Call 2 (q 3 to 5)"]
    late = row._replace(lineage=(Segment("p", 1, 2),))
    assert [*lineage_faults(late)] == ["its lineage breaks at Call 0 (p 1 to 2)"]
    empty = row._replace(lineage=(Segment("p", 0, 0),))
    assert [*lineage_faults(empty)] == ["its lineage breaks at Call 0 (p 0 to 0)"]
    own = row._replace(lineage=(Segment("r", 0, 2),))
    assert [*lineage_faults(own)] == ["its lineage breaks at Call 0 (r 0 to 2)"]


def test_a_tool_whose_schema_is_no_json_is_refused_by_name() -> None:
    for schema in ({"type": {1, 2}}, {"default": float("nan")}):
        with pytest.raises(BadInput, match="the schema of tool 'look'"):
            setup_bytes(Setup("m", tools=(ToolSpec("look", "Look.", schema),)))


def test_a_grammar_is_marked_in_the_bytes_for_ever() -> None:
    """Golden: the bit that says that a grammar follows the stop texts is part of what old records were signed with."""
    asked = Sampling(16, 0.5, 0.9, 5, ("x",), "json")
    assert setup_bytes(Setup("m", 2, asked)).hex() == (
        "02000000000000000001060000000100000000000000200000000400000001000000040000006d1000000000000000000000000000e03f"
        "cdccccccccccec3f050000000000000001000080786a736f6e"
    )


def test_named_weights_stand_in_for_the_folder_they_lay_in() -> None:
    """Golden: what the keys of answers of local weights cover; where the weights lay is no part of it."""
    here, there = (Setup(place, 2, served_by=place, weights="5e") for place in ("/here", "/there"))
    assert setup_bytes(here) == setup_bytes(there)
    assert setup_bytes(here).hex() == "0200000000000000010103000000020000000000000007000000356577656967687473"
    others = [Setup("5e", 2), Setup("5e", 2, weights="5f"), here._replace(served_by="x"), here._replace(version=3)]
    assert len({setup_bytes(setup) for setup in (here, *others)}) == 5
    plain = Call("r", 1, "ask", b"", 1, 2)
    inner = [Inner(place, place, weights="5e") for place in ("/here", "/there")]
    inner += [Inner("5e", "", 0), Inner("/here", "/here"), Inner("/here", "x", weights="5e")]
    keys = [call_key(b"i", plain._replace(inner=(one,))) for one in inner]
    assert keys[0] == keys[1]
    assert len(set(keys)) == 4


def test_a_key_tells_an_absent_result_from_an_empty_one() -> None:
    """No reward and a reward of 0, no logprobs and none sampled, no setup and an empty one are told apart."""
    plain = Call("r", 1, "ask", b"", 1, 2)
    twins = [plain, *(plain._replace(**change) for change in (
        {"reward": 0.0}, {"logprobs": logprobs(0)}, {"entropies": logprobs(0)}, {"setup": Setup()}, {"terminal": True},
        {"head": 1}, {"forced": 1}, {"seed": 1}, {"done": 3}, {"legal": ("",)}, {"legal": ("", "")},
        {"text": "a"}, {"error": "a"}, {"finish": "a"}, {"child": "a"}, {"state": b"a"}, {"node_out": b"a"},
    ))]  # fmt: skip
    assert len({call_key(b"i", call) for call in twins}) == len(twins)
