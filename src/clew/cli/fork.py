"""clew fork: continue a recorded run from any step or token, with a change there or without."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from clew.cli.shared import common, data_options, option, run_options
from clew.cli.shared.next_lines import command_line
from clew.core.errors import BadInput
from clew.core.values import StopReason

if TYPE_CHECKING:
    from clew.core.records import Cursor
    from clew.models.taps import Tap
    from clew.store import Group, Run

TAP_HELP = (
    "Write into hidden states from the place on, as layer=1,add=FILE.npy,times=3 (docs/taps.md); may be repeated."
)
WITHOUT_HELP = "Recalls from the place on do without these items of memories; `all`: without any."
SAY_HELP = "Edit message I of a chat ([CHAT.]I); no TEXT drops it."


@click.command(short_help="Continue a run from any step or token, changed or unchanged.")
@click.argument("place")
@option("--step", type=click.INT, help="Fork before this step (negative counts from the end).")
@option("--low", metavar="METHOD", help="Fork at the step with the lowest value of METHOD; see `clew credit`.")
@option("-n", "--n", "n", default=1, help="Number of forks.")
@option("--reply", help="Replace the model's whole reply at the place.")
@option("--prefix", help="Force the first words of the reply; the rest is sampled.")
@option("--prefix-ids", help="Force the first tokens of the reply, by id: 17,4,93.")
@option("--result", help="Replace the observation or tool result at the place.")
@option("--say", "said", multiple=True, metavar="I=TEXT", help=SAY_HELP)
@option("--act", "acts", multiple=True, help="Take this action in the world first; may be repeated.")
@option("--model", help="Use another model from the place on; #NAME: this worker of a router.")
@option("--tap", "taps", multiple=True, metavar="SPEC", help=TAP_HELP)
@option("--without-memory", metavar="ITEM,...", help=WITHOUT_HELP)
@option("--seed", help="Sampling seed: same, fresh or a number.  [default: same with a change, else fresh]")
@option("--keep", is_flag=True, help="Force the later recorded replies wherever the prompt is still the same.")
@data_options.data_options
@run_options.model_options
@run_options.sampling_options
@common.output_options
def command(place: str, n: int, as_json: bool, store_path: str, **options: Any) -> None:
    """Continue a recorded run from a place in it: everything before is replayed from the record, the rest is new.

    PLACE is run@call or run@call+token, as `clew show` prints it; or a run, with --step or --low. With --without-memory
    a run is enough: the fork begins at the first recall that gave one of the items.

    \b
    clew fork 4fzk2w@7 -n 4
    clew fork 4fzk2w --low g2po -n 4
    clew fork 4fzk2w@7 --reply 'open drawer'
    clew fork 4fzk2w@7+3 --temperature 0
    clew fork 4fzk2w@7 --tap layer=1,add=north.npy,times=3
    clew fork 4fzk2w --without-memory k3j2,m2aa -n 4
    clew fork 4fzk2w --say 0='You are in a hurry.' --keep
    """
    from clew.harness.blame import agent_failed
    from clew.harness.fork.edits import without_items
    from clew.harness.fork.fork_request import ForkRequest, other_weights, runner_for

    store = common.open_store(store_path)
    run, at = common.cursor(store, place, options["step"])
    if run.agent.endswith(":relay"):
        raise waits(run, at, options["without_memory"])
    if options["low"]:
        at = run.low_point(options["low"])
    memory = run_options.without(options["without_memory"])
    if at is None and memory is not None:
        at = run.at(without_items(run, memory)[1])
    changes: dict[str, Any] = {
        "n": n,
        "prefix_ids": common.number_list(options["prefix_ids"] or "", "--prefix-ids", int),
        "say": dict(said(text) for text in options["said"]),
        "act": options["acts"],
    }
    request = ForkRequest.from_options(run, at, options | changes)
    if at is None and not request.say:
        raise BadInput(f"{place!r} names a run, but no place in it", remedy="Write run@call, or add --step or --low.")
    arguments = request.arguments() | ({"tap": _taps(options["taps"])} if options["taps"] else {})
    if memory is not None:
        arguments["memory"] = memory
    runner = runner_for(store, request, lambda ref: run_options.load_model(ref, options))
    if (data := data_options.dataset_of(options)) is not None:
        runner.taskset = data
    if not request.model and (differs := other_weights(run, at, runner)):
        common.say(f"note: {differs}")
    with run_options.interruptible(run_options.resume_line(options)), run_options.watching(n, "forks") as watch:
        group = runner.fork(run, **arguments, on_run=watch)
    _report(run, group, as_json)
    if all(fork.stop == StopReason.AGENT_ERROR for fork in group):
        raise agent_failed(group, f"all {len(group)} forks" if len(group) > 1 else "the fork")


def _report(run: Run, group: Group, as_json: bool) -> None:
    from clew.view.terminal import tree

    if as_json:
        rows = [
            {"run": f.id, "reward": f.reward, "stop": f.stop, "calls": len(f.calls), "shared": f.shared} for f in group
        ]
        common.end_with_json({"parent": run.id, "group": group.id, "at": str(group[0].parent), "forks": rows})
    common.draw(tree(run, group, width=common.width()))


def waits(run: Run, at: Cursor | None, without: str | None) -> BadInput:
    """A run of the gateway's has no agent here: its program is the agent."""
    line = command_line("gateway", place=at or (run.id if without else f"{run.id}@CALL"), without=without)
    told = f"run {run.id} records a program that asked the gateway, and a fork of it starts that program again"
    return BadInput(told, remedy=f"Write the program after this line: {line} -- PROGRAM")


def _taps(lines: tuple[str, ...]) -> list[Tap]:
    from clew.models.taps.lines import tap_of

    return [tap_of(line) for line in lines]


def said(text: str) -> tuple[str, str | None]:
    place, equals, value = text.partition("=")
    pieces = place.split(".")
    if not equals or not all(piece.isdigit() for piece in pieces) or len(pieces) > 2:
        raise BadInput(f"--say {text!r} names no message", remedy="Write its index and new text: --say 0='Be quick.'")
    return place, value or None
