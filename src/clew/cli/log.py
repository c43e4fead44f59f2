"""clew log: list runs."""

from __future__ import annotations

import time
from typing import Any

import click

from clew.cli import common


@click.command(short_help="List runs, newest first; filter with a query.")
@click.argument("query", nargs=-1)
@click.option("-n", "--limit", default=20, show_default=True, help="How many at most; 0 for all.")
@common.json_option
@common.store_option
def command(query: tuple[str, ...], limit: int, as_json: bool, store_path: str) -> None:
    """List runs, newest first.

    \b
    clew log
    clew log 'world=household return<0.5 steps>20'
    clew log 'tag:keep text:"open fridge"' --json
    """
    from clew.view.terminal import short

    store = common.open_store(store_path)
    runs = common.choose(store, query, limit=limit or None)
    tags: dict[str, list[str]] = {}
    for name, named in store.tags().items():
        for run in named:
            tags.setdefault(run, []).append(name)
    rows: list[dict[str, Any]] = [
        {
            "run": it.run,
            "task": it.task,
            "model": it.model,
            "steps": it.steps,
            "tokens": it.tokens,
            "reward": it.reward,
            "stop": it.stop or None,
            "cost": it.cost,
            "parent": it.parent or None,
            "group": it.group or None,
            "tags": tags.get(it.run, []),
            "created": it.created,
        }
        for it in (store.summary(run.id) for run in runs)
    ]
    if as_json:
        common.print_json(rows)
        return
    if not rows:
        click.echo("no run fits; `clew log` without a query lists all" if query else "the store holds no runs yet")
        return
    columns = ("run", "when", "task", "model", "steps", "tokens", "reward", "stop", "from", "tags")
    common.print_table(
        columns,
        [
            (
                row["run"],
                time.strftime("%m-%d %H:%M", time.localtime(row["created"])),
                row["task"],
                short(str(row["model"]).rstrip("/").rsplit("/", 1)[-1], 28),
                row["steps"],
                row["tokens"],
                row["reward"],
                row["stop"] or "unfinished",
                row["parent"],
                " ".join(row["tags"]),
            )
            for row in rows
        ],
    )
