"""What agents draw anew at each start is left out of comparisons, and nothing else is."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clew.core.errors import BadInput
from clew.core.values import Message, ToolSpec
from clew.serve.published.masks import NONE, Masks, own
from clew.serve.published.published_agents import LOGS, MASKS, declared, exit_code

ALL = Masks(MASKS)
LISTED = """total 24
drwxr-xr-x  4 root root 4096 Nov 25 19:12 .
drwxr-xr-x 14 root root 4096 Nov 25 19:13 ..
-rw-r--r--  1 root root    4 Nov 25 19:12 a.txt
lrwxrwxrwx  1 root root    5 Nov  2  2025 b -> a.txt
"""
AGAIN = """total 28
drwxr-xr-x 4 root root 4096 Dec  1 09:00 .
drwxr-xr-x 6 ann staff 12288 Dec  1 09:04 ..
-rw-r--r-- 1 root root    4 Dec  1 09:00 a.txt
lrwxrwxrwx 1 root root    5 Nov  2 09:00 b -> a.txt
"""
UUIDS = "01a21420-9b55-77f0-a38d-57f31c7bfd13", "7f0c7e08-0ae9-5e98-9f64-bc4f4a51ede4"
SAME = [
    ("ls: the folder above", LISTED, AGAIN),
    ("ls: times and columns", LISTED, AGAIN),
    ("ls: total", LISTED, AGAIN),
    ("duration", "1 passed in 0.02s", "1 passed in 1.30s"),
    ("duration", "Ran 3 tests in 0.001s", "Ran 3 tests in 0.010s"),
    ("duration", "real\t0m0.016s\nuser\t0m0.000s", "real\t0m1.116s\nuser\t0m0.020s"),
    ("duration of a test", "ok  \tpkg\t0.003s", "ok  \tpkg\t0.010s"),
    ("address in memory", "<function f at 0x7f00aa11bb22>", "<function f at 0x7f0012345678>"),
    ("temporary name", "in /tmp/tmpab12cd_9/x", "in /tmp/tmpzz12cd_0/x"),
    ("temporary name", "/tmp/tmp.DPy9yetHR8", "/tmp/tmp.ERo5sXEJ5d"),
    ("temporary folder of pytest", "/tmp/pytest-of-ann/pytest-3/test_a0", "/tmp/pytest-of-ann/pytest-12/test_a0"),
    ("process id", "Process Group PGID: 12345", "Process Group PGID: 991"),
    ("time stamp", "at 2026-11-25T19:13:01.250Z ok", "at 2026-11-26 08:00:00 ok"),
    ("date", "Wed Nov 25 19:13:01 UTC 2026", "Thu Nov 26 09:00:00 UTC 2026"),
    ("date in a prompt", "Today's date is 2026-11-25.\n", "Today's date is 2026-11-26.\n"),
    ("date in a prompt", "  Today's date: Wed Nov 25 2026\n", "  Today's date: Thu Nov 26 2026\n"),
    (
        "mini-swe-agent: kernel",
        "<system_information>\nLinux 6.1.0 #1 SMP x86_64\n</system_information>",
        "<system_information>\nLinux 6.2.9 #4 SMP x86_64\n</system_information>",
    ),
    ("claude code: kernel", " - OS Version: Linux 6.1.0\n - more", " - OS Version: Linux 6.2.0\n - more"),
    (
        "claude code: session",
        f"saved to /h/.claude/projects/-work/{UUIDS[0]}/tool-results/a.txt",
        f"saved to /h/.claude/projects/-work/{UUIDS[1]}/tool-results/a.txt",
    ),
    ("claude code: sub-agent", "agentId: acd2217806ea95907 (use", "agentId: a0d2217806ea95907 (use"),
    ("codex: item", f"msg_{UUIDS[0]}", f"msg_{UUIDS[1]}"),
    ("codex: item", f'{{"0":{{"id":"fco_{UUIDS[0]}"}}}}', f'{{"0":{{"id":"fco_{UUIDS[1]}"}}}}'),
    ("codex: chunk", "Chunk ID: fbeb1b\nWall time: 0.0000 seconds", "Chunk ID: 0beb1c\nWall time: 0.0000 seconds"),
    ("codex: wall time", "Wall time: 0.0000 seconds", "Wall time: 1.2000 seconds"),
    ("codex: date", "<current_date>2026-11-25</current_date>", "<current_date>2026-11-26</current_date>"),
]  # fmt: skip


@pytest.mark.parametrize("written", ["plain", "as JSON"])
@pytest.mark.parametrize(("name", "was", "now"), SAME)
def test_what_differs_from_start_to_start_is_left_out_and_named(name: str, was: str, now: str, written: str) -> None:
    """Agents pass on what commands print as it is, or as a text in JSON."""
    if written == "as JSON":
        was, now = json.dumps({"output": was}), json.dumps({"output": now})
    assert was != now
    assert ALL.text(was) == ALL.text(now)
    assert name in ALL.used({"messages": [{"text": was}]}, {"messages": [{"text": now}]})


DIFFERENT = [
    (LISTED, LISTED.replace("a.txt\nl", "c.txt\nl")),
    (LISTED, LISTED.replace("   4 Nov", "   5 Nov")),
    (LISTED, LISTED.replace("-rw-r--r--", "-rwxr-xr-x")),
    (LISTED, LISTED.replace("5 Nov  2  2025 b", "6 Nov  2  2025 b")),
    ("1 passed in 0.02s", "1 failed in 0.02s"),
    ("<function f at 0x7f00aa11bb22>", "<function g at 0x7f00aa11bb22>"),
    ("x = 0x7f00aa11bb22", "x = 0x7f0000000000"),
    ("return code 1", "return code 0"),
    ("[main 9c5135c] change", "[main bc9fb77] change"),
    ("call_0", "call_1"),
    ("the year 2025", "the year 2026"),
    ("msg_hello", "msg_other"),
    ("Process exited with code 0", "Process exited with code 1"),
]


@pytest.mark.parametrize(("was", "now"), DIFFERENT)
def test_what_a_command_did_otherwise_is_not_left_out(was: str, now: str) -> None:
    assert ALL.text(was) != ALL.text(now)
    assert ALL.text(json.dumps(was)) != ALL.text(json.dumps(now))
    assert not ALL.used(was, now)
    assert NONE.text(was) == was


@settings(max_examples=200)
@given(st.text(max_size=60), st.sampled_from([*SAME]))
def test_what_stands_around_it_counts(around: str, one: tuple[str, str, str]) -> None:
    """Any other difference beside the masked one is still a difference."""
    _, was, now = one
    a, b = f"{was}\n|{around}|", f"{now}\n|{around}+|"
    assert ALL.text(a) != ALL.text(b)


def test_messages_and_tools_are_compared_through_masks() -> None:
    was, now = (Message("tool", f"Chunk ID: {c}\nOutput:\nhi", call_id="c") for c in ("fbeb1b", "0beb1c"))
    assert ALL.same(was, now)
    assert not NONE.same(was, now)
    assert not ALL.same(was, now._replace(call_id="d"))
    tools = [(ToolSpec("sh", f"runs; Today's date is 2026-11-{day}.", {"type": "object"}),) for day in (25, 26)]
    assert ALL.offered(*tools)
    assert not NONE.offered(*tools)
    assert not ALL.offered(tools[0], (ToolSpec("bash", tools[0][0].description, {"type": "object"}),))
    assert not ALL.offered(tools[0], (*tools[1], *tools[1]))


def test_masks_of_ones_own_leave_out_their_groups_or_all_of_the_match() -> None:
    masks = Masks(own([r"run-[0-9a-f]{8}", r"^seed=(\d+) of (\d+)$", r"a(x)?b"]))
    assert masks.text("run-01234567 goes") == masks.text("run-89abcdef goes")
    assert masks.text("a\nseed=3 of 4\nb") == masks.text("a\nseed=5 of 6\nb")
    assert masks.text("seed=3 of 4 b") == "seed=3 of 4 b"
    assert masks.text("ab") == "[masked: own a(x)?b]"
    assert masks.used("seed=3 of 4", "seed=3 of 5") == {r"own ^seed=(\d+) of (\d+)$": 1}


@pytest.mark.parametrize("pattern", ["(", "a*", "x" * 400])
def test_a_mask_that_is_none_is_named(pattern: str) -> None:
    with pytest.raises(BadInput, match="the mask") as told:
        own([pattern])
    assert "--mask" in told.value.remedy


def test_a_long_text_is_searched_once() -> None:
    text = ("The quick brown fox jumps over the lazy dog, in 3 seconds. " * 20 + "\n") * 400
    masks = Masks(MASKS)
    assert masks.text(text) is masks.text("".join(text))
    assert "[masked: duration]" in masks.text(text)
    assert masks._kept.cache_info().hits == 2


TURN = {"x-codex-turn-metadata": json.dumps({"request_kind": "compaction", "thread_source": "user"})}


@pytest.mark.parametrize(
    ("headers", "told"),
    [
        ({}, ""),
        ({"x-claude-code-agent-id": "acd2217806ea95907", "x-app": "cli"}, "sub-agent"),
        ({"x-claude-code-session-id": UUIDS[0]}, ""),
        (TURN, "compaction"),
        ({"x-codex-turn-metadata": json.dumps({"request_kind": "turn", "thread_source": "user"})}, ""),
        ({"x-codex-turn-metadata": json.dumps({"request_kind": "turn", "thread_source": "subagent"})}, "sub-agent"),
        ({"x-openai-subagent": "review"}, "sub-agent"),
        ({"x-openai-subagent": "compact"}, "compaction"),
        ({"x-codex-turn-metadata": "{no json"}, ""),
        ({"x-codex-turn-metadata": "[" * 9999}, ""),
        ({"x-codex-turn-metadata": "[1]"}, ""),
    ],
)
def test_what_agents_declare_by_headers_of_their_own(headers: dict[str, str], told: str) -> None:
    assert declared(headers) == told


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ('{\n  "returncode": 1,\n  "output": ""\n}', 1),
        ('{"returncode": -1, "output": "x"}', -1),
        ("<returncode>127</returncode>\n<output>", 127),
        ("Exit code 1\nno such file", 1),
        ("Exit code: 0\nWall time: 1 seconds", 0),
        ("Chunk ID: fbeb1b\nWall time: 0.0000 seconds\nProcess exited with code 2\nOutput:\n", 2),
        ("the program said Exit code 1", None),
        ("two\n", None),
        ("", None),
        ("Exit code " + "9" * 5000, None),
    ],
)
def test_exit_codes_that_agents_pass_on(text: str, code: int | None) -> None:
    assert exit_code(text) == code


def test_logs_that_agents_keep_of_themselves() -> None:
    kept = [".aider.chat.history.md", "sub/.aider.input.history", ".aider.tags.cache.v4/cache.db", ".git/opencode"]
    assert all(LOGS.fullmatch(path) for path in kept)
    assert not any(LOGS.fullmatch(path) for path in ("aider.chat.history.md", "a.txt", ".git/HEAD", "opencode"))
