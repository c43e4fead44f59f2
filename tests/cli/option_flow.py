"""What a line of the command line would do, as a text, without doing it: to see whether an option changes anything.

The line is parsed by click itself, so that what click or an option refuses is refused. The verb's function is then read
with the values of the line, as far as the functions of ``clew.cli`` go: conditions on values that are known take one
way, conditions on what a store or a model would answer take both. What is called outside of ``clew.cli`` is written
down with its arguments. Two lines with the same text do the same.
"""

from __future__ import annotations

import ast
import builtins
import functools
import hashlib
import importlib
import inspect
import operator
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any, NamedTuple

import click

from clew.cli import verbs
from clew.core.errors import ClewError

BINARY = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Pow: operator.pow, ast.BitOr: operator.or_,
    ast.BitAnd: operator.and_, ast.BitXor: operator.xor, ast.LShift: operator.lshift, ast.RShift: operator.rshift,
}  # fmt: skip
ORDER = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge, ast.Is: operator.is_, ast.IsNot: operator.is_not,
    ast.In: lambda a, b: a in b, ast.NotIn: lambda a, b: a not in b,
}  # fmt: skip
UNARY = {ast.Not: operator.not_, ast.USub: operator.neg, ast.UAdd: operator.pos, ast.Invert: operator.invert}
PURE = (
    len, str, any, all, min, max, sorted, set, frozenset, dict, tuple, list, zip, enumerate, isinstance, bool, int,
    float, sum, range, repr, abs, round, reversed, hasattr, getattr, type, iter, next, map, filter, callable, ord, chr,
    divmod, id, vars, issubclass, slice,
)  # fmt: skip
HOLDERS = (dict, list, tuple, set, frozenset)
MESSAGES = {
    *("common.say", "common.bar", "common.progress", "next_lines.command_line", "run_options.resume_line"),
    *("run_options.agent_options", "trainer_options.table", "training_options.record", "tune._recorded"),
}
"""What is told on the way, noted of the line, or printed for going on: an option that only these repeat is dropped."""
PRINTING = {"common.echo", "common.print_table", "common.print_json", "common.draw", "common.console", "common.show"}
SETTINGS = "clew.cli.shared.project"  # reads clew.toml, before a verb begins
READ = ("clew.cli", "tests.cli.test_options")  # whose functions are read
DEEPEST, LONGEST, TURNS = 40, 160, 60


@dataclass(frozen=True)
class Unknown:
    """A value that is known only when the line is run; its text says how it comes about."""

    text: str


@dataclass(frozen=True, eq=False)
class Closure:
    """A function that is defined in a function, or a lambda."""

    node: Any
    names: dict[str, Any]
    world: dict[str, Any]


@dataclass(frozen=True, eq=False)
class Bound:
    """A function with its first arguments."""

    function: Any
    first: tuple[Any, ...]
    named: dict[str, Any]


class Record:
    """An object of a class of ``clew.cli``."""

    def __init__(self, kind: type) -> None:
        self.kind, self.fields = kind, dict[str, Any]()


class Ended(Exception):
    """The line is refused, or ends here."""

    def __init__(self, how: str) -> None:
        super().__init__(how)
        self.how = how


class Outcome(NamedTuple):
    """What a line would do; ``refused`` is the sentence where it does nothing."""

    done: str
    refused: str


def short(text: str) -> str:
    if len(text) <= LONGEST:
        return text
    return f"{text[:60]}~{hashlib.sha1(text.encode()).hexdigest()[:12]}"


def ours(value: Any) -> bool:
    module = str(getattr(value, "__module__", "") or "")
    return module.startswith(READ) and module != SETTINGS and getattr(value, "__qualname__", "") != "ask"


@functools.cache
def unparsed(node: ast.AST) -> str:
    return ast.unparse(node)


def name_of(value: Any) -> str:
    module = str(getattr(value, "__module__", "") or "").rpartition(".")[2]
    return f"{module}.{getattr(value, '__qualname__', type(value).__name__)}"


@functools.cache
def tree_of(path: str) -> dict[int, ast.AST]:
    """The functions of a file by their lines."""
    found: dict[int, ast.AST] = {}
    for node in ast.walk(ast.parse(Path(path).read_text("utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found[min([node.lineno, *(one.lineno for one in node.decorator_list)])] = node
    return found


def known(value: Any) -> bool:
    """Whether nothing in a value waits for the line to be run."""
    if isinstance(value, Unknown | Closure | Bound | Record):
        return False
    if isinstance(value, dict):
        return all(known(k) and known(v) for k, v in value.items())
    return all(map(known, value)) if isinstance(value, list | tuple | set | frozenset) else True


class Frame:
    """A call: its names, and what it has returned on ways that other ways go on from."""

    def __init__(self, names: dict[str, Any], world: dict[str, Any]) -> None:
        self.names, self.world, self.returned, self.yielded = names, world, list[Any](), list[Any]()


RETURN, BREAK, CONTINUE = "return", "break", "continue"


class Reader:
    """Reads functions of ``clew.cli`` and writes down what they call outside of it."""

    def __init__(self) -> None:
        self.written: list[str] = []
        self.depth = 0
        self.maybe = 0  # ways that need not be taken, one in the other
        self.rendering: list[Any] = []

    # ---- calls

    def call(self, function: Any, args: list[Any], named: dict[str, Any]) -> Any:
        if isinstance(function, Bound):
            return self.call(function.function, [*function.first, *args], {**function.named, **named})
        if isinstance(function, Closure):
            return self.enter(function.node, function.world, args, named, outer=function.names)
        if function is functools.partial:
            return Bound(args[0], tuple(args[1:]), named)
        if isinstance(function, type) and ours(function):
            return self.make(function, args, named)
        plain = inspect.unwrap(function) if callable(function) and not isinstance(function, Unknown) else function
        if isinstance(plain, types.FunctionType) and ours(plain):
            if name_of(plain) in PRINTING:
                return self.outside(function, args, named)
            if name_of(plain) in MESSAGES:
                self.written.append(name_of(plain))
                return Unknown(name_of(plain))
            node = tree_of(plain.__code__.co_filename).get(plain.__code__.co_firstlineno)
            if node is not None and self.depth < DEEPEST:
                return self.enter(node, plain.__globals__, args, named, real=function)
        return self.outside(function, args, named)

    def outside(self, function: Any, args: list[Any], named: dict[str, Any]) -> Any:
        if function in (iter, next) and isinstance(args[0], list | tuple):
            if function is iter or args[0]:
                return args[0] if function is iter else args[0][0]
            return args[1] if len(args) > 1 else self.attempt(next, [iter(())], {})
        if isinstance(function, Unknown) and function.text.endswith(".told") and len(args) == 1 and args[0] is not None:
            return args[0]  # what the first of several ranks tells the others comes back
        of_click = isinstance(getattr(function, "__self__", None), click.Context | click.Parameter | click.Command)
        if function in (click.get_current_context,) or of_click:
            return function(*args, **named)
        if function in (dict, list, tuple) and all(isinstance(one, HOLDERS) for one in args):
            return function(*args, **named)
        if isinstance(function, types.BuiltinMethodType) and isinstance(function.__self__, HOLDERS):
            return self.attempt(function, args, named)
        text = f"{self.text(function)}({self.told(args, named)})"
        simple = function in PURE or isinstance(getattr(function, "__self__", None), str | bytes | int | float)
        if simple and known(args) and known(named):
            made = self.attempt(function, args, named)
            return list(made) if isinstance(made, Iterator) else made
        if not simple and function is not Path:
            self.written.append(short(text))
        return Unknown(short(text))

    def attempt(self, function: Any, args: list[Any], named: dict[str, Any]) -> Any:
        try:
            return function(*args, **named)
        except Exception as error:
            raise Ended(f"{type(error).__name__}: {error}") from error

    def told(self, args: Sequence[Any], named: dict[str, Any]) -> str:
        return ", ".join([*map(self.text, args), *(f"{k}={self.text(v)}" for k, v in sorted(named.items()))])

    def make(self, kind: type, args: list[Any], named: dict[str, Any]) -> Any:
        if issubclass(kind, BaseException):
            return Unknown(f"{name_of(kind)}")
        made = Record(kind)
        fields = getattr(kind, "_fields", None) or list(getattr(kind, "__dataclass_fields__", ()))
        if fields:
            defaults = getattr(kind, "_field_defaults", None)
            made.fields = {name: self.default(kind, name, defaults) for name in fields}
            made.fields.update(zip(fields, args, strict=False))
            made.fields.update(named)
            return made
        if isinstance(start := kind.__dict__.get("__init__"), types.FunctionType):
            self.call(start, [made, *args], named)
            return made
        return self.outside(Unknown(name_of(kind)), args, named)

    def default(self, kind: type, name: str, defaults: dict[str, Any] | None) -> Any:
        value = (defaults or {}).get(name, getattr(kind, name, Unknown(f"{name_of(kind)}.{name}")))
        return Unknown(f"{name_of(kind)}.{name}") if isinstance(value, types.MemberDescriptorType) else value

    def enter(
        self, node: Any, world: dict[str, Any], args: list[Any], named: dict[str, Any], *, real: Any = None,
        outer: dict[str, Any] | None = None,
    ) -> Any:  # fmt: skip
        frame = Frame({**(outer or {})}, world)
        given, rest = list(args), dict(named)
        spec = node.args
        for index, one in enumerate([*spec.posonlyargs, *spec.args]):
            if given:
                frame.names[one.arg] = given.pop(0)
            elif one.arg in rest:
                frame.names[one.arg] = rest.pop(one.arg)
            else:
                back = index - len([*spec.posonlyargs, *spec.args]) + len(spec.defaults)
                frame.names[one.arg] = (
                    self.value(spec.defaults[back], frame) if back >= 0 else Unknown(f"argument {one.arg}")
                )
        for one, usual in zip(spec.kwonlyargs, spec.kw_defaults, strict=True):
            if one.arg in rest:
                frame.names[one.arg] = rest.pop(one.arg)
            else:
                frame.names[one.arg] = Unknown(f"argument {one.arg}") if usual is None else self.value(usual, frame)
        if spec.vararg:
            frame.names[spec.vararg.arg] = tuple(given)
        if spec.kwarg:
            frame.names[spec.kwarg.arg] = rest
        if isinstance(node, ast.Lambda):
            return self.value(node.body, frame)
        self.depth += 1
        try:
            end = self.block(node.body, frame)
        except Ended:
            if not frame.returned or self.depth == 1:  # of the verb itself the way that goes on to the end counts
                raise
            end = None
        finally:
            self.depth -= 1
        results = [*frame.returned, *([end[1]] if end and end[0] == RETURN else [])]
        if frame.yielded:
            return frame.yielded[0] if real is not None and hasattr(real, "__wrapped__") else frame.yielded
        if not results:
            return None
        if end is None and not isinstance(node, ast.Lambda):
            results.append(None)
        return (
            results[0] if len({*map(self.text, results)}) == 1 else Unknown(short("one of " + self.told(results, {})))
        )

    # ---- statements

    def block(self, body: Sequence[ast.stmt], frame: Frame) -> tuple[str, Any] | None:
        for one in body:
            if (end := self.statement(one, frame)) is not None:
                return end
        return None

    def statement(self, node: ast.stmt, frame: Frame) -> tuple[str, Any] | None:
        found: Callable[[Any, Any, Frame], Any] | None = STATEMENTS.get(type(node))
        return found(self, node, frame) if found else None

    def do_expr(self, node: ast.Expr, frame: Frame) -> None:
        self.value(node.value, frame)

    def do_assign(self, node: ast.Assign, frame: Frame) -> None:
        value = self.value(node.value, frame)
        for target in node.targets:
            self.bind(target, value, frame)

    def do_annassign(self, node: ast.AnnAssign, frame: Frame) -> None:
        if node.value is not None:
            self.bind(node.target, self.value(node.value, frame), frame)

    def do_augassign(self, node: ast.AugAssign, frame: Frame) -> None:
        now = self.value(ast.copy_location(ast.BinOp(self.loaded(node.target), node.op, node.value), node), frame)
        self.bind(node.target, now, frame)

    def loaded(self, target: Any) -> Any:
        parts = {name: getattr(target, name) for name in target._fields if name != "ctx"}
        return type(target)(**parts, ctx=ast.Load())

    def do_return(self, node: ast.Return, frame: Frame) -> tuple[str, Any]:
        return RETURN, None if node.value is None else self.value(node.value, frame)

    def do_break(self, node: ast.Break, frame: Frame) -> tuple[str, Any]:
        return BREAK, None

    def do_continue(self, node: ast.Continue, frame: Frame) -> tuple[str, Any]:
        return CONTINUE, None

    def do_raise(self, node: ast.Raise, frame: Frame) -> None:
        if isinstance(node.exc, ast.Call) and unparsed(node.exc.func).endswith("Exit"):
            self.written.append(f"ends with {self.told([self.value(one, frame) for one in node.exc.args], {})}")
        raise Ended(unparsed(node)[:300])

    def do_delete(self, node: ast.Delete, frame: Frame) -> None:
        for target in node.targets:
            if isinstance(target, ast.Subscript):
                holder = self.value(target.value, frame)
                if isinstance(holder, dict) and known(key := self.value(target.slice, frame)):
                    holder.pop(key, None)

    def do_import(self, node: ast.Import, frame: Frame) -> None:
        for one in node.names:
            frame.names[one.asname or one.name.partition(".")[0]] = self.module(
                one.name if one.asname else one.name.partition(".")[0]
            )

    def do_importfrom(self, node: ast.ImportFrom, frame: Frame) -> None:
        for one in node.names:
            whole = f"{node.module}.{one.name}"
            if str(node.module).startswith(("clew.cli", "click")):
                home = importlib.import_module(str(node.module))
                frame.names[one.asname or one.name] = (
                    getattr(home, one.name) if hasattr(home, one.name) else importlib.import_module(whole)
                )
            else:
                frame.names[one.asname or one.name] = Unknown(whole)

    def module(self, name: str) -> Any:
        return importlib.import_module(name) if name in sys.builtin_module_names or ours_name(name) else Unknown(name)

    def do_functiondef(self, node: ast.FunctionDef, frame: Frame) -> None:
        frame.names[node.name] = Closure(node, frame.names, frame.world)

    do_asyncfunctiondef = do_functiondef

    def do_classdef(self, node: ast.ClassDef, frame: Frame) -> None:
        frame.names[node.name] = Unknown(node.name)

    def do_if(self, node: ast.If, frame: Frame) -> tuple[str, Any] | None:
        truth = self.truth(self.value(node.test, frame))
        if isinstance(truth, bool):
            return self.block(node.body if truth else node.orelse, frame)
        self.written.append(f"if {truth.text}")
        return self.ways([node.body, node.orelse], frame)

    def ways(self, bodies: list[list[ast.stmt]], frame: Frame) -> tuple[str, Any] | None:
        """Several ways, each of which may be the one that is taken."""
        before, afters, ends = frame.names, list[dict[str, Any]](), list[Any]()
        for body in bodies:
            frame.names = {**before}
            self.maybe += 1
            try:
                end = self.block(body, frame)
            except Ended as error:
                ends.append(error)
                self.written.append("refused")
                continue
            finally:
                self.maybe -= 1
            ends.append(end)
            if end is None or end[0] in (BREAK, CONTINUE):
                afters.append(frame.names)
            self.written.append("or else")
        frame.names = before
        returns = [end[1] for end in ends if isinstance(end, tuple) and end[0] == RETURN]
        if not afters:
            if not returns:
                raise next(end for end in ends if isinstance(end, Ended))
            frame.returned += returns[:-1]
            return RETURN, returns[-1]
        frame.returned += returns
        for name in {name for after in afters for name in after}:
            values = [after[name] for after in afters if name in after]
            same = all(value is values[0] for value in values) or len({*map(self.text, values)}) == 1
            before[name] = values[0] if same else Unknown(short(f"one of {self.told(values, {})}"))
        return None

    def do_for(self, node: ast.For, frame: Frame) -> tuple[str, Any] | None:
        items = self.items(self.value(node.iter, frame))
        if isinstance(items, Unknown):
            self.written.append(f"for each of {items.text}")
            self.bind(node.target, Unknown(short(f"each of {items.text}")), frame)
            return self.ways([node.body, []], frame)
        for item in items:
            self.bind(node.target, item, frame)
            end = self.block(node.body, frame)
            if end is not None and end[0] == RETURN:
                return end
            if end is not None and end[0] == BREAK:
                return None
        return self.block(node.orelse, frame)

    do_asyncfor = do_for

    def items(self, value: Any) -> list[Any] | Unknown:
        if isinstance(value, (*HOLDERS, str, range)) or type(value).__name__.startswith("dict_"):
            return list(value)[:TURNS]
        return Unknown(self.text(value))

    def do_while(self, node: ast.While, frame: Frame) -> tuple[str, Any] | None:
        truth = self.truth(self.value(node.test, frame))
        if truth is False:
            return None
        self.written.append(f"while {self.text(truth)}")
        return self.ways([node.body, []], frame)

    def do_with(self, node: ast.With, frame: Frame) -> tuple[str, Any] | None:
        for item in node.items:
            value = self.value(item.context_expr, frame)
            if item.optional_vars is not None:
                self.bind(item.optional_vars, value, frame)
        return self.block(node.body, frame)

    do_asyncwith = do_with

    def do_try(self, node: ast.Try, frame: Frame) -> tuple[str, Any] | None:
        try:
            end = self.block([*node.body, *node.orelse], frame)
        except Ended:
            if not node.handlers:
                raise
            end = self.handled(node.handlers, frame, [])
        else:
            if end is None and node.handlers:
                end = self.handled(node.handlers, frame, [[]])
        return self.block(node.finalbody, frame) or end

    def handled(self, handlers: list[ast.ExceptHandler], frame: Frame, more: list[Any]) -> tuple[str, Any] | None:
        for one in handlers:
            if one.name:
                frame.names[one.name] = Unknown(f"error {unparsed(one.type) if one.type else ''}")
        return self.ways([*(one.body for one in handlers), *more], frame)

    def do_match(self, node: ast.Match, frame: Frame) -> tuple[str, Any] | None:
        self.value(node.subject, frame)
        return self.ways([case.body for case in node.cases], frame)

    def bind(self, target: ast.expr, value: Any, frame: Frame) -> None:
        if isinstance(target, ast.Name):
            frame.names[target.id] = value
        elif isinstance(target, ast.Tuple | ast.List):
            self.bind_each(target.elts, value, frame)
        elif isinstance(target, ast.Subscript):
            holder = self.value(target.value, frame)
            if isinstance(holder, dict | list):
                key = self.value(target.slice, frame)
                if isinstance(holder, dict) or known(key):
                    self.attempt(operator.setitem, [holder, key, value], {})
                else:
                    holder.append(value)
            else:
                self.written.append(f"{self.text(holder)}[] = {self.text(value)}")
        elif isinstance(target, ast.Attribute):
            holder = self.value(target.value, frame)
            if isinstance(holder, Record):
                holder.fields[target.attr] = value
            else:
                self.written.append(f"{self.text(holder)}.{target.attr} = {self.text(value)}")

    def bind_each(self, targets: list[ast.expr], value: Any, frame: Frame) -> None:
        if isinstance(value, list | tuple) and not any(
            isinstance(one, ast.Starred) for one in targets
        ) and len(value) == len(targets):  # fmt: skip
            for one, part in zip(targets, value, strict=True):
                self.bind(one, part, frame)
            return
        if isinstance(value, list | tuple) and isinstance(targets[-1], ast.Starred):
            for one, part in zip(targets[:-1], value, strict=False):
                self.bind(one, part, frame)
            self.bind(targets[-1].value, list(value[len(targets) - 1 :]), frame)
            return
        for index, one in enumerate(targets):
            inner = one.value if isinstance(one, ast.Starred) else one
            self.bind(inner, Unknown(short(f"{self.text(value)}[{index}]")), frame)

    # ---- values

    def truth(self, value: Any) -> bool | Unknown:
        if isinstance(value, Unknown):
            return value
        return True if isinstance(value, Closure | Bound | Record) else bool(value)

    def value(self, node: ast.expr, frame: Frame) -> Any:
        found: Callable[[Any, Any, Frame], Any] | None = VALUES.get(type(node))
        return found(self, node, frame) if found else Unknown(short(unparsed(node)))

    def of_constant(self, node: ast.Constant, frame: Frame) -> Any:
        return node.value

    def of_name(self, node: ast.Name, frame: Frame) -> Any:
        for place in (frame.names, frame.world, vars(builtins)):
            if node.id in place:
                return place[node.id]
        return Unknown(node.id)

    def of_attribute(self, node: ast.Attribute, frame: Frame) -> Any:
        value = self.value(node.value, frame)
        if isinstance(value, Record):
            if node.attr in value.fields:
                return value.fields[node.attr]
            if node.attr == "_replace":
                return Closure(REPLACE, {"self": value}, {})
            found = inspect.getattr_static(value.kind, node.attr, None)
            if isinstance(found, property | functools.cached_property):
                return self.call(found.fget if isinstance(found, property) else found.func, [value], {})
            return Bound(found, (value,), {}) if isinstance(found, types.FunctionType) else Unknown(node.attr)
        if isinstance(value, Unknown | Closure | Bound):
            return Unknown(short(f"{self.text(value)}.{node.attr}"))
        return getattr(value, node.attr, Unknown(node.attr))

    def of_call(self, node: ast.Call, frame: Frame) -> Any:
        function = self.value(node.func, frame)
        args: list[Any] = []
        for one in node.args:
            if isinstance(one, ast.Starred):
                many = self.items(self.value(one.value, frame))
                args += [Unknown(f"*{many.text}")] if isinstance(many, Unknown) else many
            else:
                args.append(self.value(one, frame))
        named: dict[str, Any] = {}
        for word in node.keywords:
            value = self.value(word.value, frame)
            if word.arg is not None:
                named[word.arg] = value
            elif isinstance(value, dict):
                named |= {str(key): inner for key, inner in value.items()}
            else:
                named[f"**{self.text(value)}"] = value
        if isinstance(function, Closure) and function.node is REPLACE:
            made = Record(function.names["self"].kind)
            made.fields = {**function.names["self"].fields, **named}
            return made
        return self.call(function, args, named)

    def of_subscript(self, node: ast.Subscript, frame: Frame) -> Any:
        holder, key = self.value(node.value, frame), self.value(node.slice, frame)
        filled = not isinstance(holder, dict) or (known(key) and key in holder)  # else it is filled on the way
        if filled and not isinstance(holder, Unknown | Closure | Bound | Record) and known(key):
            return self.attempt(operator.getitem, [holder, key], {})
        return Unknown(short(f"{self.text(holder)}[{self.text(key)}]"))

    def of_slice(self, node: ast.Slice, frame: Frame) -> Any:
        parts = [None if one is None else self.value(one, frame) for one in (node.lower, node.upper, node.step)]
        return slice(*parts) if known(parts) else Unknown(self.told(parts, {}))

    def of_boolop(self, node: ast.BoolOp, frame: Frame) -> Any:
        texts = []
        for one in node.values:
            value = self.value(one, frame)
            truth = self.truth(value)
            if isinstance(truth, Unknown):
                texts.append(truth.text)
            elif truth is isinstance(node.op, ast.Or):
                return Unknown(short(f"{texts} or {self.text(value)}")) if texts else value
        return value if not texts else Unknown(short(f"{type(node.op).__name__} {texts} {self.text(value)}"))

    def of_ifexp(self, node: ast.IfExp, frame: Frame) -> Any:
        truth = self.truth(self.value(node.test, frame))
        if isinstance(truth, bool):
            return self.value(node.body if truth else node.orelse, frame)
        values = [self.value(node.body, frame), self.value(node.orelse, frame)]
        same = len({*map(self.text, values)}) == 1
        return values[0] if same else Unknown(short(f"if {truth.text}: {self.told(values, {})}"))

    def of_binop(self, node: ast.BinOp, frame: Frame) -> Any:
        left, right = self.value(node.left, frame), self.value(node.right, frame)
        holders = isinstance(left, dict | list | tuple | set) and type(left) is type(right)
        if (known(left) and known(right)) or holders:
            return self.attempt(BINARY[type(node.op)], [left, right], {}) if type(node.op) in BINARY else left
        return Unknown(short(f"{self.text(left)} {type(node.op).__name__} {self.text(right)}"))

    def of_unaryop(self, node: ast.UnaryOp, frame: Frame) -> Any:
        value = self.value(node.operand, frame)
        if isinstance(node.op, ast.Not) and isinstance(value, HOLDERS):
            return not value
        if known(value):
            return UNARY[type(node.op)](value)
        return Unknown(short(f"{type(node.op).__name__} {self.text(value)}"))

    def of_compare(self, node: ast.Compare, frame: Frame) -> Any:
        values = [self.value(one, frame) for one in (node.left, *node.comparators)]
        outcome: Any = True
        for op, left, right in zip(node.ops, values, values[1:], strict=False):
            key_in = isinstance(op, ast.In | ast.NotIn) and isinstance(right, dict) and known(left)
            identity = isinstance(op, ast.Is | ast.IsNot) and right is None and not isinstance(left, Unknown)
            if key_in or identity or (known(left) and known(right)):
                outcome = self.attempt(ORDER[type(op)], [left, right], {})
                if not outcome:
                    return False
            else:
                return Unknown(short(f"{self.text(left)} {type(op).__name__} {self.text(right)}"))
        return outcome

    def of_joinedstr(self, node: ast.JoinedStr, frame: Frame) -> Any:
        parts = [
            self.value(one.value, frame) if isinstance(one, ast.FormattedValue) else one.value for one in node.values
        ]
        if known(parts) and all(isinstance(one, ast.Constant) or one.format_spec is None for one in node.values):
            return "".join(map(str, parts))
        return Unknown(short("text " + self.told(parts, {})))

    def of_list(self, node: Any, frame: Frame) -> list[Any]:
        out: list[Any] = []
        for one in node.elts:
            if isinstance(one, ast.Starred):
                many = self.items(self.value(one.value, frame))
                out += [Unknown(f"*{many.text}")] if isinstance(many, Unknown) else many
            else:
                out.append(self.value(one, frame))
        return out

    def of_tuple(self, node: ast.Tuple, frame: Frame) -> tuple[Any, ...]:
        return tuple(self.of_list(node, frame))

    def of_set(self, node: ast.Set, frame: Frame) -> Any:
        items = self.of_list(node, frame)
        return set(items) if known(items) else Unknown(short(f"set {self.told(items, {})}"))

    def of_dict(self, node: ast.Dict, frame: Frame) -> Any:
        made: dict[Any, Any] = {}
        for key, one in zip(node.keys, node.values, strict=True):
            value = self.value(one, frame)
            if key is not None:
                name = self.value(key, frame)
                made[name if known(name) and isinstance(name, str | int | tuple) else self.text(name)] = value
            elif isinstance(value, dict):
                made |= value
            else:
                made[f"**{self.text(value)}"] = value
        return made

    def comprehended(self, node: Any, frame: Frame) -> list[Any] | Unknown:
        """What a comprehension holds: values, or keys with values."""
        inner, out, sure = Frame({**frame.names}, frame.world), list[Any](), True
        tests = list[Any]()

        def walk(depth: int) -> None:
            nonlocal sure
            if depth == len(node.generators):
                made = (node.key, node.value) if isinstance(node, ast.DictComp) else (node.elt,)
                values = [self.value(one, inner) for one in made]
                out.append(tuple(values) if len(values) > 1 else values[0])
                return
            loop = node.generators[depth]
            items = self.items(self.value(loop.iter, inner))
            if isinstance(items, Unknown):
                sure, items = False, [Unknown(short(f"each of {items.text}"))]
            for item in items:
                self.bind(loop.target, item, inner)
                truths = [self.truth(self.value(test, inner)) for test in loop.ifs]
                tests.extend(one for one in truths if isinstance(one, Unknown))
                sure = sure and not tests
                if False not in truths:
                    walk(depth + 1)

        walk(0)
        return out if sure else Unknown(short(f"many {self.told([out, tests], {})} {unparsed(node)}"))

    def of_listcomp(self, node: Any, frame: Frame) -> Any:
        return self.comprehended(node, frame)

    of_generatorexp = of_listcomp

    def of_setcomp(self, node: ast.SetComp, frame: Frame) -> Any:
        found = self.comprehended(node, frame)
        return set(found) if not isinstance(found, Unknown) and known(found) else Unknown(short(self.text(found)))

    def of_dictcomp(self, node: ast.DictComp, frame: Frame) -> Any:
        found = self.comprehended(node, frame)
        if isinstance(found, Unknown):
            return found
        return {key if known(key) else self.text(key): value for key, value in found}

    def of_lambda(self, node: ast.Lambda, frame: Frame) -> Closure:
        return Closure(node, frame.names, frame.world)

    def of_namedexpr(self, node: ast.NamedExpr, frame: Frame) -> Any:
        value = self.value(node.value, frame)
        self.bind(node.target, value, frame)
        return value

    def of_yield(self, node: ast.Yield, frame: Frame) -> Any:
        value = None if node.value is None else self.value(node.value, frame)
        frame.yielded.append(value)
        self.written.append("yield")
        return Unknown("sent")

    def of_yieldfrom(self, node: ast.YieldFrom, frame: Frame) -> Any:
        frame.yielded.append(self.value(node.value, frame))
        return None

    def of_await(self, node: ast.Await, frame: Frame) -> Any:
        return self.value(node.value, frame)

    def text(self, value: Any) -> str:
        """A value as a text: of functions, what they would do."""
        if isinstance(value, Unknown):
            return value.text
        if isinstance(value, Closure | Bound):
            return self.rendered(value)
        if isinstance(value, Record):
            return f"{name_of(value.kind)}({self.told([], value.fields)})"
        if isinstance(value, dict):
            return "{" + ", ".join(f"{self.text(k)}: {self.text(v)}" for k, v in value.items()) + "}"
        if isinstance(value, list | tuple):
            return f"[{self.told(value, {})}]"
        if isinstance(value, set | frozenset):
            return f"set {sorted(map(self.text, value))}"
        if isinstance(value, types.ModuleType):
            return value.__name__
        if isinstance(value, types.FunctionType | type | types.BuiltinFunctionType | types.MethodType):
            return name_of(value)
        if isinstance(value, str | int | float | bytes | None | slice | range | PurePath):
            return repr(value)
        return f"<{type(value).__name__}>"

    def rendered(self, value: Any) -> str:
        if any(value is one for one in self.rendering) or len(self.rendering) > 6:
            return "function"
        written, self.written = self.written, []
        self.rendering.append(value)
        try:
            result = self.text(self.call(value, [], {}))
        except Ended:
            result = "refused"
        finally:
            self.rendering.pop()
            told, self.written = self.written, written
        return short(f"function doing {told} giving {result}")


VALUES = {
    kind: found for kind in ast.expr.__subclasses__() if (found := getattr(Reader, f"of_{kind.__name__.lower()}", None))
}
STATEMENTS = {
    kind: found for kind in ast.stmt.__subclasses__() if (found := getattr(Reader, f"do_{kind.__name__.lower()}", None))
}
REPLACE: Any = ast.parse("lambda **k: self").body[0]


def ours_name(name: str) -> bool:
    return name.startswith("clew.cli")


def command_of(words: Sequence[str]) -> tuple[click.Command, list[str]]:
    """The verb of a line, and the words after it."""
    command: click.Command = verbs
    rest = list(words)
    while isinstance(command, click.Group):
        inner = command.get_command(click.Context(command), rest.pop(0))
        assert inner is not None, words
        command = inner
    return command, rest


def outcome(words: Sequence[str]) -> Outcome:
    """What a line of `clew` would do, or the sentence that refuses it."""
    command, rest = command_of(words)
    return read(command, rest)


def read(command: click.Command, words: Sequence[str]) -> Outcome:
    """What a command would do with these words."""
    above = click.Context(verbs, info_name="clew")
    above.meta["clew.arguments"] = list(words)
    reader = Reader()
    try:
        with command.make_context(command.name, list(words), parent=above) as context:
            assert command.callback is not None
            reader.call(command.callback, [], dict(context.params))
    except Ended as end:
        if "Exit" not in end.how:
            return Outcome("", end.how)
    except (click.ClickException, ClewError) as error:
        return Outcome("", str(error))
    return Outcome("\n".join(reader.written), "")
