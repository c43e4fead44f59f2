"""Images inside the ``extra`` of a message or a result: long base64 texts, told apart from what is around them.

``row_codec`` keeps their bytes as blobs, so that an image that a tool gave and a message passed on is in the file once.
Nothing here reads the JSON or looks at what the bytes are.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable, Sequence

from clew.store.protocol import PACKED


def apart(extra: str, keep: Callable[[bytes], bytes]) -> list[str]:
    """``extra`` as texts and, between them, hex keys of blobs; empty where there is nothing to keep apart.

    Args:
        keep: puts a blob away and gives its key.
    """
    found: list[str] = []
    last = 0
    for match in PACKED.finditer(extra):
        text = match[0]
        body = b64decode(text) if len(text) % 4 == 0 else b""
        if b64encode(body).decode() == text:  # else its bytes would not say what it was
            found += [extra[last : match.start()], keep(body).hex()]
            last = match.end()
    return [*found, extra[last:]] if found else []


def joined(parts: Sequence[str], load: Callable[[bytes], bytes]) -> str:
    """The inverse of ``apart``."""
    return "".join(b64encode(load(bytes.fromhex(part))).decode() if at % 2 else part for at, part in enumerate(parts))


def keys(parts: Sequence[str]) -> set[bytes]:
    """Blobs that the parts name."""
    return {bytes.fromhex(part) for part in parts[1::2]}
