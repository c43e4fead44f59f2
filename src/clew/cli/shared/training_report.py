"""What verbs that train show: memory and steps before the first one, live progress, and a report page at the end."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clew.cli.shared import common

if TYPE_CHECKING:
    from clew.core.protocols import Scores
    from clew.core.records import Report
    from clew.fit.trainer import Trainer
    from clew.store import Keeper, Run
    from clew.train.loop import Training

WIDTH = 50  # columns of the drawn curve
EVERY = 5  # iterations between two lines where there is no terminal to draw a bar on


def forecast(
    trainer: Trainer, work: Mapping[str, int], *, samples: bool = False, reference: Scores | None = None
) -> dict[str, Any]:
    """Say what a training is about to do and the memory it takes, before its first step; the same as JSON.

    Args:
        work: how many iterations, steps and so on, by what they are called.
        samples, reference: as of ``clew.fit.memory.needed``.
    """
    from clew.fit.memory import needed

    found = needed(trainer, samples=samples, reference=reference)
    parameters = list(trainer.module.parameters())
    trained, every = sum(p.numel() for p in parameters if p.requires_grad), sum(p.numel() for p in parameters)
    to_come = {"gradients": found.gradients, "optimiser states": found.optimiser, "the engine's next copy": found.copy}
    told = ", ".join(f"{_size(size)} of {what}" for what, size in to_come.items() if size)
    told += f", at most {_size(found.cache)} of cache" if found.cache else ""
    one = f" of rank 0 of {trainer.ranks.world}" if trainer.ranks.world > 1 else ""
    line = f"to train: {', '.join(f'{count:,} {what}' for what, count in work.items())}; {trained:,} of {every:,} "
    line += f"parameters; memory{one}: {_size(found.loaded)} of weights are loaded; to come: {told}, and activations"
    if found.free is not None:
        line += f"; {_size(found.free)} are free"
        if found.most > found.free:
            many = found.least if found.least > found.free else found.most
            line += f", less than the {_size(many)} to come{'' if many == found.least else ' with a full cache'}"
    common.say(line)
    return {**work, "parameters": {"trained": trained, "all": every}, "memory": found._asdict()}


def tell_pace(what: str, number: int, seconds: float, left: int, also: str = "") -> None:
    """Say how long one of the steps or iterations took, and how long those that are left take at that speed."""
    if left:
        rest = f"about {_time(seconds * left)} for the {left:,} left at that speed"
        common.say(f"{what} {number} took {_time(seconds)}: {rest}{also}")


def _time(seconds: float) -> str:
    value, unit = (
        (seconds, "s") if seconds < 100 else (seconds / 60, "min") if seconds < 5400 else (seconds / 3600, "h")
    )
    return f"{value:.2g} {unit}" if value < 10 else f"{value:,.0f} {unit}"


def _size(size: int) -> str:
    unit, name = next(((unit, name) for unit, name in ((1e9, "GB"), (1e6, "MB")) if size >= unit), (1e3, "kB"))
    return f"{size / unit:,.1f} {name}"


def follow(training: Training) -> dict[str, Any]:
    """Run a training to its end, showing what is ahead, and of each iteration: success, tokens per second, groups
    without a signal. Returns what ``forecast`` does."""
    plan, total, name = training.plan, training.plan.iterations, training.plan.name
    work = {"iterations": total, "optimiser steps at most": total * plan.epochs * plan.minibatches}
    (trainer,) = training.trainers.values()
    ahead = forecast(trainer, work, samples=training.pushing is None, reference=training.ref)
    recent: list[float] = []
    began, timed = time.time(), False
    with common.progress() as bar:
        job = bar.add_task("training", total=total, note="")
        for done in training.run():
            recent = [*recent[-4:], done.success.estimate]
            beside = done.seconds.get("fit", 0.0) + done.seconds["wait"] if "wait" in done.seconds else 0.0
            rate = done.tokens / max(
                done.seconds.get("collect", 0.0) + beside, 1e-9
            )  # with a lag: beside the last step
            note = f"success {sum(recent) / len(recent):.0%}  {rate:,.0f} tok/s  no signal in {done.dead:.0%} of groups"
            if "length" in done.draft:
                note += f"  {done.draft['length']:.2f} tok/round"
            if "gain" in done.draft:
                note += f"  {done.draft['gain']:.2f} times the speed with drafts"
            if done.evaluation is not None:
                note += f"  eval {done.evaluation}"
            bar.update(job, completed=done.number + 1, note=note)
            if not timed and all(run.row.created >= began for run in done.groups.runs):  # none was in the store before
                timed = True
                also = ", evaluations not counted" if plan.eval_every else ""
                tell_pace("iteration", done.number + 1, sum(done.seconds.values()), total - done.number - 1, also)
            if bar.disable and ((done.number + 1) % EVERY == 0 or done.number + 1 == total):
                common.say(f"{name} {done.number + 1}/{total}  {note}")
    return ahead


def worst(store: Keeper, name: str, method: str) -> Run | None:
    """The run with the lowest value of ``method`` among the failures of the latest iteration that has any."""
    for iteration in sorted(store.metrics(name), reverse=True):
        runs = store.runs(f"name={name}/{iteration}/* return<0.5 has={method}")
        valued = [(low, run) for run in runs if (low := lowest(run, method)) is not None]
        if valued:
            return min(valued, key=lambda pair: pair[0])[1]
    return None


def lowest(run: Run, method: str) -> float | None:
    from clew.store.protocol import latest_last

    values = [a.value for a in latest_last(run.annotations(method, "call")) if a.value is not None]
    return min(values, default=None)


def held_out(training: Training) -> list[tuple[int, float, float, float]]:
    """The held-out curve: (iterations done, success, low, high), from the start to the last evaluation."""
    metrics, plan, out = training.store.metrics(training.plan.name), training.plan, []
    if "before" in metrics.get(0, {}):
        out.append((0, metrics[0]["before"], metrics[0]["before_low"], metrics[0]["before_high"]))
    for index, values in sorted(metrics.items()):
        due = plan.eval_every and ((index + 1) % plan.eval_every == 0 or index + 1 == plan.iterations)
        if due and "eval" in values:
            out.append((index + 1, values["eval"], values["eval_low"], values["eval_high"]))
    return out


def draw_curve(curve: Sequence[tuple[int, float, float, float]]) -> list[str]:
    """Lines of text: a point for each success on a scale from 0 to 1, its 95 % interval as a line."""
    lines = []
    for done, share, low, high in curve:
        marks = ["-" if round(low * WIDTH) <= i <= round(high * WIDTH) else " " for i in range(WIDTH + 1)]
        marks[round(share * WIDTH)] = "*"
        lines.append(f"  {done:>5} |{''.join(marks)}| {share:4.0%} [{low:.0%}, {high:.0%}]")
    return lines


def change(training: Training, curve: Sequence[tuple[int, float, float, float]]) -> str:
    """Whether the held-out tasks tell the last evaluation from the first: the sign test over the tasks that flipped.

    Both are the same tasks under the same seeds, so pairs of runs are compared (McNemar's exact test, 1947).
    """
    from clew.methods.compare.design import mcnemar

    if len(curve) < 2:
        return ""
    name, store = training.plan.name, training.store
    first, last = (
        {run.row.order: run for run in store.runs(f"name={name}.eval{at[0]}/*")} for at in (curve[0], curve[-1])
    )
    pairs = [(first[key].reward, last[key].reward) for key in first.keys() & last.keys()]
    judged = [(a > 0.5, b > 0.5) for a, b in pairs if a is not None and b is not None]
    won, lost = sum(b > a for a, b in judged), sum(a > b for a, b in judged)
    p = mcnemar(won, lost)
    told = f"of {len(judged)} held-out tasks {won} were won and {lost} lost since the start (sign test p {p:.2g})"
    if p > 0.05:
        return f"{told}: no difference that so many tasks can tell"
    return f"{told}: {'better' if won > lost else 'worse'}"


def write_page(training: Training, reports: Mapping[str, Report], run: Run | None, commands: Mapping[str, str]) -> Path:
    """The one-page report of a training beside its checkpoints."""
    from clew.view.report import page
    from clew.view.terminal import tree

    name, metrics = training.plan.name, training.store.metrics(training.plan.name)
    curve = [(step, values["success"]) for step, values in metrics.items()]
    curves = {"success of rollouts": curve}
    if points := held_out(training):
        curves["success on held-out tasks"] = [(done, share) for done, share, _, _ in points]
    silent = [(step, values.get("zero_variance", values.get("dead_groups", 0.0))) for step, values in metrics.items()]
    text = page(
        f"Clew: {name}",
        reports,
        {**curves, "zero-variance groups": silent},
        facts(metrics),
        str(tree(run)) if run is not None else "no run failed",
        commands,
    )
    assert training.folder is not None
    path = training.folder / "report.html"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def facts(metrics: Mapping[int, Mapping[str, float]]) -> dict[str, str]:
    """What a training cost, summed over its iterations."""

    def total(key: str) -> float:
        return sum(values.get(key, 0.0) for values in metrics.values())

    parts = {part: total(f"seconds/{part}") for part in ("collect", "credit", "rows", "fit", "draft")}
    parts = {part: seconds for part, seconds in parts.items() if seconds or part != "draft"}
    spent = sum(parts.values())
    out: dict[str, str] = {"iterations": str(len(metrics)), "tokens sampled": f"{total('tokens'):,.0f}"}
    if spent:
        shares = ", ".join(f"{part} {seconds / spent:.0%}" for part, seconds in parts.items())
        out |= {
            "tokens/s while collecting": f"{total('tokens') / parts['collect']:,.0f}",
            "time": f"{spent:.0f} s: {shares}",
        }
    drafted = [values for values in metrics.values() if "draft/length" in values]
    if drafted:
        names = ("draft/length", "draft/drafted", "draft/share")
        length, used, share = (sum(values[name] for values in drafted) / len(drafted) for name in names)
        out["drafts"] = (
            f"{length:.2f} tokens a round, {used:.0%} of rounds drafted, {share:.0%} of collecting, "
            f"in {len(drafted)} of {len(metrics)} iterations"
        )
        gains = [values["draft/gain"] for values in metrics.values() if "draft/gain" in values]
        if gains:
            out["speed of collecting with drafts, by that without"] = f"{gains[-1]:.2f}"
    mismatch: Any = max((values.get("step/mismatch", 0.0) for values in metrics.values()), default=0.0)
    out["sampler and trainer differ by at most"] = f"{mismatch:.1e} nats"
    return out
