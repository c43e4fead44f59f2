"""The ledger of sizes: lines per layer, longest files and functions, and what is past its bound.

python tools/ledger.py          # prints it; exits 1 when something is past its bound and not excused below
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "clew"
FILE, FUNCTION, CORE, SCREEN, AGENT = 1200, 60, 2500, 120, 150

EXCUSED: dict[str, str] = {}
"""Path or path:function -> why it is allowed to be past its bound. Keep this short."""


class Function(NamedTuple):
    path: str
    name: str
    lines: int


def lines(path: Path) -> int:
    return path.read_text().count("\n")


def layer_of(path: Path) -> str:
    """The layer a source file belongs to; files directly in the package are the facade."""
    parts = path.relative_to(SOURCE).parts
    return parts[0] if len(parts) > 1 else "(facade)"


def functions(path: Path) -> Iterator[Function]:
    """All functions and methods of a file with their length, docstring included."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            end = node.end_lineno or node.lineno
            yield Function(path.relative_to(ROOT).as_posix(), node.name, end - node.lineno + 1)


def breaches() -> list[str]:
    """Everything past its bound and not excused, one sentence each."""
    out = []
    files = sorted(SOURCE.rglob("*.py"))

    def check(where: str, size: int, bound: int, what: str) -> None:
        if size > bound and where not in EXCUSED:
            out.append(f"{where}: {size} lines, {what} stays within {bound}")

    for path in files:
        name = path.relative_to(ROOT).as_posix()
        check(name, lines(path), FILE, "a file")
        if path.parent.name == "harness" and path.stem.endswith("agent"):
            check(name, lines(path), AGENT, "a bundled agent")
        for function in functions(path):
            check(f"{name}:{function.name}", function.lines, FUNCTION, "a function")
    check("src/clew/core", sum(lines(f) for f in files if layer_of(f) == "core"), CORE, "the core")
    protocols = (SOURCE / "core" / "protocols.py").read_text().splitlines()
    check("src/clew/core/protocols.py", sum(1 for line in protocols if line.strip()), SCREEN, "the screen of protocols")
    return out


def main() -> int:
    files = sorted(SOURCE.rglob("*.py"))
    layers: dict[str, list[int]] = {}
    for path in files:
        layers.setdefault(layer_of(path), []).append(lines(path))
    print("layer          files   lines")
    for layer, sizes in sorted(layers.items(), key=lambda item: -sum(item[1])):
        print(f"{layer:<14} {len(sizes):>5} {sum(sizes):>7}")
    print(f"{'all':<14} {len(files):>5} {sum(map(sum, layers.values())):>7}")
    for title in ("tests", "papers", "benchmarks", "examples"):
        found = list((ROOT / title).rglob("*.py"))
        print(f"{title:<14} {len(found):>5} {sum(map(lines, found)):>7}")
    print("\nlongest files")
    for path in sorted(files, key=lines, reverse=True)[:8]:
        print(f"{lines(path):>6}  {path.relative_to(ROOT)}")
    print("\nlongest functions")
    for function in sorted((f for path in files for f in functions(path)), key=lambda f: -f.lines)[:8]:
        print(f"{function.lines:>6}  {function.path}:{function.name}")
    for where, why in EXCUSED.items():
        print(f"\nexcused: {where}: {why}")
    found = breaches()
    print("\n" + ("\n".join(found) if found else "Everything within its bounds."))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
