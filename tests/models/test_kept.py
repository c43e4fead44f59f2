"""Sets of kept tokens come back as they were, and bytes of others are refused in a sentence."""

from contextlib import suppress

import numpy as np
import pytest

from clew.core.errors import BadInput
from clew.models.kept import from_lists, listed, pack, unpack


def test_sets_come_back_as_they_were():
    rng = np.random.default_rng(0)
    sizes = [0, 1, 20, 0, 5_000, 1]
    sets = [np.sort(rng.choice(200_000, size, replace=False)) for size in sizes] + [np.array([0, 2**31 - 1])]
    data = pack(sets)
    back = unpack(data)
    assert [ids.tolist() for ids in back] == [ids.tolist() for ids in sets]
    assert len(data) < 2.2 * sum(map(len, sets)), "an id takes one or two bytes"
    assert [ids.tolist() for ids in unpack(pack([np.zeros(0, np.int64)]))] == [[]]
    assert unpack(pack([])) == []


def test_bytes_of_others_are_refused():
    whole = pack([np.array([1, 5, 900]), np.array([3])])
    one = b"\1\0\0\0"
    for data in (
        b"",
        whole[:-1],
        whole + b"\1",
        one + b"\xff" * 6 + b"\0",
        one,
        one + b"\2\7\0",
        b"\xff" * 4 + b"\x7f",
    ):
        with pytest.raises(BadInput, match="damaged"):
            unpack(data)
    rng = np.random.default_rng(1)
    read = 0
    for _ in range(2_000):
        with suppress(BadInput):  # and nothing else
            read += len(unpack(one + rng.integers(0, 256, rng.integers(1, 12), np.uint8).tobytes())) >= 0
    assert read, "some random bytes are sets"
    for sets in ([np.array([2, 1])], [np.array([1, 1])], [np.array([-1, 3])]):
        with pytest.raises(BadInput, match="do not ascend"):
            pack(sets)


def test_the_wire_has_lists_and_another_servers_are_checked():
    data = pack([np.array([1, 5, 900]), np.zeros(0, np.int64)])
    assert listed(data) == [[1, 5, 900], None]
    assert from_lists([[900, 1, 5], None], [5, 7]) == data
    wrong = [
        None,
        [],
        [[1]],
        [[1, 5], [6]],
        [["5"], None],
        [[5, -1], None],
        [[5, 2**70], None],
        [[5, True], None],
        [5, None],
    ]
    for mask in wrong:
        assert from_lists(mask, [5, 7]) == b"", mask
