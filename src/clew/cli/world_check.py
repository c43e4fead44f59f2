"""clew world check: hold simulated runs against the real world, turn by turn."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from clew.cli.shared import common, option
from clew.cli.shared.next_lines import command_line
from clew.core.errors import BadInput
from clew.core.printable import short

if TYPE_CHECKING:
    from clew.core.records import Report
    from clew.store import Run
    from clew.worlds.learned.run_check import Checked

AGAINST_HELP = "The real world.  [default: the one that the simulated world names]"
LASTING_HELP = "Perform the actions also in a world in which they cannot be undone."
WIDTH = 46  # characters of an answer in the table


@click.command(short_help="Hold simulated runs against the real world, turn by turn.")
@click.argument("runs", nargs=-1, required=True)
@option("--against", default="", metavar="WORLD", help=AGAINST_HELP)
@option("--lasting", is_flag=True, help=LASTING_HELP)
@common.output_options
def command(runs: tuple[str, ...], against: str, lasting: bool, as_json: bool, store_path: str) -> None:
    """Perform the actions of recorded runs in the real world, and compare what it answers with what a model made up.

    For one run each turn is shown; for several, each run in a line, the share of turns that agree with an interval over
    runs, and after how many turns half of the runs have left the real world's way. Text is compared: JSON by its
    values, all else without regard to white space. Pages, refusals and losses that the simulated world adds by its
    instruction are no turns of the model: what the model itself answered is compared. No model is asked.

    \b
    clew world check 4fzk2w
    clew world check 'world=simulated' --against desk
    clew world check 4fzk2w --json
    """
    import asyncio

    from clew.core.registry import build
    from clew.worlds.learned.run_check import check

    store = common.open_store(store_path)
    chosen = common.some(store, runs)
    real = build("tasksets", against) if against else None
    found = []
    with common.bar("checking", len(chosen)) as move:
        for run in chosen:
            found.append(asyncio.run(check(run, real, lasting)))
            move(advance=1)
    if not any(one.compared for one in found):
        raise BadInput("these runs did nothing that could be compared", remedy="Choose runs that acted in a world.")
    shared = agreement(found)
    if as_json:
        common.end_with_json(_numbers(chosen, found, shared))
    if len(found) == 1:
        _turns(found[0])
    else:
        common.print_table(("run", "turns", "agree", "first difference"), map(_row, found))
    _summary(chosen, found, shared)


def agreement(found: list[Checked]) -> Report:
    """The share of compared turns that agree, with an interval over tasks, else over runs, which are drawn whole; over
    turns where there is one run. Where all tasks or runs have one share, which has no spread to draw, the interval is
    Wilson's over their number."""
    from clew.audit import design

    claim = "turns in which the simulated world answers as the real one"
    told = [(float(bool(turn.same)), one) for one in found for turn in one.turns if turn.same is not None]
    values, hits = [value for value, _ in told], sum(one.agreeing for one in found)
    for unit, names in (("tasks", [one.task for _, one in told]), ("runs", [one.run for _, one in told])):
        n = len(set(names))
        if n > 1:
            made = design.clustered(claim, values, names, unit=unit)
            if made.low < made.high:
                return made
            low, high = design.wilson(made.estimate * n, float(n))
            text = f"{len(values)} values, {n} {unit} with one share, Wilson interval over {unit}"
            return replace(made, low=min(low, made.estimate), high=max(high, made.estimate), design=text)
    return design.rate(claim, hits, len(told))


def _row(one: Checked) -> tuple[object, ...]:
    first = "" if one.first is None else f"turn {one.first}: {short(one.acts[one.first].action, WIDTH)}"
    return one.run, one.compared, f"{one.agreeing}/{one.compared}", first


def _turns(one: Checked) -> None:
    rows = []
    for i, turn in enumerate(one.turns):
        sign = "" if turn.same is None else "yes" if turn.same else "NO"
        said, real = turn.act.observation, turn.real.text if turn.act.played else "(not performed)"
        ended = [" [end]" * turn.act.done, " [end]" * turn.real.done]
        action = short(one.acts[i].action, WIDTH)
        rows.append((i, action, short(said, WIDTH) + ended[0], short(real, WIDTH) + ended[1], sign))
    common.print_table(("turn", "action", "simulated", "real", "same"), rows)


def _summary(chosen: list[Run], found: list[Checked], shared: Report) -> None:
    from clew.worlds.learned.run_check import half_life

    common.echo(f"agree: {shared} ({shared.design})")
    if len(found) > 1:
        half = half_life(found)
        told = "more than half agree as far as they go" if half is None else f"half have differed after turn {half - 1}"
        common.echo(f"of {len(found)} runs, {told}")
    asked, cost = _spent(chosen)
    if asked:
        common.echo(f"the simulated world asked its model {asked} times, for ${cost:.4f}")
    worst = min(found, key=lambda one: one.agreement)
    if worst.first is not None:
        common.echo(f"see the first difference: {command_line('show', worst.run)}")


def _spent(chosen: list[Run]) -> tuple[int, float]:
    """How often the worlds of runs asked a model, and for how many dollars; answers of the cache are neither."""
    inner = [one for run in chosen for call in run.calls if call.kind == "act" for one in call.inner]
    return sum(bool(one.usage.completion or one.seconds) for one in inner), sum(one.cost for one in inner)


def _numbers(chosen: list[Run], found: list[Checked], shared: Report) -> dict[str, Any]:
    from clew.cli.shared.run_options import numbers
    from clew.worlds.learned.run_check import half_life

    asked, cost = _spent(chosen)
    rows = [
        {
            "run": one.run,
            "compared": one.compared,
            "agreeing": one.agreeing,
            "first_difference": one.first,
            "turns": [
                {"action": act.action, "simulated": turn.act.observation, "real": turn.real.text, "same": turn.same}
                for act, turn in zip(one.acts, one.turns, strict=True)
            ],
        }
        for one in found
    ]
    spent = {"model_calls": asked, "cost": cost}
    return {"agreement": numbers(shared), "half_life": half_life(found), **spent, "runs": rows}
