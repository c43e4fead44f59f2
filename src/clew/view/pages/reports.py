"""Reports for the page: claims with their evidence, of the store and of the papers of a checkout."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from clew.core.errors import UnknownName
from clew.core.json_values import told
from clew.core.records import Report
from clew.store import Keeper
from clew.view.pages import curve_page

# as the papers' programs write a pass mark: "- met: NAME, PROMISE; found 0.21 [0.19, 0.23] n=24"
_MARK = re.compile(
    r"- (?P<met>met|NOT MET|no mark): (?P<claim>.+); found "
    r"(?P<estimate>[-\d.]+) \[(?P<low>[-\d.]+), (?P<high>[-\d.]+)\] n=(?P<n>\d+)"
)
_AUDIT = re.compile(r"(diff|early|worth)-([0-9a-f]{8})-(f\d{1,7}$)?.*")
_TOUR = re.compile(r"tour-\d\d-\w+-[0-9a-f]{8}")
_NAME = re.compile(r"\w[\w.-]*")
FIGURES = {".svg": "image/svg+xml", ".png": "image/png"}


def reports(store: Keeper, papers: Path | None = None) -> list[dict[str, Any]]:
    """Every report of the store, newest first, and every pass mark of the papers in a checkout.

    Args:
        papers: the folder that holds one folder per paper.
    """
    kept = store.reports()
    shown = _Pages(kept)
    found = [
        {**told(id, it), **shown.of(id), "figures": [], "met": None, "runs": list(it.runs)}
        for id, it in reversed(kept.items())
    ]
    if papers is not None and papers.is_dir():
        for results in sorted(papers.glob("*/results")):
            for summary in sorted(results.glob("*.md")):
                found += _marks(results, summary)
    return found


class _Pages:
    """Which audit a report is of, by its id, and where the page shows more of it."""

    def __init__(self, reports: Mapping[str, Report]) -> None:
        matches = [match for id in reports if (match := _AUDIT.fullmatch(id)) is not None]
        self.compared = {match[2] for match in matches if match[1] == "diff" and match[3]}
        self.curves = set(curve_page.audits(reports))

    def of(self, id: str) -> dict[str, str]:
        match = _AUDIT.fullmatch(id)
        if match is None:
            return {"source": "clew tour" if _TOUR.fullmatch(id) else "", "page": "", "more": ""}
        kind, label, latent = match.groups()
        page = f"feature/{label}/{latent[1:]}" if latent else ""
        more = f"features/{label}" if label in self.compared and kind == "diff" else ""
        more = f"early/{label}" if label in self.curves and kind == "early" else more
        source = "clew memory audit" if kind == "worth" else f"clew audit {kind}"
        return {"source": f"{source} {label}", "page": page, "more": more}


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
            "met": {"met": True, "NOT MET": False}.get(match["met"]),
            **{name: float(match[name]) for name in ("estimate", "low", "high")},
            "level": 0.95,
            "n": int(match["n"]),
            "design": design,
            "page": "",
            "more": "",
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
