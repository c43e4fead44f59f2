"""The scorer ``json_schema``: whether a reply is JSON that fits a schema. The dataset's rewards call it by name."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from clew.core.errors import BadInput

if TYPE_CHECKING:
    from jsonschema.protocols import Validator

LONGEST, DEPTH = 1 << 20, 100  # characters of a reply that are read, and how deep its values may be nested
FENCE = re.compile(r"```(?:json)?[ \t]*\n(.*?)```", re.DOTALL)


def json_schema(reply: str, answer: object, *, schema: Mapping[str, Any] | str = "") -> float:
    """1 where the reply, or the last fenced block in it, is JSON that fits the schema; else 0. No reference in a schema
    is fetched.

    Args:
        schema: a JSON Schema (draft 2020-12), as an object or JSON text. Without one the answer is the schema.

    Raises:
        BadInput: the schema is none.
    """
    validator = _validator(_text(schema or answer))
    if len(reply) > LONGEST or reply.count("[") + reply.count("{") > LONGEST // 8:
        return 0.0
    try:
        blocks = FENCE.findall(reply)
        value = json.loads(blocks[-1] if blocks else reply)
        return float(_depth(reply) <= DEPTH and validator.is_valid(value))
    except (ValueError, RecursionError):
        return 0.0


def _depth(text: str) -> int:
    """At least how deep the values of a JSON text are nested: brackets in strings count too."""
    depth = most = 0
    for bracket in re.findall(r"[\[{}\]]", text):
        depth += 1 if bracket in "[{" else -1
        most = max(most, depth)
    return most


def _text(schema: object) -> str:
    return schema if isinstance(schema, str) else json.dumps(schema, sort_keys=True, default=str)


@lru_cache(maxsize=64)
def _validator(text: str) -> Validator:
    from jsonschema import Draft202012Validator, SchemaError
    from referencing import Registry

    try:
        schema = json.loads(text)
        Draft202012Validator.check_schema(schema)
    except (ValueError, RecursionError, SchemaError) as error:
        said = getattr(error, "message", str(error))
        remedy = "Give a JSON Schema, as an argument of json_schema or as the row's answer."
        raise BadInput(f"{text[:60]!r} is no JSON Schema: {said[:200]}", remedy=remedy) from error
    return Draft202012Validator(schema, registry=Registry())
