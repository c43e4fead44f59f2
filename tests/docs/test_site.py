"""The documentation as a site: every link and anchor leads somewhere, and nothing is fetched from elsewhere."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, ROOT
from tests.docs.test_pages import anchors
from tools import site


@pytest.fixture(scope="module")
def staged(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    return folder, site.stage(folder)


def test_every_page_is_there_and_every_link_leads_somewhere(staged):
    folder, made = staged
    names = {where for where in made.values() if where.endswith(".md")}
    assert {page.name for page in DOCS.glob("*.md")} | {"readme.md"} <= names
    assert len(names) == sum(file.suffix == ".md" for file in made), "no two pages lie in one place"
    broken = []
    for where in sorted(names):
        page = folder / where
        for link in site.LINK.finditer(site.CODE.sub("``", page.read_text())):
            path, _, anchor = link[3].partition("#")
            if "://" in link[3]:
                continue
            file = (page.parent / path).resolve() if path else page
            if not file.is_file() or (anchor and anchor not in anchors(file)):
                broken.append(f"{where}: {link[3]}")
    assert broken == []


def test_links_are_turned_and_code_is_left_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(site, "ROOT", tmp_path)
    monkeypatch.setattr(site, "DOCS", tmp_path / "docs")
    (tmp_path / "docs").mkdir()
    paper = tmp_path / "papers" / "E1_x"
    paper.mkdir(parents=True)
    (tmp_path / "README.md").write_text("# R\n[page](docs/a.md#b) [code](src/x.py) ![p](docs/p.svg)\n")
    (tmp_path / "docs" / "p.svg").write_text("<svg/>")
    (paper / "README.md").write_text("# P\n[back](../../docs/a.md)\n")
    code = "`[c](../x.md)`\n```\n[d](../y.md)\n```\n"
    text = f"# A\n[r](../README.md) [`p`](../papers/E1_x/README.md#p) [web](https://x.example) {code}"
    (tmp_path / "docs" / "a.md").write_text(text)
    site.stage(tmp_path / "out")
    wanted = f"# A\n[r](readme.md) [`p`](papers/E1_x.md#p) [web](https://x.example) {code}"
    assert (tmp_path / "out" / "a.md").read_text() == wanted
    assert (tmp_path / "out" / "readme.md").read_text() == "# R\n[page](a.md#b) code ![p](p.svg)\n"
    assert (tmp_path / "out" / "papers" / "E1_x.md").read_text() == "# P\n[back](../a.md)\n"


def test_no_page_asks_for_a_script_from_elsewhere():
    assert "mermaid" not in "".join(page.read_text() for page in DOCS.glob("*.md")), "Material fetches it from a CDN"
    assert "font: false" in (ROOT / "mkdocs.yml").read_text()


def test_the_site_is_built_strictly_and_searchable(tmp_path):
    if importlib.util.find_spec("material") is None:
        pytest.skip("did not run: mkdocs-material is not installed (make site)")
    site.stage(tmp_path / "src")
    (tmp_path / "mkdocs.yml").write_text(
        f"INHERIT: {ROOT / 'mkdocs.yml'}\ndocs_dir: {tmp_path / 'src'}\nsite_dir: {tmp_path / 'made'}\n"
        f"theme:\n  custom_dir: {ROOT / 'tools' / 'site_theme'}\n"
    )
    line = [sys.executable, "-m", "mkdocs", "build", "-q", "-f", str(tmp_path / "mkdocs.yml")]
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(line, capture_output=True, text=True, timeout=200, env=quiet, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    index = (tmp_path / "made" / "search" / "search_index.json").read_text()
    assert "What is called what" in index
    elsewhere = r"""["']?https?:"""
    fetched = rf"<(script|img|iframe|source)\b[^>]*\bsrc={elsewhere}"
    fetched += rf"|<link\b(?![^>]*rel=.?canonical)[^>]*href={elsewhere}"
    pages = list(Path(tmp_path / "made").rglob("*.html"))
    assert len(pages) > 40
    assert [page.name for page in pages if re.search(fetched, page.read_text())] == []
    assert all("default-src 'self'" in page.read_text() for page in pages)
