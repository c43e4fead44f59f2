"""The deterministic chooser: where a bug report points, without a model.

Five components, each scaled to a maximum of 1 over the candidate files and added with weights:

    bm25       BM25 of the report against whole files
    view       BM25 of the report against single functions and classes, a file's best
    search     files with the identifiers of the report, by inverse file frequency, definitions three times; gated: an
               identifier counts only where it is defined in the repository or rare (idf above ``RARE``)
    tree       words of the report in the file's own name and folder
    connected  mean score of the files it imports and is imported by

BM25 with k1 = 1.2, b = .75 (Robertson and Zaragoza 2009), over sub-words and over the
identifiers of the report whole; a word said n times counts 1 + ln n. Components as in the paper's
four tools (arXiv 2606.24820, section 3); scaling and weights are ours, chosen on dev commits (papers/E169_sherloc).
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from clew.coding.digest import WORD, Chunk, parts, term
from clew.coding.languages import PATHS, is_test, language
from clew.coding.links import Links
from clew.coding.view import View

F64 = npt.NDArray[np.float64]
K1, B = 1.2, 0.75
RARE = 2.0  # idf in nats: at most one file in e^2, 13 %
WEIGHTS: Mapping[str, float] = {"bm25": 1.0, "view": 1.0, "search": 1.0, "tree": 0.35, "connected": 0.1}
STOP = frozenset((
    "the", "and", "for", "that", "this", "with", "from", "not", "are", "was", "were", "has", "have", "had",
    "but", "when", "where", "which", "what", "how", "why", "its", "can", "could", "should", "would", "will",
    "did", "does", "done", "been", "being", "there", "their", "they", "them", "than", "then", "now", "also",
    "only", "into", "onto", "over", "such", "some", "any", "all", "each", "other", "more", "most", "very",
    "just", "like", "use", "used", "using", "user", "users", "see", "one", "two", "if", "in", "is", "it", "of",
    "on", "or", "to", "as", "at", "be", "by", "an", "we", "you", "do", "no", "so", "py", "fix", "fixed", "bug",
    "issue", "error",
))  # fmt: skip
QUOTED = re.compile(r"``?([^`\n]+)``?")
OPTION = re.compile(r"(?<![\w-])--?([A-Za-z][\w-]+)")
DOTTED = re.compile(r"\b[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+\b")
NAMES = re.compile(r"\b(?:[A-Za-z]+_\w+|_\w+|[A-Z]+[a-z0-9]+[A-Z]\w*|[a-z]+[A-Z]\w*|[A-Z][a-z]+(?=Error|Warning)\w+)\b")
CALLED = re.compile(r"\b([A-Za-z_]\w*)\(")


def identifiers(report: str) -> list[str]:
    """What a report names in code: quoted names, options, dotted names, CamelCase, snake_case and calls, in order."""
    found: dict[str, None] = {}
    for quoted in QUOTED.findall(report):
        found.update(dict.fromkeys(WORD.findall(OPTION.sub(lambda m: m[0].replace("-", "_"), quoted))))
    found.update(dict.fromkeys(name.replace("-", "_") for name in OPTION.findall(report)))
    for dotted in DOTTED.findall(report):
        found.update(dict.fromkeys(dotted.split(".")))
    found.update(dict.fromkeys(NAMES.findall(report)))
    found.update(dict.fromkeys(CALLED.findall(report)))
    return [name for name in found if len(name.strip("_")) > 2 and name.lower() not in STOP and name != "py"]


def words(report: str) -> list[str]:
    """Sub-words of a report, stemmed, without stop words, each once, in order."""
    kept = (w for w in WORD.findall(report) if w.lower() not in STOP)
    return list(dict.fromkeys(p for w in kept for p in parts(w) if len(p) > 1 and p not in STOP))


class Place(NamedTuple):
    """A chunk of a candidate file with its score; ``matched`` are the report's words in it, rarest first."""

    path: str
    chunk: Chunk
    score: float
    matched: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Ranking:
    """Candidates by score. ``parts`` holds the scaled components, aligned with ``paths``; ``places`` the best chunks of
    each of the first ``deep`` files, by file; ``named`` the identifiers of the report and the files defining each."""

    paths: tuple[str, ...]
    scores: F64
    parts: Mapping[str, F64]
    places: Mapping[str, tuple[Place, ...]]
    named: Mapping[str, tuple[tuple[str, int], ...]]

    def first(self, component: str) -> str:
        """The file that one component alone puts first; empty where it says nothing."""
        values = self.parts[component]
        best = int(np.argmax(values))
        return self.paths[best] if values[best] > 0 else ""


class Corpus:
    """The candidates of a view, ready to be ranked: source that is neither test nor plain text, or all files where
    there is no such source. Arrays are over words (one row per term and chunk), chunks, or files."""

    def __init__(self, view: View) -> None:
        source = [p for p in view.files if language(p) != "text" and not is_test(p)]
        self.paths = source or [p for p in view.files if not is_test(p)] or list(view.files)
        digests = [view.digests[p] for p in self.paths]
        self.links = Links(self.paths, digests)
        self.chunks = [chunk for d in digests for chunk in d.chunks]
        per_file = np.array([len(d.chunks) for d in digests])
        self.first = np.concatenate([[0], np.cumsum(per_file)])
        self.file = np.repeat(np.arange(len(digests)), per_file)
        rows = np.concatenate([d.entries for d in digests])
        shift = np.repeat(self.first[:-1], [len(d.entries) for d in digests])
        self.terms, self.at, self.count = rows[:, 0], rows[:, 1] + shift, rows[:, 2].astype(np.float64)
        self.length: F64 = np.bincount(self.at, self.count, len(self.chunks)).astype(np.float64)
        self._asked: tuple[list[int] | None, tuple[F64, F64]] = (None, (np.zeros((0, 0)), np.zeros((0, 0))))
        self.defines: dict[str, list[tuple[str, int]]] = {}
        for path, d in zip(self.paths, digests, strict=True):
            for name, line in d.defines:
                self.defines.setdefault(name, []).append((path, line))

    def counts(self, wanted: list[int]) -> tuple[F64, F64]:
        """How often each wanted term occurs: (chunks, wanted) and (files, wanted). The last answer is remembered."""
        if self._asked[0] == wanted:
            return self._asked[1]
        order = np.argsort(np.array(wanted, np.uint32))
        sorted_ = np.array(wanted, np.uint32)[order]
        place = np.minimum(np.searchsorted(sorted_, self.terms), max(len(wanted) - 1, 0))
        hit = np.flatnonzero(sorted_[place] == self.terms) if wanted else np.zeros(0, np.int64)
        shape = (len(self.chunks), len(wanted))
        chunks = np.zeros(shape)
        chunks[self.at[hit], order[place[hit]]] = self.count[hit]
        self._asked = (list(wanted), (chunks, self.sum(chunks)))
        return self._asked[1]

    def sum(self, of_chunks: F64) -> F64:
        """Sums over the chunks of each file."""
        total = np.concatenate([np.zeros((1, *of_chunks.shape[1:])), np.cumsum(of_chunks, axis=0)])
        out: F64 = total[self.first[1:]] - total[self.first[:-1]]
        return out

    def best(self, of_chunks: F64) -> F64:
        """Maxima over the chunks of each file; 0 for a file without any."""
        out = np.zeros(len(self.paths))
        np.maximum.at(out, self.file, of_chunks)
        return out


def bm25(counts: F64, length: F64) -> F64:
    """BM25 scores (n, terms) of n documents; a document's score is its row's sum."""
    n = len(length)
    frequency = (counts > 0).sum(axis=0)
    idf = np.log1p((n - frequency + 0.5) / (frequency + 0.5))
    norm = K1 * (1 - B + B * length / max(length.mean(), 1e-9))
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
    prose, names = words(report), identifiers(report)
    of_chunk, of_file = corpus.counts([term(w) for w in prose] + [term("=" + n.lower()) for n in names])
    cut = len(prose)
    lengths = corpus.sum(corpus.length)
    often = Counter(p for w in WORD.findall(report) if w.lower() not in STOP for p in parts(w))
    weight = 1 + np.log([max(often[w], 1) for w in prose] + [1] * len(names))
    chunk_scores = bm25(of_chunk, corpus.length) * weight
    chunk_total = chunk_scores.sum(axis=1)
    found = {
        "bm25": (bm25(of_file, lengths) * weight).sum(axis=1),
        "view": corpus.best(chunk_total),
        "search": _search(corpus, names, of_file[:, cut:], gated),
        "tree": _tree(corpus.paths, prose),
    }
    scaled = {name: _scaled(values) for name, values in found.items()}
    total = np.zeros(len(corpus.paths))
    for name, values in scaled.items():
        total += weights.get(name, 0.0) * values
    scaled["connected"] = _scaled(corpus.links.mean(total))
    total += weights.get("connected", 0.0) * scaled["connected"]
    order = np.argsort(-total, kind="stable")
    places = {
        corpus.paths[i]: _places(corpus, int(i), chunk_total, chunk_scores, [*prose, *names])
        for i in order[:deep].tolist()
    }
    return Ranking(
        tuple(corpus.paths[i] for i in order.tolist()),
        total[order],
        {name: values[order] for name, values in scaled.items()},
        places,
        {name: tuple(corpus.defines.get(name, ())) for name in names},
    )


def _scaled(values: F64) -> F64:
    top = values.max(initial=0.0)
    return values / top if top > 0 else np.zeros_like(values)


def _search(corpus: Corpus, names: list[str], counts: F64, gated: bool) -> F64:
    out = np.zeros(len(corpus.paths))
    position = {path: i for i, path in enumerate(corpus.paths)}
    for k, name in enumerate(names):
        here = {position[path] for path, _ in corpus.defines.get(name, ())}
        having = int((counts[:, k] > 0).sum())
        if not having:
            continue
        idf = float(np.log(len(corpus.paths) / having))
        if gated and not here and idf <= RARE:
            continue
        out += idf * np.log1p(counts[:, k])
        out[sorted(here)] += 3 * idf
    return out


def _tree(paths: list[str], prose: list[str]) -> F64:
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


def _places(corpus: Corpus, file: int, total: F64, by_word: F64, prose: list[str]) -> tuple[Place, ...]:
    span = range(int(corpus.first[file]), int(corpus.first[file + 1]))
    best = sorted(span, key=lambda c: (-total[c], c))[:5]
    out = []
    for c in best:
        hits = [int(w) for w in np.argsort(-by_word[c], kind="stable") if by_word[c, w] > 0]
        out.append(Place(corpus.paths[file], corpus.chunks[c], float(total[c]), tuple(prose[w] for w in hits[:8])))
    return tuple(out)
