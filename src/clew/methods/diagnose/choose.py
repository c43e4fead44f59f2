"""The deterministic chooser as a Model: it looks where the ranking points, then writes findings.

``localise`` uses it where no model is given. It states what is known without understanding: which words match, where a
stack trace ends, what is defined there, who imports it, which tests exist. It must never claim more than that: no root
cause, no idea of a fix.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath

from clew.coding.repository.languages import is_test
from clew.coding.repository.repository import Index, View
from clew.core.errors import BadInput, ModelError
from clew.core.protocols import Renderer
from clew.core.records import Request
from clew.core.registry import make_ref
from clew.core.values import Completion, Message, ToolCall, Usage
from clew.methods.diagnose.code_tools import Tools
from clew.methods.diagnose.confidence import Calibration, features
from clew.methods.diagnose.finding import Evidence, Finding, with_first
from clew.methods.diagnose.rank import Corpus, Place, Ranking, rank

REPORT = re.compile(r"<report>\n(.*?)\n</report>", re.DOTALL)
FIRST = 3  # findings
DEEP = 5  # files whose places are ranked at least


def findings(tools: Tools, corpus: Corpus, ranking: Ranking, n: int = FIRST) -> list[Finding]:
    """The first ``n`` files of a ranking as findings, best span each; confidences are not set.

    A file that no word of the report is found in is none.
    """
    best = [(path, places) for path, places in list(ranking.places.items())[:n] if places and _told(places[0])]
    return [_finding(tools, corpus, ranking, places[0]) for _, places in best]


def _told(place: Place) -> bool:
    return place.score > 0 or bool(place.traced)


def _finding(tools: Tools, corpus: Corpus, ranking: Ranking, place: Place) -> Finding:
    path, chunk = place.path, place.chunk
    unlike = {word.lower(): word for word in reversed(place.matched)}  # a word and a name may be the same
    matched = tuple(dict.fromkeys(unlike[word.lower()] for word in place.matched))
    lines = {"path": path, "start": chunk.start, "end": chunk.end}
    return Finding(
        path, chunk.start, chunk.end, " ".join(_why(ranking, place)), "", "", corpus.links.importers[path],
        _tests(tools, path), (Evidence("view_file", lines, f"{path}:{chunk.start}-{chunk.end}"),), matched=matched,
    )  # fmt: skip


def _why(ranking: Ranking, place: Place) -> Iterator[str]:
    """What speaks for a place, a sentence each."""
    path, name = place.path, place.chunk.name
    yield f"`{name}`." if name else f"The module level code of {PurePosixPath(path).stem}."
    for spot in place.traced[:1]:
        line = f", line {spot.line} of the reporter's version" if spot.line else ""
        if not spot.depth:
            yield f"The stack trace ends here, as far as it lies in the repository{line}."
        else:
            yield f"The stack trace passes here{line}, {spot.depth} files outside of where it ends."
        if spot.entry and spot.depth:
            yield "Here the caller's program comes in."
    if path in ranking.mentioned:
        yield "The report names the file."
    if here := [name for name, spots in ranking.named.items() if any(p == path for p, _ in spots)]:
        yield f"The file defines {', '.join(here[:8])}, which the report names."
    if like := ranking.past.get(path, ())[:2]:
        told = "; ".join(f"{change.commit[:8]} {change.subject[:80]}" for change in like)
        yield f"Past commits with messages like the report changed the file: {told}."
    first = [component for component in ("bm25", "view", "search") if ranking.first(component) == path]
    yield f"{len(first)} of 3 rankers put the file first."


def _tests(tools: Tools, path: str) -> str:
    stem = PurePosixPath(path).stem.strip("_").lower()
    named = [p for p in tools.view.files if is_test(p) and p.lower().rpartition("/")[2] in _test_names(stem, p)]
    importing = [p for p in tools.links.importers.get(path, ()) if is_test(p)]
    known = list(dict.fromkeys([*named, *importing]))[:3]
    return ", ".join(known) or "No test imports it or is named after it."


def _test_names(stem: str, path: str) -> tuple[str, ...]:
    """What a test of a module may be called, with the ending of ``path``."""
    end = path.rpartition(".")[2].lower()
    return f"test_{stem}.{end}", f"{stem}_test.{end}", f"{stem}.test.{end}", f"{stem}.spec.{end}"


def unmatched() -> BadInput:
    """What is said where a report has nothing to do with the repository."""
    remedy = "Name a function, option, message or file that has to do with it, as the code spells it."
    return BadInput("nothing in the repository matches the report", remedy=remedy)


class Chooser:
    """Answers the prompt of ``localise.localiser`` by the ranking of the repository, with no model.

    Args:
        repo: the repository. commit: the snapshot; empty for the working tree. index: file of the warm index.
        n: most findings.
    """

    version = 0
    renderer: Renderer | None = None

    def __init__(self, repo: str, commit: str = "", index: str | None = None, n: int = FIRST) -> None:
        self.repo, self.commit, self._index, self.n = repo, commit, index, n
        arguments = {"repo": repo, "commit": commit, "index": index, "n": n}
        self.ref = make_ref("chooser", arguments, {"commit": "", "index": None, "n": FIRST})
        self._ranked: dict[str, Ranking] = {}
        self._found: dict[str, list[Finding]] = {}

    @classmethod
    def over(cls, tools: Tools, n: int = FIRST) -> Chooser:
        """A chooser over a view that is open already."""
        path = tools.view.index.path
        made = cls(str(tools.view.git.folder), tools.view.commit, str(path) if path else None, n)
        made.__dict__["tools"] = tools
        return made

    @functools.cached_property
    def tools(self) -> Tools:
        return Tools(View(self.repo, self.commit, Index(self._index)))

    @functools.cached_property
    def corpus(self) -> Corpus:
        return Corpus(self.tools.view)

    def ranking(self, report: str) -> Ranking:
        if report not in self._ranked:
            self._ranked[report] = rank(self.corpus, report, deep=max(self.n, DEEP))
        return self._ranked[report]

    def confident(self, report: str, found: Sequence[Finding], calibration: Calibration) -> list[Finding]:
        """These findings, the first with its confidence: on other places nothing was calibrated."""
        if not found:
            return []
        first = found[0]
        return with_first(found, calibration(features(self.ranking(report), first.file, first.start, first.end)))

    def findings(self, report: str) -> list[Finding]:
        if report not in self._found:
            self._found[report] = findings(self.tools, self.corpus, self.ranking(report), self.n)
        return self._found[report]

    async def complete(self, request: Request) -> Completion:
        told = next((m for node in request.path if (m := REPORT.search(node.message.text))), None)
        if told is None:
            raise ModelError("the chooser was asked without a <report>", remedy="Use it with `clew diagnose`.")
        found = self.findings(told[1])
        if not found:
            raise unmatched()
        looked = any(node.message.role == "assistant" for node in request.path)
        if looked or not request.tools:
            text = json.dumps([f.json() for f in found], ensure_ascii=False)
            message = Message("assistant", f"<findings>{text}</findings>")
        else:
            calls = [
                ToolCall(f"look_{k}", e.tool, json.dumps(dict(e.args))) for k, f in enumerate(found) for e in f.evidence
            ]
            calls.append(ToolCall(f"look_{len(calls)}", "connected_tree", json.dumps({"path": found[0].file})))
            message = Message("assistant", "", calls=tuple(calls))
        return Completion(message, finish="tool_calls" if message.calls else "stop", usage=Usage())
