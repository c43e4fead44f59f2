"""The candidates: mutants of functions with what four critics and the oracle say of each, all run in the sandbox.

L0 ``ast.parse``; L1 no crash on six fuzzed inputs; L2 the first test; L3 agreement with the plurality of seven other
candidates on the fuzzed inputs; oracle: all tests, and 25 fuzzed inputs compared with the right function. ``he``:
HumanEval's functions and tests; ``std``: functions of Python's own library that are written
in Python, ``stdlib.json``: (module, functions and classes that may change, call over a, b and c, inputs to begin from).
Their tests are generated: the first input is the visible test, all of them and what they are perturbed into are
compared with the unchanged function.
"""

import ast
import gzip
import importlib
import inspect
import json
import random
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from clew.coding.repairs.mutants import mutants
from clew.sandbox.sandbox import Limits, Sandbox
from papers.experiment import Line, each

DATA = Path(__file__).resolve().parents[3] / "shared" / "data" / "code" / "humaneval.even.jsonl.gz"
INSIDE = (Path(__file__).parent / "inside.py").read_text()
ENTRIES = json.loads(Path(__file__).with_name("stdlib.json").read_text())
VARIANTS = 24
CRITICS = ("L0", "L1", "L2", "L3")
cost = 1.5


def cells(quick: bool) -> Iterator[Line]:
    """One a function; HumanEval's where the data are here."""
    problems = sorted(humaneval()) if DATA.exists() else []
    for name in problems[:8] if quick else problems:
        yield {"kind": "he", "program": name, "seed": 0}
    for i, (module, *_) in enumerate(ENTRIES[:8] if quick else ENTRIES):
        yield {"kind": "std", "program": f"{i:02d} {module}", "seed": 0}


@lru_cache(maxsize=1)
def humaneval() -> dict[str, Line]:
    with gzip.open(DATA, "rt") as lines:
        return {p["task_id"]: p for p in map(json.loads, lines)}


@lru_cache(maxsize=1)
def box() -> Sandbox:
    return Sandbox(Limits(wall=240.0, cpu=60.0, memory=1 << 30, processes=16, output=1 << 24))


def job(cell: Line) -> Line:
    """What goes inside: the right source and its mutants, and how they are called."""
    if cell["kind"] == "he":
        p = humaneval()[cell["program"]]
        source = ast.unparse(ast.parse(p["prompt"] + p["canonical_solution"]))
        names = ", ".join("abc"[: _arity(source, p["entry_point"])])
        how = {"call": f"{p['entry_point']}({names})", "entry": p["entry_point"], "test": p["test"]}
        within: list[str] = []
    else:
        module, within, call, inputs = ENTRIES[int(cell["program"].split()[0])]
        source = ast.unparse(ast.parse(inspect.getsource(importlib.import_module(module))))
        how = {"call": call, "inputs": inputs}
    made = mutants(source, VARIANTS, seed=cell["seed"], within=tuple(within))
    return {**how, "variants": [source, *made], "seed": cell["seed"]}


def _arity(source: str, entry: str) -> int:
    return next(len(n.args.args) for n in ast.walk(ast.parse(source)) if getattr(n, "name", "") == entry)


def _one(setting: Line, seed: int) -> Line:
    cell = {**setting, "seed": seed}
    given = job(cell)
    verdict = box().run(["python3", "inside.py"], {"inside.py": INSIDE}, stdin=json.dumps(given))
    if not verdict.ok:
        told = verdict.stderr.decode(errors="replace").strip().splitlines()
        return {"unusable": f"{verdict}: {told[-1] if told else ''}"}
    found = json.loads(verdict.stdout)
    smoke, tests, wanted, results = (found[k] for k in ("smoke", "tests", "wanted", "results"))
    if not tests or len(wanted) < smoke + tests + 5 or results[0] != wanted:
        return {
            "unusable": f"{tests} tests, {len(wanted)} inputs; the right variant repeats itself: {results[0] == wanted}"
        }
    fuzzed = [tuple(r[:smoke] + r[smoke + tests :]) for r in results]
    said = {
        "L0": [_parses(source) for source in given["variants"]],
        "L1": [not any(o == "T" or o.startswith("!") for o in r[:smoke]) for r in results],
        "L2": [r[smoke] == wanted[smoke] for r in results],
        "L3": [_agrees(i, fuzzed, cell) for i in range(len(results))],
    }
    good = [r == wanted for r in results]
    bits = {name: "".join(str(int(v)) for v in values) for name, values in {**said, "y": good}.items()}
    return {**bits, "inputs": len(wanted), "sandbox_s": round(verdict.seconds, 2)}


def _parses(source: str) -> bool:
    try:
        ast.parse(source)
    except SyntaxError:
        return False
    return True


def _agrees(i: int, fuzzed: list[tuple[str, ...]], cell: Line) -> bool:
    rng = random.Random(f"{cell['program']}/{i}")
    others = rng.sample([r for j, r in enumerate(fuzzed) if j != i], min(7, len(fuzzed) - 1))
    return bool(others) and Counter(others).most_common(1)[0][0] == fuzzed[i]


run = each(_one)
