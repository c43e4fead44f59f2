"""clew train: improve local weights by RL on a world."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from clew.cli.shared import common, data_options, option, run_options, speculation, training_report
from clew.cli.shared.next_lines import command_line
from clew.core.errors import BadInput

if TYPE_CHECKING:
    from clew.harness.trees.grow import Growth
    from clew.train.loop import Training


NOTHING_LEARNT = """Nothing was learnt: in every group all runs got the same reward, so no step had a signal, and the
weights are those that the training began with. Choose tasks that the model sometimes solves (--world), more runs of
each (-n), or a model that was taught the world's actions first."""
SELECTOR_HELP = "With --rollouts tree: uucb, entropy, uct, random or flat; with settings, as in uucb(c=1.0)."
ALLOCATOR_HELP = "With --spare: give the tokens to all such trees alike, or to those forecast to become mixed."
DRAFT_HELP = """Speculative decoding of rollouts: prompt lookup, or a drafter of `clew draft train`, which is refreshed
as the policy changes."""
EVAL_SPLIT_HELP = "Split of these tasks: eval, so that test stays unseen, or any that the world has."
SPARE_HELP = "With --rollouts tree: share of tokens held back, then given to trees whose runs all ended alike."
tree_options = common.options(
    option("--rollouts", choices="flat tree", default="flat", help="Independent runs, or trees grown by forks."),
    option("--selector", default="uucb", help=SELECTOR_HELP),
    option("--budget", type=int, help="With --rollouts tree: tokens decoded per task.  [default: -n whole runs]"),
    option("--spare", default=0.0, help=SPARE_HELP),
    option("--allocator", choices="even learned", default="even", help=ALLOCATOR_HELP),
)


@click.command(short_help="Train local weights by RL on tasks of a world.")
@option("--name", required=True, help="Name of the training; the same line continues it where it stopped.")
@option("--world", default="household", help="World to train on: a name of `clew worlds`, or file.py:Class.")
@option("--model", default="household-sft", help="Name or folder of local weights.")
@option("--agent", default="player", help="Agent, as `clew run` takes it.")
@option("--config", default="{}", help="Arguments of the agent, as JSON.")
@option(
    "--credit",
    "method",
    help="Credit method, as in `clew credit`.  [default: g2po; with trees: tree; with --data: grpo]",
)
@data_options.data_options
@run_options.tools_option
@tree_options
@option("--iterations", default=45, help="Iterations in total; a larger number continues.")
@option("--tasks", default=8, help="New tasks in each iteration.")
@option("-n", "--n", "n", default=8, help="Runs of each task.")
@option("--lr", default=7e-4, type=common.Amount(float, 0, above=True), help="Learning rate of AdamW.")
@option("--lora", type=int, help="Train only LoRA adapters of this rank.")
@option("--eval-every", default=0, help="Evaluate after this many iterations; 0: never.")
@option("--eval-tasks", default=64, help="Held-out tasks in each evaluation.")
@option("--eval-split", default="eval", help=EVAL_SPLIT_HELP)
@option("--seed", default=0, help="Seed of tasks and sampling.")
@option("--draft", metavar="lookup|FOLDER", help=DRAFT_HELP)
@run_options.sampling_options
@common.output_options
def command(name: str, method: str | None, as_json: bool, store_path: str, **options: Any) -> None:
    """Train by RL: collect runs, assign credit to steps, update the weights, and repeat.

    Every run is kept, and checkpoints are folders of weights. To train from runs that the store already holds, use
    `clew tune`.

    \b
    clew train --name first --iterations 20
    clew train --name own --data questions.jsonl --reward reward.py:score --model ./weights
    clew train --name wood --world sums --model FOLDER --rollouts tree --budget 256 --spare 0.3
    clew train --name quick --world sums --model FOLDER --draft FOLDER/drafters/dspark-7
    clew train --name ring --world "household(layout='ring')" --credit 'bellman(lam=0.5)' --eval-every 10
    """
    from clew.core import registry
    from clew.fit.trainer import Trainer
    from clew.harness import Runner
    from clew.train.loop import Plan, Training, default_folder

    growth = _growth(options)
    method = method or ("tree" if growth is not None else "grpo" if options["data"] else "g2po")
    credit, estimator = registry.parse_ref(method)[0], registry.bound("credits", method)
    options["agent"] = run_options.agent_for(options, options["agent"])
    taskset = run_options.world_of(options, options["agent"], judged=True)
    config = common.json_object(options["config"], "--config")
    model: Any = run_options.trainable(options["model"])
    store = common.open_store(store_path, create=True)
    agent = run_options.agent_reference(options["agent"])
    how: dict[str, Any] = {"tools": options["tools"], "sampling": run_options.sampling(options)}
    runner = Runner(agent, taskset, model, store, config, **how)
    sizes = common.pick(options, "iterations tasks seed eval_every eval_tasks eval_split")
    plan = Plan(name=name, rollouts=options["n"], growth=growth, **sizes)
    draft = None
    if options["draft"] is not None:
        from clew.train.drafters.refresh import Drafting

        kept, rows = default_folder(store.path, name), options["tasks"] * options["n"]
        with speculation.measuring() as advance:
            draft = Drafting(model, options["draft"], kept=kept, rows=rows, advance=advance)
    trainer = Trainer(model, options["lr"], lora={"r": options["lora"]} if options["lora"] else None)
    settings = {"model": options["model"], "credit": method, "lr": options["lr"], "lora": options["lora"]}
    training = Training(runner, trainer, estimator, plan, draft=draft, settings=settings)
    with run_options.interruptible("the same line again"):
        training_report.follow(training)
    _report(training, credit.rpartition(":")[2], options, as_json)


def _growth(options: Mapping[str, Any]) -> Growth | None:
    """How trees grow, or None for flat rollouts.

    Raises:
        BadInput: an option of trees without --rollouts tree, or settings with which no tree can grow.
    """
    from clew.core.registry import parse_ref
    from clew.harness.trees.grow import Growth

    if options["rollouts"] == "flat":
        given = (options["budget"], options["spare"], options["selector"], options["allocator"])
        if given != (None, 0.0, "uucb", "even"):
            told = "--selector, --budget, --spare and --allocator are for trees"
            raise BadInput(told, remedy="Add --rollouts tree, or leave them out.")
        return None
    name, settings = parse_ref(options["selector"])
    bound = {"leaves": options["n"]} if options["budget"] is None else {"tokens": options["budget"]}
    moved = {"spare": options["spare"], "allocator": options["allocator"]}
    return Growth(selector=name, settings=tuple(sorted(settings.items())), **moved, **bound)


def _report(training: Training, method: str, options: Mapping[str, Any], as_json: bool) -> None:
    store, name = training.store, training.plan.name
    metrics = store.metrics(name)
    learnt = any(key.startswith("step/") for values in metrics.values() for key in values)
    run = training_report.worst(store, name, method)
    made = training.checkpoint
    commands = {"Evaluate on held-out tasks": command_line("eval", made, **run_options.agent_options(options))}
    if not learnt:
        lost = command_line("log", f"name={name}/*", zero_variance=True)
        commands = {"See in which groups all runs got the same reward": lost}
    if run is not None:
        place = run.low_point(method)
        commands["Fork the run that failed worst where it lost most"] = command_line("fork", place, n=4, model=made)
    page = training_report.write_page(training, {}, run, commands)
    last = metrics[max(metrics)] if metrics else {}
    if as_json:
        told = {"name": name, "checkpoint": made, "learnt": learnt, "metrics": metrics, "report": page}
        common.end_with_json(told)
    common.echo(f"{len(metrics)} iterations, success of the last {last.get('success', 0):.0%}")
    if not learnt:
        common.echo(NOTHING_LEARNT)
    common.echo(f"weights {made}\nreport  {page}\n\nNext:")
    for purpose, typed in commands.items():
        common.echo(f"  {typed}\n      {purpose}")
