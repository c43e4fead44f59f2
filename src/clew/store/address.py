"""Where a store is that lies in no file: its address without the password, and what the driver is told.

``store.open_store`` and the commands ask it; the scheme of an address names who opens it (``clew.stores``). A password
may leave this module only as the attribute ``told`` of a ``Place`` or an ``Address``, which nobody prints.
"""

from __future__ import annotations

import re
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

from clew.core.errors import BadInput
from clew.core.printable import DEFAULT_STORE

_SCHEME = re.compile(r"[a-z][a-z0-9+-]*(?=://)")
SCHEMA = "clew"  # in which the tables lie, unless the address says otherwise
_TELLING = 4  # characters of a password that is looked for in a message: a shorter one is in many words
_SECRET = ("password", "sslpassword")
_WRITE = "Write postgresql://USER@HOST:PORT/DATABASE, with %40 for an @ inside a name or password."


class Address(NamedTuple):
    """An address, read.

    shown: as it may be printed. told: what the driver connects with, password included. secrets: never to be printed.
    """

    shown: str
    told: str
    schema: str
    secrets: tuple[str, ...]

    def hide(self, text: str) -> str:
        """A text of the driver or the server without the password."""
        for secret in self.secrets:
            text = text.replace(secret, "***")
        return text


def is_address(place: object) -> bool:
    """Whether a store is named by an address, as that of a PostgreSQL server is, and not by a path."""
    return isinstance(place, str) and _SCHEME.match(place) is not None


def scheme_of(place: str) -> str:
    """The scheme of an address, as ``postgresql``."""
    return (_SCHEME.match(place) or [""])[0]


class Place(str):
    """An address without its password, which an attribute keeps, so that the store can be opened again by this name."""

    told: str

    def __str__(self) -> str:
        return self


def place_of(text: str) -> str:
    """The name of a store as it may be printed, and opened: an address becomes a ``Place``, a path stays what it is.

    Raises:
        BadInput: as ``read``.
    """
    if isinstance(text, Place) or not is_address(text):
        return text
    place = Place(read(text).shown)
    place.told = text
    return place


def beside(store: str) -> Path:
    """A path in whose folder lies what belongs to a store but is kept in files: trainings, snapshots.

    Of a file it is the file; a store in a server has a folder of its own below ``.clew`` where the process runs.
    """
    if not is_address(store):
        return Path(store).absolute()
    scheme, _, rest = read(store).shown.partition("://")
    name = blake2b(rest.rpartition("@")[2].encode(), digest_size=4).hexdigest()
    return Path(DEFAULT_STORE).absolute().parent / f"{scheme}-{name}" / "store"


def read(text: str) -> Address:
    """Take an address apart.

    Raises:
        BadInput: it is none; the message never repeats it, since a part of it may be the password.
    """
    text = getattr(text, "told", text)
    try:
        parts = urlsplit(text)
        pairs = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
        _ = parts.port if "," not in parts.netloc else None
    except ValueError:
        raise BadInput("the address of the store cannot be read", remedy=_WRITE) from None
    if "@" in parts.path or parts.fragment or text.count("@") > text.partition("?")[0].count("@"):
        raise BadInput("the address of the store has an @ or # where none can be", remedy=_WRITE)
    user, at, host = parts.netloc.rpartition("@")
    name, _, password = user.partition(":")
    schema = next((value for key, value in pairs if key == "schema"), SCHEMA)
    if not re.fullmatch(r"[a-z_][a-z0-9_]{0,62}", schema):
        raise BadInput("the schema of a store is a small word", remedy="Write ?schema=team_a, say.")
    told = [pair for pair in pairs if pair[0] != "schema"]
    plain = [pair for pair in pairs if pair[0] not in _SECRET and pair != ("schema", SCHEMA)]
    secrets = [unquote(password), password, *(value for key, value in pairs if key in _SECRET)]
    end = f"{parts.path}{{}}"
    scheme = "postgresql" if parts.scheme == "postgres" else parts.scheme
    return Address(
        f"{scheme}://{name}{at}{host}" + end.format(f"?{urlencode(plain)}" if plain else ""),
        f"{scheme}://{parts.netloc}" + end.format(f"?{urlencode(told)}" if told else ""),
        schema,
        tuple(sorted({secret for secret in secrets if len(secret) >= _TELLING}, key=len, reverse=True)),
    )
