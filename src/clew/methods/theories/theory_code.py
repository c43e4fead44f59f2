"""A theory as Python source that a model wrote: read by a whitelist of syntax, and run in the sandbox alone.

``theory_writer.py`` and the closed loop call it. The source must never be run in this process. Two walls stand: what is
not on the list of syntax and names is refused with its name and line before anything runs (imports, attributes, names
with two underscores, strings with holes), and what passes runs in ``clew.sandbox`` with a list of built-in functions of
its own. It gives probabilities and nothing else: they are compared with people's choices out here, so that it cannot
grade itself. Choices go in only where the source names ``history``, and then it gets one person's earlier ones.
"""

from __future__ import annotations

import ast
import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from clew.core.errors import BadInput, WorldError
from clew.core.printable import short
from clew.methods.theories.choice_fits import Choices, cells
from clew.sandbox.sandbox import Limits, Sandbox

F64 = npt.NDArray[np.float64]
LONGEST, MOST_NODES, MOST_PARAMETERS, MOST_ASKED = 8_000, 2_000, 8, 2_000_000
LIMITS = Limits(wall=20.0, cpu=20.0, memory=256 << 20, processes=8, disk=32 << 20)
ARGUMENTS = ("a", "b", "validities", "history", "p")
NUMBERS = ("exp", "log", "log1p", "sqrt", "tanh", "floor", "ceil")
NAMES = (
    "abs",
    "all",
    "any",
    "bool",
    "enumerate",
    "float",
    "int",
    "len",
    "list",
    "max",
    "min",
    "range",
    "reversed",
    "round",
    "sorted",
    "sum",
    "tuple",
    "zip",
    *NUMBERS,
)
NODES = (
    ast.Module,
    ast.FunctionDef,
    ast.arguments,
    ast.arg,
    ast.Return,
    ast.Assign,
    ast.AugAssign,
    ast.For,
    ast.While,
    ast.If,
    ast.Expr,
    ast.Pass,
    ast.Break,
    ast.Continue,
    ast.BoolOp,
    ast.BinOp,
    ast.UnaryOp,
    ast.Compare,
    ast.IfExp,
    ast.Call,
    ast.keyword,
    ast.Constant,
    ast.Name,
    ast.List,
    ast.Tuple,
    ast.Dict,
    ast.Subscript,
    ast.Slice,
    ast.Lambda,
    ast.ListComp,
    ast.GeneratorExp,
    ast.comprehension,
    ast.boolop,
    ast.operator,
    ast.unaryop,
    ast.cmpop,
    ast.expr_context,
    ast.alias,  # an alias stands in an import, which is refused
)
KINDS: Mapping[type[ast.AST], str] = {
    ast.Import: "import",
    ast.ImportFrom: "import",
    ast.Attribute: "attribute",
    ast.ClassDef: "class",
    ast.JoinedStr: "formatted string",
    ast.Try: "try",
    ast.With: "with",
    ast.Global: "global",
    ast.Nonlocal: "global",
}
# What runs in the sandbox: it reads theory.py and asked.json, and writes one line of JSON for each set of parameters.
ASKER = """
import json, math
asked = json.load(open("asked.json"))
names = {name: getattr(math, name) for name in asked["numbers"]}
plain = __builtins__ if isinstance(__builtins__, dict) else vars(__builtins__)
names |= {name: plain[name] for name in asked["names"] if name not in names}
space = {"__builtins__": names}
exec(compile(open("theory.py").read(), "theory.py", "exec"), space)
told, out = space["choose_b"], open("out.jsonl", "w")
for values in asked["parameters"]:
    row = []
    for a, b, before in asked["trials"]:
        p = float(told(list(a), list(b), list(asked["validities"]), list(before), dict(values)))
        if not 0.0 <= p <= 1.0:
            raise ValueError("no probability")
        row.append(p)
    out.write(json.dumps(row) + chr(10))
out.close()
"""


class Refusal(NamedTuple):
    """One thing that the whitelist does not hold: its kind, what it is, and the line."""

    kind: str
    what: str
    line: int

    def __str__(self) -> str:
        return f"line {self.line}: {self.kind} {short(self.what, 60)}".rstrip()


class BadTheory(BadInput):
    """Source that is no theory. refusals: what was refused, in the order of the lines."""

    def __init__(self, refusals: Sequence[Refusal]) -> None:
        self.refusals = tuple(refusals)
        told = "; ".join(str(one) for one in self.refusals[:3]) + ("; and more" if len(self.refusals) > 3 else "")
        super().__init__(
            f"not a theory that may be run: {told}",
            remedy="Write PARAMETERS and choose_b(a, b, validities, history, p) with arithmetic, loops and functions.",
        )

    @property
    def counted(self) -> Counter[str]:
        """Refusals by kind."""
        return Counter(one.kind for one in self.refusals)


class TheoryFailed(WorldError):
    """A theory that passed the whitelist and gave no probabilities. kind: which bound it met, "raised" or "answer"."""

    def __init__(self, kind: str, message: str) -> None:
        self.kind = kind
        super().__init__(message)


@dataclass(frozen=True, slots=True)
class TheoryCode:
    """A theory in source.

    source: Python, whitelisted. ranges: each parameter's lowest and highest value. memory: it looks at earlier choices.
    """

    source: str
    ranges: Mapping[str, tuple[float, float]]
    memory: bool

    @classmethod
    def read(cls, source: str) -> TheoryCode:
        """The theory in a source, which is not run.

        Raises:
            BadTheory: it holds what the whitelist does not, or lacks PARAMETERS or choose_b.
        """
        if len(source) > LONGEST:
            raise BadTheory([Refusal("length", f"of more than {LONGEST:,} characters", 1)])
        try:
            tree = ast.parse(source)
            nodes = list(ast.walk(tree))
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            line = (error.lineno or 1) if isinstance(error, SyntaxError) else 1
            raise BadTheory([Refusal("syntax", str(error) or type(error).__name__, line)]) from None
        if len(nodes) > MOST_NODES:
            raise BadTheory([Refusal("length", f"of more than {MOST_NODES:,} parts", 1)])
        defined = {node.name for node in nodes if isinstance(node, ast.FunctionDef)}
        found = [one for node in nodes for one in _refusals(node, defined)] + list(_outside(tree))
        if found:
            raise BadTheory(sorted(found, key=lambda one: one.line))
        uses = any(isinstance(node, ast.Name) and node.id == "history" for node in nodes)
        return cls(source, _ranges(tree), uses)

    def ask(self, box: Sandbox, choices: Choices, parameters: Sequence[Mapping[str, float]]) -> F64:
        """P(B) of each choice under each set of parameters, [sets, n], asked in the sandbox.

        Raises:
            BadInput: too much is asked at once. TheoryFailed: it met a bound, raised, or gave no probabilities.
        """
        known, trials, of = cells(choices), list[tuple[list[float], list[float], list[int]]](), None
        if self.memory:
            before: dict[int, list[int]] = {}
            for a, b, who, chose in zip(choices.a, choices.b, choices.subject, choices.chose_b, strict=True):
                seen = before.setdefault(int(who), [])
                trials.append((a.tolist(), b.tolist(), list(seen[-20:])))
                seen.append(int(chose))
        else:
            trials, of = [(a.tolist(), b.tolist(), []) for a, b in zip(known.a, known.b, strict=True)], known.of
        if len(trials) * len(parameters) > MOST_ASKED:
            raise BadInput(f"{len(parameters)} sets of parameters are too many", remedy="Ask for fewer at once.")
        asked = {
            "trials": trials,
            "parameters": [dict(one) for one in parameters],
            "names": NAMES,
            "numbers": NUMBERS,
            "validities": np.asarray(choices.validities, float).tolist(),
        }
        files = {"theory.py": self.source, "asked.json": json.dumps(asked), "main.py": ASKER}
        done = box.run(["python3", "-I", "-S", "main.py"], files, limits=LIMITS, keep=["out.jsonl"])
        if done.limit:
            raise TheoryFailed(done.limit, f"the theory met the limit {done.limit}")
        if not done.ok:
            told = done.stderr.decode("utf-8", "replace").strip().splitlines()
            raise TheoryFailed("raised", f"the theory raised {short(told[-1], 200) if told else 'an error'}")
        said = _answer(done.files.get("out.jsonl", b""), len(parameters), len(trials))
        return said if of is None else said[:, of]


def _refusals(node: ast.AST, defined: set[str]) -> Iterator[Refusal]:
    line = getattr(node, "lineno", 1)
    if not isinstance(node, NODES):
        what = ast.unparse(node) if isinstance(node, (ast.Import, ast.ImportFrom, ast.Attribute)) else ""
        yield Refusal(KINDS.get(type(node), "syntax"), what or type(node).__name__, line)
    for name in _named(node):
        if name.startswith("_") or name.endswith("__"):
            yield Refusal("hidden name", name, line)
    if isinstance(node, ast.Call):
        called = node.func.id if isinstance(node.func, ast.Name) else None
        if called is None or (called not in NAMES and called not in defined):
            yield Refusal("call", ast.unparse(node.func)[:200], line)
    elif isinstance(node, ast.FunctionDef):
        if node.decorator_list or node.args.defaults or node.args.kw_defaults or node.args.vararg or node.args.kwarg:
            yield Refusal("function", f"{node.name} with decorators, defaults or stars", line)
        if node.name in NAMES or any(arg.arg in NAMES or arg.arg in defined for arg in node.args.args):
            yield Refusal("function", f"{node.name} renames a function", line)
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and (node.id in NAMES or node.id in defined):
        yield Refusal("name", f"{node.id} is a function", line)
    elif isinstance(node, ast.Constant) and not isinstance(node.value, (bool, int, float, str, type(None))):
        yield Refusal("constant", type(node.value).__name__, line)


def _named(node: ast.AST) -> list[str]:
    match node:
        case ast.Name(id=name) | ast.arg(arg=name) | ast.FunctionDef(name=name):
            return [name]
        case ast.keyword(arg=str(name)):
            return [name]
    return []


def _outside(tree: ast.Module) -> Iterator[Refusal]:
    """What stands outside functions: PARAMETERS, numbers, functions and a docstring, nothing that runs."""
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    for node in tree.body:
        plain = isinstance(node, ast.Assign) and not any(isinstance(x, (ast.Call, ast.Lambda)) for x in ast.walk(node))
        if not (plain or isinstance(node, ast.FunctionDef) or (isinstance(node, ast.Expr) and _text(node.value))):
            yield Refusal("outside a function", ast.unparse(node)[:200], node.lineno)
    told = functions.get("choose_b")
    if told is None or tuple(arg.arg for arg in told.args.args) != ARGUMENTS:
        yield Refusal("missing", f"choose_b({', '.join(ARGUMENTS)})", told.lineno if told else 1)


def _text(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _ranges(tree: ast.Module) -> dict[str, tuple[float, float]]:
    """PARAMETERS as written, which is never evaluated."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "PARAMETERS":
            try:
                told = {str(k): (float(v[0]), float(v[1])) for k, v in ast.literal_eval(node.value).items()}
            except (ValueError, TypeError, AttributeError, LookupError, RecursionError, OverflowError):
                break
            ends = [x for low_high in told.values() for x in low_high]
            if len(told) <= MOST_PARAMETERS and all(map(math.isfinite, ends)) and all(x < y for x, y in told.values()):
                return told
            break
    want = f"PARAMETERS: at most {MOST_PARAMETERS}, each a name and its lowest and highest value"
    raise BadTheory([Refusal("missing", want, 1)])


def _answer(out: bytes, sets: int, n: int) -> F64:
    """What the sandbox wrote, as probabilities and nothing else."""
    try:
        said = np.array([json.loads(line) for line in out.splitlines()], float)
    except (ValueError, TypeError, RecursionError, OverflowError):
        said = np.zeros(0)
    if said.shape != (sets, n) or not (np.isfinite(said).all() and (said >= 0).all() and (said <= 1).all()):
        raise TheoryFailed("answer", "the theory gave no probabilities")
    return said
