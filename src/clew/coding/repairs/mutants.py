"""Broken variants of Python code: one small change each, as people and models make them, in the code's own formatting.
``clew gate --mutants`` measures critics on them, ``clew repairs`` makes tasks of them. It must never run the code."""

from __future__ import annotations

import ast
import copy
import random
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeVar

from clew.core.errors import BadInput

Ops = TypeVar("Ops", bound=ast.AST)


def _pairs(kind: type[Ops], text: str) -> dict[type[Ops], type[Ops]]:
    """Each word's class becomes that of the word after the slash."""
    return {getattr(ast, a): getattr(ast, b) for a, _, b in (pair.partition("/") for pair in text.split())}


COMPARE = _pairs(ast.cmpop, "Lt/LtE LtE/Lt Gt/GtE GtE/Gt Eq/NotEq NotEq/Eq In/NotIn NotIn/In Is/IsNot IsNot/Is")
_TURNS = "Add/Sub Sub/Add Mult/Add Div/Mult FloorDiv/Div Mod/FloorDiv Pow/Mult BitAnd/BitOr BitOr/BitAnd"
ARITHMETIC = _pairs(ast.operator, _TURNS + " LShift/RShift RShift/LShift")
_SIGNS = (
    "Add + Sub - Mult * Div / FloorDiv // Mod % Pow ** BitAnd & BitOr | LShift << RShift >> Lt < LtE <= Gt > GtE >="
)
_WORDS = [*_SIGNS.split(), "Eq", "==", "NotEq", "!=", "In", "in", "NotIn", "not in", "Is", "is", "IsNot", "is not"]
WRITTEN: dict[type[ast.AST], str] = {getattr(ast, n): s for n, s in zip(_WORDS[::2], _WORDS[1::2], strict=True)}
BELOW = re.compile(r"Constant\(value=-(\d+)\)")


class _Piece(NamedTuple):
    """Bytes of the source, from one place to another, and what stands there instead."""

    start: int
    end: int
    text: bytes


def mutants(source: str, n: int, seed: int = 0, within: Sequence[str] = ()) -> list[str]:
    """At most ``n`` different variants of a module: comparison, arithmetic, constant, negation, and/or, arguments.

    All but what changed stays as it is written, comments too. A place whose change cannot be written so that the
    parser reads what was meant, as inside an f-string before Python 3.12, is left alone.

    Args:
        within: names of the functions and classes that may change; empty: all of it.

    Raises:
        BadInput: the source does not parse.
    """
    try:
        body = ast.parse(source).body
    except (SyntaxError, ValueError, RecursionError) as error:
        raise BadInput(f"there are no mutants of what does not parse: {error}", remedy="Give Python code.") from error
    sites = [(i, *site) for i, statement in enumerate(body) for site in _sites(statement, within)]
    random.Random(seed).shuffle(sites)
    text, found, known = _Text(source), list[str](), {source}
    for i, index, kind in sites:
        if len(found) >= n:
            break
        variant = _variant(text, body[i], i, index, kind)
        if variant is not None and variant not in known:
            known.add(variant)
            found.append(variant)
    return found


def _variant(text: _Text, statement: ast.stmt, number: int, index: int, kind: str) -> str | None:
    """The module with one change; None where it cannot be written."""
    node, fresh = list(ast.walk(statement))[index], copy.deepcopy(statement)
    _change(list(ast.walk(fresh))[index], kind)
    wanted = BELOW.sub(r"UnaryOp(op=USub(), operand=Constant(value=\1))", ast.dump(fresh))
    pieces = list(_pieces(text, node, kind))
    parts = [part for part in getattr(node, "values", ()) if isinstance(part, ast.BoolOp)]
    ways = [pieces, text.bracketed([node], pieces), *([text.bracketed(parts, pieces)] if parts else [])]
    for tried in ways:  # brackets, where the new sign would bind otherwise
        try:
            variant = text.with_pieces(tried)
            if pieces and ast.dump(ast.parse(variant).body[number]) == wanted:
                return variant
        except (SyntaxError, ValueError, IndexError):
            continue
    return None


class _Text:
    """A source whose nodes are found by their places."""

    def __init__(self, source: str) -> None:
        self.data = source.encode("utf-8", "surrogatepass")
        self._lines = [0, *(found.end() for found in re.finditer(rb"\r\n|\r|\n", self.data))]

    def start(self, node: ast.AST) -> int:
        return self._lines[getattr(node, "lineno", 1) - 1] + int(getattr(node, "col_offset", 0))

    def end(self, node: ast.AST) -> int:
        return self._lines[getattr(node, "end_lineno", 1) - 1] + int(getattr(node, "end_col_offset", 0))

    def between(self, left: ast.AST, right: ast.AST, old: str, new: str) -> Iterator[_Piece]:
        """A sign between two nodes in place of another."""
        start, end = self.end(left), self.start(right)
        words = rb"\s+".join(re.escape(word.encode()) for word in old.split())
        if found := re.search(words, self.data[start:end]):
            yield _Piece(start + found.start(), start + found.end(), new.encode())

    def bracketed(self, nodes: Sequence[ast.AST], pieces: Sequence[_Piece]) -> list[_Piece]:
        """The pieces, and brackets around the nodes."""
        signs = [(self.start(node), b"(") for node in nodes] + [(self.end(node), b")") for node in nodes]
        return sorted([*pieces, *(_Piece(at, at, sign) for at, sign in signs)])

    def with_pieces(self, pieces: Sequence[_Piece]) -> str:
        """The source with these in place, which come in order."""
        parts, at = list[bytes](), 0
        for piece in pieces:
            parts += [self.data[at : piece.start], piece.text]
            at = piece.end
        return b"".join([*parts, self.data[at:]]).decode("utf-8", "surrogatepass")


def _pieces(text: _Text, node: ast.AST, kind: str) -> Iterator[_Piece]:
    """What is written otherwise for a change of ``_change``."""
    if isinstance(node, ast.Compare):
        sign = type(node.ops[0])
        yield from text.between(node.left, node.comparators[0], WRITTEN[sign], WRITTEN[COMPARE[sign]])
    elif isinstance(node, ast.BinOp):
        yield from text.between(node.left, node.right, WRITTEN[type(node.op)], WRITTEN[ARITHMETIC[type(node.op)]])
    elif isinstance(node, ast.AugAssign):
        old, new = WRITTEN[type(node.op)], WRITTEN[ARITHMETIC[type(node.op)]]
        yield from text.between(node.target, node.value, f"{old}=", f"{new}=")
    elif isinstance(node, ast.Constant) and isinstance(node.value, int):
        value = node.value + (1 if kind == "more" else -1)
        yield _Piece(text.start(node), text.end(node), str(value).encode())
    elif isinstance(node, ast.If | ast.While | ast.IfExp):
        start, end = text.start(node.test), text.end(node.test)
        yield _Piece(start, start, b"not (")
        yield _Piece(end, end, b")")
    elif isinstance(node, ast.BoolOp):
        old, new = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        for left, right in zip(node.values, node.values[1:], strict=False):
            yield from text.between(left, right, old, new)
    elif isinstance(node, ast.Call):
        one, two = ((text.start(arg), text.end(arg)) for arg in node.args[:2])
        yield _Piece(*one, text.data[slice(*two)])
        yield _Piece(*two, text.data[slice(*one)])


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
