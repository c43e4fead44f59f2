"""clew quickstart: pre-train, record, train by RL, evaluate and fork a small agent on this machine, in minutes."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from clew.cli.shared import common, option, run_options, training_report
from clew.cli.shared.next_lines import command_line

if TYPE_CHECKING:
    from clew.core.records import Report
    from clew.harness import Runner
    from clew.models.local import Local
    from clew.train.loop import Training

TASKS = 256  # held out: never trained on
METHOD = "g2po"
PRETRAINING = 1300  # steps at most, as `household-sft` has; it ends where a third of the tasks succeed


@click.command(short_help="Train a small agent here in minutes, and keep every run.")
@option("--iterations", default=70, help="Iterations of RL.")
@option("--seed", default=0, help="Seed of tasks, weights and sampling.")
@option("--name", default="quickstart", help="Name of the training; another name begins a new one.")
@common.output_options
def command(iterations: int, seed: int, name: str, as_json: bool, store_path: str) -> None:
    """Train a small agent in a bundled text world, and keep every run of it.

    The quickstart pre-trains a small transformer on imperfect demonstrations, records its runs, improves it by RL (the
    method g2po), evaluates it on tasks it never trained on, and ends with the run that failed worst. Interrupt it at
    any moment: the same line continues where it stopped.

    \b
    clew quickstart
    clew quickstart --seed 1 --name second
    """
    began = time.perf_counter()
    with run_options.interruptible("the same line again"):
        training, reports = learn(iterations, seed, name, store_path)
    finish(training, reports, as_json, time.perf_counter() - began)


def learn(iterations: int, seed: int, name: str, store_path: str) -> tuple[Training, dict[str, Report]]:
    """Pre-train, evaluate, train, evaluate."""
    import clew.credit
    from clew.core.registry import build
    from clew.fit.trainer import Trainer
    from clew.harness import Runner
    from clew.models.local.model import Local
    from clew.train.loop import Plan, Training

    store = common.open_store(store_path, create=True)
    model: Any = pretrained(seed)
    run_options.calm(model)
    taskset = build("tasksets", "household")
    runner = Runner("clew.harness.agents:player", taskset, model, store, sampling={"max_tokens": 8})
    before = evaluate(runner, f"{name}.before", f"pre-trained, {TASKS} held-out tasks")
    plan = Plan(name=name, iterations=iterations, seed=seed, checkpoint_every=2)
    training = Training(runner, Trainer(model), clew.credit.g2po, plan, settings={"model": model.ref, "credit": METHOD})
    common.say(f"RL with {METHOD}: {iterations} iterations of {plan.tasks} tasks x {plan.rollouts} runs")
    training_report.follow(training)
    assert training.checkpoint is not None
    folder = Path(training.checkpoint)
    shown = folder.relative_to(Path.cwd()) if folder.is_relative_to(Path.cwd()) else folder
    trained: Any = Local(folder, ref=str(shown), steady=True)
    runner.model = trained
    after = evaluate(runner, f"{name}.after{iterations}", f"trained, the same {TASKS} tasks")
    return training, {"pre-trained": before, "trained": after}


def pretrained(seed: int) -> Local:
    """The pre-trained model, from its folder where it was made before."""
    from clew.train.warmstart import household_sft

    common.say("pre-training a small transformer on imperfect demonstrations")
    with common.progress() as bar:
        job = bar.add_task("pre-training", total=None, note="")

        def show(done: int, total: int, loss: float) -> None:
            bar.update(job, total=total, completed=done, note=f"loss {loss:.3f}")
            if bar.disable and done % 150 == 0:
                common.say(f"pre-training {done} of at most {total}  loss {loss:.3f}")

        model = household_sft(seed=seed, steps=PRETRAINING, progress=show)
        bar.update(job, visible=False)
    return model


def evaluate(runner: Runner, name: str, title: str) -> Report:
    """Success on the held-out tasks, one run each, kept in the store under ``name``."""
    assert runner.taskset is not None
    tasks = runner.taskset.sample(TASKS, seed=0, split="test")
    with run_options.watching(len(tasks), "evaluating") as watch:
        report = runner.collect(tasks, 1, 0, name=name, on_run=watch).success()
    runner.store.put_report(report, f"report-{name}")
    runner.store.commit()
    common.say(f"{title}: success {report}")
    return report


def finish(training: Training, reports: dict[str, Report], as_json: bool, seconds: float) -> None:
    """Say what came out and what to do next."""
    from clew.view.terminal import tree

    name, store = training.plan.name, training.store
    model = getattr(training.runner.model, "ref", "")
    run = training_report.worst(store, name, METHOD)
    commands = {"The trained model on other tasks": command_line("eval", model, seed=1, max_tokens=8)}
    if run is not None:
        again = command_line("fork", run.low_point(METHOD), n=4, model=model)
        first = {"Go back to the step that lost most, and try it four more times": again}
        commands = {**first, "See the run again": command_line("show", run.id), **commands}
    page = training_report.write_page(training, reports, run, commands)
    if as_json:
        numbers = {label: run_options.numbers(report) for label, report in reports.items()}
        worst = None if run is None else {"run": run.id, "at": str(run.low_point(METHOD))}
        common.end_with_json({**numbers, "worst": worst, "report": page, "seconds": seconds, "next": commands})
    if run is not None:
        common.echo("\nThe run that failed worst:\n")
        common.draw(tree(run, width=max(common.width() - 30, 40)))
    common.echo()
    for label, report in reports.items():
        common.echo(f"{label:<12} {report.estimate:6.1%}  [{report.low:.1%}, {report.high:.1%}]  n={report.n}")
    common.echo(f"\nreport  {page}\n{seconds:.0f} s in all\n\nNext:")
    for purpose, typed in commands.items():
        common.echo(f"  {typed}\n      {purpose}")
