"""Broken variants of Python code: one small change each, as people and models make them. ``clew gate --mutants``
measures critics on them. It must never run the code."""

from __future__ import annotations

import ast
import copy
import random
from collections.abc import Iterator, Sequence
from typing import TypeVar

from clew.core.errors import BadInput

Ops = TypeVar("Ops", bound=ast.AST)


def _pairs(kind: type[Ops], text: str) -> dict[type[Ops], type[Ops]]:
    """Each word's class becomes that of the word after the slash."""
    return {getattr(ast, a): getattr(ast, b) for a, _, b in (pair.partition("/") for pair in text.split())}


COMPARE = _pairs(ast.cmpop, "Lt/LtE LtE/Lt Gt/GtE GtE/Gt Eq/NotEq NotEq/Eq In/NotIn NotIn/In Is/IsNot IsNot/Is")
_TURNS = "Add/Sub Sub/Add Mult/Add Div/Mult FloorDiv/Div Mod/FloorDiv Pow/Mult BitAnd/BitOr BitOr/BitAnd"
ARITHMETIC = _pairs(ast.operator, _TURNS + " LShift/RShift RShift/LShift")


def mutants(source: str, n: int, seed: int = 0, within: Sequence[str] = ()) -> list[str]:
    """At most ``n`` different variants of a module: comparison, arithmetic, constant, negation, and/or, arguments.

    Args:
        within: names of the functions and classes that may change; empty: all of it.

    Raises:
        BadInput: the source does not parse.
    """
    try:
        body = ast.parse(source).body
    except (SyntaxError, ValueError) as error:
        raise BadInput(f"there are no mutants of what does not parse: {error}", remedy="Give Python code.") from error
    texts = [ast.unparse(statement) for statement in body]  # of a large module one statement is made anew at a time
    sites = [(i, *site) for i, statement in enumerate(body) for site in _sites(statement, within)]
    random.Random(seed).shuffle(sites)
    found, known = list[str](), {"\n".join(texts)}
    for i, index, kind in sites:
        if len(found) >= n:
            break
        fresh = copy.deepcopy(body[i])
        _change(list(ast.walk(fresh))[index], kind)
        text = "\n".join([*texts[:i], ast.unparse(fresh), *texts[i + 1 :]])
        if text not in known:
            known.add(text)
            found.append(text)
    return found


def _sites(tree: ast.AST, within: Sequence[str]) -> Iterator[tuple[int, str]]:
    """(index in the walk, kind of change) of every place that can change."""
    named = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    chosen = [node for node in ast.walk(tree) if isinstance(node, named) and node.name in within] if within else [tree]
    inside = {id(child) for node in chosen for child in ast.walk(node)}
    for index, node in enumerate(ast.walk(tree)):
        if id(node) in inside:
            yield from ((index, kind) for kind in _kinds(node))


def _kinds(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Compare) and type(node.ops[0]) in COMPARE:
        yield "compare"
    elif isinstance(node, ast.BinOp | ast.AugAssign) and type(node.op) in ARITHMETIC:
        yield "arithmetic"
    elif isinstance(node, ast.Constant) and type(node.value) is int:
        yield from ("more", "less")
    elif isinstance(node, ast.If | ast.While | ast.IfExp):
        yield "negate"
    elif isinstance(node, ast.BoolOp):
        yield "boolean"
    elif isinstance(node, ast.Call) and len(node.args) > 1:
        yield "arguments"


def _change(node: ast.AST, kind: str) -> None:
    if isinstance(node, ast.Compare):
        node.ops[0] = COMPARE[type(node.ops[0])]()
    elif isinstance(node, ast.BinOp | ast.AugAssign):
        node.op = ARITHMETIC[type(node.op)]()
    elif isinstance(node, ast.Constant) and isinstance(node.value, int):
        node.value += 1 if kind == "more" else -1
    elif isinstance(node, ast.If | ast.While | ast.IfExp):
        node.test = ast.UnaryOp(ast.Not(), node.test)
    elif isinstance(node, ast.BoolOp):
        node.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
    elif isinstance(node, ast.Call):
        node.args[0], node.args[1] = node.args[1], node.args[0]
