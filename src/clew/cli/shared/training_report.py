"""What `clew train` and `clew quickstart` show of a training: live progress, and a report page at its end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clew.cli.shared import common

if TYPE_CHECKING:
    from clew.core.records import Report
    from clew.store import Keeper, Run
    from clew.train.loop import Training

WIDTH = 50  # columns of the drawn curve
EVERY = 5  # iterations between two lines where there is no terminal to draw a bar on


def follow(training: Training) -> None:
    """Run a training to its end, showing of each iteration: success, tokens per second, groups without a signal."""
    total, name = training.plan.iterations, training.plan.name
    recent: list[float] = []
    with common.progress() as bar:
        job = bar.add_task("training", total=total, note="")
        for done in training.run():
            recent = [*recent[-4:], done.success.estimate]
            ahead = done.seconds.get("fit", 0.0) + done.seconds["wait"] if "wait" in done.seconds else 0.0
            rate = done.tokens / max(done.seconds.get("collect", 0.0) + ahead, 1e-9)  # with a lag: beside the last step
            note = f"success {sum(recent) / len(recent):.0%}  {rate:,.0f} tok/s  no signal in {done.dead:.0%} of groups"
            if "length" in done.draft:
                note += f"  {done.draft['length']:.2f} tok/round"
            if "gain" in done.draft:
                note += f"  {done.draft['gain']:.2f} times the speed with drafts"
            if done.evaluation is not None:
                note += f"  eval {done.evaluation}"
            bar.update(job, completed=done.number + 1, note=note)
            if bar.disable and ((done.number + 1) % EVERY == 0 or done.number + 1 == total):
                common.say(f"{name} {done.number + 1}/{total}  {note}")


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
    from clew.audit.design import mcnemar

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
