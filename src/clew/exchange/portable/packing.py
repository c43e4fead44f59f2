"""Writes a portable run: a copy of the chosen runs is made aside, credentials are taken out of it, the rest is packed.

``clew export`` calls ``pack``. Neither the store nor its shelf is ever changed, and no file is written while a
credential is in it that cannot be taken out.
"""

from __future__ import annotations

import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from clew.core.errors import BadInput, UnknownName
from clew.core.keys import BLOB, digest
from clew.core.printable import short
from clew.exchange.files import replacing
from clew.exchange.portable import container
from clew.exchange.portable.credentials import Credentials
from clew.exchange.portable.scrubbing import scrub, settings_of
from clew.serve import noted_files
from clew.store import Keeper, MemoryStore
from clew.store.bundles.chosen import bundle
from clew.store.protocol import Tables
from clew.store.sqlite.foreign import values
from clew.store.sqlite.store import SQLiteStore
from clew.worlds.workspace import TreeShelf
from clew.worlds.workspace.tree_shelf import CONTENT, FOLDER, LISTING


class Packed(NamedTuple):
    """What was written. told: the manifest. left_out: kind of credential by the path of each file that is missing.

    size: bytes of the file.
    """

    told: container.Manifest
    left_out: Mapping[str, str]
    size: int


def pack(
    store: Keeper,
    runs: Iterable[str],
    path: Path,
    *,
    shelf: TreeShelf | None = None,
    credentials: Credentials | None = None,
) -> Packed:
    """Write runs to one file, whole or not at all, with what they share and without credentials.

    Args:
        runs: ids. shelf: where the snapshots of their files are; None leaves these out.
        credentials: what to take out besides keys of known shapes.

    Raises:
        BadInput: there is no run, files are missing, or a credential stands where none can be taken out.
    """
    chosen, credentials = list(dict.fromkeys(runs)), credentials or Credentials()
    if not chosen:
        raise BadInput("no run to export", remedy="Choose runs by id or by a query that selects some.")
    copy = MemoryStore()
    members = bundle(copy, store, chosen, () if shelf is not None else (noted_files.METHOD,))
    noted = copy.annotations(None, noted_files.METHOD)
    trees = noted_files.trees(copy)
    rows = [copy.row(run) for run in copy.run_ids()]
    credentials = credentials.told(text for row in rows for text in settings_of(row))
    scrubbed = scrub(copy, credentials)
    gone, objects = dict[str, tuple[str, str]](), 0
    with replacing(path) as beside, tempfile.TemporaryDirectory() as folder:
        with zipfile.ZipFile(beside, "w", zipfile.ZIP_DEFLATED) as archive:
            if shelf is not None:
                absent = noted_files.left_out(noted)
                for key, data in _objects(shelf, list(trees), absent, credentials, gone):
                    if objects == container.OBJECTS:
                        raise BadInput(
                            f"these runs have more than {objects:,} files", remedy="Leave them out with --no-files."
                        )
                    objects += 1
                    container.add(archive, container.place_of(key), data)
            if gone:
                paths = {key: where for key, (where, _) in gone.items()}
                copy.annotate([noted_files.without(run, paths) for run in sorted({*trees.values()})])
            data = _written(copy, Path(folder) / container.STORE, credentials)
            container.add(archive, container.STORE, data)
            told = container.Manifest(
                chosen,
                members[len(chosen) :],
                digest(BLOB, data).hex(),
                objects,
                *scrubbed,
                [p for p, _ in gone.values()],
            )
            container.add(archive, container.MANIFEST, told.text())
        size = beside.stat().st_size
    return Packed(told, dict(gone.values()), size)


def _objects(
    shelf: TreeShelf,
    trees: list[str],
    absent: Mapping[str, str],
    credentials: Credentials,
    gone: dict[str, tuple[str, str]],
) -> Iterator[tuple[str, bytes]]:
    """Every object that trees need, each once; of contents with a credential path and kind are told in ``gone``.

    Raises:
        BadInput: an object is missing, or the name of a file holds a credential.
    """
    stack, seen = [(tree, "", LISTING) for tree in reversed(trees)], set[tuple[str, bytes]]()
    while stack:
        key, path, tag = stack.pop()
        if (key, tag) in seen:
            continue
        seen.add((key, tag))
        try:
            data = shelf.get(key, tag)
        except UnknownName:
            if key in absent:
                continue
            raise container.no_files(short(path or "a whole snapshot", 80)) from None
        kind = credentials.first_in_file(data)
        if kind and tag == LISTING:
            remedy = "Rename the file and record again, or leave the files out with --no-files."
            raise BadInput(f"the name of a file in {short(path or '.', 80)} holds {kind}", remedy=remedy)
        if kind:
            gone[key] = (path, kind)
            continue
        yield key, data
        if tag == LISTING:
            for entry in reversed(shelf.listing(key)):
                inner = f"{path}/{entry.name}" if path else entry.name
                stack.append((entry.key, inner, LISTING if entry.kind == FOLDER else CONTENT))


def _written(copy: Tables, path: Path, credentials: Credentials) -> bytes:
    """The bytes of a store file that holds a copy, once it was proved and holds no credential.

    Raises:
        BadInput: it is not sound, or a credential is left in it.
    """
    with SQLiteStore(path) as store:
        store.merge(copy)
        if faults := store.verify():
            raise BadInput(
                f"the record is not sound at {faults[0].where}: {faults[0].what}",
                remedy="See `clew store verify`; a portable run holds nothing that does not verify.",
            )
        store.rebuild()
    for where, value in values(path):
        data = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
        if kind := credentials.first_in_file(data):
            remedy = "It stands where no redaction reaches, as in a tool's description or a name. Choose other runs."
            raise BadInput(f"the record holds {kind} ({where})", remedy=remedy)
    return path.read_bytes()
