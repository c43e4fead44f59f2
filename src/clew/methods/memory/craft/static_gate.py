"""The static gate: what a drafted tool may be made of, read from its text before any of it is run.

``crafting.py`` and ``ModelCodifier`` call it. It proves that the tool is closed: every name in it is its own, a word of
Python, a symbol of an allowed library, or a tool that it may call by ``api``. It is no wall: the sandbox is. It must
never run, compile or import what it reads.
"""

from __future__ import annotations

import ast
import keyword
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from clew.core.errors import BadInput
from clew.core.printable import short
from clew.core.values import ToolSpec
from clew.harness.memory.item_kinds import check_body
from clew.methods.memory.craft.drafting import Draft

_LIBRARY = """bisect collections datetime decimal difflib fractions functools heapq itertools json math operator re
statistics string textwrap typing unicodedata __future__"""
_BUILTINS = """abs all any ascii bin bool chr dict divmod enumerate filter float format frozenset hash hex int
isinstance iter len list map max min next oct ord pow print range repr reversed round set slice sorted str sum tuple zip
ArithmeticError AssertionError AttributeError Exception IndexError KeyError LookupError OverflowError RuntimeError
StopIteration TypeError ValueError ZeroDivisionError"""
LIBRARY, BUILTINS = frozenset(_LIBRARY.split()), frozenset(_BUILTINS.split())
NAME, NODES = 60, 4000  # characters of a name; nodes of a syntax tree
API, ENTRY = "api", ("query", "api")
_Function = ast.FunctionDef


class Called(NamedTuple):
    """A call of a tool by ``api``: its name, and the arguments that are named; ``more`` where others are unpacked."""

    name: str
    given: frozenset[str]
    more: bool


def gate(draft: Draft, api: Sequence[ToolSpec]) -> tuple[str, ...]:
    """The names of the tools that a draft calls, in order.

    Raises:
        BadInput: it is not closed, too large, or no function ``NAME(query, api)``; the sentence names what is wrong.
    """
    check_body("tool", {"name": draft.name, "doc": draft.doc, "signature": draft.signature, "source": draft.source})
    specs = {spec.name: spec for spec in api}
    _check_name(draft.name, specs)
    tree = _read(draft.source)
    functions = {node.name: node for node in tree.body if isinstance(node, _Function)}
    entry = functions.get(draft.name)
    if entry is None or tuple(arg.arg for arg in _parameters(entry)) != ENTRY:
        raise _bad(f"it defines no function {draft.name}(query, api)")
    for node in tree.body:
        if not _plain(node):
            raise _bad(f"line {node.lineno} is neither an import, a constant nor a function")
    _check_names(tree)
    _check_api(tree, functions)
    calls = list(_calls(tree))
    for call in calls:
        _check_call(call, specs)
    return tuple(sorted({call.name for call in calls}))


def _bad(what: str) -> BadInput:
    return BadInput(f"the tool is refused: {what}", remedy="The plan stays text.")


def _check_name(name: str, specs: Mapping[str, ToolSpec]) -> None:
    good = re.fullmatch(r"[A-Za-z]\w*", name, re.ASCII) and len(name) <= NAME and not keyword.iskeyword(name)
    if not good or name in BUILTINS or name == API:
        raise _bad(f"{short(name, 40)!r} is no name for it")
    if name in specs:
        raise _bad(f"there is a tool {name} already")


def _read(source: str) -> ast.Module:
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", None)
        raise _bad(f"it is no Python{f', line {line}' if line else ''}") from None
    if sum(1 for _ in ast.walk(tree)) > NODES:
        raise _bad(f"it is made of more than {NODES:,} parts")
    return tree


def _plain(node: ast.stmt) -> bool:
    """Whether a statement may stand outside of functions."""
    if isinstance(node, (ast.Import, ast.ImportFrom, _Function)):
        return True
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant)
    return isinstance(node, (ast.Assign, ast.AnnAssign))


def _parameters(function: _Function | ast.Lambda) -> list[ast.arg]:
    args = function.args
    rest = [one for one in (args.vararg, args.kwarg) if one is not None]
    return [*args.posonlyargs, *args.args, *args.kwonlyargs, *rest]


def _check_names(tree: ast.Module) -> None:
    """Every name is bound in the text or a word of Python, and nothing in it begins with two underscores."""
    bound, used = set(BUILTINS), dict[str, int]()
    for node in ast.walk(tree):
        if isinstance(node, (ast.ClassDef, ast.AsyncFunctionDef, ast.Await, ast.Global, ast.Nonlocal)):
            raise _bad(f"line {node.lineno} has what a small function does without")
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            bound |= _imported(node)
        elif isinstance(node, _Function):
            bound.add(node.name)
        elif isinstance(node, ast.arg):
            bound.add(node.arg)
        elif isinstance(node, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)):
            bound.add(node.name or "")
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            used.setdefault(node.id, node.lineno)
        elif isinstance(node, ast.Name):
            bound.add(node.id)
        if isinstance(node, ast.Attribute) and node.attr.startswith("_"):
            raise _bad(f"line {node.lineno} reaches into {short(node.attr, 40)}")
    for name, line in used.items():
        if name not in bound or name.startswith("__"):
            raise _bad(f"line {line} uses {short(name, 40)}, which is neither its own, a library's nor a tool's")


def _imported(node: ast.Import | ast.ImportFrom) -> set[str]:
    places = [node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
    relative = isinstance(node, ast.ImportFrom) and node.level > 0
    for place in places:
        if place.partition(".")[0] not in LIBRARY or relative:
            allowed = ", ".join(sorted(LIBRARY - {"__future__"}))
            raise _bad(f"line {node.lineno} imports {short(place or '.', 40)}; allowed are {allowed}")
    names = {alias.asname or alias.name.partition(".")[0] for alias in node.names}
    if hidden := [alias.name for alias in node.names if alias.name == "*" or alias.name.startswith("_")]:
        raise _bad(f"line {node.lineno} imports {short(hidden[0], 40)}")
    return names


def _check_api(tree: ast.Module, functions: Mapping[str, _Function]) -> None:
    """``api`` is called, or handed to a function of its own as ``api``, and nothing else is done with it."""
    fine = set[ast.AST]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id == API and not isinstance(node.ctx, ast.Load):
            raise _bad(f"line {node.lineno} gives another meaning to api")
        if not isinstance(node, ast.Call):
            continue
        if isinstance(node.func, ast.Name) and node.func.id == API:
            fine.add(node.func)
        if isinstance(node.func, ast.Name) and node.func.id in functions:
            names = [arg.arg for arg in _parameters(functions[node.func.id])]
            fine |= {one for one, name in zip(node.args, names, strict=False) if name == API}
            fine |= {one.value for one in node.keywords if one.arg == API}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id == API and node not in fine:
            raise _bad(f"line {node.lineno} does something else with api than to call it")


def _calls(tree: ast.Module) -> Iterator[Called]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == API:
            first = node.args[0] if len(node.args) == 1 else None
            if not (isinstance(first, ast.Constant) and isinstance(first.value, str)):
                raise _bad(f"line {node.lineno} calls api without the plain name of a tool and named arguments")
            given = frozenset(one.arg for one in node.keywords if one.arg is not None)
            yield Called(first.value, given, len(given) < len(node.keywords))


def _check_call(call: Called, specs: Mapping[str, ToolSpec]) -> None:
    spec = specs.get(call.name)
    if spec is None:
        raise _bad(f"it calls {short(call.name, 40)!r}; there are {', '.join(specs) or 'no tools'}")
    known, needed = spec.schema.get("properties"), spec.schema.get("required", ())
    if isinstance(known, dict) and known and (strange := sorted(call.given - set(known))):
        raise _bad(f"it calls {call.name} with {short(strange[0], 40)}, which that does not take")
    missing = [name for name in needed if name not in call.given] if not call.more else []
    if missing:
        raise _bad(f"it calls {call.name} without {short(str(missing[0]), 40)}")
