"""Images that one dialect gave, for another dialect to write.

A message read in one dialect keeps its images and files in that dialect's form. ``neutral`` puts the images into no
dialect's form, which all can write. What has no form elsewhere (documents, files, images by address) is left to be
refused where it would be sent, and is named in the text where a file is written.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from clew.core.values import Message
from clew.models.dialects import dumps, media, messages, tags

OTHERS = ("chat", "responses", "messages")
DATA = re.compile(r"data:(image/[a-z+.-]{1,20});base64,([A-Za-z0-9+/]+={0,2})", re.ASCII)


def neutral(said: Sequence[Message], dialect: str, *, named: bool = False) -> list[Message]:
    """The messages, those with images of other dialects in a form that ``dialect`` writes.

    Args:
        named: put a word in the place of what has no form elsewhere; else such a message stays as it is.
    """
    out = list[Message]()
    while len(out) < len(said):
        at = len(out)
        held = tags(said[at]) if said[at].extra else {}
        if not held or dialect in held or "media" in held:
            out.append(said[at])
        elif "messages" in held:  # the first message of a turn keeps what all of the turn hold
            turn = messages.turn_from(said, at)
            out += _all(turn, messages.parts_of(turn), named)
        else:
            found = [part for other in OTHERS if other in held for part in media(held[other])]
            out += _all([said[at]], [found], named)
    return out


def _all(turn: Sequence[Message], parts: Sequence[Sequence[Any]], named: bool) -> Sequence[Message]:
    """The messages of a turn, each with its parts; as they are where there are none, or one has no form elsewhere."""
    every = [part for found in parts for part in found]
    if not every or (not named and None in map(image_of, every)):
        return turn
    return [_with(m, found) for m, found in zip(turn, parts, strict=True)]


def _with(message: Message, parts: Sequence[Any]) -> Message:
    """The message with these parts as images in no dialect's form."""
    images = [(part, image_of(part)) for part in parts]
    strange = [part for part, image in images if image is None]
    held = [{"type": "image", "media_type": image[0], "data": image[1]} for _, image in images if image is not None]
    notes = [f"[{part.get('type')}, left out]" for part in strange]
    text = "\n".join(filter(None, [message.text, *notes]))
    kept = {name: value for name, value in tags(message).items() if name not in OTHERS}
    kept |= {"media": held} if held else {}
    return message._replace(text=text, extra=dumps(kept) if kept else "")


def image_of(part: object) -> tuple[str, str] | None:
    """Media type and base64 of an image in the form of any dialect; None if it is not an image, or lies elsewhere."""
    if not isinstance(part, dict):
        return None
    source = part.get("source")
    if part.get("type") == "image" and isinstance(source, dict) and source.get("type") == "base64":
        kind, data = source.get("media_type"), source.get("data")
        return (kind, data) if isinstance(kind, str) and isinstance(data, str) else None
    url = part.get("image_url")
    url = url.get("url") if isinstance(url, dict) else url
    found = DATA.fullmatch(url) if isinstance(url, str) else None
    return (found[1], found[2]) if found else None
