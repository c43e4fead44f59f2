"""clew audit judge: a value of the store and a judge of one's own against labels, the report, bad input."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from clew.core.registry import build
from clew.harness import Runner
from clew.models.fakes import Markov
from clew.store import open_store

JUDGES = """
async def steps(task, run, world):
    return {"few": 1 / len(run.steps), "many": float(len(run.steps))}

async def one(task, run, world):
    return {"one": 1 / len(run.steps)}

async def broken(task, run, world):
    raise ValueError("no \\x1b[31mway")

def plain(task, run, world):
    return {}
"""


@pytest.fixture
def labelled(tmp_path):
    """A store in which two people label by what the world's judge says, and one of them errs now and then."""
    path = tmp_path / "made.db"
    model = Markov(corpus="up\nup\ndown\nstop", order=1, tokens=True)
    runner = Runner("player", build("tasksets", "counter(low=1, high=3, steps=8)"), model, path)
    groups = runner.collect(runner.taskset.sample(16), n=4, seed=1)
    for n, run in enumerate(groups.runs):
        right = run.reward > 0.5
        runner.store.label(run.id, by="ann", verdict="good" if right else "bad", stars=5 if right else 2)
        if n % 2:
            runner.store.label(run.id, by="bob", verdict="good" if right != (n % 7 == 0) else "bad")
    runner.store.close()
    return path


@pytest.fixture
def audit(clew, labelled):
    Path("judges.py").write_text(JUDGES)
    return lambda *args, **more: clew("audit", "judge", "--store", labelled, *args, **more)


def test_a_value_of_the_store_is_held_against_two_people(audit, labelled):
    said = audit()
    for part in ("kept apart", "to tune on", "always the same", "shuffled", "alpha", "filed as a report"):
        assert part in said.output, part
    found = json.loads(audit("--json").output)
    assert found["authors"] == ["ann", "bob"]
    assert found["parts"]["kept apart"]["kappa"]["estimate"] > 0.9
    assert abs(found["control"]["estimate"]) < 0.1
    assert 0.3 < found["people"]["estimate"] < 1
    with open_store(labelled) as store:
        report = list(store.reports().values())[-1]
    assert report.claim == "reward agrees with people beyond chance (verdict)"
    assert report.n == found["parts"]["kept apart"]["n"]


def test_the_half_kept_apart_stays_unseen(audit, labelled):
    said = audit("--tune-only").output
    assert "kept apart  " not in said
    assert "was not tested: 0 tasks are kept apart, and 5 are needed" in said
    with open_store(labelled) as store:
        assert not store.reports()
    whole, tune = (json.loads(audit(*more, "--json").output) for more in ((), ("--tune-only",)))
    assert tune["parts"]["all"]["n"] == whole["parts"]["to tune on"]["n"] <= len(whole["tune"])


def test_a_judge_of_ones_own_is_run_and_filed(audit, labelled):
    found = json.loads(audit("--judge", "judges.py:one", "--scale", "stars", "--json").stdout)
    assert found["judge"] == "one"
    assert found["scale"] == "stars"
    with open_store(labelled) as store:
        assert len(store.find("has=one")) == found["parts"]["all"]["n"] == 64
    assert json.loads(audit("--judge", "judges.py:steps", "--component", "few", "--json").stdout)["judge"] == "few"


GRADER = """
from pathlib import Path
from clew.core.errors import ModelError
from clew.models.fakes import Scripted

def said(request):
    with open("asked", "a") as file:
        file.write("x")
    if Path("down").exists():
        raise ModelError("the endpoint is down")
    record = request.path[-1].message.text.partition("Task:")[2]
    if "[assistant] down" in record and Path("vague").exists():
        return "no idea"
    return "so so\\nGrade: " + ("10" if record.count("[assistant] up") > 1 else "0")

class Grader(Scripted):
    def __init__(self):
        super().__init__({"": said})
"""


def asked() -> int:
    return len(Path("asked").read_text()) if Path("asked").exists() else 0


def test_a_model_judges_by_a_rubric_once_and_is_held_against_the_labels(audit, labelled):
    Path("grader.py").write_text(GRADER)
    line = ("--model", "grader.py:Grader", "--rubric", "It counts up twice.")
    told = json.loads(audit(*line, "--dry", "--json").stdout)
    assert (told["runs"], told["judged before"], told["written"]) == (64, 0, 64 * 512)
    assert told["read"] > 64 * 50
    assert asked() == 0
    found = json.loads(audit(*line, "--json").stdout)
    assert asked() == found["run"]["asked"] == 64
    assert found["judge"] == "rubric (grader.py:Grader)"
    assert found["parts"]["kept apart"]["n"] + found["parts"]["to tune on"]["n"] == found["parts"]["all"]["n"]
    again = audit(*line)
    assert "to judge: 0 runs, 64 judged before" in again.output
    assert "judged 0 runs now, 64 before" in again.output
    assert asked() == 64
    audit("--model", "grader.py:Grader", "--rubric", "It stops early.")  # another judge
    assert asked() == 128
    with open_store(labelled) as store:
        rows = [a for run in store.runs() for a in run.annotations("rubric", "run")]
    kept = json.loads(rows[0].data)
    assert kept["model"] == "grader.py:Grader"
    assert "Rubric: It " in kept["asked"]
    assert "[end] " in kept["asked"]
    assert kept["said"].startswith("so so")
    assert len({a.params for a in rows}) == 2


def test_only_the_half_to_tune_on_is_asked_of_and_what_failed_is_asked_again(audit):
    Path("grader.py").write_text(GRADER)
    line = ("--model", "grader.py:Grader", "--rubric", "It counts up twice.")
    Path("down").touch()
    assert "the endpoint is down" in audit(*line, code=2).output
    assert asked() < 64  # it gives up where nothing comes
    Path("down").unlink()
    before = asked()
    tune = json.loads(audit(*line, "--tune-only", "--json").stdout)
    assert asked() - before == tune["run"]["asked"] == len(tune["tune"]) < 64
    audit(*line)
    assert asked() - before == 64


def test_an_answer_without_a_grade_is_undecided_and_counted(audit, labelled):
    Path("grader.py").write_text(GRADER)
    Path("vague").touch()
    found = audit("--model", "grader.py:Grader", "--rubric", "It counts up twice.").output
    with open_store(labelled) as store:
        silent = [a for run in store.runs() for a in run.annotations("rubric", "run") if a.value is None]
        rewards = [run.reward for run in store.runs()]
    assert 0 < len(silent) < 64
    assert f"{len(silent)} of them undecided" in found
    counted = json.loads(audit("--model", "grader.py:Grader", "--rubric", "It counts up twice.", "--json").stdout)
    assert counted["parts"]["all"]["n"] + counted["tied"] + counted["undecided"] == 64
    assert f"{counted['undecided']} on which the judge is undecided" in found
    assert "gave no grade from 0 to 10" in found
    assert None not in rewards


def test_a_changed_judge_of_a_file_judges_again(audit, labelled):
    first = json.loads(audit("--judge", "judges.py:one", "--json").stdout)
    assert first["run"]["asked"] == 64
    assert json.loads(audit("--judge", "judges.py:one", "--json").stdout)["run"]["asked"] == 0
    Path("judges.py").write_text(JUDGES.replace('"one": 1 /', '"one": 2 /'))
    assert json.loads(audit("--judge", "judges.py:one", "--json").stdout)["run"]["asked"] == 64


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["--judge", "judges.py:steps"], "Name one with --component."),
        (["--judge", "judges.py:steps", "--component", "x"], "Known: few, many."),
        (["--judge", "judges.py:broken"], "decided none of 64 runs"),
        (["--judge", "judges.py:plain"], "is no async function"),
        (["--judge", "judges.py:nothing"], "cannot be loaded"),
        (["--judge", "nowhere.py:x"], "nowhere.py"),
        (["--rubric", "It is done."], "Name one with --model."),
        (["--model", "echo", "--judge", "grade"], "two judges"),
        (["--model", "echo", "--rubric", "no.md"], "no.md cannot be read"),
        (["--judge", "grade"], "has a value of 'grade'"),
        (["--labelled-by", "cem"], "no verdict by hand on these runs"),
        (
            ["--judge", "judges.py:steps", "--component", "many", "--scale", "stars", "--labelled-by", "bob"],
            "no stars by hand",
        ),
        (["--verdicts", "good"], "is no set of verdicts"),
        (["--on", "call"], "no verdict by hand"),
    ],
)
def test_bad_input_is_one_sentence_with_a_remedy(audit, args, told):
    done = audit(*args, code=2)
    assert told in done.output
    assert "\x1b" not in done.output
    assert len(done.output.strip().split("\n")) <= 3


def test_a_store_without_labels_says_what_makes_one(clew, store):
    assert "no run matches 'has=label'" in clew("audit", "judge", "--store", store, code=2).output
