"""The reward of a predicted observation: strict extraction, classes of content, rules, and flattery shut out."""

from __future__ import annotations

import pytest

from clew.methods.world_model.content_kinds import content_of, form_of, form_words, is_runtime, words_of
from clew.methods.world_model.observing.rewarding import (
    PARTS,
    canonical,
    observation,
    programmed_rubric,
    reward,
    rule_of,
    scores_in,
    without_praise,
)
from clew.methods.world_model.prompting import reply_text

PRAISE = "Operation completed successfully."
BEFORE = {"ls", "/docs", "a.txt", "b.txt"}
FORM = {"No", "such", "file", "or", "directory", "cat", "id", "name", "HTTP", "200", "OK"}


def flattered(judged):
    """A judge that likes praise: it gives full marks wherever it reads some."""
    kind = "successfully" in judged.said.lower()
    return dict.fromkeys(PARTS, 5.0) if kind else programmed_rubric(judged)


def test_a_right_answer_gets_all_and_a_wrong_one_less():
    right = reward(reply_text("a.txt\nb.txt"), "a.txt\nb.txt", BEFORE, FORM)
    wrong = reward(reply_text("a.txt"), "a.txt\nb.txt", BEFORE, FORM)
    assert (right.value, right.rule, right.rubric, right.content) == (1.0, 1.0, 1.0, "determined")
    assert wrong.value < 0.9 * right.value
    assert wrong.rule == 0


@pytest.mark.parametrize("reply", ["a.txt", "", "<think>a.txt</think>", "<predicted_observation>a.txt", "so: `a.txt`"])
def test_what_is_not_marked_gets_nothing(reply):
    found = reward(reply, "a.txt", BEFORE, FORM, flattered)
    assert found.value == 0
    assert "no marked observation" in found.why


def test_praise_around_the_observation_changes_nothing():
    plain = reward(reply_text("a.txt"), "a.txt\nb.txt", BEFORE, FORM, flattered)
    for reply in (f"{PRAISE}\n{reply_text('a.txt')}", f"{reply_text('a.txt')}\n{PRAISE}"):
        assert reward(reply, "a.txt\nb.txt", BEFORE, FORM, flattered) == plain
    assert reward(f"<think>{PRAISE}</think>{reply_text('a.txt')}", "a.txt\nb.txt", BEFORE, FORM, flattered) == plain


@pytest.mark.parametrize("praise", [PRAISE, "This output is accurate!", "Score: 5 of 5.", "Well done, as requested."])
def test_praise_inside_the_observation_never_gains(praise):
    for said in ("a.txt", "a.txt\nb.txt"):
        plain = reward(reply_text(said), "a.txt\nb.txt", BEFORE, FORM, flattered)
        praised = reward(reply_text(f"{said}\n{praise}"), "a.txt\nb.txt", BEFORE, FORM, flattered)
        assert praised.value <= plain.value
        assert praise not in praised.said
    assert reward(reply_text(f"a.txt\nb.txt\n{praise}"), "a.txt\nb.txt", BEFORE, FORM).rule == 0


def test_praise_that_the_world_itself_says_stays():
    truth = "build finished\nOperation completed successfully."
    assert without_praise(truth, truth) == truth
    assert reward(reply_text(truth), truth, set(), set(words_of(truth))).value == 1


def test_a_long_line_costs_little():
    long = "kiwi " * 3900 + "a" * 400
    assert without_praise(long, "") == long.strip()
    assert reward(reply_text(long), "a.txt", BEFORE, FORM).value < 0.5
    assert reward(reply_text(long * 2), "a.txt", BEFORE, FORM).why.startswith("the observation is longer")


def test_contents_are_classed_by_what_was_told_before():
    assert content_of("a.txt b.txt", BEFORE) == "determined"
    assert content_of("cat: a.txt: No such file or directory", BEFORE, FORM) == "determined"
    assert content_of("a.txt it_4471", BEFORE) == "runtime"
    assert content_of("a.txt kiwi it_4471", BEFORE) == "stored"
    assert [is_runtime(w) for w in ("it_4471", "2026-01-02T10:00", "deadbeef", "12", "kiwi")] == [True] * 3 + [
        False
    ] * 2


def test_rules_go_by_the_class():
    assert rule_of('{"id": "it_1234"}', '{"id": "it_9876"}', "runtime", FORM) == 1
    assert rule_of('{"id": "kiwi"}', '{"id": "it_9876"}', "runtime", FORM) == 0
    assert rule_of('{"id": "it_1234"}', '{"id": "it_9876"}', "determined", FORM) == 0
    assert rule_of("anything", "else", "stored", FORM) is None
    assert form_of("HTTP 200 OK it_9876 kiwi", FORM) == "HTTP # OK # _"
    stored = reward(reply_text("pear"), "kiwi", BEFORE, FORM)
    assert stored.rule is None
    assert stored.value == stored.rubric


def test_the_form_of_a_world_is_what_many_tasks_share():
    seen = [(f"t{i}", f"cat: No such file name{i} it_{1000 + i}") for i in range(10)]
    assert form_words(seen) == {"cat", "No", "such", "file"}
    assert form_words([("t", "one"), ("t", "one"), ("t", "one")]) == frozenset(), "one task is not many"


def test_texts_are_compared_in_one_form():
    assert canonical("\x1b[31mred\x1b[0m  a\r\n b\x00") == "red a b"
    assert canonical('{"b": 1, "a": 2}') == canonical('{"a":2,"b":1}')


def test_a_judges_words_are_read_strictly():
    said = "\n".join(f"{part}: 4" for part in PARTS)
    assert scores_in(f"I think\n{said}") == dict.fromkeys(PARTS, 4.0)
    assert scores_in(said.replace("realism: 4", "realism: 40")) is None
    assert scores_in(said.replace("quality: 4", "")) is None
    assert scores_in(f"{said}\nFormat: 2")["format"] == 2
    none = reward(reply_text("a.txt"), "a.txt", BEFORE, FORM, lambda judged: None)
    assert none.value == pytest.approx(0.1), "the rule alone"
    odd = reward(reply_text("a.txt"), "a.txt", BEFORE, FORM, lambda judged: dict.fromkeys(PARTS, 9.0))
    assert odd.value == pytest.approx(0.1)


def test_the_end_of_the_episode_is_part_of_the_rule():
    for told, said, rule in ((False, False, 1), (True, True, 1), (True, False, 0), (False, True, 0), (None, True, 1)):
        found = reward(reply_text("a.txt", done=said), "a.txt", BEFORE, FORM, done=told)
        assert (found.rule, found.rubric) == (rule, 1)
    unknowable = reward(reply_text("kiwi", done=True), "kiwi", BEFORE, FORM, done=False)
    assert (unknowable.content, unknowable.rule) == ("stored", 0)
    row = {"messages": [{"content": "ls a.txt"}], "form": [], "done": True}
    assert observation(reply_text("a.txt", done=True), "a.txt", row) == 1
    assert observation(reply_text("a.txt"), "a.txt", row) < 0.95
    assert observation(reply_text("a.txt"), "a.txt", {name: row[name] for name in ("messages", "form")}) == 1
