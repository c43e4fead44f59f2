"""What `clew train --loss` does: training on rows made from stored runs, without sampling."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from clew.cli.shared import common, run_options
from clew.core.errors import BadInput

if TYPE_CHECKING:
    from clew.core.records import LossRow

LOSSES = ("cliff-dpo", "dpo")


def offline_options(function: Any) -> Any:
    for option in (
        click.option("--compat-eos", is_flag=True, help="cliff-dpo: count an end token after each, as published."),
        click.option("--params", default="", help="cliff-dpo: pairs of this parameter digest (its first letters)."),
        click.option("--types", help="cliff-dpo: of cliffs, such as uncertain,sampled-off.  [default: all]"),
        click.option("--beta", default=0.1, show_default=True, help="Of the preference loss."),
        click.option("--batch", default=64, show_default=True, help="Rows of a step, with --loss."),
        click.option("--epochs", default=1, show_default=True, help="Passes over the rows, with --loss."),
        click.option("--data", multiple=True, metavar="RUNS", help="Runs or a query to learn from; may be repeated."),
        click.option("--loss", type=click.Choice(LOSSES), help="Learn from stored runs instead of new ones: from the "
                     "pairs of `clew cliffs --pairs`, or (dpo) from each group's runs that succeeded and failed."),
    ):  # fmt: skip
        function = option(function)
    return function


def train(name: str, store_path: str, as_json: bool, options: Mapping[str, Any]) -> None:
    """Fit preference pairs; checkpoints and exact resume as in any training.

    Raises:
        BadInput: no --data, or runs without pairs.
    """
    from functools import partial

    from clew.fit.trainer import Trainer
    from clew.train.loop import default_folder
    from clew.train.losses import dpo
    from clew.train.offline import Passes, fit
    from clew.train.rows import reference

    if not options["data"]:
        raise BadInput("--loss needs --data", remedy="Name runs or a query: --data world=sums.")
    store = common.open_store(store_path)
    model = run_options.trainable(options["model"])
    rows = _rows(common.some(store, options["data"]), model, options)
    reference(rows, model)  # from the weights as they are named; a checkpoint is loaded after it
    lora = {"r": options["lora"]} if options["lora"] else None
    trainer = Trainer(model, options["lr"], {options["loss"]: partial(dpo, beta=options["beta"])}, lora=lora)
    passes = Passes(epochs=options["epochs"], batch=options["batch"], seed=options["seed"])
    folder = default_folder(store.path, name)
    total, counted = len(passes.steps(rows)), sum(int(row.weights[options["loss"]].sum()) for row in rows)
    length = sum(len(row.ids) for row in rows)
    click.echo(
        f"{len(rows)} rows, {counted} tokens with loss, {total} steps, {passes.epochs * length:,} tokens", err=True
    )
    last: dict[str, float] = {}
    with run_options.interruptible("the same line again"), common.progress() as bar:
        job = bar.add_task("training", total=total, note="")
        settings = {k: options[k] for k in ("model", "loss", "beta", "lr", "lora")}
        for done, _, report in fit(trainer, rows, passes, folder, settings=settings):
            last = report.metrics()
            store.put_metrics(name, done, {f"step/{k}": v for k, v in last.items()})
            bar.update(job, completed=done, note=f"loss {report.loss[options['loss']]:.4f}")
    checkpoint = folder / "checkpoint" if folder is not None else None
    _told(name, checkpoint, len(rows), counted, last, as_json)


def _told(
    name: str, checkpoint: Path | None, rows: int, counted: int, last: Mapping[str, float], as_json: bool
) -> None:
    if as_json:
        told = {"name": name, "checkpoint": checkpoint, "rows": rows, "loss tokens": counted, "last": last}
        common.print_json(told)
        return
    click.echo(f"{rows} rows, {counted} tokens with loss\nweights {checkpoint}\n\nNext:\n  clew eval {checkpoint}")


def _rows(runs: list[Any], model: Any, options: Mapping[str, Any]) -> list[LossRow]:
    from clew.train.pairs import outcome_pairs, pair_rows

    if options["loss"] == "dpo":
        rows = outcome_pairs(common.groups_of(runs))
        if not rows:
            raise BadInput(
                "no group of these runs holds both success and failure", remedy="Collect more runs of each task."
            )
        return rows
    kinds = tuple(options["types"].split(",")) if options["types"] else None
    eos = min(model.renderer.stop) if options["compat_eos"] else None
    return pair_rows(runs, params=options["params"], kinds=kinds, eos=eos)
