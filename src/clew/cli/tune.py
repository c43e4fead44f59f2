"""clew tune: train local weights on stored runs, a file, or made-up plans, without sampling new runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from clew.cli.shared import common, data_options, option, run_options, trainer_options, training_report
from clew.cli.shared.next_lines import command_line
from clew.cli.shared.ranks import rank
from clew.cli.shared.trainer_options import OF_LORA, OF_OPTIMISER
from clew.core.errors import BadInput

if TYPE_CHECKING:
    from clew.core.records import LossRow
    from clew.exchange.dataset.tasks import Dataset
    from clew.fit.sharding.ranks import Ranks
    from clew.fit.trainer import StepReport, Trainer
    from clew.models.local import Local
    from clew.store import Keeper, Run
    from clew.train.recipes import Offline

LOSS_HELP = """cliff-dpo: pairs of single tokens from `clew audit cliffs --pairs`. dpo: runs of one group that succeeded
against runs that failed, or what people prefer (--by-labels). sft: what the model said in RUNS, all of it imitated."""
LABELS_HELP = "dpo: pair runs of a task, and replies to one prompt, by people's labels (`clew label`)."
LR_HELP = "Learning rate of AdamW.  [default: what suits the model's size]"
BY_HELP = "What counts as one in the loss.  [default: token; a pair for dpo]"
WARMUP_HELP = "Share of the steps in which the learning rate rises."
DATA_HELP = """Rows to learn from instead of RUNS: a file (JSONL, JSON, Parquet, CSV) or a folder that Hugging Face's
datasets saved."""
PLANS_HELP = """Imitate so many plans of the agent orchestrator, made up for the workers of --config: their form alone,
with workers at random, on questions of other kinds. With --data: on the questions of its rows."""
CONFIG_HELP = "arguments of the agent orchestrator, as JSON."
FIELDS = f"lr schedule warmup epochs batch beta weight_by seed {OF_OPTIMISER} {OF_LORA} checkpoint_every"


@click.command(short_help="Train local weights on stored runs or a file: DPO or imitation.")
@click.argument("runs", nargs=-1)
@option("--loss", "--recipe", "loss", choices="cliff-dpo dpo sft", required=True, help=LOSS_HELP)
@option("--name", required=True, help="Name of the training; the same line continues it where it stopped.")
@option("--model", default="household-sft", help="Name or folder of local weights.")
@option("--data", metavar="FILE", help=DATA_HELP)
@data_options.rows_options
@option("--plans", type=common.Amount(int, 1), help=PLANS_HELP)
@option("--config", default="{}", only_with="--plans", help=CONFIG_HELP)
@option("--epochs", default=1, help="Passes over the rows.")
@option("--batch", default=64, help="Rows in one optimiser step.")
@option(
    "--beta",
    default=0.1,
    only_with=("--loss dpo", "--loss cliff-dpo"),
    help="DPO's beta: how strongly the model is held to its start.",
)
@option("--lr", type=trainer_options.ABOVE, help=LR_HELP)
@option("--schedule", choices=trainer_options.SCHEDULES, default="cosine", help="How the learning rate falls.")
@option("--warmup", default=0.1, type=common.Amount(float, 0, 0.99), help=WARMUP_HELP)
@option("--weight-by", choices="run row token", help=BY_HELP)
@trainer_options.optimiser_options
@trainer_options.adapter_options
@option("--checkpoint-every", default=20, help="Steps between two checkpoints.")
@trainer_options.track_option
@rank.ranks_option
@option("--by-labels", is_flag=True, not_with="--plans", help=LABELS_HELP)
@common.verdicts_of(only_with="--by-labels")
@option(
    "--types",
    only_with="--loss cliff-dpo",
    help="only cliffs of these types, as in uncertain,sampled-off.  [default: all]",
)
@option("--params", default="", only_with="--loss cliff-dpo", help="only pairs whose parameter digest begins so.")
@option(
    "--compat-eos", is_flag=True, only_with="--loss cliff-dpo", help="count an end token after each pair, as published."
)
@option("--seed", default=0, help="Seed of the order of rows, and of new adapters.")
@common.output_options
def command(runs: tuple[str, ...], name: str, as_json: bool, store_path: str, **options: Any) -> None:
    """Train local weights on RUNS, by DPO on pairs made from them or by imitation; no new runs are collected.

    With --plans the plans of the agent orchestrator are shown, before `clew train --agent orchestrator`. With --data
    the rows of a file take the place of RUNS: replies to imitate (completion, or the column of answers), or
    pairs (chosen, rejected). Only the split train is learnt from. Each value is printed with where it came from. The
    reference of DPO are the weights that --model names. Checkpoints are folders of weights.

    \b
    clew tune world=sums --loss cliff-dpo --name steep --model FOLDER --lr 1e-4
    clew tune 'name=first/*' --loss dpo --name second --model FOLDER --epochs 3
    clew tune 'name=first/* return>0.5' --loss sft --name third --model FOLDER
    clew tune has=label --loss dpo --by-labels --name preferred --model FOLDER
    clew tune --data questions.jsonl --loss sft --name taught --model FOLDER --schedule linear --lora 8
    clew tune --data questions.jsonl --loss sft --name wide --model FOLDER --nproc 4
    clew tune --plans 256 --config '{"workers": ["a", "b"]}' --loss sft --name cold --model FOLDER
    """
    from clew.train.loop import default_folder
    from clew.train.offline import Passes, fit

    trainer_options.check_adapters(options)
    ranks = rank.begin(options["nproc"])
    if ranks is None or not ranks.leads:
        _follow(options, ranks)
        return
    store = common.open_store(store_path, create=bool(options["data"] or options["plans"]))
    chosen, data = _source(store, runs, options)
    model = rank.model(options["model"], ranks)
    rows = _learnt(chosen, data, model, options)
    recipe, sources = _settle(options, model)
    if not as_json:
        trainer_options.table(f"recipe {recipe.name}: {recipe.about}", common.pick(options, FIELDS), sources)
    if doubt := _doubt(options, model, recipe):
        common.say(f"warning: {doubt}")
    folder = default_folder(store.path, name)
    trainer = _trainer(options, model, ranks)
    passes = Passes(**common.pick(options, "epochs batch seed warmup schedule checkpoint_every"))
    total, counted = len(passes.steps(rows)), sum(int(row.weights[options["loss"]].sum()) for row in rows)
    tokens = passes.epochs * sum(len(row.ids) for row in rows)
    common.say(f"{len(rows)} rows, {counted} tokens with loss, {total} steps, {tokens:,} tokens")
    ahead = training_report.forecast(trainer, {"steps": total})
    if "beta" in recipe.settings:
        _reference(rows, model, options)
    steps = fit(trainer, rows, passes, folder, settings=_recorded(options))
    with run_options.interruptible("the same line again"), rank.telling():
        last = _stepped(steps, total, store, folder, {**options, "name": name})
        rank.release(trainer)
    checkpoint = folder / "checkpoint" if folder is not None else None
    if as_json:
        told = {"name": name, "checkpoint": checkpoint, "rows": len(rows), "loss tokens": counted, "last": last}
        fields = {field: {"value": options[field], "from": sources[field]} for field in FIELDS.split()}
        common.end_with_json(told | {"settings": {"recipe": recipe.name, "fields": fields}, "forecast": ahead})
    common.echo(f"{len(rows)} rows, {counted} tokens with loss\nweights {checkpoint}")
    lines = _next(chosen, data, checkpoint, {**options, "name": name})
    common.echo("\n".join(["\nNext:", *(f"  {line}" for line in lines)]) if lines else "")


def _stepped(
    steps: Iterator[tuple[int, int, StepReport]], total: int, store: Keeper, folder: Path | None, o: Mapping[str, Any]
) -> dict[str, float]:
    """Take the steps, keeping the metrics of each and showing how far they are; returns those of the last."""
    last: dict[str, float] = {}
    track = trainer_options.trackers(o, o["name"], folder)
    with common.bar("training", total) as move:
        for done, _, report in steps:
            if not last:
                training_report.tell_pace("step", done, report.seconds, total - done)
            last = report.metrics()
            store.put_metrics(o["name"], done, {f"step/{k}": v for k, v in last.items()})
            if track is not None:
                track.log(last, done)
            move(completed=done, note=f"loss {report.loss[o['loss']]:.4f}")
    return last


def _follow(options: Mapping[str, Any], ranks: Ranks | None) -> None:
    """All that a rank other than the first does; nothing in the process that started them."""
    if ranks is not None:
        with rank.telling():
            rank.follow(_trainer(options, rank.model(options["model"], ranks), ranks))


def _reference(rows: Sequence[LossRow], model: Local, options: Mapping[str, Any]) -> None:
    """Give the rows DPO's reference, from the weights as they are named: a checkpoint is loaded after it, and new
    adapters add nothing yet."""
    from clew.train.rows import reference

    begin = model if options["adapter"] is None else trainer_options.frozen(options["model"], options["adapter"])
    reference(rows, begin)


def _trainer(options: Mapping[str, Any], model: Local, ranks: Ranks) -> Trainer:
    """The trainer of a rank; of several ranks the first hands on the settings, some of which it has chosen."""
    from clew.fit.sharding.leading import kind
    from clew.train import recipes

    o = ranks.told(dict(options))
    losses = recipes.offline(o["loss"]).losses(beta=o["beta"])
    how = {"weight_by": o["weight_by"], **trainer_options.trainer_settings(o)}
    return kind(ranks)(model, o["lr"], losses, ranks=ranks, **how)


def _source(store: Keeper, runs: Sequence[str], options: dict[str, Any]) -> tuple[list[Run], Dataset | None]:
    """What is learnt from: the runs of the line, or the rows of a file.

    Raises:
        BadInput: both are named, or neither.
    """
    from clew.exchange.dataset import table, written

    if options["plans"]:
        if runs or options["loss"] != "sft":
            told = "runs are named beside plans" if runs else f"plans are no pairs for {options['loss']}"
            raise BadInput(told, remedy="Write --plans N --loss sft, and no RUNS.")
        return [], data_options.rows_of(options) if options["data"] else None
    if runs and (not options["data"] or trainer_options.source("data") == "file"):
        return common.some(store, runs), None
    if runs or not options["data"]:
        told = "runs and data are named" if runs else "neither runs nor data are named"
        raise BadInput(told, remedy="Name what is learnt from: RUNS of the store, or --data FILE.")
    if options["loss"] == "cliff-dpo" or options["by_labels"]:
        raise BadInput("rows of a file hold neither cliffs nor labels", remedy="Write --loss sft or dpo, or name RUNS.")
    if options["loss"] == "dpo" and not options["prompt"]:
        options["prompt"] = written.prompt_column(table.read(Path(options["data"])).columns)
    data = data_options.rows_of(options)
    common.say(data.about)
    return [], data


def _learnt(runs: Sequence[Run], data: Dataset | None, model: Local, options: Mapping[str, Any]) -> list[LossRow]:
    if options["plans"]:
        return _plans(data, model, options)
    return _rows(runs, model, options) if data is None else _written(data, model, options["loss"])


def _written(data: Dataset, model: Local, loss: str) -> list[LossRow]:
    from clew.exchange.dataset.written import preferences, replies
    from clew.train.text_rows import preference_rows, reply_rows

    if loss == "dpo":
        return preference_rows(preferences(data), model.renderer)
    return reply_rows((one[:2] for one in replies(data)), model.renderer)


def _plans(data: Dataset | None, model: Local, options: Mapping[str, Any]) -> list[LossRow]:
    from clew.harness.workflow.plan_demonstrations import demonstrations
    from clew.train.text_rows import reply_rows

    config = common.json_object(options["config"], "--config")
    how = common.pick({"parts": 5, "subset": False, **config}, "parts subset")
    questions = [row.prompt for row in data.rows()] if data is not None else ()
    shown = demonstrations(
        options["plans"], config.get("workers", ()), seed=options["seed"], questions=questions, **how
    )
    return reply_rows(shown, model.renderer)


def _settle(options: dict[str, Any], model: Local) -> tuple[Offline, dict[str, str]]:
    """The recipe, and where each field's value comes from; the learning rate is chosen where none is given."""
    from clew.train import rates, recipes

    recipe = recipes.offline(options["loss"])
    sources = {field: trainer_options.source(field) for field in FIELDS.split()}
    if options["lr"] is None:
        options["lr"] = recipe.rate(model, trainer_options.has_adapters(options))
        sources["lr"] = f"size of the model, {rates.size(model.module):,} weights"
    return recipe, sources


def _doubt(options: Mapping[str, Any], model: Local, recipe: Offline) -> str | None:
    from clew.train import rates

    return rates.warning(options["lr"], model.module, trainer_options.has_adapters(options), recipe.least)


def _recorded(options: Mapping[str, Any]) -> dict[str, Any]:
    """What a training records of its settings beside its passes; of later options only what is not their default."""
    settings = common.pick(options, "model loss beta lr lora")
    if options["plans"]:
        settings |= common.pick(options, "plans config")
    return settings | trainer_options.not_default(options, f"weight_by {OF_OPTIMISER} {OF_LORA}")


def _next(runs: Sequence[Run], data: Dataset | None, checkpoint: Path | None, options: Mapping[str, Any]) -> list[str]:
    """The lines that try the weights: where the runs were made, or on rows that were not learnt from."""
    if options["plans"]:
        given = data_options.given(options) if data is not None else {"data": "QUESTIONS.jsonl"}
        given |= {"reward": ("exact", data_options.PLAN)}
        given |= {"agent": "orchestrator", "config": options["config"], "model": checkpoint}
        return [command_line("train", name=f"{options['name']}-led", **given)]
    if data is not None:
        split = next(part for part in ("test", "eval", "train") if data.holds(part))
        asked = {**data_options.given(options), "split": split, "model": checkpoint}
        return [command_line("run", "answerer", **asked)]
    played = {(run.taskset, run.agent, run.row.config) for run in runs if run.taskset}
    how = [
        {"world": world, "agent": run_options.short_reference(agent), "config": config}
        for world, agent, config in sorted(played)
    ]
    return [command_line("eval", checkpoint, **one) for one in how]


def _rows(runs: Sequence[Run], model: Local, options: Mapping[str, Any]) -> list[LossRow]:
    """The pairs, or what is imitated, as rows.

    Raises:
        BadInput: these runs make no pairs.
    """
    from clew.store.labels import verdict_set
    from clew.train.pairs import labelled_pairs, outcome_pairs, pair_rows
    from clew.train.rows import sft_rows

    if options["by_labels"]:
        if options["loss"] != "dpo":
            raise BadInput(
                "labels make no pairs of single tokens", remedy="Write --loss dpo, or leave --by-labels out."
            )
        rows, pairs = labelled_pairs(runs, verdicts=verdict_set(options["verdicts"]))
        common.say(f"labels give {pairs}")
        return rows
    if options["loss"] == "sft":
        return sft_rows(runs, observation_weight=0.0)
    if options["loss"] == "dpo":
        rows = outcome_pairs(common.groups_of(runs))
        if not rows:
            told = "no group of these runs holds both success and failure"
            raise BadInput(told, remedy="Collect more runs of each task.")
        return rows
    kinds = tuple(options["types"].split(",")) if options["types"] else None
    eos = min(model.renderer.stop) if options["compat_eos"] else None
    return pair_rows(runs, params=options["params"], kinds=kinds, eos=eos)
