"""Shell, records and finder: contract, real error strings, faults, snippets, hostile actions, demonstrations."""

from __future__ import annotations

import asyncio
import json

import pytest

from clew.core.errors import BadInput
from clew.core.registry import build, register
from clew.core.values import StopReason, ToolCall
from clew.harness import Runner
from clew.worlds.contract import as_run, check_other_process, check_taskset, walk
from clew.worlds.finder import Finder
from clew.worlds.records_api import Records
from clew.worlds.shell import Shell
from clew.worlds.shell.shell_rules import FILES, FOLDERS, LETTERS, Tree

MAKERS = {"shell": Shell, "records": Records, "finder": Finder}
for name, maker in MAKERS.items():
    register("tasksets", name, maker)

REFS = [
    "shell",
    "shell(errands=4, opening='cwd', steps=9, tools=True)",
    "records",
    "records(changes=6, faults=0.5, steps=25, tools=True)",
    "finder(rows=40)",
    "finder(hops=2, rows=10, snippets='poor', tables=5, tools=True)",
]
GOLDEN = {
    "shell": ("shell-3843811", "Append the line 'fig date rice' to /lab/note.txt"),
    "records": ("records-3843811", "A web service keeps items"),
    "finder": ("finder-6465577", "In which year was Nolpeth Iverstead born"),
}


def call(tool, **given):
    return ToolCall("c", tool, json.dumps(given))


def judged(taskset, task, actions):
    trail = walk(taskset.open(task), actions)
    return dict(asyncio.run(taskset.judge(task, as_run(trail, actions), None)))


def said(world, action):
    return world.step(action).text


@pytest.mark.parametrize("ref", REFS)
def test_contract(ref):
    taskset = build("tasksets", ref)
    assert taskset.ref == ref

    def acts(task):
        odd = ["hello", call("nothing"), call("search", query="Moss"), call("bash", command="pwd"), call("list_items")]
        return [*odd, *taskset.demonstrate(task, seed=1, noise=0.3)]

    done = set(check_taskset(taskset, acts=acts))
    assert {"check_snapshots", "check_movement", "check_end", "check_judge", "check_secret"} <= done


def test_another_process_reaches_the_same_states():
    taskset = Records(faults=0.5)
    task = taskset.sample(1)[0]
    assert check_other_process(taskset, task, taskset.demonstrate(task, seed=2, noise=0.4))


@pytest.mark.parametrize("name", MAKERS)
def test_tasks_never_change(name):
    (task,) = MAKERS[name]().sample(1)
    assert (task.id, task.prompt.partition(". ")[0].partition("? ")[0]) == GOLDEN[name]


@pytest.mark.parametrize("ref", REFS)
def test_demonstrations_solve_their_tasks_and_do_nothing_alone(ref):
    taskset = build("tasksets", ref)
    for task in taskset.sample(12, seed=5):
        assert judged(taskset, task, taskset.demonstrate(task))["reward"] == 1
        assert judged(taskset, task, [])["reward"] == 0
    tasks = taskset.sample(40)
    rewards = [judged(taskset, task, taskset.demonstrate(task, noise=0.2))["reward"] for task in tasks]
    assert sum(rewards) > 20, "slips are mended"


@pytest.mark.parametrize("name", MAKERS)
def test_a_world_gives_an_account_of_its_state(name):
    taskset = MAKERS[name]()
    task = taskset.sample(1, seed=4)[0]
    world, told = taskset.open(task), {}
    for action in taskset.demonstrate(task, seed=1, noise=0.5):
        world.step(action)
        told.setdefault(world.account(), set()).add(world.state_key)
    assert len(told) > 1, "it changes as the state does"


def test_runs_of_demonstrations_are_recorded_and_forked():
    runner = Runner("clew.harness.agents:demonstrator", Shell(), None, config={"world": "shell", "noise": 0.5})
    (run,) = runner.collect(Shell().sample(1, seed=3), n=1).runs
    assert run.stop is StopReason.DONE
    assert run.reward == 1
    fork = runner.fork(run, run.calls[-2].seq)[0]
    assert fork.reward is not None
    assert runner.store.verify() == []


# -- shell

NODES = {
    "/docs": None,
    "/docs/a.txt": "kiwi lemon\nfig\n",
    "/docs/b.txt": "fig plum\n",
    "/old": None,
    "/old/c.txt": "kiwi\n",
    "/e": None,
    "/top.txt": "Kiwi pie\n",
}
REAL = [  # one session, as bash 5.2, GNU coreutils 9.1 and grep 3.8 answered it in the locale C
    ("pwd", "/"),
    ("ls", "docs\ne\nold\ntop.txt"),
    ("ls docs nope", "ls: cannot access 'nope': No such file or directory\ndocs:\na.txt\nb.txt"),
    ("cat docs/a.txt", "kiwi lemon\nfig"),
    ("cat docs nope", "cat: docs: Is a directory\ncat: nope: No such file or directory"),
    ("cat top.txt/x", "cat: top.txt/x: Not a directory"),
    ("echo fig > docs", "bash: docs: Is a directory"),
    ("echo fig > nope/x", "bash: nope/x: No such file or directory"),
    ("echo fig jam >> e/new.txt", ""),
    ("cat e/new.txt", "fig jam"),
    ("wc docs/a.txt docs/b.txt", " 2  3 15 docs/a.txt\n 1  2  9 docs/b.txt\n 3  5 24 total"),
    ("wc docs", "wc: docs: Is a directory\n      0       0       0 docs"),
    ("wc -l docs/a.txt", "2 docs/a.txt"),
    ("grep fig docs/a.txt docs/b.txt", "docs/a.txt:fig\ndocs/b.txt:fig plum"),
    ("grep -n ^f docs/a.txt", "2:fig"),
    ("grep fig docs", "grep: docs: Is a directory"),
    ("grep fig nope", "grep: nope: No such file or directory"),
    ("grep -ic kiwi top.txt", "1"),
    ("rm docs", "rm: cannot remove 'docs': Is a directory"),
    ("rm nope", "rm: cannot remove 'nope': No such file or directory"),
    ("rm", "rm: missing operand\nTry 'rm --help' for more information."),
    ("rm -r .", "rm: refusing to remove '.' or '..' directory: skipping '.'"),
    ("mkdir docs", "mkdir: cannot create directory 'docs': File exists"),
    ("mkdir nope/x", "mkdir: cannot create directory 'nope/x': No such file or directory"),
    ("mkdir top.txt/x", "mkdir: cannot create directory 'top.txt/x': Not a directory"),
    ("mkdir -p n/m", ""),
    ("ls n", "m"),
    ("cd top.txt", "bash: cd: top.txt: Not a directory"),
    ("cd nope", "bash: cd: nope: No such file or directory"),
    ("cd a b", "bash: cd: too many arguments"),
    ("mv nope docs", "mv: cannot stat 'nope': No such file or directory"),
    ("mv docs docs/x", "mv: cannot move 'docs' to a subdirectory of itself, 'docs/x'"),
    ("mv e/new.txt docs", ""),
    ("ls docs", "a.txt\nb.txt\nnew.txt"),
    ("mv docs top.txt", "mv: cannot overwrite non-directory 'top.txt' with directory 'docs'"),
    ("mv top.txt top.txt", "mv: 'top.txt' and 'top.txt' are the same file"),
    ("mv top.txt nope/x", "mv: cannot move 'top.txt' to 'nope/x': No such file or directory"),
    ("mv x", "mv: missing destination file operand after 'x'\nTry 'mv --help' for more information."),
    ("cp docs e", "cp: -r not specified; omitting directory 'docs'"),
    ("cp -r docs e", ""),
    ("ls e", "docs"),
    ("cp top.txt nope/x", "cp: cannot create regular file 'nope/x': No such file or directory"),
    ("cp", "cp: missing file operand\nTry 'cp --help' for more information."),
    ("touch nope/x", "touch: cannot touch 'nope/x': No such file or directory"),
    ("touch docs/z.txt", ""),
    ("wc docs/z.txt", "0 0 0 docs/z.txt"),
    ("ls -z", "ls: invalid option -- 'z'\nTry 'ls --help' for more information."),
    ("cat --foo", "cat: unrecognized option '--foo'\nTry 'cat --help' for more information."),
    ("zap now", "bash: zap: command not found"),
    ("cd docs", ""),
    ("pwd", "/docs"),
    ("cat a.txt", "kiwi lemon\nfig"),
    ("cat ../old/c.txt", "kiwi"),
    ("rm -f nope", ""),
]


def test_the_shell_says_what_the_real_programs_say():
    tree = Tree(dict(NODES))
    for command, answer in REAL:
        assert (command, tree.run(command)) == (command, answer)


def test_a_full_disk_and_the_folder_one_stands_in():
    tree = Tree({f"/f{i}": "" for i in range(FILES)})
    assert tree.run("touch more") == "touch: cannot touch 'more': No space left on device"
    assert tree.run("cp f1 more") == "cp: cannot create regular file 'more': No space left on device"
    assert tree.run(f"echo {'x' * (LETTERS - 1)} >> f1") == ""
    assert tree.run("echo x >> f1") == "bash: f1: No space left on device"
    for i in range(FOLDERS):
        assert tree.run(f"mkdir d{i}") == ""
    assert tree.run("mkdir more") == "mkdir: cannot create directory 'more': No space left on device"
    tree.run("cd d1")
    assert tree.run("rm -r ../d1") == "rm: cannot remove '../d1': Device or resource busy"
    assert tree.run("pwd") == "/d1"


HOSTILE = [
    *(
        "echo 'open",
        'echo "open',
        "cat 'a",
        "a | b",
        "a && b",
        "echo a; echo b",
        "`id`",
        "$(id)",
        "ls *",
        "cat <x",
        "&",
    ),
    *("\x00", "ls \x00", "\ud800 x", "echo \ud800 > u", "ls " + "x" * 100, "echo " + "x " * 4000, "grep [ a", ">"),
    *("echo a > b > c", "echo > ''", "cat ''", "cd ''", "mkdir ''", "rm ''", "mv '' ''", "cp -r / /e", "mv / e", ".."),
    *("cp -r e e/e", "grep \\ a", "rm -r /", "rm -r ..", "mv . e", "cd -", "pwd -z", "wc", "grep kiwi", "ls -- -a"),
]


def test_hostile_lines_are_answered():
    tree = Tree(dict(NODES))
    for line in HOSTILE:
        answer = tree.run(line)
        assert isinstance(answer, str)
        assert len(answer) < 9000
    assert tree.nodes["/docs/a.txt"] == NODES["/docs/a.txt"]


def test_the_tool_bash_and_text_do_the_same():
    taskset = Shell(tools=True)
    task = taskset.sample(1)[0]
    world = taskset.open(task)
    assert [tool.name for tool in world.tools] == ["bash"]
    assert said(world, call("bash", command="pwd")) == said(world, "pwd") == "/"
    assert "must be string" in said(world, call("bash", command=3))
    assert said(world, "touch /x") == "(no output)"
    assert world.step("exit").done


# -- records


def test_the_service_answers_as_services_do():
    taskset = Records(faults=0.0)
    world = taskset.open(taskset.sample(1)[0])
    first = said(world, "GET /items")
    assert first == said(world, call("list_items", page=1)) == said(world, "GET /items?page=1")
    body = json.loads(first.partition("\n")[2])
    assert first.startswith("HTTP 200 OK\n")
    assert (len(body["items"]), body["page"], body["pages"]) == (5, 1, 2)
    name = body["items"][0]["id"]
    assert f'"id": "{name}"' in said(world, call("update_item", id=name, count=7))
    made = said(world, 'POST /items {"name": "new", "colour": "red", "count": 1}')
    assert made.startswith("HTTP 201 Created\n")
    assert said(world, call("create_item", name="new", colour="red", count=1)).startswith("HTTP 409 Conflict\n")
    assert said(world, f"DELETE /items/{name}").startswith("HTTP 200 OK\n")
    assert said(world, f"GET /items/{name}").startswith("HTTP 404 Not Found\n")
    refusals = {"GET /items?page=0": 400, "GET /items?page=9": 404, "PUT /items": 405, "POST /items {": 400}
    refusals |= {
        "POST /items []": 422,
        "GET /nothing": 404,
        "hello": 400,
        f"PATCH /items/{json.loads(made[17:])['id']} " + '{"size": 1}': 422,
    }
    for asked, status in refusals.items():
        assert said(world, asked).startswith(f"HTTP {status} "), asked
    assert json.loads(said(world, "GET /items").partition("\n")[2])["total"] == body["total"]


def test_a_fault_changes_nothing_and_passes():
    taskset = Records(faults=1.0)
    world = taskset.open(taskset.sample(1)[0])
    before = world.state_key
    new = 'POST /items {"name": "new", "colour": "red", "count": 1}'
    assert said(world, new).startswith("HTTP 503 Service Unavailable\n")
    assert world.state_key == before
    assert said(world, new).startswith("HTTP 201 Created\n")
    assert world.state_key != before


def test_faults_come_about_as_often_as_said():
    taskset = Records(faults=0.3, steps=100)
    tasks, met = taskset.sample(20), 0
    for task in tasks:
        world = taskset.open(task)
        met += sum("503" in said(world, f"GET /items?page={i + 1}") for i in range(50))
    assert 0.3 / 1.3 - 0.05 < met / 1000 < 0.3 / 1.3 + 0.05, "none comes twice in a row"


# -- finder


def test_poor_snippets_hide_what_rich_ones_show():
    rich, poor = Finder(rows=40), Finder(rows=40, snippets="poor")
    for task in rich.sample(10):
        question = rich.question(rich.number(task.id))
        shown = [said(taskset.open(task), f"search {task.prompt.partition('?')[0]}") for taskset in (rich, poor)]
        assert question.answer in shown[0]
        assert question.answer not in shown[1]
        world = poor.open(task)
        address = next(line for line in shown[1].split() if line.startswith("https://"))
        assert question.answer in said(world, call("open", url=address)), "the page tells in any case"


def test_answers_that_name_everything_are_wrong():
    taskset = Finder(rows=40)
    for task in taskset.sample(8):
        right = taskset.question(taskset.number(task.id)).answer
        assert judged(taskset, task, [f"answer It was {right}."])["reward"] == 1
        assert judged(taskset, task, [f"answer Arvale Brenholt 1650 glazier {right}"])["reward"] == 0
        assert judged(taskset, task, ["answer I do not know"]) == {"reward": 0.0, "answered": 1.0, "opens": 0.0}


WRONG = [
    *("shell(errands=0)", "shell(opening='all')", "records(changes=9)", "records(faults=2)", "finder(rows=3)"),
    *("finder(snippets='some')", "finder(hops=3)", "finder(steps=0)"),
]


@pytest.mark.parametrize("ref", WRONG)
def test_bad_settings_are_refused(ref):
    with pytest.raises(BadInput, match=r"(shell|records|finder)\(.*"):
        build("tasksets", ref)
