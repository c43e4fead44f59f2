"""Tier L, localisation: one cell is one past fix; its snapshot is ranked by every chooser, its truth is the fix."""

import functools
import gc
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from clew.coding.repository.digest import term
from clew.coding.repository.past_fixes import Fix, age
from clew.coding.repository.repository import Index, View
from clew.methods.diagnose.bug_report import words
from clew.methods.diagnose.choose import findings
from clew.methods.diagnose.code_tools import Tools
from clew.methods.diagnose.confidence import features
from clew.methods.diagnose.finding import finding
from clew.methods.diagnose.rank import WEIGHTS, Corpus, Ranking, bm25, rank
from papers.E169_sherloc.clones import chosen, clone, past
from papers.experiment import Line

QUICK = 8  # commits of each project's test
LOT = 10
TOOLS = ("view", "search", "tree", "connected")
ALONE = ("bm25", "view", "search", "tree", "past")
CONFIGURATIONS = {
    **{name: {name: 1.0} for name in ALONE},
    "all": dict(WEIGHTS),
    **{f"all - {name}": {k: v for k, v in WEIGHTS.items() if k != name} for name in WEIGHTS},
}
cost = 1.2


def cells(quick: bool) -> Iterator[Line]:
    for project, splits in chosen().items():
        if quick and clone(project) is None:
            continue  # nothing to read; the other tiers need no clones
        for split in ("dev", "test"):
            count = len(splits[split])
            seeds = (
                range(count) if not quick else range(count)[-QUICK:] if split == "test" else range(count)[-3 * QUICK :]
            )
            for seed in seeds:
                yield {"project": project, "split": split, "seed": seed}


def portions(todo: list[Line]) -> Iterator[tuple[Line, list[int]]]:
    """Ten commits at a time."""
    for project in dict.fromkeys((c["project"], c["split"]) for c in todo):
        seeds = [c["seed"] for c in todo if (c["project"], c["split"]) == project]
        for k in range(0, len(seeds), LOT):
            yield {"project": project[0], "split": project[1]}, seeds[k : k + LOT]


@functools.cache
def index(project: str) -> Index:
    return Index(Path(".clew") / "E169-index" / f"{project}.db")


def run(setting: Line, seeds: list[int]) -> list[Line]:
    gc.disable()  # digests of many snapshots are held, all of them for good; walking them takes most of the time
    project, split = setting["project"], setting["split"]
    ids, known = chosen()[project][split], past(project)
    return [localised(project, known[ids[seed]]) for seed in seeds]


def localised(project: str, fix: Fix) -> Line:
    """What every chooser makes of one report."""
    git = clone(project)
    assert git is not None
    tools = Tools(View(git, fix.parent, index(project)))
    corpus = Corpus(tools.view)
    full = rank(corpus, fix.report, deep=3)
    rankings = {name: rank(corpus, fix.report, weights, deep=1) for name, weights in CONFIGURATIONS.items()}
    rankings["all, ungated"] = rank(corpus, fix.report, gated=False, deep=1)
    orders = {name: list(r.paths) for name, r in rankings.items()} | {
        "plain bm25": plain(corpus, fix.report),
        "largest": sorted(corpus.paths, key=lambda p: -tools.view.digests[p].lines),
    }
    gold = [p for p in corpus.paths if p in fix.gold]
    view = rankings["view"]
    return {
        "commit": fix.commit,
        "day": age(fix),
        "files": len(corpus.paths),
        "gold": gold,
        "rank": {name: rank_of(order, gold) for name, order in orders.items()},
        "features": features(full, full.paths[0], *span_of(full)).round(5).tolist(),
        "first": {name: rankings[name].paths[0] for name in ("all", *ALONE)},
        "margin": {name: _margin(rankings[name]) for name in ("view", "all")},
        "tokens": {p: tools.view.files[p].size // 4 for p in {view.paths[0], *gold}},
        "read": {name: _read(orders[name], gold, tools.view) for name in ("tree", "all")},
        **_chunks(full, fix),
        **_valid(tools, corpus, full),
    }


def plain(corpus: Corpus, report: str) -> list[str]:
    """The baseline as the spec has it: BM25 of split identifiers, nothing told of names."""
    counts = corpus.counts([term(w) for w in words(report)]).files
    scores = bm25(counts, corpus.file_length).sum(axis=1)
    return [corpus.paths[i] for i in np.argsort(-scores, kind="stable")]


def rank_of(order: list[str], gold: list[str]) -> int:
    """Place of the first right file, from 1; 0 where no file of the fix is a candidate."""
    return min((order.index(p) + 1 for p in gold), default=0)


def _margin(ranking: Ranking) -> float:
    top = ranking.scores[:2]
    return round(float((top[0] - top[-1]) / max(top[0], 1e-9)), 5)


def span_of(ranking: Ranking) -> tuple[int, int]:
    places = ranking.places[ranking.paths[0]]
    return (places[0].chunk.start, places[0].chunk.end) if places else (1, 1)


def _read(order: list[str], gold: list[str], view: View) -> int:
    """Tokens of a reader that opens whole files in this order until it has the right one."""
    total = 0
    for path in order:
        total += view.files[path].size // 4
        if path in gold:
            break
    return total


def _chunks(ranking: Ranking, fix: Fix) -> Line:
    """The two best chunks of all against the replaced lines: coverage, precision, tightness (section 3, metrics)."""
    places = sorted((p for ps in ranking.places.values() for p in ps), key=lambda p: -p.score)[:2]
    gold = [(path, a, b) for path, spans in fix.gold.items() for a, b in spans]
    covered = [any(p.path == f and p.chunk.start <= a and b <= p.chunk.end for p in places) for f, a, b in gold]
    right = [[(a, b) for f, a, b in gold if p.path == f and p.chunk.start <= a and b <= p.chunk.end] for p in places]
    inside = sum(b - a + 1 for spans in right for a, b in spans)
    size = sum(p.chunk.end - p.chunk.start + 1 for p, spans in zip(places, right, strict=True) if spans)
    return {
        "coverage": round(sum(covered) / max(len(covered), 1), 5),
        "precision": round(sum(map(bool, right)) / max(len(places), 1), 5),
        "tightness": round(inside / size, 5) if size else None,
    }


def _valid(tools: Tools, corpus: Corpus, ranking: Ranking) -> Line:
    """Q8: what is wrong with the findings, after a round trip through JSON and against the snapshot."""
    found = findings(tools, corpus, ranking)
    wrong = [problem for f in found for problem in f.problems(tools.view)]
    wrong += [f"{f.file}: changed by JSON" for f in found if finding(f.json()) != f]
    wrong += [
        f"{f.file}: dependencies"
        for f in found
        if set(f.dependencies) != {p for p in corpus.paths if f.file in corpus.links.imports[p]}
    ]
    return {"findings": len(found), "wrong": wrong}
