"""Scorers that compare texts: ``exact`` and ``regex``. The dataset's rewards call them by name."""

from __future__ import annotations

import re

from clew.core.errors import BadInput

SEARCHED = 100_000  # last characters of a reply that a pattern is searched in


def exact(reply: str, answer: object, *, case: bool = False, last_line: bool = False) -> float:
    """1 where the reply is the answer, white space made single and cut off at both ends; else 0.

    Args:
        case: tell capital letters from small ones.
        last_line: look at the reply's last line that is not blank, not at the whole.
    """
    if last_line:
        reply = next((line for line in reversed(reply.splitlines()) if line.strip()), "")
    wanted = answer if isinstance(answer, list) else [answer]
    return float(_plain(reply, case) in {_plain(str(one), case) for one in wanted})


def _plain(text: str, case: bool) -> str:
    text = " ".join(text.split())
    return text if case else text.casefold()


def regex(reply: str, answer: object, *, pattern: str = "", group: int | str = 0, case: bool = False) -> float:
    """1 where the pattern is found; with a ``group``, where the last one found is the answer; else 0.

    Args:
        pattern: a regular expression of Python. Without one the answer is the pattern. It is yours, and a pattern
            that takes exponential time on some text takes it here.
        group: number or name of the group that holds what is compared with the answer; 0 compares nothing.

    Raises:
        BadInput: the pattern is none, or has no such group.
    """
    found = list(_compiled(pattern or str(answer), case).finditer(reply[-SEARCHED:]))
    if not found or group == 0:
        return float(bool(found))
    try:
        said = found[-1][group]
    except IndexError as error:
        raise BadInput(f"the pattern {pattern!r} has no group {group!r}", remedy="Name a group it has.") from error
    return exact(said or "", answer, case=case)


def _compiled(pattern: str, case: bool) -> re.Pattern[str]:
    try:
        return re.compile(pattern, 0 if case else re.IGNORECASE)
    except re.error as error:
        remedy = "Mend it; `python -c 'import re; re.compile(...)'` tells the same."
        raise BadInput(f"{pattern!r} is no regular expression: {error}", remedy=remedy) from error
