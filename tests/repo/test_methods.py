"""Each method has one package whose first screen says what it answers, and a mirror in docs and papers."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
METHODS = ROOT / "src" / "clew" / "methods"
PAPERS = {
    "cliffs": "E172", "coevolve": "E178", "diagnose": "E169", "early": "E171", "features": "E175", "gate": "E170",
    "grade": "E173", "kernels": "E177", "memory": "E168", "pins": "E164", "recoveries": "E163", "routing": "E166",
    "theories": "E176", "why": "E174", "world_model": "E167",
}  # fmt: skip
WITHOUT_PAPER = {"agreement", "compare"}
ELSEWHERE = {"E162": "harness/trees", "E165": "credit", "E179": "models/drafters"}
"""Papers whose code the trainer or the engine still imports by name, and where it lies."""
KNOWN = {  # a method -> the methods that it imports, beside the statistics of ``compare``
    "early": {"agreement", "why"},
    "features": {"early"},
    "gate": {"kernels"},
    "theories": {"coevolve"},
}


def rooms() -> list[str]:
    return sorted(p.name for p in METHODS.iterdir() if p.is_dir() and p.name != "__pycache__")


def said(name: str) -> str:
    return ast.get_docstring(ast.parse((METHODS / name / "__init__.py").read_text())) or ""


def test_the_eighteen_papers_and_their_packages_are_told():
    assert set(rooms()) == set(PAPERS) | WITHOUT_PAPER
    numbers = {path.name[:4] for path in (ROOT / "papers").glob("E1??_*")}
    assert numbers == set(PAPERS.values()) | set(ELSEWHERE)
    assert all((ROOT / "src" / "clew" / folder).is_dir() for folder in ELSEWHERE.values())


@pytest.mark.parametrize("name", rooms())
def test_the_first_screen_says_what_a_method_answers_and_what_it_must_beat(name):
    text = said(name)
    for field in ("Question:", "For:", "Command:", "Page:", "One-line rule it must beat:"):
        assert field in text, f"{name} does not say {field!r}"
    pages = re.findall(r"docs/(\w+\.md)", text)
    assert pages, name
    for page in pages:
        assert (ROOT / "docs" / page).is_file(), page
    if name in PAPERS:
        assert re.search(rf"Paper: {PAPERS[name]}\b.*arXiv \d{{4}}\.\d{{5}}", text), name


def test_a_method_imports_another_only_where_it_is_listed():
    found: dict[str, set[str]] = {}
    for path in sorted(METHODS.rglob("*.py")):
        name = path.relative_to(METHODS).parts[0]
        for other in re.findall(r"clew\.methods\.(\w+)", path.read_text()):
            if other in rooms() and other not in (name, "compare") and name in rooms():
                found.setdefault(name, set()).add(other)
    assert found == KNOWN


def test_the_core_and_its_guests_below_import_no_method():
    below = ["core", "sandbox", "store", "models", "worlds", "harness", "fit", "credit", "train", "serve", "coding"]
    files = [path for folder in below for path in sorted((ROOT / "src" / "clew" / folder).rglob("*.py"))]
    assert [p for p in files if re.search(r"^\s*(from|import) clew\.methods\b", p.read_text(), re.M)] == []
    assert len(files) > 300
