"""The deterministic chooser as a Model: it looks where the ranking points, then writes the five fields of a finding.

``localise`` uses it where no model is given. It states what is known without understanding: which words match, what is
defined there, who imports it, which tests exist. It must never claim more than that.
"""

from __future__ import annotations

import functools
import json
import re
from pathlib import PurePosixPath

from clew.coding.diagnose.code_tools import Tools
from clew.coding.diagnose.finding import Evidence, Finding
from clew.coding.diagnose.rank import Corpus, Place, Ranking, rank
from clew.coding.repository.languages import is_test
from clew.coding.repository.repository import Index, View
from clew.core.errors import BadInput, ModelError
from clew.core.protocols import Renderer
from clew.core.records import Request
from clew.core.registry import make_ref
from clew.core.values import Completion, Message, ToolCall, Usage

REPORT = re.compile(r"<report>\n(.*?)\n</report>", re.DOTALL)
FIRST = 3  # findings


def findings(tools: Tools, corpus: Corpus, ranking: Ranking, n: int = FIRST) -> list[Finding]:
    """The first ``n`` files of a ranking as findings, best span each; confidences are not set.

    A file that no word of the report is found in is none.
    """
    best = [(path, places) for path, places in list(ranking.places.items())[:n] if places and places[0].score > 0]
    return [_finding(tools, corpus, ranking, places[0]) for _, places in best]


def _finding(tools: Tools, corpus: Corpus, ranking: Ranking, place: Place) -> Finding:
    path, chunk = place.path, place.chunk
    what = f"`{chunk.name}`" if chunk.name else f"the module level code of {PurePosixPath(path).stem}"
    unlike = {word.lower(): word for word in reversed(place.matched)}  # a word and a name may be the same
    said = ", ".join(dict.fromkeys(unlike[word.lower()] for word in place.matched))
    subject = next((word for word in place.matched if word in ranking.named), place.matched[0])
    here = [name for name, spots in ranking.named.items() if any(p == path for p, _ in spots)]
    first = [component for component in ("bm25", "view", "search") if ranking.first(component) == path]
    why = f"{what} matches the report in: {said}."
    why += f" The file defines {', '.join(here)}, which the report names." if here else ""
    why += f" {len(first)} of 3 rankers put the file first."
    cause = (
        f"The behaviour reported comes about in {what}: if so, reproducing the report executes lines {chunk.start} to "
        f"{chunk.end} of {path}, and the outcome depends on how they treat {subject}."
    )
    idea = f"Compare what {what} does with {', '.join(here[:3]) or said} with what the report expects; change it there."
    near = corpus.links.importers[path]
    lines = {"path": path, "start": chunk.start, "end": chunk.end}
    evidence = Evidence("view_file", lines, f"{path}:{chunk.start}-{chunk.end}")
    return Finding(path, chunk.start, chunk.end, why, cause, idea, near, _tests(tools, path, chunk.name), (evidence,))


def _tests(tools: Tools, path: str, name: str) -> str:
    stem = PurePosixPath(path).stem.strip("_").lower()
    named = [p for p in tools.view.files if is_test(p) and p.lower().rpartition("/")[2] in _test_names(stem, p)]
    importing = [p for p in tools.links.importers.get(path, ()) if is_test(p)]
    known = list(dict.fromkeys([*named, *importing]))[:3]
    add = f"Add a test that reproduces the report{f' through {name}' if name else ''}."
    return (
        f"Tests that concern it: {', '.join(known)}. " if known else "No test imports it or is named after it. "
    ) + add


def _test_names(stem: str, path: str) -> tuple[str, ...]:
    """What a test of a module may be called, with the ending of ``path``."""
    end = path.rpartition(".")[2].lower()
    return f"test_{stem}.{end}", f"{stem}_test.{end}", f"{stem}.test.{end}", f"{stem}.spec.{end}"


class Chooser:
    """Answers the prompt of ``localise.localiser`` by the ranking of the repository, with no model.

    Args:
        repo: the repository. commit: the snapshot; empty for the working tree. index: file of the warm index.
    """

    version = 0
    renderer: Renderer | None = None

    def __init__(self, repo: str, commit: str = "", index: str | None = None) -> None:
        self.repo, self.commit, self._index = repo, commit, index
        self.ref = make_ref("chooser", {"repo": repo, "commit": commit, "index": index}, {"commit": "", "index": None})
        self._ranked: dict[str, Ranking] = {}
        self._found: dict[tuple[str, int], list[Finding]] = {}

    @classmethod
    def over(cls, tools: Tools) -> Chooser:
        """A chooser over a view that is open already."""
        path = tools.view.index.path
        made = cls(str(tools.view.git.folder), tools.view.commit, str(path) if path else None)
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
            self._ranked[report] = rank(self.corpus, report)
        return self._ranked[report]

    def findings(self, report: str, n: int = FIRST) -> list[Finding]:
        if (report, n) not in self._found:
            self._found[report, n] = findings(self.tools, self.corpus, self.ranking(report), n)
        return self._found[report, n]

    async def complete(self, request: Request) -> Completion:
        told = next((m for node in request.path if (m := REPORT.search(node.message.text))), None)
        if told is None:
            raise ModelError("the chooser was asked without a <report>", remedy="Use it with `clew diagnose`.")
        found = self.findings(told[1])
        if not found:
            raise BadInput("nothing in the repository matches the report", remedy="Name a function, option or message.")
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
