"""clew repairs, and the tasks that it makes in the other verbs: run, worlds, checkout, show, store and export."""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path

import pytest

from clew.store import Run, open_store
from tests.coding import ledger

pytestmark = pytest.mark.skipif(not shutil.which("bwrap"), reason="bubblewrap is not installed")
MODEL = """import json
from pathlib import Path
from clew.models.fakes import Scripted, tool_call
patch = json.loads(Path("tasks.jsonl").read_text().splitlines()[0])["patch"]
class Model(Scripted):
    def __init__(self):
        super().__init__([tool_call("bash", command="git apply - <<'EOF'\\n" + patch + "EOF"), "done"])
"""


@pytest.fixture
def seen() -> tuple[str, ...]:
    return tuple(word for place in ledger.SEEN for word in ("--readable", place))


def test_from_a_repository_to_judged_runs(clew, seen, tmp_path):
    ledger.make(tmp_path / "ledger")
    line = ("repairs", "ledger", "-o", "tasks.jsonl", "-n", "2", "--verify", ledger.COMMAND, *seen)
    said = clew(*line).output
    assert "tasks.jsonl: 2 tasks of " in said
    rows = [json.loads(text) for text in Path("tasks.jsonl").read_text().splitlines()]
    assert {row["repo"] for row in rows} == {"ledger"}
    (following,) = (text for text in said.splitlines() if text.startswith("Next: clew run coder --world 'repairs("))
    before = Path("tasks.jsonl").read_text()
    assert "2 tasks" in clew(*line).output  # nothing is left to be done
    assert Path("tasks.jsonl").read_text() == before
    assert "was begun with by" in clew(*line, "--by", "fixes", code=2).output
    Path("model.py").write_text(MODEL)
    world = f"repairs('tasks.jsonl', readable={ledger.SEEN!r})"
    first = rows[0]["instance_id"]
    words = shlex.split(following.removeprefix("Next: clew "))
    words[words.index("--model") + 1] = "model.py:Model"  # which mends the first of the two
    said = clew(*words).output
    assert "success 0.50" in said
    assert "tasks.jsonl: 2 repairs" in said
    with open_store(".clew/store.db") as store:
        runs = [Run(store, name) for name in store.find("")]
        assert len(runs) == 8
        assert {one.task_id for one in runs if one.reward} == {first}
        run = next(one.id for one in runs if one.reward)
    told = clew("show", run, "--files").output
    assert "* ledger/account.py" in told
    clew("checkout", run, "after")
    assert Path("after/ledger/account.py").read_text() == ledger.FIXED
    assert "no fault" in clew("store", "verify").output
    clew("store", "gc", "--yes")
    clew("checkout", run, "again")
    clew("export", "bug.clew", run)
    Path("there").mkdir()
    clew("import", "bug.clew", "--store", "there/s.db")
    clew("checkout", run, "back", "--store", "there/s.db")
    assert Path("back/ledger/account.py").read_text() == ledger.FIXED
    assert first in clew("worlds", world, "-n", "5").output


def test_data_of_repairs_is_found_to_be_that(clew, tmp_path):
    folder = ledger.make(tmp_path / "clones" / "ledger")
    ledger.write(tmp_path / "data.jsonl", ledger.row(folder))
    said = clew("worlds", "--data", "data.jsonl", "-n", "3").output
    assert "data.jsonl: 1 repairs" in said
    assert "own__ledger-7: The mean of no amounts divides by zero." in said
    assert (
        "--reward is for rows of other kinds" in clew("run", "--data", "data.jsonl", "--reward", "exact", code=2).output
    )
    shutil.rmtree(folder)
    assert "no clone of own/ledger" in clew("worlds", "--data", "data.jsonl", code=2).output


def test_bad_lines_are_named(clew, tmp_path):
    (tmp_path / "plain").mkdir()
    assert "not a git repository" in clew("repairs", "plain", code=2).output
    ledger.make(tmp_path / "ledger")
    assert "does not run pytest" in clew("repairs", "ledger", "--verify", "make test", code=2).output
    assert "has no Python source" in clew(
        "repairs", "ledger", "--within", "nothing/", "--verify", ledger.COMMAND,
        *(word for place in ledger.SEEN for word in ("--readable", place)), code=2
    ).output  # fmt: skip
    assert "cannot be read" in clew("run", "--world", "repairs('gone.jsonl')", code=2).output
    assert "missing 1 required" in clew("run", "--world", "repairs()", code=2).output
