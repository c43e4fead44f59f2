"""Which file imports which, from the imports as written. The ranking and the tool ``connected_tree`` read it. It must
never guess: an import that names no file of the repository is no edge."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import PurePosixPath

import numpy as np
import numpy.typing as npt

from clew.coding.repository.digest import Digest
from clew.coding.repository.languages import language


class Links:
    """Imports between the given files.

    Attributes:
        imports, importers: by path, sorted paths.
    """

    def __init__(self, paths: Sequence[str], digests: Sequence[Digest]) -> None:
        self.paths = list(paths)
        self._all = set(paths)
        self._package = functools.cache(self._package_of)
        self._names = self._module_names()
        self._ends: dict[str, list[str]] = {}
        for path in paths:
            self._ends.setdefault(path.rpartition("/")[2].rpartition(".")[0].lower(), []).append(path)
        self.imports: dict[str, tuple[str, ...]] = {}
        back: dict[str, set[str]] = {}
        for path, digest in zip(paths, digests, strict=True):
            found = {t for name in digest.imports for t in self._targets(path, name)} - {path}
            self.imports[path] = tuple(sorted(found))
            for target in found:
                back.setdefault(target, set()).add(path)
        self.importers = {path: tuple(sorted(back.get(path, ()))) for path in paths}

    @functools.cached_property
    def _edges(self) -> npt.NDArray[np.int64]:
        position = {path: i for i, path in enumerate(self.paths)}
        near = [sorted({*self.imports[path], *self.importers[path]}) for path in self.paths]
        pairs = [(i, position[p]) for i, paths in enumerate(near) for p in paths]
        return np.array(pairs, np.int64).reshape(-1, 2).T

    def mean(self, scores: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Mean score of each file's neighbours in either direction; 0 for a file without any."""
        total = np.bincount(self._edges[0], scores[self._edges[1]], len(self.paths))
        degree = np.bincount(self._edges[0], minlength=len(self.paths))
        return total / np.maximum(degree, 1)

    def _targets(self, path: str, name: str) -> list[str]:
        if language(path) == "python":
            return self._python(path, name)
        if name.startswith("."):
            return self._relative(PurePosixPath(path).parent, name)
        pieces = [p for p in name.replace("::", "/").replace("\\", "/").split("/") if p]
        if len(pieces) == 1 and language(path) == "java":
            pieces = name.split(".")
        if not pieces:
            return []
        last = PurePosixPath(pieces[-1]).stem.lower()
        tail = [*(p.lower() for p in pieces[:-1]), last][-2:]
        near = [p for p in self._ends.get(last, []) if language(p) == language(path) or language(path) in ("c", "cpp")]
        same = [p for p in near if list(_lower(p))[-len(tail) :] == tail]
        return same or (near if len(near) == 1 else [])

    def _python(self, path: str, name: str) -> list[str]:
        if name.startswith("."):
            level = len(name) - len(name.lstrip("."))
            own = self._package(path.rpartition("/")[0])
            base = own[: len(own) - (level - 1)] if level > 1 else own
            name = ".".join([*base, *([name[level:]] if name[level:] else [])])
        found = self._names.get(name)
        return [found] if found else []

    def _package_of(self, folder: str) -> tuple[str, ...]:
        """The packages that a folder of Python files is, outermost first."""
        if not folder or f"{folder}/__init__.py" not in self._all:
            return ()
        outer, _, name = folder.rpartition("/")
        return (*self._package(outer), name)

    def _module_names(self) -> dict[str, str]:
        """Dotted module name -> file, from the packages that ``__init__`` files make."""
        out = dict[str, str]()
        for path in self.paths:
            if language(path) != "python":
                continue
            folder, _, file = path.rpartition("/")
            stem = file.rpartition(".")[0]
            name = ".".join([*self._package(folder), *([] if stem == "__init__" else [stem])])
            if name:
                out.setdefault(name, path)
        return out

    def _relative(self, folder: PurePosixPath, name: str) -> list[str]:
        steps: list[str] = list(folder.parts)
        for step in name.split("/"):
            if step == "..":
                steps = steps[:-1]
            elif step not in (".", ""):
                steps.append(step)
        joined = "/".join(steps)
        ends = ["", ".ts", ".tsx", ".js", ".jsx", ".mjs", "/index.ts", "/index.tsx", "/index.js"]
        return [joined + end for end in ends if joined + end in self._all][:1]


def _lower(path: str) -> tuple[str, ...]:
    pure = PurePosixPath(path.lower())
    return (*pure.parts[:-1], pure.stem)
