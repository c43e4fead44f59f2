"""clew show: print runs as trees."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from clew.cli.shared import common, option
from clew.core.errors import BadInput

if TYPE_CHECKING:
    from clew.store import Run


WIDTH_HELP = "Characters in a line; 0 takes the terminal's width."
BY_HELP = "Print below each reply its tokens where METHOD gives the largest values: a feature, early, grade."


@click.command(short_help="Print runs as trees: steps, tokens, rewards, values, forks.")
@click.argument("runs", nargs=-1, required=True)
@option("--full", is_flag=True, not_with=("--files", "--json"), help="Print whole texts, and the reasoning of models.")
@option("--files", is_flag=True, help="Print instead what each step changed in the files that the run worked on.")
@option(
    "--depth",
    default=1,
    not_with=("--files", "--json"),
    help="Levels of forks to draw whole: 1 the run, 2 its forks, ...",
)
@option("--by", default="", metavar="METHOD", not_with="--files", help=BY_HELP)
@option("--width", default=0, show_default=False, not_with=("--files", "--json"), help=WIDTH_HELP)
@common.output_options
def command(runs: tuple[str, ...], full: bool, files: bool, as_json: bool, store_path: str, **how: Any) -> None:
    """Print runs as trees: each step with its action, reward, tokens and values, and the forks that begin there.

    RUNS are ids, the first letters of ids, tags, or a query. Places in a run are written run@call, as `clew fork`
    takes them.

    \b
    clew show 4fzk2w
    clew show 4fzk2w --full
    clew show 4fzk2w --files
    clew show 4fzk2w --by diff-3b0c55d1-f17
    clew show tag:keep --json
    """
    from clew.view.terminal import tree

    store = common.open_store(store_path)
    chosen, by = common.some(store, runs), how["by"]
    if files:
        from clew.cli.checkout import show_files

        show_files(chosen, store_path, as_json)
        return
    if by and not any(run.annotations(by, "tokens") for run in chosen):
        found = {a.method for run in chosen for a in run.annotations(target="tokens")}
        told = f"Methods with values here: {', '.join(sorted(found)[:12])}." if found else "No method gave them any."
        raise BadInput(f"{by!r} gives the tokens of these runs no values", remedy=told)
    if as_json:
        common.end_with_json([record(run) for run in chosen])
    wide = how["width"] or max(common.width() - 30, 40)
    for run in chosen:
        common.draw(tree(run, full=full, depth=how["depth"], width=wide, by=by))


def record(run: Run) -> dict[str, Any]:
    """A run as JSON: how to start it again, its calls, their annotations and labels."""
    from clew.store.labels import as_json

    store = run.store
    calls = []
    for call in run.calls:
        reply = store.node(call.node_out).message if call.node_out else None
        calls.append(call._asdict() | {"reply": reply})
    asked = sorted({call.conversation for call in run.calls if call.kind == "ask"})
    found = run.row._asdict() | {"reward": run.reward, "stop": run.stop, "tags": run.tags, "calls": calls}
    found["conversations"] = {index: run.conversation(index) for index in asked}
    found["labels"] = [as_json(label, True) for label in run.labels]
    return found | {"annotations": [a._asdict() for a in run.annotations()]}
