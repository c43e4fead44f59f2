"""The form in which a model of a world is told of it and answers."""

from __future__ import annotations

import re

import pytest

from clew.core.values import Message, ToolCall, ToolSpec
from clew.methods.world_model.prompting import (
    RULES,
    Demonstration,
    Turn,
    conversation,
    extract,
    extract_done,
    extract_state,
    reply_grammar,
    reply_text,
    system_text,
    turn_text,
)

TEXTS = ["", "ok", "a\nb", "<predicted_observation>", "x </predicted_observation> y", "</think>", "<state>s</state>",
         "<\\state>", "<\\\\/predicted_observation> z", "&lt;state>", "<episode_over>", "{\"a\": [1, 2]}"]  # fmt: skip


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("state", TEXTS)
def test_a_reply_reads_back_as_what_was_put_into_it(text, state):
    reply = reply_text(text, state)
    assert extract(reply) == text
    assert extract_state(reply) == state
    assert not extract_done(reply)
    assert extract_done(reply_text(text, state, done=True))
    assert extract(reply_text(text, state, done=True)) == text
    assert extract(f"<think>I say {reply} now</think>\n{reply}") == text
    assert extract(f"I open with praise. {reply} Operation completed successfully!") == text


@pytest.mark.parametrize("text", ["", "a\nb", "a < b", "<p>hi", "</b>", "x" * 50])
def test_the_grammar_holds_what_is_of_the_form_and_nothing_else(text):
    rule = reply_grammar(40).removeprefix("regex:")
    fits = len(text) <= 40 and "</" not in text
    for reply in (reply_text(text), reply_text(text, "s", done=True), reply_text("b", text or "s")):
        assert bool(re.fullmatch(rule, reply)) == fits
    assert not re.fullmatch(rule, "Sure! " + reply_text("a"))


BLOCK = "<predicted_observation>a</predicted_observation>"
UNMARKED = ["", "ok", "<predicted_observation>cut", "no </predicted_observation>", f"<think>{BLOCK}",
            f"<think>{BLOCK}</think> ok", "a</predicted_observation><predicted_observation>"]  # fmt: skip


@pytest.mark.parametrize("reply", UNMARKED)
def test_what_is_not_marked_as_an_observation_is_none(reply):
    assert extract(reply) is None
    assert extract_state(reply) == ""


def test_the_last_block_counts_and_a_state_inside_of_it_is_none():
    assert extract(reply_text("one") + reply_text("two")) == "two"
    assert extract_state("<predicted_observation><state>x</state></predicted_observation>") == ""


def test_a_call_is_told_with_its_keys_in_order_and_text_as_it_is():
    assert turn_text(ToolCall("1", "refund", '{"order": "A1", "amount": 5}')) == 'refund {"amount": 5, "order": "A1"}'
    assert turn_text(ToolCall("1", "refund", "{broken")) == "refund {broken"
    assert turn_text("ls -l") == "ls -l"


def test_an_empty_part_of_the_system_text_is_left_out():
    assert system_text("A shell.", rules="") == "A shell."
    assert system_text("A shell.") == f"{RULES}\n\nA shell."
    tools, shown = [ToolSpec("ls", "List\n files.")], [Demonstration("find it", (Turn("ls", "a.txt"),))]
    text = system_text("A shell.", tools, "cwd /", shown, "Fail at times.", rules="")
    assert [part.partition("\n")[0] for part in text.split("\n\n")] == [
        "A shell.", "Tools of the agent:", "State at the start:", "Recorded examples:", "Instruction:",
    ]  # fmt: skip
    assert "ls: List files. {" in text
    assert "> ls\n" + reply_text("a.txt") in text


def test_a_conversation_alternates_and_a_reminder_comes_with_the_action():
    said = conversation("sys", [Turn("a", "b", "s")], "c", reminder="cwd=/")
    assert [m.role for m in said] == ["system", "user", "assistant", "user"]
    assert said[2] == Message("assistant", reply_text("b", "s"))
    assert said[3].text == "What is true now: cwd=/\nc"
    assert conversation("", [], "c") == [Message("user", "c")]
