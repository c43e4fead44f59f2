"""The zip that a portable run is: which members it has, how much one may hold, and how it is read without trust.

``packing`` and ``unpacking`` use it. A member's name must never become a path: it is compared with known names.
"""

from __future__ import annotations

import json
import re
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from clew.core.errors import BadInput, BadRecord
from clew.exchange.files import Budget, loads, unusable

MANIFEST, STORE = "manifest.json", "runs.db"
OBJECT = re.compile(r"files/([0-9a-f]{2})/([0-9a-f]{30})")
FORM, VERSION = "portable run of Clew", 1
OBJECTS = 500_000  # of a file at most
DIRECTORY = 64 << 20  # bytes of the list of members, about 85 for each
TOLD = 16 << 20  # bytes of the manifest
PIECE, DENSE = 1 << 20, 50  # bytes that are read at once; what packs more than so many times is not packed
DAMAGED = "The file is damaged or was not copied whole; ask for it again."
EPOCH = (1980, 1, 1, 0, 0, 0)


class Manifest(NamedTuple):
    """runs: the ids that were asked for. along: those that go along. store: digest of the store, hexadecimal.

    objects: how many there are. erased, masked: as in ``Scrubbed``. left_out: paths of contents that held a credential.
    """

    runs: list[str]
    along: list[str]
    store: str
    objects: int
    erased: list[str]
    masked: list[str]
    left_out: list[str]

    def text(self) -> bytes:
        told = {"format": FORM, "version": VERSION, **self._asdict()}
        return json.dumps(told, indent=1).encode()


def place_of(key: str) -> str:
    """The name of the member that holds an object."""
    return f"files/{key[:2]}/{key[2:]}"


def add(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
    """A member; one that would pack so well that a reader takes it for a trap is not packed."""
    entry = zipfile.ZipInfo(name, EPOCH)
    dense = len(data) > 1 << 16 and len(zlib.compress(data, 1)) * DENSE < len(data)
    entry.compress_type = zipfile.ZIP_STORED if dense else zipfile.ZIP_DEFLATED
    entry.external_attr = 0o644 << 16
    archive.writestr(entry, data)


class Reader:
    """A portable run, opened to be read. Every byte that is unpacked counts against one budget.

    Raises:
        BadInput: it cannot be opened. BadRecord: it is no portable run, or more than one may be.
    """

    def __init__(self, path: Path, archive: zipfile.ZipFile, budget: Budget) -> None:
        self.path, self._archive, self._budget = path, archive, budget
        self.objects: dict[str, str] = {}  # members by key
        names = set[str]()
        for entry in archive.infolist():
            name = entry.filename
            if name in names:
                raise self.bad("holds a member twice")
            names.add(name)
            if entry.flag_bits & 1 or entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise self.bad("holds a member that is locked, or packed in a way that Clew never packs")
            if found := OBJECT.fullmatch(name):
                self.objects[found[1] + found[2]] = name
            elif name not in (MANIFEST, STORE):
                raise self.bad("holds a member that no portable run has")
        if not names.issuperset((MANIFEST, STORE)):
            raise self.bad("is a zip, but holds no runs of Clew")
        if len(self.objects) > OBJECTS:
            raise self.bad(f"holds more than {OBJECTS:,} objects")

    def bad(self, what: str, remedy: str = DAMAGED) -> BadRecord:
        return BadRecord(f"{self.path.name} {what}", remedy=remedy)

    def pieces(self, name: str) -> Iterator[bytes]:
        """What a member holds."""
        with self._archive.open(name) as member:
            while piece := member.read(PIECE):
                self._budget.spend(len(piece))
                yield piece

    def all(self, name: str, most: int) -> bytes:
        """The same at once.

        Raises:
            BadRecord: it holds more than ``most`` bytes.
        """
        found, size = list[bytes](), 0
        for piece in self.pieces(name):
            size += len(piece)
            if size > most:
                raise self.bad(f"holds a member of more than {most:,} bytes")
            found.append(piece)
        return b"".join(found)

    def manifest(self) -> Manifest:
        """What it says of itself.

        Raises:
            BadRecord: it says it wrongly, or a newer Clew wrote it.
        """
        try:
            told = loads(self.all(MANIFEST, TOLD))
        except ValueError as error:
            raise self.bad(f"holds a manifest that is none: {error}") from None
        if not isinstance(told, dict) or told.get("format") != FORM or not isinstance(told.get("version"), int):
            raise self.bad("is a zip, but no portable run of Clew")
        if told["version"] > VERSION:
            raise self.bad("was written by a newer Clew", "pip install --upgrade clew")
        lists = [told.get(name) for name in ("runs", "along", "erased", "masked", "left_out")]
        if any(not isinstance(one, list) or any(not isinstance(item, str) for item in one) for one in lists):
            raise self.bad("holds a manifest that lacks what every manifest says")
        if told.get("objects") != len(self.objects) or not isinstance(told.get("store"), str):
            raise self.bad("lacks objects that it should hold, or holds others")
        return Manifest(**{name: told[name] for name in Manifest._fields})


@contextmanager
def reading(path: Path) -> Iterator[Reader]:
    """A portable run to be read; what is wrong with the zip leaves as one of our errors.

    Raises:
        BadInput: it cannot be opened. BadRecord: it is none, is damaged, or holds more than one may.
    """
    try:
        _bounded(path)
        with zipfile.ZipFile(path) as archive:
            yield Reader(path, archive, Budget(path))
    except OSError as error:
        raise unusable(path, error) from error
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, struct.error, UnicodeDecodeError) as error:
        raise BadRecord(f"{path.name} is no whole zip: {str(error)[:80]}", remedy=DAMAGED) from error


def _bounded(path: Path) -> None:
    """Refuse a list of members that is too long, before it is read: each takes ten times its size in memory.

    Raises:
        BadRecord: it is too long, or the file does not end as one of ours does.
    """
    with open(path, "rb") as file:
        file.seek(max(0, path.stat().st_size - 98))
        tail = file.read(98)
    if tail[-22:-18] != b"PK\5\6" or tail[-2:] != b"\0\0":
        raise BadRecord(f"{path.name} is no portable run of Clew", remedy=DAMAGED)
    sizes = [struct.unpack("<I", tail[-10:-6])[0]]
    if tail[-42:-38] == b"PK\6\7" and len(tail) == 98:  # a long file says the size before, and the reader takes that
        sizes = [struct.unpack("<Q", tail[-98 + 40 : -98 + 48])[0]]
    if max(sizes) > DIRECTORY:
        raise BadRecord(f"{path.name} lists more members than a portable run has", remedy="Do not use it.")


def no_files(missing: str) -> BadInput:
    remedy = "Put the folder files/ that belongs to the store beside it, or leave the files out with --no-files."
    return BadInput(f"the shelf lacks files of these runs: {missing}", remedy=remedy)
