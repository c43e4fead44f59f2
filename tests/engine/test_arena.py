"""The arena of the key-value cache against arrays of one row each, over random orders of what is done with it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise, product

import numpy as np
import pytest
import torch

from clew.models.engine.forwards.arena import GRAIN, Arena, stretch

HEADS, WIDTH, ROWS = 3, 2, 6


@pytest.fixture(autouse=True)
def as_passes_do() -> Iterator[None]:
    with torch.inference_mode():
        yield


def filled(kinds: int = 2) -> Arena:
    arena = Arena()
    for kind in range(kinds):
        arena.hold(kind, HEADS, WIDTH + kind, torch.empty(0), transposed=kind == 1)
    arena.number(ROWS)
    return arena


def written(arena: Arena, row: int, start: int, count: int, value: float) -> None:
    spots = arena.layout(np.array([row])).spots(torch.arange(start, start + count), np.array([count]))
    for kind in range(2):
        new = torch.arange(count * HEADS * (WIDTH + kind), dtype=torch.float32).view(count, HEADS, WIDTH + kind) + value
        arena.store(kind, spots, new)


def row_of(arena: Arena, kind: int, row: int, length: int) -> torch.Tensor:
    room = int(arena.room[row])
    return arena.stretches(kind, room)[int(arena.base[row]) // room, :, :length].clone()


@pytest.mark.parametrize("seed", range(8))
def test_rows_keep_what_was_written_whatever_happens_to_others(seed: int) -> None:
    rng, arena = np.random.default_rng(seed), filled()
    held: dict[int, tuple[int, list[torch.Tensor]]] = {}
    for step in range(120):
        row, what = int(rng.integers(ROWS)), rng.integers(5)
        if what == 0 or row not in held:
            size, length = int(GRAIN * 2 ** rng.integers(0, 5)), held.get(row, (0, []))[0]
            arena.take(row, size, length, limit=int(rng.integers(0, 4000)))
            length = min(size, length)
            held[row] = length, [row_of(arena, kind, row, length) for kind in range(2)]
        elif what == 1:
            arena.free(row)
            del held[row]
        elif what == 2:
            length = held[row][0]
            more = int(rng.integers(0, arena.room[row] - length + 1))
            written(arena, row, length, more, 1000.0 * step)
            held[row] = length + more, [row_of(arena, kind, row, length + more) for kind in range(2)]
        elif what == 3:
            sources = [r for r in held if rng.random() < 0.5]
            free = [r for r in held if r not in sources]
            pairs = list(zip(sources, free, strict=False))
            if pairs:
                length = min(held[a][0] for a, _ in pairs)
                arena.move(*zip(*pairs, strict=True), length)
                for a, b in pairs:
                    n = min(length, int(arena.room[b]))
                    held[b] = n, [part[:, :n].clone() for part in held[a][1]]
        else:
            arena.shrink()
        taken = sorted((int(arena.base[r]), int(arena.room[r])) for r in held)
        assert all(a + n <= b for (a, n), (b, _) in pairwise(taken)), "stretches overlap"
        assert all(start % n == 0 and start + n <= arena.total for start, n in taken)
        for r, (length, parts) in held.items():
            for kind, part in enumerate(parts):
                torch.testing.assert_close(row_of(arena, kind, r, length), part, rtol=0, atol=0)


@pytest.mark.parametrize("seed", range(4))
def test_a_layout_reads_every_row_where_it_lies(seed: int) -> None:
    rng, arena = np.random.default_rng(seed), filled()
    for row in rng.permutation(ROWS).tolist():
        arena.take(row, int(GRAIN * 2 ** rng.integers(0, 2)), 0)
        written(arena, row, 0, GRAIN, 100.0 * row)
    rows = rng.permutation(ROWS)[: rng.integers(1, ROWS + 1)]
    lay, seen = arena.layout(rows), 0
    assert arena.layout(rows) is lay
    np.testing.assert_array_equal(lay.rows if lay.back is None else lay.rows[lay.back], rows)
    for bank, kind in product(lay.banks, range(2)):
        among = None if bank.at is None else torch.from_numpy(bank.at)
        found = arena.read(bank, GRAIN, kind, among)
        assert (found.stride(-1) == 1) == (kind == 0), "only the second kind is transposed"
        for row, part in zip(lay.rows[bank.part].tolist(), found, strict=True):
            torch.testing.assert_close(part, row_of(arena, kind, row, GRAIN), rtol=0, atol=0)
            seen += 1
    assert seen == 2 * len(rows)


def test_even_rows_keep_what_they_hold_and_lie_in_order() -> None:
    arena = filled()
    for row in (3, 1):
        arena.take(row, 128, 0)
        written(arena, row, 0, 100, 7.0 * row)
    before = [row_of(arena, 1, row, 100) for row in (3, 1)]
    arena.even(ROWS, 200)
    assert arena.total == ROWS * 256
    assert arena.layout(np.arange(ROWS)).order is None
    for row, part in zip((3, 1), before, strict=True):
        torch.testing.assert_close(row_of(arena, 1, row, 100), part, rtol=0, atol=0)


def test_stretches_are_powers_of_two_up_to_what_the_context_needs() -> None:
    assert [stretch(n, 10_000) for n in (1, 64, 65, 8000, 9000)] == [64, 64, 128, 8192, 10048]
