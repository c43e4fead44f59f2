"""Reports for the page: claims with their evidence, of the store and of the papers of a checkout."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from clew.core.errors import UnknownName
from clew.store import Keeper

# as the papers' programs write a pass mark: "- met: NAME, PROMISE; found 0.21 [0.19, 0.23] n=24"
_MARK = re.compile(
    r"- (?P<met>met|NOT MET): (?P<claim>.+); found "
    r"(?P<estimate>[-\d.]+) \[(?P<low>[-\d.]+), (?P<high>[-\d.]+)\] n=(?P<n>\d+)"
)
_NAME = re.compile(r"\w[\w.-]*")
FIGURES = {".svg": "image/svg+xml", ".png": "image/png"}


def reports(store: Keeper, papers: Path | None = None) -> list[dict[str, Any]]:
    """Every report of the store, newest first, and every pass mark of the papers in a checkout.

    Args:
        papers: the folder that holds one folder per paper.
    """
    found = [
        {
            "id": id,
            "source": "",
            "figures": [],
            "met": None,
            **{name: getattr(it, name) for name in ("claim", "estimate", "low", "high", "level", "n", "design")},
            "runs": list(it.runs),
            "caveats": list(it.caveats),
        }
        for id, it in reversed(store.reports().items())
    ]
    if papers is not None and papers.is_dir():
        for results in sorted(papers.glob("*/results")):
            for summary in sorted(results.glob("*.md")):
                found += _marks(results, summary)
    return found


def _marks(results: Path, summary: Path) -> list[dict[str, Any]]:
    paper, text = results.parent.name, summary.read_text(encoding="utf-8", errors="replace")
    figures = [file.name for file in sorted(results.iterdir()) if file.suffix in FIGURES]
    part = summary.stem.rpartition("_")[2]
    near = [name for name in figures if Path(name).stem.rpartition("_")[2] == part] or figures
    lines = [line.strip() for line in text.splitlines()]
    title = next((line.lstrip("# ") for line in lines if line.startswith("#")), summary.stem)
    design = next((line for line in lines if line and not line.startswith(("#", "-", "|"))), "")
    return [
        {
            "id": f"{paper}/{summary.stem}/{number}",
            "source": f"{paper}: {title}",
            "claim": match["claim"],
            "met": match["met"] == "met",
            **{name: float(match[name]) for name in ("estimate", "low", "high")},
            "level": 0.95,
            "n": int(match["n"]),
            "design": design,
            "runs": [],
            "caveats": [],
            "figures": [f"/api/figure/{paper}/{name}" for name in near],
        }
        for number, match in enumerate(_MARK.finditer(text))
    ]


def figure(papers: Path | None, paper: str, name: str) -> tuple[bytes, str]:
    """A figure among a paper's results, and its media type.

    Raises:
        UnknownName: there is none of that name.
    """
    good = papers is not None and _NAME.fullmatch(paper) and _NAME.fullmatch(name) and Path(name).suffix in FIGURES
    try:
        if not good or papers is None:
            raise FileNotFoundError
        return (papers / paper / "results" / name).read_bytes(), FIGURES[Path(name).suffix]
    except OSError:
        raise UnknownName(f"no figure {paper}/{name}") from None
