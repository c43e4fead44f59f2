"""Mutation testing: small faults are put into chosen modules, one at a time, and the tests must notice each.

python tools/mutants.py                 # 250 mutants of seed 14: prints which survived, exits 1 where under 95 % died
python tools/mutants.py -n 40 --seed 7  # a sample, as `make nightly` runs
python tools/mutants.py --only credit/alias --list
python tools/mutants.py -n 60 --quick   # by the tests of `make test` alone; without it, only what survived runs again

Mutants are drawn by seed, equally many from each module where it has as many. A mutant dies when one of the module's
tests fails or takes far longer than without the mutant. A mutant that no test could tell from the original is listed in
`mutants_equivalent.txt` with its reason and is not drawn. What was found is kept in `.clew/mutants/`, so that a run
that was interrupted goes on. A change of the module or of its tests makes its mutants run again.
"""

from __future__ import annotations

import argparse
import ast
import compileall
import copy
import hashlib
import importlib.util
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
KEPT = ROOT / ".clew" / "mutants"
EQUIVALENT = Path(__file__).with_name("mutants_equivalent.txt")
MARK = 0.95

MODULES: dict[str, tuple[str, ...]] = {
    "methods/compare/design": ("audit/test_design.py", "core/test_stats.py"),
    "core/keys": ("core/test_keys.py", "store/test_contract.py", "harness/test_replay.py"),
    "core/legality": ("core/test_legality.py", "core/test_keys.py"),
    "core/stats": ("core/test_stats.py", "audit/test_design.py"),
    "credit/alias": ("credit/test_alias.py", "credit/test_tabular.py"),
    "exchange/transcript": ("exchange/test_transcript.py", "exchange", "serve/test_gateway.py"),
    "harness/fork/edits": ("harness/test_fork.py", "harness/test_tree.py", "compat", "cli/test_trees.py"),
    "harness/run/dispatch": (
        "harness/test_failing.py",
        "harness/test_giving_up.py",
        "harness/test_replay.py",
        "harness/test_fork.py",
        "harness/test_resume.py",
    ),
    "harness/run/run_state": (
        "harness/test_replay.py",
        "harness/test_fork.py",
        "harness",
        "models/test_remote_runs.py",
    ),
    "harness/run/tape": (
        "harness/test_tape.py",
        "harness/test_replay.py",
        "harness/test_fork.py",
        "harness/test_giving_up.py",
        "compat",
    ),
    "models/engine/live_batch": ("engine/test_engine.py", "engine/test_speculate_rounds.py", "engine"),
    "models/engine/speculation/verification": ("engine/test_speculate.py", "engine/test_speculate_rounds.py"),
    "sandbox/archives": ("worlds/test_archives.py", "worlds/test_sandbox.py"),
    "serve/history": ("serve/test_history.py", "serve/test_gateway.py"),
    "store/query": ("store", "cli/test_verbs.py", "view/test_live.py"),
    "store/sql/ranges": ("store",),
    "store/sql/row_codec": ("store", "compat"),
    "train/rows": ("train/test_rows.py", "train/test_losses.py"),
}
"""Module of src/clew -> the tests that hold it, those that fail soonest first."""

SWAPPED: dict[type[ast.AST], type[ast.AST]] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult,
    ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.LShift: ast.RShift, ast.RShift: ast.LShift,
}  # fmt: skip
CALLS = {"min": "max", "max": "min", "any": "all", "all": "any"}


class Mutant(NamedTuple):
    """One fault: `new` stands where `old` stood at `start` (bytes into the module's file)."""

    module: str
    function: str
    old: str
    new: str
    line: int
    start: int
    nth: int
    """How many times the same function has the same change before this one."""

    @property
    def name(self) -> str:
        """What names the mutant while lines move: module, function, both texts, and which of equal ones."""
        texts = (" ".join(text.split()) for text in (self.old, self.new))
        return " | ".join((f"{self.module}:{self.function}", *texts, str(self.nth)))


def source(module: str) -> Path:
    return ROOT / "src" / "clew" / f"{module}.py"


def changes(node: ast.AST) -> Iterator[ast.AST]:
    """The node's twins with one fault each."""
    if isinstance(node, ast.Compare):
        for at, op in enumerate(node.ops):
            if type(op) in SWAPPED:
                twin = copy.deepcopy(node)
                twin.ops[at] = SWAPPED[type(op)]()  # type: ignore[call-overload]
                yield twin
    elif isinstance(node, ast.BoolOp | ast.BinOp) and type(node.op) in SWAPPED:
        twin = copy.deepcopy(node)
        twin.op = SWAPPED[type(node.op)]()  # type: ignore[assignment]
        yield twin
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub):
        yield node.operand
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float):
        yield ast.Constant(not node.value if isinstance(node.value, bool) else node.value + 1)
    elif isinstance(node, ast.IfExp):
        yield ast.IfExp(node.test, node.orelse, node.body)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in CALLS:
        yield ast.Call(ast.Name(CALLS[node.func.id]), node.args, node.keywords)
    elif isinstance(node, ast.Return) and not (node.value is None or isinstance(node.value, ast.Constant)):
        yield ast.Return(ast.Constant(None))
    elif isinstance(node, ast.Continue | ast.Break):
        yield ast.Break() if isinstance(node, ast.Continue) else ast.Continue()
    elif isinstance(node, ast.AugAssign | ast.Raise) or _is_call(node):
        yield ast.Pass()


def _is_call(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)


def places(tree: ast.AST, function: str = "") -> Iterator[tuple[ast.AST, str]]:
    """All nodes that run in a function's body, with the function's name: no annotations, no text, no docstrings."""
    for field, value in ast.iter_fields(tree):
        if field in ("annotation", "returns", "decorator_list", "type_params"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST) or isinstance(child, ast.JoinedStr | ast.Import | ast.ImportFrom):
                continue
            inside = function
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                inside = f"{function}.{child.name}".lstrip(".")
            if function and not isinstance(tree, ast.ClassDef):
                yield child, inside
            yield from places(child, inside)


def mutants(module: str) -> list[Mutant]:
    """All mutants of a module, in the order of its text."""
    data = source(module).read_bytes()
    starts = [0]
    for line in data.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    found: list[Mutant] = []
    for node, function in places(ast.parse(data)):
        for twin in changes(node):
            start = starts[node.lineno - 1] + node.col_offset  # type: ignore[attr-defined]
            end = starts[node.end_lineno - 1] + node.end_col_offset  # type: ignore[attr-defined]
            old = data[start:end].decode()
            new = ast.unparse(twin) if isinstance(twin, ast.stmt) else f"({ast.unparse(twin)})"
            same = sum((m.function, m.old, m.new) == (function, old, new) for m in found)
            found.append(Mutant(module, function, old, new, node.lineno, start, same))  # type: ignore[attr-defined]
    return found


def equivalent() -> dict[str, str]:
    """Name of a mutant that changes nothing a caller could see -> why. Lines are `name => reason`."""
    lines = EQUIVALENT.read_text().splitlines() if EQUIVALENT.exists() else []
    pairs = (line.split(" => ", 1) for line in lines if " => " in line and not line.startswith("#"))
    return {name.strip(): why.strip() for name, why in pairs}


def drawn(modules: list[str], n: int, seed: int) -> list[Mutant]:
    """`n` mutants by seed: each module gives one in turn until enough are drawn or none is left."""
    known = equivalent()
    pools = []
    for module in modules:
        pool = [m for m in mutants(module) if m.name not in known]
        random.Random(f"{seed} {module}").shuffle(pool)
        pools.append(pool)
    turns = [pool[turn] for turn in range(max(map(len, pools), default=0)) for pool in pools if turn < len(pool)]
    return sorted(turns[:n], key=lambda m: (m.module, m.start))


def state(module: str) -> str:
    """A digest of the module and its tests: what was found holds for this state."""
    files = [source(module)]
    for place in MODULES[module]:
        path = ROOT / "tests" / place
        files += sorted(path.rglob("*.py")) if path.is_dir() else [path]
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:16]


class InOrder:
    """A plugin of pytest: tests run in the order of these places, whatever order a whole run likes."""

    def __init__(self, chosen: list[str]) -> None:
        self.chosen = chosen

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        items.sort(key=lambda item: next(n for n, place in enumerate(self.chosen) if item.nodeid.startswith(place)))


class Room:
    """A copy of source and tests in which one module is changed at a time; tests run in a forked process of ours."""

    def __init__(self, quick: bool) -> None:
        self.marked = ["-m", "not whole"] if quick else []
        self.root = Path(tempfile.mkdtemp(prefix="clew-mutants-"))
        for name in ("src", "tests", "tools", "docs", "papers", "examples", "benchmarks"):
            shutil.copytree(ROOT / name, self.root / name, ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("pyproject.toml", "README.md"):
            shutil.copy(ROOT / name, self.root)
        compileall.compile_dir(str(self.root / "src"), quiet=1)

    def run(self, module: str, text: bytes, limit: float) -> tuple[str, float]:
        """How the module's tests end when its file holds `text` ("passed", "failed", "timeout"), and the seconds."""
        path = self.root / source(module).relative_to(ROOT)
        kept, began = path.read_bytes(), time.monotonic()
        path.write_bytes(text)
        Path(importlib.util.cache_from_source(str(path))).unlink(missing_ok=True)
        try:
            pid = os.fork()
            if pid == 0:
                self._tests(module)
            while time.monotonic() - began < limit:
                done, status = os.waitpid(pid, os.WNOHANG)
                if done:
                    return ("passed" if os.waitstatus_to_exitcode(status) == 0 else "failed"), time.monotonic() - began
                time.sleep(0.05)
            os.killpg(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return "timeout", time.monotonic() - began
        finally:
            path.write_bytes(kept)

    def _tests(self, module: str) -> None:
        """In the child: the module's tests, stopped at the first failure. Never returns."""
        code = 70
        try:
            os.setsid()
            os.chdir(self.root)
            out = os.open(self.root / "output.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            for stream in (0, 1, 2):
                os.dup2(out if stream else os.open(os.devnull, os.O_RDONLY), stream)
            sys.dont_write_bytecode = True
            os.environ |= {"PYTHONPATH": f"{self.root / 'src'}", "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}
            sys.path.insert(0, str(self.root / "src"))
            import pytest
            from hypothesis import Phase, settings

            # The first example that fails is enough, small or not.
            settings.register_profile("mutants", phases=[Phase.explicit, Phase.reuse, Phase.generate])
            settings.load_profile("mutants")
            chosen = [f"tests/{place}" for place in MODULES[module]]
            options = [*self.marked, "-x", "--no-header", "-W", "ignore::pytest.PytestAssertRewriteWarning"]
            code = int(pytest.main([*options, *chosen], plugins=[InOrder(chosen)]))
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)


def preload() -> None:
    """Import what tests import and no mutant touches, once, before processes are forked."""
    import pytest  # noqa: F401
    import torch  # noqa: F401
    import transformers  # noqa: F401

    assert not any(name.partition(".")[0] == "clew" for name in sys.modules), "clew is imported before its mutants"


def judge(chosen: list[Mutant], share: tuple[int, int] = (0, 1), quick: bool = False) -> None:
    """Run the mutants of one share (number, of how many) and keep how each ended in `.clew/mutants/`."""
    KEPT.mkdir(parents=True, exist_ok=True)
    room, limits = Room(quick), dict[str, float]()
    try:
        for at, mutant in enumerate(chosen):
            place = kept(mutant, quick)
            if at % share[1] != share[0] or ended_as(mutant, quick):
                continue
            original = source(mutant.module).read_bytes()
            if mutant.module not in limits:
                ended, seconds = room.run(mutant.module, original, 1800)
                if ended != "passed":
                    tail = (room.root / "output.txt").read_text()[-2000:]
                    raise SystemExit(f"the tests of {mutant.module} fail without a mutant:\n{tail}")
                limits[mutant.module] = 3 * seconds + 60
            end = mutant.start + len(mutant.old.encode())
            text = original[: mutant.start] + mutant.new.encode() + original[end:]
            ended, seconds = room.run(mutant.module, text, limits[mutant.module])
            place.write_text(json.dumps({"name": mutant.name, "ended": ended, "seconds": round(seconds, 1)}))
            change = f"{mutant.old!r} -> {mutant.new!r}"
            print(f"{ended:8} {seconds:6.1f} s  {mutant.module}:{mutant.line}  {change}", flush=True)
    finally:
        shutil.rmtree(room.root, ignore_errors=True)


def kept(mutant: Mutant, quick: bool) -> Path:
    """Where it is kept how a mutant ended, under the quick tests alone or all."""
    named = hashlib.sha256((state(mutant.module) + mutant.name).encode()).hexdigest()[:24]
    return KEPT / f"{named}{'-quick' if quick else ''}.json"


def ended_as(mutant: Mutant, quick: bool) -> str:
    """How a mutant ended; empty if that is not known. One that the quick tests notice, all tests notice."""
    places = [kept(mutant, quick), *([] if quick else [kept(mutant, True)])]
    ends = [json.loads(place.read_text())["ended"] for place in places if place.exists()]
    died = next((ended for ended in ends if ended != "passed"), "")
    return died or ("passed" if places[0].exists() else "")


def table(chosen: list[Mutant], quick: bool) -> int:
    """Print deaths per module and each survivor; 0 where enough died."""
    ends = {mutant: ended for mutant in chosen if (ended := ended_as(mutant, quick))}
    for module in sorted({mutant.module for mutant in ends}):
        mine = [ended for mutant, ended in ends.items() if mutant.module == module]
        print(f"{sum(ended != 'passed' for ended in mine):4d} of {len(mine):3d} died  {module}")
    for mutant, ended in ends.items():
        if ended == "passed":
            print(f"survived  src/clew/{mutant.module}.py:{mutant.line}\n          {mutant.name}")
    died = sum(ended != "passed" for ended in ends.values())
    share = died / max(len(ends), 1)
    print(f"{died} of {len(ends)} mutants died ({share:.1%}); {len(equivalent())} equivalents are listed")
    return 0 if ends and share >= MARK else 1


def main() -> int:
    parser = argparse.ArgumentParser(description="Mutation testing of chosen modules.")
    parser.add_argument("-n", type=int, default=250, help="how many mutants are drawn (default 250)")
    parser.add_argument("--seed", type=int, default=14, help="seed of the draw (default 14)")
    parser.add_argument("--only", nargs="+", choices=sorted(MODULES), help="these modules alone")
    parser.add_argument("--share", default="0/1", help="this share of the work, as 0/2 and 1/2 for two processes")
    parser.add_argument("--quick", action="store_true", help="by the tests of `make test` alone")
    parser.add_argument("--list", action="store_true", help="list the mutants without running them")
    parser.add_argument("--table", action="store_true", help="print what is known without running anything")
    options = parser.parse_args()
    chosen = drawn(options.only or sorted(MODULES), options.n, options.seed)
    if options.list:
        print("\n".join(f"{m.line:4d}  {m.name}" for m in chosen))
        return 0
    if not options.table:
        preload()
        number, of = map(int, options.share.split("/"))
        judge(chosen, (number, of), options.quick)
    return table(chosen, options.quick)


if __name__ == "__main__":
    raise SystemExit(main())
