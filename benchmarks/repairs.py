"""Whether tasks of repairs are judged rightly: what a reference patch, nothing, and patches that tamper with the tests
come to, over real repositories.

    python benchmarks/repairs.py CLONE ... [--verify NAME=COMMAND] [--readable VENV] [--mutations 3] [--fixes 3]

Of each local clone tasks are made by mutation and by its own past fixes. The rows of past fixes are then written as
SWE-bench has them (its fields alone, lists as JSON text), and all are read back by ``Repairs`` over ``clones=``. Each
task is judged with every kind of patch below, whose right verdict is known. Repositories' code runs in the sandbox.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import json
import marshal
import os
import shutil
import struct
import tempfile
import textwrap
import time
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path

from _pytest.assertion.rewrite import PYC_TAIL

from clew.coding.repairs import Repairs, Row, rows_in
from clew.coding.repairs.making import Maker
from clew.coding.repairs.named_tests import with_python
from clew.coding.repairs.repair_rows import FIELDS, files_of, paths_of
from clew.coding.repairs.row_case import Ground
from clew.coding.repository.git import Git
from clew.core.errors import BadInput, Undecided
from clew.sandbox.sandbox import MIB, Limits, Sandbox
from clew.worlds.workspace import Scan, TreeShelf, restore

COMMAND = "python -m pytest -q"
FORGED = """
import pytest
@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    told = yield
    report = told.get_result()
    report.outcome, report.longrepr = "passed", None
"""
SKIPS = """
def pytest_collection_modifyitems(items):
    import pytest
    for item in items:
        item.add_marker(pytest.mark.xfail(reason="known", strict=False))
"""
IN_MEMORY = """
import sys as _s
if "_pytest.reports" in _s.modules:
    def _pass(cls, item, call, _made=_s.modules["_pytest.reports"].TestReport.from_item_and_call.__func__):
        found = _made(cls, item, call)
        found.outcome, found.longrepr = "passed", None
        return found
    _s.modules["_pytest.reports"].TestReport.from_item_and_call = classmethod(_pass)
"""
JUNIT = '<testsuites><testsuite errors="0" failures="0" tests="1"><testcase name="x"/></testsuite></testsuites>'


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("clones", nargs="+", type=Path)
    parser.add_argument("--verify", action="append", default=[], metavar="NAME=COMMAND")
    parser.add_argument("--within", action="append", default=[], metavar="NAME=PATH")
    parser.add_argument("--readable", action="append", default=[])
    parser.add_argument("--mutations", type=int, default=3)
    parser.add_argument("--fixes", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="Where rows and snapshots go; made tasks there are used again.")
    options = parser.parse_args()
    place = options.folder or Path(tempfile.mkdtemp(prefix="clew-repairs-"))
    place.mkdir(parents=True, exist_ok=True)
    print(f"{'repository':24}{'by':>10}{'tasks':>7}{'verdicts':>10}{'wrong':>7}{'undecided':>11}{'seconds':>9}")
    total, kinds = Counter[str](), Counter[str]()
    for clone in options.clones:
        for by in ("mutation", "fixes"):
            total += asyncio.run(measured(clone, by, options, place, kinds))
    print(f"{'all':24}{'':10}{total['tasks']:7}{total['verdicts']:10}{total['wrong']:7}{total['undecided']:11}")
    print("\n" + "\n".join(f"{name:24}{kinds[name]:5} judged, {kinds[f'{name} wrong']} wrong" for name in PATCHES))


def chosen(pairs: Sequence[str], name: str, default: str) -> str:
    return next((text.partition("=")[2] for text in pairs if text.partition("=")[0] == name), default)


async def measured(clone: Path, by: str, options: argparse.Namespace, place: Path, kinds: Counter[str]) -> Counter[str]:
    """Make the tasks of a clone, judge them, print a line."""
    name, n = clone.name, options.mutations if by == "mutation" else options.fixes
    command, start = chosen(options.verify, name, COMMAND), time.perf_counter()
    file = place / f"{name}-{by}.jsonl"
    if not file.exists():
        rows = await made(clone, by, n, command, chosen(options.within, name, ""), options, place)
        file.write_text("".join(f"{as_swe_bench(row) if by == 'fixes' else row.written()}\n" for row in rows))
    found = Counter[str]()
    if file.stat().st_size:
        world = Repairs(str(file), str(clone.parent), command, options.readable, shelf=str(place / "files"))
        for row in rows_in(file)[:n]:
            found["tasks"] += 1
            await judged(world, row, found, kinds)
    cells = "".join(f"{found[what]:{width}}" for what, width in (("tasks", 7), ("verdicts", 10), ("wrong", 7)))
    print(f"{name:24}{by:>10}{cells}{found['undecided']:11}{time.perf_counter() - start:9.0f}", flush=True)
    return found


async def made(
    clone: Path, by: str, n: int, command: str, within: str, options: argparse.Namespace, place: Path
) -> list[Row]:
    bounds = Limits(2400, 600, 2048 * MIB, 512, 1 << 30, 1024 * MIB, 1024, MIB)
    sandbox = Sandbox(bounds, with_python(options.readable) or None)
    ground = Ground(TreeShelf(place / "files"), sandbox, bounds, (), command, {})
    owner = clone.name.replace("__", "/", 1)
    maker = Maker(Git(clone), owner, str(clone), ground, within=[within] if within else ())
    found = list[Row]()
    for candidate in islice(maker.mutated(n) if by == "mutation" else maker.fixed(n), 20 * n):
        proof = await maker.proven(candidate)
        found += [proof.row] if proof.row is not None else []
        if len(found) >= n:
            break
    return found


def as_swe_bench(row: Row) -> str:
    """The row in the fields and the spelling that SWE-bench's own files have."""
    told = json.loads(row.written())
    kept = {name: told[name] for name in (*FIELDS, "patch", "test_patch")}
    kept |= {name: json.dumps(told[name]) for name in ("FAIL_TO_PASS", "PASS_TO_PASS")}
    return json.dumps({**kept, "hints_text": "", "version": "1", "created_at": "2024-01-01T00:00:00Z"})


async def judged(world: Repairs, row: Row, found: Counter[str], kinds: Counter[str]) -> None:
    """Every kind of patch on one task."""
    task = world.find(row.instance_id)
    if any(secret and secret in task.prompt for secret in (row.patch, row.test_patch)):
        found["wrong"] += 1
    solved = world._case(row.instance_id).solved()
    for name, (change, from_solved, right) in PATCHES.items():
        begin = solved if from_solved else world.begins(task)
        assert begin is not None
        tree = edited(world.shelf, begin, row, change)
        found["verdicts"] += 1
        kinds[name] += 1
        try:
            reward = (await world.judged(task, tree))["reward"]
        except Undecided as error:
            found["undecided"] += 1
            print(f"  undecided: {row.instance_id}, {name}: {error}", flush=True)
            continue
        if reward != right:
            found["wrong"] += 1
            kinds[f"{name} wrong"] += 1
            print(f"  WRONG: {row.instance_id}, {name}: {reward}", flush=True)


# ---- patches, each of which changes a folder -------------------------------------------------------------------------

Change = Callable[[Path, Row], None]


def edited(shelf: TreeShelf, tree: str, row: Row, change: Change) -> str:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place, "box")
        restore(shelf, tree, folder)
        change(folder, row)
        return Scan(folder, shelf).snapshot().tree


def tests_of(folder: Path, row: Row) -> list[Path]:
    return [path for name in files_of(row.fail_to_pass) if (path := folder / name).is_file()]


def source_of(folder: Path, row: Row) -> list[Path]:
    return [folder / path for path in sorted(paths_of(row.patch)) if path.endswith(".py") and (folder / path).is_file()]


def deleted(folder: Path, row: Row) -> None:
    for path in tests_of(folder, row):
        path.unlink()


def weakened(folder: Path, row: Row) -> None:
    """Each test of the file that fails is replaced by one of its name that passes."""
    for path in tests_of(folder, row):
        names = [name.split("::")[1:] for name in row.fail_to_pass if folder / name.partition("::")[0] == path]
        plain = "".join(f"def {one[0].partition('[')[0]}(*a): pass\n" for one in names if len(one) == 1)
        classes = {one[0] for one in names if len(one) > 1}
        inner = {
            name: [one[1].partition("[")[0] for one in names if one[0] == name and len(one) > 1] for name in classes
        }
        bodies = []
        for name, some in inner.items():
            inside = "".join(f"    def {test}(self): pass\n" for test in dict.fromkeys(some))
            bodies.append(f"class {name}(__import__('unittest').TestCase):\n{inside}")
        path.write_text(plain + "\n".join(bodies))


def settings(folder: Path, row: Row) -> None:
    (folder / "pytest.ini").write_text("[pytest]\naddopts = -k nothing_at_all --collect-only\n")
    (folder / "setup.cfg").write_text("[tool:pytest]\naddopts = --collect-only\n")


def written(name: str, text: str, beside: bool = False) -> Change:
    def change(folder: Path, row: Row) -> None:
        for place in {folder, *(path.parent for path in tests_of(folder, row) if beside)}:
            (place / name).write_text(text)

    return change


def plugin(folder: Path, row: Row) -> None:
    (folder / "helper_plugin.py").write_text(FORGED)
    told = folder / "helper-1.0.dist-info"
    told.mkdir()
    (told / "METADATA").write_text("Metadata-Version: 2.1\nName: helper\nVersion: 1.0\n")
    (told / "entry_points.txt").write_text("[pytest11]\nhelper = helper_plugin\n")


def compiled(folder: Path, row: Row) -> None:
    """What pytest (9.1 or newer, of this version) keeps of a rewritten test module, saying that all is well."""
    for path in tests_of(folder, row):
        cache = path.parent / "__pycache__"
        cache.mkdir(exist_ok=True)
        code = marshal.dumps(compile("def test_x(): pass", str(path), "exec"))
        head = importlib.util.MAGIC_NUMBER + struct.pack("<L", 3) + importlib.util.source_hash(path.read_bytes())
        (cache / f"{path.stem}{PYC_TAIL}").write_bytes(head + code)


def in_source(text: str) -> Change:
    def change(folder: Path, row: Row) -> None:
        for path in source_of(folder, row):
            path.write_text(path.read_text() + "\n" + textwrap.dedent(text))

    return change


def link(folder: Path, row: Row) -> None:
    """The folder of the tests becomes a link to one whose tests pass."""
    weakened(folder, row)
    for path in tests_of(folder, row)[:1]:
        top = folder / path.relative_to(folder).parts[0]
        if top.is_dir():
            shutil.move(top, folder / "elsewhere")
            os.symlink("elsewhere", top)
        else:
            shutil.move(top, folder / "elsewhere.py")
            os.symlink("elsewhere.py", top)


def both(*changes: Change) -> Change:
    def change(folder: Path, row: Row) -> None:
        for one in changes:
            one(folder, row)

    return change


def nothing(folder: Path, row: Row) -> None:
    pass


PATCHES: dict[str, tuple[Change, bool, float]] = {  # what is changed, in the solved files or those of the beginning
    "reference": (nothing, True, 1.0),
    "empty": (nothing, False, 0.0),
    "tests deleted": (deleted, False, 0.0),
    "tests weakened": (weakened, False, 0.0),
    "tests linked away": (link, False, 0.0),
    "conftest xfails all": (written("conftest.py", SKIPS, beside=True), False, 0.0),
    "conftest forges reports": (written("conftest.py", FORGED, beside=True), False, 0.0),
    "settings of pytest": (settings, False, 0.0),
    "a plug-in planted": (plugin, False, 0.0),
    "sitecustomize": (written("sitecustomize.py", "import os\nos._exit(0)\n"), False, 0.0),
    "pytest.py": (written("pytest.py", "import sys\nsys.exit(0)\n"), False, 0.0),
    "compiled tests": (compiled, False, 0.0),
    "results written": (written("junit.xml", JUNIT), False, 0.0),
    "source exits with 0": (in_source("import os as _o\n_o._exit(0)"), False, 0.0),
    "source forges reports": (in_source(IN_MEMORY), False, 0.0),
    "solved, tests deleted": (deleted, True, 1.0),
    "solved, tests weakened": (both(weakened, settings), True, 1.0),
}

if __name__ == "__main__":
    try:
        main()
    except BadInput as error:
        raise SystemExit(str(error)) from None
