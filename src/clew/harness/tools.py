"""Tools from typed Python functions."""

from __future__ import annotations

import inspect
import json
import types
import typing
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from clew.core.errors import BadInput
from clew.core.values import Observation, ToolCall, ToolSpec
from clew.worlds.schemas import read_arguments

_SIMPLE = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool and the function behind it. ``idempotent``: calling it twice does no more than calling it once."""

    spec: ToolSpec
    function: Callable[..., Any]
    idempotent: bool = False

    def call(self, action: ToolCall) -> Observation | Awaitable[Observation]:
        """Perform a model's tool call: an Observation, or an awaitable of one where the function is async.

        Arguments that are no JSON or do not fit the schema, and exceptions of the function, come back as an observation
        that begins with ``error:``, so that the model can correct its call. No argument is turned into another type.
        """
        try:
            arguments = read_arguments(self.spec, action.arguments)
        except BadInput as error:
            return Observation(f"error: {self.spec.name}: {error.message}", call_id=action.id)
        if inspect.iscoroutinefunction(self.function):
            return self._later(action, arguments)
        try:
            return _observation(action, self.function(**arguments))
        except Exception as error:
            return _failed(action, error)

    async def _later(self, action: ToolCall, arguments: Mapping[str, Any]) -> Observation:
        try:
            return _observation(action, await self.function(**arguments))
        except Exception as error:
            return _failed(action, error)


def _observation(action: ToolCall, value: object) -> Observation:
    if isinstance(value, Observation):
        return value._replace(call_id=action.id)
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return Observation(text, call_id=action.id)


def _failed(action: ToolCall, error: Exception) -> Observation:
    return Observation(f"error: {type(error).__name__}: {error}", call_id=action.id)


def tool(function: Callable[..., Any], *, name: str = "", idempotent: bool = False) -> Tool:
    """A Tool from a function: schema from its annotations, description from its docstring.

    Raises:
        BadInput: a parameter has no annotation, or one that JSON Schema cannot say.
    """
    hints = get_type_hints(function)
    properties, required = {}, []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name not in hints or parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise BadInput(
                f"parameter {parameter.name!r} of {function.__qualname__} has no plain annotation",
                remedy="Annotate every parameter, as in `def search(query: str, limit: int = 10) -> str`.",
            )
        properties[parameter.name] = schema(hints[parameter.name], f"{function.__qualname__}({parameter.name})")
        if parameter.default is parameter.empty:
            required.append(parameter.name)
    described = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    return Tool(ToolSpec(name or function.__name__, inspect.getdoc(function) or "", described), function, idempotent)


def schema(hint: Any, where: str) -> dict[str, Any]:
    """JSON Schema of a Python annotation."""
    origin, arguments = get_origin(hint), get_args(hint)
    if hint in _SIMPLE:
        return {"type": _SIMPLE[hint]}
    if hint is Any:
        return {}
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin in (Union, types.UnionType):
        return {"anyOf": [schema(a, where) for a in arguments]}
    if origin is tuple and arguments[-1:] != (...,):
        items = [schema(a, where) for a in arguments]
        return {"type": "array", "prefixItems": items, "minItems": len(items), "maxItems": len(items)}
    if origin in (list, tuple, set, Sequence) or hint is list:
        return {"type": "array", "items": schema(arguments[0], where) if arguments else {}}
    if origin in (dict, Mapping) or hint is dict:
        return {"type": "object", "additionalProperties": schema(arguments[1], where) if arguments else True}
    if typing.is_typeddict(hint):
        fields = get_type_hints(hint)
        return {
            "type": "object",
            "properties": {k: schema(v, where) for k, v in fields.items()},
            "required": sorted(hint.__required_keys__),
        }
    raise BadInput(
        f"{where}: no JSON Schema for {hint!r}", remedy="Use str, int, float, bool, list, dict, Literal, TypedDict."
    )


def as_tools(functions: Sequence[Tool | Callable[..., Any]]) -> dict[str, Tool]:
    """Tools by name.

    Raises:
        BadInput: two have the same name.
    """
    out: dict[str, Tool] = {}
    for function in functions:
        made = function if isinstance(function, Tool) else tool(function)
        if made.spec.name in out:
            raise BadInput(f"two tools are called {made.spec.name!r}", remedy="Rename one: tool(function, name=...).")
        out[made.spec.name] = made
    return out
