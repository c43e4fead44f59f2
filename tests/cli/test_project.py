"""clew.toml: found upward, checked, taken as defaults by verbs, named in help and errors; the line goes before it."""

from __future__ import annotations

import subprocess

import pytest

from clew.cli.shared import project
from clew.core.errors import BadInput
from tests.cli.shell import Shell

WORLD = "world = 'household(rooms=2, steps=3)'\nmodel = 'echo'\nstore = 'kept/runs.db'\n"


@pytest.fixture
def here(tmp_path):
    def write(text: str, name: str = project.NAME):
        (tmp_path / name).write_text(text)
        return tmp_path

    return write


def test_verbs_take_what_it_says_and_the_line_goes_before_it(clew, here):
    folder = here(WORLD + "[run]\ntasks = 3\nn = 2\n[eval]\ntasks = 5\n")
    said = clew("run", "--json").output
    assert said.count('"run"') == 6
    assert (folder / "kept" / "runs.db").exists()
    assert clew("run", "--tasks", 1, "--json").output.count('"run"') == 2
    assert "n=5" in clew("eval").output, "the model of clew.toml is the one that is measured"
    assert len(clew("log").output.splitlines()) == 1 + 6 + 2 + 5
    assert "there is no store" in clew("log", "--store", "other.db", code=2).output


def test_printed_lines_leave_out_what_it_says_and_name_what_differs(clew, here):
    here(WORLD)
    (line,) = [said for said in clew("run", "--tasks", 1).output.splitlines() if "clew show" in said]
    assert "--store" not in line
    (line,) = [
        said for said in clew("run", "--tasks", 1, "--store", ".clew/store.db").output.splitlines() if "show" in said
    ]
    assert line.endswith("--store .clew/store.db")
    assert "`clew log --store .clew/store.db`" in clew("show", "no-run", "--store", ".clew/store.db", code=2).output
    assert "`clew log`" in clew("show", "nothing", code=2).output


def test_it_is_found_upward_to_the_root_of_the_repository(tmp_path, clew, here, monkeypatch):
    here(WORLD)
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    assert project.find(inner) == tmp_path / project.NAME
    monkeypatch.chdir(inner)
    clew("run", "--tasks", 1)
    assert (tmp_path / "kept" / "runs.db").exists(), "a relative path is seen from the file's folder"
    assert str(tmp_path / project.NAME) in clew("doctor").output
    subprocess.run(["git", "init", "-q", tmp_path / "a"], check=True)
    assert project.find(inner) is None, "what lies above the repository is somebody else's"
    (tmp_path / "a" / project.NAME).write_text("model = 'echo'\n")
    assert project.find(inner) == tmp_path / "a" / project.NAME


def test_top_keys_leave_verbs_alone_that_go_on_from_a_record(clew, here, store):
    here(f"model = 'no-such-model'\nseed = 3\nstore = '{store}'\n")
    run = clew("log", "--json").output.split('"run": "')[1][:12]
    assert "(recorded)" in clew("fork", f"{run}@1", "--reply", "go kitchen", "--keep", code=None).output


def test_a_table_of_a_verb_within_a_verb(clew, here):
    here("[store.gc]\njson = true\n[draft.train]\nsteps = 7\n")
    assert "[default: 7, by clew.toml]" in clew("draft", "train", "--help").output
    assert "by clew.toml" not in clew("draft", "calibrate", "--help").output


def test_help_and_errors_name_it(clew, here):
    folder = here("[run]\ntasks = 3\n[train]\nlr = -1\n")
    assert "[default: 3, by clew.toml]" in " ".join(clew("run", "--help").output.split())
    shell = Shell(folder)
    said = shell("clew train --name x", code=2)
    assert "'--lr': -1 is out of bounds" in said
    assert f"The value stands in {folder}/clew.toml." in said
    assert "The value stands" not in shell("clew train --name x --lr -2", code=2)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("wrld = 'maze'\n", "'wrld' is not known: no option has that name\n  Did you mean world?"),
        ("[trian]\nlr = 1\n", "'trian' is not known: there is no verb of that name\n  Did you mean train?"),
        ("[run]\ntask = 3\nlimit = 2\n", "'limit' is not known: `clew run` has no option of that name"),
        ("[draft]\ntrain = 3\n", "'train' of [draft] is no table"),
        ("world = \n", "is not TOML"),
        ("a = " + "[" * 30_000, "is not TOML"),
        ("#" * 70_000, "is longer than 64,000 bytes"),
        ("[moved]\n'a.py' = 'b.py'\n", "there is nothing at"),
        ("[moved]\n'a.py' = 3\n", "[moved] is no table of places"),
    ],
)
def test_what_is_wrong_with_it_is_said_and_doctor_says_it_too(clew, here, text, said):
    here(text)
    verb = ["draft", "train", "x"] if "draft" in text else ["run"]
    told = clew(*verb, code=2).output
    assert all(line in told for line in said.split("\n"))
    assert "Traceback" not in told
    assert "MISSING  clew.toml" in clew("doctor").output
    assert "lists every verb" in clew("--help").output


def test_objects_lists_and_switches(tmp_path, here):
    import click

    from clew.cli import verbs

    here("tools = 'a.py:b'\n[run]\nconfig = {window = 2}\ntask = ['x', 'y']\njson = true\n")
    made = project.Project(tmp_path / project.NAME)
    command = verbs.get_command(click.Context(verbs), "run")
    said = made.defaults("run", command)
    assert (said["config"], said["task_ids"], said["as_json"]) == ('{"window": 2}', ("x", "y"), True)
    assert said["tools"] == (f"{tmp_path}/a.py:b",)
    here("tols = 'x'\n")
    wrong = project.Project(tmp_path / project.NAME)
    with pytest.raises(BadInput, match="'tols' is not known"):
        wrong.check(verbs)
