"""Programs as genomes, hostile ones among them: contained, named, counted, and never right by what they claim."""

from __future__ import annotations

import asyncio
import shutil

import numpy as np
import pytest

from clew.core.errors import BadInput
from clew.methods.coevolve import Job, Rules, SymbolicChanges, evolve
from clew.methods.coevolve.archive import Archive
from clew.methods.coevolve.program_work import LONGEST, Case, ProgramWork
from clew.sandbox.sandbox import Limits, Sandbox
from tests.evolve.studios import searched

pytest.importorskip("scipy", reason="did not run: searches need scipy")
needs_bubblewrap = pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")

RIGHT = "import json\nprint(json.load(open('input.json')) * 2)"
HOSTILE = {
    "wall": "while True: pass",
    "processes": "import os, time\nfor _ in range(500):\n    if not os.fork():\n        time.sleep(9)",
    "memory": "x = bytearray(1 << 30)\nfor i in range(0, len(x), 4096): x[i] = 1",
    "output": "while True: print('x' * 4096)",
    "exit": "print(open('/private/anchor.jsonl').read())",
    "wrong": "print('{\"score\": 1.0}')",
    "no answer": "print('PASSED\\n' + '[' * 100000)",
    "length": "#" * (LONGEST + 1),
}


def box():
    return Sandbox(Limits(wall=1, cpu=1, memory=128 << 20, processes=16))


def performed(sources, work):
    jobs = [Job("program", source, task, 0, 1) for task, source in enumerate(sources)]
    return asyncio.run(work.perform(jobs))


@needs_bubblewrap
def test_hostile_programs_are_contained_named_and_counted():
    work = ProgramWork([Case(21, 42)] * (len(HOSTILE) + 1), box())
    made = performed([*HOSTILE.values(), RIGHT], work)
    assert [one.outcome for one in made] == [0] * len(HOSTILE) + [1]
    counted = {name: n for name, n in work.kinds.items() if n}
    assert counted.pop("right") == 1
    assert sum(counted.values()) == len(HOSTILE)
    for kind in ("wall", "wrong", "no answer", "length", "output"):
        assert counted[kind] == 1, counted
    assert counted["exit"] >= 1  # what asks for too much memory or too many processes may end in an error of its own
    told = {name for one in made for name in one.cost}
    assert told == {f"programs that ended {kind}" for kind in work.kinds}


@needs_bubblewrap
def test_a_search_over_programs_counts_how_they_ended_in_its_archive():
    bank = [RIGHT, HOSTILE["wrong"], HOSTILE["exit"]]

    def another(genome, rng):
        return bank[int(rng.integers(len(bank)))]

    archive = Archive()
    work = ProgramWork([Case(i, 2 * i) for i in range(6)], box())
    proposer = SymbolicChanges({"program": [another]})
    end = asyncio.run(evolve(archive, work, {"program": "print(0)"}, proposer, {}, Rules(), {"outcomes": 18}))
    assert archive.workspace(end["specialists"]["program"])["program"] == RIGHT
    kinds = {name: n for name, n in archive.budget.spent.items() if name.startswith("programs that ended")}
    assert sum(kinds.values()) == archive.outcomes == 18
    assert kinds["programs that ended right"] > 0


def test_a_work_without_cases_is_refused():
    with pytest.raises(BadInput, match="no case"):
        ProgramWork([])


@needs_bubblewrap
def test_a_judge_of_programs_is_refused():
    with pytest.raises(BadInput, match="no judge"):
        asyncio.run(ProgramWork([Case(1, 1)], box()).judge("review", "x", []))


def test_a_judge_that_always_accepts_is_replaced_by_the_anchor():
    class Steps:
        """Judges that say yes to all, and now and then one that looks."""

        async def propose(self, view, luck):
            from clew.methods.coevolve import Proposal

            rng = np.random.default_rng(luck)
            judge = 0.0 if rng.random() < 0.3 else -100.0 - int(rng.integers(1000))
            return Proposal({**view.workspace, "judge": judge, "writer": view.workspace["writer"] + rng.normal()})

    from tests.evolve.studios import SEED

    before = dict(SEED)
    try:
        SEED["judge"] = -100.0
        archive, _ = asyncio.run(searched(proposer=Steps(), budget={"outcomes": 256}))
    finally:
        SEED.update(before)
    judges = archive.judges["review"]
    assert archive.genomes[judges.incumbent][1] == 0.0
    assert judges.epoch == 1
    assert archive.evidence.erased > 0
