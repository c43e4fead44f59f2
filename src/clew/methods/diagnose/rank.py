"""The deterministic chooser: where a bug report points, without a model.

Eight components, each scaled to a maximum of 1 over the candidate files and added with weights:

    bm25       BM25 of the report against whole files
    view       BM25 of the report against single functions and classes, a file's best
    search     files with the identifiers of the report, by inverse file frequency, definitions three times; gated: an
               identifier counts only where it is defined in the repository or rare (idf above ``RARE``)
    tree       words of the report in the file's own name and folder
    trace      files of the stack traces in the report: the innermost of the repository 1, the k-th from it 1 / k^2
    mention    files that the report names
    past       files that past commits changed whose messages are like the report
    connected  mean score of the files it imports and is imported by

BM25 with k1 = 1.2, b = .75 (Robertson and Zaragoza 2009), over sub-words and over the identifiers of the report whole.
bm25 to connected are the paper's four tools (arXiv 2606.24820, section 3); trace, mention and past are old in the field
(Zhou et al. 2012, Wong et al. 2014); scaling and weights are ours, chosen on dev reports (papers/E169_sherloc).
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from clew.coding.repository.changes import Change, changes
from clew.coding.repository.digest import WORD, Chunk, parts, term
from clew.coding.repository.languages import PATHS, is_test, language, word_set
from clew.coding.repository.links import Links
from clew.coding.repository.repository import View
from clew.methods.diagnose.bug_report import STOP, BugReport
from clew.methods.diagnose.traces import Spot, by_name, nearest, spots

F64 = npt.NDArray[np.float64]
K1, B = 1.2, 0.75
RARE = 2.0  # idf in nats: at most one file in e^2, 13 %
ANYBODYS = word_set("__init__ __main__ app conftest demo example index lib main manage mod run script setup test utils")
LIKE = 20  # past commits that count
WEIGHTS: Mapping[str, float] = {
    "bm25": 1.0, "view": 1.0, "search": 0.1, "tree": 0.2, "trace": 3.0, "mention": 1.0, "past": 0.4, "connected": 0.1,
}  # fmt: skip


class Place(NamedTuple):
    """A chunk of a candidate file with its score; ``matched`` are the report's words in it, rarest first; ``traced``
    the frames of the report's traces in it."""

    path: str
    chunk: Chunk
    score: float
    matched: tuple[str, ...]
    traced: tuple[Spot, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Ranking:
    """Candidates by score. ``parts`` holds the scaled components, aligned with ``paths``; ``places`` the best chunks of
    each of the first ``deep`` files, by file; ``named`` the identifiers of the report and the files defining each;
    ``mentioned`` the files that the report names; ``past`` the like commits that changed a file, the likest first."""

    paths: tuple[str, ...]
    scores: F64
    parts: Mapping[str, F64]
    places: Mapping[str, tuple[Place, ...]]
    named: Mapping[str, tuple[tuple[str, int], ...]]
    mentioned: tuple[str, ...] = ()
    past: Mapping[str, tuple[Change, ...]] = field(default_factory=dict)

    def first(self, component: str) -> str:
        """The file that one component alone puts first; empty where it says nothing."""
        values = self.parts[component]
        best = int(np.argmax(values))
        return self.paths[best] if values[best] > 0 else ""


class Counts(NamedTuple):
    """How often terms occur: in ``chunks`` (rows, terms), of which only those with one are rows, their numbers in
    ``rows``; in ``files`` (files, terms)."""

    chunks: F64
    files: F64
    rows: npt.NDArray[np.int64]


class Corpus:
    """The candidates of a view, ready to be ranked: source that is neither test nor plain text, or all files where
    there is no such source.

    Attributes:
        terms, at, count: one element per word and chunk: the term, the chunk (counted within its file), how often.
        words, first: for each file its first element in those, its first chunk; one more for the end.
        file, length: of each chunk its file, and its words; ``file_length``: words of each file.
    """

    def __init__(self, view: View) -> None:
        source = [p for p in view.files if language(p) != "text" and not is_test(p)]
        self.paths = source or [p for p in view.files if not is_test(p)] or list(view.files)
        digests = [view.digests[p] for p in self.paths]
        self.links = Links(self.paths, digests)
        self.digests = digests
        self.words = np.cumsum([0, *(len(d.entries) for d in digests)])
        self.terms, self.at, self.count = (np.concatenate([d.entries[:, k] for d in digests]) for k in range(3))
        sizes = [d.size for d in digests]
        self.first = np.cumsum([0, *sizes])
        self.file = np.repeat(np.arange(len(digests)), sizes)
        self.length: F64 = np.concatenate([d.lengths for d in digests]).astype(np.float64)
        self.file_length: F64 = np.bincount(self.file, self.length, len(digests)).astype(np.float64)
        self._asked: tuple[list[int], Counts] | None = None
        self._view = view

    @functools.cached_property
    def changes(self) -> list[Change]:
        """The past commits of the snapshot."""
        return changes(self._view.git, self._view.commit or "HEAD")

    @functools.cached_property
    def ends(self) -> dict[str, list[str]]:
        """The candidates by their last part."""
        return by_name(self.paths)

    def counts(self, wanted: list[int]) -> Counts:
        """How often each wanted term occurs. The last answer is remembered."""
        if self._asked and self._asked[0] == wanted:
            return self._asked[1]
        order = np.argsort(np.array(wanted, np.uint32))
        sorted_ = np.array(wanted, np.uint32)[order]
        maybe = np.zeros(1 << 16, bool)  # few terms have the upper half of a wanted one
        maybe[sorted_ >> 16] = True
        near = np.flatnonzero(maybe[self.terms >> 16])
        terms = self.terms[near]
        place = np.minimum(np.searchsorted(sorted_, terms), max(len(wanted) - 1, 0))
        found = np.flatnonzero(sorted_[place] == terms) if wanted else np.zeros(0, np.int64)
        hit, column = near[found], order[place[found]]
        file = np.searchsorted(self.words, hit, side="right") - 1
        rows, row = np.unique(self.first[file] + self.at[hit], return_inverse=True)
        chunks, files = np.zeros((len(rows), len(wanted))), np.zeros((len(self.paths), len(wanted)))
        chunks[row, column] = self.count[hit]
        np.add.at(files, (file, column), self.count[hit])
        self._asked = (list(wanted), Counts(chunks, files, rows))
        return self._asked[1]

    def defining(self, name: str, here: npt.NDArray[np.bool_]) -> list[tuple[str, int]]:
        """Where a name is defined, as (path, line). ``here``: the files that have it as a word: none other defines it,
        unless it is no word as ``WORD`` has them."""
        files = np.flatnonzero(here).tolist() if WORD.fullmatch(name) else range(len(self.paths))
        return [(self.paths[i], line) for i in files for given, line in self.digests[i].defines if given == name]

    def chunk(self, number: int) -> Chunk:
        file = int(self.file[number])
        return self.digests[file].chunks[number - int(self.first[file])]

    def marked(self, marks: Mapping[str, float]) -> F64:
        """Values of some files, 0 of the others."""
        out = np.zeros(len(self.paths))
        for i, path in enumerate(self.paths):
            out[i] = marks.get(path, 0.0)
        return out

    def best(self, of_chunks: F64, rows: npt.NDArray[np.int64]) -> F64:
        """Maxima over the chunks of each file, of which ``rows`` are given; 0 for a file without any."""
        out = np.zeros(len(self.paths))
        np.maximum.at(out, self.file[rows], of_chunks)
        return out


def bm25(counts: F64, length: F64, rows: npt.NDArray[np.int64] | None = None) -> F64:
    """BM25 scores (n, terms) of n documents; a document's score is its row's sum.

    Args:
        counts: (n, terms). length: of every document.
        rows: which documents the counts are of, where those of all others are 0; their scores are not given.
    """
    n = len(length)
    frequency = (counts > 0).sum(axis=0)
    idf = np.log1p((n - frequency + 0.5) / (frequency + 0.5))
    norm = K1 * (1 - B + B * (length if rows is None else length[rows]) / max(length.mean(), 1e-9))
    out: F64 = idf * counts * (K1 + 1) / (counts + norm[:, None])
    return out


def rank(
    corpus: Corpus, report: str, weights: Mapping[str, float] = WEIGHTS, *, gated: bool = True, deep: int = 5
) -> Ranking:
    """Rank the candidates for a report.

    Args:
        weights: of the components; one that is absent is not used.
        gated: whether literal search leaves out identifiers that are common and not defined here.
        deep: for how many files the best chunks are given.
    """
    said = BugReport.of(report)
    wanted, cut = [*map(term, said.prose), *(term("=" + n.lower()) for n in said.names)], len(said.prose)
    of_chunk, of_file, rows = corpus.counts(wanted)
    having = {t: of_file[:, [k for k, u in enumerate(wanted) if u == t]].max(axis=1) > 0 for t in wanted[cut:]}
    named = {n: tuple(corpus.defining(n, having[t])) for n, t in zip(said.names, wanted[cut:], strict=True)}
    chunk_scores = bm25(of_chunk, corpus.length, rows) * said.weight
    traced, (past, like) = _traced(corpus, said), _past(corpus, said.prose)
    mentioned = _mentioned(corpus, said)
    found = {
        "bm25": (bm25(of_file, corpus.file_length) * said.weight).sum(axis=1),
        "view": corpus.best(chunk_scores.sum(axis=1), rows),
        "search": _search(corpus, named, of_file[:, cut:], gated),
        "tree": _tree(corpus.paths, said.prose),
        "trace": corpus.marked({spot.path: (1 + spot.depth) ** -2 for spot in sorted(traced, key=_inward)}),
        "mention": corpus.marked(dict.fromkeys(mentioned, 1.0)),
        "past": past,
    }
    scaled = {name: _scaled(values) for name, values in found.items()}
    total = np.zeros(len(corpus.paths))
    for name, values in scaled.items():
        total += weights.get(name, 0.0) * values
    scaled["connected"] = _scaled(corpus.links.mean(total))
    total += weights.get("connected", 0.0) * scaled["connected"]
    order = np.argsort(-total, kind="stable")
    every = [*said.prose, *said.names]
    places = {corpus.paths[i]: _places(corpus, i, rows, chunk_scores, every, traced) for i in order[:deep].tolist()}
    return Ranking(
        tuple(corpus.paths[i] for i in order.tolist()),
        total[order],
        {name: values[order] for name, values in scaled.items()},
        places,
        named,
        mentioned,
        like,
    )


def _scaled(values: F64) -> F64:
    top = values.max(initial=0.0)
    return values / top if top > 0 else np.zeros_like(values)


def _search(corpus: Corpus, named: Mapping[str, Sequence[tuple[str, int]]], counts: F64, gated: bool) -> F64:
    out = np.zeros(len(corpus.paths))
    position = {path: i for i, path in enumerate(corpus.paths)}
    for k, defined in enumerate(named.values()):
        here = {position[path] for path, _ in defined}
        having = int((counts[:, k] > 0).sum())
        if not having:
            continue
        idf = float(np.log(len(corpus.paths) / having))
        if gated and not here and idf <= RARE:
            continue
        out += idf * np.log1p(counts[:, k])
        out[sorted(here)] += 3 * idf
    return out


def _traced(corpus: Corpus, said: BugReport) -> list[Spot]:
    """The frames of the report's traces that lie in candidates; which names a file defines is read for those alone."""
    told = {frame.path.replace("\\", "/").rpartition("/")[2] for frames in said.traces for frame in frames}
    near = {path for name in told for path in corpus.ends.get(name, ())}
    defines = {
        path: frozenset(name for name, _ in digest.defines)
        for path, digest in zip(corpus.paths, corpus.digests, strict=True)
        if path in near
    }
    return spots(said.traces, list(near), defines)


def _inward(spot: Spot) -> int:
    """For sorting frames so that the innermost of a file comes last."""
    return -spot.depth


def _mentioned(corpus: Corpus, said: BugReport) -> tuple[str, ...]:
    """The candidates that the report names, as far as one alone is meant. Names that any program has, as ``main.py``,
    are meant with their folder only."""
    out = dict[str, None]()
    for told in said.files:
        path, common = nearest(told, corpus.ends)
        if path and (common > 1 or PurePosixPath(path).stem not in ANYBODYS):
            out[path] = None
    return tuple(out)


def _past(corpus: Corpus, prose: Sequence[str]) -> tuple[F64, dict[str, tuple[Change, ...]]]:
    """What the ``LIKE`` past commits whose messages are most like the report say of each file: the sum of their BM25
    scores, each shared among its files; and those commits by file."""
    position = {path: i for i, path in enumerate(corpus.paths)}
    known = [c for c in corpus.changes if any(path in position for path in c.files)] if prose else []
    out, by_file = np.zeros(len(corpus.paths)), dict[str, tuple[Change, ...]]()
    if not known:
        return out, by_file
    counted = [_message_words(change.message) for change in known]
    counts = np.array([[words.get(w, 0) for w in prose] for words in counted], np.float64)
    scores = bm25(counts, np.array([sum(words.values()) + 1 for words in counted], np.float64)).sum(axis=1)
    for k in np.argsort(-scores, kind="stable")[: min(LIKE, int((scores > 0).sum()))].tolist():
        files = [path for path in known[k].files if path in position]
        for path in files:
            out[position[path]] += scores[k] / len(files)
            by_file[path] = (*by_file.get(path, ()), known[k])
    return out, by_file


@functools.lru_cache(maxsize=1 << 14)
def _message_words(message: str) -> Counter[str]:
    return Counter(p for w in WORD.findall(message) if w.lower() not in STOP for p in parts(w))


def _tree(paths: Sequence[str], prose: Sequence[str]) -> F64:
    asked, out = set(prose), np.zeros(len(paths))
    for i, path in enumerate(paths):
        own = _own_words(path)
        if own:
            out[i] = sum(p in asked for p in own) / len(own)
    return out


@functools.lru_cache(maxsize=PATHS)
def _own_words(path: str) -> tuple[str, ...]:
    """Words of a file's name; of a package's ``__init__`` those of its folder."""
    pure = PurePosixPath(path)
    return tuple(parts(pure.stem) if pure.stem != "__init__" else parts(pure.parent.name))


def _places(
    corpus: Corpus,
    file: int,
    rows: npt.NDArray[np.int64],
    by_word: F64,
    prose: Sequence[str],
    traced: Sequence[Spot],
) -> tuple[Place, ...]:
    """The best chunks of a file: those that a trace runs through, the innermost first, then by words. ``by_word``
    (rows, words) holds the scores of the chunks ``rows``; of others 0."""
    begin, end = corpus.first[file : file + 2].tolist()
    scores = np.zeros((end - begin, len(prose)))
    low, high = np.searchsorted(rows, (begin, end))
    scores[rows[low:high] - begin] = by_word[low:high]
    total = scores.sum(axis=1)
    through = dict[int, list[Spot]]()
    for spot in traced:
        if spot.path == corpus.paths[file]:
            through.setdefault(_chunk_of(corpus.digests[file].chunks, spot), []).append(spot)
    depth = {c: min(spot.depth for spot in found) for c, found in through.items() if c >= 0}
    far = len(traced) + 1
    out = []
    for c in sorted(range(end - begin), key=lambda c: (depth.get(c, far), -total[c], c))[:5]:
        hits = [int(w) for w in np.argsort(-scores[c], kind="stable") if scores[c, w] > 0]
        matched = tuple(prose[w] for w in hits[:8])
        here = tuple(through.get(c, ()))
        out.append(Place(corpus.paths[file], corpus.chunk(begin + c), float(total[c]), matched, here))
    return tuple(out)


def _chunk_of(chunks: Sequence[Chunk], spot: Spot) -> int:
    """The chunk of a frame: by its function's name, the nearest of several, since the reporter's lines may be of
    another version; else by its line; -1 where there is none."""
    named = [k for k, chunk in enumerate(chunks) if spot.name and chunk.name.rpartition(".")[2] == spot.name]
    if named:
        return min(named, key=lambda k: max(chunks[k].start - spot.line, spot.line - chunks[k].end, 0))
    return next((k for k, chunk in enumerate(chunks) if chunk.start <= spot.line <= chunk.end), -1)
