"""clew diff of two queries: paired by task, what flipped, prompts by word, and how a query is told from a run."""

from __future__ import annotations

import json
import re

import pytest

from clew.exchange.dataset.tasks import Dataset
from clew.harness import Runner
from clew.models.fakes import Scripted
from clew.store import open_store
from clew.view.pages.compare import compare

ROWS = [{"id": f"q{i}", "question": f"What is {i} + 1?", "answer": str(i + 1)} for i in range(12)]


def knows(*wrong):
    def said(request):
        number = int(re.search(r"is (\d+) \+", request.path[-1].message.text)[1])
        return "none" if number in wrong else str(number + 1)

    return said


@pytest.fixture
def both(clew, tmp_path):
    """Twelve questions under two prompts: the second answers 8 more of them and one less."""
    sides = (("Be brief and kind.", knows(*range(9)), 0.5), ("Be brief and exact.", knows(8, 11), 0.9))
    for name, (system, said, heat) in zip(("old", "new"), sides, strict=True):
        model = Scripted({"": said})
        model.ref = f"model-{name}"
        taskset = Dataset(ROWS, "exact", id="id", system=system, held_out=0)
        runner = Runner("answerer", taskset, model, tmp_path / "s.db", sampling={"temperature": heat})
        runner.collect(taskset.sample(12), n=2, name=name)
        runner.store.close()
    return lambda *words, **more: clew("diff", *words, "--store", tmp_path / "s.db", **more)


def test_two_queries_are_compared_task_by_task(both, tmp_path, clew):
    told = both("model=model-old", "model=model-new").output
    assert "< model=model-old: 24 runs of 12 tasks, 24 judged, 0 crashed" in told
    assert "12 tasks on both sides" in told
    row = next(line for line in told.splitlines() if line.startswith("success"))
    assert row.split()[1:5] == ["12", "0.25", "0.8333", "+0.583"]
    low, high = map(float, re.search(r"\[(.*), (.*)\]", row).groups())
    assert 0 < low < 0.583 < high < 1
    assert "8 tasks succeed on > alone" in told
    assert "1 tasks succeed on < alone" in told
    assert "Be brief and [-kind.-]{+exact.+}" in told
    assert re.search(r"temperature +0.5 +0.9", told)
    (line,) = re.findall(r"^  (clew diff .*)$", told, re.MULTILINE)
    assert "equal up to call" in clew(*line.split()[1:]).output


def test_json_is_what_the_page_shows(both, tmp_path):
    found = json.loads(both("name=old/*", "name=new/*", "--json").stdout)
    with open_store(tmp_path / "s.db") as store:
        page = compare(store, "name=old/*", "name=new/*")
    assert found == {"left": "name=old/*", "right": "name=new/*", **json.loads(json.dumps(page))}


def test_equal_sides_have_no_difference(both):
    told = both("model=model-old", "model=model-old").output
    assert "note: 24 runs are on both sides" in told
    assert "alone" not in told
    assert "[-" not in told
    row = next(line for line in told.splitlines() if line.startswith("success"))
    assert "+0 " in row
    assert "the same difference on each" in row


def test_runs_and_queries_are_told_apart_by_their_form(both, tmp_path):
    with open_store(tmp_path / "s.db") as store:
        run, other = (row.run for row in store.page("", 2).rows)
    assert "equal up to call" in both(run[:8], other).output
    mixed = both(run, "model=model-new", code=2).output
    assert f"'model=model-new' is a query, and '{run}' names a run" in mixed
    assert f"is id={run}." in mixed
    assert "12 tasks" not in mixed
    assert "1 runs of 1 tasks" in both(f"id={run}", "model=model-new").output  # the remedy
    assert "no run matches 'model=none'" in both("model=none", "model=model-new", code=2).output
