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
    from clew.core.comparisons import Comparisons
    from clew.core.records import Report
    from clew.methods.world_model.run_check import Checked
    from clew.store import Run

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

    Beside that stands how many agree up to ids, times and long numbers, each used for one of the real world's
    throughout, and how many of each class of content. A question that was asked twice while nothing changed must be
    answered the same: this needs no truth, and is all that is said of a simulated world that names no real one.

    \b
    clew world check 4fzk2w
    clew world check 'world=simulated' --against desk
    clew world check 4fzk2w --json
    """
    import asyncio

    from clew.core.registry import build
    from clew.methods.world_model.run_check import check

    store = common.open_store(store_path)
    chosen = common.some(store, runs)
    real = build("tasksets", against) if against else None
    found = []
    with common.bar("checking", len(chosen)) as move:
        for run in chosen:
            found.append(asyncio.run(check(run, real, lasting)))
            move(advance=1)
    held = [one for one in found if not one.alone]
    if not any(one.compared for one in held) and (held or not any(one.turns for one in found)):
        raise BadInput("these runs did nothing that could be compared", remedy="Choose runs that acted in a world.")
    shared = agreement(held) if held else None
    if as_json:
        common.end_with_json(_numbers(chosen, found, shared))
    if len(found) == 1:
        _turns(found[0])
    else:
        common.print_table(("run", "turns", "agree", "in form", "first difference"), map(_row, found))
    _summary(chosen, found, shared)


def agreement(found: list[Checked], *, form: bool = False) -> Report:
    """The share of compared turns that agree, with an interval over tasks, else over runs, which are drawn whole; over
    turns where there is one run. Where all tasks or runs have one share, which has no spread to draw, the interval is
    Wilson's over their number."""
    from clew.methods.compare import design

    claim = f"turns in which the simulated world answers as the real one{', up to ids' * form}"
    told = [(float(bool(t.form if form else t.same)), one) for one in found for t in one.turns if t.same is not None]
    values = [value for value, _ in told]
    for unit, names in (("tasks", [one.task for _, one in told]), ("runs", [one.run for _, one in told])):
        n = len(set(names))
        if n > 1:
            made = design.clustered(claim, values, names, unit=unit)
            if made.low < made.high:
                return made
            low, high = design.wilson(made.estimate * n, float(n))
            text = f"{len(values)} values, {n} {unit} with one share, Wilson interval over {unit}"
            return replace(made, low=min(low, made.estimate), high=max(high, made.estimate), design=text)
    return design.rate(claim, int(sum(values)), len(told))


def _row(one: Checked) -> tuple[object, ...]:
    first = "" if one.first is None else f"turn {one.first}: {short(one.acts[one.first].action, WIDTH)}"
    alike = sum(bool(turn.form) for turn in one.turns)
    return one.run, one.compared, f"{one.agreeing}/{one.compared}", f"{alike}/{one.compared}", first


def _turns(one: Checked) -> None:
    rows = []
    for i, turn in enumerate(one.turns):
        sign = "" if turn.same is None else "yes" if turn.same else "form" if turn.form else "NO"
        said, real = turn.act.observation, turn.real.text if turn.act.played else "(not performed)"
        real = "" if one.alone else real
        ended = [" [end]" * turn.act.done, " [end]" * turn.real.done]
        action = short(one.acts[i].action, WIDTH)
        rows.append((i, action, short(said, WIDTH) + ended[0], short(real, WIDTH) + ended[1], sign))
    common.print_table(("turn", "action", "simulated", "real", "same"), rows)


def _summary(chosen: list[Run], found: list[Checked], shared: Report | None) -> None:
    from clew.methods.world_model.run_check import comparisons, half_life

    held = [one for one in found if not one.alone]
    tested, itself = comparisons(held), _itself(found)
    if shared is not None and tested.tested:
        form = agreement(held, form=True)
        common.echo(f"agree: {shared} ({shared.design})")
        common.echo(f"in form: {form}: up to ids, times and long numbers, each of them for one of the real world's")
        parts = (f"{name} {right} and in form {alike} of {n}" for name, (right, alike, n) in _by_content(held).items())
        common.echo(f"by content: {'; '.join(parts)}")
    elif shared is not None:
        common.echo(f"agree: {tested.verdict('')}")
    common.echo(f"against itself: {itself.verdict(f'{_contradictions(found)} of {itself.made} repeated questions')}")
    if held and tested.tested and len(found) > 1:
        half = half_life(found)
        told = "more than half agree as far as they go" if half is None else f"half have differed after turn {half - 1}"
        common.echo(f"of {len(found)} runs, {told}")
    asked, cost = _spent(chosen)
    if asked:
        common.echo(f"the simulated world asked its model {asked} times, for ${cost:.4f}")
    worst = min(found, key=lambda one: 1.0 if one.agreement is None else one.agreement)
    if worst.first is not None:
        common.echo(f"see the first difference: {command_line('show', worst.run)}")


def _by_content(found: list[Checked]) -> dict[str, tuple[int, int, int]]:
    """Of each class of content: turns that agree, that agree in form, and all."""
    from clew.methods.world_model.content_kinds import CONTENTS
    from clew.methods.world_model.run_check import contents

    pairs = [it for one, mine in zip(found, contents(found), strict=True) for it in zip(one.turns, mine, strict=True)]
    parts = {name: [turn for turn, kind in pairs if kind == name] for name in CONTENTS}
    counts = {name: (sum(bool(t.same) for t in it), sum(bool(t.form) for t in it)) for name, it in parts.items()}
    return {name: (*counts[name], len(it)) for name, it in parts.items() if it}


def _itself(found: list[Checked]) -> Comparisons:
    """The questions that were asked twice while nothing changed."""
    from clew.core.comparisons import Comparisons
    from clew.methods.world_model.run_check import repeats

    made = sum(len(repeats(one)) for one in found)
    why = "no question was asked twice while nothing had changed, so that no answer could contradict another"
    return Comparisons("repeated questions", made, made, why_not=why)


def _contradictions(found: list[Checked]) -> str:
    """How many repeated questions were answered differently, and where first."""
    from clew.methods.world_model.run_check import repeats

    wrong = [it for one in found for it in repeats(one) if not it.same]
    where = f" (first in run {wrong[0].run}, turns {wrong[0].first} and {wrong[0].again})" if wrong else ""
    return f"it contradicts itself in {len(wrong)}{where}"


def _spent(chosen: list[Run]) -> tuple[int, float]:
    """How often the worlds of runs asked a model, and for how many dollars; answers of the cache are neither."""
    inner = [one for run in chosen for call in run.calls if call.kind == "act" for one in call.inner]
    return sum(bool(one.usage.completion or one.seconds) for one in inner), sum(one.cost for one in inner)


def _numbers(chosen: list[Run], found: list[Checked], shared: Report | None) -> dict[str, Any]:
    from clew.cli.shared.run_options import numbers
    from clew.methods.world_model.run_check import comparisons, half_life, repeats

    asked, cost = _spent(chosen)
    rows = [
        {
            "run": one.run,
            "compared": one.compared,
            "agreeing": one.agreeing,
            "first_difference": one.first,
            "turns": [
                {
                    "action": act.action,
                    "simulated": turn.act.observation,
                    "real": turn.real.text,
                    "same": turn.same,
                    "form": turn.form,
                }
                for act, turn in zip(one.acts, one.turns, strict=True)
            ],
        }
        for one in found
    ]
    spent = {"model_calls": asked, "cost": cost}
    held = [one for one in found if not one.alone]
    told: dict[str, Any] = {"agreement": None, "in_form": None, "half_life": half_life(held) if held else None}
    if shared is not None:
        told |= {"agreement": numbers(shared), "in_form": numbers(agreement(held, form=True))}
    asked_twice = [it for one in found for it in repeats(one)]
    parts = _by_content(held).items()
    told["by_content"] = {name: dict(zip(("same", "form", "n"), it, strict=True)) for name, it in parts}
    told["contradictions"] = [it._asdict() for it in asked_twice if not it.same]
    told["checks"] = {"real": comparisons(held).json(), "itself": _itself(found).json()}
    return told | spent | {"runs": rows}
