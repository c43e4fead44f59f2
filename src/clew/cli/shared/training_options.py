"""The settings of `clew train` as options: a recipe gives the defaults, the line and files change them, all is told.

The verb calls ``settle``, then ``plan`` and ``trainer``; ``tell`` prints each field with its value and where it comes
from. What is left open (the learning rate, the held-out curve) is chosen here, once: a training that goes on takes what
it was begun with.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from clew.cli.shared import common, option, trainer_options
from clew.cli.shared.ranks import rank
from clew.cli.shared.trainer_options import ABOVE, OF_LORA, OF_OPTIMISER, SCHEDULES
from clew.core.errors import BadInput

if TYPE_CHECKING:
    from clew.core.protocols import Taskset
    from clew.fit.sharding.ranks import Ranks
    from clew.fit.trainer import Trainer
    from clew.harness.trees.grow import Growth
    from clew.models.fleet import Fleet
    from clew.models.local import Local
    from clew.train.loop import Plan
    from clew.train.recipes import Online

NOT_NEGATIVE, COUNT = common.Amount(float, 0), common.Amount(int, 0)
RECIPE_HELP = "Defaults by a published name: g2po, grpo, dapo, dr_grpo, gspo, gigpo, tree; any option changes them."
CREDIT_HELP = "Credit method, as in `clew credit`.  [default: g2po; with trees: tree; with --data: grpo]"
LOSS_HELP = "Registered loss, or file.py:function.  [default: the recipe's]"
CLIP_HELP = "How far a ratio may fall below 1 and rise above it: one number, or LOW,HIGH.  [default: the recipe's]"
BY_HELP = (
    "What counts as one in the loss; run: a run's forks, compactions and sub-agents together.  [default: the recipe's]"
)
DYNAMIC_HELP = "Rounds of fresh tasks in place of those whose runs were all rewarded alike.  [default: the recipe's]"
EVAL_HELP = "Evaluate after this many iterations; 0: never.  [default: as often as a fifth of the rollouts pays for]"
SPLIT_HELP = "Split of these tasks: eval, so that test stays unseen, or any that the world has."
LR_HELP = "Learning rate of AdamW.  [default: the recipe's, else what suits the model's size]"
CORRECTION_HELP = "What to do about a sampler that is not the trainer: truncate or mask the weights of such tokens."

LAG_HELP = "1: collect the next iteration's runs while the weights step on the last; needs --workers or --ray."
ROLLOUTS_HELP = """Independent runs (flat) or trees grown by forks (tree); and the URLs of inference servers that sample
them, as in http://a,http://b or tree,http://a (docs/fleet.md)."""
ASIDE_HELP = "Where the weights lie that servers load; they see it under the same path.  [default: of the training]"


class Rollouts(click.ParamType):  # type: ignore[type-arg]  # click is generic from 8.4 on
    """``flat`` or ``tree``, and URLs of servers, with commas."""

    name = "flat|tree|URL,..."

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """As ``click.ParamType``."""
        text = str(value)
        kinds = [one for one in text.split(",") if one and not one.startswith(("http://", "https://"))]
        if len(kinds) > 1 or not set(kinds) <= {"flat", "tree"}:
            self.fail(f"{text!r} is neither flat nor tree nor a list of URLs: write http://a,http://b.", param, ctx)
        return text


rollout_options = common.options(
    option("--rollouts", type=Rollouts(), default="flat", help=ROLLOUTS_HELP),
    option("--weights-folder", metavar="FOLDER", help=ASIDE_HELP),
)
recipe_options = common.options(
    option("--recipe", help=RECIPE_HELP),
    option("--credit", "method", help=CREDIT_HELP),
    option(
        "--normalise", choices="std mean", help="Divide advantages by their standard deviation (std) or not (mean)."
    ),
    option("--loss", help=LOSS_HELP),
    option("--clip", help=CLIP_HELP),
    option("--ratio", choices="token sequence", help="Importance ratio of each token or of whole rows (GSPO)."),
    option("--kl", type=NOT_NEGATIVE, help="Weight of the penalty towards the weights that the training began with."),
    option("--weight-by", choices="run row token", help=BY_HELP),
    option("-n", "--n", "n", type=int, help="Runs of each task.  [default: 8]"),
    option("--epochs", type=int, help="Passes over the rows of an iteration.  [default: 1]"),
    option("--minibatches", type=int, help="Optimiser steps of each pass.  [default: 1; gspo: 4]"),
    option("--dynamic", type=COUNT, help=DYNAMIC_HELP),
)
optimiser_options = common.options(
    option("--lr", type=ABOVE, help=LR_HELP),
    option("--schedule", choices=SCHEDULES, default="constant", help="How the learning rate falls."),
    option("--warmup", default=0, help="Iterations in which the learning rate rises."),
    trainer_options.optimiser_options,
    option("--correction", choices="none truncate mask", default="none", help=CORRECTION_HELP),
    option(
        "--tolerance", type=ABOVE, help="Largest difference of sampler and trainer, nats.  [default: 1e-4, GPU 0.05]"
    ),
)
watching_options = common.options(
    option("--lag", default=0, type=common.Amount(int, 0), help=LAG_HELP),
    option("--eval-every", type=COUNT, help=EVAL_HELP),
    option("--eval-tasks", type=int, help="Held-out tasks in each evaluation.  [default: at most 64]"),
    option("--eval-split", default="eval", help=SPLIT_HELP),
    option("--checkpoint-every", default=5, help="Iterations between two checkpoints."),
    trainer_options.track_option,
)
training_options = common.options(recipe_options, optimiser_options, trainer_options.adapter_options, watching_options)

OF_RECIPE = (
    *("credit", "normalise", "loss", "clip", "ratio", "kl", "weight_by"),
    *("n", "lr", "epochs", "minibatches", "dynamic"),
)
OF_TRAINER = f"{OF_OPTIMISER} correction tolerance"
OF_PLAN = "iterations tasks seed schedule warmup eval_every eval_tasks eval_split checkpoint_every lag"
MOST, POINTS, FEW, PART = 64, 8, 16, 0.2  # held-out tasks; evaluations; tasks that say little; share of the rollouts


@dataclass(slots=True)
class Settled:
    """The settings of a training. ``sources``: field -> "option", "file", "recipe", "default" or what chose it."""

    recipe: Online
    options: dict[str, Any]
    sources: dict[str, str]
    notes: list[str] = field(default_factory=list)


def sampled_at(options: Mapping[str, Any]) -> tuple[str, list[str]]:
    """How ``--rollouts`` says that runs are made, flat or tree, and the URLs of the servers that sample them."""
    parts = [one for one in options["rollouts"].split(",") if one]
    urls = [one for one in parts if one.startswith("http")]
    return next((one for one in parts if one not in urls), "flat"), urls


def fleet(options: Mapping[str, Any], urls: list[str], model: Local) -> Fleet | None:
    """The servers that sample runs in place of local weights; None where no URL is given.

    Raises:
        BadInput: one is not a URL, no server loads the weights of --weights-folder, or a drafter is to be used,
            which belongs to local weights.
    """
    from clew.models.fleet import Fleet

    if not urls:
        if options["weights_folder"] is not None:
            raise BadInput(
                "--weights-folder does nothing without --rollouts URL",
                remedy="Name the servers that load the weights, or leave it out.",
            )
        return None
    if options["draft"] is not None:
        raise BadInput("--draft beside servers", remedy="Start the servers with their own speculative decoding.")
    told = Fleet(urls, model.renderer, ref=model.ref, training=True, api_key=common.api_key(), note=common.say)
    told.weights_name = model.weights_name
    return told


def settle(options: Mapping[str, Any], method: str | None) -> Settled:
    """A recipe with what the line and files change in it.

    Raises:
        UnknownName: no such recipe, estimator or loss. BadInput: settings that contradict each other.
    """
    from clew.train import recipes

    usual = "tree" if options["rollouts"] == "tree" else "grpo" if options["data"] else "g2po"
    base = recipes.online(options["recipe"] or usual)
    given = {name: options[name] for name in OF_RECIPE if name != "credit" and options[name] is not None}
    if "clip" in given:
        given["clip"] = trainer_options.pair(given["clip"], "--clip")
    if method is not None:
        given["credit"] = method
        given.setdefault("normalise", recipes.normalisation(method, base.normalise))
    made = replace(base, **given)
    made.estimator()  # says at once what is not there
    if "clip" in given:
        made.refuse_unused("clip")
    trainer_options.check_adapters(options)
    sources = {name: trainer_options.source("method" if name == "credit" else name) for name in OF_RECIPE}
    sources |= {n: "recipe" for n, s in sources.items() if s == "default"}
    sources |= {name: trainer_options.source(name) for name in f"{OF_TRAINER} {OF_PLAN} {OF_LORA}".split()}
    return Settled(made, {**options, "n": made.n}, sources)


def settle_open(settled: Settled, model: Local, taskset: Taskset, folder: Path | None) -> None:
    """Choose what is left open: the learning rate by the model's size, and how often to evaluate.

    A training that goes on takes what it was begun with.
    """
    from clew.train import rates

    options, begun = settled.options, _begun(folder)
    adapters = trainer_options.has_adapters(options)
    if settled.recipe.lr is None:
        lr = begun.get("lr", settled.recipe.rate(model, adapters))
        settled.recipe = replace(settled.recipe, lr=lr)
        settled.sources["lr"] = (
            "as begun" if "lr" in begun else f"size of the model, {rates.size(model.module):,} weights"
        )
    assert settled.recipe.lr is not None
    if told := rates.warning(settled.recipe.lr, model.module, adapters):
        settled.notes.append(f"warning: {told}")
    before = begun.get("plan", {})
    for name in ("eval_every", "eval_tasks"):
        if options[name] is None and name in before:
            options[name], settled.sources[name] = before[name], "as begun"
    if options["eval_every"] is None:
        _hold_out(settled, taskset)
    options["eval_tasks"] = options["eval_tasks"] or MOST


def _begun(folder: Path | None) -> dict[str, Any]:
    path = folder / "settings.json" if folder is not None else None
    found: dict[str, Any] = json.loads(path.read_text()) if path is not None and path.exists() else {}
    return found


def _hold_out(settled: Settled, taskset: Taskset) -> None:
    options = settled.options
    options["eval_every"], settled.sources["eval_every"] = 0, "cost"
    runs = options["iterations"] * options["tasks"] * options["n"]
    every, tasks = held_out(options["iterations"], runs, options["eval_tasks"])
    if not every:
        settled.notes.append(
            f"no held-out curve: {runs:,} rollouts are too few to pay for one (--eval-every K asks for it)"
        )
        return
    split = options["eval_split"]
    try:
        tasks = len(taskset.sample(tasks, 0, split))  # a file may hold fewer
    except Exception as error:  # the taskset may be anyone's, and nobody asked for this
        settled.notes.append(f"no held-out curve: no {tasks} tasks of split {split!r} ({type(error).__name__})")
        return
    options["eval_every"], options["eval_tasks"] = every, tasks
    settled.sources["eval_tasks"] = (
        "cost" if settled.sources["eval_tasks"] == "default" else settled.sources["eval_tasks"]
    )
    spent = tasks * (math.ceil(options["iterations"] / every) + 1)
    when = "at the start" if every == options["iterations"] else f"at the start, every {every} iterations"
    settled.notes.append(
        f"held-out curve: {tasks} tasks of split {split!r} {when} and at the end: "
        f"{spent:,} runs beside {runs:,} of the training"
    )


def held_out(iterations: int, runs: int, tasks: int | None = None) -> tuple[int, int]:
    """(iterations between two evaluations, tasks of each) such that all evaluations take at most a fifth of ``runs``.

    (0, 0) where that buys no curve worth looking at. ``tasks``: so many, however few evaluations that leaves.
    """
    budget = int(PART * runs)
    for points in range(min(POINTS, iterations), 0, -1):
        every = math.ceil(iterations / points)
        times = math.ceil(iterations / every) + 1
        size = tasks or min(MOST, budget // times)
        if times * size <= budget and (tasks or size >= MOST // 2 or (points == 1 and size >= FEW)):
            return every, size
    return (iterations, tasks) if tasks else (0, 0)


def trainer(settled: Settled, model: Local, ranks: Ranks) -> Trainer:
    """The trainer that these settings describe; its first weights and its noise follow from the seed.

    Of several ranks the first hands on the settings, and the others are in ``follow``.
    """
    from clew.fit.sharding.leading import kind

    if ranks.leads:
        ranks.told(settled)
    o = settled.options
    losses = settled.recipe.losses(**({"correction": o["correction"]} if o["correction"] != "none" else {}))
    settings = trainer_options.trainer_settings(o)
    return settled.recipe.trainer(model, kind(ranks), losses=losses, tolerance=o["tolerance"], ranks=ranks, **settings)


def follow(options: Mapping[str, Any], ranks: Ranks) -> None:
    """All that a rank other than the first does of `clew train`."""
    with rank.telling():
        model = rank.model(options["model"], ranks)
        rank.follow(trainer(ranks.told(None), model, ranks))


def reference(settled: Settled, model: str) -> Local | None:
    """The weights that the training begins with, frozen, where a penalty holds it to them."""
    if not settled.recipe.kl:
        return None
    return trainer_options.frozen(model, settled.options["adapter"])


def plan(settled: Settled, name: str, growth: Growth | None) -> Plan:
    """The plan that these settings describe."""
    return settled.recipe.plan(name, growth=growth, **common.pick(settled.options, OF_PLAN))


def record(settled: Settled) -> dict[str, Any]:
    """What a training records of its settings beside its plan; of later options only what is not their default."""
    recipe, o = settled.recipe, settled.options
    later = {"normalise": recipe.normalise, "loss": recipe.loss, "clip": list(recipe.clip), "ratio": recipe.ratio}
    later |= {"weight_by": recipe.weight_by}
    plain = {"normalise": (None, "std"), "loss": ("pg",), "clip": ([0.2, 0.2],), "ratio": ("token",)}
    plain |= {"weight_by": ("token",)}
    out = {name: value for name, value in later.items() if value not in plain[name]}
    rest = {**out, **trainer_options.not_default(o, f"{OF_TRAINER} {OF_LORA}")}
    return {"credit": recipe.credit, "lr": recipe.lr, "lora": o["lora"], **rest}


def values(settled: Settled) -> dict[str, Any]:
    """Every field with its value."""
    found = {name: getattr(settled.recipe, name) for name in OF_RECIPE}
    return found | {name: settled.options[name] for name in f"{OF_PLAN} {OF_TRAINER} {OF_LORA}".split()}


def as_json(settled: Settled) -> dict[str, Any]:
    """What ``tell`` prints, as JSON."""
    fields = {name: {"value": value, "from": settled.sources[name]} for name, value in values(settled).items()}
    return {"recipe": settled.recipe.name, "fields": fields, "notes": settled.notes}


def tell(settled: Settled) -> None:
    """Print every field with its value, those of one source together, and what else there is to say."""
    recipe = settled.recipe
    trainer_options.table(f"recipe {recipe.name}: {recipe.about}", values(settled), settled.sources)
    for note in settled.notes:
        common.say(note)
