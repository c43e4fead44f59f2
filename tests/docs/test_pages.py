"""The README and every page of docs/ are true: code runs, command lines parse, links lead somewhere."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, EXECUTED, Block, blocks, commands, execute, left_out, lines, pages, parse, refresh

EXECUTABLE = [p for p in pages() if p.parent == DOCS and any(b.kind in EXECUTED for b in blocks(p))]


@pytest.mark.whole
@pytest.mark.parametrize("page", EXECUTABLE, ids=lambda p: p.stem)
def test_the_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CLEW_STORE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path.with_name(f"{tmp_path.name}-cache")))  # where an index is kept
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path.with_name(f"{tmp_path.name}-state")))  # what was allowed
    try:
        assert execute(page) > 0
    except Exception as error:
        if shutil.which("bwrap") is None and "bubblewrap" in str(error):
            pytest.skip(f"bubblewrap is not installed: {page.name} stops at {str(error).partition(chr(10))[0][:80]}")
        raise


def test_blocks_that_are_not_run_say_why_and_are_few():
    reasons = [left_out(page, block) for page in pages() for block in blocks(page) if block.kind == "console"]
    assert len([why for why in reasons if not why]) > 25
    assert all(len(why) > 10 for why in reasons if why)
    assert len([why for why in reasons if why]) < 5


def test_a_block_that_is_not_run_is_marked(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = tmp_path / "page.md"
    page.write_text("<!-- not run: it needs a GPU -->\n```console\n$ false\n```\n\n```console\n$ echo a b\na b\n```\n")
    assert [left_out(page, block) for block in blocks(page)] == ["it needs a GPU", ""]
    assert execute(page) == 1


@pytest.mark.parametrize("page", pages(), ids=lambda p: p.stem)
def test_every_command_line_parses(page):
    """Also those that need an endpoint or weights and so are not executed: verbs and options are there."""
    for line in lines(page.read_text()):
        parse(line)


def test_most_pages_have_command_lines():
    assert sum(any(lines(page.read_text())) for page in pages()) > 20


@pytest.mark.parametrize("page", pages(), ids=lambda p: p.stem)
def test_links_lead_somewhere(page):
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        path, _, anchor = target.partition("#")
        if "://" in target:
            continue
        file = (page.parent / path).resolve() if path else page
        if not file.exists() or (anchor and file.suffix == ".md" and anchor not in anchors(file)):
            broken.append(target)
    assert broken == []


def anchors(page: Path) -> set[str]:
    """Anchors of a page's headings, as GitHub makes them."""
    heads = re.findall(r"^#+ (.+)$", re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def test_every_page_is_reached_from_the_index():
    linked = set(re.findall(r"\]\(([\w-]+\.md)", (DOCS / "index.md").read_text()))
    assert {p.name for p in DOCS.glob("*.md")} - {"index.md"} - linked == set()


def test_cli_page_is_what_the_help_texts_say(tmp_path):
    made = tmp_path / "cli.md"
    subprocess.run([sys.executable, DOCS / "make_cli.py", made], check=True, timeout=60)
    assert made.read_text() == (DOCS / "cli.md").read_text(), "run: python docs/make_cli.py"


def test_the_runner_itself_notices_a_wrong_output(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("```python\nprint(1 + 1)\n```\n```output\n3\n```\n")
    with pytest.raises(AssertionError, match=r"page\.md:5  prints"):
        execute(page)
    assert refresh(page) == 1
    assert page.read_text().endswith("```output\n2\n```\n")
    page.write_text("```console\n$ clew log --store none.db\n```\n")
    with pytest.raises(AssertionError, match="there is no store"):
        execute(page)
    assert list(commands(Block("console", "$ clew log \\\n  -n 1\nout\n$ ls\n", 1))) == [
        ("clew log    -n 1", "out\n", 20),
        ("ls", "", 29),
    ]
