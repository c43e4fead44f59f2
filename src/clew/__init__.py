"""Clew: every agent run is kept as a thread that can be followed back to any step or token, changed there, and run on.

Names below are imported when first used, so that ``import clew`` costs nothing.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_NAMES = {
    "clew.core.records": "Cursor Edit Report",
    "clew.core.registry": "register",
    "clew.core.values": "Limits Message Observation Sampling StopReason Task ToolCall",
    "clew.fit.trainer": "Trainer",
    "clew.harness": "LiveRun Runner tool",
    "clew.models.images": "image media",
    "clew.store": "Group Groups Run open_store",
    "clew.train.rows": "rows",
    "clew.view.terminal": "tree",
}
_HOME = {name: module for module, names in _NAMES.items() for name in names.split()}
_MODULES = ("core", "store", "models", "worlds", "harness", "fit", "credit", "train", "exchange", "view")

if TYPE_CHECKING:
    from pathlib import Path

    from clew import core, credit, exchange, fit, harness, models, store, train, view, worlds
    from clew.core.protocols import Model, Taskset
    from clew.core.records import Cursor, Edit, Report
    from clew.core.registry import register
    from clew.core.values import Limits, Message, Observation, Sampling, StopReason, Task, ToolCall
    from clew.exchange.dataset.tasks import Dataset
    from clew.fit.trainer import Trainer
    from clew.harness import LiveRun, Runner, tool
    from clew.models.images import image, media
    from clew.store import Group, Groups, Run, open_store
    from clew.train.rows import rows
    from clew.view.terminal import tree

__all__ = ["Cursor", "Edit", "Group", "Groups", "Limits", "LiveRun", "Message", "Observation", "Report", "Run"]
__all__ += ["Runner", "Sampling", "StopReason", "Task", "ToolCall", "Trainer", "core", "credit", "dataset", "exchange"]
__all__ += ["fit", "harness", "image", "media", "model", "models", "open_store", "register", "rows", "store", "taskset"]
__all__ += ["tool", "train", "tree", "view", "worlds"]


def taskset(ref: str) -> Taskset:
    """A taskset by reference: ``household``, ``household(rooms=4)``.

    Raises:
        UnknownName: no taskset is registered under that name.
    """
    from clew.core.registry import build

    made: Taskset = build("tasksets", ref)
    return made


def dataset(path: str | Path | Iterable[Mapping[str, Any]], reward: object = (), **layout: Any) -> Dataset:
    """Your own data as a taskset: each row of a file (JSONL, Parquet, CSV, a saved Hugging Face folder) is a task.

    Args:
        path: of the file or folder; or a Dataset of the package ``datasets``, or a list of mappings.
        reward: the name of a scorer, ``"file.py:function"``, a function, or a list of these with weights.
        layout: columns, prompt template, splits, system prompt; see ``clew.exchange.dataset.tasks.Dataset``.

    Raises:
        BadInput: there is no such file, column or reward, or a row is none.
    """
    from clew.exchange.dataset.tasks import Dataset

    return Dataset(path, reward, **layout)


def model(ref: str | Model, **options: Any) -> Model:
    """A model by registered name, Hugging Face path or name, or OpenAI-compatible URL (``http://host/v1#name``).

    Raises:
        UnknownName: nothing answers to that reference.
    """
    from clew.models import load

    return load(ref, **options)


def __getattr__(name: str) -> object:
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    if name in _MODULES:
        return importlib.import_module(f"clew.{name}")
    raise AttributeError(f"module 'clew' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
