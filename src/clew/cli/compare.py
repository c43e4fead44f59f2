"""clew compare: which model, temperature or prompt does better from one place in a run, with the interval of it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from clew.cli.fork import said, waits
from clew.cli.shared import common, data_options, option, run_options
from clew.cli.shared.next_lines import command_line
from clew.core.errors import BadInput

if TYPE_CHECKING:
    from clew.core.protocols import Taskset
    from clew.core.records import Cursor
    from clew.methods.compare.sequential import Limits
    from clew.methods.compare.versus import Finding, Verdict, Versus
    from clew.store import Keeper, Run

KINDS = {"models": "--models", "temperatures": "--temperatures", "said": "--say"}
RECORDED = "as recorded"
MORE = 20  # times as many branches as were asked for that a line for going on asks for
SAY_HELP = "Arm: edit message I of a chat ([CHAT.]I); no TEXT drops it. May be repeated, once for each arm."
VERIFY_HELP = "In a workspace: a branch succeeds where this command ends with status 0 in a copy of its last files."
MARGIN_HELP = "Decide as equal where the difference is within this on both sides of 0."


@click.command(short_help="Compare models, temperatures or prompts from one place in a run.")
@click.argument("place")
@option("--models", default="", metavar="A,B,...", help="Arms: these models from the place on.")
@option("--temperatures", default="", metavar="T,T,...", help="Arms: these sampling temperatures from the place on.")
@option("--say", "said", multiple=True, metavar="I=TEXT", help=SAY_HELP)
@option("--step", type=click.INT, help="Begin before this step (negative counts from the end).")
@option("-n", "--n", "n", default=16, help="Most branches of each arm; it stops sooner where it is decided.")
@option("--batch", default=4, help="Branches of each arm between two looks at the verdicts.")
@option("--margin", type=common.Amount(float, 0, 1, above=True), help=MARGIN_HELP)
@option("--verify", default="", metavar="COMMAND", help=VERIFY_HELP)
@option("--seed", default=0, help="Seed of the branches; those of one number have one seed in all arms.")
@data_options.data_options
@run_options.model_options
@run_options.sampling_options
@common.output_options
def command(place: str, n: int, batch: int, as_json: bool, store_path: str, **options: Any) -> None:
    """Branch a recorded run at one place for each arm, and say which arm succeeds more often, with its interval.

    PLACE is run@call or run@call+token, as `clew show` prints it; or a run, with --step or --say. Everything before it
    is shared and asked of no model again. Arms are the models, the temperatures, or the edited messages of the line;
    the first is what the others are compared with, and one alone is compared with the run as it was recorded.

    Verdicts are looked at after each batch. The interval of the difference holds at all looks together, at 95 % for the
    whole comparison, so that it ends as soon as 0 is outside. The same line goes on where it stopped, and a greater -n
    goes on with the branches there are.

    \b
    clew compare 4fzk2w@7 --models small,large -n 64
    clew compare 4fzk2w@7 --temperatures 0.2,1 --margin 0.1 -n 400
    clew compare 4fzk2w@7 --models small,large -n 64 --verify 'python -m pytest -q'
    clew compare 4fzk2w --say 0='You are in a hurry.' -n 64
    """
    from clew.methods.compare.versus import filed

    store = common.open_store(store_path)
    run, at = common.cursor(store, place, options["step"])
    if run.agent.endswith(":relay"):
        raise waits(run, at, None)
    versus = _versus(store, run, at, options, n=n, batch=batch)
    with run_options.interruptible("the same line again"), run_options.watching(n * len(versus.arms), "branches") as on:
        found = versus.compare(on)
    for it in found:
        if it.limits.n:
            filed(store, it)
    store.commit()
    if as_json:
        common.end_with_json(_json(versus, found))
    common.print_table(("", "success", "95 % interval", "branches"), [_arm(versus, i) for i in range(len(versus.arms))])
    common.echo()
    for it in found:
        common.echo(_sentence(it, n))
        if it.left:
            common.echo(f"  note: {it.left} pairs have no verdict and are left out")
    common.echo(f"Next: {_next(place, versus, found, options, batch)}")


# ---- what is compared ------------------------------------------------------------------------------------------------


def _versus(store: Keeper, run: Run, at: Cursor | None, options: Mapping[str, Any], *, n: int, batch: int) -> Versus:
    """The comparison that the line asks for, with its models loaded."""
    from clew.harness.fork.fork_request import ForkRequest, other_weights, runner_for
    from clew.methods.compare.versus import Arm, Versus, success

    changes = _changes(options)
    if at is None and not options["said"]:
        raise BadInput(f"{run.id!r} names a run, but no place in it", remedy="Write run@call, or add --step.")
    common_to_all = common.pick(options, "temperature max_tokens top_p")
    requests = {name: ForkRequest.from_options(run, at, common_to_all | change) for name, change in changes.items()}
    models = list(dict.fromkeys(request.model for request in requests.values() if request.model))
    first = next(iter(requests.values()))
    runner = runner_for(store, first, lambda ref: run_options.load_model(ref, options), models)
    if (data := data_options.dataset_of(options)) is not None:
        runner.taskset = data
    if not first.model and (differs := other_weights(run, at, runner)):
        common.say(f"note: {differs}")
    kept = ("model", "sampling", "rewrite")
    arms = []
    for name, request in requests.items():
        asked = replace(request, seq=at.seq if at else 0).arguments()  # the place itself is found for all arms together
        arms.append(Arm(name, {key: asked[key] for key in kept if asked[key] is not None}))
    margin = options["margin"] or 0.0
    verdict = _verdict(runner.taskset, options["verify"]) if options["verify"] else success
    return Versus(runner, run, at, arms, n=n, batch=batch, seed=options["seed"], margin=margin, verdict=verdict)


def _verdict(taskset: Taskset | None, command: str) -> Verdict:
    """A branch's worth by a command in a copy of its last files.

    Raises:
        BadInput: the run's world keeps no files.
    """
    from clew.core.aio import run_sync
    from clew.harness.run.lifecycle import FAILED
    from clew.serve.gateway.run_files import files_at
    from clew.worlds.workspace import FileTasks, verified

    if not isinstance(taskset, FileTasks):
        remedy = "Compare from a run in a workspace: clew run coder --world workspace."
        raise BadInput("--verify runs a command in the files of a branch, and this run has none", remedy=remedy)

    def worth(run: Run) -> float | None:
        if run.stop is None or run.stop in FAILED:
            return None
        return float(run_sync(verified(taskset, files_at(run, None).tree, command)).ok)

    return worth


def _changes(options: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Each arm's name and what it changes, as options of a fork.

    Raises:
        BadInput: the line names no arms, or arms of two kinds.
    """
    given = [kind for kind in KINDS if options[kind]]
    if len(given) != 1:
        told = f"{' and '.join(KINDS[kind] for kind in given)} name arms of two kinds" if given else "no arm is named"
        raise BadInput(told, remedy="Give one of --models A,B, --temperatures T,T and --say I=TEXT.")
    (kind,) = given
    arms: list[tuple[str, dict[str, Any]]]
    if kind == "models":
        models = _listed(options["models"])
        names = [_short(ref) for ref in models]
        if len(set(names)) < len(set(models)):
            names = models
        arms = [(name, {"model": ref}) for name, ref in zip(names, models, strict=True)]
    elif kind == "temperatures":
        numbers = common.number_list(options["temperatures"], "--temperatures", float, above=-1e-9)
        arms = [(f"temperature {t:g}", {"temperature": t}) for t in numbers]
    else:
        arms = [(f"say {text}", {"say": dict([said(text)])}) for text in options["said"]]
    if twice := [name for name, count in Counter(name for name, _ in arms).items() if count > 1]:
        raise BadInput(f"{twice[0]} is named twice", remedy="Name arms that differ.")
    return dict(arms if len(arms) > 1 else [(RECORDED, {}), *arms])


def _listed(text: str) -> list[str]:
    """References with commas between them; a comma inside of brackets belongs to a reference."""
    out, depth = [""], 0
    for letter in text:
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and depth == 0:
            out.append("")
        else:
            out[-1] += letter
    return [name for word in out if (name := word.strip())]


def _short(ref: str) -> str:
    """A reference without the folders of its file or address."""
    place, bracket, arguments = ref.partition("(")
    return place.rstrip("/").rsplit("/", 1)[-1] + bracket + arguments


# ---- what came out ---------------------------------------------------------------------------------------------------


def _sentence(it: Finding, n: int) -> str:
    """What was decided, in words; or how many branches would decide."""
    mean, low, high, pairs = it.limits
    after = f"after {pairs} of {n} branches"
    if it.outcome == "equal":
        return f"{it.arm} and {it.reference} are equal within the margin: {mean:+.2f} {_between(low, high)} {after}"
    if it.outcome != "open":
        way = "better" if it.outcome == "better" else "worse"
        between = _between(low, high) if mean > 0 else _between(-high, -low)
        return f"{it.arm} is {way} than {it.reference} by {abs(mean):.2f} {between} {after}"
    if not it.comparisons.tested:
        return f"{it.comparisons.verdict('')}; compare from another step or task, or name another verdict"
    told = f"not decided {after}: {it.arm} less {it.reference} is {mean:+.2f} {_between(low, high)}; "
    if it.decides is not None:
        return told + f"about n = {_round(it.decides)} would decide a difference as large as this one"
    return told + ("they differ in nothing so far" if not mean else "no n that one could wait for would decide it")


def _between(low: float, high: float) -> str:
    """An interval; a limit near 0 keeps its sign, since that is what is decided."""
    return f"[{', '.join(f'{x:.2f}' if abs(x) >= 0.005 or not x else f'{x:.1g}' for x in (low, high))}]"


def _round(n: int) -> int:
    """Two digits of a number that is known to hardly more, upwards."""
    unit = int(10 ** max(int(math.log10(n)) - 1, 0))
    return math.ceil(n / unit) * unit


def _arm(versus: Versus, index: int) -> tuple[object, ...]:
    limits = versus.found[index].success
    return versus.arms[index].name, limits.mean, _between(limits.low, limits.high), limits.n


def _next(place: str, versus: Versus, found: list[Finding], options: Mapping[str, Any], batch: int) -> str:
    """The line to type next: more branches where they would decide, else two branches of one seed that part."""
    waiting = [it.decides or 0 for it in found if it.outcome == "open"]
    if 0 < max(waiting, default=0) <= MORE * versus.n:
        return command_line("compare", place, **options, n=_round(max(waiting)), batch=batch)
    first = versus.found[0]
    for other in versus.found[1:]:
        for member in sorted(first.worth.keys() & other.worth.keys()):
            if first.worth[member] != other.worth[member]:
                return command_line("diff", first.runs[member].id, other.runs[member].id)
    return command_line("show", first.runs[0].id)


def _json(versus: Versus, found: list[Finding]) -> dict[str, Any]:
    def numbers(limits: Limits) -> dict[str, Any]:
        return limits._asdict()

    arms = [
        {
            "name": arm.name,
            "success": numbers(branches.success),
            "branches": [{"run": run.id, "verdict": branches.worth.get(i)} for i, run in sorted(branches.runs.items())],
        }
        for arm, branches in zip(versus.arms, versus.found, strict=True)
    ]
    findings = [
        {
            "arm": it.arm,
            "reference": it.reference,
            "outcome": it.outcome,
            "difference": numbers(it.limits),
            "level": it.level,
            "left_out": it.left,
            "n_to_decide": it.decides,
            "comparisons": it.comparisons.json(),
        }
        for it in found
    ]
    return {"run": versus.run.id, "at": versus.at, "n": versus.n, "arms": arms, "findings": findings}
