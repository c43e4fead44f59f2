"""A fitted router: the models of a pool, and a linear head that says which of them to ask.

``clew.models.compose.routed`` serves by it, and whoever fits one writes its folder:

    router.json   the workers, how a transcript becomes a vector, and what is told of the fit
    head.npy      float32 [workers, dim], a row for each worker
    scales.npy    float32, offsets of a backbone's singular values; only where the features have some

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
from typing import Any, ClassVar, Protocol

import numpy as np

from clew.core.errors import BadInput, BadRecord
from clew.core.sources import file_of
from clew.core.values import F32, Message
from clew.models.compose.backbone import Backbone
from clew.models.compose.ngrams import MOST, Ngrams, transcript

CONFIG, HEAD, SCALES = "router.json", "head.npy", "scales.npy"
FORMAT, VERSION = "clew-router", 1
LONGEST, CROWD = 1 << 20, 64  # bytes of router.json, workers of a pool
PARTS = 512  # weights of a backbone that have scales
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


class Features(Protocol):
    """How a transcript becomes a vector: ``Ngrams``, or the hidden state of a ``Backbone``.

    kind: as the folder names it. centred: whether who learns over the vectors should take their mean away first.
    slow: whether a vector takes a model, so that it must not be made between two turns of an event loop.
    """

    kind: ClassVar[str]
    centred: ClassVar[bool]
    slow: ClassVar[bool]

    @property
    def dim(self) -> int:
        """Length of a vector."""
        ...

    def said(self) -> Mapping[str, Any]:
        """What decides, as JSON."""
        ...

    def __call__(self, text: str) -> F32:
        """float32 [dim] of a transcript; its first number is a constant above 0."""
        ...


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
    features: Features
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
        said = json.dumps([[asdict(worker) for worker in self.workers], self.features.said()], sort_keys=True)
        numbers = np.ascontiguousarray(self.head.weights, dtype="<f4").tobytes()
        return hashlib.blake2b(said.encode() + b"\0" + numbers, digest_size=16, person=b"clew.router.1").hexdigest()


def ranking(scores: F32, allowed: Sequence[bool] | None = None) -> list[int]:
    """The allowed workers, best first; of equal scores the first stands first."""
    order = np.argsort(-scores, kind="stable")
    return [int(i) for i in order if allowed is None or allowed[int(i)]]


def save(
    folder: str | Path,
    workers: Sequence[Worker],
    features: Features,
    head: Head,
    about: Mapping[str, Any] | None = None,
) -> Path:
    """Write a router's folder; gives the folder. What was there is replaced, the numbers first.

    Raises:
        BadInput: the parts do not belong together, ``about`` is no JSON, or it is longer than a megabyte.
    """
    router = Router(tuple(workers), features, head, dict(about or {}))
    path = Path(folder)
    numbers = np.ascontiguousarray(head.weights, dtype="<f4")
    said: dict[str, Any] = {"kind": features.kind, **features.said()}
    scales: Mapping[str, F32] = {}
    if isinstance(features, Backbone):
        scales = dict(sorted(features.scales.items()))
        said |= {"path": features.path, "scales": [[name, len(one)] for name, one in scales.items()]}
    config = {
        "format": FORMAT, "version": VERSION, "workers": [asdict(worker) for worker in router.workers],
        "features": said, "about": router.about, "head": hashlib.sha256(numbers.tobytes()).hexdigest(),
    }  # fmt: skip
    offsets = np.concatenate([*scales.values(), np.zeros(0)]).astype("<f4")
    if scales:
        config["scales"] = hashlib.sha256(offsets.tobytes()).hexdigest()
    try:
        text = json.dumps(config, indent=1, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise BadInput(
            f"what is told of the fit is no JSON: {error}", remedy="Give texts and finite numbers."
        ) from None
    if len(text) > LONGEST:
        raise BadInput(f"{CONFIG} would have {len(text):,} bytes", remedy=f"Shorten `about` to below {LONGEST:,}.")
    path.mkdir(parents=True, exist_ok=True)
    for name, array in ((HEAD, numbers), *(((SCALES, offsets),) if scales else ())):
        beside = path / f".{os.getpid()}.npy"
        np.save(beside, array, allow_pickle=False)
        os.replace(beside, path / name)
    beside = path / f".{os.getpid()}.json"
    beside.write_text(text + "\n", encoding="utf-8")
    os.replace(beside, path / CONFIG)
    return path


def load(folder: str | Path) -> Router:
    """Read a router's folder; a backbone's weights are checked and not loaded.

    Raises:
        BadRecord: a file is missing, too long or not what it should be, the files do not belong together, or the
            backbone was moved or changed.
    """
    path = Path(folder)
    config = _config(path / CONFIG)
    try:
        workers = tuple(read_worker(one) for one in _list(config.get("workers")))
        features = _features(path, config)
        head = Head(_numbers(path / HEAD, (len(workers), features.dim), config.get("head")))
        if isinstance(features, Backbone):
            features.check()
        return Router(workers, features, head, _table(config.get("about", {}), "about"))
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


def _features(path: Path, config: Mapping[str, Any]) -> Features:
    said = dict(_table(config.get("features"), "features"))
    kind, known = said.pop("kind", None), set(said)
    if kind == "ngrams" and known == {"dim", "chars"}:
        return Ngrams(**said)
    if kind != "states" or known != {"path", "digest", "width", "layer", "position", "tokens", "scales"}:
        raise BadInput("its features are none that this version knows", remedy="Fit the router anew.")
    parts, remedy = said.pop("scales"), "Save the router anew."
    if not isinstance(parts, list) or len(parts) > PARTS or not all(_part(one) for one in parts):
        raise BadInput("its scales name no weights", remedy=remedy)
    sizes = [size for _, size in parts]
    if len({name for name, _ in parts}) < len(parts) or sum(sizes) > CROWD * MOST:
        raise BadInput("its scales name a weight twice, or too many numbers", remedy=remedy)
    numbers = _numbers(path / SCALES, (sum(sizes),), config.get("scales")) if parts else np.zeros(0, np.float32)
    if not np.isfinite(numbers).all():
        raise BadInput("its scales are not finite", remedy=remedy)
    ends = np.cumsum([0, *sizes])
    scales = {name: numbers[a:b] for (name, _), a, b in zip(parts, ends, ends[1:], strict=False)}
    return Backbone(**said, scales=scales)


def _part(one: object) -> bool:
    """Whether it is the name of a weight and how many singular values it has."""
    if not isinstance(one, list) or len(one) != 2:
        return False
    name, size = one
    return isinstance(name, str) and len(name) < 400 and type(size) is int and 0 < size <= MOST


def _numbers(path: Path, shape: tuple[int, ...], digest: object) -> F32:
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
        raise BadRecord(
            f"{path} is not the {path.stem} that {CONFIG} names", remedy="Save the router's files together."
        )
    return numbers
