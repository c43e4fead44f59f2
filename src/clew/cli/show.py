"""clew show: one run as a tree."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from clew.cli.shared import common

if TYPE_CHECKING:
    from clew.store import Run


@click.command(short_help="Show runs as trees: steps, tokens, rewards, grades, forks.")
@click.argument("runs", nargs=-1, required=True)
@click.option("--full", is_flag=True, help="Whole texts, and what models thought.")
@click.option("--depth", default=1, show_default=True, help="2 draws forks whole, 3 their forks, ...")
@click.option("--width", default=0, help="Characters of a line; 0 takes the terminal's.")
@common.json_option
@common.store_option
def command(runs: tuple[str, ...], full: bool, depth: int, width: int, as_json: bool, store_path: str) -> None:
    """Show runs as trees.

    RUNS are ids, the first letters of ids, tags, or a query. Places in a run are written run@call, as `clew fork`
    takes them.

    \b
    clew show 4fzk2w
    clew show 4fzk2w --full
    clew show tag:keep --json
    """
    from clew.view.terminal import tree

    store = common.open_store(store_path)
    chosen = common.some(store, runs)
    if as_json:
        common.print_json([record(run) for run in chosen])
        return
    console = common.console()
    for run in chosen:
        console.print(tree(run, full=full, depth=depth, width=width or max(console.width - 30, 40)))


def record(run: Run) -> dict[str, Any]:
    """A run as JSON: how it is started again, its Calls, and what was said of them."""
    store = run.store
    calls = []
    for call in run.calls:
        row = call._asdict()
        row["reply"] = store.node(call.node_out).message if call.node_out else None
        calls.append(row)
    return {
        **run.row._asdict(),
        "reward": run.reward,
        "stop": run.stop,
        "tags": run.tags,
        "calls": calls,
        "conversations": {index: run.conversation(index) for index in _conversations(run)},
        "annotations": [a._asdict() for a in run.annotations()],
    }


def _conversations(run: Run) -> list[int]:
    return sorted({call.conversation for call in run.calls if call.kind == "ask"})
