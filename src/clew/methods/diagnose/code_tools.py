"""The four tools of a diagnosis: view_file, codebase_search, repo_tree, connected_tree.

The diagnosis world and the MCP server offer them. Schemas are as in arXiv 2606.24820, section 3; the limits are ours. A
tool must never write, and its output is always bounded.
"""

from __future__ import annotations

import difflib
import functools
import json
from pathlib import PurePosixPath
from typing import Any

from clew.coding.repository.languages import is_test
from clew.coding.repository.links import Links
from clew.coding.repository.repository import View
from clew.core.errors import BadInput
from clew.core.values import ToolSpec
from clew.harness.tools import Tool, tool

LINES = 400  # of a file in one answer
WIDTH = 400  # characters of a shown line
FILES, HITS, AROUND = 20, 60, 10  # of a search; lines of context on either side
DEPTH, ENTRIES = 4, 400  # of a tree
EDGES = 50


class Tools:
    """The tools over a view. Each answers text; what cannot be done is said with what would be near.

    Raises:
        BadInput: from a tool, where its arguments name nothing; ``Tool.call`` turns it into an observation.
    """

    def __init__(self, view: View) -> None:
        self.view = view

    @functools.cached_property
    def links(self) -> Links:
        paths = list(self.view.files)
        return Links(paths, [self.view.digests[p] for p in paths])

    def all(self) -> list[Tool]:
        functions = (self.view_file, self.codebase_search, self.repo_tree, self.connected_tree)
        return [tool(function, idempotent=True) for function in functions]

    def view_file(self, path: str, start: int = 1, end: int = 0) -> str:
        """Show a file, or its lines start to end (from 1, inclusive), numbered, at most 400 lines; and its imports."""
        path = self._find(path)
        lines = self.view.text(path).split("\n")
        count = self.view.digests[path].lines
        start = max(start, 1)
        if start > count:
            raise BadInput(f"{path} has {count} lines", remedy=f"Ask for lines from 1 to {count}.")
        stop = min(end or count, count, start + LINES - 1)
        shown = [f"{n:>5} {lines[n - 1][:WIDTH]}" for n in range(start, stop + 1)]
        rest = f"\n({count - stop} more lines; ask from {stop + 1})" if stop < min(end or count, count) else ""
        imported = ", ".join(self.links.imports[path][:EDGES]) or "nothing of this repository"
        return f"{path} lines {start}-{stop} of {count}; imports {imported}\n" + "\n".join(shown) + rest

    def codebase_search(self, text: str) -> str:
        """Search every file for a literal text, upper and lower case alike; files that define it come first."""
        wanted = text.lower()
        if not wanted.strip():
            raise BadInput("the text is empty", remedy="Search for a literal, such as a name.")
        found: list[tuple[bool, int, str, list[str]]] = []
        defining = {p for p, d in self.view.digests.items() if any(name.lower() == wanted for name, _ in d.defines)}
        for entry, content in self.view.git.contents(list(self.view.files.values())):
            if wanted.encode() not in content.lower() and wanted.isascii():
                continue
            lines = content.decode("utf-8", "replace").split("\n")
            hits = [n for n, line in enumerate(lines) if wanted in line.lower()]
            if hits:
                found.append((entry.path not in defining, is_test(entry.path), entry.path, _windows(lines, hits)))
        found.sort(key=lambda item: item[:3])
        out, left = [f"{len(found)} files contain {text!r}"], HITS
        for _, _, path, windows in found[:FILES]:
            shown = windows[: max(left, 0)]
            left -= len(shown)
            if shown:
                out.append(f"{path}\n" + "\n  ...\n".join(shown))
        if len(found) > FILES or left <= 0:
            out.append(f"(the first {FILES} files and {HITS} places at most are shown; search for something rarer)")
        return "\n\n".join(out)

    def repo_tree(self, subtree: str = "") -> str:
        """List the files below a folder with their line counts, four levels deep."""
        base = subtree.strip("/").removeprefix("./")
        inside = [p for p in self.view.files if not base or p == base or p.startswith(base + "/")]
        if not inside:
            near = difflib.get_close_matches(base, _folders(self.view), 3)
            raise BadInput(f"no folder {subtree!r}", remedy=f"Near: {', '.join(near) or 'none'}.")
        top = len(PurePosixPath(base).parts)
        rows: dict[str, list[int]] = {}
        for path in sorted(inside):
            parts = PurePosixPath(path).parts
            name = path if len(parts) <= top + DEPTH else "/".join(parts[: top + DEPTH]) + "/"
            rows.setdefault(name, []).append(self.view.digests[path].lines)
        files = {name: f" in {len(n)} files" if name.endswith("/") else "" for name, n in rows.items()}
        shown = [f"{name} {sum(n)} lines{files[name]}" for name, n in list(rows.items())[:ENTRIES]]
        rest = [f"({len(rows) - ENTRIES} more; ask for a subtree)"] if len(rows) > ENTRIES else []
        left = ", ".join(f"{n} {why}" for why, n in self.view.dropped.most_common())
        return "\n".join([f"{len(inside)} files" + (f"; left out: {left}" if left else ""), *shown, *rest])

    def connected_tree(self, path: str = "") -> str:
        """Show what a file imports and what imports it; without a path the most imported files."""
        if not path:
            most = sorted(self.links.importers.items(), key=lambda item: (-len(item[1]), item[0]))
            return (
                "\n".join(f"{name} is imported by {len(by)} files" for name, by in most[:EDGES] if by) or "no imports"
            )
        path = self._find(path)
        out = []
        for title, near in (("imports", self.links.imports[path]), ("is imported by", self.links.importers[path])):
            rest = f" and {len(near) - EDGES} more" if len(near) > EDGES else ""
            out.append(f"{path} {title}: {', '.join(near[:EDGES]) or 'nothing'}{rest}")
        return "\n".join(out)

    def _find(self, path: str) -> str:
        """The file meant: the path, the only one that ends so, or an error that names near ones."""
        path = path.strip().removeprefix("./")
        if path in self.view.files:
            return path
        ends = [p for p in self.view.files if p.endswith("/" + path)]
        if len(ends) == 1:
            return ends[0]
        named = [p for p in self.view.files if PurePosixPath(p).name == PurePosixPath(path).name]
        near = ends or named or difflib.get_close_matches(path, self.view.files, 5)
        raise BadInput(f"no file {path!r}", remedy=f"Near: {', '.join(near[:5]) or 'none'}.")


def shown(name: str, arguments: str, text: str) -> dict[str, Any]:
    """What a tool's answer is evidence of, as JSON of ``Evidence``."""
    args = json.loads(arguments or "{}")
    lines = ""
    if name == "view_file" and " lines " in text:
        path, _, rest = text.partition(" lines ")
        lines = f"{path}:{rest.partition(' of ')[0]}"
    return {"tool": name, "args": args, "lines": lines}


def specs() -> list[ToolSpec]:
    """What a model is told of the four tools; needs no repository."""
    return [t.spec for t in Tools.__new__(Tools).all()]


def _windows(lines: list[str], hits: list[int]) -> list[str]:
    """Numbered lines around each hit, windows that touch joined."""
    spans: list[list[int]] = []
    for hit in hits:
        low, high = max(hit - AROUND, 0), min(hit + AROUND, len(lines) - 1)
        if spans and low <= spans[-1][1] + 1:
            spans[-1][1] = min(high, spans[-1][0] + LINES)
        else:
            spans.append([low, high])
    return ["\n".join(f"{n + 1:>5} {lines[n][:WIDTH]}" for n in range(a, b + 1)) for a, b in spans]


def _folders(view: View) -> list[str]:
    return sorted({"/".join(PurePosixPath(p).parts[:k]) for p in view.files for k in range(1, len(p.split("/")))})
