"""What may not lie in the tree, and what the README and the Makefile promise about files."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tarfile
import tomllib
from itertools import chain
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NAMES = r"(pypi|pythonhosted|download\.pytorch|registry\.npmjs|conda\.anaconda)"
HOSTS = re.compile(NAMES + r"\.(org|com)", re.IGNORECASE)
INDEX = re.compile(r"--(extra-)?index" + r"-url|--find" + r"-links")


def tracked() -> list[Path]:
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
    if done.returncode:
        pytest.skip("did not run: this copy of the tree is not a git checkout")
    return [ROOT / name for name in done.stdout.decode().split("\0") if name and (ROOT / name).is_file()]


def texts() -> list[tuple[str, str]]:
    out = []
    for path in tracked():
        try:
            out.append((path.relative_to(ROOT).as_posix(), path.read_text()))
        except UnicodeDecodeError:
            continue
    return out


def test_no_registry_is_named():
    found = []
    for name, text in texts():
        found += [f"{name}: {match[0]}" for pattern in (HOSTS, INDEX) if (match := pattern.search(text))]
    assert found == []


def pins(file: str) -> set[str]:
    lines = (ROOT / file).read_text().splitlines()
    return {line.split("==")[0].lower().replace("_", "-") for line in lines if "==" in line}


def test_every_requirement_is_pinned():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = dict(project["optional-dependencies"])
    apart = extras.pop("frameworks")  # in an environment of their own
    for wanted, file in (
        ([*project["dependencies"], *chain.from_iterable(extras.values())], "constraints.txt"),
        ([*project["dependencies"], *apart], "constraints-frameworks.txt"),
    ):
        names = {re.split(r"[<>=\[ ]", w)[0].lower() for w in wanted} - {"clew"}
        assert names - pins(file) == set()


def test_torch_comes_first_in_the_constraints_and_in_the_makefile():
    pins = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    assert pins[0].startswith("torch==")
    # Of NVIDIA's packages only the disassembler, which stands alone.
    assert [p for p in pins if p.startswith(("nvidia-", "triton"))] == ["nvidia-cuda-nvdisasm==13.5.37"]
    make = (ROOT / "Makefile").read_text()
    assert make.index("$(PIP) torch") < make.index("$(PIP) -e '.[local,view,stats,serve]'")


PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
BASE = {re.split(r"[<>=]", one)[0] for one in PROJECT["dependencies"]}


def test_the_readme_names_what_the_base_install_needs():
    assert len(BASE) <= 6
    said = re.search(r"The core needs ([^.]*)\.", (ROOT / "README.md").read_text())
    assert set(re.split(r", | and ", said[1])) == BASE
    for extra in PROJECT["optional-dependencies"]:
        if extra not in ("frameworks", "bench", "dev", "kernels"):
            assert f"`{extra}`" in (ROOT / "README.md").read_text(), extra


ALONE = """
import importlib.machinery, importlib.metadata as metadata, re, sys

def needed(names, found):
    for name in names:
        key = re.sub("[-_.]+", "-", re.split("[^A-Za-z0-9_.-]", name)[0]).lower()
        if key not in found:
            try:
                wanted = metadata.requires(key) or []
            except metadata.PackageNotFoundError:
                continue
            found.add(key)
            needed([one for one in wanted if "extra ==" not in one], found)
    return found

here = needed(BASE, {"clew"})
others = {top for top, dists in metadata.packages_distributions().items()
          if not {re.sub("[-_.]+", "-", d).lower() for d in dists} & here}

class Base(importlib.machinery.PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] in others else super().find_spec(name, path, target)

sys.meta_path[:] = [Base if finder is importlib.machinery.PathFinder else finder for finder in sys.meta_path]
from clew.cli import verbs
verbs(LINE)
"""


def alone(line, folder, code=0):
    """A command line where nothing but the base install can be imported; what it printed."""
    program = f"BASE, LINE = {sorted(BASE)!r}, {line!r}\n{ALONE}"
    done = subprocess.run([sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    return done.stdout + done.stderr


@pytest.mark.whole
def test_the_base_install_records_looks_forks_and_credits(tmp_path):
    at = ["--world", "household(rooms=2,steps=4)", "--model", "echo"]
    alone(["run", *at, "--tasks", "2", "-n", "2", "--max-tokens", "4", "--name", "few"], tmp_path)
    row = json.loads(alone(["log", "--json"], tmp_path))[0]
    for line in (
        ["show", row["run"]],
        ["fork", f"{row['run']}@1", "--model", "echo"],
        ["replay", row["run"]],
        ["credit", "g2po"],
    ):
        alone(line, tmp_path)
    alone(["export", "runs.jsonl"], tmp_path)
    alone(["store", "verify"], tmp_path)
    assert "clew[view]" in alone(["doctor"], tmp_path)
    for line in (["view"], ["serve", "echo"], ["run", "--model", "household-sft"]):
        said = alone(line, tmp_path, code=2)
        assert "not installed" in said
        assert "clew[" in said or "clew doctor" in said


def test_the_package_is_typed_and_its_source_archive_holds_nothing_but_it(tmp_path):
    sdist = pytest.importorskip("hatchling.builders.sdist", reason="did not run: hatchling is not installed")
    (made,) = sdist.SdistBuilder(str(ROOT)).build(directory=str(tmp_path))
    with tarfile.open(made) as archive:
        files = {name.partition("/")[2] for name in archive.getnames()}
    assert {"src/clew/py.typed", "pyproject.toml", "README.md", "LICENSE"} <= files
    beside = {"src", "pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", ".gitignore", "PKG-INFO"}
    assert {name.partition("/")[0] for name in files} <= beside
    assert not [name for name in files if name.endswith((".pyc", ".so", ".db"))]
