"""Metrics arrive where they are sent."""

from __future__ import annotations

import json
import sys

import pytest

from clew.core.errors import BadInput, MissingExtra
from clew.fit.trackers import tracker
from clew.fit.trainer import Trainer

from .helpers import Served, rows


def test_a_trainer_logs_every_step_to_a_file(tmp_path):
    model = Served()
    trainer = Trainer(model, tracker=tracker(f"jsonl:{tmp_path}/deep/log.jsonl"))
    for _ in range(2):
        trainer.step(rows(model.module, 3, version=-1))
    lines = [json.loads(line) for line in (tmp_path / "deep" / "log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [1, 2]
    assert {"loss/pg", "grad_norm", "ratio/mean", "time"} <= set(lines[0])


def test_tensorboard_reads_back_what_was_logged(tmp_path):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    tracker(f"tensorboard:{tmp_path}").log({"success": 0.25}, 7)
    events = accumulator.EventAccumulator(str(tmp_path))
    events.Reload()
    scalar = events.Scalars("success")[0]
    assert (scalar.step, scalar.value) == (7, 0.25)


def test_a_hosted_tracker_gets_the_project_and_the_values(tmp_path, monkeypatch):
    (tmp_path / "wandb.py").write_text(
        "seen = []\ndef init(**k): seen.append(k)\ndef log(values, step): seen.append((values, step))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "wandb", raising=False)
    tracker("wandb:household").log({"loss": 1.0}, 2)
    assert sys.modules.pop("wandb").seen == [{"project": "household"}, ({"loss": 1.0}, 2)]


def test_bad_specs_and_missing_packages(monkeypatch):
    for spec in ("mlflow:x", "jsonl:", "wandb"):
        with pytest.raises(BadInput, match="is not a tracker"):
            tracker(spec)
    monkeypatch.setitem(sys.modules, "trackio", None)
    with pytest.raises(MissingExtra, match="trackio is not installed"):
        tracker("trackio:x")
