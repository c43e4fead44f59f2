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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from clew.coding.repository.digest import WORD, Chunk, parts, term
from clew.coding.repository.languages import PATHS, is_test, language, word_set
from clew.coding.repository.links import Links
from clew.coding.repository.repository import View

F64 = npt.NDArray[np.float64]
K1, B = 1.2, 0.75
RARE = 2.0  # idf in nats: at most one file in e^2, 13 %
WEIGHTS: Mapping[str, float] = {"bm25": 1.0, "view": 1.0, "search": 1.0, "tree": 0.35, "connected": 0.1}
STOP = word_set("""
    the and for that this with from not are was were has have had but when where which what how why its can could
    should would will did does done been being there their they them than then now also only into onto over such
    some any all each other more most very just like use used using user users see one two if in is it of on or to
    as at be by an we you do no so py fix fixed bug issue error
""")
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
    prose, names = words(report), identifiers(report)
    wanted, cut = [*map(term, prose), *(term("=" + n.lower()) for n in names)], len(prose)
    of_chunk, of_file, rows = corpus.counts(wanted)
    having = {t: of_file[:, [k for k, u in enumerate(wanted) if u == t]].max(axis=1) > 0 for t in wanted[cut:]}
    named = {n: tuple(corpus.defining(n, having[t])) for n, t in zip(names, wanted[cut:], strict=True)}
    often = Counter(p for w in WORD.findall(report) if w.lower() not in STOP for p in parts(w))
    weight = 1 + np.log([max(often[w], 1) for w in prose] + [1] * len(names))
    chunk_scores = bm25(of_chunk, corpus.length, rows) * weight
    chunk_total = chunk_scores.sum(axis=1)
    found = {
        "bm25": (bm25(of_file, corpus.file_length) * weight).sum(axis=1),
        "view": corpus.best(chunk_total, rows),
        "search": _search(corpus, named, of_file[:, cut:], gated),
        "tree": _tree(corpus.paths, prose),
    }
    scaled = {name: _scaled(values) for name, values in found.items()}
    total = np.zeros(len(corpus.paths))
    for name, values in scaled.items():
        total += weights.get(name, 0.0) * values
    scaled["connected"] = _scaled(corpus.links.mean(total))
    total += weights.get("connected", 0.0) * scaled["connected"]
    order = np.argsort(-total, kind="stable")
    places = {corpus.paths[i]: _places(corpus, i, rows, chunk_scores, [*prose, *names]) for i in order[:deep].tolist()}
    return Ranking(
        tuple(corpus.paths[i] for i in order.tolist()),
        total[order],
        {name: values[order] for name, values in scaled.items()},
        places,
        named,
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


def _places(
    corpus: Corpus, file: int, rows: npt.NDArray[np.int64], by_word: F64, prose: list[str]
) -> tuple[Place, ...]:
    """The best chunks of a file. ``by_word`` (rows, words) holds the scores of the chunks ``rows``; of others 0."""
    begin, end = corpus.first[file : file + 2].tolist()
    scores = np.zeros((end - begin, len(prose)))
    low, high = np.searchsorted(rows, (begin, end))
    scores[rows[low:high] - begin] = by_word[low:high]
    total = scores.sum(axis=1)
    out = []
    for c in sorted(range(end - begin), key=lambda c: (-total[c], c))[:5]:
        hits = [int(w) for w in np.argsort(-scores[c], kind="stable") if scores[c, w] > 0]
        matched = tuple(prose[w] for w in hits[:8])
        out.append(Place(corpus.paths[file], corpus.chunk(begin + c), float(total[c]), matched))
    return tuple(out)
