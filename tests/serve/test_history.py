"""Where a request of a foreign program belongs among the conversations of its run, and how its drift is named."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clew.core.values import Message, ToolCall, ToolSpec
from clew.serve.history import Arrival, History, drift_of

ADD = ToolSpec("add", "adds", {"type": "object", "properties": {"a": {"type": "integer"}}})
SAMPLING = {"max_tokens": 9, "stop": ("x",)}
CALLED = Message("assistant", "", calls=(ToolCall("c1", "add", '{"a": 1, "b": 2}'),))
GIVEN = Message("tool", "3", call_id="c1")


def talk(words: str) -> list[Message]:
    """One message for each letter: the user's in lower case, the assistant's in upper case."""
    return [Message("assistant" if letter.isupper() else "user", f"says {letter}") for letter in words]


def ask(history: History, messages: Sequence[Message], reply: str = "", **options: Any) -> Arrival:
    """A request as a session takes it: placed, written down, read again and applied, then answered where it says so."""
    asked: dict[str, Any] = {"model": "m", "tools": (ADD,), "sampling": SAMPLING} | options
    placed = history.place(messages, **asked)
    it = Arrival.read(placed.text())
    assert it == placed._replace(tools=() if placed.goes_on else placed.tools)
    assert history.apply(it) == list(messages), "no message is changed"
    if reply:
        history.answered(it.thread, talk(reply)[0])
    return it


@pytest.mark.parametrize(
    ("before", "now", "told"),
    [
        ("aBcD", "aBcDe", ""),
        ("aBcD", "xYz", ""),
        ("aBcD", "", ""),
        ("", "ab", ""),
        ("aBcD", "aBx", ""),  # another continuation repeats nothing
        ("aBcD", "aB", "went back to message 2"),
        ("aBcD", "acD", "message 1 dropped"),
        ("aBcDe", "aDe", "messages 1 to 2 dropped"),
        ("aBcD", "axcD", "message 1 replaced by 1"),
        ("aBcDe", "axDe", "messages 1 to 2 replaced by 1"),
        ("aBcD", "aBxYcD", "2 inserted before message 2"),
        ("aBcDeF", "acDxeF", "message 1 dropped; 1 inserted before message 4"),
        ("aBcD", "BcD", "message 0 dropped"),
        ("aBcDe", "acXy", "message 1 dropped"),  # what is new at the end is no drift
        ("aBc", "acXyZ", "message 1 dropped"),
        ("aBcDeF", "acDF", "message 1 dropped; message 4 dropped"),
    ],
)
def test_drift_is_named(before: str, now: str, told: str) -> None:
    assert drift_of(talk(before), talk(now)) == told


@pytest.mark.parametrize(
    ("recorded", "sent", "told"),
    [
        (Message("assistant", "B", reasoning="why"), Message("assistant", "B"), "without its reasoning"),
        (Message("user", "two words"), Message("user", " two  words\n"), "with other white space"),
        (CALLED, CALLED._replace(calls=(CALLED.calls[0]._replace(id="c2"),)), "with other call ids"),
        (GIVEN, GIVEN._replace(call_id="c2"), "with other call ids"),
        (Message("user", "u"), Message("user", "u", extra='{"chat": {"name": "Ann"}}'), "with other fields"),
        (Message("assistant", "B"), Message("assistant", "B", reasoning="why"), "with other fields"),
    ],
)
def test_a_message_in_other_words_is_named_by_what_changed(recorded: Message, sent: Message, told: str) -> None:
    start, end = talk("a"), talk("cD")
    assert drift_of([*start, recorded, *end], [*start, sent, *end]) == f"message 1 {told}"
    assert drift_of([*start, *start, recorded, *end], [*start, sent, *end]) == f"message 1 dropped; message 2 {told}"
    spelt = CALLED._replace(calls=(CALLED.calls[0]._replace(arguments='{"b":2,"a":1}'),))
    assert drift_of([*start, CALLED, recorded], [*start, spelt, sent]) == f"message 2 {told}"


def test_a_history_goes_on_in_its_thread() -> None:
    history = History()
    first = ask(history, talk("a"), "B")
    assert (first.number, first.thread, first.of, first.keep, first.goes_on) == (0, 0, -1, 0, False)
    assert (first.say, first.tools, first.sampling) == (tuple(talk("a")), (ADD,), SAMPLING)
    second = ask(history, talk("aBc"), "D")
    assert (second.number, second.thread, second.keep, second.goes_on) == (1, 0, 2, True)
    assert (second.say, second.drift) == (tuple(talk("c")), "")
    assert history.whole(second).tools == (ADD,)
    assert history.count == 2
    assert history.threads[0].path == talk("aBcD")


def test_a_thread_of_one_message_goes_on_too() -> None:
    """Its request got no answer; the program asks again with a message more."""
    history = History()
    first = ask(history, talk("a"))
    history.answered(first.thread, None)
    assert history.threads[0].path == talk("a")
    again = ask(history, talk("ab"))
    assert (again.thread, again.keep, again.goes_on, again.tools) == (0, 1, True, ())


def test_what_does_not_go_on_branches_off_where_it_differs() -> None:
    history = History()
    ask(history, talk("a"), "B")
    ask(history, talk("aBc"), "D")
    back = ask(history, talk("aBx"), "Y")
    assert (back.thread, back.of, back.keep, back.say, back.drift) == (1, 0, 2, tuple(talk("x")), "")
    told = ask(history, talk("acDe"), "F")
    assert (told.thread, told.of, told.keep, told.drift) == (2, 0, 1, "message 1 dropped")
    twice = ask(history, talk("aBxYz"))
    assert (twice.thread, twice.keep) == (1, 4), "the thread that holds most of it"
    other = ask(history, talk("qr"))
    assert (other.thread, other.of, other.keep, other.drift) == (3, -1, 0, "")
    assert [thread.path for thread in history.threads] == [talk("aBcD"), talk("aBxYz"), talk("acDeF"), talk("qr")]


def test_of_equal_threads_the_latest_goes_on_or_is_left() -> None:
    history = History()
    for thread in range(2):  # the first is under way when the second comes
        it = ask(history, talk("a"))
        assert (it.thread, it.of, it.keep) == (thread, thread - 1, thread)
    for thread in range(2):
        history.answered(thread, talk("B")[0])
        history.answered(thread, talk("B")[0])  # said twice of one answer
    assert [thread.path for thread in history.threads] == [talk("aB")] * 2
    assert ask(history, talk("aBc")).thread == 1
    left = ask(history, talk("ax"))
    assert (left.of, left.keep) == (1, 1)


def test_only_a_thread_that_is_idle_and_of_the_same_model_and_tools_goes_on() -> None:
    for options in ({"model": "n"}, {"tools": ()}):
        history = History()
        ask(history, talk("a"), "B")
        it = ask(history, talk("aBc"), "D", **options)
        assert (it.thread, it.of, it.keep, it.drift) == (1, 0, 2, "")
        assert history.whole(it).tools == options.get("tools", (ADD,))
    history = History()
    ask(history, talk("a"), "B", model="m?top_k=4")  # as a record of an earlier version names it
    assert ask(history, talk("aBc")).goes_on
    assert not ask(history, talk("aBcd")).goes_on, "an answer is under way there"


def test_a_beginning_that_was_dropped_is_found_in_later_messages() -> None:
    """Nothing is shared with the recorded beginning: a thread of its own, with the drift of the latest it tells."""
    history = History()
    ask(history, talk("abc"), "D")
    ask(history, talk("zbc"), "D")
    cut = ask(history, talk("bcDe"))
    assert (cut.of, cut.keep, cut.say, cut.drift) == (-1, 0, tuple(talk("bcDe")), "message 0 dropped")
    assert ask(history, talk("q")).drift == ""


def test_what_the_program_declares_is_believed() -> None:
    """A declared compaction branches without a word of drift; a sub-agent shares nothing, however it begins."""
    history = History()
    ask(history, talk("aBc"), "D")
    compaction = ask(history, talk("acDe"), declared="compaction")
    assert (compaction.of, compaction.keep, compaction.drift) == (0, 1, "")
    child = ask(history, talk("aBx"), declared="sub-agent")
    assert (child.of, child.keep, child.drift, child.declared) == (-1, 0, "", "sub-agent")
    apart = ask(history, talk("cDe"), declared="compaction")
    assert (apart.of, apart.keep, apart.drift) == (-1, 0, "")


def test_what_is_no_request_reads_as_none() -> None:
    assert Arrival.read('{"ended": true}') is None
    assert Arrival.read('{"retry": 3}') is None


def test_the_body_of_the_last_request_holds_until_another_comes() -> None:
    history = History()
    asked: tuple[Any, ...] = (talk("a"), "m", (ADD,), SAMPLING)
    first = history.place(*asked)._replace(rest={"top": 1})
    history.apply(first)
    history.answered(0, talk("B")[0])
    second = history.place(talk("aBc"), *asked[1:])
    history.apply(second)
    assert (second.rest, history.whole(second).rest) == (None, {"top": 1})


@given(st.lists(st.tuples(st.text("abCD", min_size=1, max_size=6), st.booleans()), max_size=12))
@settings(max_examples=150, deadline=None)
def test_whatever_a_program_sends_each_request_holds_its_own_messages(requests: list[tuple[str, bool]]) -> None:
    """``ask`` asserts it; and threads only grow, and each is told by the requests that were asked in it."""
    history = History()
    for number, (words, answered) in enumerate(requests):
        before = [list(thread.path) for thread in history.threads]
        it = ask(history, talk(words), "E" if answered else "")
        assert it.number == number
        for old, thread in zip(before, history.threads, strict=False):
            assert thread.path[: len(old)] == old
        assert len(history.threads) == len(before) + (not it.goes_on)
