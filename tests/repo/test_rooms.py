"""The rooms of the house: no circle of files, signatures with types."""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "clew"
ANY, SKIPS, IGNORES = (
    200,
    60,
    8,
)  # bare Any in all signatures; lines the formatter leaves alone; `type: ignore` in harness


def modules(source: Path = SOURCE) -> dict[str, Path]:
    """Dotted name to path of every module; packages themselves (``__init__``) are left out, they only gather names."""
    found = {p.relative_to(source.parent).with_suffix("").as_posix().replace("/", "."): p for p in source.rglob("*.py")}
    return {name: path for name, path in sorted(found.items()) if path.name != "__init__.py"}


def arrows(files: Mapping[str, Path]) -> dict[str, set[str]]:
    """Which module imports which, imports for type checkers and inside functions counted."""
    out: dict[str, set[str]] = defaultdict(set)
    for name, path in files.items():
        package = name.split(".")[:-1]
        for node in ast.walk(ast.parse(path.read_text())):
            targets: list[str] = []
            if isinstance(node, ast.Import):
                targets = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                base = package[: len(package) - node.level + 1] if node.level else []
                stem = ".".join([*base, *([node.module] if node.module else [])])
                targets = [stem, *(f"{stem}.{alias.name}" for alias in node.names)]
            out[name].update(t for t in targets if t in files and t != name)
    return out


def circles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """Sets of modules each of which reaches every other: strongly connected components (Tarjan, 1972)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for other in graph.get(name, ()):
            if other not in index:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], index[other])
        if low[name] == index[name]:
            circle = [stack.pop()]
            while circle[-1] != name:
                circle.append(stack.pop())
            if len(circle) > 1:
                found.append(sorted(circle))

    for name in list(graph):
        if name not in index:
            visit(name)
    return found


def signatures(source: Path = SOURCE) -> Iterator[tuple[str, int]]:
    """(file, line) of each parameter or return annotated bare ``Any``; ``*args`` and ``**kwargs`` are left out."""
    for path in sorted(source.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
                for annotation in [*(arg.annotation for arg in given), node.returns]:
                    if isinstance(annotation, ast.Name) and annotation.id == "Any":
                        yield path.relative_to(source).as_posix(), annotation.lineno


def test_no_circle_of_files():
    assert circles(arrows(modules())) == []


def test_a_circle_behind_a_type_checker_and_a_local_import_would_be_found(tmp_path):
    package = tmp_path / "src" / "clew"
    package.mkdir(parents=True)
    (package / "one.py").write_text("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from clew.two import f\n")
    (package / "two.py").write_text("def f():\n    import clew.three\n")
    (package / "three.py").write_text("from clew import one\n")
    (package / "four.py").write_text("import clew.one\n")
    assert circles(arrows(modules(package))) == [["clew.one", "clew.three", "clew.two"]]


def test_bare_any_in_signatures():
    found = Counter(file for file, _ in signatures())
    assert found.total() <= ANY, found.most_common(12)


def test_no_bare_any_in_a_public_signature():
    import inspect

    import clew

    pytest.importorskip("torch", reason="did not run: torch is not installed")
    found = []
    for line in (ROOT / "tests" / "repo" / "surface.txt").read_text().splitlines():
        if "(" not in line:
            continue
        thing: object = clew
        *path, last = line.partition("(")[0].split(".")[1:]
        for part in [*path, last]:
            thing = getattr(thing, part)
        function = thing.__init__ if inspect.isclass(thing) else thing
        for name, annotation in getattr(function, "__annotations__", {}).items():
            kinds = {p.name: p.kind for p in inspect.signature(function).parameters.values()}
            several = kinds.get(name) in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
            if str(annotation) == "Any" and not several:
                found.append(f"{line.partition('(')[0]}: {name}")
    assert found == []


@pytest.mark.parametrize(("where", "text", "bound"), [("", "# fmt: skip", SKIPS), ("harness", "type: ignore", IGNORES)])
def test_exceptions_to_the_rules_are_few(where, text, bound):
    found = Counter(
        {p.relative_to(SOURCE).as_posix(): p.read_text().count(text) for p in (SOURCE / where).rglob("*.py")}
    )
    assert found.total() <= bound, found.most_common(12)
