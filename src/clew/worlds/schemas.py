"""Tool descriptions, as worlds offer tools to a model. Worlds with tools call it. A description must never hold what a
task keeps secret."""

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
