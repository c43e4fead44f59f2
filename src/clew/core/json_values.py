"""Any value as JSON can hold it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from clew.core.records import Report


def plain(value: object) -> Any:
    """A value as JSON can hold it: NaN becomes null, bytes hex, records mappings."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, bytes):
        return value.hex()
    if hasattr(value, "_asdict"):
        return plain(value._asdict())
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, list | tuple | set):
        return [plain(item) for item in value]
    if value is None or isinstance(value, str | int | bool):
        return str(value) if type(value) is not str and isinstance(value, str) else value
    return str(value)


def told(id: str, it: Report) -> dict[str, Any]:
    """A Report as a page shows it."""
    fields = ("claim", "estimate", "low", "high", "level", "n", "design")
    return {"id": id, **{name: getattr(it, name) for name in fields}, "caveats": list(it.caveats)}
