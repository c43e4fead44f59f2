"""clew world turns: write turns of stored runs as data, each asking a model for one answer of the world."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from clew.cli.shared import common, option
from clew.cli.shared.next_lines import command_line

WINDOW_HELP = "Turns before an action that the model is told; 0: all of them."


@click.command("turns", short_help="Write turns of stored runs as data for single-turn RL.")
@click.argument("runs", nargs=-1, required=True)
@option("-o", "--out", default="turns.jsonl", metavar="FILE", help="File to write.")
@option("--folder", default="", help="Ask as this folder says, which `clew world fit` wrote.")
@option("--window", default=0, type=common.Amount(int, 0), not_with="--folder", help=WINDOW_HELP)
@option("--every", is_flag=True, help="All turns of a run, not one: their rewards vary less, as they share a prefix.")
@option("--seed", default=0, help="Of the turn that is drawn from each run.")
@common.output_options
def command(runs: tuple[str, ...], out: str, folder: str, as_json: bool, store_path: str, **options: Any) -> None:
    """Write one turn of each of RUNS as a row: the conversation up to an action, and what the world answered.

    A training on these rows is next-observation RL: the model says one answer, and the reward `observation` compares
    it with the world's. Begun from an agent's own weights, this is a warm start of the agent; its checkpoint then goes
    into a training on the world itself.

    \b
    clew world turns world=shell -o turns.jsonl
    clew train --data turns.jsonl --reward observation --recipe gspo --model ./agent --name warm --max-tokens 200
    clew train --world shell --model .clew/trainings/warm/checkpoint --name agent
    """
    from clew.methods.world_model.model_folder import ModelCard
    from clew.methods.world_model.observing.episodes import card_of, episodes_of, of_one_world
    from clew.methods.world_model.observing.single_turns import turn_rows
    from clew.methods.world_model.prompting import RULES

    read = episodes_of(common.some(common.open_store(store_path), runs))
    for why, n in read.reasons().items():
        common.say(f"{n} runs are left out: {why}")
    episodes = of_one_world(read)
    card = ModelCard.read(Path(folder)) if folder else card_of(episodes, rules=RULES, window=options["window"])
    made = list(turn_rows(episodes, card, options["seed"], options["every"]))
    with Path(out).open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in made)
    if as_json:
        common.end_with_json({"file": out, "rows": len(made), "left_out": read.reasons()})
    common.echo(f"{out}: {len(made)} turns of {len(episodes)} runs")
    line = command_line("train", data=out, reward="observation", recipe="gspo", model=folder or "FOLDER", name="warm")
    common.echo(f"Next: {line}")
