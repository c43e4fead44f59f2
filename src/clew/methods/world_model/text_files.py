"""Files of a user's that a simulated world reads: tools, recorded runs, tables of facts; bounded before they are read.

Nothing here parses what a file holds.
"""

from __future__ import annotations

from pathlib import Path

from clew.core.errors import BadInput


def text_of(path: Path, what: str, largest: int, remedy: str) -> str:
    """The text of a file.

    Args:
        what: it should hold, for the error. largest: bytes that it may have.

    Raises:
        BadInput: it cannot be read, is larger, or is no UTF-8.
    """
    try:
        if path.stat().st_size > largest:
            raise BadInput(f"{path} is larger than {largest:,} bytes", remedy="Give a smaller file.")
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", "") or "it is no text"
        raise BadInput(f"cannot read {what} from {path}: {why}", remedy=remedy) from error
