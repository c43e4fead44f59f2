"""Tools as worlds describe them to a model."""

from __future__ import annotations

from clew.core.values import ToolSpec


def tool_spec(name: str, description: str, **properties: str) -> ToolSpec:
    """A tool whose arguments are all required; each is given with its JSON type."""
    schema = {
        "type": "object",
        "properties": {k: {"type": v} for k, v in properties.items()},
        "required": list(properties),
        "additionalProperties": False,
    }
    return ToolSpec(name, description, schema)
