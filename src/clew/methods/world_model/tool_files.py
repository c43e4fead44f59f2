"""Tools from a file, for a simulated world: OpenAI's tools, an MCP server's list of tools, or an OpenAPI document.

``simulated(tools=...)`` calls it. A file from outside is hostile: sizes and depths are bounded, references leave no
document, and a tool whose schema cannot be checked safely is left out with a warning. Nothing here reaches a network.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from clew.core.errors import BadInput, MissingExtra
from clew.core.printable import short
from clew.core.sources import placed
from clew.core.values import ToolSpec
from clew.methods.world_model.text_files import text_of
from clew.worlds.foreign_schemas import checkable, fault

LARGEST, MOST = 16 << 20, 256  # bytes of a file, tools of it
PARTS = 20_000  # of one tool's schema once its references are followed
METHODS = ("get", "put", "post", "delete", "patch")
REMEDY = "Give OpenAI's tools, the answer of an MCP server to tools/list, or an OpenAPI document, as JSON."
_YAML = (".yaml", ".yml")


class Offer(NamedTuple):
    """A tool of a file. ``answers``: the schema of what it answers, as JSON; None where the file says nothing of it."""

    spec: ToolSpec
    answers: Mapping[str, Any] | None = None


def tools_of_file(ref: str) -> list[Offer]:
    """The tools of a file, in its order.

    Args:
        ref: a path; after # perhaps the names of those that are wanted, with commas.

    Raises:
        BadInput: there is no such file, it holds no tools of a known form, or too many. MissingExtra: it is YAML.
    """
    path, _, names = ref.partition("#")
    offers = tools_of_data(_read(Path(placed(path))), path)
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    known = {offer.spec.name: offer for offer in offers}
    if missing := [name for name in wanted if name not in known]:
        told = ", ".join(sorted(known)[:8])
        raise BadInput(f"{path} has no tool {short(missing[0], 60)!r}", remedy=f"It has {told}, ...")
    found = [known[name] for name in wanted] or offers
    if len(found) > MOST:
        first = ",".join(offer.spec.name for offer in found[:2])
        raise BadInput(f"{path} has {len(found)} tools, above {MOST}", remedy=f"Name those you want: {path}#{first}")
    return found


def tools_of_data(data: object, where: str = "the tools") -> list[Offer]:
    """The tools of what a file holds.

    Raises:
        BadInput: it is of no known form, or no tool of it can be used.
    """
    found: dict[str, Offer] = {}
    for offer in _listed(data, where):
        name, description, schema = offer.spec.name, offer.spec.description, offer.spec.schema
        safe = re.sub(r"[^\w-]", "_", name, flags=re.ASCII)[:64]
        why = "has no name" if not safe else "has the name of another" if safe in found else fault(schema)
        if why:
            warnings.warn(f"a tool of {where} is left out: {short(repr(name), 60)} {why}", stacklevel=2)
            continue
        answers = offer.answers
        if answers is not None and (odd := fault({"type": "object", "properties": {"answer": answers}})):
            warnings.warn(f"answers of {safe} are not checked: the schema of them {odd}", stacklevel=2)
            answers = None
        spec = ToolSpec(safe, short(description, 4000), dict(schema))
        found[safe] = Offer(spec, None if answers is None else checkable(answers))
    if not found:
        raise BadInput(f"{where} holds no tool that a model can be offered", remedy=REMEDY)
    return list(found.values())


def wire_of(spec: ToolSpec) -> dict[str, Any]:
    """A tool as OpenAI's API writes it."""
    function = {"name": spec.name, "description": spec.description, "parameters": dict(spec.schema)}
    return {"type": "function", "function": function}


def _read(path: Path) -> object:
    text = text_of(path, "tools", LARGEST, REMEDY)
    if path.suffix.lower() in _YAML:
        return _yaml(path, text)
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{path} is no JSON: {error}", remedy=REMEDY) from error


def _yaml(path: Path, text: str) -> object:
    try:
        import yaml
    except ImportError as error:
        raise MissingExtra(
            "yaml is not installed", remedy="Run pip install pyyaml, or give the file as JSON."
        ) from error
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise BadInput(f"{path} is no YAML: {short(str(error), 200)}", remedy=REMEDY) from error


def _listed(data: object, where: str) -> Iterator[Offer]:
    """The tools of each form, unchecked."""
    if isinstance(data, Mapping) and isinstance(data.get("paths"), Mapping):
        yield from _operations(data, where)
        return
    for key in ("result", "tools"):
        if isinstance(data, Mapping) and key in data:
            data = data[key]
    if not isinstance(data, list):
        raise BadInput(f"{where} holds no list of tools", remedy=REMEDY)
    for tool in data:
        inner = tool.get("function", tool) if isinstance(tool, Mapping) else None
        if not isinstance(inner, Mapping) or not isinstance(inner.get("name"), str):
            raise BadInput(f"{where} holds something that is no tool: {short(repr(tool), 60)}", remedy=REMEDY)
        schema = next((inner[key] for key in ("parameters", "inputSchema", "input_schema") if inner.get(key)), None)
        schema = {"type": "object", "properties": {}} if schema is None else schema
        answers = inner.get("outputSchema") or inner.get("output_schema")
        yield Offer(_spec(inner["name"], inner.get("description"), schema), answers)


def _operations(document: Mapping[str, Any], where: str) -> Iterator[Offer]:
    """Each operation of an OpenAPI document (3.x, or 2.0) as a tool: its parameters, and those of its JSON body."""
    follow = _Follow(document)
    for path, item in document["paths"].items():
        item = follow.one(item)
        for method in METHODS:
            operation = item.get(method) if isinstance(item, Mapping) else None
            if not isinstance(operation, Mapping):
                continue
            name = str(
                operation.get("operationId") or f"{method}{re.sub(r'[^A-Za-z0-9]+', '_', str(path))}".rstrip("_")
            )
            follow.parts = 0
            try:
                shared = item.get("parameters") or []
                schema = _parameters(follow, [*shared, *(operation.get("parameters") or [])], operation)
                answers = _answers(follow, operation)
            except (LookupError, TypeError, AttributeError, RecursionError) as error:
                warnings.warn(f"a tool of {where} is left out: {short(name, 60)!r} {_why(error)}", stacklevel=3)
                continue
            told = operation.get("summary") or operation.get("description") or ""
            yield Offer(_spec(name, f"{method.upper()} {path}. {told}", schema), answers)


def _why(error: Exception) -> str:
    return f"refers to {short(str(error.args[0]), 60)}" if isinstance(error, KeyError) else "is not as OpenAPI has it"


def _parameters(follow: _Follow, listed: list[Any], operation: Mapping[str, Any]) -> dict[str, Any]:
    properties, required = dict[str, Any](), list[str]()
    body: Any = follow.one(operation.get("requestBody") or {})
    for one in map(follow.one, listed):
        if one.get("in") == "body":  # OpenAPI 2.0
            body = {"content": {"application/json": {"schema": one.get("schema")}}, "required": one.get("required")}
        elif one.get("in") in ("path", "query", "formData"):
            known = {key: one[key] for key in ("type", "enum", "items", "minimum", "maximum") if key in one}
            schema = dict(follow.whole(one.get("schema") or known))
            schema |= {"description": str(one["description"])} if one.get("description") else {}
            properties[str(one["name"])] = schema
            required += [str(one["name"])] * bool(one.get("required") or one.get("in") == "path")
    inner = _json_content(follow, body)
    if isinstance(inner, Mapping) and isinstance(inner.get("properties"), Mapping):
        properties |= {name: one for name, one in inner["properties"].items() if name not in properties}
        required += [
            name for name in inner.get("required") or [] if body.get("required", True) and name not in required
        ]
    elif inner is not None:
        properties["body"] = inner
        required += ["body"] * bool(body.get("required"))
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _answers(follow: _Follow, operation: Mapping[str, Any]) -> Any:
    """The schema of the JSON of a success, where one is said."""
    responses = operation.get("responses") or {}
    for status in ("200", "201", "202", 200, 201, 202, "default"):
        if status in responses:
            answer = follow.one(responses[status])
            return _json_content(follow, answer) or (follow.whole(answer["schema"]) if answer.get("schema") else None)
    return None


def _json_content(follow: _Follow, part: Mapping[str, Any]) -> Any:
    for kind, held in (part.get("content") or {}).items():
        if "json" in str(kind) and isinstance(held, Mapping) and held.get("schema"):
            return follow.whole(held["schema"])
    return None


class _Follow:
    """References within a document, put in the place of what refers; where they go in circles, anything is allowed."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.document, self.parts = document, 0

    def one(self, part: Any) -> Any:
        """A part, or what it refers to.

        Raises:
            LookupError: nothing in this document.
        """
        for _ in range(8):
            ref = part.get("$ref") if isinstance(part, Mapping) else None
            if not isinstance(ref, str):
                return part
            if not ref.startswith("#/"):
                raise LookupError(ref)
            part = self.document
            for word in ref[2:].split("/"):
                part = part[word.replace("~1", "/").replace("~0", "~")]
        raise LookupError(ref)

    def whole(self, part: Any, within: tuple[str, ...] = ()) -> Any:
        """A schema without references, as JSON Schema has it.

        Args:
            within: the references that are being followed.

        Raises:
            LookupError: a reference leads nowhere. RecursionError: the schema grows without bound.
        """
        self.parts += 1
        if self.parts > PARTS:
            raise RecursionError
        ref = part.get("$ref") if isinstance(part, Mapping) else None
        if isinstance(ref, str):
            return {} if ref in within else self.whole(self.one(part), (*within, ref))
        if isinstance(part, list):
            return [self.whole(one, within) for one in part]
        if not isinstance(part, Mapping):
            return part
        made: dict[str, Any] = {}
        for key, value in part.items():
            if key == "properties" and isinstance(value, Mapping):  # these are names, not keywords
                made["properties"] = {str(name): self.whole(one, within) for name, one in value.items()}
            elif key not in _LEFT:
                made[str(key)] = self.whole(value, within)
        if part.get("nullable") is True and isinstance(made.get("type"), str):
            made["type"] = [made["type"], "null"]
        return made


_LEFT = (
    "example",
    "examples",
    "xml",
    "discriminator",
    "externalDocs",
    "nullable",
    "readOnly",
    "writeOnly",
    "deprecated",
)


def _spec(name: str, description: object, schema: Any) -> ToolSpec:
    return ToolSpec(name, str(description or ""), schema)
