"""What a training was begun with: kept as JSON in its folder, and compared in words when it is taken up again.

The loop and the passes over given rows ask here. Other settings are refused by their callers, with each field that
differs; a file that says something else than it did is only warned of, because the training may well be meant to go on.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from clew.core.printable import short
from clew.core.sources import digests

Sources = dict[str, list[str]]  # by file (or agent), the digest of each content that it had, the latest last
LONGEST = 60  # characters of a value


def read(path: Path) -> dict[str, Any] | None:
    """The settings in a file; None where there is none."""
    found: dict[str, Any] | None = json.loads(path.read_text()) if path.exists() else None
    return found


def write(path: Path, settings: Mapping[str, Any]) -> None:
    """Replace the settings; a crash leaves the old ones or the new."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".writing")
    fresh.write_text(json.dumps(settings, indent=1) + "\n")
    fresh.replace(path)


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Each field that differs, with the value that it had and the one that it has now: ``tasks was 2 and is 3``."""
    told = []
    for name in dict.fromkeys([*before, *now]):
        old, new = before.get(name), now.get(name)
        if old == new:
            continue
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            told.append(differences(old, new))
        else:
            told.append(f"{name} was {_said(old)} and is {_said(new)}")
    return ", ".join(told)


def _said(value: object) -> str:
    return "not set" if value is None else short(value if isinstance(value, str) else json.dumps(value), LONGEST)


def sources(refs: Iterable[str], more: Mapping[str, str]) -> Sources:
    """The files that references name, with the digests of what they say; ``more`` are digests known by other means."""
    return {place: [digest] for place, digest in {**digests(refs), **more}.items() if digest}


def gone_on(before: Mapping[str, list[str]], now: Sources, name: str) -> Sources:
    """Every content that each file had, after a warning of those that say something else than they did."""
    other = [place for place, digest in now.items() if place in before and before[place][-1:] != digest]
    if other:
        warnings.warn(
            f"{', '.join(other)} changed since training {name!r} was at work, and counts as it is now from here on: "
            "put it back as it was, or give the training another name, so that all its iterations are alike",
            stacklevel=5,
        )
    return {**before, **{place: [*before.get(place, []), *d] if place in other else d for place, d in now.items()}}
