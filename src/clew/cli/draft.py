"""clew draft: train a drafter for a model, and calibrate its confidence."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from clew.cli.shared import common, run_options
from clew.core.errors import BadInput

if TYPE_CHECKING:
    from clew.train.drafters.target_text import Text

KINDS = ("dspark", "dflash", "eagle3", "independent")


HELP = """A drafter proposes tokens that a model then verifies in one pass: the same distribution, sooner.

\b
clew draft train MODEL --data prompts.txt
clew draft train MODEL --data 'world=household' --kind dflash --block 15
clew draft calibrate MODEL DRAFTER --data prompts.txt
clew serve MODEL --draft DRAFTER
"""
command = click.Group("draft", help=HELP, short_help="Train a drafter that makes a model answer faster.")


def text_options(function: Any) -> Any:
    for option in (
        click.option("--seed", default=0, show_default=True, help="Fixes text, weights and order."),
        click.option("--samples", default=1, show_default=True, help="Texts behind each prompt."),
        click.option("--tokens", default=128, show_default=True, help="Of each text at most."),
        click.option("--data", multiple=True, required=True, metavar="QUERY|FILES", help="Stored runs, or files of "
                     "prompts: .jsonl with \"prompt\" or \"messages\", else one a line. May be repeated."),
    ):  # fmt: skip
        function = option(function)
    return function


@command.command(short_help="Train a drafter on a model's own text.")
@click.argument("model")
@text_options
@click.option("--temperature", default=1.0, show_default=True, help="At which the model writes its text.")
@click.option("--kind", type=click.Choice(KINDS), default="dspark", show_default=True, help="Of drafter.")
@click.option("--block", default=7, show_default=True, help="Tokens proposed at most.")
@click.option("--layers", type=int, help="Of the drafter.  [default: 2; eagle3 and independent 1]")
@click.option("--rank", type=int, help="Of the sequential head; 0 for none.  [default: a quarter of the vocabulary, "
              "at most 256]")  # fmt: skip
@click.option("--head", type=click.Choice(("vanilla", "gated", "rnn")), default="vanilla", show_default=True,
              help="The sequential head.")  # fmt: skip
@click.option("--steps", default=2000, show_default=True)
@click.option("--batch", default=8, show_default=True, help="Texts of a step.")
@click.option("--lr", default=1e-3, show_default=True)
@click.option("--mask", type=int, help="A token id that text never holds.  [default: the tokenizer's, or a spare one]")
@click.option("--out", help="Folder of the drafter.  [default: drafters/KIND-BLOCK beside the model]")
@common.json_option
@common.store_option
def train(model: str, as_json: bool, store_path: str, **options: Any) -> None:
    """Train a drafter for MODEL and save it as `speculators` and vLLM lay it out.

    Where --data names prompts, MODEL first writes its own text behind them; where it names runs, what the model sampled
    there is its text. All but a tenth is learnt from; on the rest a table says how much is accepted, by position and by
    domain (the file, its "domain" field, or the taskset). Killed at any moment, the same line goes on.

    \b
    clew draft train ./qwen --data prompts.jsonl --samples 4
    clew draft train ./qwen --data code.txt --data chat.txt --kind eagle3 --steps 5000
    """
    from clew.models.drafters import folder as folders
    from clew.train.drafters import drafter_job
    from clew.train.drafters.drafter_losses import Schooling

    loaded = run_options.trainable(model)
    out = Path(options["out"]) if options["out"] else beside(model, f"{options['kind']}-{options['block']}")
    if out.exists():
        raise BadInput(f"{out} exists already", remedy="Name another folder with --out, or delete it.")
    asked = {k: options[k] for k in ("layers", "rank") if options[k] is not None}
    if options["kind"] == "dspark":
        asked["head"] = options["head"]
    elif asked.get("rank") or options["head"] != "vanilla":
        raise BadInput(f"{options['kind']} has no sequential head", remedy="Leave out --rank and --head.")
    design = folders.design_for(
        loaded.module, kind=options["kind"], block=options["block"],
        mask=drafter_job.mask_of(loaded) if options["mask"] is None else options["mask"], **asked,
    )  # fmt: skip
    how = Schooling(steps=options["steps"], batch=options["batch"], lr=options["lr"], seed=options["seed"])
    if options["kind"] in drafter_job.CE_ONLY:
        how = replace(how, ce=1.0, tv=0.0, confidence=0.0)
    home = out.with_name(out.name + ".making")
    home.mkdir(parents=True, exist_ok=True)
    with run_options.interruptible("the same line again"), common.progress() as bar:
        found = texts(loaded, options, home, store_path, bar)
        job = bar.add_task("target's states", total=len(found), note="")
        learn, held = drafter_job.tapped(loaded, found, design.taps, home, lambda n: bar.advance(job, n))
        step, module = _learn(loaded, design, how, learn, home, bar)
    table = drafter_job.lengths(module, held)
    drafter_job.put(loaded, module, how, out, step)
    told = {"drafter": out, "steps": step.step, "cpu_s": round(step.cpu_s, 1), "texts": len(learn), "held": len(held)}
    if as_json:
        common.print_json({**told, "accepted": table})
        return
    click.echo(f"{len(learn)} texts, {step.step} steps, {step.cpu_s / 60:.1f} CPU-minutes -> {out}\n")
    _lengths(table, options["block"])
    click.echo(f"\nNext:\n  clew draft calibrate {model} {out} --data ...\n  clew serve {model} --draft {out}")


def _learn(loaded: Any, design: Any, how: Any, data: Any, home: Path, bar: Any) -> tuple[Any, Any]:
    """Train behind a bar, the cost told once three steps are done."""
    from clew.train.drafters import drafter_job

    job, began, first = bar.add_task("training", total=how.steps, note=""), time.process_time(), 0
    last: tuple[Any, Any] | None = None
    for last in drafter_job.learn(loaded, design, how, data, home):
        step = last[0]
        first = first or step.step
        if step.step - first == 2:
            left = (time.process_time() - began) / 3 * (how.steps - step.step)
            click.echo(f"{how.steps - step.step} steps to go, about {left / 60:.1f} CPU-minutes", err=True)
        note = " ".join(f"{k} {v:.3f}" for k, v in step.loss.items())
        bar.update(job, completed=step.step, note=note)
    return last or drafter_job.learnt(loaded, design, how, home)


@command.command(short_help="Calibrate a drafter's confidence for one temperature.")
@click.argument("model")
@click.argument("drafter")
@text_options
@click.option("--temperature", default=1.0, show_default=True, help="Of sampling, for which the table holds.")
@click.option("--rounds", default=20_000, show_default=True, help="Drafted and verified whole, to fit and to judge.")
@common.json_option
@common.store_option
def calibrate(model: str, drafter: str, as_json: bool, store_path: str, **options: Any) -> None:
    """Fit one temperature for each position of DRAFTER's block, so that its confidence is a chance: what a server needs
    to decide how much to verify. The table is kept beside the drafter with what it was fitted for; elsewhere it is
    refused.

    Give prompts the drafter was not trained on.

    \b
    clew draft calibrate ./qwen ./qwen/drafters/dspark-7 --data fresh.jsonl
    clew draft calibrate ./qwen ./qwen/drafters/dspark-7 --data fresh.jsonl --temperature 0.7
    """
    from clew.models.drafters import folder as folders
    from clew.train.drafters import drafter_job, drafter_losses

    if options["temperature"] <= 0:
        raise BadInput("at temperature 0 there are no chances", remedy="Give a temperature above 0.")
    loaded = run_options.trainable(model)
    known = folders.about(drafter)
    folders.refuse(drafter, known["target"], folders.target_of(loaded.module, loaded.tokenizer, model))
    home = Path(drafter).with_name(Path(drafter).name + f".calibrating-{options['temperature']:g}")
    home.mkdir(parents=True, exist_ok=True)
    with run_options.interruptible("the same line again"), common.progress() as bar:
        found = texts(loaded, options, home, store_path, bar)
        taps, ids = known["design"]["taps"], [t.ids[: loaded.context] for t in found]
        job = bar.add_task("target's states", total=len(found), note="")
        data = drafter_losses.tap(
            loaded.module, ids, [t.first for t in found], taps, home / "taps", [t.domain for t in found],
            advance=lambda n: bar.advance(job, n),
        )  # fmt: skip
        job = bar.add_task("rounds", total=len(data), note="")
        table, told = drafter_job.calibrate(
            loaded, Path(drafter), data, options["temperature"], options["rounds"], lambda n: bar.advance(job, n)
        )
    if as_json:
        common.print_json({"drafter": drafter, "table": asdict(table), **told})
        return
    rows = [[k + 1, t, told["raw"][k], told["scaled"][k], told["floor"][k]] for k, t in enumerate(table.temperatures)]
    common.print_table(["at least", "temperature", "error before", "error after", "noise floor"], rows)
    click.echo(f"\nfitted on {table.rounds} rounds at temperature {table.temperature:g} -> {drafter}")


def texts(loaded: Any, options: Mapping[str, Any], home: Path, store_path: str, bar: Any) -> list[Text]:
    """The target's own text that --data names: of stored runs, or written now behind prompts of files."""
    from clew.train.drafters import target_text

    files = [Path(word) for word in options["data"] if Path(word).is_file()]
    words = [word for word in options["data"] if not Path(word).is_file()]
    for word in words:
        if word.endswith((".txt", ".jsonl", ".md")):
            raise BadInput(f"there is no file {word}", remedy="Give files of prompts, or a query of stored runs.")
    found: list[Text] = []
    if words:
        found += target_text.of_runs(common.some(common.open_store(store_path), words))
    if files:
        given = target_text.prompts(files, loaded.renderer)
        total = len(given) * options["samples"]
        click.echo(f"{len(given)} prompts, {total} texts of {options['tokens']} tokens at most to write", err=True)
        job = bar.add_task("the model writes", total=total, note="")
        found += target_text.write(
            loaded, given, options["tokens"], home / f"own-{_named(given, options)}.jsonl", samples=options["samples"],
            temperature=options["temperature"], seed=options["seed"], advance=lambda n: bar.advance(job, n),
        )  # fmt: skip
    return found


def _named(given: Sequence[Any], options: Mapping[str, Any]) -> str:
    from clew.core.keys import value_digest

    asked = [options[k] for k in ("tokens", "samples", "temperature", "seed")]
    return value_digest([[list(p.ids) for p in given], asked]).hex()[:12]


def beside(model: str, name: str) -> Path:
    """A folder for what belongs to a model: in its own where it is one."""
    home = Path(model)
    return (home if home.is_dir() else Path(".clew")) / "drafters" / name


def _lengths(table: Mapping[str, Mapping[str, Any]], block: int) -> None:
    head = ["text held back", "texts", "accepted length", *(f"token {k}" for k in range(1, block + 1))]
    common.print_table(head, [[name, x["texts"], x["length"], *x["accepted"]] for name, x in table.items()])


__all__ = ["command"]
