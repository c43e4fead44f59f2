"""Ranks that disagree end with one sentence at every rank, and none waits for good; see also test_sharded.py."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from clew.core.errors import BadInput
from clew.fit import optim
from clew.fit.collate import plan
from clew.fit.sharding import joining, shards
from clew.fit.sharding.ranks import Ranks, disagreement, rows_digest
from clew.fit.sharding.shards import dealt

from .helpers import module, rows


def port() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return str(free.getsockname()[1])


def refused(*worlds: int, facts: tuple[dict, ...] = (), wait: float = 20) -> list[str]:
    """What each rank is told that joins with its idea of the world's size and with facts of its own."""
    given = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port()}

    def come(rank: int) -> str:
        with pytest.raises(BadInput) as told:
            joining.join(
                {**given, "RANK": str(rank), "WORLD_SIZE": str(worlds[rank])}, (facts or ({},) * 9)[rank], wait
            )
        return str(told.value)

    with ThreadPoolExecutor(len(worlds)) as pool:
        return list(pool.map(come, range(len(worlds))))


@pytest.mark.parametrize("worlds", [(2, 3), (3, 2)])
def test_ranks_of_worlds_of_other_sizes(worlds):
    wanted = (
        f"the ranks disagree: world size is {worlds[0]} at rank 0 and {worlds[1]} at rank 1\n  Start all ranks by one"
    )
    assert all(said.startswith(wanted) for said in refused(*worlds))


@pytest.mark.parametrize("name", ["torch", "clew"])
def test_ranks_of_other_versions(name):
    for said in refused(2, 2, facts=({name: "this"}, {name: "other"})):
        assert f"the ranks disagree: {name} is this at rank 0 and other at rank 1\n  Install the same version" in said


def test_a_rank_that_does_not_come_is_named():
    assert all("rank 2 did not come within" in said for said in refused(3, 3, wait=1))


def test_nobody_at_the_address():
    with pytest.raises(BadInput, match=r"rank 1 reaches no rank 0 at 127\.0\.0\.1"):
        joining.join({"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port(), "RANK": "1", "WORLD_SIZE": "2"}, wait=1)


def test_an_optimiser_that_is_built_too_late_is_refused_by_name():
    one = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port(), "RANK": "0", "WORLD_SIZE": "1"}
    net, ranks = module(), joining.join(one)
    try:
        shards.cut(net, ranks)
        optim.build(net)
        net(input_ids=torch.tensor([[3, 4]]))
        with pytest.raises(BadInput, match=r"too late: of 24 parameters 2 are plain .* as model.embed_tokens.weight"):
            optim.build(net)
        net.reshard()
        optim.build(net)
        with pytest.raises(BadInput, match="cut among ranks already"):
            shards.cut(net, ranks)
    finally:
        joining.leave()


def test_what_is_not_a_rank_is_told_what_is_missing():
    with pytest.raises(BadInput, match="no rank: MASTER_ADDR, MASTER_PORT is not set"):
        joining.join({"RANK": "0", "WORLD_SIZE": "2"})
    assert not joining.is_rank({})


def test_facts_are_compared_with_those_of_rank_0():
    assert disagreement([{"a": "1"}, {"a": "1"}]) is None
    told = disagreement([{"a": "1", "rows": "x"}, {"a": "1", "rows": "x"}, {"a": "2", "rows": "y"}])
    assert str(told).startswith("the ranks disagree: a is 1 at rank 0 and 2 at rank 2, rows is x at rank 0 and y at")
    made = rows(module(), 3)
    name = rows_digest(made)
    assert rows_digest(made) == name != rows_digest(made[::-1])
    made[0].old[1] += 1
    assert rows_digest(made) != name


def test_each_rank_gets_its_share_and_as_many_passes():
    class One(Ranks):
        def __init__(self, rank: int) -> None:
            self.rank, self.world = rank, 3

    made = rows(module(), 5)
    parts = plan(made, 16_384, at_least=3)
    assert len(parts) >= 3
    assert sorted(i for part in parts for i in part) == [0, 1, 2, 3, 4]
    assert [len(part) for part in (dealt([1, 2, 3, 4], 0, One(rank)) for rank in range(3))] == [2, 2, 2]
    assert [dealt([1, 2, 3, 4], 0, One(rank)) for rank in range(3)] == [[1, 4], [2, 0], [3, 0]]
    alone = Ranks()
    assert (alone.total([1.0, 2.0]), alone.largest(None), alone.told("x")) == ([1.0, 2.0], None, "x")
    assert torch.equal(alone.joined(torch.ones(2)), torch.ones(2))
