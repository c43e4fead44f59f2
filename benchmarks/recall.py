"""How long a memory of many items takes to answer, and to be indexed (extra ``memory``).

    python benchmarks/recall.py [--items 100000] [--queries 500] [--numbers 0] [--json]

Items are facts of 25 words drawn from 20,000 by Zipf's law, queries 8 words of an item. Each query is timed by itself,
after one item was added, so that the newest are looked up too: seconds of this process's own CPU time, wall beside it.
The bar: the 95th percentile is at most 10 ms among 100,000 items. With ``--numbers`` items have vectors of so many
random numbers too, and both orders are joined; what an endpoint takes to answer is not in it.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Sequence

import numpy as np

from clew.core.values import F32
from clew.harness.memory.item_kinds import content
from clew.harness.memory.meaning import Meant
from clew.harness.memory.recalling import Memories, asked_of
from clew.store import MemoryStore
from clew.store.entries import entry

WORDS, LENGTH, ASKED, BAR = 20_000, 25, 8, 10.0


def facts(count: int, dice: np.random.Generator) -> list[str]:
    """Texts of 25 words, frequent words more often."""
    chances = 1 / np.arange(1, WORDS + 1)
    drawn = dice.choice(WORDS, size=(count, LENGTH), p=chances / chances.sum())
    return [" ".join(f"w{word}" for word in row) for row in drawn.tolist()]


class Drawn:
    """An embedding model that answers with random vectors of length 1."""

    ref, seconds = "random", 3600.0

    def __init__(self, numbers: int) -> None:
        self.numbers, self.dice = numbers, np.random.default_rng(1)

    def query(self, text: str, seconds: float) -> F32:
        return self.texts([text], seconds)[0]

    def texts(self, texts: Sequence[str], seconds: float) -> F32:
        rows = self.dice.standard_normal((len(texts), self.numbers), np.float32)
        unit: F32 = rows / np.sqrt((rows * rows).sum(axis=1, keepdims=True))
        return unit


def measure(items: int, queries: int, numbers: int = 0, seed: int = 0) -> dict[str, float]:
    """Seconds to index, and milliseconds of a query: p50 and p95, CPU and wall."""
    dice = np.random.default_rng(seed)
    texts, store = facts(items + queries, dice), MemoryStore()

    def add(numbers: range) -> None:
        lines = [(n, content("fact", {"text": texts[n]}, (), (), "benchmark")) for n in numbers]
        store.put_entries([entry("shop", f"i{n}", float(n), "add", told) for n, told in lines])

    add(range(items))
    model = Drawn(numbers) if numbers else None
    memories, end = Memories(store, model), float(items + queries)
    began = time.process_time()
    memories.search(asked_of("shop", "w1", 8, (), ()), end)
    index = time.process_time() - began
    meant = None if model is None else Meant(model.ref, model.query("", 0.0))
    if model is not None:
        memories.embed("shop")
    spent = np.zeros((queries, 2))
    grown = np.zeros(queries)
    for n in range(queries):
        add(range(items + n, items + n + 1))
        words = dice.permutation(texts[int(dice.integers(items))].split())[:ASKED]
        asked = asked_of("shop", " ".join(words), 8, (), ())
        fresh = time.process_time()
        if model is not None:
            memories.embed("shop")
        memories.search(asked._replace(query="nothing"), end)
        cpu, wall = time.process_time(), time.perf_counter()
        found = memories.search(asked, end, meant=meant)
        spent[n] = time.process_time() - cpu, time.perf_counter() - wall
        grown[n] = cpu - fresh
        assert found
    p50, p95 = np.quantile(spent * 1e3, (0.5, 0.95), axis=0)
    return {
        "items": items,
        "queries": queries,
        "index s": index,
        "p50 ms": p50[0],
        "p95 ms": p95[0],
        "p50 wall ms": p50[1],
        "p95 wall ms": p95[1],
        "after an item was added, p50 ms": float(np.quantile(grown, 0.5) * 1e3),
        "after an item was added, p95 ms": float(np.quantile(grown, 0.95) * 1e3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--items", type=int, default=100_000)
    parser.add_argument("--queries", type=int, default=500)
    parser.add_argument("--numbers", type=int, default=0, help="of each vector; 0: by words alone")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    found = measure(given.items, given.queries, given.numbers)
    if given.json:
        print(json.dumps(found))
        return
    print(f"{platform.machine()}, Python {platform.python_version()}")
    for name, value in found.items():
        print(f"{name:>34}  {value:,.2f}" if isinstance(value, float) else f"{name:>34}  {value:,}")
    print("within the bar" if found["p95 ms"] <= BAR else f"beyond the bar of {BAR} ms")


if __name__ == "__main__":
    main()
