"""clew init in an empty folder: what it writes runs as its README says, in a shell, and nothing is overwritten."""

from __future__ import annotations

import importlib.util
import re
import sys

import pytest

from clew.cli import init
from clew.core import registry
from tests.cli.shell import ROOT, Shell
from tests.docs.pages import blocks, commands

if "dataset" not in registry.names("tasksets"):
    pytest.skip("did not run: the installed clew has no taskset `dataset`; install it again", allow_module_level=True)


@pytest.fixture
def shell(tmp_path) -> Shell:
    return Shell(tmp_path)


@pytest.mark.whole
def test_all_that_it_writes_runs_as_printed(shell):
    said = shell("clew init shop")
    written = {path.relative_to(shell.folder / "shop").as_posix() for path in (shell.folder / "shop").rglob("*.*")}
    assert written == set(init.starter())
    lines = re.findall(r"^  (\S.*)$", said.partition("Next:")[2], re.MULTILINE)
    assert lines == ["cd shop", "clew run", "clew eval", "clew doctor"]
    assert "MISSING  clew.toml" not in shell("\n".join(["set -e", *lines]))
    (block,) = [block for block in blocks(shell.folder / "shop" / "README.md") if block.kind == "console"]
    typed = [line for line, *_ in commands(block)]
    assert len(typed) == 6
    told = {line: shell(line, within="shop") for line in typed}
    assert "success 0." in told["clew run"]
    assert len(told["clew log 'return<0.5'"].splitlines()) > 4
    assert "calls equal" in told["clew replay 'return>=0'"]
    assert "3 passed" in told["python -m pytest -q tests"]
    run = told["clew log 'return<0.5'"].splitlines()[1].split()[0]
    assert "(recorded)" in shell(f"clew fork {run} --step 1 -n 4", within="shop")
    assert "price" in shell(f"clew show {run}", within="shop/data")


def test_nothing_is_overwritten(shell):
    shell.write(agent_py="mine = 1\n")
    said = shell("clew init", code=2)
    assert "agent.py is there already, and nothing is overwritten" in said
    assert [path.name for path in shell.folder.iterdir()] == ["agent.py"]
    (shell.folder / "shop").mkdir()
    (shell.folder / "shop" / "clew.toml").symlink_to("/nowhere")
    assert "clew.toml is there already" in shell("clew init shop", code=2)


def test_the_starter_is_part_of_the_package_and_its_python_is_sound(tmp_path):
    for place, text in init.starter().items():
        assert text.endswith("\n"), place
        assert max(map(len, text.splitlines())) <= 130, place
        if place.endswith(".py"):
            compile(text, place, "exec")
    assert importlib.util.find_spec("clew.cli.init") is not None
    assert (ROOT / "src" / "clew" / "cli" / "starter").is_dir()
    assert sys.version_info >= (3, 11)
