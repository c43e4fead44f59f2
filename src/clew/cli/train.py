"""clew train: improve local weights by RL on a world."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from clew.cli.shared import (
    common,
    data_options,
    option,
    run_options,
    speculation,
    trainer_options,
    training_options,
    training_report,
)
from clew.cli.shared.next_lines import command_line
from clew.cli.shared.programs import program_options
from clew.cli.shared.ranks import rank
from clew.cli.shared.workers import worker_options

if TYPE_CHECKING:
    from clew.models.local import Local
    from clew.train.drafters.refresh import Drafting
    from clew.train.loop import Plan, Training


NOTHING_LEARNT = """Nothing was learnt: in every group all runs got the same reward, so no step had a signal, and the
weights are those that the training began with. Choose tasks that the model sometimes solves (--world), more runs of
each (-n), or a model that was taught the world's actions first."""
DRAFT_HELP = """Speculative decoding of rollouts: prompt lookup, or a drafter of `clew draft train`, which is refreshed
as the policy changes."""


@click.command(short_help="Train local weights by RL on tasks of a world.")
@option("--name", required=True, help="Name of the training; the same line continues it where it stopped.")
@option("--world", default="household", help="World to train on: a name of `clew worlds`, or file.py:Class.")
@option("--model", default="household-sft", help="Name or folder of local weights.")
@option("--agent", default="player", help="Agent, as `clew run` takes it.")
@option("--config", default="{}", help="Arguments of the agent, as JSON.")
@data_options.data_options
@run_options.tools_option
@program_options.command_options
@training_options.rollout_options
@run_options.growing_options
@option("--iterations", default=45, help="Iterations in total; a larger number continues.")
@option("--tasks", default=8, help="New tasks in each iteration.")
@option("--seed", default=0, help="Seed of tasks and sampling.")
@option("--draft", metavar="lookup|FOLDER", help=DRAFT_HELP)
@worker_options.worker_options
@training_options.training_options
@rank.ranks_option
@run_options.sampling_options
@common.output_options
def command(name: str, method: str | None, as_json: bool, store_path: str, **options: Any) -> None:
    """Train by RL: collect runs, assign credit to steps, update the weights, and repeat.

    A recipe gives the defaults, and each value is printed with where it came from. Every run is kept, and checkpoints
    are folders of weights. To train from runs that the store already holds, use `clew tune`.

    \b
    clew train --name first --iterations 20
    clew train --name second --recipe dapo --lr 3e-4 --schedule cosine --warmup 2
    clew train --name own --data questions.jsonl --reward reward.py:score --model ./weights
    clew train --name wood --world sums --model FOLDER --rollouts tree --budget 256 --spare 0.3
    clew train --name quick --world sums --model FOLDER --draft FOLDER/drafters/dspark-7
    clew train --name small --model FOLDER --lora 8 --track tensorboard
    clew train --name cluster --model FOLDER --ray auto --workers 16
    clew train --name served --model ./weights --rollouts http://localhost:8422,http://localhost:8423
    clew train --name ring --world "household(layout='ring')" --credit 'bellman(lam=0.5)' --eval-every 10
    """
    from clew.harness import Runner
    from clew.train.loop import Training, default_folder
    from clew.train.pushing import Pushing

    options["rollouts"], urls = training_options.sampled_at(options)
    ranks = rank.begin(options["nproc"])
    if ranks is None:
        return
    if not ranks.leads:
        training_options.follow(options, ranks)
        return
    settled = training_options.settle(options, method)
    growth = run_options.growth_of(settled.options)
    played = run_options.agent_for(options, options["agent"])
    taskset = run_options.world_of(options, played, judged=True)
    config = program_options.config_of(options, ("temperature", "top_p", "max_tokens"))
    model: Any = rank.model(options["model"], ranks)
    store = common.open_store(store_path, create=True)
    folder = default_folder(store.path, name)
    training_options.settle_open(settled, model, taskset, folder)
    plan = training_options.plan(settled, name, growth)
    if not as_json:
        training_options.tell(settled)
    how: dict[str, Any] = {"tools": options["tools"], "sampling": run_options.sampling(options)}
    how["resolve_model"] = run_options.named_models(options)
    fleet = training_options.fleet(options, urls, model)
    runner = Runner(run_options.agent_reference(played), taskset, fleet or model, store, config, **how)
    beside: dict[str, Any] = {"ref": training_options.reference(settled, options["model"])}
    if options["draft"] is not None:  # it was made for the weights as they are before a trainer adds adapters
        beside["draft"] = _drafting(model, options["draft"], folder, plan)
    trainer = training_options.trainer(settled, model, ranks)
    beside["settings"] = {"model": options["model"], **training_options.record(settled)}
    beside["tracker"] = trainer_options.trackers(options, name, folder)
    if fleet is not None:
        beside["pushing"] = Pushing(fleet, trainer, options["weights_folder"] or (folder or Path(name)) / "weights")
    training = Training(runner, trainer, settled.recipe.estimator(), plan, **beside)
    driving = worker_options.executor(options, "--rollouts URL" if urls else "")
    with run_options.interruptible("the same line again"), rank.telling(), driving as runner.executor:
        ahead = training_report.follow(training)
        rank.release(trainer)
    _report(training, settled, options, ahead if as_json else None)


def _drafting(model: Local, draft: str, folder: Path | None, plan: Plan) -> Drafting:
    from clew.train.drafters.refresh import Drafting

    with speculation.measuring() as advance:
        return Drafting(model, draft, kept=folder, rows=plan.tasks * plan.rollouts, advance=advance)


def _report(
    training: Training, settled: training_options.Settled, options: Mapping[str, Any], ahead: dict[str, Any] | None
) -> None:
    """Say what came out; as JSON where what was ahead is given."""
    from clew.core import registry

    method = registry.parse_ref(settled.recipe.credit)[0].rpartition(":")[2]
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
    curve = training_report.held_out(training)
    if ahead is not None:
        told = {
            "settings": training_options.as_json(settled),
            "forecast": ahead,
            "name": name,
            "checkpoint": made,
            "learnt": learnt,
            "metrics": metrics,
            "report": page,
        }
        common.end_with_json({**told, "held_out": curve, "change": training_report.change(training, curve)})
    common.echo(f"{len(metrics)} iterations, success of the last {last.get('success', 0):.0%}")
    if not learnt:
        common.echo(NOTHING_LEARNT)
    if curve:
        common.echo("success on held-out tasks by iteration, with 95 % intervals")
        for line in training_report.draw_curve(curve):
            common.echo(line)
        common.echo(training_report.change(training, curve))
    common.echo(f"weights {made}\nreport  {page}\n\nNext:")
    for purpose, typed in commands.items():
        common.echo(f"  {typed}\n      {purpose}")
