"""clew world eval: how faithful a fitted model of a world is, answer by answer and left to itself."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from clew.cli.shared import common, option, run_options
from clew.cli.shared.next_lines import command_line
from clew.core.errors import BadInput

if TYPE_CHECKING:
    from clew.core.comparisons import Comparisons
    from clew.core.protocols import Model
    from clew.methods.world_model.observing.closed_loop import Drift
    from clew.methods.world_model.observing.episodes import Episode

AGAINST_HELP = "The real world.  [default: with no --runs, the one whose runs it was fitted to]"
RUNS_HELP = """Recorded runs instead of demonstrations: their answers are the truth, and with --against their actions
are played; may be repeated."""
MODEL_HELP = "Another model that is asked as the folder says, to compare with."
NOISE_HELP = "Share of slips in the demonstrations that are played, where the world makes any."
TURNS = 12  # rows of the curve


@click.command("eval", short_help="Measure a model of a world against the real one.")
@click.argument("folder")
@option("--against", default="", metavar="WORLD", help=AGAINST_HELP)
@option("--runs", multiple=True, metavar="QUERY", help=RUNS_HELP)
@option("--model", default="", help=MODEL_HELP)
@option("--tasks", default=20, type=common.Amount(int, 1), help="Tasks that are played.")
@option("--split", choices="train eval test", default="test", not_with="--runs", help="Split that the tasks are of.")
@option("--noise", default=0.3, type=common.Amount(float, 0, 1), not_with="--runs", help=NOISE_HELP)
@option("--seed", default=0, not_with="--runs", help="Of the tasks and of the demonstrations.")
@common.json_option
@common.store_of(only_with="--runs")
def command(folder: str, against: str, runs: tuple[str, ...], as_json: bool, store_path: str, **options: Any) -> None:
    """Measure FOLDER, a model that `clew world fit` wrote.

    Open loop: told the true past, does it say what the world said? By class of content: what was determined by what
    was told before, what the world had stored unseen, and ids or times that it makes up. Closed loop, against a real
    world: the same actions played in both, each turn compared, and the turn at which half have left the real world's
    way. Failures are counted by reason, as wrong answers. Nothing of the real world is changed but what is opened here.

    \b
    clew world eval shell-model --against shell
    clew world eval shell-model --runs 'world=shell reward<1' --tasks 50
    """
    from clew.methods.world_model.model_folder import ModelCard
    from clew.methods.world_model.observing.open_loop import outcomes

    card = ModelCard.read(Path(folder))
    against = against or ("" if runs else card.world)
    if not against and not runs:
        raise BadInput(f"{folder} names no world", remedy="Name one with --against, or runs with --runs.")
    episodes, plans = _played(against, options) if not runs else _recorded(runs, store_path, options)
    model = run_options.load_model(options["model"] or folder)
    total = sum(len(one.turns) for one in episodes)
    common.say(f"{len(episodes)} episodes, {total} answers{', each twice' * bool(against)}")
    with run_options.interruptible("the same line again"), common.bar("answers", total) as move:
        found = asyncio.run(outcomes(model, episodes, card, lambda done: move(completed=done)))
    left = _left_alone(folder, against, episodes, plans, model) if against else None
    tested = _comparisons(episodes)
    if as_json:
        common.end_with_json(_numbers(found, left) | {"checks": tested.json()})
    _print(found, left, tested)
    if against:
        world = f'simulated(folder="{folder}", world="{against}")'
        common.echo(f"Next: {command_line('run', world=world)}")


Plans = dict[str, list[Any]]


def _played(against: str, options: dict[str, Any]) -> tuple[list[Episode], Plans]:
    """What the real world answers to the demonstrations of tasks."""
    from clew.core.registry import build
    from clew.methods.world_model.observing.closed_loop import demonstrated, real_episodes

    real = build("tasksets", against)
    tasks = real.sample(options["tasks"], seed=options["seed"], split=options["split"])
    plans = demonstrated(real, tasks, options["seed"], options["noise"])
    return real_episodes(real, tasks, plans), plans


def _recorded(runs: tuple[str, ...], store_path: str, options: dict[str, Any]) -> tuple[list[Episode], Plans]:
    """Recorded runs, one of each task, and their actions.

    Raises:
        BadInput: none of them can serve.
    """
    from clew.methods.world_model.observing.episodes import episodes_of

    read = episodes_of(common.some(common.open_store(store_path), runs))
    for why, n in read.reasons().items():
        common.say(f"{n} runs are left out: {why}")
    by_task = {one.task or one.run: one for one in reversed(read.episodes)}
    chosen = list(by_task.values())[: options["tasks"]]
    if not chosen:
        raise BadInput("none of these runs can be measured by", remedy="Choose runs that acted twice or more.")
    return chosen, {one.task: [turn.action for turn in one.turns] for one in chosen}


def _left_alone(folder: str, against: str, episodes: list[Episode], plans: Plans, model: Model) -> Drift:
    from clew.core.registry import build
    from clew.methods.world_model import Simulated
    from clew.methods.world_model.observing.closed_loop import drift

    real = build("tasksets", against)
    longest = max(len(plan) for plan in plans.values())
    simulated = Simulated(folder=folder, world=against, tries=1, steps=max(50, longest), model=model.ref)
    tasks = [real.find(one.task) for one in episodes]
    with run_options.interruptible("the same line again"), common.bar("episodes", len(tasks)) as move:
        return drift(simulated, real, tasks, plans, model, lambda: move(advance=1))


def _comparisons(episodes: list[Episode]) -> Comparisons:
    """The true answers: where all are the same, a model that says nothing else is always right."""
    from clew.core.comparisons import Comparisons
    from clew.methods.world_model.fidelity import canonical_text

    true = [canonical_text(turn.observation) for one in episodes for turn in one.turns]
    could = len(true) if len(set(true)) > 1 else 0
    return Comparisons("answers", len(true), could, why_not=f"all {len(true)} true answers are the same")


def _print(found: list[Any], left: Drift | None, tested: Comparisons) -> None:
    from clew.cli.shared.world_figures import fidelity_rows, spent
    from clew.methods.compare import design
    from clew.methods.world_model.observing.open_loop import failures

    if not tested.tested:
        common.echo(tested.verdict(""))
    common.echo("open loop: each answer after the true ones before it")
    common.print_table(*fidelity_rows(found))
    failed = failures(found)
    reasons = "".join(f"; {n} {why}" for why, n in failed.items())
    common.echo(f"failures: {design.rate('failures', sum(failed.values()), len(found))}{reasons}")
    if left is not None:
        common.echo("closed loop: the same actions in both worlds, nothing put right on the way")
        common.print_table(("turns", "still the real world's way"), _curve(left))
        half = left.half_life
        told = "more than half agree as far as they go" if half is None else f"half have left it after turn {half}"
        told = tested.verdict(told)
        gone = "".join(f"; {n} with {why}" for why, n in left.failed.items())
        common.echo(f"half-life: {told}{gone}")
    took = spent(found)
    common.echo(
        f"cost of the open loop: {took['asked_tokens']:,} tokens read, {took['written_tokens']:,} written, "
        f"${took['dollars']:.4f}"
    )


def _curve(left: Drift) -> list[tuple[object, ...]]:
    from clew.methods.compare import design

    rows: list[tuple[object, ...]] = []
    for turn in range(1, min(left.turns, TURNS) + 1):
        hits, n = left.surviving(turn)
        rows.append((turn, design.rate(f"after {turn} turns", hits, n)))
    return rows


def _numbers(found: list[Any], left: Drift | None) -> dict[str, Any]:
    from clew.cli.shared.world_figures import figures

    told = {"open_loop": figures(found)}
    if left is None:
        return told
    curve = [
        {"turns": turn, "agreeing": hits, "n": n}
        for turn in range(1, left.turns + 1)
        for hits, n in [left.surviving(turn)]
    ]
    return told | {"closed_loop": {"half_life": left.half_life, "failures": left.failed, "curve": curve}}
