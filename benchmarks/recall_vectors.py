"""Which order finds what is sought: words, vectors of an embedding model, or both joined (extra ``memory``).

    python benchmarks/recall_vectors.py http://localhost:8000/v1#MODEL [--prefixes 'query: |passage: '] [--json]

Three sets, each a memory of facts and queries with one right answer or several:

- docs: 1,500 characters of a section of docs/*.md, its heading left out; the query is the heading.
- airline: what a customer said first in a recorded run of tau-bench's airline tasks, in other words each time; right
  are the other runs of the same task (shared/data, where it lies beside the repository).
- code: the body of a HumanEval function, without its name and its docstring; the query is the docstring (same place).

Orders: ``words`` (BM25), ``vectors`` (cosine), ``both`` (what a recall does: a weighted sum of both scores), ``ranks``
(reciprocal rank fusion with k = 60). For each the share of queries with a right item among the first 8 (hit@8), and the
mean of 1 / rank of the first right item, 0 beyond 100 (MRR), with 95 % intervals by bootstrap over queries; and how
``both`` differs from each other order, by pairs.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from clew.harness.memory import Memory
from clew.harness.memory.item_kinds import content
from clew.harness.memory.meaning import ask_query, nearest
from clew.harness.memory.recalling import MOST, Memories, asked_of
from clew.models.remote.embedder import Embedder, embedder_of
from clew.store import MemoryStore
from clew.store.entries import entry

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT.parent / "shared" / "data"
ORDERS = ("words", "vectors", "both", "ranks")
FIRST, DRAWS = 8, 2000


class Sought(NamedTuple):
    """A set: texts of items by id, queries, and the right items of each."""

    texts: Mapping[str, str]
    queries: Sequence[tuple[str, frozenset[str]]]


def docs() -> Sought:
    """Headings and what stands below them."""
    texts, queries = dict[str, str](), list[tuple[str, frozenset[str]]]()
    for page in sorted((ROOT / "docs").glob("*.md")):
        if page.name in ("cli.md", "README.md"):
            continue
        parts = re.split(r"^#{1,3} (.+)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
        for heading, body in zip(parts[1::2], parts[2::2], strict=True):
            if len(body.split()) >= 25 and len(heading.split()) >= 2:
                name = f"d{len(texts)}"
                texts[name] = body.strip()[:1500]
                queries.append((heading, frozenset({name})))
    return Sought(texts, queries)


def airline(data: Path) -> Sought:
    """First words of customers; a query finds the other runs of its task."""
    said: dict[str, tuple[str, str]] = {}
    for number, row in enumerate(rows(data / "tau_airline" / "gpt-4o.even-tasks.jsonl.gz")):
        told = [m["content"] for m in row["messages"] if m["role"] == "user" and m["content"]][:2]
        said[f"a{number}"] = (str(row["task_id"]), " ".join(told)[:1500])
    queries = [
        (text, frozenset(i for i, (t, _) in said.items() if t == task and i != me)) for me, (task, text) in said.items()
    ]
    return Sought({name: text for name, (_, text) in said.items()}, [(q, right) for q, right in queries if right])


def code(data: Path) -> Sought:
    """Docstrings and the bodies of their functions."""
    texts, queries = dict[str, str](), list[tuple[str, frozenset[str]]]()
    for number, row in enumerate(rows(data / "code" / "humaneval.even.jsonl.gz")):
        found = re.search(r'("""|\'\'\')(.*?)\1', row["prompt"], re.DOTALL)
        if found:
            texts[f"c{number}"] = row["canonical_solution"].strip()[:1500]
            queries.append((" ".join(found[2].split(">>>")[0].split()), frozenset({f"c{number}"})))
    return Sought(texts, queries)


def rows(path: Path) -> list[dict[str, object]]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def ranks(sought: Sought, embedder: Embedder) -> np.ndarray:
    """Rank of the first right item by each order, float64 [orders, queries]; infinite beyond 100. A query that is an
    item itself does not find itself."""
    store = MemoryStore()
    told = [(name, content("fact", {"text": text}, (), (), "benchmark")) for name, text in sought.texts.items()]
    store.put_entries([entry("m", name, float(at), "add", body) for at, (name, body) in enumerate(told)])
    memories, end = Memories(store, embedder), float(len(told))
    lacking = memories.embed("m")
    if lacking.lacking:
        raise SystemExit(f"{lacking.lacking} of {lacking.of} items have no vector: {lacking.why}")
    by_text = {item.text: item.id for item in Memory(store, "m").items()}
    shelf, found = memories._shelves["m"], np.full((len(ORDERS), len(sought.queries)), np.inf)
    for at, (query, right) in enumerate(sought.queries):
        own = frozenset({by_text[query]}) if query in by_text else frozenset()
        asked = asked_of("m", query, MOST, (), ())
        meant = ask_query(embedder, query, 60.0)
        words = [one.id for one in memories.search(asked, end, own)]
        both = [one.id for one in memories.search(asked, end, own, meant)]
        likeness = shelf.meaning(store, embedder.ref).likeness(meant.vector)
        near = [one for place in nearest(likeness) if (one := shelf._items[place].id) not in own][:MOST]
        for order, ids in enumerate((words, near, both, by_ranks(words, near))):
            found[order, at] = next((rank for rank, id in enumerate(ids, 1) if id in right), np.inf)
    return found


def by_ranks(*orders: Sequence[str]) -> list[str]:
    """Reciprocal rank fusion (Cormack, Clarke and Büttcher 2009, 10.1145/1571941.1572114)."""
    scores = dict[str, float]()
    for order in orders:
        for rank, name in enumerate(order, 1):
            scores[name] = scores.get(name, 0.0) + 1 / (60 + rank)
    return sorted(scores, key=lambda name: -scores[name])


def measured(found: np.ndarray, seed: int = 0) -> dict[str, object]:
    """Both measures of each order with intervals, and how both joined differ from each other order."""
    dice = np.random.default_rng(seed)
    draws = dice.integers(found.shape[1], size=(DRAWS, found.shape[1]))
    out: dict[str, object] = {"queries": found.shape[1]}
    for name, scores in ((f"hit@{FIRST}", (found <= FIRST).astype(float)), ("MRR", 1 / found)):
        drawn = scores[:, draws].mean(axis=2)
        for order, label in enumerate(ORDERS):
            out[f"{name} {label}"] = [scores[order].mean(), *np.quantile(drawn[order], (0.025, 0.975))]
        for order, label in ((at, label) for at, label in enumerate(ORDERS) if label != "both"):
            less = drawn[2] - drawn[order]
            out[f"{name} both less {label}"] = [(scores[2] - scores[order]).mean(), *np.quantile(less, (0.025, 0.975))]
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("model", help="endpoint and model, as in http://localhost:8000/v1#NAME")
    parser.add_argument("--prefixes", default="|", help="before a query and before an item, with a bar between")
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    named, (query, _, item) = embedder_of(given.model), given.prefixes.partition("|")
    embedder = Embedder(named.endpoint.url, named.model, seconds=600.0, said=(query, item))
    sets = {"docs": docs()}
    if given.data.is_dir():
        sets |= {"airline": airline(given.data), "code": code(given.data)}
    for name, sought in sets.items():
        began = time.monotonic()
        told = measured(ranks(sought, embedder)) | {"items": len(sought.texts), "s": time.monotonic() - began}
        if given.json:
            print(json.dumps({"set": name, "model": embedder.ref, **told}))
            continue
        print(f"{name}: {told['queries']} queries, {told['items']} items, {told['s']:.1f} s, {embedder.ref}")
        for label, value in told.items():
            if isinstance(value, list):
                print(f"  {label:>26}  {value[0]:+.3f} [{value[1]:+.3f}, {value[2]:+.3f}]")


if __name__ == "__main__":
    main()
