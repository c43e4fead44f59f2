"""Tasksets of repairs: what a task begins with and hides, and verdicts on patches that repair, do nothing or tamper."""

from __future__ import annotations

import asyncio
import functools
import json
import marshal
import os
import shutil
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

import clew
from clew.coding.repairs import Repairs, are_repairs, rows_in
from clew.coding.repairs.begin_trees import NANOSECONDS, clone_of, grown, leaves
from clew.core.errors import BadInput, Undecided, UnknownName
from clew.core.registry import build
from clew.models.fakes import Scripted, tool_call
from clew.serve.gateway.run_files import files_at, files_of
from clew.serve.noted_files import trees
from clew.worlds.contract import perform
from clew.worlds.workspace import FileTasks, Scan, TreeShelf, restore, verified
from clew.worlds.workspace.tree_shelf import CONTENT, FILE, LINK, Entry
from clew.worlds.workspace.tree_upkeep import keep_only
from tests.coding import ledger

pytestmark = pytest.mark.skipif(not shutil.which("bwrap"), reason="bubblewrap is not installed")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the clone, its row, and a shelf."""
    place = tmp_path_factory.mktemp("repairs")
    folder = ledger.make(place / "clones" / "own__ledger")
    ledger.write(place / "rows.jsonl", ledger.row(folder))
    return place


def taskset(home: Path, file: str = "rows.jsonl", **how) -> Repairs:
    given = {"clones": str(home / "clones"), "command": ledger.COMMAND, "readable": ledger.SEEN} | how
    return Repairs(str(home / file), **given, shelf=str(home / "files"))


@pytest.fixture(scope="module")
def world(home) -> Repairs:
    return taskset(home)


def changed(world: Repairs, tree: str, change: Callable[[Path], object], place: Path) -> str:
    """The snapshot that comes of a change of a snapshot's files."""
    restore(world.shelf, tree, place)
    change(place)
    return Scan(place, world.shelf).snapshot().tree


def reward(world: Repairs, tree: str, name: str = "own__ledger-7") -> float | None:
    return asyncio.run(world.judged(world.find(name), tree))["reward"]


def everything(folder: Path) -> bytes:
    """All that a folder holds, git's objects unpacked too."""
    found = [path.read_bytes() for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
    for data in [*found]:
        for at in range(len(data) - 1):
            if data[at] == 0x78 and data[at + 1] in (0x01, 0x5E, 0x9C, 0xDA):  # where a compressed object may begin
                try:
                    found.append(zlib.decompressobj().decompress(data[at:]))
                except zlib.error:
                    continue
    return b"\n".join(found)


# ---- what a task begins with -----------------------------------------------------------------------------------------


def test_a_task_begins_in_the_repository_at_its_commit_and_tells_nothing_more(home, world, tmp_path):
    assert isinstance(world, FileTasks)
    (task,) = world.sample(5)
    assert (task.id, task.prompt) == ("own__ledger-7", "The mean of no amounts divides by zero.")
    assert (task.data, task.secret) == ({}, None)
    box = tmp_path / "box"
    restore(world.shelf, world.begins(task), box)
    assert (box / "ledger" / "account.py").read_text() == ledger.ACCOUNT
    assert (box / "tests" / "test_account.py").read_text() == ledger.TESTS
    assert ledger.git(box, "status", "--short") == ""
    assert ledger.git(box, "log", "--format=%s %ad", "--date=iso-strict") == "base 2026-01-01T00:00:00+00:00\n"
    assert ledger.git(box, "ls-files").split() == [
        ".gitignore", "kept.log", "ledger/__init__.py", "ledger/account.py", "pyproject.toml", "tests/test_account.py",
    ]  # fmt: skip
    held = everything(box)
    assert b"found += amount" in held
    commits = ledger.commits(home / "clones" / "own__ledger")
    told = (ledger.HIDDEN, "if not amounts", "secret of a later", "hints", "FAIL_TO_PASS", *commits)
    assert [text for text in told if text.encode() in held] == []
    assert not list(box.rglob("logs"))


def test_modes_and_links_come_and_equal_files_are_one_snapshot(home, tmp_path):
    folder = home / "clones" / "own__ledger"
    last = ledger.commits(folder)[2]
    ledger.write(home / "last.jsonl", ledger.row(folder, base_commit=last, patch="", test_patch=""))
    world = taskset(home, "last.jsonl")
    key = world.begins(world.find("own__ledger-7"))
    restore(world.shelf, key, tmp_path / "box")
    assert os.readlink(tmp_path / "box" / "latest") == "ledger/account.py"
    assert (tmp_path / "box" / "run.sh").stat().st_mode & 0o777 == 0o755
    for name in ("begun",):  # nothing is remembered, and the same is made again
        shutil.rmtree(world.shelf.folder / name)
    assert taskset(home, "last.jsonl").begins(world.find("own__ledger-7")) == key


def test_a_hostile_clone_runs_nothing_and_leads_nowhere(tmp_path):
    folder, ran = ledger.make(tmp_path / "clones" / "own__ledger"), tmp_path / "ran"
    hook = folder / ".git" / "hooks" / "post-checkout"
    hook.write_text(f"#!/bin/sh\ntouch {ran}\n")
    hook.chmod(0o755)
    for key in ("core.fsmonitor", "filter.x.smudge", "filter.x.clean", "core.pager", "diff.external"):
        ledger.git(folder, "config", key, f"touch {ran}; true")
    (folder / ".git" / "info" / "attributes").write_text("* filter=x\n")
    outside = tmp_path / "outside"
    outside.mkdir()
    (folder / "out").symlink_to(outside)
    ledger.git(folder, "add", "-A", "out")
    ledger.git(folder, "-c", "core.fsmonitor=", "commit", "-qm", "A link out")
    base = ledger.commits(folder)[-1]
    patch = "--- a/out/x\n+++ b/out/x\n@@ -0,0 +1 @@\n+theirs\n"
    ledger.write(tmp_path / "rows.jsonl", ledger.row(folder, base_commit=base, patch=patch, test_patch=""))
    ran.unlink(missing_ok=True)  # git, called by this test, obeyed the configuration
    world = taskset(tmp_path)
    task = world.find("own__ledger-7")
    assert world.begins(task)
    with pytest.raises(BadInput, match="does not apply"):
        world._case(task.id).solved()
    assert not ran.exists()
    assert list(outside.iterdir()) == []


def test_an_agent_repairs_it_and_its_files_come_back(home, world, tmp_path):
    store, task = clew.open_store(":memory:"), world.find("own__ledger-7")
    fix = "sed -i 's,/ len(amounts),/ (len(amounts) or 1),' ledger/account.py"
    model = Scripted([tool_call("bash", id="a", command=fix), tool_call("bash", id="b", command="git diff"), "done"])
    run = clew.Runner("coder", world, model, store).collect([task], 1).runs[0]
    assert run.reward == 1.0
    values = {a.method: a.value for a in store.annotations([run.id], target="run")}
    assert (values["fail_to_pass"], values["pass_to_pass"]) == (1.0, 1.0)
    assert "len(amounts) or 1" in run.calls[4].text
    assert len(files_of(run)) == 4
    assert clew.Runner("coder", world, None, store).replay(run).calls == len(run.calls)
    lazy = clew.Runner("coder", world, Scripted(["", "done"]), store)
    fork = lazy.fork(run, [c.seq for c in run.calls if c.kind == "ask"][1], reply="I give up.")[0]
    assert fork.reward == 1.0  # it goes on with the repaired files
    assert files_at(fork, None).tree == files_of(run)[1].tree
    again = build("tasksets", world.ref)
    assert again.ref == world.ref
    assert asyncio.run(again.judge(task, run, None))["reward"] == 1.0
    keep_only(world.shelf, lambda: trees(store), remove=True)
    for number, tree in enumerate(trees(store)):
        restore(world.shelf, tree, tmp_path / f"back{number}")


# ---- verdicts --------------------------------------------------------------------------------------------------------


def test_the_reference_passes_nothing_fails_and_a_part_is_told(world, tmp_path):
    case = world._case("own__ledger-7")
    task = world.find("own__ledger-7")
    assert asyncio.run(world.judged(task, case.solved())) == {"reward": 1.0, "fail_to_pass": 1.0, "pass_to_pass": 1.0}
    assert asyncio.run(world.judged(task, case.begin)) == {"reward": 0.0, "fail_to_pass": 0.0, "pass_to_pass": 1.0}
    wrong = changed(world, case.solved(), lambda box: _append(box, "def share(a, b): return 0"), tmp_path / "box")
    found = asyncio.run(world.judged(task, wrong))
    assert found == {"reward": 0.0, "fail_to_pass": 1.0, "pass_to_pass": pytest.approx(2 / 3)}


def _append(box: Path, text: str) -> None:
    with (box / "ledger" / "account.py").open("a") as file:
        file.write(f"\n{text}\n")


FORGER = """
import pytest
@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    told = yield
    report = told.get_result()
    report.outcome, report.longrepr = "passed", None
"""
IN_MEMORY = """
import _pytest.reports as _r
_made = _r.TestReport.from_item_and_call.__func__
def _pass(cls, item, call):
    found = _made(cls, item, call)
    found.outcome, found.longrepr = "passed", None
    return found
_r.TestReport.from_item_and_call = classmethod(_pass)
"""
PASSING = f"def test_total(): pass\ndef test_mean(): pass\ndef test_share(): pass\ndef {ledger.HIDDEN}(): pass\n"


def _plugin(box: Path) -> None:
    (box / "helper.py").write_text(FORGER)
    told = box / "helper-1.0.dist-info"
    told.mkdir()
    (told / "METADATA").write_text("Metadata-Version: 2.1\nName: helper\nVersion: 1.0\n")
    (told / "entry_points.txt").write_text("[pytest11]\nhelper = helper\n")


@functools.cache
def _pytests_own() -> tuple[str, bytes]:
    """Name and head of what pytest, as it is installed, keeps of the test module that will judge."""
    with tempfile.TemporaryDirectory() as folder:
        module = Path(folder, "test_account.py")
        module.write_text(ledger.TESTS + ledger.MORE)
        os.utime(module, ns=(NANOSECONDS, NANOSECONDS))  # the time that it has in a task's folder
        env = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONDONTWRITEBYTECODE": ""}
        line = [sys.executable, "-m", "pytest", "--collect-only", "-c", os.devnull, "--rootdir", folder, str(module)]
        subprocess.run(line, env=env, cwd=folder, capture_output=True, check=False)  # it cannot be collected there
        (kept,) = Path(folder, "__pycache__").iterdir()
        return kept.name, kept.read_bytes()[:16]


def _compiled(box: Path) -> None:
    """What pytest keeps of a rewritten test module, saying that all is well, for the very source that will judge."""
    cache, (name, head) = box / "tests" / "__pycache__", _pytests_own()
    cache.mkdir()
    (cache / name).write_bytes(head + marshal.dumps(compile(PASSING, "test_account.py", "exec")))


def _linked(box: Path) -> None:
    shutil.rmtree(box / "tests")
    (box / "easy").mkdir()
    (box / "easy" / "test_account.py").write_text(PASSING)
    (box / "tests").symlink_to("easy")


TAMPERING: dict[str, Callable[[Path], object]] = {
    "deletes the tests": lambda box: shutil.rmtree(box / "tests"),
    "weakens them": lambda box: (box / "tests" / "test_account.py").write_text(PASSING),
    "puts a link in their place": _linked,
    "forges in conftest": lambda box: [(box / p / "conftest.py").write_text(FORGER) for p in ("", "tests")],
    "sets pytest otherwise": lambda box: (box / "pytest.ini").write_text("[pytest]\naddopts = -p helper\n"),
    "edits its settings": lambda box: (box / "pyproject.toml").write_text(
        "[tool.pytest.ini_options]\nxfail_strict=1\n"
    ),
    "plants a plug-in": _plugin,
    "plants sitecustomize": lambda box: (box / "sitecustomize.py").write_text("import os\nos._exit(0)\n"),
    "plants pytest.py": lambda box: (box / "pytest.py").write_text("def main(*a, **k): return 0\n"),
    "plants a module of unittest's": lambda box: (box / "unittest.py").write_text("raise SystemExit(0)\n"),
    "plants compiled tests": _compiled,
    "writes results": lambda box: (box / "junit.xml").write_text("<testsuite tests='4' failures='0'/>"),
    "exits with 0": lambda box: _append(box, "import sys; sys.exit(0)"),
    "ends the process": lambda box: _append(box, "import os; os._exit(0)"),
    "forges in memory": lambda box: _append(box, IN_MEMORY),
}


@pytest.mark.parametrize("how", TAMPERING)
def test_who_tampers_with_the_tests_gains_nothing(home, world, tmp_path, how):
    if how == "plants a plug-in":
        world = taskset(home, command=ledger.PLAIN)
    case = world._case("own__ledger-7")
    assert reward(world, changed(world, case.begin, TAMPERING[how], tmp_path / "box")) == 0.0


FOOLING = ("forges in conftest", "plants a plug-in", "plants pytest.py", "plants compiled tests", "forges in memory")


@pytest.mark.whole
@pytest.mark.parametrize("how", FOOLING)
def test_the_same_tampering_fools_a_plain_run_of_the_right_tests(home, world, tmp_path, how):
    """The control: without what is held, the exit status of the original test file says that all is well."""

    def change(box: Path) -> None:
        (box / "tests" / "test_account.py").write_text(ledger.TESTS + ledger.MORE)
        os.utime(box / "tests" / "test_account.py", ns=(NANOSECONDS, NANOSECONDS))
        TAMPERING[how](box)

    tree = changed(world, world._case("own__ledger-7").begin, change, tmp_path / "box")
    line = ledger.PLAIN if how == "plants a plug-in" else ledger.COMMAND
    verdict = asyncio.run(verified(world, tree, line))
    assert verdict.code == 0, verdict.stdout.decode()
    honest = changed(world, world._case("own__ledger-7").begin, lambda box: None, tmp_path / "other")
    assert asyncio.run(verified(world, honest, f"{line} -k {ledger.HIDDEN}")).code == 5  # no test of that name


@pytest.mark.parametrize("how", ["deletes the tests", "weakens them", "sets pytest otherwise", "plants a plug-in"])
def test_who_repairs_it_and_tampers_too_is_judged_by_the_repair(world, tmp_path, how):
    assert reward(world, changed(world, world._case("own__ledger-7").solved(), TAMPERING[how], tmp_path / "box")) == 1.0


def test_a_forged_report_is_named(world, tmp_path):
    tree = changed(world, world._case("own__ledger-7").begin, TAMPERING["forges in memory"], tmp_path / "box")
    found = asyncio.run(world.judged(world.find("own__ledger-7"), tree))
    assert (found["reward"], found["meddled"], found["fail_to_pass"]) == (0.0, 1.0, 1.0)


def test_new_files_of_a_repair_are_kept(world, tmp_path):
    def spread(box: Path) -> None:
        (box / "ledger" / "means.py").write_text("def mean(xs):\n    return sum(xs) / (len(xs) or 1)\n")
        (box / "tests" / "test_more.py").write_text("def test_x():\n    assert False\n")  # the agent's own test
        _append(box, "from ledger.means import mean")

    assert reward(world, changed(world, world._case("own__ledger-7").begin, spread, tmp_path / "box")) == 1.0


# ---- what cannot be told ---------------------------------------------------------------------------------------------


def why(world: Repairs, tree: str | None = None) -> str:
    name = next(iter(world._cases))
    with pytest.raises(Undecided) as told:
        asyncio.run(world.judged(world.find(name), tree or world._case(name).begin))
    return str(told.value)


def test_a_missing_dependency_decides_nothing(home, tmp_path):
    folder = home / "clones" / "own__ledger"
    needs = (
        "--- a/tests/test_account.py\n+++ b/tests/test_account.py\n@@ -1 +1,2 @@\n+import no_such_module\n"
        " from ledger.account import mean, share, total\n"
    )
    ledger.write(tmp_path / "rows.jsonl", ledger.row(folder, test_patch=needs))
    world = Repairs(
        str(tmp_path / "rows.jsonl"), str(home / "clones"), ledger.COMMAND, ledger.SEEN, shelf=str(home / "files")
    )
    assert "No module named 'no_such_module'" in why(world)
    bare = taskset(home, readable=("/usr/bin",), command="python3 -m pytest")
    assert "pytest cannot be imported" in why(bare)
    assert "reference solution does not pass" in why(bare)
    gone = taskset(home, command="/no/python -m pytest")
    assert "/no/python" in why(gone)
    assert "unrecognized arguments" in why(taskset(home, command="python -m pytest --no-such-option"))


@pytest.mark.whole
def test_a_limit_and_tests_that_pass_at_once_decide_nothing(home, tmp_path):
    folder = home / "clones" / "own__ledger"
    slow = taskset(home, test_seconds=2.0)
    loop = changed(
        slow, slow._case("own__ledger-7").begin, lambda box: _append(box, "while True: pass"), tmp_path / "box"
    )
    assert "the limit cpu was reached" in why(slow, loop)
    ledger.write(tmp_path / "rows.jsonl", ledger.row(folder, FAIL_TO_PASS=list(ledger.NAMES[:1]), PASS_TO_PASS=[]))
    easy = Repairs(
        str(tmp_path / "rows.jsonl"), str(home / "clones"), ledger.COMMAND, ledger.SEEN, shelf=str(home / "files")
    )
    assert "pass before anything is changed" in why(easy)


def test_without_a_reference_the_tests_that_stay_are_the_measure(home, tmp_path):
    folder = home / "clones" / "own__ledger"
    ledger.write(tmp_path / "rows.jsonl", ledger.row(folder, patch=""))
    more = {"clones": str(home / "clones"), "readable": ledger.SEEN, "shelf": str(home / "files")}
    world = Repairs(str(tmp_path / "rows.jsonl"), command=ledger.COMMAND, **more)
    assert reward(world, world._case("own__ledger-7").begin) == 0.0
    assert world._case("own__ledger-7").solved() is None
    ledger.write(
        tmp_path / "rows.jsonl", ledger.row(folder, patch="", PASS_TO_PASS=["tests/test_account.py::test_gone"])
    )
    world = Repairs(str(tmp_path / "rows.jsonl"), command=ledger.COMMAND, **more)
    assert "tests do not run at the beginning" in why(world)


# ---- rows and clones -------------------------------------------------------------------------------------------------


def test_bad_rows_are_named(home, tmp_path):
    folder, file = home / "clones" / "own__ledger", tmp_path / "rows.jsonl"
    for change, told in (
        ({"repo": None}, None),
        ({"FAIL_TO_PASS": "[1]"}, "no list of names"),
        ({"FAIL_TO_PASS": "{"}, "no list of names"),
        ({"instance_id": "a\x1b[31m"}, "odd letters"),
        ({"problem_statement": " "}, "nothing is said"),
        ({"patch": 3}, "patch is no text"),
    ):
        ledger.write(file, ledger.row(folder, **change))
        if told is not None:
            with pytest.raises(BadInput, match=told):
                rows_in(file)
    row = ledger.row(folder)
    ledger.write(file, row, row)
    with pytest.raises(BadInput, match="two rows are called own__ledger-7"):
        rows_in(file)
    file.write_text(json.dumps([row]))
    assert rows_in(file)[0].fail_to_pass == (ledger.FIX,)
    assert are_repairs(file)
    file.write_text('{"question": 1}\n')
    assert not are_repairs(file)
    with pytest.raises(BadInput, match="lacks the field instance_id"):
        rows_in(file)
    file.write_text("[" * 100_000)
    assert not are_repairs(file)
    with pytest.raises(BadInput, match="no JSON object"):
        rows_in(file)
    with pytest.raises(BadInput, match="cannot be read"):
        rows_in(tmp_path / "gone.jsonl")


def test_rows_that_cannot_be_judged_are_left_out_and_counted(home, tmp_path):
    folder = home / "clones" / "own__ledger"
    django = ledger.row(folder, instance_id="dj-1", FAIL_TO_PASS=["test_x (queries.tests.Case)"])
    none = ledger.row(folder, instance_id="none-1", FAIL_TO_PASS=[])
    short = ledger.row(folder, instance_id="short-1", base_commit="abc123")
    ledger.write(tmp_path / "rows.jsonl", ledger.row(folder), django, none, short)
    world = taskset(home, str(tmp_path / "rows.jsonl"))
    assert [task.id for task in world.sample(9)] == ["own__ledger-7"]
    assert "4 repairs, 3 of them left out" in world.about
    assert "another runner than pytest" in world.about
    with pytest.raises(BadInput, match=r"dj-1 cannot be judged here: it names tests as another runner"):
        world.find("dj-1")
    with pytest.raises(UnknownName, match="has no task 'nobody'"):
        world.find("nobody")
    with pytest.raises(BadInput, match="no task of the split test"):
        world.sample(1, split="test")


def test_what_agents_would_read_is_refused(home):
    folder = home / "clones" / "own__ledger"
    with pytest.raises(BadInput, match=r"rows.jsonl lies in .*, which agents would read"):
        taskset(home, readable=(*ledger.SEEN, str(home)))
    with pytest.raises(BadInput, match="own__ledger, which agents would read"):
        taskset(home, readable=(*ledger.SEEN, str(folder))).sample(1)


def test_rows_without_a_clone_are_left_out_and_counted(home, tmp_path):
    folder = home / "clones" / "own__ledger"
    other = ledger.row(folder, instance_id="other-1", repo="someone/else")
    ledger.write(tmp_path / "rows.jsonl", ledger.row(folder), other)
    world = taskset(home, str(tmp_path / "rows.jsonl"))
    assert [task.id for task in world.sample(9)] == ["own__ledger-7"]
    assert "1 of them left out: 1, as no clone of someone/else was found" in world.about
    with pytest.raises(BadInput, match="no clone of own/ledger"):
        taskset(home, clones=str(tmp_path)).sample(1)


@pytest.mark.whole
def test_splits_share_no_task(home, tmp_path):
    folder = home / "clones" / "own__ledger"
    rows = [ledger.row(folder, instance_id=f"t-{n}", split="test" if n == 0 else "") for n in range(60)]
    ledger.write(tmp_path / "rows.jsonl", *rows)
    world = taskset(home, str(tmp_path / "rows.jsonl"), held_out=0.2)
    parts = {split: {task.id for task in world.sample(99, split=split)} for split in ("train", "eval", "test")}
    assert sum(map(len, parts.values())) == 60 == len(set.union(*parts.values()))
    assert "t-0" in parts["test"]
    assert min(map(len, parts.values())) > 3
    assert [t.id for t in world.sample(5, seed=1)] == [t.id for t in world.sample(5, seed=1)]
    assert [t.id for t in world.sample(5, seed=1)] != [t.id for t in world.sample(5, seed=2)]


def test_clones_are_found_in_each_layout_and_never_by_chance(home, tmp_path):
    folder = home / "clones" / "own__ledger"
    for name in ("own/ledger", "own__ledger", "ledger", "ledger.git"):
        place = tmp_path / name.replace("/", "-")
        ledger.git(
            folder, "clone", "-q", *(["--bare"] if name.endswith(".git") else []), str(folder), str(place / name)
        )
        assert clone_of("own/ledger", [place]).commit("HEAD") == ledger.commits(folder)[-1]
    assert clone_of("own/ledger", [folder]).folder == folder.resolve()
    ledger.git(tmp_path, "init", "-q", "around")
    (tmp_path / "around" / "ledger").mkdir()  # a plain folder inside of another repository
    for places in ([tmp_path / "around"], [tmp_path / "nowhere"]):
        with pytest.raises(BadInput, match="no clone of own/ledger"):
            clone_of("own/ledger", places)
    with pytest.raises(BadInput, match="no clone of"):
        clone_of("../own__ledger/own__ledger", [tmp_path / "around"])
    ledger.write(tmp_path / "rows.jsonl", ledger.row(folder, base_commit="0" * 40))
    with pytest.raises(BadInput, match="no commit '0000"):
        taskset(home, str(tmp_path / "rows.jsonl")).sample(1)
    ledger.write(tmp_path / "rows.jsonl", ledger.row(folder, clone=str(folder)))
    alone = Repairs(str(tmp_path / "rows.jsonl"), shelf=str(home / "files"), readable=ledger.SEEN)
    assert alone.sample(1)[0].id == "own__ledger-7"


def test_a_patch_that_does_not_apply_is_named(home, tmp_path):
    folder = home / "clones" / "own__ledger"
    bad = "--- a/ledger/account.py\n+++ b/ledger/account.py\n@@ -1 +1 @@\n-nothing\n+something\n"
    ledger.write(tmp_path / "rows.jsonl", ledger.row(folder, patch=bad))
    assert "reference solution cannot be had: a patch does not apply" in why(
        taskset(home, str(tmp_path / "rows.jsonl"))
    )


# ---- parts -----------------------------------------------------------------------------------------------------------


def test_listings_are_made_anew_as_they_were(tmp_path):
    (tmp_path / "src" / "a" / "b").mkdir(parents=True)
    (tmp_path / "src" / "a" / "b" / "x").write_text("1")
    (tmp_path / "src" / "a" / "empty").mkdir()
    (tmp_path / "src" / "link").symlink_to("a")
    shelf = TreeShelf(tmp_path / "files")
    first = Scan(tmp_path / "src", shelf).snapshot()
    found = leaves(shelf, first.tree)
    assert {path: entry.kind for path, entry in found.items()} == {"a/b/x": FILE, "a/empty": "d", "link": LINK}
    restore(shelf, grown(shelf, found), tmp_path / "again")
    assert Scan(tmp_path / "again", shelf).snapshot().state == first.state
    odd = Entry("..", FILE, 0o644, 0, shelf.put(b"x", CONTENT), "", 1)
    with pytest.raises(clew.core.errors.BadRecord, match="no folder holds"):
        restore(shelf, grown(shelf, {"..": odd}), tmp_path / "out")


def test_the_world_of_a_task_has_its_commands(world):
    task = world.find("own__ledger-7")
    opened = world.open(task)
    said = perform(opened, "python -m pytest -q 2>&1 | tail -1; git log --oneline | wc -l").text
    assert "3 passed" in said
    assert said.endswith("1\n(exit status 0)")
    opened.close()


def test_many_verdicts_at_once_check_each_task_once(home, monkeypatch):
    world, asked = taskset(home), list[str]()
    case, task = world._case("own__ledger-7"), world.find("own__ledger-7")
    real = case.judged

    async def counted(tree):
        asked.append(tree)
        return await real(tree)

    monkeypatch.setattr(case, "judged", counted)

    async def together() -> list[dict[str, float]]:
        return await asyncio.gather(*(world.judged(task, case.begin) for _ in range(3)))

    assert [found["reward"] for found in asyncio.run(together())] == [0.0] * 3
    assert asked.count(case.begin) == 3
    assert asked.count(case.solved()) == 1
    assert [found["reward"] for found in asyncio.run(together())] == [0.0] * 3  # in another event loop
    assert asked.count(case.solved()) == 1
