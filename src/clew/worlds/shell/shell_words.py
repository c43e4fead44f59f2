"""How a line of the shell world is read: its words, where its output goes, the options of a command, names in quotes.

The rules of the shell world call it. A line is read as bash reads it, or refused in one sentence; nothing is expanded.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

SPECIAL = frozenset("!\"$&'()*;<=>?[\\^`| \t")  # characters for which GNU's tools put a name into quotes
_TAKES = {
    "ls": "1a",
    "cat": "",
    "rm": "rf",
    "mv": "",
    "mkdir": "p",
    "wc": "lwc",
    "grep": "cinl",
    "touch": "",
    "cp": "r",
}


class Said(Exception):
    """What a command says to give up, whole."""


def quoted(name: str) -> str:
    """A name as GNU's tools always quote it."""
    return f'"{name}"' if "'" in name else f"'{name}'"


def plain(name: str) -> str:
    """A name as GNU's tools show it where only odd ones are quoted."""
    return quoted(name) if not name or SPECIAL & set(name) or name[0] in "#~" else name


def parsed(line: str) -> tuple[list[str], str | None, bool]:
    """The words of a command line, the file that its output goes to, and whether that is appended.

    Raises:
        Said: a quote is open, or the line is more than one plain command.
    """
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.commenters, lexer.whitespace_split = "", True
    try:
        words = list(lexer)
    except ValueError:
        raise Said("bash: unexpected EOF while looking for matching quote") from None
    found: list[str] = []
    target: str | None = None
    more, at = False, 0
    while at < len(words):
        word = words[at]
        if word in (">", ">>") and _bare(line, word):
            if at + 1 == len(words):
                raise Said("bash: syntax error near unexpected token `newline'")
            target, more, at = words[at + 1], word == ">>", at + 2
            continue
        if word and set(word) <= set("();<>|&") and _bare(line, word):
            raise Said(f"bash: {word}: this shell takes one plain command at a time")
        found.append(word)
        at += 1
    return found, target, more


def _bare(line: str, sign: str) -> bool:
    """Whether a sign stands in a line outside quotes."""
    return sign in re.sub(r"'[^']*'|\"(?:[^\"\\]|\\.)*\"|\\.", "", line)


def options(command: str, words: Sequence[str]) -> tuple[str, list[str]]:
    """Letters of options, and operands.

    Raises:
        Said: the command has no such option.
    """
    given, names, ended = "", list[str](), False
    usage = "\nUsage: grep [OPTION]... PATTERNS [FILE]..." if command == "grep" else ""
    for word in words:
        if ended or len(word) < 2 or not word.startswith("-"):
            names.append(word)
        elif word == "--":
            ended = True
        else:
            bad = next((letter for letter in word[1:] if letter not in _TAKES[command]), "")
            if word.startswith("--") or bad:
                why = f"unrecognized option '{word}'" if word.startswith("--") else f"invalid option -- '{bad}'"
                raise Said(f"{command}: {why}{usage}\nTry '{command} --help' for more information.")
            given += word[1:]
    return given, names


def regex(pattern: str) -> str:
    """A basic pattern of ``^``, ``$`` and ``.`` as a regular expression without repetition, so that it costs little."""
    start, end = pattern.startswith("^"), pattern.endswith("$") and len(pattern) > 1
    inner = pattern[start : len(pattern) - end]
    return "^" * start + "".join("." if c == "." else re.escape(c) for c in inner) + "$" * end
