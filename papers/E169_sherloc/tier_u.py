"""Tier U, users' issues: one cell is one issue; the snapshot before its fix is ranked, the changed files are the truth.

Which issues, and what may be looked at when, is the rule of ``issues``.
"""

import functools
import gc
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from clew.coding.repository.digest import WORD, parts, term
from clew.coding.repository.repository import Index, View
from clew.methods.diagnose.bug_report import STOP, words
from clew.methods.diagnose.confidence import features
from clew.methods.diagnose.rank import WEIGHTS, Corpus, bm25, rank
from papers.E169_sherloc.clones import clone
from papers.E169_sherloc.issues import chosen, texts, where
from papers.E169_sherloc.tier_l import plain, rank_of, span_of
from papers.experiment import Line

NEW = ("trace", "mention", "past")  # the components that tier L cannot judge
cost = 3.0


def cells(quick: bool) -> Iterator[Line]:
    for project, splits in chosen().items():
        if quick and (not where or clone(project) is None):
            continue  # nothing to read
        for split, issues in splits.items():
            for seed in range(len(issues))[: 4 if quick else None]:
                yield {"project": project, "split": split, "seed": seed}


@functools.cache
def index(project: str) -> Index:
    return Index(Path(".clew") / "E169-index" / f"{project}.db")


def run(setting: Line, seeds: list[int]) -> list[Line]:
    gc.disable()  # digests of many snapshots are held, all of them for good
    issues = chosen()[setting["project"]][setting["split"]]
    return [localised(setting["project"], issues, seed) for seed in seeds]


def localised(project: str, issues: list[Line], seed: int) -> Line:
    """What every chooser makes of one issue; ``shuffled`` is told the next issue of the project in its stead."""
    issue, other = issues[seed], issues[(seed + 1) % len(issues)]
    git = clone(project)
    assert git is not None, project
    view = View(git, issue["parent"], index(project))
    corpus, report = Corpus(view), texts()[issue["id"]]
    full = rank(corpus, report, deep=1)
    orders = {
        "all": list(full.paths),
        **{f"all - {n}": list(rank(corpus, report, _without(n), deep=1).paths) for n in NEW},
        "plain bm25": plain(corpus, report),
        "bm25 as often": as_often(corpus, report),
        "largest": sorted(corpus.paths, key=lambda p: -view.digests[p].lines),
        "shuffled": list(rank(corpus, texts()[other["id"]], deep=1).paths),
    }
    gold = [p for p in corpus.paths if p in issue["gold"]]
    return {
        "issue": issue["id"],
        "commit": issue["parent"],
        "files": len(corpus.paths),
        "gold": issue["gold"],
        "rank": {name: rank_of(order, gold) for name, order in orders.items()},
        "features": features(full, full.paths[0], *span_of(full)).round(5).tolist(),
    }


def _without(name: str) -> dict[str, float]:
    return {k: v for k, v in WEIGHTS.items() if k != name}


def as_often(corpus: Corpus, report: str) -> list[str]:
    """BM25 over sub-words where a word of the report counts as often as it occurs there."""
    said = words(report)
    often = Counter(p for w in WORD.findall(report) if w.lower() not in STOP for p in parts(w))
    counts = corpus.counts([term(w) for w in said]).files
    scores = (bm25(counts, corpus.file_length) * np.array([often[w] for w in said])).sum(axis=1)
    return [corpus.paths[i] for i in np.argsort(-scores, kind="stable")]
