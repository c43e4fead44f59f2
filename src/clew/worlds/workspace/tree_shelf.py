"""The shelf of trees: contents of files and listings of folders, each kept once under a digest of its bytes.

``Scan`` puts objects there and ``restore`` reads them. An object is written whole or not at all, so that a kill leaves
none that is cut short; what a kill left half-written is swept when the shelf is opened again. An object must never be
changed once it is there.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from clew.core.errors import BadInput, BadRecord, UnknownName
from clew.core.keys import digest, encode

CONTENT, LISTING, STATE = b"clew.file.1", b"clew.folder.1", b"clew.tree.1"
FILE, FOLDER, LINK = "f", "d", "l"
KINDS = (FILE, FOLDER, LINK)
LONGEST = 64 << 20  # bytes of a listing


class Entry(NamedTuple):
    """A name in a folder.

    name: as the file system has it, with surrogates for bytes that are no UTF-8. kind: FILE, FOLDER or LINK. mode:
    permission bits. mtime: nanoseconds. key: of the content, of the listing, or of the link's target, hexadecimal.
    state: as key, but of what the entry holds without times. size: bytes of a file or target.
    """

    name: str
    kind: str
    mode: int
    mtime: int
    key: str
    state: str
    size: int


def is_key(text: str) -> bool:
    """Whether a text has the form of a key."""
    return len(text) == 32 and not set(text) - set("0123456789abcdef")


class TreeShelf:
    """Objects in a folder, by digest.

    Args:
        folder: made if it is not there.

    Raises:
        BadInput: the place is no folder.
    """

    def __init__(self, folder: Path) -> None:
        try:
            (folder / "new").mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BadInput(f"{folder} cannot hold a shelf: {error.strerror}", remedy="Name a folder.") from None
        self.folder = folder
        self.added = 0  # bytes that this shelf put there
        self._made = {path.name for path in folder.iterdir() if len(path.name) == 2}
        self._sweep()

    def _sweep(self) -> None:
        """Remove what processes that are gone left half-written."""
        for path in (self.folder / "new").iterdir():
            number = path.name.partition("-")[0]
            if not number.isdigit() or not Path(f"/proc/{number}").exists():
                path.unlink(missing_ok=True)

    def _place(self, key: str) -> Path:
        return self.folder / key[:2] / key[2:]

    def __contains__(self, key: str) -> bool:
        return is_key(key) and self._place(key).exists()

    def put(self, data: bytes, tag: bytes) -> str:
        """Keep bytes; gives their key."""
        key = digest(tag, data).hex()
        place = self._place(key)
        if key[:2] not in self._made:
            place.parent.mkdir(exist_ok=True)
            self._made.add(key[:2])
        elif place.exists():
            return key
        part = self.folder / "new" / f"{os.getpid()}-{key}"
        part.write_bytes(data)
        part.chmod(0o444)
        os.replace(part, place)
        self.added += len(data)
        return key

    def get(self, key: str, tag: bytes) -> bytes:
        """The bytes of a key.

        Raises:
            UnknownName: there are none. BadRecord: they are not those that were put there.
        """
        if not is_key(key):
            raise BadRecord("a key that is no digest", remedy="The listing is damaged.")
        try:
            data = self._place(key).read_bytes()
        except FileNotFoundError:
            raise UnknownName(f"the shelf has no object {key}", remedy="It was removed, or never kept.") from None
        if digest(tag, data).hex() != key:
            raise BadRecord(f"the object {key} was changed on the disk", remedy="Restore it from a copy.")
        return data

    def put_listing(self, entries: Sequence[Entry]) -> tuple[str, str]:
        """Keep a folder's entries, which are in order; gives the keys of the listing and of its state."""
        rows = "\n".join(json.dumps(entry, separators=(",", ":")) for entry in entries)
        held = json.dumps([[e.name, e.kind, e.mode, e.state] for e in entries], separators=(",", ":"))
        return self.put(encode(rows), LISTING), digest(STATE, encode(held)).hex()

    def listing(self, key: str) -> list[Entry]:
        """A folder's entries.

        Raises:
            UnknownName: there is no such listing. BadRecord: it is damaged, or names what no folder holds.
        """
        data = self.get(key, LISTING)
        if len(data) > LONGEST:
            raise BadRecord(f"a listing of {len(data):,} bytes", remedy="The shelf is damaged.")
        found = list[Entry]()
        for line in data.splitlines():
            try:
                name, kind, mode, mtime, child, state, size = json.loads(line)
                entry = Entry(name, kind, int(mode), int(mtime), str(child), str(state), int(size))
            except (ValueError, TypeError, RecursionError):
                raise BadRecord(f"the listing {key} is damaged", remedy="Restore it from a copy.") from None
            good = isinstance(name, str) and name not in ("", ".", "..") and not {"/", "\0"} & set(name)
            if not good or kind not in KINDS or not 0 <= entry.mode <= 0o7777:
                raise BadRecord(f"the listing {key} names what no folder holds", remedy="Restore it from a copy.")
            found.append(entry)
        return found

    def walk(self, key: str, path: str = "") -> Iterator[tuple[str, Entry]]:
        """Every entry below a listing with its path, folders before what they hold."""
        for entry in self.listing(key):
            yield path + entry.name, entry
            if entry.kind == FOLDER:
                yield from self.walk(entry.key, f"{path}{entry.name}/")

    def reached(self, keys: Sequence[str]) -> set[str]:
        """Every object that these listings need, themselves among them: what a sweep must keep."""
        found = set[str]()
        stack = list(keys)
        while stack:
            key = stack.pop()
            if key in found:
                continue
            found.add(key)
            for entry in self.listing(key):
                if entry.kind == FOLDER:
                    stack.append(entry.key)
                else:
                    found.add(entry.key)
        return found

    def keep_only(self, keys: Sequence[str]) -> int:
        """Remove every object that these listings do not need; gives how many bytes were removed."""
        needed, removed = self.reached(keys), 0
        for folder in self.folder.iterdir():
            if len(folder.name) != 2:
                continue
            for path in folder.iterdir():
                if folder.name + path.name not in needed:
                    removed += path.stat().st_size
                    path.unlink()
        return removed


def changes(shelf: TreeShelf, before: str, after: str) -> Mapping[str, tuple[Entry | None, Entry | None]]:
    """Paths that differ in content, kind or mode between two listings, with both entries; None where there is none.

    Folders that are equal but for times are not read.
    """
    found: dict[str, tuple[Entry | None, Entry | None]] = {}
    stack = [(before, after, "")]
    while stack:
        old_key, new_key, path = stack.pop()
        old = {e.name: e for e in shelf.listing(old_key)} if old_key else {}
        new = {e.name: e for e in shelf.listing(new_key)} if new_key else {}
        for name in sorted({*old, *new}):
            a, b = old.get(name), new.get(name)
            if a is not None and b is not None and (a.kind, a.mode, a.state) == (b.kind, b.mode, b.state):
                continue
            folders = [e.key if e is not None and e.kind == FOLDER else "" for e in (a, b)]
            same = a is not None and b is not None and (a.kind, a.mode) == (b.kind, b.mode)
            if not (same and any(folders)):
                found[path + name] = (a, b)
            if any(folders):
                stack.append((folders[0], folders[1], f"{path}{name}/"))
    return dict(sorted(found.items()))
