"""Tasks that are made of a repository: mutants in the code's own formatting, past fixes, proofs, and going on."""

from __future__ import annotations

import ast
import asyncio
import difflib
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from clew.coding.repairs import Repairs, rows_in
from clew.coding.repairs.made_file import MadeFile
from clew.coding.repairs.making import Candidate, Maker, Proof, unified
from clew.coding.repairs.mutants import mutants
from clew.coding.repairs.named_tests import Outcomes, read_command
from clew.coding.repairs.repair_rows import Row, paths_of
from clew.coding.repairs.row_case import Ground
from clew.coding.repository.git import Git
from clew.core.errors import BadInput
from clew.sandbox.sandbox import MIB, Limits, Sandbox
from clew.worlds.workspace import TreeShelf
from tests.coding import ledger

needs_box = pytest.mark.skipif(not shutil.which("bwrap"), reason="bubblewrap is not installed")
SOURCE = '''# a module
import os  # for its paths


def pick( a,b , /, *, most = 10 ):   # odd spacing stays
    """Words."""
    if (a
            and b >= 2):  # over two lines
        return a*b + 1
    total = a - (b + most)
    total += (
        3
    )
    return total if a is not b or not b else max(b, a) ** 2


def told(x): return f"{x + 1} of {x}" if x not in (1, 2) else "é" * 0x10
'''


# ---- mutants ---------------------------------------------------------------------------------------------------------


def test_a_mutant_changes_what_it_means_and_nothing_else():
    found = mutants(SOURCE, 1000)
    assert len(found) == len(set(found)) > 20
    for text in found:
        old, new = SOURCE.splitlines(), text.splitlines()
        assert len(old) == len(new)
        changed = [(a, b) for a, b in zip(old, new, strict=True) if a != b]
        assert 1 <= len(changed) <= 2
        assert ast.dump(ast.parse(text)) != ast.dump(ast.parse(SOURCE))
        assert text.count("#") == SOURCE.count("#")
    lines = {line.strip() for text in found for line in difflib.ndiff(SOURCE.splitlines(), text.splitlines())}
    for wanted in (
        "+     if (not (a",
        "+             or b >= 2):  # over two lines",
        "+             and b > 2):  # over two lines",
        "+         return a*b - 1",
        "+         return a+b + 1",
        "+     total = a - (b - most)",
        "+     total -= (",
        "+     return total if a is b or not b else max(b, a) ** 2",
        "+     return total if a is not b or not b else max(a, b) ** 2",
        '+ def told(x): return f"{x + 1} of {x}" if x in (1, 2) else "é" * 0x10',
        '+ def told(x): return f"{x + 1} of {x}" if x not in (1, 2) else "é" * 17',
    ):
        assert wanted in lines, wanted


def test_brackets_are_added_where_a_sign_would_bind_otherwise():
    texts = set(mutants("x = a - b * c\ny = a ** b ** c\n", 100))
    assert "x = a - (b + c)\ny = a ** b ** c\n" in texts
    assert "x = a + b * c\ny = a ** b ** c\n" in texts
    assert all(ast.parse(text) for text in texts)
    assert "x = (a and b) and c\n" in mutants("x = a and b or c\n", 100)


def test_mutants_are_drawn_and_bounded():
    assert mutants(SOURCE, 5, 1) == mutants(SOURCE, 5, 1) != mutants(SOURCE, 5, 2)
    assert len(mutants(SOURCE, 5)) == 5
    assert all("def pick( a" in text and "0x10" in text for text in mutants(SOURCE, 99, within=["pick"]))
    assert mutants("x = 'words'\n", 5) == []
    assert mutants("x = 1\r\ny = 2\r\n", 1)[0].count("\r\n") == 2
    with pytest.raises(BadInput, match="does not parse"):
        mutants("def (", 1)


def test_a_patch_of_a_mutant_applies_with_odd_ends(tmp_path):
    old = "a = 1\x0c\nb = 2\u2028\nlast = 3"
    new = old.replace("last = 3", "last = 4")
    (tmp_path / "x.py").write_text(old, newline="")
    (tmp_path / "p").write_text(unified("x.py", old, new), newline="")
    ledger.git(tmp_path, "apply", "p")
    assert (tmp_path / "x.py").read_bytes().decode() == new
    assert paths_of(unified("x.py", old, new)) == {"x.py"}


def test_paths_of_patches():
    text = "diff --git a/p.bin b/p.bin\nindex 1..2\nGIT binary patch\nliteral 1\nabc\n\n"
    text += "--- a/old.py\n+++ /dev/null\n@@ -1,2 +0,0 @@\n--- a/not_one.py\n-x\n"
    text += (
        'diff --git a/r b/s\nrename from r\nrename to s\n--- "a/od d.py"\t\n+++ "b/od d.py"\t\n@@ -1 +1 @@\n-a\n+b\n'
    )
    assert paths_of(text) == {"p.bin", "old.py", "r", "s", "od d.py"}


def test_commands_that_run_tests():
    one = read_command("A=1 PYTHONPATH=src python3.9 -W error -m pytest -q tests/a.py -k 'x or y'", ["tests/a.py"])
    assert one.interpreter == ("python3.9", "-W", "error")
    assert one.arguments == ("-q", "-k", "x or y")
    assert one.paths == ("tests/a.py",)
    assert dict(one.env) == {"A": "1", "PYTHONPATH": "src"}
    assert read_command("pytest tests", ["tests/a.py"]).paths == ("tests",)
    for text in ("make test", "python -m unittest", "tox", "", "pytest '", "-m pytest"):
        with pytest.raises(BadInput):
            read_command(text)


def test_names_that_are_cut_stand_for_all_that_begin_so():
    ran = Outcomes({"t.py::a[x y]": "passed", "t.py::a[x z]": "failed", "t.py::b": "xfailed", "t.py::c[1 2]": "passed"})
    names = ("t.py::a[x", "t.py::b", "t.py::c[1", "t.py::d")
    assert ran.of(names) == dict(zip(names, ("failed", "xfailed", "passed", "missing"), strict=True))
    assert ran.good(names) == ["t.py::b", "t.py::c[1"]


# ---- tasks -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("made")
    ledger.make(place / "own__ledger")
    return place


def maker(home: Path, command: str = ledger.COMMAND, **how) -> Maker:
    bounds = Limits(240, 60, 2048 * MIB, 512, 1 << 30, 1024 * MIB, 1024, MIB)
    sandbox = Sandbox(bounds, ledger.SEEN)
    ground = Ground(TreeShelf(home / "files"), sandbox, bounds, (), command, {})
    return Maker(Git(home / "own__ledger"), "own/ledger", str(home / "own__ledger"), ground, **how)


def proofs(made: Maker, candidates: list[Candidate]) -> list[Proof]:
    async def every() -> list[Proof]:
        return [await made.proven(one) for one in candidates]

    return asyncio.run(every())


@pytest.mark.whole
@needs_box
def test_a_mutated_task_is_proven_and_tells_no_place(home, tmp_path):
    made = maker(home)
    assert asyncio.run(made.sound()) == 4
    pool = {(c.row.bug_patch.split("\n-")[1].split("\n")[0].strip()): c for c in made.mutated(20)}
    assert {path for c in pool.values() for path in paths_of(c.row.patch)} == {"ledger/account.py"}
    noticed = pool["found += amount  # in cents"]
    (proof,) = proofs(made, [noticed])
    row = proof.row
    assert row is not None
    assert (row.repo, row.base_commit) == ("own/ledger", ledger.commits(home / "own__ledger")[-1])
    assert row.fail_to_pass == (ledger.NAMES[1], ledger.NAMES[0])
    assert set(row.pass_to_pass) == {ledger.FIX, ledger.NAMES[2]}
    assert "+    found -= amount" not in row.patch
    assert "- tests/test_account.py::test_total fails" in row.problem_statement
    assert "assert -6 == 6" in row.problem_statement
    assert "account.py:" not in row.problem_statement.replace("test_account.py:", "")
    assert "found" not in row.problem_statement
    (tmp_path / "rows.jsonl").write_text(row.written() + "\n")
    assert rows_in(tmp_path / "rows.jsonl") == [row]
    world = Repairs(str(tmp_path / "rows.jsonl"), readable=ledger.SEEN, shelf=str(home / "files"))
    (task,) = world.sample(1)
    case = world._case(task.id)
    assert asyncio.run(world.judged(task, case.begin))["reward"] == 0.0
    assert asyncio.run(world.judged(task, case.solved()))["reward"] == 1.0


@pytest.mark.whole
@needs_box
def test_what_is_not_proven_is_left_out_with_its_reason(home):
    made, base = maker(home), ledger.commits(home / "own__ledger")[-1]

    def broken(old: str, new: str) -> Candidate:
        text, path = ledger.FIXED, "ledger/account.py"
        assert old in text
        other = text.replace(old, new)
        row = Row(f"x-{len(new)}", "own/ledger", base, "", unified(path, other, text), clone=made.clone)
        return Candidate(new[:9], replace(row, bug_patch=unified(path, text, other)))

    unseen, every, endless = proofs(
        made,
        [
            broken('"""Accounts."""', '"""Books."""'),
            broken('"""Accounts."""', '"""Accounts.""" + 1'),
            broken("    found = 0\n", "    found = 0\n    while True: pass\n"),
        ],
    )
    assert (unseen.row, unseen.why) == (None, "no test notices it")
    assert every.why == "every test fails with it"
    assert endless.why.startswith("the tests reach the limit cpu")
    row = Row("n", "own/ledger", base, "", bug_patch="--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n", clone=made.clone)
    assert "does not apply" in proofs(made, [Candidate("n", row)])[0].why
    with pytest.raises(BadInput, match=r"no test of .* passes in the sandbox: .*No module named 'nothing'"):
        asyncio.run(maker(home, "python -m pytest -p nothing").sound())


@pytest.mark.whole
@needs_box
def test_a_past_fix_is_a_task_whose_test_is_hidden(home, tmp_path):
    made = maker(home)
    (candidate,) = made.fixed(3)
    (proof,) = proofs(made, [candidate])
    row = proof.row
    assert row is not None
    start, fix = ledger.commits(home / "own__ledger")[:2]
    assert (row.instance_id, row.base_commit) == (f"own__ledger-fix-{fix[:10]}", start)
    assert (row.fail_to_pass, set(row.pass_to_pass)) == ((ledger.FIX,), set(ledger.NAMES))
    assert paths_of(row.patch) == {"ledger/account.py"}
    assert paths_of(row.test_patch) == {"tests/test_account.py"}
    assert row.problem_statement.startswith("Fix #7: the mean of no amounts divides by zero in")
    assert "ZeroDivisionError" in row.problem_statement
    for secret in (ledger.HIDDEN, "account.py", "tests/"):
        assert secret not in row.problem_statement
    (tmp_path / "rows.jsonl").write_text(row.written())
    world = Repairs(str(tmp_path / "rows.jsonl"), readable=ledger.SEEN, shelf=str(home / "files"))
    task = world.find(row.instance_id)
    assert asyncio.run(world.judged(task, world._case(task.id).solved()))["reward"] == 1.0


# ---- the file --------------------------------------------------------------------------------------------------------


def test_a_file_of_which_nothing_was_tried_may_be_begun_otherwise(tmp_path):
    path = tmp_path / "tasks.jsonl"
    MadeFile(path, {"command": "one"})
    again = MadeFile(path, {"command": "two"})
    again.add(Proof("k1", why="no test notices it"))
    with pytest.raises(BadInput, match="was begun with command 'two', not 'one'"):
        MadeFile(path, {"command": "one"})


def test_a_file_goes_on_where_it_was_cut(tmp_path):
    path, how = tmp_path / "tasks.jsonl", {"repository": "/r", "by": "mutation"}
    row = Row("a-1", "r", "0" * 40, "x", fail_to_pass=("t::a",))
    made = MadeFile(path, how)
    made.add(Proof("k1", row, unsteady=2))
    made.add(Proof("k2", why="no test notices it"))
    with made.beside.open("a") as file:
        file.write('{"key": "k3"')  # a kill in the middle of a line
    again = MadeFile(path, how)
    assert (len(again), again.tried, again.unsteady) == (1, 2, 2)
    assert again.left_out == {"no test notices it": 1}
    assert again.had(Candidate("k2", row))
    assert again.had(Candidate("other", row))
    assert not again.had(Candidate("k3", Row("a-3", "r", "0" * 40, "x")))
    again.add(Proof("k3", why="no test notices it"))
    assert MadeFile(path, how).tried == 3
    with pytest.raises(BadInput, match="was begun with by 'mutation', not 'fixes'"):
        MadeFile(path, how | {"by": "fixes"})
    (tmp_path / "mine.jsonl").write_text(json.dumps({"question": 1}))
    with pytest.raises(BadInput, match="was made by something else"):
        MadeFile(tmp_path / "mine.jsonl", how)
