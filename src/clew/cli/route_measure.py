"""clew route measure: ask every worker of a pool the same questions, several times each."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

import click

from clew.cli.shared import common, data_options, option, run_options
from clew.cli.shared.next_lines import command_line
from clew.core.errors import BadInput

if TYPE_CHECKING:
    from clew.core.values import Task
    from clew.methods.routing.measuring import Wanted
    from clew.methods.routing.reward_matrix import Matrix

MODELS_HELP = "The pool: models as `clew run` takes them, with commas between them; may be repeated."
NAME_HELP = "Tag for the runs, by which the next verbs name them.  [default: of the rewards]"


@click.command("measure", short_help="Ask every model of a pool the same questions, several times each.")
@option("--models", multiple=True, required=True, metavar="A,B,...", help=MODELS_HELP)
@option("--agent", default="player", help="Agent, as `clew run` takes it.")
@option("--world", default="household", help="World to act in: a name of `clew worlds`, or file.py:Class.")
@option("--tasks", default=600, help="Number of questions; all of the split where it has fewer.")
@option("--split", default="train", help="train, eval or test.")
@option("--seed", default=0, help="Seed of questions and sampling.")
@option("-n", "--n", "n", default=4, help="Samples of each question by each worker.")
@option("--name", default="", help=NAME_HELP)
@option("--config", default="{}", help="Arguments of the agent, as JSON.")
@option("--dry", is_flag=True, help="Print what would be asked and its cost, and ask nothing.")
@data_options.data_options
@run_options.tools_option
@run_options.model_options
@run_options.sampling_options
@run_options.limit_options
@common.output_options
def command(models: tuple[str, ...], n: int, as_json: bool, store_path: str, **options: Any) -> None:
    """Ask every model of a pool the same questions, and keep the rewards as a matrix: worker by question by sample.

    Each sample is a stored run. What the store has already is not asked again: the same line continues where it
    stopped, and a larger -n, more questions or one more model ask only for what is missing. Failed calls are no sample.

    \b
    clew route measure --models openai:gpt-5-mini,openai:gpt-5 --data q.jsonl --reward numeric -n 4
    clew route measure --models household-sft,./checkpoint --world household --tasks 200 --name pool
    """
    from clew.methods.routing import measuring

    pool = pool_of(models)
    options["agent"] = run_options.agent_for(options, options["agent"])
    taskset = run_options.world_of(options, options["agent"], judged=True)
    tasks = taskset.sample(options["tasks"], seed=options["seed"], split=options["split"])
    purse, store = run_options.purse(options), common.open_store(store_path, create=True)
    make = run_options.runner_maker(options, taskset, resolve_model=run_options.named_models(options, purse))
    plan = [measuring.wanted(ref, make(run_options.load_model(ref, options, purse), store), tasks, n) for ref in pool]
    told = _forecast(plan, tasks, n)
    if not as_json:
        common.echo(told["text"])
    if options["dry"]:
        if as_json:
            common.end_with_json(told)
        return
    with run_options.interruptible("the same line again"):
        for it in plan:
            with run_options.watching(it.calls, it.worker[-30:]) as watch:
                measuring.ask(it, options["seed"], watch)
    runs = measuring.gathered(plan, tasks)
    refs = {it.worker: it.runner.row(tasks[0]).model for it in plan}
    found = measuring.of_runs(runs, workers=[refs[it.worker] for it in plan])
    name = options["name"] or f"pool-{found.label}"
    for run in runs:
        store.tag(run.id, name)
    store.commit()
    rates = _rates(found)
    if as_json:
        reports = {worker: run_options.numbers(rate) for worker, rate in rates.items()}
        common.end_with_json({"name": name, "questions": len(found), "runs": len(runs), "workers": reports})
    for worker, rate in rates.items():
        common.echo(f"{worker}: reward {rate}")
    for note in found.notes:
        common.echo(f"note: {note}")
    common.echo(f"Next: {command_line('route report', name)}")


def pool_of(models: tuple[str, ...]) -> list[str]:
    """The workers that a line names; commas inside brackets belong to a name.

    Raises:
        BadInput: fewer than two, or one twice.
    """
    pool = [word.strip() for given in models for word in re.split(r",(?![^()]*\))", given) if word.strip()]
    if len(pool) < 2:
        said = f"the pool is {pool[0]} alone" if pool else "the pool is empty"
        raise BadInput(said, remedy="Name two models or more, as in --models A,B.")
    if twice := [name for name in pool if pool.count(name) > 1]:
        raise BadInput(f"{twice[0]} stands twice in the pool", remedy="Name each model once.")
    return pool


def _forecast(plan: list[Wanted], tasks: list[Task], n: int) -> dict[str, Any]:
    """What is missing and what it costs, before anything is asked."""
    missing, every = sum(it.calls for it in plan), len(plan) * len(tasks) * n
    dollars = [it.dollars for it in plan]
    unknown = [it.worker for it, cost in zip(plan, dollars, strict=True) if math.isnan(cost)]
    known = sum(cost for cost in dollars if not math.isnan(cost))
    text = f"{len(plan)} workers, {len(tasks)} questions, {n} samples each: {every:,} runs, {missing:,} of them to make"
    text += f", about ${known:,.2f}" if known else ""
    text += f"; no price is known for {', '.join(unknown)}" if unknown else ""
    return {"text": text, "runs": every, "missing": missing, "dollars": known, "unpriced": unknown}


def _rates(found: Matrix) -> dict[str, Any]:
    from clew.methods.compare import design

    return {
        worker: design.bootstrap(
            f"mean reward of {worker}", lambda x: x.mean(-1), found.means[:, w], unit="questions", runs=found.runs
        )
        for w, worker in enumerate(found.workers)
    }
