"""The invariants of specs/E178, 7.3, and of the issue: erasure, epochs, replay, anchors, budgets, resuming."""

from __future__ import annotations

import asyncio
import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clew.core.errors import BadInput, BadRecord, ClewError
from clew.methods.coevolve import Proposal, Rules
from clew.methods.coevolve.archive import Anchor, Archive, Evidence, Item, Lineage, Shelf
from clew.methods.coevolve.archive.tagged_evidence import Record
from tests.evolve.studios import Numbers, Steps, anchor, searched

record = st.tuples(
    st.integers(0, 5), st.integers(0, 3), st.sampled_from("abc"), st.integers(0, 1), st.sampled_from(["", "x", "y"]),
    st.integers(6, 8),
)  # fmt: skip
records = st.lists(record, max_size=40)


def held(rows):
    """Two lines of descent with six genomes, and evidence of them."""
    lineage = Lineage()
    for parent, genomes in [(-1, (0, 1)), (0, (2, 1)), (1, (2, 3)), (0, (4, 1)), (3, (4, 5))]:
        lineage.add(parent, genomes)
    evidence = Evidence(lineage)
    for genome, task, artefact, outcome, slot, tag in rows:
        evidence.add(Record(genome, task, artefact, outcome, slot, tag if slot else -1, 0))
    return lineage, evidence


def slowly(lineage, evidence):
    """Counts of clades by definition: distinct genomes of the node and all below it."""
    out = []
    for node in range(len(lineage.parents)):
        below = {node}
        for other in range(node + 1, len(lineage.parents)):
            if lineage.parents[other] in below:
                below.add(other)
        inside = {g for n in below for g in lineage.genomes[n]}
        own = [r.outcome for r in evidence.counting() if r.genome in inside]
        out.append((sum(own), len(own) - sum(own)))
    return out


@settings(max_examples=60, deadline=None)
@given(records, st.integers(6, 8))
def test_erasure_takes_exactly_the_stale_dependents(rows, now):
    lineage, evidence = held(rows)
    before = [i for i, r in enumerate(evidence.records) if r.counts]
    gone = set(evidence.erase("x", now))
    assert gone == {i for i in before if evidence.records[i].slot == "x" and evidence.records[i].tag != now}
    assert [i for i, r in enumerate(evidence.records) if r.counts] == [i for i in before if i not in gone]
    assert list(zip(*[side.tolist() for side in lineage.clades()], strict=True)) == slowly(lineage, evidence)


@settings(max_examples=40, deadline=None)
@given(records, st.integers(6, 8), st.integers(6, 8))
def test_erasure_of_two_slots_commutes(rows, x, y):
    found = []
    for order in ((("x", x), ("y", y)), (("y", y), ("x", x))):
        lineage, evidence = held(rows)
        for slot, incumbent in order:
            evidence.erase(slot, incumbent)
        found.append(([r.counts for r in evidence.records], [side.tolist() for side in lineage.clades()]))
    assert found[0] == found[1]


def test_the_same_artefact_counts_once_and_a_statistic_changes_nothing():
    lineage, evidence = held([(2, 0, "a", 1, "x", 6)] * 5)
    assert evidence.repeated == 4
    assert [lineage.own(2), lineage.own(2)] == [(1, 0), (1, 0)]
    assert [lineage.clades()[0].tolist() for _ in range(3)] == [[1, 1, 1, 0, 0]] * 3
    shelf = Shelf()
    assert shelf.put({"a": 1.0}) == shelf.put({"a": 1.0})
    assert len(shelf) == 1


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 1000), st.sampled_from(["bb", "paired", "confirm", "none"]), st.integers(0, 4), st.integers(1, 5))
def test_a_search_keeps_its_promises(seed, gate, pool, batch):
    judged, proposer = [], Steps()

    class Watched(Numbers):
        async def judge(self, slot, genome, artefacts):
            judged.append((archive.judges[slot].epoch, genome, len(artefacts)))
            return await super().judge(slot, genome, artefacts)

    archive = Archive()
    inside = []

    def watch(archive, event):
        if event == "measure":
            inside.append((archive.judges["review"].epoch, judged[-1][1] if judged else None))

    asyncio.run(
        searched(archive, work=Watched(), proposer=proposer, watch=watch, gate=gate, pool=pool, batch=batch, seed=seed)
    )
    judges = archive.judges["review"]
    valid = {r.tag for r in archive.evidence.counting() if r.slot}
    assert valid <= {judges.incumbent}, "what counts was said by the judge of now"
    tags = {}
    for record in archive.evidence.records:
        if record.slot:
            tags.setdefault(record.epoch, set()).add(record.tag)
    assert all(len(who) == 1 for who in tags.values()), "one judge in an epoch"
    assert archive.outcomes == 64
    assert archive.checkpoints == Rules(first=8).checkpoints(64) == 3
    told = json.dumps([[dict(v.workspace), dict(v.feedback), dict(v.counts)] for v in proposer.told])
    assert proposer.told
    assert not any(item.id in told for item in anchor().items)
    again = Archive()
    for event in archive.log.events:
        again.write(json.loads(json.dumps(event)))
    assert again.summary() == archive.summary()
    assert again.log.head == archive.log.head


@pytest.mark.parametrize("budget", [8, 63, 64, 512, 6144])
def test_checkpoints_are_where_the_paper_has_them(budget):
    assert Rules(guard=0).checkpoints(budget) == math.floor(math.log2(budget / 8)) + 1
    assert Rules().checkpoints(budget) <= Rules(guard=0).checkpoints(budget)


class Killed(Exception):
    pass


def files(folder):
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_a_search_killed_anywhere_goes_on_to_the_same_bytes(tmp_path):
    whole, _ = asyncio.run(searched(Archive(tmp_path / "whole"), {"outcomes": 32}, batch=3, pool=2))
    whole.close()
    events = len(whole.log.events)
    log = (tmp_path / "whole" / "evolution.log").read_bytes()
    for after in range(0, len(log), len(log) // 50):  # the log cut after so many bytes, often within a line
        folder = tmp_path / f"cut-{after}"
        folder.mkdir()
        (folder / "evolution.log").write_bytes(log[:after])
        (folder / "artefacts").mkdir()
        for name, data in files(tmp_path / "whole" / "artefacts").items():
            (folder / "artefacts" / name).write_bytes(data)
        archive, _ = asyncio.run(searched(Archive(folder), {"outcomes": 32}, batch=3, pool=2))
        archive.close()
        assert len(archive.log.events) == events
        assert files(folder) == files(tmp_path / "whole")


def test_a_second_process_an_altered_line_and_other_settings_are_refused(tmp_path):
    archive, _ = asyncio.run(searched(Archive(tmp_path), {"outcomes": 16}))
    with pytest.raises(BadInput, match="another process"):
        Archive(tmp_path)
    archive.close()
    again = Archive(tmp_path)
    with pytest.raises(BadInput, match="rules differ"):
        asyncio.run(searched(again, {"outcomes": 16}, seed=1))
    again.close()
    log = tmp_path / "evolution.log"
    log.write_bytes(log.read_bytes().replace(b'"outcomes":16', b'"outcomes":99', 1))
    with pytest.raises(BadRecord, match="line 1 of"):
        Archive(tmp_path)


def test_a_budget_is_passed_by_no_more_than_the_calls_in_flight():
    archive, end = asyncio.run(searched(budget={"outcomes": 500, "tokens": 100}, batch=4))
    assert end["budget"] == "tokens"
    assert 100 <= archive.budget.spent["tokens"] < 100 + 4 * 2
    for cost in (-1.0, math.nan, math.inf):
        with pytest.raises(BadInput, match="a cost of"):
            archive.budget.add({"tokens": cost})


def test_a_proposer_that_is_told_of_the_anchor_stops_the_search():
    class Leaks(Numbers):
        async def feedback(self, workspace, luck):
            return {"task": "see private-item-0003"}

    with pytest.raises(ClewError, match="private anchor"):
        asyncio.run(searched(work=Leaks()))


@pytest.mark.parametrize("items", [[], [("short", True), ("private-item-1", False)], [("private-item-1", True)] * 2])
def test_an_anchor_that_tells_nothing_is_refused(items):
    with pytest.raises(BadInput):
        Anchor([Item(id, 1, accept) for id, accept in items])
    with pytest.raises(BadInput, match="one label"):
        Anchor([Item("private-item-1", 1, True), Item("private-item-2", 1, True)])


def test_the_halves_of_an_anchor_are_disjoint_and_balanced():
    first, second = anchor().halves()
    assert sorted([*first, *second]) == list(range(40))
    assert sum(anchor().items[i].accept for i in first) == sum(anchor().items[i].accept for i in second) == 10


def test_barren_proposers_and_exhausted_tasks_end():
    class Barren:
        async def propose(self, view, luck):
            return Proposal(None, said="no idea") if luck % 2 else Proposal(dict(view.workspace))

    archive, end = asyncio.run(
        searched(work=Numbers(repeats=1), proposer=Barren(), budget={"outcomes": 400}, first=200)
    )
    assert archive.outcomes == 48, "8 tasks of the writer and 40 of the judge, each once"
    assert "nothing is left" in end["said"]
    assert len(archive.lineage.parents) == 1
