"""A fitted router: the models of a pool, and a linear head that says which of them to ask.

``clew.models.compose.routed`` serves by it, and whoever fits one writes its folder:

    router.json   the workers, how a transcript becomes a vector, and what is told of the fit
    head.npy      float32 [workers, dim], a row for each worker

Nothing that a folder says is run, and nothing here connects to anything.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np

from clew.core.errors import BadInput, BadRecord
from clew.core.sources import file_of
from clew.core.values import F32, Message
from clew.models.compose.ngrams import MOST, Ngrams, transcript

CONFIG, HEAD = "router.json", "head.npy"
FORMAT, VERSION = "clew-router", 1
LONGEST, CROWD = 1 << 20, 64  # bytes of router.json, workers of a pool
EMPTY = "Give a router at least one worker."
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
CLASS = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}")


@dataclass(frozen=True)
class Worker:
    """One model of a pool, and what a policy may read of it. What is None or empty is unknown, and so not allowed.

    Args:
        name: by which requests, records and policies name it; letters, digits, ``.``, ``_`` and ``-``.
        ref: as ``--model`` takes it: ``openai:gpt-5-mini``, ``openai:x@http://127.0.0.1:8001/v1``, a folder of weights.
        price_in, price_out: US dollars per million tokens of prompt and of reply.
        region: where it computes.
        retention_days: how long it keeps what it is sent; 0 where it keeps nothing.
        seconds: that a reply of it takes, as measured.
        data_class: the class of what it writes (lower-case letters, digits, ``_`` and ``-``); empty for public.
        clearance: the classes that it may read. What is public every worker may read.

    Raises:
        BadInput: one of them is no such thing; or the reference is a file of Python or another router.
    """

    name: str
    ref: str
    price_in: float | None = None
    price_out: float | None = None
    region: str = ""
    retention_days: float | None = None
    seconds: float | None = None
    data_class: str = ""
    clearance: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        named, shown = isinstance(self.name, str) and NAME.fullmatch(self.name), repr(self.name)[:80]
        if not named:
            raise BadInput(f"{shown} is no name of a worker", remedy="Use up to 64 letters, digits, '.', '_', '-'.")
        if not isinstance(self.ref, str) or not self.ref.strip() or len(self.ref) > 2000:
            raise BadInput(f"worker {self.name} has no model", remedy="Give its ref, as --model takes it.")
        if file_of(self.ref) or self.ref.strip().startswith("route:"):
            raise BadInput(
                f"worker {self.name} is {self.ref[:80]!r}, a file of Python or a router",
                remedy="Name an endpoint, weights or a registered model; in Python, Routed takes any Model.",
            )
        for name in ("price_in", "price_out", "retention_days", "seconds"):
            value = getattr(self, name)
            number = isinstance(value, (int, float)) and not isinstance(value, bool)
            if value is not None and not (number and math.isfinite(value) and value >= 0):
                raise BadInput(f"worker {self.name}: {name} is {value!r}", remedy="Give a number from 0 on, or null.")
        if not isinstance(self.region, str) or len(self.region) > 64:
            raise BadInput(f"worker {self.name}: its region is no short text", remedy='Write it as "eu" or "us-east".')
        cleared = isinstance(self.clearance, tuple) and len(self.clearance) <= CROWD
        classes = (*self.clearance, *((self.data_class,) if self.data_class else ())) if cleared else (None,)
        if not all(isinstance(one, str) and CLASS.fullmatch(one) for one in classes):
            raise BadInput(
                f"worker {self.name}: its data_class or clearance names no class of data",
                remedy="Write classes in lower-case letters, digits, '_', '-': data_class a text, clearance a list.",
            )


@dataclass(frozen=True)
class Head:
    """A linear head without a bias: ``weights`` is float32 [workers, dim]."""

    weights: F32

    def __post_init__(self) -> None:
        weights = self.weights
        if weights.ndim != 2 or weights.dtype != np.float32 or not np.isfinite(weights).all():
            raise BadInput(
                f"a head of {weights.dtype} {list(weights.shape)}, or with numbers that are not finite",
                remedy="Give finite float32 numbers [workers, dim].",
            )

    def scores(self, h: F32) -> F32:
        """float32 [workers] of a vector float32 [dim]."""
        scores: F32 = self.weights @ h
        return scores


@dataclass(frozen=True)
class Router:
    """Workers, features and head that belong together.

    Args:
        workers: the pool in the order of the head's rows; the names differ.
        features: text to the head's vector.
        head: a row for each worker.
        about: JSON that tells how the head was fitted; shown, and never needed.

    Raises:
        BadInput: the pool is empty or too large, names repeat, or the head's sizes are others.
    """

    workers: tuple[Worker, ...]
    features: Ngrams
    head: Head
    about: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        names = self.names
        if not names:
            raise BadInput("the pool is empty", remedy=EMPTY)
        if len(names) > CROWD or len(set(names)) < len(names):
            raise BadInput(
                f"a pool of {len(names)} workers, {len(set(names))} of them with names of their own",
                remedy=f"Give at most {CROWD} workers, each its own name.",
            )
        if self.head.weights.shape != (len(names), self.features.dim):
            raise BadInput(
                f"the head is {list(self.head.weights.shape)}, and needs to be {[len(names), self.features.dim]}",
                remedy="Fit the head anew for this pool and these features.",
            )

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(worker.name for worker in self.workers)

    def scores(self, messages: Sequence[Message]) -> F32:
        """float32 [workers]: how well each suits the conversation; only their order has a meaning."""
        return self.head.scores(self.features(transcript(messages)))

    def decide(self, messages: Sequence[Message], allowed: Sequence[bool] | None = None) -> tuple[int, F32]:
        """The allowed worker of the highest score, the first of equals, and the scores of all.

        Raises:
            BadInput: none is allowed.
        """
        scores = self.scores(messages)
        ranked = ranking(scores, allowed)
        if not ranked:
            raise BadInput("no worker is allowed to answer", remedy="Allow one of: " + ", ".join(self.names) + ".")
        return ranked[0], scores

    @property
    def digest(self) -> str:
        """32 hex digits that name what decides: pool, features and numbers of the head."""
        said = json.dumps([[asdict(worker) for worker in self.workers], asdict(self.features)], sort_keys=True)
        numbers = np.ascontiguousarray(self.head.weights, dtype="<f4").tobytes()
        return hashlib.blake2b(said.encode() + b"\0" + numbers, digest_size=16, person=b"clew.router.1").hexdigest()


def ranking(scores: F32, allowed: Sequence[bool] | None = None) -> list[int]:
    """The allowed workers, best first; of equal scores the first stands first."""
    order = np.argsort(-scores, kind="stable")
    return [int(i) for i in order if allowed is None or allowed[int(i)]]


def save(
    folder: str | Path, workers: Sequence[Worker], features: Ngrams, head: Head, about: Mapping[str, Any] | None = None
) -> Path:
    """Write a router's folder; gives the folder. What was there is replaced, the head first.

    Raises:
        BadInput: the parts do not belong together, ``about`` is no JSON, or it is longer than a megabyte.
    """
    router = Router(tuple(workers), features, head, dict(about or {}))
    path = Path(folder)
    numbers = np.ascontiguousarray(head.weights, dtype="<f4")
    config = {
        "format": FORMAT, "version": VERSION, "workers": [asdict(worker) for worker in router.workers],
        "features": {"kind": "ngrams", **asdict(features)}, "about": router.about,
        "head": hashlib.sha256(numbers.tobytes()).hexdigest(),
    }  # fmt: skip
    try:
        text = json.dumps(config, indent=1, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise BadInput(
            f"what is told of the fit is no JSON: {error}", remedy="Give texts and finite numbers."
        ) from None
    if len(text) > LONGEST:
        raise BadInput(f"{CONFIG} would have {len(text):,} bytes", remedy=f"Shorten `about` to below {LONGEST:,}.")
    path.mkdir(parents=True, exist_ok=True)
    beside = path / f".{os.getpid()}.npy"
    np.save(beside, numbers, allow_pickle=False)
    os.replace(beside, path / HEAD)
    beside = path / f".{os.getpid()}.json"
    beside.write_text(text + "\n", encoding="utf-8")
    os.replace(beside, path / CONFIG)
    return path


def load(folder: str | Path) -> Router:
    """Read a router's folder.

    Raises:
        BadRecord: a file is missing, too long or not what it should be, or the two do not belong together.
    """
    path = Path(folder)
    config = _config(path / CONFIG)
    try:
        workers = tuple(read_worker(one) for one in _list(config.get("workers")))
        kind = dict(_table(config.get("features"), "features"))
        if kind.pop("kind", None) != "ngrams" or set(kind) != {"dim", "chars"}:
            raise BadInput("its features are none that this version knows", remedy="Fit the router anew.")
        head = Head(_numbers(path / HEAD, (len(workers), Ngrams(**kind).dim), config.get("head")))
        return Router(workers, Ngrams(**kind), head, _table(config.get("about", {}), "about"))
    except BadRecord:
        raise
    except BadInput as error:
        raise BadRecord(f"{path / CONFIG}: {error.message}", remedy=error.remedy) from None


def _config(path: Path) -> Mapping[str, Any]:
    if not path.is_file():
        raise BadRecord(f"{path.parent} holds no router: there is no {CONFIG}", remedy="Name the folder of a router.")
    if path.stat().st_size > LONGEST:
        raise BadRecord(f"{path} has {path.stat().st_size:,} bytes", remedy="That of a router has some thousand.")
    try:
        config = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        raise BadRecord(f"{path} is not JSON", remedy="Save the router anew.") from None
    if not isinstance(config, dict) or config.get("format") != FORMAT:
        raise BadRecord(f"{path} is not a router's", remedy="Name a folder that a router was saved to.")
    if config.get("version") != VERSION:
        told = f"{path} is of version {config.get('version')!r:.20}; this Clew reads {VERSION}"
        raise BadRecord(told, remedy="Use the Clew that wrote it, or fit the router anew.")
    return config


def _table(value: object, what: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise BadInput(f"{what} is no JSON object", remedy="Save the router anew.")
    return value


def _list(value: object) -> Sequence[object]:
    if not isinstance(value, list) or len(value) > CROWD:
        raise BadInput(f"workers is no list of at most {CROWD}", remedy="List the workers as JSON objects.")
    if not value:
        raise BadInput("the pool is empty", remedy=EMPTY)
    return value


def read_worker(value: object) -> Worker:
    """A worker from a JSON object.

    Raises:
        BadInput: it is none, or has a label that no worker has.
    """
    said = dict(_table(value, "a worker"))
    known = {one.name for one in fields(Worker)}
    if unknown := sorted(set(said) - known):  # a label that is not understood must not be dropped: it may forbid
        raise BadInput(f"a worker has a field {unknown[0]!r:.40}", remedy=f"Known: {', '.join(sorted(known))}.")
    if not {"name", "ref"} <= set(said):
        raise BadInput("a worker lacks its name or its ref", remedy="Give every worker both.")
    if isinstance(said.get("clearance"), list):
        said["clearance"] = tuple(said["clearance"])
    return Worker(**said)


def _numbers(path: Path, shape: tuple[int, int], digest: object) -> F32:
    if not path.is_file() or path.stat().st_size > CROWD * MOST * 4 + 4096:
        raise BadRecord(f"{path} is missing or too long", remedy="Save the router anew.")
    try:
        mapped = np.load(path, mmap_mode="r", allow_pickle=False)  # a header that claims more than there is is refused
        if mapped.shape != shape or mapped.dtype != np.dtype("<f4"):
            raise BadRecord(
                f"{path} holds {mapped.dtype} {list(mapped.shape)}, and the router needs float32 {list(shape)}",
                remedy="Save both files of the router together.",
            )
        numbers = np.array(mapped, dtype=np.float32)
    except (ValueError, OSError, EOFError, TypeError, AttributeError, MemoryError, OverflowError, SyntaxError):
        raise BadRecord(f"{path} is no array that numpy saved", remedy="Save the router anew.") from None
    if hashlib.sha256(np.ascontiguousarray(numbers, dtype="<f4").tobytes()).hexdigest() != digest:
        raise BadRecord(f"{path} is not the head that {CONFIG} names", remedy="Save both files of the router together.")
    return numbers
