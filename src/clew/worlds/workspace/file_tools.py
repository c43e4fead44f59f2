"""The tools of a workspace: a shell, and reading, writing and editing of files, all of them performed in the sandbox.

``WorkspaceWorld`` asks here what a tool call comes to. Arguments are a model's and are only ever passed to a program as
arguments or as its input: no path is opened outside the sandbox.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from clew.core.errors import BadInput
from clew.core.values import ToolCall, ToolSpec
from clew.worlds.schemas import read_arguments, tool_spec

BASH = tool_spec(
    "bash",
    "Run a command of bash in the folder; each begins there in a fresh shell. Gives its output and exit status.",
    command="string",
)
READ = tool_spec("read", "Lines of a file, numbered, from a line on.", path="string", line="integer", count="integer")
WRITE = tool_spec("write", "Write a whole file; folders on its way are made.", path="string", text="string")
REPLACE = tool_spec(
    "replace", "Replace a text that stands once in a file by another.", path="string", old="string", new="string"
)
TOOLS: Sequence[ToolSpec] = (BASH, READ, WRITE, REPLACE)
MOST_LINES = 400  # that one read gives

# Runs with the interpreter's own files alone (-I), and takes what it is to do on its standard input.
PROGRAM = """
import json, os, sys
task = json.load(sys.stdin)
path = task["path"]
try:
    if task["do"] == "read":
        with open(path, encoding="utf-8", errors="replace") as file:
            lines = file.read().split("\\n")
        first = max(task["line"], 1)
        shown = lines[first - 1 : first - 1 + task["count"]]
        print("\\n".join(f"{first + i}\\t{text[:2000]}" for i, text in enumerate(shown)))
        print(f"({len(lines)} lines)")
    elif task["do"] == "write":
        if os.path.dirname(path):
            os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8", newline="") as file:
            file.write(task["text"])
        print("written")
    else:
        with open(path, encoding="utf-8", newline="") as file:
            text = file.read()
        found = text.count(task["old"]) if task["old"] else 0
        if found != 1:
            sys.exit(f"the text stands {found} times in {path}; give one that stands there once")
        with open(path, "w", encoding="utf-8", newline="") as file:
            file.write(text.replace(task["old"], task["new"]))
        print("replaced")
except (OSError, UnicodeError) as error:
    sys.exit(str(error))
"""


def tools(hosts: str) -> Sequence[ToolSpec]:
    """The tools of a workspace whose commands may reach these hosts, or none."""
    if not hosts:
        return TOOLS
    told = f"{BASH.description} Of the network it reaches {hosts} alone, by the proxy that HTTPS_PROXY names."
    return (replace(BASH, description=told), *TOOLS[1:])


class Said(NamedTuple):
    """What came of a program in the sandbox."""

    ok: bool
    out: bytes
    err: bytes


class Asked(NamedTuple):
    """A program that performs a call of a file tool: its words, its input, and how what it said is told."""

    argv: Sequence[str]
    stdin: str
    answer: Callable[[Said], str]


def asked_of(action: str | ToolCall) -> str | Asked:
    """What an action comes to: a line of the shell, or a program with its input.

    Raises:
        BadInput: there is no such tool, or its arguments do not fit.
    """
    if not isinstance(action, ToolCall):
        return action
    spec = next((tool for tool in TOOLS if tool.name == action.name), None)
    if spec is None:
        raise BadInput(f"there is no tool {action.name[:40]!r}; the tools are {', '.join(t.name for t in TOOLS)}")
    given = read_arguments(spec, action.arguments)
    if spec is BASH:
        return str(given["command"])
    if "count" in given:
        given["count"] = min(max(given["count"], 1), MOST_LINES)
    return Asked(["python3", "-I", "-c", PROGRAM], json.dumps({"do": spec.name, **given}), _answer)


def _answer(said: Said) -> str:
    text = (said.out if said.ok else said.err).decode("utf-8", "replace").strip("\n")
    return text if said.ok else f"error: {text or 'the program was ended'}"
