"""Tools from typed Python functions.

A function may look at the files of its run, by a parameter of type ``RunFiles``.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import types
import typing
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import (
    Any,
    Literal,
    NewType,
    Protocol,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    overload,
    runtime_checkable,
)

from clew.core.errors import BadInput, WorldError
from clew.core.values import Observation, ToolCall, ToolSpec
from clew.models.images import Image, media
from clew.worlds.schemas import read_arguments

RunFiles = NewType("RunFiles", Path)
"""A folder that holds the files of the run as they are when a tool is called. A parameter of this type is Clew's to
fill: no model is told of it. The function may read there; nothing that it changes there is kept."""


@runtime_checkable
class HasFiles(Protocol):
    """A world whose state is files, as a workspace."""

    def files(self) -> AbstractContextManager[Path]:
        """A folder with the present files, to be read."""
        ...


_SIMPLE = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool and the function behind it.

    Args:
        idempotent: calling it twice does no more than calling it once.
        parallel: calls of one reply may be performed side by side.
        origin: by which another process finds it, as ``harness.toolbox`` records it; empty: the function's own place.
        check: the schema by which arguments are checked, where that is not the one that models are shown.
        files: the parameter that takes a folder with the present files of the run; empty where none does.
    """

    spec: ToolSpec
    function: Callable[..., Any]
    idempotent: bool = False
    parallel: bool = False
    origin: str | Mapping[str, Any] = ""
    check: Mapping[str, Any] | None = None
    files: str = ""

    def call(self, action: ToolCall, folder: Path | None = None) -> Observation | Awaitable[Observation]:
        """Perform a model's tool call: an Observation, or an awaitable of one where the function is async or parallel.

        ``folder`` holds the files of the run, for a function that looks at them.

        Arguments that are no JSON or do not fit the schema, and exceptions of the function, come back as an observation
        that begins with ``error:``, so that the model can correct its call. No argument is turned into another type.
        A function may give an image (``clew.image``), or a list of texts and images; any other value is sent as JSON.

        Raises:
            WorldError: what the tool needs is gone, as a server that has died; no other call would help.
        """
        try:
            arguments = read_arguments(self.spec if self.check is None else self._checked(), action.arguments)
        except BadInput as error:
            return Observation(f"error: {self.spec.name}: {error.message}", call_id=action.id)
        if self.files:
            arguments[self.files] = folder
        if inspect.iscoroutinefunction(self.function):
            return self._later(action, self.function(**arguments))
        if self.parallel:
            return self._later(action, asyncio.to_thread(self.function, **arguments))
        try:
            return _observation(action, self.function(**arguments))
        except WorldError:
            raise
        except Exception as error:
            return _failed(action, error)

    def _checked(self) -> ToolSpec:
        return replace(self.spec, schema=self.check or {})

    async def _later(self, action: ToolCall, work: Awaitable[Any]) -> Observation:
        try:
            return _observation(action, await work)
        except WorldError:
            raise
        except Exception as error:
            return _failed(action, error)


def _observation(action: ToolCall, value: object) -> Observation:
    """What a function gave, as a result; an image stands in the text as a note of what it is."""
    if isinstance(value, Observation):
        return value._replace(call_id=action.id)
    parts = value if isinstance(value, list | tuple) else [value]
    if given := [part for part in parts if isinstance(part, Image)]:
        return Observation("\n".join(map(_text, parts)), call_id=action.id, extra=media(*given))
    return Observation(_text(value), call_id=action.id)


def _text(value: object) -> str:
    if isinstance(value, str | Image):
        return str(value)
    return json.dumps(value, ensure_ascii=False, default=str)


def _failed(action: ToolCall, error: Exception) -> Observation:
    return Observation(f"error: {type(error).__name__}: {error}", call_id=action.id)


@overload
def tool(function: Callable[..., Any], *, name: str = "", idempotent: bool = False, parallel: bool = False) -> Tool: ...
@overload
def tool(
    *, name: str = "", idempotent: bool = False, parallel: bool = False
) -> Callable[[Callable[..., Any]], Tool]: ...
def tool(
    function: Callable[..., Any] | None = None, *, name: str = "", idempotent: bool = False, parallel: bool = False
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """A Tool from a function: schema from its annotations, description from its docstring. Also a decorator,
    ``@tool`` or ``@tool(parallel=True)``.

    Args:
        name: what models call it by; default: the function's name.
        idempotent: calling it twice does no more than calling it once, so a call in doubt is simply repeated.
        parallel: calls of one reply may be performed side by side; an ordinary function then runs in a thread.

    Raises:
        BadInput: a parameter has no annotation, or one that JSON Schema cannot say.
    """
    if function is None:
        return partial(tool, name=name, idempotent=idempotent, parallel=parallel)
    hints = _hints(function)
    properties, required = {}, []
    files = [name for name, hint in hints.items() if hint is RunFiles and name != "return"]
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name not in hints or parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise BadInput(
                f"parameter {parameter.name!r} of {function.__qualname__} has no plain annotation",
                remedy="Annotate every parameter, as in `def search(query: str, limit: int = 10) -> str`.",
            )
        if parameter.name in files:
            continue
        properties[parameter.name] = schema(hints[parameter.name], f"{function.__qualname__}({parameter.name})")
        if parameter.default is parameter.empty:
            required.append(parameter.name)
    described = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    spec = ToolSpec(name or function.__name__, inspect.getdoc(function) or "", described)
    return Tool(spec, function, idempotent, parallel, files="".join(files[:1]))


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    told = getattr(function, "__qualname__", repr(function))
    try:
        return get_type_hints(function)
    except Exception as error:  # an annotation in quotes is evaluated, and may name what is not there
        raise BadInput(f"the annotations of {told} cannot be read: {error}", remedy="Import what they name.") from error


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
