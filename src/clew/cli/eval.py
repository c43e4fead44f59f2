"""clew eval: measure the success rate of models on held-out tasks."""

from __future__ import annotations

from typing import Any

import click

from clew.cli.shared import common, data_options, option, run_options
from clew.cli.shared.programs import program_options


@click.command(short_help="Measure success rates of models on held-out tasks.")
@click.argument("models", nargs=-1, required=True)
@option("--agent", default="player", help="Agent, as `clew run` takes it.")
@option("--world", default="household", help="World to act in: a name of `clew worlds`, or file.py:Class.")
@option("--tasks", default=256, help="Number of tasks; the same tasks for every model.")
@option("--split", default="test", help="train, eval or test; neither training nor its checks see test tasks.")
@option("--seed", default=0, help="Seed of tasks and sampling.")
@option("-n", "--n", "n", default=1, help="Runs of each task.")
@option("--name", default="", help="Name of the evaluation; the same line continues it where it stopped.")
@option("--config", default="{}", help="Arguments of the agent, as JSON.")
@data_options.data_options
@run_options.tools_option
@program_options.command_options
@run_options.model_options
@run_options.sampling_options
@run_options.limit_options
@common.output_options
def command(models: tuple[str, ...], n: int, as_json: bool, store_path: str, **options: Any) -> None:
    """Run each model on the same tasks and report its success rate with a 95 % interval (Wilson).

    MODELS are names, folders or URLs, as `clew run` takes them. The reports are kept in the store.

    \b
    clew eval household-sft
    clew eval household-sft .clew/trainings/quickstart/checkpoint --tasks 512 --temperature 0
    """
    options["agent"] = run_options.agent_for(options, options["agent"])
    taskset = run_options.world_of(options, options["agent"], judged=True)
    tasks = taskset.sample(options["tasks"], seed=options["seed"], split=options["split"])
    found, purse = {}, run_options.purse(options)
    make = run_options.runner_maker(options, taskset, resolve_model=run_options.named_models(options, purse))
    store = common.open_store(store_path, create=True)
    name = options["name"]
    for index, ref in enumerate(models):
        runner = make(run_options.load_model(ref, options, purse), store)
        with (
            run_options.interruptible("the same line again" if name else run_options.resume_line(options)),
            run_options.watching(len(tasks) * n, ref[-30:]) as watch,
        ):
            groups = runner.collect(tasks, n, options["seed"], name=name and f"{name}.{index}", on_run=watch)
        run_options.refuse_failure(groups)
        found[ref] = groups.success()
        store.put_report(found[ref])
    store.commit()
    if as_json:
        common.end_with_json({ref: run_options.numbers(report) for ref, report in found.items()})
    for ref, report in found.items():
        common.echo(f"{ref}: success {report}")
        for caveat in report.caveats:
            common.echo(f"  note: {caveat}")
