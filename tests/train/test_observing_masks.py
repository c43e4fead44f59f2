"""The seven masking classes, each conflict of their rules, and which tokens are kept."""

from __future__ import annotations

from collections import Counter

import pytest

from clew.methods.world_model.observing.masking import KEPT, SHORT, kind_of, overlap, weights_of


def words(prefix, n):
    return " ".join(f"{prefix}{i}" for i in range(n))


LONG = words("unheardof", 12)
CASES = {  # action, observation, class, and which rules hold beside
    "echo": ("set lamp red now", "set lamp red now", "echo"),
    "boilerplate": ("set lamp red now", "lamp red is", "boilerplate"),
    "transform": ("a b c d e f g h i j k l", "a b c", "transform"),
    "expansion": ("open a b", f"a b {LONG}", "expansion"),
    "retrieval": ("ls /docs", LONG, "retrieval"),
    "action": ("rm a", "ok", "action"),
    "other": (words("w", 9), f"{words('w', 4)} {words('verylongnewwordnumber', 5)}", "other"),
}
CONFLICTS = {  # where the rules of two classes hold, the more specific one counts
    "echo before boilerplate": ("a b c d", "a b c d", "echo", {"boilerplate"}),
    "echo before transform": ("a b c d e f g h i j", "a b c d e f g", "echo", {"boilerplate", "transform"}),
    "boilerplate before transform": ("aaa bbb ccc ddd eee fff", "aaa bbb ccc x y", "boilerplate", {"transform"}),
    "expansion before retrieval": ("open a b", f"a b {LONG}", "expansion", {"retrieval"}),
    "expansion before action": ("a b", "a yes no", "expansion", {"action", "retrieval"}),
    "retrieval before action": ("ls docs", "one two three", "retrieval", {"action"}),
}


def rules(action, observation):
    """Every rule of the table that holds, without precedence, written down once more."""
    old, new, _, ratio, _ = overlap(action, observation)
    held = {
        "echo": old >= 0.7 and new < 0.3,
        "boilerplate": old >= 0.5 and new < 0.5,
        "transform": new < 0.5 and ratio < 1,
        "expansion": old >= 0.5 and new >= 0.5 and ratio > 1.5,
        "retrieval": new >= 0.6 and ratio > 1,
        "action": new >= 0.5 and (ratio <= 1 or len(observation) <= SHORT),
    }
    return {name for name, holds in held.items() if holds}


@pytest.mark.parametrize("name", CASES)
def test_each_class_has_its_case(name):
    action, observation, wanted = CASES[name]
    assert kind_of(action, observation) == wanted
    assert (wanted in rules(action, observation)) == (wanted != "other")


@pytest.mark.parametrize("name", CONFLICTS)
def test_the_more_specific_class_counts(name):
    action, observation, wanted, beside = CONFLICTS[name]
    assert rules(action, observation) >= {wanted, *beside}
    assert kind_of(action, observation) == wanted


def test_every_pair_of_rules_that_can_hold_at_once_is_a_conflict_above():
    """No other two rules overlap: they divide by whether half of the observation's words are new."""
    old = ("echo", "boilerplate", "transform")
    new = ("expansion", "retrieval", "action")
    told = {frozenset((wanted, other)) for _, _, wanted, beside in CONFLICTS.values() for other in beside}
    assert told == {frozenset(pair) for half in (old, new) for pair in [half[:2], half[1:], (half[0], half[2])]}


@pytest.mark.parametrize(("action", "observation"), [("", "x"), ("x", ""), ("", ""), (" ", "\n")])
def test_empty_texts_are_of_the_class_action(action, observation):
    assert kind_of(action, observation) == "action"
    assert overlap(action, observation) == (0, 0, 0, 0, True)


def test_words_are_counted_once_and_in_small_letters():
    assert overlap("Cat cat DOG", "cat bird") == (0.5, 0.5, pytest.approx(1 / 3), pytest.approx(8 / 11), False)


def test_turns_are_kept_as_often_as_their_class_says():
    n = 4000
    for kind, share in KEPT.items():
        kept = Counter(weights_of(f"run{i}/1", kind, 3)[0] for i in range(n))
        assert abs(kept[1.0] / n - share) < 0.03
    assert all(len(set(weights_of(f"run{i}/1", "transform", 7))) == 1 for i in range(20)), "a turn goes whole"


def test_what_is_kept_depends_on_the_sample_and_the_seed_alone():
    first = [weights_of(f"run{i}", "transform", 1) for i in range(200)]
    assert first == [weights_of(f"run{i}", "transform", 1) for i in range(200)]
    assert first != [weights_of(f"run{i}", "transform", 1, seed=1) for i in range(200)]


def test_other_ways_to_keep():
    assert weights_of("x", "echo", 4, "weight") == [0.05] * 4
    assert weights_of("x", "echo", 4, "all") == [1.0] * 4
    tokens = weights_of("x", "transform", 2000, "token")
    assert 800 < sum(tokens) < 1200
    assert set(tokens) == {0.0, 1.0}
