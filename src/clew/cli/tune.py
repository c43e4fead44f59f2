"""clew tune: train local weights on preference pairs made from stored runs, without sampling new ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from clew.cli.shared import common, option, run_options
from clew.cli.shared.next_lines import command_line
from clew.core.errors import BadInput

if TYPE_CHECKING:
    from clew.core.records import LossRow
    from clew.models.local import Local
    from clew.store import Run

LOSS_HELP = """cliff-dpo: pairs of single tokens from `clew audit cliffs --pairs`. dpo: runs of one group that succeeded
against runs that failed, or what people prefer (--by-labels)."""
LABELS_HELP = "dpo: pair runs of a task, and replies to one prompt, by people's labels (`clew label`)."


@click.command(short_help="Train local weights on preference pairs of stored runs.")
@click.argument("runs", nargs=-1, required=True)
@option("--loss", choices="cliff-dpo dpo", required=True, help=LOSS_HELP)
@option("--name", required=True, help="Name of the training; the same line continues it where it stopped.")
@option("--model", default="household-sft", help="Name or folder of local weights.")
@option("--epochs", default=1, help="Passes over the rows.")
@option("--batch", default=64, help="Rows in one optimiser step.")
@option("--beta", default=0.1, help="DPO's beta: how strongly the model is held to its start.")
@option("--lr", default=7e-4, type=common.Amount(float, 0, above=True), help="Learning rate of AdamW.")
@option("--lora", type=int, help="Train only LoRA adapters of this rank.")
@option("--by-labels", is_flag=True, help=LABELS_HELP)
@common.verdicts_option
@option("--types", help="cliff-dpo: only cliffs of these types, as in uncertain,sampled-off.  [default: all]")
@option("--params", default="", help="cliff-dpo: only pairs whose parameter digest begins so.")
@option("--compat-eos", is_flag=True, help="cliff-dpo: count an end token after each pair, as published.")
@option("--seed", default=0, help="Seed of the order of rows.")
@common.output_options
def command(runs: tuple[str, ...], name: str, as_json: bool, store_path: str, **options: Any) -> None:
    """Train local weights by DPO on pairs made from RUNS; no new runs are collected.

    The reference of the loss are the weights that --model names. Checkpoints are folders of weights.

    \b
    clew tune world=sums --loss cliff-dpo --name steep --model FOLDER --lr 1e-4
    clew tune 'name=first/*' --loss dpo --name second --model FOLDER --epochs 3
    clew tune has=label --loss dpo --by-labels --name preferred --model FOLDER
    """
    from functools import partial

    from clew.fit.trainer import Trainer
    from clew.train.loop import default_folder
    from clew.train.losses import dpo
    from clew.train.offline import Passes, fit
    from clew.train.rows import reference

    store, loss = common.open_store(store_path), options["loss"]
    model = run_options.trainable(options["model"])
    chosen = common.some(store, runs)
    rows = _rows(chosen, model, options)
    reference(rows, model)  # from the weights as they are named; a checkpoint is loaded after it
    lora = {"r": options["lora"]} if options["lora"] else None
    trainer = Trainer(model, options["lr"], {loss: partial(dpo, beta=options["beta"])}, lora=lora)
    passes = Passes(**common.pick(options, "epochs batch seed"))
    folder = default_folder(store.path, name)
    total, counted = len(passes.steps(rows)), sum(int(row.weights[loss].sum()) for row in rows)
    tokens = passes.epochs * sum(len(row.ids) for row in rows)
    common.say(f"{len(rows)} rows, {counted} tokens with loss, {total} steps, {tokens:,} tokens")
    last: dict[str, float] = {}
    with run_options.interruptible("the same line again"), common.bar("training", total) as move:
        settings = common.pick(options, "model loss beta lr lora")
        for done, _, report in fit(trainer, rows, passes, folder, settings=settings):
            last = report.metrics()
            store.put_metrics(name, done, {f"step/{k}": v for k, v in last.items()})
            move(completed=done, note=f"loss {report.loss[loss]:.4f}")
    checkpoint = folder / "checkpoint" if folder is not None else None
    if as_json:
        told = {"name": name, "checkpoint": checkpoint, "rows": len(rows), "loss tokens": counted, "last": last}
        common.end_with_json(told)
    common.echo(f"{len(rows)} rows, {counted} tokens with loss\nweights {checkpoint}")
    played = {(run.taskset, run.agent, run.row.config) for run in chosen if run.taskset}
    if played:
        common.echo("\nNext:")
    for world, agent, config in sorted(played):
        how = {"world": world, "agent": run_options.short_reference(agent), "config": config}
        common.echo(f"  {command_line('eval', checkpoint, **how)}")


def _rows(runs: Sequence[Run], model: Local, options: Mapping[str, Any]) -> list[LossRow]:
    """The pairs as rows.

    Raises:
        BadInput: these runs make no pairs.
    """
    from clew.store.labels import verdict_set
    from clew.train.pairs import labelled_pairs, outcome_pairs, pair_rows

    if options["by_labels"]:
        if options["loss"] != "dpo":
            raise BadInput(
                "labels make no pairs of single tokens", remedy="Write --loss dpo, or leave --by-labels out."
            )
        rows, pairs = labelled_pairs(runs, verdicts=verdict_set(options["verdicts"]))
        common.say(f"labels give {pairs}")
        return rows
    if options["loss"] == "dpo":
        rows = outcome_pairs(common.groups_of(runs))
        if not rows:
            told = "no group of these runs holds both success and failure"
            raise BadInput(told, remedy="Collect more runs of each task.")
        return rows
    kinds = tuple(options["types"].split(",")) if options["types"] else None
    eos = min(model.renderer.stop) if options["compat_eos"] else None
    return pair_rows(runs, params=options["params"], kinds=kinds, eos=eos)
