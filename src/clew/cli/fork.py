"""clew fork: run on from any step or token of a recorded run, with something changed or nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from clew.cli.shared import common, run_options
from clew.core.errors import BadInput

if TYPE_CHECKING:
    from clew.store import Run


@click.command(short_help="Run on from a step or token of a run, with something changed there or nothing.")
@click.argument("place")
@click.option("--step", type=int, help="Fork before this step (negative counts from the end).")
@click.option("--low", metavar="METHOD", help="Fork where METHOD says the run lost most; see `clew credit`.")
@click.option("-n", "--n", "n", default=1, show_default=True, help="How many forks.")
@click.option("--reply", help="The model's whole reply at the place.")
@click.option("--prefix", help="The first words of its reply; the rest is sampled.")
@click.option("--prefix-ids", help="The same as token ids: 17,4,93.")
@click.option("--result", help="What the world answers at the place.")
@click.option(
    "--say", "said", multiple=True, metavar="I=TEXT", help="Edit message I of the agent ([chat.]I; '' drops it)."
)
@click.option("--act", "acts", multiple=True, help="Perform this in the world first; may be repeated.")
@click.option("--model", help="Another model from the place on.")
@click.option("--seed", help="same, fresh or a number.  [default: same if something is changed, else fresh]")
@click.option("--keep", is_flag=True, help="Force the later replies as they were, where they still come up.")
@run_options.model_options
@run_options.sampling_options
@common.json_option
@common.store_option
def command(place: str, n: int, as_json: bool, store_path: str, **options: Any) -> None:
    """Fork a run.

    PLACE is run@call or run@call+token, as `clew show` prints it; or a run, with --step or --low.

    \b
    clew fork 4fzk2w@7 -n 4
    clew fork 4fzk2w --low g2po -n 4
    clew fork 4fzk2w@7 --reply 'open drawer'
    clew fork 4fzk2w@7+3 --temperature 0
    clew fork 4fzk2w --say 0='You are in a hurry.' --keep
    """
    from clew.view.forking import Wish, runner_for

    store = common.open_store(store_path)
    run, at = common.cursor(store, place, options["step"])
    if options["low"]:
        at = run.low_point(options["low"])
    names = ("reply", "prefix", "result", "temperature", "max_tokens", "top_p", "keep")
    wish = Wish(
        run=run.id,
        seq=at.seq if at else None,
        token=at.token if at else 0,
        n=n,
        prefix_ids=_ids(options["prefix_ids"]),
        say=dict(_said(text) for text in options["said"]),
        act=options["acts"],
        model=options["model"] or "",
        seed=options["seed"] or "",
        **{name: options[name] for name in names},
    )
    if at is None and not wish.say:
        raise BadInput(f"{place!r} names no place in the run", remedy="Write run@call, or add --step or --low.")
    arguments = wish.arguments()
    runner = runner_for(store, wish, lambda ref: run_options.load_model(ref, options))
    if not wish.model:
        _say_versions(run, at, runner.model)
    with run_options.interruptible("clew resume"), run_options.watching(n, "forks") as watch:
        group = runner.fork(run, **arguments, on_run=watch)
    _report(run, group, as_json)


def _report(run: Run, group: Any, as_json: bool) -> None:
    from clew.view.terminal import tree

    if as_json:
        rows = [
            {"run": f.id, "reward": f.reward, "stop": f.stop, "calls": len(f.calls), "shared": f.shared} for f in group
        ]
        common.print_json({"parent": run.id, "group": group.id, "at": str(group[0].parent), "forks": rows})
        return
    console = common.console()
    console.print(tree(run, group, width=console.width))


def _say_versions(run: Run, at: Any, model: Any) -> None:
    """Weights move on while they are trained: say so when the ones at hand are not those that made the run."""
    made = {call.setup.version for call in run.calls[at.seq if at else 0 :] if call.setup is not None}
    if model is not None and made and model.version not in made:
        click.echo(
            f"note: version {max(made)} of {run.model} sampled this run, loaded is version {model.version};"
            " name a checkpoint with --model to fork with other weights",
            err=True,
        )


def _ids(text: str | None) -> tuple[int, ...]:
    try:
        return tuple(int(piece) for piece in text.split(",")) if text else ()
    except ValueError as error:
        raise BadInput(f"--prefix-ids {text!r}", remedy="Write numbers with commas: 17,4,93.") from error


def _said(text: str) -> tuple[str, str | None]:
    place, equals, value = text.partition("=")
    pieces = place.split(".")
    if not equals or not all(piece.isdigit() for piece in pieces) or len(pieces) > 2:
        raise BadInput(f"--say {text!r}", remedy="Write the message's index and its new text: --say 0='Be quick.'")
    return place, value or None
