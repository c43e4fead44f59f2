"""clew draft: train a drafter for speculative decoding, and calibrate its confidence."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from clew.cli.shared import common, option, run_options, trainer_options
from clew.cli.shared.next_lines import command_line
from clew.core.errors import BadInput

if TYPE_CHECKING:
    from rich.progress import Progress

    from clew.models.drafters.layers import Design, Trained
    from clew.models.local import Local
    from clew.train.drafters.drafter_losses import Schooling, Step, Taps
    from clew.train.drafters.target_text import Text

TEXT = ("samples", "temperature", "seed")  # with --tokens: what decides the text that a model writes
HELP = """Train a drafter for speculative decoding: it proposes tokens that the model verifies in one pass. The output
distribution stays the same, and replies come sooner.

\b
clew draft train MODEL --data prompts.txt
clew draft train MODEL --data 'world=household' --kind dflash --block 15
clew draft calibrate MODEL DRAFTER --data prompts.txt
clew serve MODEL --draft DRAFTER
"""
command = click.Group("draft", help=HELP, short_help="Train a drafter for speculative decoding.")
DATA_HELP = """Query of stored runs, or files of prompts: .jsonl with "prompt" or "messages", else one per line. May be
repeated."""
RANK_HELP = "Rank of the sequential head; 0: none.  [default: a quarter of the vocabulary, at most 256]"
MASK_HELP = "A token id that text never holds.  [default: the tokenizer's, or a spare one]"
text_options = common.options(
    option("--data", multiple=True, required=True, metavar="QUERY|FILES", help=DATA_HELP),
    option("--tokens", default=128, help="Most tokens in each text."),
    option("--samples", default=1, help="Texts to write for each prompt."),
    option("--seed", default=0, help="Seed of text, weights and order."),
)


@command.command(short_help="Train a drafter on a model's own text.")
@click.argument("model")
@text_options
@option("--temperature", default=1.0, help="Temperature at which the model writes its text.")
@option("--kind", choices="dspark dflash eagle3 independent", default="dspark", help="Kind of drafter.")
@option("--block", default=7, help="Most tokens in one proposal.")
@option("--layers", type=int, help="Layers of the drafter.  [default: 2; eagle3 and independent 1]")
@option("--rank", type=common.Amount(int, 0), help=RANK_HELP)
@option("--head", choices="vanilla gated rnn", default="vanilla", help="Sequential head.")
@option("--steps", default=2000, help="Optimiser steps.")
@option("--batch", default=8, help="Texts in each step.")
@option("--lr", default=1e-3, type=common.Amount(float, 0, above=True), help="Learning rate.")
@option("--mask", type=common.Amount(int, 0), help=MASK_HELP)
@option("--out", help="Folder of the drafter.  [default: drafters/KIND-BLOCK beside the model]")
@common.output_options
def train(model: str, as_json: bool, store_path: str, **options: Any) -> None:
    """Train a drafter for MODEL and save it in the layout of `speculators` and vLLM.

    For prompts in --data, MODEL first writes its own text; of runs in --data, the text that the model sampled there is
    used. A tenth of the texts is held back; a table says how many tokens are accepted on it, by position and by domain
    (the file, its "domain" field, or the taskset). After a kill, the same line continues.

    \b
    clew draft train ./qwen --data prompts.jsonl --samples 4
    clew draft train ./qwen --data code.txt --data chat.txt --kind eagle3 --steps 5000
    """
    from clew.models.drafters import folder as folders
    from clew.train.drafters import drafter_job
    from clew.train.drafters.drafter_losses import Schooling

    loaded = trainer_options.trainable(model)
    out = Path(options["out"]) if options["out"] else beside(model, f"{options['kind']}-{options['block']}")
    if out.exists():
        raise BadInput(f"{out} exists already", remedy="Name another folder with --out, or delete this one.")
    asked = {k: options[k] for k in ("layers", "rank") if options[k] is not None}
    if options["kind"] == "dspark":
        asked["head"] = options["head"]
    elif asked.get("rank") or options["head"] != "vanilla":
        raise BadInput(f"{options['kind']} has no sequential head", remedy="Leave out --rank and --head.")
    mask = drafter_job.mask_of(loaded) if options["mask"] is None else options["mask"]
    design = folders.design_for(loaded.module, kind=options["kind"], block=options["block"], mask=mask, **asked)
    how = Schooling(steps=options["steps"], batch=options["batch"], lr=options["lr"], seed=options["seed"])
    if options["kind"] in drafter_job.CE_ONLY:
        how = replace(how, ce=1.0, tv=0.0, confidence=0.0)
    home = out.with_name(out.name + ".making")
    home.mkdir(parents=True, exist_ok=True)
    with run_options.interruptible("the same line again"), common.progress() as bar:
        found = texts(loaded, options, home, store_path, bar)
        job = bar.add_task("target's states", total=len(found), note="")
        learn, held = drafter_job.tapped(loaded, found, design.taps, home, partial(bar.advance, job))
        step, module = _learn(loaded, design, how, learn, home, bar)
    table = drafter_job.lengths(module, held)
    drafter_job.put(loaded, module, how, out, step)
    told = {"drafter": out, "steps": step.step, "cpu_s": round(step.cpu_s, 1), "texts": len(learn), "held": len(held)}
    if as_json:
        common.end_with_json({**told, "accepted": table})
    common.echo(f"{len(learn)} texts, {step.step} steps, {step.cpu_s / 60:.1f} CPU-minutes -> {out}\n")
    head = ["text held back", "texts", "accepted length", *(f"token {k}" for k in range(1, options["block"] + 1))]
    common.print_table(head, [[name, x["texts"], x["length"], *x["accepted"]] for name, x in table.items()])
    calibrate = command_line("draft calibrate", model, out, data=options["data"])
    common.echo(f"\nNext:\n  {calibrate}\n  {command_line('serve', model, draft=out)}")


def _learn(
    loaded: Local, design: Design, how: Schooling, data: Taps, home: Path, bar: Progress
) -> tuple[Step, Trained]:
    """Train with a progress bar; the cost is printed once three steps are done."""
    from clew.train.drafters import drafter_job

    job, began, first = bar.add_task("training", total=how.steps, note=""), time.process_time(), 0
    last: tuple[Step, Trained] | None = None
    for last in drafter_job.learn(loaded, design, how, data, home):
        step = last[0]
        first = first or step.step
        if step.step - first == 2:
            left = (time.process_time() - began) / 3 * (how.steps - step.step)
            common.say(f"{how.steps - step.step} steps to go, about {left / 60:.1f} CPU-minutes")
        note = " ".join(f"{k} {v:.3f}" for k, v in step.loss.items())
        bar.update(job, completed=step.step, note=note)
    return last or drafter_job.learnt(loaded, design, how, home)


@command.command(short_help="Calibrate a drafter's confidence for one temperature.")
@click.argument("model")
@click.argument("drafter")
@text_options
@option("--temperature", default=1.0, help="Sampling temperature for which to calibrate.")
@option("--rounds", default=20_000, help="Rounds of drafting and verifying, to fit and to test on.")
@common.output_options
def calibrate(model: str, drafter: str, as_json: bool, store_path: str, **options: Any) -> None:
    """Fit one temperature for each position of DRAFTER's block, so that its confidence is an acceptance probability.

    A server uses the probabilities to decide how much of a draft to verify. The table is kept beside the drafter and is
    refused for another drafter, model or temperature. Give prompts on which the drafter was not trained.

    \b
    clew draft calibrate ./qwen ./qwen/drafters/dspark-7 --data fresh.jsonl
    clew draft calibrate ./qwen ./qwen/drafters/dspark-7 --data fresh.jsonl --temperature 0.7
    """
    from clew.models.drafters import folder as folders
    from clew.train.drafters import drafter_job, drafter_losses

    if options["temperature"] <= 0:
        raise BadInput("at temperature 0 there are no probabilities", remedy="Give a temperature above 0.")
    loaded = trainer_options.trainable(model)
    known = folders.about(drafter)
    folders.refuse(drafter, known["target"], folders.target_of(loaded.module, loaded.tokenizer, model))
    home = Path(drafter).with_name(Path(drafter).name + f".calibrating-{options['temperature']:g}")
    home.mkdir(parents=True, exist_ok=True)
    with run_options.interruptible("the same line again"), common.progress() as bar:
        found = texts(loaded, options, home, store_path, bar)
        taps, ids = known["design"]["taps"], [t.ids[: loaded.context] for t in found]
        job = bar.add_task("target's states", total=len(found), note="")
        firsts, domains = [t.first for t in found], [t.domain for t in found]
        advance = partial(bar.advance, job)
        data = drafter_losses.tap(loaded.module, ids, firsts, taps, home / "taps", domains, advance=advance)
        job = bar.add_task("rounds", total=len(data), note="")
        at, rounds, advance = options["temperature"], options["rounds"], partial(bar.advance, job)
        table, told = drafter_job.calibrate(loaded, Path(drafter), data, at, rounds, advance)
    if as_json:
        common.end_with_json({"drafter": drafter, "table": asdict(table), **told})
    rows = [[k + 1, t, told["raw"][k], told["scaled"][k], told["floor"][k]] for k, t in enumerate(table.temperatures)]
    common.print_table(["at least", "temperature", "error before", "error after", "noise floor"], rows)
    common.echo(f"\nfitted on {table.rounds} rounds at temperature {table.temperature:g} -> {drafter}")


def texts(loaded: Local, options: Mapping[str, Any], home: Path, store_path: str, bar: Progress) -> list[Text]:
    """The model's own text that --data names: from stored runs, or written now for the prompts of files."""
    from clew.exchange.files import text_lines
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
        given = target_text.prompts({file: text_lines(file) for file in files}, loaded.renderer)
        total = len(given) * options["samples"]
        common.say(f"{len(given)} prompts, {total} texts of {options['tokens']} tokens at most to write")
        job = bar.add_task("the model writes", total=total, note="")
        kept, how = home / f"own-{_named(given, options)}.jsonl", {k: options[k] for k in TEXT}
        found += target_text.write(loaded, given, options["tokens"], kept, advance=partial(bar.advance, job), **how)
    return found


def _named(given: Sequence[Any], options: Mapping[str, Any]) -> str:
    from clew.core.keys import value_digest

    asked = [options[k] for k in ("tokens", *TEXT)]
    return value_digest([[list(p.ids) for p in given], asked]).hex()[:12]


def beside(model: str, name: str) -> Path:
    """The folder for drafters of a model: inside the model's folder, or .clew where the model is no folder."""
    home = Path(model)
    return (home if home.is_dir() else Path(".clew")) / "drafters" / name
