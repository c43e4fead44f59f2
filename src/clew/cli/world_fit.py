"""clew world fit: fit a model of a world to stored runs, as a folder that serves as a simulated world."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from clew.cli.shared import common, option, run_options, trainer_options
from clew.cli.shared.next_lines import command_line
from clew.core.errors import BadInput

if TYPE_CHECKING:
    from clew.methods.world_model.model_folder import ModelCard
    from clew.methods.world_model.observing.episodes import Episode
    from clew.methods.world_model.observing.observation_rows import Counts
    from clew.models.local import Local

SCRATCH = "scratch"
MODEL_HELP = """Folder of local weights to begin with, or scratch: a small word-level model that knows the words of RUNS
alone."""
OUT_HELP = "Folder of the model; the same line continues a fit that was stopped."
KEEP_HELP = """What is learnt: turn draws turns by the share of their class, token draws tokens, weight lets them weigh
so much, all learns every answer."""
THINK_HELP = "Learn to say what is true before answering; the world must give an account of its state."
WINDOW_HELP = "Turns before an action that the model is told; 0: all of them."
HOLD_HELP = "Share of the tasks that is measured by, not learnt from."
LR_HELP = "Learning rate of AdamW.  [default: what suits the model's size; 0.003 for scratch, with Muon]"
LORA_HELP = "Train LoRA adapters of this rank, which the folder holds merged; 0: all weights."
PIECES_HELP = "With scratch: say pieces of words, so that ids and numbers of new tasks can be said; rows are longer."
SIZE = {"width": 128, "layers": 4, "heads": 4}


@click.command("fit", short_help="Fit a model of a world to stored runs.")
@click.argument("runs", nargs=-1, required=True)
@option("--model", required=True, help=MODEL_HELP)
@option("-o", "--out", required=True, metavar="FOLDER", help=OUT_HELP)
@option("--keep", choices="turn token weight all", default="turn", help=KEEP_HELP)
@option("--think", is_flag=True, help=THINK_HELP)
@option("--window", default=0, type=common.Amount(int, 0), help=WINDOW_HELP)
@option("--hold", default=0.1, type=common.Amount(float, 0, 0.9), help=HOLD_HELP)
@option("--measure", default=20, type=common.Amount(int, 0), help="Held-out runs that the model is measured by.")
@option("--epochs", default=1, type=common.Amount(int, 1), help="Passes over the rows.")
@option("--batch", default=16, type=common.Amount(int, 1), help="Rows in one optimiser step.")
@option("--lr", type=trainer_options.ABOVE, help=LR_HELP)
@option("--lora", default=0, type=common.Amount(int, 0), help=LORA_HELP)
@option("--width", default=SIZE["width"], help="With scratch: width of the model.")
@option("--layers", default=SIZE["layers"], help="With scratch: blocks of the model.")
@option("--pieces", is_flag=True, help=PIECES_HELP)
@option("--context", default=1024, only_with="--model scratch", help="most tokens that the model reads.")
@option("--max-tokens", default=512, type=common.Amount(int, 1), help="Most tokens of an answer, when it is asked.")
@option("--checkpoint-every", default=20, help="Steps between two checkpoints.")
@option("--seed", default=0, help="Of what is held out, kept and drawn, the order of rows, and new weights.")
@common.output_options
def command(runs: tuple[str, ...], out: str, as_json: bool, store_path: str, **options: Any) -> None:
    """Fit a model to what a world answered in RUNS: next-observation training, one prediction for each turn.

    Runs of any world serve. Answers that mostly repeat their action are seldom learnt (--keep); which classes of turns
    there are, and how many are kept, is printed. Runs that cannot serve are counted by reason. The model is measured
    on runs of other tasks afterwards, and FOLDER then takes the world's place: simulated(folder='FOLDER').

    \b
    clew run demonstrator --model echo --world shell --config '{"world": "shell", "noise": 0.5}' --tasks 500
    clew world fit world=shell --model scratch --epochs 4 -o shell-model
    clew world fit 'world=desk' --model ./weights --lora 8 --window 12 -o desk-model
    """
    from clew.fit import checkpoint
    from clew.fit.adapters import quiet
    from clew.methods.world_model.observing.episodes import card_of, episodes_of, of_one_world
    from clew.methods.world_model.observing.observation_rows import observation_rows

    store = common.open_store(store_path)
    chosen = common.some(store, runs)
    read = episodes_of(chosen)
    _told(len(chosen), read.reasons(), read.foreign)
    episodes, held = _parted(of_one_world(read), options)
    asked = held[: options["measure"]]
    card = card_of(episodes, options["model"] != SCRATCH, **common.pick(options, "window max_tokens"))
    model = _model(episodes, options)
    how = (options["keep"], options["seed"], model.context)
    rows, counts = observation_rows(episodes, model.renderer, card, *how)
    if not as_json:
        _classes(counts)
    last = _fitted(model, rows, Path(out), options)
    measured = _measured(model, episodes, asked, card, as_json) if options["measure"] else {}
    with quiet():
        checkpoint.replace(out, lambda folder: _write(model, card, measured, folder))
    if as_json:
        told = {"folder": out, "rows": len(rows), "turns": dict(counts.turns), "kept": dict(counts.kept)}
        told |= {"tokens_with_loss": counts.weighing, "left_out": read.reasons(), "foreign_turns": read.foreign}
        common.end_with_json(told | {"last": last, "measured": measured})
    world = next((one.world for one in episodes if one.world), "")
    common.echo(f"model of {world or 'the world'}: {out}")
    if world:
        common.echo(f"Next: {command_line('world eval', out, against=world)}")


def _told(chosen: int, left_out: Mapping[str, int], foreign: int) -> None:
    """Say what of the runs cannot serve."""
    if left_out:
        reasons = ", ".join(f"{n} {why}" for why, n in left_out.items())
        common.say(f"{sum(left_out.values())} of {chosen} runs are left out: {reasons}")
    if foreign:
        common.say(f"{foreign} turns call a tool that the world does not declare: they are told and not learnt")


def _parted(episodes: list[Episode], options: Mapping[str, Any]) -> tuple[list[Episode], list[Episode]]:
    """The episodes to learn from, with states where the model is to think, and those to measure by.

    Raises:
        BadInput: a model that is to think would have nothing to think.
    """
    from clew.methods.world_model.observing.episodes import held_out, with_states

    learnt, held = held_out(episodes, options["hold"], options["seed"])
    if options["think"]:
        thought = [made for one in learnt if (made := with_states(one)) is not None]
        if not thought:
            remedy = "Leave --think out; shell, records and finder give one."
            world = episodes[0].world.partition("(")[0]
            raise BadInput(f"the world {world} gives no account of its state", remedy=remedy)
        if len(thought) < len(learnt):
            common.say(f"{len(learnt) - len(thought)} runs give no account of their states, and are left out")
        learnt = thought
    return learnt, held


def _model(episodes: list[Episode], options: Mapping[str, Any]) -> Local:
    from clew.methods.world_model.observing.observation_rows import vocabulary_of
    from clew.models.local.model import small
    from clew.models.rendering import pieces_of

    if options["model"] != SCRATCH:
        return trainer_options.trainable(options["model"])
    heads, pieces = SIZE["heads"], options["pieces"]
    sizes = (options["width"], options["layers"], heads, heads // 2, options["context"], options["seed"])
    words = vocabulary_of(episodes, cut=pieces_of if pieces else str.split)
    return small(words, *sizes, steady=True, pieces=pieces)


def _classes(counts: Counts) -> None:
    from clew.methods.world_model.observing.masking import KEPT

    rows = [(kind, n, counts.kept[kind]) for kind in KEPT if (n := counts.turns[kind])]
    common.print_table(("class of turn", "turns", "with loss"), rows)
    common.echo(f"{counts.weighing:,.0f} of {counts.tokens:,} tokens of answers carry the loss")


def _fitted(model: Local, rows: list[Any], out: Path, options: Mapping[str, Any]) -> dict[str, float]:
    """Train, and go on where the same line was stopped; the last step's numbers."""
    from clew.fit.trainer import Trainer
    from clew.train import recipes
    from clew.train.offline import Passes, fit

    fresh = options["model"] == SCRATCH
    recipe = recipes.offline("sft")
    lr = options["lr"] or (3e-3 if fresh else recipe.rate(model, bool(options["lora"])))
    lora = {"r": options["lora"]} if options["lora"] else None
    settings: dict[str, Any] = {"lora": lora, "seed": options["seed"] if lora else None}
    trainer = Trainer(model, lr, recipe.losses(), optimizer="muon" if fresh else "adamw", **settings)
    passes = Passes(**common.pick(options, "epochs batch seed checkpoint_every"))
    total, tokens = len(passes.steps(rows)), passes.epochs * sum(len(row.ids) for row in rows)
    common.say(f"{len(rows)} rows, {total} steps, {tokens:,} tokens, learning rate {lr:g}")
    recorded = common.pick(options, "model keep think window lora width layers") | {"lr": lr}
    recorded |= {"pieces": True} if options["pieces"] else {}
    last: dict[str, float] = {}
    place = out.absolute().with_name(f"{out.absolute().name}.training")
    with run_options.interruptible("the same line again"), common.bar("training", total) as move:
        for done, _, report in fit(trainer, rows, passes, place, settings=recorded):
            last = report.metrics()
            move(completed=done, note=f"loss {report.loss['sft']:.4f}")
    return last


def _measured(model: Local, learnt: list[Episode], held: list[Episode], card: ModelCard, quiet: bool) -> dict[str, Any]:
    """What the model says of runs of other tasks, printed beside a table's; the numbers that the folder keeps."""
    import asyncio

    from clew.cli.shared.world_figures import beside_table, fidelity_rows, figures
    from clew.methods.world_model.observing.commonest import commonest
    from clew.methods.world_model.observing.open_loop import outcomes

    if not held:
        common.say("no task is held out: the model is not measured")
        return {}
    total = sum(len(one.turns) for one in held)
    with common.bar("measuring", total) as move:
        found = asyncio.run(outcomes(model, held, card, lambda done: move(completed=done)))
    if not quiet:
        common.echo(f"held out: {len(held)} runs of other tasks, {total} answers, each after the true ones before it")
        common.print_table(*fidelity_rows(found))
    table = beside_table(found, commonest(learnt, held))
    if not quiet:
        for claim, one in table.items():
            common.echo(f"{claim}: {one.estimate:.2f} [{one.low:.2f}, {one.high:.2f}] exact")
    return figures(found) | {"table": {claim: run_options.numbers(one) for claim, one in table.items()}}


def _write(model: Local, card: ModelCard, measured: Mapping[str, Any], folder: Path) -> None:
    from dataclasses import replace

    model.save(folder)
    replace(card, measured=measured).write(folder)
