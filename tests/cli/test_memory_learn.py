"""clew memory learn: its cost is told first, it goes on where it stopped, its lines work, its errors are sentences."""

from __future__ import annotations

import json
import shlex

import pytest

from clew.harness.memory import Memory
from clew.store import open_store
from tests.audit.reflected import played
from tests.cli.shell import printed

pytest.importorskip("bm25s", reason="did not run: the extra [memory] is not installed")

REPLY = {
    "lessons": [
        {"kind": "fact", "text": "The endpoint of bank that fetches is `search`.", "scope": ["bank"], "steps": [2, 4]},
        {"kind": "plan", "text": "Call `export_all`, then fetch.", "scope": [], "steps": [4]},
        {"kind": "fact", "text": "The weather \x1b[31m is mild\u202e.", "scope": [], "steps": [4]},
    ]
}
MINE = """
from clew.methods.memory.lessons import Lesson
def reflect(run):
    return [Lesson("fact", {"text": "A fetch before the login fails with error 401."}, ("bank",), (run.place(2),))]
def broken(run):
    raise KeyError("mine")
class Model:
    ref, version, renderer, says = "mine", 0, None, "no JSON"
    async def complete(self, request):
        from clew.core.values import Completion, Message
        return Completion(Message("assistant", self.says))
class Reflects(Model):
    says = REPLY
class Screens(Model):
    says = '{"general": false, "grounded": true, "scoped": true}'
x = 7
"""


@pytest.fixture
def say(clew, tmp_path):
    path = tmp_path / "runs.db"
    (tmp_path / "mine.py").write_text(f"REPLY = {json.dumps(REPLY)!r}\n{MINE}")
    with open_store(path) as store:
        for n in range(3):
            played(store, created=1e9 + n)
        played(store, reward=None)
    return lambda *args, **more: clew("memory", "learn", "shop", *args, "--store", path, **more)


def test_a_model_reflects_and_the_same_line_goes_on(clew, say, tmp_path):
    line = ("--reflector", "mine.py:Reflects", "--limit", "2")
    dry = say(*line, "--dry").output
    assert "to reflect on: 2 runs, 1 not ended or not judged; about" in dry
    assert "at a price that is not known" in dry
    first = say(*line).output
    assert "reflected on 2 runs; lessons: 1 added, 1 merged, 4 dropped" in first
    assert "which the run never did" in first
    assert "cost in tokens: reflection" in first
    assert "break-even: not known, no saving was measured" in first
    assert "\x1b" not in first
    assert "\u202e" not in first
    shown = [clew(*shlex.split(typed)[1:]) for typed in printed(first)]
    assert all(done.exit_code == 0 for done in shown)
    assert "seen again at" in shown[-1].output
    second = json.loads(say(*line, "--json").stdout)
    assert second["reflected"] == 1
    assert [it["what"] for it in second["lessons"]] == ["merge", "drop", "drop"]
    assert second["notes"] == []
    assert second["spent"]["now"]["reflection"]["calls"] == 1
    assert second["spent"]["whole"]["reflection"]["calls"] == 3
    third = say(*line).output
    assert "to reflect on: 0 runs, 3 reflected before, 1 not ended or not judged" in third
    with open_store(tmp_path / "runs.db") as store:
        assert len(Memory(store, "shop").items()) == 1
    told = json.loads(say(*line, "--dry", "--json").stdout)
    assert (told["runs"], told["reflected before"], told["read"]) == (0, 3, 0)


def test_a_reflector_of_a_file(say):
    done = json.loads(say("--reflector", "mine.py:reflect", "--screen", "strict", "--json").stdout)
    assert [it["what"] for it in done["lessons"]] == ["add", "merge", "merge"]
    assert done["spent"]["whole"]["reflection"]["calls"] == 0
    again = json.loads(say("--reflector", "mine.py:reflect", "--again", "--limit", "1", "--json").stdout)
    assert again["reflected"] == 1
    assert again["lessons"][0]["what"] == "merge"


def test_a_model_as_a_screen(say):
    out = say("--reflector", "mine.py:reflect", "--screen", "mine.py:Screens", "--limit", "1").output
    assert "mine.py:Screens is asked once or more for each lesson" in out
    assert "holds for this task alone" in out


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("--reflector nowhere.py:f", "nowhere.py:f cannot be loaded"),
        ("--reflector mine.py:x", "mine.py:x is no function"),
        ("--reflector mine.py:broken", "no run was reflected on: run"),
        ("--reflector mine.py:reflect --screen mine.py:x", "mine.py:x is no function"),
        ("--reflector mine.py:reflect nobody", "no run is called 'nobody'"),
        ("--reflector no-such-model", "no-such-model"),
        ("", "--reflector"),
    ],
)
def test_bad_input_is_told_in_a_sentence(say, line, says):
    done = say(*shlex.split(line), code=None)
    assert done.exit_code != 0
    assert says in done.output
    assert "Traceback" not in done.output


def test_a_model_of_a_file_that_answers_no_json_is_a_sentence_for_each_run(say):
    done = say("--reflector", "mine.py:Model")
    assert done.output.count("could not be used after 3 tries: it is no JSON") == 3
    assert "reflected on 3 runs; lessons: none" in done.output


def test_a_world_that_does_not_follow_the_record_is_a_note_and_the_run_is_reflected_on(say):
    most = [int(word.replace(",", "")) for q in ("0", "2") for word in costs(say, q)]
    assert most[0] < most[1], "queries are in the cost that is told first"
    done = say("--reflector", "mine.py:Reflects", "--limit", "1", "--queries", "2")
    assert "the world of the run was not looked into: " in done.output
    assert "reflected on 1 run; lessons: 1 added" in done.output
    assert say("--reflector", "mine.py:Reflects", "--queries", "-1", code=2).exit_code == 2


def costs(say, queries: str) -> list[str]:
    told = say("--reflector", "mine.py:Reflects", "--dry", "--queries", queries).output
    return told.partition("second tries at most ")[2].split(";")[:1]
