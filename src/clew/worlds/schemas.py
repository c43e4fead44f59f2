"""What a tool takes: its description as a model is told it, and the check of the arguments that a model then gives.

Worlds with tools, ``harness.tools`` and ``coding.diagnose`` call it: every tool call of a model is read here, by the
schema that the model was shown. Arguments come from outside, so nothing here may raise anything except BadInput. A
description must never hold what a task keeps secret.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NoReturn

from clew.core.errors import BadInput
from clew.core.values import ToolSpec

if TYPE_CHECKING:
    from jsonschema import ValidationError
    from jsonschema.protocols import Validator

SHOWN = 60  # characters of a wrong value that an error repeats
FAULTS = 3  # that one error names


def tool_spec(name: str, description: str, **properties: str) -> ToolSpec:
    """A tool whose arguments are all required; each is given with its JSON type."""
    schema = {
        "type": "object",
        "properties": {k: {"type": v} for k, v in properties.items()},
        "required": list(properties),
        "additionalProperties": False,
    }
    return ToolSpec(name, description, schema)


def read_arguments(spec: ToolSpec, text: str) -> dict[str, Any]:
    """The arguments of a model's call of a tool, as they were written; nothing is turned into another type.

    Raises:
        BadInput: the text is no JSON object, or an argument does not fit the tool's schema. The message names it.
    """
    try:
        given = json.loads(text or "{}", parse_constant=_no_number, parse_float=_number)
    except (ValueError, RecursionError) as error:
        why = "nested too deep" if isinstance(error, RecursionError) else str(error)
        raise BadInput(f"the arguments are not JSON: {why}") from error
    faults = check_arguments(spec.schema, given)
    if faults:
        raise BadInput("; ".join(faults))
    assert isinstance(given, dict)
    return given


def check_arguments(schema: Mapping[str, Any], given: object) -> list[str]:
    """What is wrong with arguments by a tool's schema, one sentence each, the first few; nothing for those that fit."""
    if not isinstance(given, dict):
        return [f"the arguments must be an object, not {_shown(given)}"]
    try:
        found = sorted(_validator(json.dumps(schema, sort_keys=True)).iter_errors(given), key=lambda e: str(e.path))
    except RecursionError:
        return ["the arguments are nested too deep"]
    return list(dict.fromkeys(map(_sentence, found)))[:FAULTS]  # several errors may have one sentence


@lru_cache(maxsize=256)
def _validator(schema: str) -> Validator:
    from jsonschema import Draft202012Validator, validators
    from referencing import Registry

    whole = Draft202012Validator.TYPE_CHECKER.redefine("integer", lambda _, value: type(value) is int)  # 1.0 is none
    strict = validators.extend(Draft202012Validator, type_checker=whole)
    return strict(json.loads(schema), registry=Registry())  # an empty registry: no reference is fetched


def _sentence(error: ValidationError) -> str:
    path = list(error.absolute_path)
    name = "argument " + ".".join(map(str, path)) if path else "the call"
    wanted, value = error.validator_value, _shown(error.instance)
    if error.validator == "required" and isinstance(error.instance, dict):
        left_out = [str(key) for key in wanted if key not in error.instance]
        return f"{name} lacks {_names(left_out)}"
    if error.validator == "additionalProperties" and isinstance(error.instance, dict) and wanted is False:
        known = error.schema.get("properties", {}) if isinstance(error.schema, dict) else {}
        odd = [str(key) for key in error.instance if key not in known]
        return f"{name} has no argument {_names(odd)}; it takes {_names(known) or 'none'}"
    kinds = _kinds(error.schema)
    if error.validator in ("type", "enum", "anyOf") and kinds:
        return f"{name} must be {kinds}, not {value}"
    return f"{name} breaks {error.validator} {_shown(wanted)}: {value}"


def _kinds(schema: object) -> str:
    """What a schema asks for, in words; empty where that cannot be said shortly."""
    if not isinstance(schema, Mapping):
        return ""
    if "enum" in schema:
        return "one of " + ", ".join(json.dumps(value) for value in schema["enum"])
    if "anyOf" in schema:
        kinds = [_kinds(one) for one in schema["anyOf"]]
        return " or ".join(kinds) if all(kinds) else ""
    kind = schema.get("type", "")
    return " or ".join(kind) if isinstance(kind, list) else str(kind)


def _names(names: Iterable[str]) -> str:
    return ", ".join(_shown(name) for name in names)


def _shown(value: object) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False, default=repr)
    except (ValueError, RecursionError):
        text = type(value).__name__
    return text if len(text) <= SHOWN else text[: SHOWN - 1] + "…"


def _number(text: str) -> float:
    value = float(text)
    return value if math.isfinite(value) else _no_number(_shown(text))


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no finite number")
