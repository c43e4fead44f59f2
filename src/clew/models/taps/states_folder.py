"""A folder of hidden states: memory-mapped shards, the token of each row, and what they are of.

    taps.json         layers, width, dtype, model, and the runs and Calls that rows are of
    index.npy         per row: number of its source, position in it, and place in the reply (negative in the prompt)
    states-00000.npy  [rows, layers, width] in float32 or float16, or bfloat16 as uint16
    scales-00000.npy  float32 [rows, layers], powers of two; where it is there, states are times it
    done.npy          which batches are written

Nothing that a folder says is run, and its sizes are checked before they are used.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from clew.core.errors import BadInput
from clew.core.records import Cursor
from clew.core.values import F32

I64 = npt.NDArray[np.int64]
Precision = Literal["float16", "bfloat16", "float32"]
STORED = {"float16": np.float16, "bfloat16": np.uint16, "float32": np.float32}
INDEX = np.dtype([("source", "<i4"), ("position", "<i4"), ("token", "<i4")])
SHARD = 256 << 20  # bytes
FORMAT = 1
TOP = 15  # a row's largest number is scaled to lie below 2**TOP, half of what float16 holds


class States:
    """Hidden states that ``read`` wrote, memory-mapped; opened by ``States.open``.

    Attributes:
        layers: as they were asked for, blocks from 0, "embed" or "norm". width: numbers in a state.
        index: structured array [rows] with ``source``, ``position`` and ``token``, see the module.
        sources: (run, Call) of each source; the run is empty where ids were given.
        about: what else ``taps.json`` says: model, version, digest of the weights.
    """

    def __init__(self, folder: Path, about: dict[str, Any], mode: Literal["r", "r+"]) -> None:
        self.folder, self.about = folder, about
        self.layers: tuple[int | str, ...] = tuple(about["layers"])
        self.width, self.dtype = int(about["width"]), str(about["dtype"])
        self.sources: list[tuple[str, int]] = [(str(run), int(seq)) for run, seq in about["sources"]]
        self._mode: Literal["r", "r+"] = mode
        self.index: npt.NDArray[Any] = np.load(folder / "index.npy", allow_pickle=False)
        self.done: npt.NDArray[np.uint8] = np.load(folder / "done.npy", mmap_mode=mode, allow_pickle=False)
        self._per, self._open = int(about["per"]), dict[int, tuple[Any, Any]]()

    @classmethod
    def open(cls, folder: str | Path) -> States:
        """A whole folder, for reading.

        Raises:
            BadInput: there is none, its reading was not ended, or it was altered.
        """
        found = cls.found(Path(folder), "r")
        if found is None:
            raise BadInput(f"{folder} holds no hidden states", remedy="Name a folder that clew.models.taps.read wrote.")
        if not found.whole:
            part = f"{int(found.done.sum())} of {len(found.done)} batches"
            raise BadInput(f"{folder} holds {part} of a reading", remedy="Call read again as before: it goes on there.")
        return found

    @classmethod
    def found(cls, folder: Path, mode: Literal["r", "r+"]) -> States | None:
        """What a folder holds, whole or not; None where nothing is there.

        Raises:
            BadInput: it is damaged.
        """
        file = folder / "taps.json"
        if not file.is_file():
            return None
        try:
            about = json.loads(file.read_text(encoding="utf-8"))
            made = cls(folder, about, mode)
            fits = about["format"] == FORMAT and made.dtype in STORED and made.index.dtype == INDEX and made._per > 0
            if not fits or made.index.ndim != 1 or made.width < 1 or not made.layers:
                raise ValueError
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            told = f"{folder} holds hidden states that cannot be read: files are missing or were altered"
            raise BadInput(told, remedy="Remove the folder and read the states again.") from None
        return made

    @classmethod
    def make(cls, folder: Path, about: dict[str, Any], index: npt.NDArray[Any], batches: int) -> States:
        """A new folder with room for all rows; files are sparse until they are written."""
        folder.mkdir(parents=True, exist_ok=True)
        width, layers, kind = about["width"], len(about["layers"]), STORED[about["dtype"]]
        per = max(1, SHARD // (width * layers * np.dtype(kind).itemsize))
        np.save(folder / "index.npy", index)
        np.save(folder / "done.npy", np.zeros(batches, np.uint8))
        for number, start in enumerate(range(0, len(index), per)):
            rows = min(per, len(index) - start)
            np.lib.format.open_memmap(_shard(folder, "states", number), "w+", kind, (rows, layers, width))
            if about["dtype"] == "float16":
                np.lib.format.open_memmap(_shard(folder, "scales", number), "w+", np.float32, (rows, layers))
        text = json.dumps({**about, "format": FORMAT, "per": per}, ensure_ascii=False)
        (folder / "taps.part").write_text(text, encoding="utf-8")
        (folder / "taps.part").replace(folder / "taps.json")
        made = cls.found(folder, "r+")
        assert made is not None
        return made

    def __len__(self) -> int:
        return len(self.index)

    def __repr__(self) -> str:
        return f"<States {len(self)} rows, layers {list(self.layers)}, width {self.width}, {self.dtype}>"

    @property
    def whole(self) -> bool:
        return bool(self.done.all())

    def cursor(self, row: int) -> Cursor:
        """The Call and the token of its reply that a row is the state of; token 0 for rows of the prompt.

        ``index["token"]`` tells prompt from reply: -1 is the last token of the prompt. Of given ids the Call is the
        number of the row of ids, the token the position in it, and the run is empty.
        """
        source, position, token = self.index[row].tolist()
        run, seq = self.sources[source]
        return Cursor(run, seq, max(0, token)) if run else Cursor("", source, position)

    def rows_of(self, run: str, seq: int | None = None) -> I64:
        """The rows of a run, or of one of its Calls."""
        wanted = [i for i, (r, s) in enumerate(self.sources) if r == run and seq in (None, s)]
        return np.flatnonzero(np.isin(self.index["source"], wanted))

    def take(self, layer: int | str, rows: Sequence[int] | I64 | slice = slice(None)) -> F32:
        """States of one layer, float32 [n, width].

        Raises:
            BadInput: the layer was not read. IndexError: there is no such row.
        """
        if layer not in self.layers:
            raise BadInput(f"layer {layer} was not read", remedy=f"Here are {', '.join(map(str, self.layers))}.")
        at, chosen = self.layers.index(layer), np.arange(len(self))[rows]
        out = np.empty((len(chosen), self.width), np.float32)
        for number in np.unique(chosen // self._per).tolist():
            mine = np.flatnonzero(chosen // self._per == number)
            inside = chosen[mine] - number * self._per
            states, scales = self._shards(number)
            scale = None if scales is None else scales[inside, at][:, None]
            out[mine] = _decoded(states[inside, at], self.dtype, scale)
        return out

    def batches(self, layer: int | str, size: int = 4096) -> Iterator[F32]:
        """All states of one layer in order, ``size`` rows at a time, float32 [n, width]."""
        for start in range(0, len(self), size):
            yield self.take(layer, slice(start, start + size))

    def put(self, start: int, states: F32) -> None:
        """Write rows [n, layers, width] from ``start`` on; durable after ``note``."""
        while len(states):
            number, inside = divmod(start, self._per)
            shard, scales = self._shards(number)
            n = min(len(states), len(shard) - inside)
            shard[inside : inside + n], scale = _encoded(states[:n], self.dtype)
            if scales is not None:
                scales[inside : inside + n] = scale
            start, states = start + n, states[n:]

    def note(self, batch: int) -> None:
        """All rows of a batch are written: after this the batch is not read again."""
        for pair in self._open.values():
            for held in pair:
                if held is not None:
                    held.flush()
        self._open.clear()
        self.done[batch] = 1
        self.done.flush()  # type: ignore[attr-defined]

    def _shards(self, number: int) -> tuple[Any, Any]:
        if number not in self._open:
            rows = min(self._per, len(self) - number * self._per)
            states = np.load(_shard(self.folder, "states", number), mmap_mode=self._mode, allow_pickle=False)
            scales = None
            if self.dtype == "float16":
                scales = np.load(_shard(self.folder, "scales", number), mmap_mode=self._mode, allow_pickle=False)
            if states.shape != (rows, len(self.layers), self.width) or states.dtype != STORED[self.dtype]:
                raise BadInput(
                    f"{_shard(self.folder, 'states', number)} holds {states.dtype} {list(states.shape)}",
                    remedy="Remove the folder and read the states again.",
                )
            self._open[number] = states, scales
        return self._open[number]


def _shard(folder: Path, name: str, number: int) -> Path:
    return folder / f"{name}-{number:05d}.npy"


def _encoded(states: F32, dtype: str) -> tuple[npt.NDArray[Any], F32]:
    """States [n, layers, width] as they are stored, and the scale of each, a power of two, [n, layers]."""
    ones = np.ones(states.shape[:2], np.float32)
    if dtype == "float32":
        return states, ones
    if dtype == "bfloat16":
        bits = np.ascontiguousarray(states, np.float32).view(np.uint32)
        rounded = bits + 0x7FFF + ((bits >> 16) & 1)  # to nearest, ties to even
        return (np.where(np.isfinite(states), rounded, bits) >> 16).astype(np.uint16), ones
    most = np.abs(states).max(-1, initial=0.0)
    _, power = np.frexp(np.where(np.isfinite(most) & (most > 0), most, 1.0))
    scale = np.ldexp(ones, power - TOP)
    return (states / scale[..., None]).astype(np.float16), scale


def _decoded(stored: npt.NDArray[Any], dtype: str, scale: F32 | None) -> F32:
    if dtype == "bfloat16":
        return (stored.astype(np.uint32) << 16).view(np.float32)
    found: F32 = stored.astype(np.float32)
    return found if scale is None else found * scale
