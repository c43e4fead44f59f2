"""The loop for small modules: its rate, its checkpoint, its curve."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from clew.core.errors import BadInput
from clew.fit.small import Course, fit


def line(steps: int = 40, **how) -> tuple[nn.Module, Course]:
    torch.manual_seed(0)
    return nn.Linear(3, 1), Course(steps=steps, lr=0.05, save_every=10, **how)


def loss_of(module: nn.Module):
    truth = torch.tensor([[1.0, -2.0, 0.5]])

    def loss(step: int):
        x = torch.randn(16, 3, generator=torch.Generator().manual_seed(step))
        error = (module(x) - x @ truth.t()).square().mean()
        return error, {"error": float(error.detach())}

    return loss


def test_it_fits_and_tells_the_held_out_curve():
    module, how = line(300, measure_every=100)
    steps = list(fit(module, loss_of(module), how, measure=lambda: {"held": float(module.bias.detach())}))
    assert steps[-1].loss["error"] < 0.01 < steps[0].loss["error"]
    assert [step.step for step in steps if step.held_out] == [100, 200, 300]


def test_a_fit_that_goes_on_equals_one_that_never_stopped(tmp_path):
    whole, how = line()
    list(fit(whole, loss_of(whole), how))
    first, _ = line()
    for step in fit(first, loss_of(first), how, going=tmp_path / "fit"):
        if step.step == 25:  # five steps after the last checkpoint
            break
    again, _ = line()
    seen = [step.step for step in fit(again, loss_of(again), how, going=tmp_path / "fit")]
    assert seen == list(range(21, 41))
    assert torch.equal(whole.weight, again.weight)


def test_a_checkpoint_of_something_else_is_refused(tmp_path):
    module, how = line()
    list(fit(module, loss_of(module), how, about={"of": "this"}, going=tmp_path / "fit"))
    with pytest.raises(BadInput, match="holds another fit"):
        next(fit(module, loss_of(module), how, about={"of": "that"}, going=tmp_path / "fit"))


def test_a_loss_that_is_no_number_is_refused():
    module, how = line()
    with pytest.raises(BadInput, match="step 0"):
        next(fit(module, lambda step: (module.weight.sum() * float("nan"), {}), how))


def test_the_rate_rises_and_falls():
    how = Course(steps=100, lr=1.0, warmup=0.1, decay=0.2)
    assert how.rate(0) == pytest.approx(0.1)
    assert how.rate(50) == 1.0
    assert how.rate(90) == pytest.approx(0.5)
    assert Course(steps=100, lr=1.0, warmup=0.1, decay="cosine").rate(55) == pytest.approx(0.5)
