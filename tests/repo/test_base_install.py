"""What ``pip install clew`` brings without extras stays small: no torch, no scipy, at most 150 MB."""

from __future__ import annotations

import ast
import re
import tomllib
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MOST = 150_000_000  # bytes


def name_of(requirement: str) -> str:
    found = re.match(r"[\w.-]+", requirement)
    assert found is not None
    return found[0].lower().replace("_", "-")


def brought() -> dict[str, Distribution]:
    """The distributions that the base install brings, by name, as they are installed here."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found: dict[str, Distribution] = {}
    open_ = [name_of(line) for line in project["dependencies"]]
    while open_:
        name = open_.pop()
        if name not in found:
            try:
                found[name] = distribution(name)
            except PackageNotFoundError:  # needed on other machines only
                continue
            open_ += [name_of(line) for line in found[name].requires or () if "extra ==" not in line]
    return found


def size(made: Distribution) -> int:
    """Bytes of a distribution's files as installed, compiled Python left out."""
    paths = (Path(str(made.locate_file(file))) for file in made.files or ())
    return sum(path.stat().st_size for path in paths if path.suffix != ".pyc" and path.is_file())


def test_the_base_install_is_small():
    found = brought()
    assert {"numpy", "click", "rich", "httpx", "jsonschema"} <= found.keys()
    assert not {"torch", "scipy", "pandas", "starlette", "mcp"} & found.keys()
    if not all(made.files for made in found.values()):
        pytest.skip("did not run: the installed packages do not list their files")
    own = sum(path.stat().st_size for path in (ROOT / "src").rglob("*") if path.is_file() and path.suffix != ".pyc")
    assert sum(map(size, found.values())) + own < MOST


@pytest.mark.whole
def test_scipy_is_asked_for_by_need_alone():
    """So that who lacks it hears which extra brings it."""
    found = []
    for path in sorted((ROOT / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            found += [f"{path.name}:{node.lineno}" for name in names if name.split(".")[0] == "scipy"]  # type: ignore[attr-defined]
    assert found == []
