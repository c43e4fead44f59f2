"""Tier R, repair: one cell is one seeded mutation in a package of standard-library modules.

An agent tries single edits, line by line, each tried by its failing test in the sandbox, until one passes or 60 test
runs are spent; it has resolved the bug where all tests of the module pass then. The weak agent takes lines in random
order, the strong one by Ochiai over coverage. Findings put their lines first: none, all, gated by confidence, shuffled
(of another module), oracle (the function of the bug).
"""

import ast
import functools
import inspect
import json
import math
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from clew.coding.repository.repository import Index, View
from clew.methods.diagnose.choose import Chooser
from clew.methods.diagnose.code_tools import Tools
from clew.methods.diagnose.confidence import features
from clew.methods.diagnose.finding import Finding
from clew.methods.diagnose.known import ELSEWHERE
from clew.sandbox.sandbox import Limits, Sandbox
from papers.E169_sherloc.mutants import Change, changes, sources
from papers.experiment import Line, apart, each, grid

BUGS, QUICK = 32, 3
BUDGET = 60
WAVE = 12  # edits of each plan that go to the sandbox at once
AGENTS = ("weak", "strong")
CONDITIONS = ("none", "all", "gated", "shuffled", "oracle")
ROOM = Path(__file__).with_name("room.py")
LIMITS = Limits(wall=300, cpu=300, memory=1 << 30, output=64 << 20, disk=64 << 20)
Place = tuple[str, int]  # module, line
cost = 8.0


portions = apart


def cells(quick: bool) -> Iterator[Line]:
    yield from grid(kind="repair", seed=range(QUICK if quick else BUGS))


@functools.cache
def sandbox() -> Sandbox:
    return Sandbox(LIMITS, readable=[sys.base_prefix])  # the standard library alone is needed


def tried(module: str, jobs: Sequence[Mapping[str, str]], trace: bool = False) -> list[Line]:
    """Outcomes of jobs, in order, from the sandbox; of jobs it did not come to, none."""
    paths = (
        {name: inspect.getsourcefile(sys.modules.get(name) or __import__(name)) for name in sources()} if trace else {}
    )
    order = {"module": module, "jobs": list(jobs), "trace": paths}
    python = str(Path(sys.base_prefix) / "bin" / f"python{sys.version_info[0]}.{sys.version_info[1]}")
    done = sandbox().run([python, "-I", "room.py"], {"room.py": ROOM.read_bytes()}, stdin=json.dumps(order))
    lines = [json.loads(line) for line in done.stdout.decode().splitlines()]
    if done.limit or not lines:
        raise RuntimeError(f"the sandbox: {done}; {done.stderr.decode()[-500:]}")
    return lines


class Bug:
    """A seeded mutation that some tests of its module catch, and not all of them."""

    def __init__(self, seed: int) -> None:
        dice = random.Random(seed)
        names = sorted(sources())
        while True:
            self.module = dice.choice(names)
            options = changes(sources()[self.module])
            picks = dice.sample(options, min(6, len(options)))
            mutants = [change.apply(sources()[self.module]) for change in picks]
            sound = _healthy(self.module)
            found = tried(self.module, [{"source": m, "test": ""} for m in mutants]) if sound else []
            for change, mutant, outcome in zip(picks, mutants, found, strict=True):
                failing = sorted(t for t, said in (outcome["outcomes"] or {}).items() if said and t in sound)
                if 0 < len(failing) < len(sound):
                    self.change, self.source, self.failing = change, mutant, failing
                    self.test, self.message = failing[0], outcome["outcomes"][failing[0]]
                    return

    @property
    def report(self) -> str:
        """What a user would send: the test's name, its message, and its source."""
        method, case = self.test.rpartition(".")[2], self.test.rpartition(".")[0].rpartition(".")[2]
        return f"{method} fails\n\n{self.message}\n\n{_body(self.module, case, method)}"


@functools.cache
def _healthy(module: str) -> frozenset[str]:
    """Tests of a module that pass in the sandbox as it is."""
    outcome = tried(module, [{"source": sources()[module], "test": ""}])[0]
    return frozenset(test for test, said in (outcome["outcomes"] or {}).items() if not said)


def _body(module: str, case: str, method: str) -> str:
    """The source of a test method, wherever it is inherited from in its file."""
    found = __import__("importlib.util").util.find_spec(f"test.test_{module}")
    text = Path(found.origin).read_text()
    named = [n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.FunctionDef) and n.name == method]
    return ast.get_source_segment(text, named[0]) or "" if named else ""


@functools.cache
def _index() -> Index:
    return Index()


def diagnosed(bug: Bug) -> tuple[list[Finding], list[float]]:
    """Findings of the deterministic chooser for the bug's report, in a repository of the package's sources."""
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder) / "package"
        package.mkdir()
        for name, source in sources().items():
            (package / f"{name}.py").write_text(bug.source if name == bug.module else source)
        subprocess.run(["git", "init", "-q", folder], check=True)
        chooser = Chooser.over(Tools(View(folder, "", _index())))
        found = chooser.findings(bug.report)
        ranking = chooser.ranking(bug.report)
        sure = [ELSEWHERE(features(ranking, f.file, f.start, f.end)) for f in found]
    return found, sure


def repaired(setting: Line, seed: int) -> Line:
    """One bug under every agent and condition."""
    bug = Bug(seed)
    every = {name: changes(bug.source if name == bug.module else source) for name, source in sources().items()}
    options: dict[Place, list[tuple[str, Change]]] = {}
    for name, found in every.items():
        for change in found:
            options.setdefault((name, change.line), []).append((name, change))
    findings, sure = diagnosed(bug)
    orders = _orders(bug, seed, options)
    first = {condition: _injected(bug, seed, condition, findings, sure) for condition in CONDITIONS}
    plans = {(a, c): _plan(orders[a], first[c], options) for a in AGENTS for c in CONDITIONS}
    outcome = _outcomes(bug, list(plans.values()))
    results = {f"{a} {c}": _result(bug, plan, outcome) for (a, c), plan in plans.items()}
    right = [Path(f.file).stem == bug.module for f in findings]
    return {
        "module": bug.module,
        "line": bug.change.line,
        "tests": len(bug.failing),
        "right": right[:1] == [True],
        "inside": bool(findings) and right[0] and findings[0].start <= bug.change.line <= findings[0].end,
        "confidence": round(sure[0], 4) if sure else 0.0,
        "results": results,
    }


def _orders(bug: Bug, seed: int, options: Mapping[Place, Any]) -> dict[str, list[Place]]:
    weak = sorted(options)
    random.Random(1_000_000 + seed).shuffle(weak)
    traced = tried(bug.module, [{"source": bug.source, "test": ""}], trace=True)[0]
    failing = set(bug.failing)
    hit: dict[Place, list[int]] = {}
    for test, lines in (traced.get("covered") or {}).items():
        for name, line in lines:
            hit.setdefault((name, line), [0, 0])[test not in failing] += 1
    suspicion = {place: f / math.sqrt(len(failing) * (f + p)) for place, (f, p) in hit.items() if f}
    return {"weak": weak, "strong": sorted(options, key=lambda place: (-suspicion.get(place, 0.0), place))}


def _injected(
    bug: Bug, seed: int, condition: str, findings: Sequence[Finding], sure: Sequence[float]
) -> list[tuple[str, int, int]]:
    """Spans that the agent is told, in order."""
    spans = [(Path(f.file).stem, f.start, f.end) for f in findings]
    if condition == "all":
        return spans
    if condition == "gated":
        return [span for span, p in zip(spans, sure, strict=True) if p >= ELSEWHERE.cut]
    if condition == "shuffled":
        others = [name for name in sorted(sources()) if name != bug.module]
        name = random.Random(2_000_000 + seed).choice(others)
        lines = sorted({c.line for c in changes(sources()[name])})
        start = random.Random(3_000_000 + seed).choice(lines)
        return [(name, start, start + (spans[0][2] - spans[0][1] if spans else 20))]
    if condition == "oracle":
        nodes = [n for n in ast.walk(ast.parse(bug.source)) if isinstance(n, ast.FunctionDef)]
        around = [n for n in nodes if n.lineno <= bug.change.line <= (n.end_lineno or 0)]
        inner = min(around, key=lambda n: (n.end_lineno or 0) - n.lineno, default=None)
        return [
            (bug.module, inner.lineno, inner.end_lineno or 0)
            if inner
            else (bug.module, bug.change.line, bug.change.line)
        ]
    return []


def _plan(
    order: Sequence[Place], spans: Sequence[tuple[str, int, int]], options: Mapping[Place, list[tuple[str, Change]]]
) -> list[tuple[str, Change]]:
    """The edits an agent tries, at most the budget: told spans first, then the rest of the files named, then all; its
    own order within each."""
    files = list(dict.fromkeys(name for name, _, _ in spans))

    def told(place: Place) -> int:
        inside = next((k for k, (n, a, b) in enumerate(spans) if n == place[0] and a <= place[1] <= b), len(spans))
        if inside < len(spans):
            return inside
        return len(spans) + (files.index(place[0]) if place[0] in files else len(files))

    steps: list[tuple[str, Change]] = []
    for place in sorted(order, key=told):
        steps += options[place]
        if len(steps) >= BUDGET:
            break
    return steps[:BUDGET]


def _outcomes(bug: Bug, plans: Sequence[Sequence[tuple[str, Change]]]) -> dict[tuple[str, Change], bool]:
    """Whether the failing test passes after each edit of the plans, as far as they come before one that does.

    An edit of another module leaves the bug where it is: a test run is spent on it all the same.
    """
    out = {step: False for plan in plans for step in plan if step[0] != bug.module}
    for until in range(WAVE, BUDGET + WAVE, WAVE):
        going = [plan for plan in plans if not any(out.get(step) for step in plan[: until - WAVE])]
        here = sorted({step for plan in going for step in plan[:until]} - set(out))
        jobs = [{"source": change.apply(bug.source), "test": bug.test} for _, change in here]
        found = tried(bug.module, jobs) if jobs else []
        for step, outcome in zip(here, found, strict=True):
            out[step] = bool(outcome["outcomes"]) and not any(outcome["outcomes"].values())
    return out


@functools.lru_cache(maxsize=256)
def _sound(module: str, source: str) -> bool:
    """Whether all tests that passed before pass."""
    outcome = tried(module, [{"source": source, "test": ""}])[0]
    return all((outcome["outcomes"] or {}).get(test, "missing") == "" for test in _healthy(module))


def _result(bug: Bug, plan: Sequence[tuple[str, Change]], outcome: Mapping[tuple[str, Change], bool]) -> Line:
    """Whether it was resolved, test runs used, and of them those before the first on the line of the bug."""
    runs = next((k for k, step in enumerate(plan, 1) if outcome.get(step)), None)
    at = next((k for k, (name, c) in enumerate(plan) if name == bug.module and c.line == bug.change.line), len(plan))
    resolved = runs is not None and _sound(bug.module, plan[runs - 1][1].apply(bug.source))
    used = runs if runs is not None else len(plan)
    return {"resolved": resolved, "passed": runs is not None, "runs": used, "before": min(at, used)}


run = each(repaired)
