"""Worlds, models, tools, agents and estimators of files: recorded, found again elsewhere, moved and changed."""

from __future__ import annotations

import json
import shlex

import pytest

from clew.store import open_store
from tests.cli.shell import Shell

TOOLS = '''
import helper

def add(a: int, b: int) -> int:
    """Add two whole numbers."""
    return a + b + helper.ZERO

def note(line: str) -> str:
    """Write a line."""
    with open("notes.txt", "a") as file:
        file.write(line + "\\n")
    return "written"
'''
WORLD = """
import clew
from clew.models.fakes import Scripted, tool_call

class Questions:
    def __init__(self, n=2):
        self.ref, self.n = "questions", n

    def sample(self, n, seed=0, split="train"):
        return [self.find(f"q{i}") for i in range(min(n, self.n))]

    def find(self, task_id):
        return clew.Task(task_id, "What is 2 + 40?")

    def open(self, task):
        return None

    async def judge(self, task, run, world):
        return {"reward": float(any("42" in call.text for call in run.calls if call.kind == "note"))}


class Clerk(Scripted):
    def __init__(self, answer="It is 42."):
        super().__init__([tool_call("add", a=2, b=40), tool_call("note", line="asked"), answer])
"""
LINE = "clew run --world 'world.py:Questions(n=2)' --model \"world.py:Clerk()\" --tools tools.py:add,note"


@pytest.fixture
def shell(tmp_path) -> Shell:
    made = Shell(tmp_path)
    made.write(tools_py=TOOLS, world_py=WORLD, helper_py="ZERO = 0\n")
    return made


def ids(shell: Shell, where: str = ".clew/store.db") -> list[str]:
    store = open_store(shell.folder / where)
    try:
        return store.run_ids()
    finally:
        store.close()


def test_other_processes_replay_fork_and_resume_with_the_tools_of_a_file(shell):
    said = shell(LINE)
    assert "success 1.00" in said
    assert (shell.folder / "notes.txt").read_text() == "asked\n" * 2
    run = ids(shell)[0]
    (shell.folder / "sub").mkdir()
    assert "calls equal" in shell(f"clew replay {run} --store ../.clew/store.db", within="sub")
    assert (shell.folder / "notes.txt").read_text() == "asked\n" * 2, "a replay called a tool"
    forked = shell(f"clew fork {run}@2 --result 'the sum is 42' --store ../.clew/store.db", within="sub")
    assert "(recorded)" in forked
    assert (shell.folder / "sub" / "notes.txt").read_text() == "asked\n", "the fork did not call the tool"
    assert "calls equal" in shell(f"clew replay {ids(shell)[-1]}")


def test_the_record_names_files_by_their_whole_paths_and_digests(shell):
    shell(LINE)
    store = open_store(shell.folder / ".clew" / "store.db")
    row = store.row(store.run_ids()[0])
    store.close()
    settings = json.loads(row.settings)
    assert row.taskset == f"{shell.folder}/world.py:Questions(n=2)"
    assert row.model == f"{shell.folder}/world.py:Clerk"
    assert settings["tools"] == [f"{shell.folder}/tools.py:add", f"{shell.folder}/tools.py:note"]
    assert sorted(settings["sources"]) == [f"{shell.folder}/tools.py", f"{shell.folder}/world.py"]
    assert all(len(digest) == 16 for digest in settings["sources"].values())


def test_a_file_that_changed_is_named_in_a_warning(shell):
    shell(LINE)
    run = ids(shell)[0]
    assert "changed" not in shell(f"clew replay {run}")
    shell.write(tools_py=TOOLS + "\n# another word\n")
    said = shell(f"clew replay {run}")
    assert f"the source of {shell.folder}/tools.py changed since run {run} was made" in said
    assert "calls equal" in said
    assert "world.py changed" not in said


def test_a_file_that_moved_is_asked_for_and_found_where_the_user_says(shell):
    shell(LINE)
    run, old = ids(shell)[0], shell.folder / "tools.py"
    new = shell.folder / "kept"
    new.mkdir()
    old.rename(new / "tools.py")
    said = shell(f"clew replay {run}", code=2)
    assert f"no file {old}" in said
    assert f"`clew --moved {old}=NEW ...`" in said
    assert "calls equal" in shell(f"clew --moved {old}=kept/tools.py replay {run}")
    (shell.folder / "clew.toml").write_text(f'[moved]\n"{old}" = "kept/tools.py"\n')
    assert "only you may allow" in shell(f"clew replay {run}", code=2), "it says which code runs"
    shell("clew doctor --trust")
    assert "calls equal" in shell(f"clew replay {run}")
    assert "(recorded)" in shell(f"clew fork {run}@2 --result 'forty-two'")
    assert "there is nothing at" in shell(f"clew --moved {old}=nowhere.py replay {run}", code=2)
    assert "Write --moved OLD=NEW" in shell("clew --moved tools.py log", code=2)


def test_a_folder_that_moved_is_told_once(shell):
    shell(LINE)
    run, new = ids(shell)[0], shell.folder.with_name("elsewhere")
    store = shell.folder / ".clew" / "store.db"
    new.mkdir()
    for name in ("tools.py", "world.py", "helper.py"):
        (shell.folder / name).rename(new / name)
    assert "world.py" in shell(f"clew fork {run}@2 --result x", code=2)
    assert "(recorded)" in shell(f"clew --moved {shell.folder}={new} fork {run}@2 --result x")
    assert store.exists()


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("--tools nowhere.py:add", "no file nowhere.py"),
        ("--tools tools.py:ad", "It defines add"),
        ("--tools broken.py", "ZeroDivisionError: division by zero"),
        ("--tools untyped.py:f", "parameter 'x' of f has no plain annotation"),
        ("--tools unknown.py:f", "the annotations of f cannot be read: name 'Nothing' is not defined"),
        ("--tools helper.py", "defines no tool"),
        ("--tools helper.py:ZERO", "is no tool but a int"),
        ("--tools 'tools.py:add(1)'", "is not a reference"),
        ("--tools 'tools.py:add(c=1)'", "cannot be made: TypeError"),
        ("--tools no_such_module:f", "No module named 'no_such_module'"),
        ("--tools tools.py:add --tools tools.py:add", "two tools are called 'add'"),
        ("--tools mcp:", "starts no MCP server"),
        ("--model world.py:Questions", "is no model"),
        ("--model broken.py:M", "ZeroDivisionError: division by zero"),
        ("--model nowhere.py:M", "no file nowhere.py"),
        ("--model 'world.py:Clerk(reply=1)'", "Clerk takes answer"),
        ("--world broken.py:W", "ZeroDivisionError: division by zero"),
        ("--world nowhere.py:W", "no file nowhere.py"),
        ("--world world.py:Clerk", "is no taskset"),
    ],
)
def test_a_reference_that_leads_nowhere_is_said_in_a_sentence(shell, clew, option, said):
    shell.write(broken_py="1 / 0\n", untyped_py="def f(x): return x\n", unknown_py="def f(x: 'Nothing'): return x\n")
    line = ["run", "tool_user", "--world", "world.py:Questions", "--model", "echo", *shlex.split(option)]
    told = clew(*line, code=2).output
    assert said in told
    assert "Traceback" not in told
    assert len(told.splitlines()) <= 3


def test_an_estimator_of_a_file_values_stored_runs_with_arguments(shell):
    shell.write(mine_py=ESTIMATOR)
    line = "clew run tool_user --world world.py:Questions --model mine.py:Coin -n 6"
    said = shell(f"{line} && clew credit 'mine.py:mine(k=2.0)'")
    assert "mine.py:mine(k=2.0)" in said
    run = next(run for run in ids(shell) if run in said)
    assert "mine" in shell(f"clew show {run}")
    assert "grpo / mine.py:mine(k=2.0)" in shell("clew credit 'grpo+mine.py:mine(k=2.0)' --dry")
    assert "mine takes" in shell("clew credit 'mine.py:mine(q=2.0)'", code=2)


def test_an_estimator_whose_file_changed_is_told_of(shell):
    """Values by a changed file do not replace others in silence, and a training that goes on with one says so."""
    shell.write(mine_py=ESTIMATOR)
    shell("clew run tool_user --world world.py:Questions --model mine.py:Coin -n 6")
    line = "clew credit 'mine.py:mine(k=2.0)'"
    assert "says something else" not in shell(f"{line} && {line}")
    kept = (shell.folder / "mine.py").read_text()
    shell.write(mine_py=kept + "# another\n")
    assert "whose values would be replaced" in shell(f"{line} --dry")
    told = shell(line)
    assert "mine.py says something else than when 'mine' valued " in told
    assert " of these groups, whose values were replaced: " in told
    assert "put the file back" in told
    assert "says something else" not in shell(line)
    assert "says something else" not in shell("clew credit 'mine.py:mine(k=3.0)'")


@pytest.mark.whole
def test_a_training_that_goes_on_with_a_changed_estimator_says_so(shell):
    shell.write(mine_py=ESTIMATOR)
    shape = "dict(d=16, layers=1, heads=2, kv_heads=1, context=256, seed=1)"
    words = "from clew.models.local import small; from clew.worlds.household import Household; "
    shell(f"python -c \"{words}small(Household(rooms=2).vocabulary(), **{shape}).save('tiny')\"")
    line = "clew train --name t --world 'household(rooms=2,steps=2)' --model tiny --credit 'mine.py:mine(k=2.0)' "
    line += "--tasks 1 -n 2 --eval-every 0 --iterations "
    settings = shell.folder / ".clew" / "trainings" / "t" / "settings.json"
    shell(line + "1")
    (known,) = json.loads(settings.read_text())["sources"].items()
    assert known[0] == str(shell.folder / "mine.py")
    assert len(known[1]) == 1
    shell.write(mine_py=(shell.folder / "mine.py").read_text() + "# another\n")
    told = shell(line + "2")
    assert "mine.py changed since training 't' was at work" in told
    assert "give the training another name" in told
    assert len(json.loads(settings.read_text())["sources"][known[0]]) == 2
    assert "changed since" not in shell(line + "3")
    assert "settings: tasks was 1 and is 2" in shell(line.replace("--tasks 1", "--tasks 2") + "3", code=2)


ESTIMATOR = '''
from clew.models.fakes import Scripted
from clew.credit.family import Term
from clew.credit.filing import assign


def mine(groups, k=1.0, store=True):
    """Each step is worth k times how far the outcome is from the group's mean."""
    return assign(groups, "mine", [Term("R", "outcome", "group", "mean", weight=k)], {"k": k}, store=store)


class Coin(Scripted):
    def __init__(self):
        super().__init__({"": lambda request: "It is 42." if request.seed % 2 else "I do not know."})
'''
