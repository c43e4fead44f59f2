"""What may not lie in the tree, and what the README and the Makefile promise about files."""

from __future__ import annotations

import re
import subprocess
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
    assert make.index("$(PIP) torch") < make.index("$(PIP) -e '.[local]'")
