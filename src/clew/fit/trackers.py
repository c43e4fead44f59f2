"""Where metrics go: anything with ``log(values, step)``; here JSON lines, TensorBoard, Weights & Biases and trackio."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from clew.core.errors import BadInput, MissingExtra
from clew.core.protocols import Tracker


class JsonLines:
    """One JSON object a line: step, time in seconds since the epoch, values."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)

    def log(self, values: Mapping[str, float], step: int) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"step": step, "time": time.time(), **values}) + "\n")


class TensorBoard:
    """Event files that ``tensorboard --logdir`` reads."""

    def __init__(self, folder: str | Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise _missing("tensorboard") from error
        self.writer = SummaryWriter(str(folder))

    def log(self, values: Mapping[str, float], step: int) -> None:
        for name, value in values.items():
            self.writer.add_scalar(name, value, step)
        self.writer.flush()


class Hosted:
    """Weights & Biases or trackio, which share their interface. Further arguments go to ``init``."""

    def __init__(self, package: str, project: str, **arguments: Any) -> None:
        import importlib

        try:
            self.client = importlib.import_module(package)
        except ImportError as error:
            raise _missing(package) from error
        self.client.init(project=project, **arguments)

    def log(self, values: Mapping[str, float], step: int) -> None:
        self.client.log(dict(values), step=step)


class Several:
    """Sends to several trackers."""

    def __init__(self, parts: Sequence[Tracker]) -> None:
        self.parts = list(parts)

    def log(self, values: Mapping[str, float], step: int) -> None:
        for part in self.parts:
            part.log(values, step)


def several(parts: Sequence[Tracker]) -> Tracker:
    """One tracker for all of these."""
    return parts[0] if len(parts) == 1 else Several(parts)


def tracker(spec: str, run: str = "") -> Tracker:
    """A tracker from text: ``jsonl:PATH``, ``tensorboard:FOLDER``, ``wandb:PROJECT``, ``trackio:PROJECT``.

    Args:
        run: name of the run at a hosted tracker, under which a training that was stopped goes on.

    Raises:
        BadInput: another kind, or nothing after the colon. MissingExtra: its package is not installed.
    """
    kind, _, where = spec.partition(":")
    if not where or kind not in ("jsonl", "tensorboard", "wandb", "trackio"):
        remedy = "Write jsonl:PATH, tensorboard:FOLDER, wandb:PROJECT or trackio:PROJECT."
        raise BadInput(f"{spec!r} is not a tracker", remedy=remedy)
    if kind == "jsonl":
        return JsonLines(where)
    return TensorBoard(where) if kind == "tensorboard" else Hosted(kind, where, **_again(kind, run))


def _again(kind: str, run: str) -> dict[str, str]:
    if not run:
        return {}
    return {"name": run, "resume": "allow"} | ({"id": run} if kind == "wandb" else {})


def _missing(package: str) -> MissingExtra:
    return MissingExtra(f"{package} is not installed", remedy="pip install 'clew[trackers]'")
