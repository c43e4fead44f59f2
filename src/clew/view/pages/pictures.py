"""Images and other parts of a message beside its text, as the page shows them: from the record, never from elsewhere.

The transcript asks what a message holds (``parts``), the server for the bytes of one image (``picture``). A remote
image is named and never fetched. What a message says of itself is hostile: only bytes that begin as a PNG, JPEG, GIF or
WebP image does, of a bounded size, are handed to the browser.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from clew.core.errors import UnknownName
from clew.core.values import Message
from clew.models.dialects import media, tags

PARTS = 20  # parts of one message that are shown at most
LARGEST = 8 << 20  # bytes of an image that is shown
PIXELS = 40_000_000  # of an image that is shown: a few bytes can unpack to gigabytes
_DATA = re.compile(r"data:([\w.+/-]{1,80})?((?:;[\w.=+-]{1,80}){0,4}),", re.ASCII)
_SIZED = set(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}  # segments of a JPEG that tell its size


class Picture(NamedTuple):
    """An image that may be shown: its bytes, the media type that they have, width and height in pixels."""

    body: bytes
    kind: str
    width: int
    height: int


def parts(message: Message) -> list[dict[str, Any]]:
    """What a message holds beside text.

    Each has ``kind``, and ``size`` in bytes where ``bytes`` is true, else in characters of JSON. An image that
    can be shown has its media type as ``image``, with ``width`` and ``height`` in pixels; another part has ``note``,
    which says why it is not shown.
    """
    return [_shown(part) for part in _found(message)]


def picture(message: Message, at: int) -> Picture:
    """The image at a place of ``parts``.

    Raises:
        UnknownName: there is no image that can be shown.
    """
    found = _found(message)
    shown = _read(found[at]) if 0 <= at < len(found) else None
    if not isinstance(shown, Picture):
        raise UnknownName(f"no image {at} in this message")
    return shown


def _found(message: Message) -> list[dict[str, Any]]:
    return media(tags(message))[:PARTS] if message.extra else []


def _shown(part: dict[str, Any]) -> dict[str, Any]:
    read = _read(part)
    if isinstance(read, Picture):
        known = {"image": read.kind, "width": read.width, "height": read.height}
        return {"kind": "image", "size": len(read.body), "bytes": True, **known}
    kind = "image" if "image" in part["type"] else part["type"][:40]
    note, size = read
    return {"kind": kind, "size": size or len(json.dumps(part)), "bytes": bool(size), "note": note}


def _read(part: dict[str, Any]) -> Picture | tuple[str, int]:
    """The image that a part holds; or why none is shown, and its bytes where they are known, else 0."""
    if "image" not in part["type"]:
        return "", 0
    fields = dict(_fields(part))
    address = fields.get("url") or fields.get("image_url") or ""
    stated, text = fields.get("media_type") or fields.get("mimeType") or "", fields.get("data") or ""
    if address:
        match = _DATA.match(address)
        if match is None:
            return f"not fetched from {address[:200]}", 0
        stated, text = match[1] or "", address[match.end() :]
    kind = stated[:40] or "unknown type"
    if len(text) > LARGEST * 4 // 3 + 4:
        return f"{kind}, larger than {LARGEST >> 20} MiB", 0
    try:
        body = base64.b64decode(text, validate=True)
    except (ValueError, binascii.Error):
        return f"{kind}, not in base64", 0
    found = Picture(body, *measure(body))
    if not found.kind:
        return f"{kind}, not shown: its bytes are no PNG, JPEG, GIF or WebP", len(body)
    if not 0 < found.width * found.height <= PIXELS:
        return f"{found.kind}, not shown: {found.width} x {found.height} pixels", len(body)
    return found


def _fields(part: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Texts of a part and of the objects directly in it: chat completions, responses, messages and MCP differ here."""
    for name, value in part.items():
        if isinstance(value, str):
            yield name, value
        elif isinstance(value, dict):
            yield from ((key, inner) for key, inner in value.items() if isinstance(inner, str))


def measure(body: bytes) -> tuple[str, int, int]:
    """Media type, width and height of a PNG, JPEG, GIF or WebP image, by its header; an empty type where it is none."""

    def number(at: int, size: int, order: Any = "little") -> int:
        return int.from_bytes(body[at : at + size], order)

    if body.startswith(b"\x89PNG\r\n\x1a\n") and body[12:16] == b"IHDR":
        return "image/png", number(16, 4, "big"), number(20, 4, "big")
    if body.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif", number(6, 2), number(8, 2)
    if body.startswith(b"\xff\xd8"):
        return "image/jpeg", *_jpeg(body)
    if body.startswith(b"RIFF") and body[8:12] == b"WEBP":
        if body[12:16] == b"VP8X":
            return "image/webp", number(24, 3) + 1, number(27, 3) + 1
        if body[12:16] == b"VP8L":
            bits = number(21, 4)
            return "image/webp", (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
        return "image/webp", number(26, 2) & 0x3FFF, number(28, 2) & 0x3FFF
    return "", 0, 0


def _jpeg(body: bytes) -> tuple[int, int]:
    """Width and height of the first frame; 0 where no frame begins within 1,000 segments."""
    at = 2
    for _ in range(1000):
        if at + 9 > len(body) or body[at] != 0xFF:
            break
        if body[at + 1] in _SIZED:
            return int.from_bytes(body[at + 7 : at + 9], "big"), int.from_bytes(body[at + 5 : at + 7], "big")
        at += 2 + max(2, int.from_bytes(body[at + 2 : at + 4], "big"))
    return 0, 0
