"""Artefacts by their content: what genomes made, kept once however often it is made.

The engine puts artefacts here before it writes a line of the log that names them, and takes them out when a new judge
looks at old work. What lies here was written by agents and is hostile: it is data, never code.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from clew.core.errors import BadRecord
from clew.core.keys import encode, value_digest

ARTEFACT = b"clew.artefact.1"
MOST = 1 << 24  # bytes of an artefact


class Shelf:
    """JSON-like values by digest, in memory or as files of a folder. ``len`` counts each content once."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder, self._kept = folder, dict[str, object]()
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)

    def put(self, value: object) -> str:
        """Keep a value; gives its key, 32 hexadecimal digits.

        Raises:
            BadInput: the value is no JSON.
        """
        key = value_digest(value, ARTEFACT).hex()
        if key in self._kept:
            return key
        self._kept[key] = value
        if self.folder is not None and not (path := self.folder / f"{key}.json").exists():
            part = path.with_suffix(".part")
            part.write_bytes(encode(json.dumps(value)))
            os.replace(part, path)
        return key

    def get(self, key: str) -> object:
        """The value of a key.

        Raises:
            BadRecord: the shelf has none, or what it has is not what the key says.
        """
        if key in self._kept:
            return self._kept[key]
        path = None if self.folder is None else self.folder / f"{key}.json"
        if path is None or not path.exists() or path.stat().st_size > MOST:
            raise BadRecord(f"there is no artefact {key}", remedy="Begin again in another folder.")
        try:
            value: object = json.loads(path.read_bytes())
        except (ValueError, RecursionError):
            value = None
        if value_digest(value, ARTEFACT).hex() != key:
            raise BadRecord(f"artefact {key} was altered", remedy="Begin again in another folder.")
        self._kept[key] = value
        return value

    def __len__(self) -> int:
        return len(self._kept)
