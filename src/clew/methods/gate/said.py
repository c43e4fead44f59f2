"""What a check of the gate came to: an exit status as a verdict, and the observation that the gate reads.

``candidates`` and ``patches`` answer in it, ``gate_agent`` reads it.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Sequence
from typing import Protocol

from clew.core.errors import WorldError
from clew.core.values import Observation
from clew.methods.kernels.runs import ended

TAIL = 600  # characters of a command's output that are kept
# the last line of pytest where no test passed or failed: "3 skipped, 1 deselected in 0.02s"
NOTHING_RUN = re.compile(r"^=*\s*(?:\d+ (?:skipped|deselected|warnings?),? )+in [\d.]+s[^\n]*\s*\Z", re.MULTILINE)


class Commands(Protocol):
    """The commands of a gate; see ``candidates.Checks``."""

    oracle: str
    critics: tuple[str, ...]
    refine: str
    wall: float


def asked(commands: Commands, action: str, names: Sequence[str]) -> tuple[str, str]:
    """The kind of a check (``critic``, ``verify`` or ``refine``) and its command on the files that were changed.

    Raises:
        WorldError: no such check.
    """
    word, _, rest = action.partition(" ")
    known = {"verify": commands.oracle, "refine": commands.refine, "critic": rest}
    if word not in known or not known[word] or (word == "critic" and rest not in commands.critics):
        raise WorldError(f"{action[:60]!r} is no check", remedy="Use critic COMMAND, verify or refine.")
    changed = shlex.join(f"./{name}" if name.startswith("-") else name for name in names)
    return word, known[word].replace("{file}", changed)


def observed(command: str, code: int | None, limit: str, said: str, seconds: float, content: str) -> Observation:
    """How a command ended, as the gate reads it; ``content`` names what was looked at."""
    passed, why = verdict(command, code, limit)
    if passed and "pytest" in command and NOTHING_RUN.search(said[-TAIL:]):
        passed, why = None, "every test was skipped or left out: nothing was tested"
    found = {"passed": passed, "why": why, "seconds": round(seconds, 4), "tail": said[-TAIL:], "content": content}
    return Observation(json.dumps(found, ensure_ascii=False))


def verdict(command: str, code: int | None, limit: str) -> tuple[bool | None, str]:
    """What an exit status says: passed, failed, or None with the reason: one that did not finish has found nothing."""
    if code is None:
        return None, f"ended for its limit: {limit}"
    if code == 0:
        return True, ""
    broken = {1, 2} if "pytest" in command else {1}
    if code in broken:
        return False, f"exit {code}"
    names = {126: "cannot be executed", 127: "is not installed here"}
    told = ended(code)  # by a signal, or with a status that says nothing
    return None, told if "SIG" in told else f"exit {code}: {names.get(code, 'neither passed nor failed')}"
