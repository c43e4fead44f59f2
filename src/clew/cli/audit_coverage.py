"""clew audit coverage: how many post-mistake states and recoveries the training data covers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from clew.cli.shared import common, option
from clew.core.errors import BadInput

if TYPE_CHECKING:
    from clew.core.records import Report
    from clew.methods.recoveries import Trail

SUFFIXES = (".jsonl", ".jsonl.gz", ".ndjson")


@click.command(short_help="Measure which recoveries from mistakes the data covers.")
@click.argument("data", nargs=-1, metavar="[DATA] [RUNS]")
@option("--method", help="Count steps with a value of this method (see `clew credit`) as trained on.")
@common.output_options
def command(data: tuple[str, ...], method: str | None, as_json: bool, store_path: str) -> None:
    """Measure how many post-mistake states and recoveries the training data covers.

    DATA is a file made by `clew export --sft` or `clew export FILE.jsonl`; its runs are looked up in the store. For
    RUNS the training signal is every action of a solved run or, with --method, every action whose value is not zero.
    DATA with RUNS is a file of your own demonstrations, each a line of messages (observation from the user, action from
    the assistant): an action counts in every state of RUNS that shows the same observation.

    A mistake is an action that increased the distance to the goal, or that returned to an earlier state of the run
    without shortening the distance. Distances are counted in the moves that the chosen runs made, so choose all runs of
    the tasks. A run is off course until it is as near to the goal as before the mistake; a recovery is an off-course
    action that shortens the distance.

    \b
    clew audit coverage demos.jsonl
    clew audit coverage own.jsonl world=maze
    clew audit coverage world=maze
    clew audit coverage world=household --method g2po
    """
    from clew.methods import recoveries

    store = common.open_store(store_path)
    files = [word for word in data if word.endswith(SUFFIXES)]
    if len(files) > 1 or (files and method):
        raise BadInput("one data file is read at a time, without --method", remedy="Give one file, or runs.")
    elsewhere = 0
    if files:
        from clew.exchange.distil import shown, taught

        if words := [word for word in data if word not in files]:
            paths, signal, elsewhere = shown(Path(files[0]), common.some(store, words))
        else:
            paths, signal = taught(Path(files[0]), store)
    else:
        runs = common.some(store, data)
        paths = recoveries.trails(runs)
        signal = _valued(runs, paths, method) if method else [a for p in paths if p.solved for a in p.acts()]
    found = recoveries.coverage(paths, signal)
    if as_json:
        common.end_with_json(found.to_json() | ({"actions in no state of the runs": elsewhere} if elsewhere else {}))
    some = f"{found.mistakes} of {found.judged} actions are mistakes"
    told = found.comparisons.verdict(some).replace("not tested", "mistakes were not tested")
    common.echo(f"{found.runs} runs of {found.tasks} tasks; {told}")
    if found.comparisons.tested:
        common.echo(f"{found.comparisons}")
    if found.lost:
        rest = f"{found.acts - found.judged} actions without a distance are not judged"
        common.echo(f"{found.lost} tasks have no solved run; {rest}")
    if elsewhere:
        common.echo(f"{elsewhere} actions of {files[0]} answer an observation that none of these runs saw")
    tested = found.comparisons.tested
    common.echo(_line("states reached after a mistake", found.covered_states, found.behind, found.states, tested))
    common.echo(_line("recoveries", found.covered_retreats, found.ways, found.retreats, tested))


def _valued(runs: list[Any], paths: list[Trail], method: str) -> list[tuple[str, Any, str]]:
    """The actions of steps in which a model call has a value of ``method`` that is not zero.

    Raises:
        BadInput: the method annotated none of the runs.
    """
    from clew.store.protocol import latest_last

    by_id, acts, some = {run.id: run for run in runs}, [], False
    for path in paths:
        run = by_id[path.run]
        values = {a.seq: a.value for a in latest_last(run.annotations(method, "call")) if a.value is not None}
        some |= bool(values)
        steps = run.steps
        for act, number in zip(path.acts(), path.steps, strict=True):
            if any(values.get(ask.seq) for ask in steps[number].asks):
                acts.append(act)
    if not some:
        remedy = f"Compute them first: `clew credit {method}`."
        raise BadInput(f"none of these runs has values of {method!r}", remedy=remedy)
    return acts


def _line(what: str, covered: int, every: int, share: Report | None, tested: bool) -> str:
    if share is None:
        return f"{what}: none in these runs" if tested else f"{what}: not tested"
    return f"{what}: {covered} of {every} receive a signal, {share.estimate:.1%} [{share.low:.1%}, {share.high:.1%}]"
