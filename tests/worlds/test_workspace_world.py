"""A folder as a world: an agent fixes a mutated function, and forks begin with the very files of their step."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

import clew
from clew.core.errors import BadInput
from clew.core.values import ToolCall
from clew.models.fakes import Scripted, tool_call
from clew.serve.gateway.run_files import files_at, files_of
from clew.serve.noted_files import trees
from clew.worlds.contract import perform
from clew.worlds.workspace import TreeShelf, Workspace, patches, restore
from clew.worlds.workspace.tree_upkeep import keep_only

pytestmark = pytest.mark.skipif(not shutil.which("bwrap"), reason="bubblewrap is not installed")
TEST = "from total import total\nassert total([1, 2, 3]) == 6\n"
WRONG, RIGHT = "def total(xs):\n    return sum(xs) + 1\n", "def total(xs):\n    return sum(xs)\n"
FIX = "sed -i 's/ + 1//' total.py"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "total.py").write_text(WRONG)
    (folder / "check.py").write_text(TEST)
    (folder / ".gitignore").write_text("made\n")
    return folder


def world_of(project: Path, **how) -> Workspace:
    return Workspace(str(project), verify="python3 check.py", shelf=str(project.parent / "files"), **how)


def bash(*lines: str) -> list:
    return [*(tool_call("bash", id=f"call_{i}", command=line) for i, line in enumerate(lines)), "done"]


def run_of(project: Path, store, answers, **how):
    taskset = world_of(project, **how)
    runner = clew.Runner("coder", taskset, Scripted(answers), store)
    return runner, runner.collect([taskset.find("fix total")], 1).runs[0]


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_coder_fixes_a_function_and_the_users_folder_stays(project):
    before, store = bytes_of(project), clew.open_store(":memory:")
    lines = (
        "ls -a",
        "python3 check.py",
        FIX,
        "git init -q . && git add -A && git commit -qm fix",
        "mkdir made; touch made/x",
    )
    _, run = run_of(project, store, bash(*lines))
    assert run.reward == 1.0
    assert bytes_of(project) == before
    texts = [call.text for call in run.calls if call.kind == "act"]
    assert "total.py" in texts[0]
    assert "AssertionError" in texts[1]
    assert texts[1].endswith("(exit status 1)")
    known = files_of(run)
    assert len(known) == len(lines) + 2  # the beginning and the end with each act
    shelf = TreeShelf(project.parent / "files")
    found = {patch.path: patch.text for patch in patches(shelf, known[2].tree, known[3].tree)}
    assert found == {"total.py": "@@ -1,2 +1,2 @@\n def total(xs):\n-    return sum(xs) + 1\n+    return sum(xs)"}
    end = project.parent / "end"
    restore(shelf, files_at(run, None).tree, end)
    assert (end / ".git" / "HEAD").exists()
    assert (end / "made" / "x").exists()
    assert store.verify() == []


def test_a_fork_at_a_step_begins_with_its_files_and_runs_no_command_again(project):
    store = clew.open_store(":memory:")
    runner, run = run_of(project, store, bash("date +%N > stamp", FIX, "python3 check.py"))
    asks = [call.seq for call in run.calls if call.kind == "ask"]
    assert runner.replay(run).calls == len(run.calls)
    line = "echo 'def total(xs): return 6' > total.py"
    model = Scripted(["", "", "done"])
    second = clew.Runner("coder", world_of(project), model, store)
    branch = second.fork(run, asks[1], reply=tool_call("bash", command=line))
    assert model.calls == 1
    other = branch[0]
    assert other.reward == 1.0  # one test does not tell the two apart
    shelf = TreeShelf(project.parent / "files")
    ends = []
    for name, one in (("first", run), ("second", other)):
        restore(shelf, files_at(one, None).tree, project.parent / name)
        ends.append(bytes_of(project.parent / name))
    assert ends[0]["stamp"] == ends[1]["stamp"]  # it was written once, before the fork
    assert ends[0]["total.py"] == RIGHT.encode()
    assert ends[1]["total.py"] == b"def total(xs): return 6\n"


def test_equal_acts_lead_to_equal_states_commits_too(project):
    store = clew.open_store(":memory:")
    lines = ("git init -q . && git add -A && git commit -qm one", FIX, "python3 -c 'import total'; git commit -qam two")
    states = []
    for _ in range(2):
        _, run = run_of(project, store, bash(*lines))
        states.append([call.state for call in run.calls if call.state])
    assert states[0] == states[1]
    assert len(set(states[0])) == 4


def test_file_tools_and_what_they_refuse(project):
    world = world_of(project).open(world_of(project).find("x"))
    ask = lambda name, **given: perform(world, ToolCall("c", name, json.dumps(given)))  # noqa: E731
    assert ask("write", path="new/a.txt", text="one\ntwo\n").text == "written"
    assert ask("read", path="new/a.txt", line=2, count=1).text == "2\ttwo\n(3 lines)"
    assert ask("replace", path="new/a.txt", old="two", new="three").text == "replaced"
    assert "stands 0 times" in ask("replace", path="new/a.txt", old="two", new="x").text
    assert ask("write", path="/etc/passwd", text="x").text.startswith("error: ")
    assert ask("read", path="/root/.ssh/id", line=1, count=1).text.startswith("error: ")
    assert "lacks" in ask("read", path="a").text
    assert "no tool 'open'" in ask("open", path="a").text
    assert perform(world, "cat new/a.txt").text == "one\nthree\n(exit status 0)"
    world.close()


@pytest.mark.whole
def test_bounds_are_named_and_undo_what_passed_them(project):
    taskset = world_of(project, seconds=2.0, disk=8 << 20)
    world = taskset.open(taskset.find("x"))
    state = world.state_key
    assert "limit wall" in perform(world, "sleep 30").text
    said = perform(world, "for i in 1 2 3 4; do head -c 3000000 /dev/zero > big$i; done").text
    assert "files are as they were before" in said or "limit disk" in said
    assert world.state_key in (state, world.state_key)
    assert "exit status 0" in perform(world, "rm -f big*; ls").text
    assert world.state_key == state
    deep = "python3 -c \"import os\nfor i in range(300): os.mkdir('d'); os.chdir('d')\""
    assert "folders deep; the files are as they were before" in perform(world, deep).text
    assert world.state_key == state
    world.close()


@pytest.mark.timeout(1500)
@pytest.mark.skipif("CLEW_MILLION" not in os.environ, reason="did not run: makes a million files (CLEW_MILLION=1)")
def test_a_command_that_makes_a_million_files_is_undone(project, tmp_path):
    outside = bytes_of(project)
    taskset = world_of(project, seconds=600.0)
    world = taskset.open(taskset.find("x"))
    state, free = world.state_key, os.statvfs(tmp_path).f_ffree
    many = "import os; os.mkdir('many')\nfor i in range(1_000_000): open(f'many/{i}', 'x').close()"
    said = perform(world, f'python3 -c "{many}"').text
    assert "holds more than 1,000,000 files; the files are as they were before" in said
    assert world.state_key == state
    assert perform(world, "ls").text == "check.py\ntotal.py\n(exit status 0)"
    world.close()
    assert bytes_of(project) == outside
    assert os.statvfs(tmp_path).f_ffree > free - 10_000


def test_nothing_outside_changes(project, tmp_path):
    outside = tmp_path / "outside.txt"
    outside.write_text("mine")
    taskset = world_of(project)
    world = taskset.open(taskset.find("x"))
    for line in (
        f"ln -s {outside} out; echo theirs > out; cat out",
        f"echo theirs > ../../../../../{outside}",
        f"ln {outside} hard",
        "mknod null c 1 3; mkfifo pipe",
        "curl -m 2 http://example.com; exit 7",
    ):
        perform(world, line)
    assert outside.read_text() == "mine"
    assert perform(world, "ls").text.endswith("(exit status 0)")
    world.close()


def test_edits_of_the_tests_do_not_count_where_the_right_ones_are_laid_over(project, tmp_path):
    over = tmp_path / "over"
    over.mkdir()
    shutil.copy(project / "check.py", over)
    store = clew.open_store(":memory:")
    cheat = bash("echo > check.py", "ln -sf /etc/passwd total2.py")
    assert run_of(project, store, cheat)[1].reward == 1.0
    assert run_of(project, store, cheat, over=str(over))[1].reward == 0.0


def test_the_reference_holds_what_runs_begin_with(project):
    taskset = world_of(project)
    (project / "total.py").write_text("changed since")
    again = clew.core.registry.build("tasksets", taskset.ref)
    assert again.ref == taskset.ref
    assert again.tree == taskset.tree != world_of(project).tree


def test_what_a_run_names_is_all_that_it_needs(project):
    store = clew.open_store(":memory:")
    _, run = run_of(project, store, bash("echo a > a", "echo b > b"))
    shelf = TreeShelf(project.parent / "files")
    assert set(trees(store)) == {one.tree for one in files_of(run)}
    keep_only(shelf, lambda: trees(store), remove=True)
    for number, tree in enumerate(trees(store)):
        restore(shelf, tree, project.parent / f"back{number}")


def test_bad_folders_are_named(project, tmp_path):
    with pytest.raises(BadInput, match="is no folder"):
        Workspace(str(tmp_path / "missing"))
    with pytest.raises(BadInput, match="root or a home folder"):
        Workspace("/")
    with pytest.raises(BadInput, match="lies where agents would see it"):
        world_of(project, over=str(project))
    with pytest.raises(BadInput, match="nothing says what is to be done"):
        world_of(project).sample(1)
    with pytest.raises(BadInput, match="a task of 1 characters"):
        world_of(project).find(" ")


def test_a_shelf_inside_the_folder_is_left_out(project):
    (project / ".clew").mkdir()
    taskset = Workspace(str(project), shelf=str(project / ".clew" / "files"))
    assert ".clew" not in {entry.name for entry in taskset.shelf.listing(taskset.tree)}
    assert os.path.isdir(project / ".clew" / "files")


def test_commands_by_text(project):
    answers = [f"I look.\n```bash\n{FIX}\n```\nand then\n```bash\nrm -rf .\n```", "It adds no more."]
    taskset = world_of(project)
    runner = clew.Runner("coder", taskset, Scripted(answers), clew.open_store(":memory:"), {"by_text": True})
    run = runner.collect([taskset.find("fix total")], 1).runs[0]
    assert run.reward == 1.0
    assert [call.action for call in run.calls if call.kind == "act"] == [FIX]
