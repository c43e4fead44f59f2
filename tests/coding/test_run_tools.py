"""``diagnose`` as a tool of an agent that works in files: it sees those of its run, and nothing else of the machine."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

import clew
from clew.coding.repository.contained import Plain, contained
from clew.core.errors import BadInput
from clew.core.values import StopReason
from clew.harness.tools import RunFiles
from clew.methods.diagnose.run_tools import diagnose
from clew.models.fakes import Scripted, tool_call
from clew.worlds.toys import Counter
from clew.worlds.workspace import Workspace

boxed = pytest.mark.skipif(not shutil.which("bwrap"), reason="bubblewrap is not installed")
REPORT = "`Cart.apply_voucher` loses half a cent: what is left is cut, not rounded"
CART = """from shop.price import rounded

class Cart:
    total = 0

    def apply_voucher(self, share):
        return rounded(self.total * (1 - share))
"""
ENV = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "HOME": "/nowhere", "PATH": os.environ["PATH"]}


def git(folder: Path, *words: str) -> None:
    who = ("-c", "user.name=a", "-c", "user.email=a@b")
    subprocess.run(["git", *who, *words], cwd=folder, env=ENV, check=True, capture_output=True)


@pytest.fixture
def project(tmp_path) -> Path:
    folder = tmp_path / "project"
    (folder / "shop").mkdir(parents=True)
    (folder / "shop" / "price.py").write_text("def rounded(cents):\n    return int(cents)\n")
    (folder / "shop" / "cart.py").write_text(CART)
    return folder


def run_of(project: Path, answers, tools=(diagnose,), **config):
    world = Workspace(str(project), shelf=str(project.parent / "files"))
    runner = clew.Runner("coder", world, Scripted(answers), ":memory:", config, tools=tools)
    return runner, runner.collect([world.find(REPORT)], n=1).runs[0]


def acts(run) -> list[str]:
    return [call.text for call in run.calls if call.kind == "act"]


@boxed
@pytest.mark.parametrize("repository", [True, False])
def test_it_ranks_the_present_files_of_the_run(project, repository):
    if repository:
        git(project, "init", "-q")
        git(project, "add", "-A")
        git(project, "commit", "-qm", "begin")
    look = tool_call("diagnose", id="b", report=REPORT)
    moved = tool_call("bash", id="a", command="mv shop/cart.py shop/basket.py")
    runner, run = run_of(project, [look, moved, look, "It is shop/basket.py."])
    before, _, after = acts(run)
    assert "`shop/cart.py` lines " in before
    assert "confidence 0." in before
    assert "`shop/basket.py` lines " in after
    assert "cart.py" not in after
    assert (project / "shop" / "cart.py").exists(), "the user's own folder is another"
    asked = next(call for call in run.calls if call.kind == "ask")
    assert [tool.name for tool in asked.setup.tools] == ["bash", "diagnose"]
    assert set(asked.setup.tools[1].schema["properties"]) == {"report", "n"}, "no model is told of the folder"
    shutil.rmtree(project.parent / "files")
    assert runner.replay(run).calls == len(run.calls), "a replay looks at nothing"
    assert json.loads(run.row.settings)["tools"] == ["clew.coding.run_tools:diagnose"]


@boxed
def test_by_text_it_is_called_in_a_block_of_its_name(project):
    by_json = json.dumps({"report": REPORT, "n": 1})
    blocks = [
        f"I ask.\n```diagnose\n{REPORT}\n```\n```bash\nrm -rf .\n```",
        f"```diagnose\n{by_json}\n```",
    ]
    _, run = run_of(project, [*blocks, "```bash\nls shop\n```", "done"], by_text=True)
    first, second, third = acts(run)
    assert "`shop/cart.py`" in first
    assert second.count("### ") == 1
    assert "cart.py\nprice.py" in third
    told = run.conversation(0)[0].message.text
    assert "- diagnose: Rank the places of this project" in told
    assert next(call for call in run.calls if call.kind == "ask").setup.tools == ()


@boxed
def test_a_fork_and_another_process_have_the_tool_again(project):
    look = tool_call("diagnose", id="a", report=REPORT)
    runner, run = run_of(project, ["", look, "done"])
    rebuilt = clew.Runner.of(runner.store, run, model=Scripted([look, "", look, "done"]))
    assert [*rebuilt.tools] == ["diagnose"]
    fork = rebuilt.fork(run, at=[c.seq for c in run.calls if c.kind == "ask"][-1])[0]
    assert fork.stop is StopReason.RETURNED


@boxed
def test_what_a_tool_changes_in_the_files_is_undone(project):
    def spoil(files: RunFiles) -> str:
        """Change a file."""
        (files / "shop" / "cart.py").write_text("spoilt")
        return "done"

    calls = [tool_call("spoil", id="a"), tool_call("bash", id="b", command="head -c 4 shop/cart.py"), "done"]
    _, run = run_of(project, calls, tools=[spoil])
    assert acts(run) == ["done", "from\n(exit status 0)"]


def test_a_world_without_files_is_named(tmp_path):
    def look(files: RunFiles) -> str:
        """Look."""
        return str(files)

    world = Counter(low=1, high=1)
    runner = clew.Runner("player", world, Scripted({"": "up"}), tools=[look])
    run = runner.collect(world.sample(1), n=1).runs[0]
    assert run.stop is StopReason.WORLD_ERROR
    assert (
        "the tool look looks at the files of its run" in run.calls[-1].error + run.calls[-1].text + run.calls[0].error
    )


# ---- folders that mean harm ------------------------------------------------------------------------------------------


@pytest.fixture
def secret(tmp_path) -> Path:
    """Another repository of the user's."""
    folder = tmp_path / "secret"
    folder.mkdir()
    git(folder, "init", "-q")
    (folder / "shop").mkdir()
    (folder / "shop" / "cart.py").write_text("key = 'apply_voucher'\n")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "the voucher Cart.apply_voucher loses, password hunter2")
    return folder


def borrow(kind: str, project: Path, secret: Path) -> None:
    """Name another repository as the project's own, in one of the ways that git knows."""
    home = project / ".git"
    if kind == "file":
        home.write_text(f"gitdir: {secret / '.git'}\n")
        return
    if kind == "link":
        home.symlink_to(secret / ".git")
        return
    git(project, "init", "-q")
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=secret, env=ENV, check=True, capture_output=True, text=True)
    (home / "HEAD").write_text(head.stdout)
    if kind == "alternates":
        (home / "objects" / "info" / "alternates").write_text(f"{secret / '.git' / 'objects'}\n")
    elif kind == "objects":
        shutil.rmtree(home / "objects")
        (home / "objects").symlink_to(secret / ".git" / "objects")
    else:
        (home / "commondir").write_text(f"{secret / '.git'}\n")


@pytest.mark.parametrize("kind", ["file", "link", "alternates", "objects", "commondir"])
def test_no_other_repository_is_told_of(project, secret, kind):
    borrow(kind, project, secret)
    told = diagnose.function(REPORT, RunFiles(project))
    assert "shop/cart.py" in told
    assert "hunter2" not in told
    assert isinstance(contained(project), Plain)


def test_past_commits_of_the_project_itself_count(project):
    git(project, "init", "-q")
    git(project, "add", "-A")
    git(project, "commit", "-qm", "Cart.apply_voucher rounds what is left")
    assert "Past commits with messages like the report" in diagnose.function(REPORT, RunFiles(project))


def test_a_folder_below_a_repository_is_no_repository(project, secret):
    inner = secret / "inner"
    shutil.copytree(project, inner)
    told = diagnose.function(REPORT, RunFiles(inner))
    assert "`shop/cart.py`" in told
    assert "hunter2" not in told


def test_nothing_that_git_is_told_to_run_is_run_and_links_lead_nowhere(project, tmp_path):
    git(project, "init", "-q")
    ran = tmp_path / "ran"
    with (project / ".git" / "config").open("a") as config:
        config.write(f'[core]\n\tfsmonitor = "touch {ran}"\n[filter "x"]\n\tclean = "touch {ran}"\n')
    (project / ".gitattributes").write_text("* filter=x\n")
    (tmp_path / "outside.py").write_text("def apply_voucher(): 'hunter2'\n")
    (project / "shop" / "linked.py").symlink_to(tmp_path / "outside.py")
    told = diagnose.function(REPORT, RunFiles(project))
    assert "shop/cart.py" in told
    assert "linked.py" not in told
    assert not ran.exists()


def test_more_files_than_are_looked_at_are_named(project, monkeypatch):
    monkeypatch.setattr("clew.methods.diagnose.run_tools.MOST_FILES", 1)
    with pytest.raises(BadInput, match="2 files of 0 MiB are too many"):
        diagnose.function(REPORT, RunFiles(project))


def test_a_report_that_fits_nothing_and_a_folder_of_nothing_are_told_without_the_place(project, tmp_path):
    with pytest.raises(BadInput, match="nothing in the repository matches"):
        diagnose.function("zzz qqq", RunFiles(project))
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(BadInput, match="the project: no file to look at") as error:
        diagnose.function(REPORT, RunFiles(empty))
    assert str(tmp_path) not in str(error.value)
