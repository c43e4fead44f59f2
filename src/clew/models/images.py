"""Images in messages and in results: made from a file or from bytes, and written into ``extra`` in no dialect's form.

``clew.image`` and ``clew.media`` are here; tools, MCP servers and conversations use them, the dialects of endpoints
write what ``extra`` holds in their own form, and the viewer reads the headers of images with ``measure``. An image is
never decoded here and never fetched: its header alone is read, since its bytes may be hostile.
"""

from __future__ import annotations

import io
import json
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any, Protocol

from clew.core.errors import BadInput
from clew.core.printable import short
from clew.core.values import Message
from clew.models.dialects import dumps, tags
from clew.models.dialects import media as parts_of

LARGEST = 8 << 20  # bytes of an image
PIXELS = 40_000_000  # of an image: a few bytes can unpack to gigabytes
MOST = 20  # images of one message
KINDS = "PNG, JPEG, GIF or WebP"
_SIZED = set(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}  # segments of a JPEG that tell its size


@dataclass(frozen=True, slots=True)
class Image:
    """An image: its bytes, the media type that its header tells, width and height in pixels.

    As text it is a note of what it is, ``[image/png, 1,234 bytes]``.
    """

    body: bytes = field(repr=False)
    kind: str
    width: int
    height: int

    def __str__(self) -> str:
        return _note(self.kind, len(self.body))


class Saves(Protocol):
    """What writes itself as a file, as images of the package Pillow do."""

    def save(self, file: Any, format: str) -> object: ...


Source = str | PathLike[str] | bytes | Saves | Image


def image(source: Source) -> Image:
    """An image for a message or a result.

    Args:
        source: path of a file, or its bytes; PNG, JPEG, GIF or WebP. Or an image of the package Pillow, which is
            written as PNG.

    Raises:
        BadInput: there is no such file, it is none of these, larger than 8 MiB or of more than 40 megapixels.
    """
    if isinstance(source, Image):
        return source
    name = "the image"
    if isinstance(source, (bytes, bytearray, memoryview)):
        body = bytes(source)
    elif isinstance(source, (str, PathLike)):
        name = short(str(source), 200)
        body = _read(Path(source), name)
    elif callable(getattr(source, "save", None)):
        into = io.BytesIO()
        source.save(into, format="PNG")
        body = into.getvalue()
    else:
        told = f"an image cannot be made of a {type(source).__name__}"
        raise BadInput(told, remedy="Give the path of a file, or its bytes.")
    found = Image(body, *measure(body))
    if why := _wrong(found):
        raise BadInput(f"{name} {why}", remedy=f"Give {KINDS} of at most {LARGEST >> 20} MiB and 40 megapixels.")
    return found


def _read(path: Path, name: str) -> bytes:
    if name.startswith(("http://", "https://")):
        raise BadInput(f"{name} is not fetched", remedy="Download it, and give the file.")
    try:
        with path.open("rb") as file:
            return file.read(LARGEST + 1)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise BadInput(f"{name} cannot be read: {why}", remedy="Give the path of an image.") from error


def _wrong(found: Image) -> str:
    """Why an image is not taken; empty where it is."""
    if len(found.body) > LARGEST:
        return f"is larger than {LARGEST >> 20} MiB"
    if not found.kind:
        return f"does not begin as {KINDS} does"
    if not 0 < found.width * found.height <= PIXELS:
        return f"has {found.width} x {found.height} pixels"
    return ""


def media(*given: Image) -> str:
    """Images as ``Message.extra`` and ``Observation.extra`` hold them: JSON text, empty for none.

    Raises:
        BadInput: they are more than 20.
    """
    if len(given) > MOST:
        raise BadInput(f"a message with {len(given)} images", remedy=f"Give at most {MOST}.")
    held = [{"type": "image", "media_type": one.kind, "data": b64encode(one.body).decode()} for one in given]
    return dumps({"media": held}) if held else ""


def with_images(message: Message, given: Sequence[Image]) -> Message:
    """A message with images beside those that it has."""
    held = tags(message)
    more = json.loads(media(*given))["media"]
    return message._replace(extra=dumps({**held, "media": [*held.get("media", ()), *more]}))


def unnamed(message: Message) -> list[str]:
    """Notes of the images that a message's text does not name: who reads the text alone would miss them."""
    found: list[str] = []
    for dialect, change in tags(message).items():
        for part in parts_of(change):
            data = part.get("data") if dialect == "media" else None
            if isinstance(data, str):
                found.append(_note(str(part.get("media_type"))[:40], len(data) * 3 // 4 - data[-2:].count("=")))
            elif "image" in part["type"]:
                found.append(f"[{part['type'][:40]}]")
    return [note for note in found if note not in message.text]


def _note(kind: str, size: int) -> str:
    return f"[{kind}, {size:,} bytes]"


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
