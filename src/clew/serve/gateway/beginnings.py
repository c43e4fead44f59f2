"""What a recorded program began with: its files, its home, and what its machine and its day were like.

``program_folders`` notes it with a run and reads it back for forks and replays. Of the environment only names are kept,
never values. What a record says is a stranger's, and is read with bounds.
"""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from clew.core.errors import BadRecord
from clew.core.printable import short
from clew.serve.noted_files import Files

BEGIN, HOME = "begin", "home"  # where a beginning and a home are noted among the files of a run
SHOWN = 6  # variables that a sentence names


class Beginning(NamedTuple):
    """What a run's program began with.

    folder: where the files lay. cwd: where it was started. date: git's, as pinned. home: what its own home held and
    ``at`` where that lay; None where it had none. facts: see ``facts``.
    """

    files: Files
    folder: str
    cwd: str
    date: str
    home: Files | None
    at: str
    facts: Mapping[str, object]


def beginning(data: str, home: str | None = None) -> Beginning:
    """What annotations say of a run's beginning, and of the home that its program had.

    Raises:
        BadRecord: they say nothing of the kind.
    """
    files, told = Files.read(0, data), json.loads(data)
    kept, at = None, ""
    if home is not None:
        kept, at = Files.read(0, home), str(json.loads(home).get("folder", ""))
    facts = told.get("facts")
    folder, cwd, date = (str(told.get(key, "")) for key in ("folder", "cwd", "date"))
    found = Beginning(files, folder, cwd, date, kept, at, facts if isinstance(facts, dict) else {})
    places = [found.folder, found.cwd, *([at] if kept else [])]
    if not all(Path(place).is_absolute() for place in places) or len(found.date) > 40:
        raise BadRecord("a run's beginning that names no folder", remedy="Run `clew store verify`.")
    return found


def facts(variables: Mapping[str, str]) -> dict[str, object]:
    """What a program may say in its requests of where and when it runs: the day, the system, names of variables."""
    return {
        "day": time.strftime("%Y-%m-%d"),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "variables": sorted(variables),
    }


def changed(recorded: Mapping[str, object], now: Mapping[str, object]) -> list[str]:
    """What is otherwise than when a run was recorded, as sentences."""
    said = list[str]()
    for name, text in (("day", "recorded on {}, today is {}"), ("system", "recorded under {}, this is {}")):
        was = recorded.get(name)
        if isinstance(was, str) and was != now[name]:
            said.append(text.format(short(was, 60), now[name]))
    then, today = recorded.get("variables"), now["variables"]
    if isinstance(then, list) and isinstance(today, list):
        for text, names in (
            ("variables that were set then and are not now", {*map(str, then)} - {*today}),
            ("variables that are set now and were not then", {*today} - {*map(str, then)}),
        ):
            more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
            said += [f"{text}: {', '.join(short(n, 40) for n in sorted(names)[:SHOWN])}{more}"] if names else []
    return said
