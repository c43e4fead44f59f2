"""Fresh candidates for the stream, by a rule that was written down and committed before any of them was run.

The rule: every HumanEval problem with an even number (``../shared/data/code``), its reference as Python prints it, and
beside it nine candidates: three with a statement more that does nothing (INERT), three mutants of the reference
(``clew.coding.repairs.mutants``, seed SEED, the first three), and three mutants of those (the i-th: the first mutant of
mutant i that is new, seed SEED + 1 + i). Equal texts are taken once. Nothing is left out for what its runs say, but a
problem whose reference does not pass its own test. Label: the problem's whole test. Critics: ``compiles``
(``ast.parse``), ``lint`` (ruff's F and E9), ``first`` (the first assert), ``half`` (the first half of the asserts,
rounded up), ``last`` (the last assert).

There are two sets. On the first (``first``, SEED) the gate as it was first written was seen to miss its mark where the
best rule had two critics (1.07 and, after 100 labels, 1.05), and was mended: it now runs the other critics before the
oracle until 400 labels, counts what a second critic adds where the first passes, and asks of each critic that it tells
something beside the other. The second set (``second``, SEED + 1000, committed before it was run) is what counts.
"""

import ast
import json
from collections.abc import Iterator
from pathlib import Path

from clew.coding.repairs.mutants import mutants
from papers.E170_gate.tier_bench import DATA, box, humaneval
from papers.experiment import Line, each, grid

INSIDE = Path(__file__).with_name("inside_fresh.py").read_text()
SEED = 20261122
SEEDS = {"first": SEED, "second": SEED + 1000}
INERT = ("pass", "None", "'fresh'")  # statements that do nothing
CRITICS = ("compiles", "lint", "first", "half", "last")
cost = 1.3


def cells(quick: bool) -> Iterator[Line]:
    problems = sorted(humaneval(), key=lambda name: int(name.split("/")[1])) if DATA.exists() else []
    yield from grid(kind=list(SEEDS), program=problems[:8] if quick else problems, seed=0)


def candidates(name: str, seed: int = SEED) -> list[str]:
    """A problem's candidates, the reference first."""
    problem = humaneval()[name]
    source = ast.unparse(ast.parse(problem["prompt"] + problem["canonical_solution"]))
    broken = broken_of(source, 3, seed)
    second, known = list[str](), {source, *broken}
    for i, one in enumerate(broken):
        fresh = [text for text in broken_of(one, 4, seed + 1 + i) if text not in known]
        second += fresh[:1]
        known |= set(fresh[:1])
    return list(dict.fromkeys([source, *(inert(source, problem["entry_point"], s) for s in INERT), *broken, *second]))


def broken_of(source: str, n: int, seed: int) -> list[str]:
    """Mutants as they were written when the results were made: statement by statement, without blank lines between."""
    return ["\n".join(map(ast.unparse, ast.parse(text).body)) for text in mutants(source, n, seed=seed)]


def inert(source: str, entry: str, statement: str) -> str:
    """The source with a statement before the last of its function."""
    tree = ast.parse(source)
    function = next(n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == entry)
    function.body[-1:-1] = ast.parse(statement).body
    return ast.unparse(tree)


def _one(setting: Line, seed: int) -> Line:
    problem, given = humaneval()[setting["program"]], candidates(setting["program"], SEEDS[setting["kind"]])
    job = {"candidates": given, "test": problem["test"], "entry": problem["entry_point"]}
    verdict = box().run(["python3", "inside.py"], {"inside.py": INSIDE}, stdin=json.dumps(job))
    if not verdict.ok:
        told = verdict.stderr.decode(errors="replace").strip().splitlines()
        return {"unusable": f"{verdict}: {told[-1] if told else ''}"}
    found = json.loads(verdict.stdout)
    if not found[0]["y"]:
        return {"unusable": "the reference fails its own test"}
    return {name: "".join(str(x[name]) for x in found) for name in (*CRITICS, "y")}


run = each(_one)
