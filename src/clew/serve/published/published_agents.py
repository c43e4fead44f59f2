"""What published coding agents and the commands that they run write anew at every start, and what they declare.

A table for ``masks``, one for the comparison of files, and what headers say a request is. The gateway reads them; each
entry was seen in a request of the agent that it names (``python benchmarks/coding_agents.py`` sees them again).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from clew.serve.published.masks import Mask

# an agent may pass on what a command printed as JSON, in which the end of a line is written as \n
_LINE = r"(?:(?m:^)|(?<=\\n)|(?<=\"))"
_END = r"(?=(?m:$)|\\n|\")"
_WORD = r"(?:\b|(?<=\\[nt]))"
_LISTED = _LINE + r"[bcdlps-][-rwxsStT]{9}[.+@]?"
_UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_DAY = r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun),? [A-Z][a-z]{2} +\d{1,2}"

_COMMANDS = {  # what any agent passes on of commands
    # its links, size and time are those of the machine: a copy of the folder stands somewhere else
    "ls: the folder above": (_LISTED + r"( +\d+(?: +\S+){6} +)\.\." + _END, " .."),
    # the columns are as wide as what stands in them, in the line of the folder above too
    "ls: times and columns": (
        _LISTED + r"( +)\d+( +)\S+( +)\S+( +)(?:\d+, +)?\S+( +"
        r"(?:[A-Z][a-z]{2} +\d{1,2} +[\d:]{4,5}|\d{4}-\d\d-\d\d \d\d:\d\d(?::\d\d\.\d+ [+-]\d{4})?) )",
        "r",
    ),
    "ls: total": (_LINE + r"total (\d[\d.]*[KMG]?)(?=(?:\n|\\n)[bcdlps-][-rwxsStT]{9})", "total "),
    "duration": (
        _WORD + r"(?:in|took|Time:|real|user|sys)(?:[ \t]|\\t)+((?:\d+m)?\d+(?:\.\d+)?[ ]?(?:ms|s|secs?|seconds?))\b",
        "",
    ),
    "duration of a test": (r"(?:[\t(]|\\t)(\d+\.\d\d\d?s)\b", ""),
    "address in memory": (r"\bat (0x[0-9a-f]{8,16})\b", " 0x"),
    "temporary name": (r"/(tmp[a-z0-9_]{8}|tmp\.[A-Za-z0-9]{10})\b", "/tmp"),
    "temporary folder of pytest": (r"/pytest-of-\w+/(pytest-\d+)", "/pytest-of-"),
    "process id": (_WORD + r"(?:PGID|PIDs?|[Pp]id|process)[:= ]{1,2}(\d{2,7})\b", ""),
    "time stamp": (_WORD + r"(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z| ?[+-]\d\d:?\d\d)?)", ":"),
    "date": (rf"{_WORD}({_DAY} \d\d:\d\d:\d\d(?: [A-Z]{{3,4}})? \d{{4}}(?: [+-]\d{{4}})?)", ":"),
    "date in a prompt": (
        r"[Tt]oday'?s? (?:current )?date(?: is|:) ([^\n\\]{6,60}?)(?=[.(<]|\\n|\n|$)",
        "oday",
    ),
}
_AGENTS = {  # what one agent alone writes
    "mini-swe-agent: kernel": (r"<system_information>\s*(.{3,300}?)\s*</system_information>", "<system_information>"),
    "claude code: kernel": (r"OS Version: ([^\n\\]{3,100})", "OS Version: "),
    "claude code: session": (rf"/(?:\.claude/projects|claude-\d+)/[^/\s\\]{{1,200}}/({_UUID})", "claude"),
    "claude code: sub-agent": (r"\b(?:agentId: |to: ')(a[0-9a-f]{12,20})\b", "agentId: "),
    "claude code: time of a sub-agent": (r"\bduration_ms: (\d+)", "duration_ms: "),
    "claude code: command in the background": (r"running in background with ID: (\w+)", "background with ID: "),
    "claude code: check of a bill": (r"\bcch=([0-9a-f]+)", "cch="),
    "codex: item": (r"\b((?:msg|fc|fco|rs|ctc|ctco|ws|ig|lsh)_[0-9a-f]{8}[0-9a-f-]{8,})\b", "_"),
    "codex: chunk": (r"Chunk ID: ([0-9a-f]{4,16})", "Chunk ID: "),
    "codex: wall time": (r"Wall time: ([\d.]+) seconds", "Wall time: "),
    "codex: size of an output": (r"Original token count: (\d+)", "Original token count: "),
    "codex: running command": (r"running with session ID (\d+)", "session ID "),
    "codex: date": (r"<current_date>([^<]{4,40})</current_date>", "<current_date>"),
    "codex: time zone": (r"<timezone>([^<]{1,60})</timezone>", "<timezone>"),
}
MASKS = [Mask(name, re.compile(text), mark) for name, (text, mark) in {**_AGENTS, **_COMMANDS}.items()]

# files that agents keep of themselves in the folder that they work in: they hold dates and ids
LOGS = re.compile(
    r"(?:.*/)?(?:\.aider\.(?:chat\.history\.md|input\.history|llm\.history|tags\.cache[^/]*(?:/.*)?)|\.git/opencode(?:/.*)?)"
)
_TURN = "x-codex-turn-metadata"  # a JSON object


def declared(headers: Mapping[str, str]) -> str:
    """What an agent says by headers of its own that a request is: ``sub-agent``, ``compaction`` or nothing.

    Claude Code names the agent that asks where it is not the main one; Codex says of each request what kind it is.
    """
    if headers.get("x-claude-code-agent-id"):
        return "sub-agent"
    inside = headers.get("x-openai-subagent", "")
    try:
        turn = json.loads(headers.get(_TURN, "") or "{}")
    except (ValueError, RecursionError):
        turn = {}
    turn = turn if isinstance(turn, dict) else {}
    if inside == "compact" or turn.get("request_kind") == "compaction":
        return "compaction"
    return "sub-agent" if inside or turn.get("thread_source") == "subagent" else ""


_EXITS = [
    re.compile(r'\s*\{\s*"returncode":\s*(-?\d{1,10})\b'),  # mini-swe-agent
    re.compile(r"\s*<returncode>\s*(-?\d{1,10})\s*</returncode>"),  # the same, before its version 2
    re.compile(r"Exit code:? (-?\d{1,10})\b"),  # Claude Code, which says so of failures alone
    re.compile(r"(?:Chunk ID: \w+\n)?(?:Wall time: [^\n]{1,40}\n)?Process exited with code (-?\d{1,10})\b"),  # Codex
]


def exit_code(text: str) -> int | None:
    """The exit code that a tool's result says its command had, as known agents write it; None where it says none."""
    return next((int(found[1]) for one in _EXITS if (found := one.match(text))), None)
