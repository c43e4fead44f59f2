"""Trainings in which a program that knows nothing of Clew is the agent: what is trained is what was sampled."""

from __future__ import annotations

import shutil
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="did not run: torch is not installed")
pytest.importorskip("uvicorn", reason="did not run: uvicorn is not installed")
if not shutil.which("bwrap"):
    pytest.skip("bubblewrap is not installed", allow_module_level=True)

import clew
from clew.harness.trees.grow import Growth
from clew.models.local.model import small
from clew.serve.programs.commanded import commanded
from clew.serve.programs.program_world import Programs
from clew.train import recipes
from clew.train.loop import Training
from clew.worlds.workspace import Workspace
from papers.E165_g2po.token_truth import Ear, Weighed, matched

CODER = Path(__file__).parents[2] / "examples" / "plain_coder.py"
GROWTH = Growth(leaves=8)


class Kept(Weighed):
    """Keeps the rows too."""

    kept = ()

    def step(self, rows, lr_scale=1.0):
        self.kept = (*self.kept, *rows)
        return super().step(rows, lr_scale)


def trained(tmp_path: Path, program: Path, growth: Growth | None, store: str = ":memory:"):
    """Two iterations on a folder with one command that wins, by a model that knows nothing: one word in ten wins."""
    project = tmp_path / "project"
    project.mkdir()
    for name, line in (("win", "touch won"), ("lose", "true")):
        (project / name).write_text(f"#!/bin/sh\n{line}\n")
        (project / name).chmod(0o755)
    inner = Workspace(str(project), task="win it", verify="test -e won", shelf=str(tmp_path / "files"))
    taskset = Programs(inner, f"env SYSTEM=shell TURNS=3 {sys.executable} -I -S {program}")
    model = small(["./win", "./lose", "done"], 32, 1, 2, 1, ref="taught nothing", steady=True)
    ear = Ear()
    ear.listen(model)
    runner = clew.Runner(commanded, taskset, model, store, {"held": ["max_tokens"]}, sampling={"max_tokens": 4})
    recipe = recipes.online("g2po")
    trainer = Kept(model, ear, lr=1e-3, losses=recipe.losses(), weight_by=recipe.weight_by)
    plan = recipe.plan("won", iterations=2, tasks=1, rollouts=8, growth=growth)
    done = list(Training(runner, trainer, recipe.estimator(), plan).run())
    model.close()
    return trainer, [run for it in done for run in it.groups.runs]


@pytest.mark.whole
@pytest.mark.parametrize("growth", [None, GROWTH], ids=["flat", "tree"])
def test_what_is_trained_is_what_was_sampled(tmp_path, growth):
    trainer, runs = trained(tmp_path, CODER, growth)
    truth = trainer.truth
    assert {run.reward for run in runs} == {0.0, 1.0}
    assert (truth.true, truth.replies >= truth.rows > 8) == (truth.rows, True)
    assert truth.mismatch < 1e-4
    repeats, known, anew = matched(runs)
    assert (known, anew) == (repeats, 0)
    assert repeats > len(runs) / 2
    forks = [run for run in runs if run.parent is not None]
    assert (len(forks) > 4) == (growth is not None)
    assert all(any(call.run != run.id for call in run.calls) for run in forks if run.shared)


def test_a_row_that_is_not_what_was_sampled_is_found(tmp_path):
    trainer, _ = trained(tmp_path, CODER, None)
    ear, row = trainer.ear, trainer.kept[0]
    start = row.source[0][0]
    assert ear.says(row)
    for place in (start - 1, start):
        ids = row.ids.copy()
        ids[place] += 1
        assert not ear.says(replace(row, ids=ids))
    assert not ear.says(replace(row, sampled=np.zeros_like(row.sampled)))


def test_a_history_that_its_program_rewrites_is_trained_where_it_was_sampled(tmp_path):
    """Replies told in other words stand on another path in new tokens, which carry no loss; the sampled ones do."""
    text = CODER.read_text()
    told = text.replace('"content": said}', '"content": said + " ."}')
    assert told != text
    (tmp_path / "rewrites.py").write_text(told)
    trainer, runs = trained(tmp_path, tmp_path / "rewrites.py", None)
    repeats, known, anew = matched(runs)
    assert (known, anew) == (0, repeats)
    assert trainer.truth.true == trainer.truth.rows > 0
    assert trainer.truth.mismatch < 1e-4
