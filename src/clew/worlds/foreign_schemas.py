"""Schemas from outside, of a server or a file: what may be shown to a model, and what may be checked by here.

A schema from outside can make a check endless (references that double, a pattern that backtracks) or reach outside (a
reference to an address). ``harness.mcp.server_tools`` and ``worlds.learned`` ask this module before a tool exists;
nothing else may trust a schema.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

MOST = 64_000  # characters of a schema
DEEPEST = 24  # of its levels
WIDEST = 20_000  # parts once its references are followed
UNCHECKED = (
    "pattern",
    "patternProperties",
    "propertyNames",
    "format",
    "contentSchema",
    "$dynamicRef",
    "$dynamicAnchor",
)
"""Keywords that a model is shown and that the server alone checks."""


def fault(schema: object) -> str:
    """Why a schema cannot be used, as the end of a sentence; empty where it can."""
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import SchemaError

    if not isinstance(schema, Mapping) or schema.get("type", "object") != "object":
        return "describes no object of arguments"
    try:
        if len(json.dumps(schema)) > MOST:
            return f"is longer than {MOST:,} characters"
        if _depth(schema) > DEEPEST:
            return f"is deeper than {DEEPEST} levels"
        Draft202012Validator.check_schema(checkable(schema))
        if _width(schema, schema, {}, 0) > WIDEST:
            return "grows without bound as its references are followed"
    except SchemaError as error:
        return f"is no JSON Schema: {error.message[:100]}"
    except LookupError as error:
        return f"refers to {str(error.args[0])[:80]!r}, which is not in it"
    except (RecursionError, ValueError, TypeError):
        return "is no JSON Schema"
    return ""


def checkable(schema: Any) -> Any:
    """The schema without what only the server can check safely; names of properties stay as they are."""
    if isinstance(schema, list):
        return [checkable(item) for item in schema]
    if not isinstance(schema, Mapping):
        return schema
    kept = {key: value for key, value in schema.items() if key not in UNCHECKED}
    return {
        key: _named(value) if key in ("properties", "$defs", "definitions") else _kept(key, value)
        for key, value in kept.items()
    }


def _kept(key: str, value: Any) -> Any:
    return value if key in ("enum", "const", "default", "examples") else checkable(value)


def _named(value: Any) -> Any:
    return {name: checkable(one) for name, one in value.items()} if isinstance(value, Mapping) else value


def _depth(value: object, level: int = 0) -> int:
    if level > DEEPEST:
        return level
    inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    return max((_depth(one, level + 1) for one in inner), default=level)


def _width(part: Any, whole: Mapping[str, Any], known: dict[str, int], level: int) -> int:
    """Parts of a schema with its references followed; a reference inside what it means counts once: it asks for
    deeper arguments each time."""
    if isinstance(part, list):
        return sum(_width(one, whole, known, level) for one in part) + 1
    if not isinstance(part, Mapping):
        return 1
    ref = part.get("$ref")
    if isinstance(ref, str) and ref not in known:
        known[ref] = 1
        known[ref] = _width(_target(whole, ref), whole, known, level + 1)
    own = sum(_width(one, whole, known, level) for key, one in part.items() if key not in ("$defs", "definitions"))
    return own + 1 + (known[ref] if isinstance(ref, str) else 0)


def _target(whole: Mapping[str, Any], ref: str) -> Any:
    """What a reference within the schema means.

    Raises:
        LookupError: nothing here.
    """
    if not ref.startswith("#"):
        raise LookupError(ref)
    found: Any = whole
    for word in ref[1:].split("/")[1:]:
        word = word.replace("~1", "/").replace("~0", "~")
        try:
            found = found[int(word)] if isinstance(found, list) else found[word]
        except (ValueError, TypeError, LookupError):
            raise LookupError(ref) from None
    return found
