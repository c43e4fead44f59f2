"""The addresses below ``/api`` that tell of files, each one function from a store and what was asked to JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from clew.core.errors import BadInput
from clew.store import Keeper, resolve
from clew.view.files.folder_page import Folders
from clew.view.files.patch_page import Patches
from clew.view.files.run_snapshots import Snapshots
from clew.view.files.step_changes import StepChanges

Asked = Mapping[str, str]
Answer = Callable[[Keeper, Asked], dict[str, Any]]
STEPS = 200  # Calls beside which one answer tells of changes


def addresses(path: str, named: str) -> dict[str, Answer]:
    """By its address what each page is; the parameters of the address and of its query are given together.

    Args:
        path: of the store. named: the store as a command line must name it; empty where it takes this one anyway.
    """
    snapshots = Snapshots(path)
    steps, patches, folders = StepChanges(snapshots), Patches(snapshots), Folders(snapshots, named)

    def told(store: Keeper, asked: Asked) -> dict[str, Any]:
        start = number(asked, "start")
        return steps.steps(store, _run(store, asked), start, min(number(asked, "stop", start + STEPS), start + STEPS))

    def patch(store: Keeper, asked: Asked) -> dict[str, Any]:
        a, b, path = (asked.get(name, "") for name in ("a", "b", "path"))
        if path:
            return patches.file(store, a, b, path, whole=asked.get("whole") == "1")
        return patches.patch(store, a, b, number(asked, "from"))

    return {
        "/api/run/{run}/snapshots": lambda s, q: steps.places(s, _run(s, q)),
        "/api/run/{run}/changes": told,
        "/api/files/folder": lambda s, q: folders.folder(s, _place(q), q.get("path", ""), number(q, "from")),
        "/api/files/content": lambda s, q: folders.content(s, _place(q), q.get("path", ""), number(q, "from")),
        "/api/files/changed": lambda s, q: patches.listed(s, q.get("a", ""), q.get("b", ""), number(q, "from")),
        "/api/files/patch": patch,
    }


def number(asked: Asked, name: str, default: int = 0) -> int:
    """A number of a query.

    Raises:
        BadInput: it is none.
    """
    text = asked.get(name, "")
    if not text:
        return default
    if not text.isdecimal() or len(text) > 12:
        raise BadInput(f"{name}={text!r} is not a number", remedy=f"Write {name}={default}, say.")
    return int(text)


def _place(asked: Asked) -> str:
    return asked.get("place", "")


def _run(store: Keeper, asked: Asked) -> str:
    return resolve(store, asked["run"])
