"""The shell form on a real repository: candidates of toolz 1.0.0, its whole test suite as the oracle.

Candidates are mutants of its modules and harmless variants (a comment more); each goes through the world that ``clew
gate`` uses, in the sandbox: every critic and the oracle are run once, with their seconds. What the gate and
verify-always would have done with them is computed from these by the report.
"""

import ast
import asyncio
import json
import random
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from clew.coding.repairs.mutants import mutants
from clew.core.errors import BadInput
from clew.methods.gate.candidates import Checks
from papers.experiment import Line, apart, grid

VERSION = "1.0.0"
CACHE = Path(".clew")
PYTEST = "PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 python -m pytest -q -x -p no:cacheprovider"
MODULES = {"itertoolz": 18, "functoolz": 18, "dicttoolz": 12}
GOOD = 0.4  # share of harmless variants: what a fair generator delivers
CRITICS = {
    "compile": "python -m py_compile {file}",
    "lint": "ruff check -q --isolated --select F,E9 {file}",
    "near": f"{PYTEST} toolz/tests/test_MODULE.py",
}


cost, portions = 3.0, apart


def cells(quick: bool) -> Iterator[Line]:
    for module, n in MODULES.items():
        yield from grid(kind="toolz", program=module, seed=range(4 if quick else n))


@lru_cache(maxsize=1)
def repository() -> Path:
    """The source archive, unpacked; brought once by pip.

    Raises:
        BadInput: it cannot be brought.
    """
    folder = CACHE / f"toolz-{VERSION}"
    if not folder.exists():
        CACHE.mkdir(exist_ok=True)
        line = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", ":all:", f"toolz=={VERSION}"]
        done = subprocess.run([*line, "-d", str(CACHE)], capture_output=True, text=True, check=False)
        if done.returncode:
            raise BadInput(
                f"toolz {VERSION} was not brought: {done.stderr.strip()[-200:]}", remedy="It needs pip's registry."
            )
        with tarfile.open(CACHE / f"toolz-{VERSION}.tar.gz") as archive:
            archive.extractall(CACHE, filter="data")
    return folder


@lru_cache(maxsize=8)
def checks(module: str) -> Checks:
    commands = [command.replace("MODULE", module) for command in CRITICS.values()]
    return Checks(f"{PYTEST} toolz", commands, folder=str(repository()), wall=300.0)


@lru_cache(maxsize=8)
def sources(module: str) -> list[str]:
    """Candidates of a module by seed: a mutant, or, with chance GOOD, the module with one comment more."""
    text = ast.unparse(ast.parse((repository() / "toolz" / f"{module}.py").read_text()))
    rng, broken, out = random.Random(module), mutants(text, 200, seed=1), list[str]()
    for i in range(MODULES[module]):
        lines = text.splitlines()
        out.append("\n".join([*lines, f"# variant {i}"]) if rng.random() < GOOD else broken[i])
    return out


def run(setting: Line, seeds: list[int]) -> list[Line]:
    return [asyncio.run(_one(setting["program"], seed)) for seed in seeds]


async def _one(module: str, seed: int) -> Line:
    its = checks(module)
    world = its.open(its.variant(f"toolz/{module}.py", sources(module)[seed]))
    found: Line = {}
    for name, action in [(n, f"critic {c}") for n, c in zip(CRITICS, its.critics, strict=True)] + [
        ("oracle", "verify")
    ]:
        observation = await world.step(action)  # type: ignore[misc]
        said = json.loads(observation.text)
        found[name], found[f"{name}_s"] = said["passed"], said["seconds"]
    world.close()
    return found
