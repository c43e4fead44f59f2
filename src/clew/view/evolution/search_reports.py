"""Searches of agents and judges among the viewer's reports: what each says of its judges and its best workspace.

The viewer asks for them, with figures by name. Folders of searches lie beside the store; they are read, never written.
"""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path
from typing import Any

from clew.core.errors import ClewError, UnknownName
from clew.core.stats import deviate, wilson
from clew.methods.coevolve.archive.archive import LOG
from clew.view.evolution.search_figures import alone, curves, tree
from clew.view.evolution.search_history import History, history

FIGURES = {"tree": tree, "curves": curves}
MOST = 100  # searches that are listed
_NAME = re.compile(r"\w[\w.-]*")


def cards(searches: Path | None) -> list[dict[str, Any]]:
    """What the searches in a folder found, as reports of the viewer; a folder that holds none, or no log, has none."""
    if searches is None or not searches.is_dir():
        return []
    found = list[dict[str, Any]]()
    for folder in sorted(searches.iterdir())[:MOST]:
        if not _NAME.fullmatch(folder.name):
            continue
        try:
            found += _cards(folder.name, _read(folder))
        except (ClewError, OSError):
            continue  # of another kind, or damaged: `clew evolve show` says so
    return found


def figure(searches: Path | None, name: str, kind: str) -> bytes:
    """A figure of a search, as an SVG file.

    Raises:
        UnknownName: there is no such search, or no such figure.
        BadRecord: the log of the search is damaged.
    """
    if searches is None or not _NAME.fullmatch(name) or kind not in FIGURES:
        raise UnknownName(f"no figure {kind} of a search {name}")
    return alone(FIGURES[kind](_read(searches / name))).encode()


def _read(folder: Path) -> History:
    log = folder / LOG
    return _followed(folder, log.stat().st_size if log.is_file() else 0)


@lru_cache(maxsize=8)
def _followed(folder: Path, size: int) -> History:
    """By its size, as a log only grows."""
    return history(folder)


def _cards(name: str, found: History) -> list[dict[str, Any]]:
    archive = found.archive
    state = "goes on" if archive.ended is None else "has ended"
    design = f"a search of {archive.outcomes} outcomes, which {state}; {len(found.twigs)} workspaces; Wilson interval"
    measured = list[tuple[str, int, int]]()
    for slot in archive.judges:
        last = next((epoch for epoch in reversed(found.epochs) if epoch.slot == slot and epoch.of), None)
        if last is not None:
            measured.append((f"judge of {slot}: items of the private anchor that it has right", last.right, last.of))
    if found.twigs:
        for role, genome in zip(archive.roles, archive.lineage.genomes[found.best], strict=True):
            good, bad = archive.lineage.own(genome)
            if good + bad:
                measured.append((f"{role} of workspace {found.best}: outcomes that are good", good, good + bad))
    shown = [f"/api/search/{name}/{kind}" for kind in FIGURES]
    return [_card(name, i, one, design, shown) for i, one in enumerate(measured)]


def _card(name: str, number: int, measured: tuple[str, int, int], design: str, figures: list[str]) -> dict[str, Any]:
    claim, good, n = measured
    low, high = wilson(float(good), float(n), deviate(0.95))
    shown: dict[str, Any] = {
        "id": f"evolve/{name}/{number}",
        "source": f"clew evolve {name}",
        "claim": claim,
        "met": None,
    }
    shown |= {"estimate": good / n, "low": low, "high": high, "level": 0.95, "n": n, "design": design}
    return shown | {"page": "", "more": "", "runs": [], "caveats": [], "figures": figures}
