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
from typing import Any

from clew.core.errors import UnknownName
from clew.core.values import Message
from clew.models.dialects import media, tags
from clew.models.images import LARGEST, PIXELS, Image, measure

PARTS = 20  # parts of one message that are shown at most
_DATA = re.compile(r"data:([\w.+/-]{1,80})?((?:;[\w.=+-]{1,80}){0,4}),", re.ASCII)


def parts(message: Message) -> list[dict[str, Any]]:
    """What a message holds beside text.

    Each has ``kind``, and ``size`` in bytes where ``bytes`` is true, else in characters of JSON. An image that
    can be shown has its media type as ``image``, with ``width`` and ``height`` in pixels; another part has ``note``,
    which says why it is not shown.
    """
    return [_shown(part) for part in _found(message)]


def picture(message: Message, at: int) -> Image:
    """The image at a place of ``parts``.

    Raises:
        UnknownName: there is no image that can be shown.
    """
    found = _found(message)
    shown = _read(found[at]) if 0 <= at < len(found) else None
    if not isinstance(shown, Image):
        raise UnknownName(f"no image {at} in this message")
    return shown


def _found(message: Message) -> list[dict[str, Any]]:
    return media(tags(message))[:PARTS] if message.extra else []


def _shown(part: dict[str, Any]) -> dict[str, Any]:
    read = _read(part)
    if isinstance(read, Image):
        known = {"image": read.kind, "width": read.width, "height": read.height}
        return {"kind": "image", "size": len(read.body), "bytes": True, **known}
    kind = "image" if "image" in part["type"] else part["type"][:40]
    note, size = read
    return {"kind": kind, "size": size or len(json.dumps(part)), "bytes": bool(size), "note": note}


def _read(part: dict[str, Any]) -> Image | tuple[str, int]:
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
    found = Image(body, *measure(body))
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
