"""Recipes: what they set, that they make what they say, and where they differ from TRL's defaults of the same name."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import pytest
import torch

import clew.credit
from clew.core.errors import BadInput, UnknownName
from clew.harness import Runner
from clew.harness.agents import player
from clew.train import rates, recipes
from clew.train.loop import Plan, Training

PAGE = Path(__file__).resolve().parents[2] / "docs" / "train.md"
LARGE = 1_000_000_000  # weights of the models that TRL's defaults are for
DIFFERENCES = {  # (recipe, TRL's field): (ours, TRL's); each is a line of docs/train.md
    ("grpo", "lr_scheduler_type"): ("constant", "linear"),
    ("dapo", "lr_scheduler_type"): ("constant", "linear"),
    ("dr_grpo", "lr_scheduler_type"): ("constant", "linear"),
    ("grpo", "adam_beta2"): (0.95, 0.999),
    ("dapo", "adam_beta2"): (0.95, 0.999),
    ("dr_grpo", "adam_beta2"): (0.95, 0.999),
    ("dapo", "epsilon_high"): (0.28, 0.2),
    ("dr_grpo", "scale_rewards"): ("none", "group"),
}


def ours(recipe: recipes.Online) -> dict[str, object]:
    """A recipe in TRL's words."""
    import inspect

    from clew.core.values import Sampling
    from clew.fit.trainer import Trainer

    trainer = {name: p.default for name, p in inspect.signature(Trainer).parameters.items()}
    plan = {field.name: field.default for field in fields(Plan)}
    asked = Sampling()
    return {
        "num_generations": recipe.n,
        "beta": recipe.kl,
        "epsilon": recipe.clip[0],
        "epsilon_high": recipe.clip[1],
        "num_iterations": recipe.epochs,
        "scale_rewards": {"std": "group", "mean": "none"}[str(recipe.normalise)],
        "importance_sampling_level": recipe.ratio,
        "learning_rate": recipe.lr or rates.suits(LARGE).usual,
        "temperature": asked.temperature,
        "top_p": asked.top_p,
        "top_k": asked.top_k,
        "max_grad_norm": trainer["clip"],
        "weight_decay": trainer["weight_decay"],
        "adam_beta1": trainer["betas"][0],
        "adam_beta2": trainer["betas"][1],
        "lr_scheduler_type": plan["schedule"],
        "warmup_steps": plan["warmup"],
    }


def defaults(config: type) -> dict[str, object]:
    found = {field.name: field.default for field in fields(config)}
    if "epsilon_high" in found and found["epsilon_high"] is None:
        found["epsilon_high"] = found["epsilon"]
    found["lr_scheduler_type"] = getattr(found["lr_scheduler_type"], "value", found["lr_scheduler_type"])
    return found


@pytest.mark.filterwarnings("ignore")
def test_recipes_of_one_name_are_trls_but_for_what_the_page_lists():
    trl = pytest.importorskip("trl", reason="did not run: trl is not installed (pip install 'clew[bench]')")
    theirs = defaults(trl.GRPOConfig)
    found = {}
    for name in ("grpo", "dapo", "dr_grpo"):
        assert f'"{name}"' in (trl.GRPOConfig.__doc__ or ""), "a loss_type of TRL"
        for field, value in ours(recipes.online(name)).items():
            if value != theirs[field]:
                found[name, field] = (value, theirs[field])
    assert found == DIFFERENCES
    dpo = defaults(trl.DPOConfig)
    assert recipes.offline("dpo").settings["beta"] == dpo["beta"]
    assert rates.suits(LARGE).usual == dpo["learning_rate"]
    assert recipes.offline("sft").least == defaults(trl.SFTConfig)["learning_rate"]


def test_every_difference_is_on_the_page():
    page = PAGE.read_text()
    for _, field in DIFFERENCES:
        assert f"`{field}`" in page, field
    for name in recipes.RECIPES:
        assert f"`{name}`" in page, name


@pytest.mark.parametrize("recipe", recipes.ONLINE, ids=lambda recipe: recipe.name)
def test_every_recipe_trains(recipe, house, model):
    class Lenient(type(house)):
        async def judge(self, task, run, world):
            return {"reward": float(run.row.seed % 3 > 0)}

    from clew.harness.trees.grow import Growth

    taskset = Lenient(rooms=2, receptacles=2, objects=2, closed=1, steps=4)
    runner = Runner(player, taskset, model, sampling={"max_tokens": 3})
    growth = Growth(leaves=4, selector="entropy") if recipe.name == "tree" else None
    plan = recipe.plan("t", iterations=2, tasks=2, rollouts=4, growth=growth)
    before = [p.detach().clone() for p in model.module.parameters()]
    trainer = recipe.trainer(model)
    done = list(Training(runner, trainer, recipe.estimator(), plan).run())
    assert all(d.step is not None for d in done)
    assert trainer.weight_by == recipe.weight_by
    assert any((a != b).any() for a, b in zip(before, model.module.parameters(), strict=True))
    assert trainer.steps >= 2 * min(recipe.minibatches, 2)


def test_what_a_recipe_makes_is_what_it_says(model):
    found = recipes.online("gspo")
    [loss] = found.losses().values()
    assert loss.keywords == {"clip": (3e-4, 4e-4), "ratio": "sequence"}
    assert recipes.online("dr_grpo").estimator().keywords == {"mode": "mean"}
    assert found.plan("t").minibatches == 4
    assert found.trainer(model).optimizer.base == [[7e-4]]
    assert found.trainer(model, lr=0.5, weight_by="row").optimizer.base == [[0.5]]
    assert replace(found, credit="g2po(gamma=0.9)").estimator().keywords == {"gamma": 0.9, "mode": "std"}
    own = replace(recipes.online("grpo"), lr=1e-3)
    assert own.trainer(model).optimizer.base == [[1e-3]]
    assert clew.credit.grpo is own.estimator().func


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"clip": (0.0, 0.2)}, "clip 0,0.2 bounds no ratio"),
        ({"clip": (1.5, 0.2)}, "bounds no ratio"),
        ({"lr": 0.0}, "lr=0 is no learning rate"),
        ({"lr": float("nan")}, "lr=nan is no learning rate"),
        ({"ratio": "sequence"}, "'pg' has no ratio of sequences"),
    ],
)
def test_recipes_that_contradict_themselves_are_refused(changes, told):
    with pytest.raises(BadInput, match=told) as refused:
        replace(recipes.online("grpo"), **changes)
    assert refused.value.remedy


def test_unknown_names_and_recipes_of_the_other_verb():
    with pytest.raises(UnknownName, match="no recipe is called 'ppo'") as refused:
        recipes.online("ppo")
    assert "dr_grpo" in str(refused.value.remedy)
    with pytest.raises(BadInput) as refused_too:
        recipes.online("dpo")
    assert "clew tune RUNS --recipe dpo" in str(refused_too.value)
    with pytest.raises(BadInput, match="samples its runs itself"):
        recipes.offline("grpo")
    with pytest.raises(BadInput, match="contradict"):
        replace(recipes.online("grpo"), credit="grpo(mode='mean')").estimator()
    with pytest.raises(BadInput, match="no normalisation to choose"):
        replace(recipes.online("grpo"), credit="tree").estimator()


def test_rates_fall_with_size_and_say_their_range(model):
    found = [rates.suits(10**k).usual for k in range(4, 12)]
    assert found == sorted(found, reverse=True)
    assert (rates.suits(100_000).usual, rates.suits(LARGE).usual) == (7e-4, 1e-6)
    assert rates.suits(LARGE, adapters=True).usual == pytest.approx(1e-5)
    assert rates.warning(7e-4, model.module) == ""
    assert "7e-05 to 7e-03 is usual" in rates.warning(0.1, model.module)
    assert "may learn nothing" in rates.warning(1e-6, model.module)
    module = torch.nn.Linear(1, 1)
    assert rates.size(module) == 2
