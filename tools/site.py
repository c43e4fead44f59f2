"""Lays the documentation out for MkDocs: `make site` calls it, then MkDocs, which refuses a link that leads nowhere.

Pages of docs/ link to the README and to papers, which lie outside that folder. They are copied beside the pages, and
links are turned to where things lie now; a link to a file that is no page (source code) is kept as its text alone.

    python tools/site.py build/site-src
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
CODE = re.compile(r"(^```.*?^```$|`[^`\n]+`)", re.MULTILINE | re.DOTALL)


def place(page: Path) -> str:
    """Where a page or picture of the checkout lies in the site."""
    if page.is_relative_to(DOCS):
        return page.relative_to(DOCS).as_posix()
    inside = page.relative_to(ROOT)
    if inside.as_posix() == "README.md":
        return "readme.md"
    name = inside.as_posix().replace("/README.md", ".md")
    return name.replace("/results/", "_")


def targets(page: Path) -> list[Path]:
    """Files of the checkout that a page links to."""
    found = [(page.parent / link[3].partition("#")[0]).resolve() for link in links(page.read_text(encoding="utf-8"))]
    return [file for file in found if file.is_file() and file.is_relative_to(ROOT)]


def links(text: str) -> list[re.Match[str]]:
    """Links and pictures of a page that lead to a file; those in code are none."""
    prose = CODE.sub("", text)
    return [link for link in LINK.finditer(prose) if "://" not in link[3] and not link[3].startswith(("#", "mailto:"))]


def pages() -> dict[Path, str]:
    """Every file of the site and where it lies: the pages of docs/, pages outside that they link to, and pictures."""
    made = {page: place(page) for page in sorted(DOCS.glob("*.md"))}
    outside = {file for page in list(made) for file in targets(page) if file.suffix == ".md"}
    made |= {file: place(file) for file in sorted(outside)}
    pictures = {file for page in list(made) for file in targets(page) if file.suffix in (".svg", ".png", ".gif")}
    return made | {file: place(file) for file in sorted(pictures)}


def turned(page: Path, text: str, made: dict[Path, str]) -> str:
    """A page's text with its links as they are in the site."""

    def turn(link: re.Match[str]) -> str:
        path, mark, anchor = link[3].partition("#")
        if "://" in link[3] or not path or path.startswith("mailto:"):
            return link[0]
        file = (page.parent / path).resolve()
        if file not in made:
            return link[2]
        way = os.path.relpath(made[file], Path(made[page]).parent)
        return f"{link[1]}[{link[2]}]({way}{mark}{anchor})"

    parts = CODE.split(text)
    whole = []
    for number, part in enumerate(parts):  # a link whose text is code has its ends in two parts
        whole.append(f"\0{number}\0" if number % 2 else part)
    prose = LINK.sub(turn, "".join(whole))
    return re.sub(r"\0(\d+)\0", lambda found: parts[int(found[1])], prose)


def stage(folder: Path) -> dict[Path, str]:
    """Write the site's pages and pictures to a folder, which is emptied first."""
    shutil.rmtree(folder, ignore_errors=True)
    made = pages()
    for file, where in made.items():
        target = folder / where
        target.parent.mkdir(parents=True, exist_ok=True)
        if file.suffix == ".md":
            target.write_text(turned(file, file.read_text(encoding="utf-8"), made), encoding="utf-8")
        else:
            shutil.copy(file, target)
    return made


if __name__ == "__main__":
    stage(Path(sys.argv[1]))
