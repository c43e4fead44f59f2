"""clew log: list runs."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from clew.cli.shared import common, option

if TYPE_CHECKING:
    from clew.store import Keeper


@click.command(short_help="List runs, newest first; a query filters them.")
@click.argument("query", nargs=-1)
@option("-n", "--limit", default=20, help="Most lines to list; 0 lists all.")
@option("--zero-variance", "--dead-groups", is_flag=True, help="Count groups whose runs all got the same reward.")
@common.output_options
def command(query: tuple[str, ...], limit: int, zero_variance: bool, as_json: bool, store_path: str) -> None:
    """List runs, newest first.

    With --zero-variance: one line for each collection or iteration, with the number of groups that give no training
    signal because all their runs got the same reward, and the reward components that still differ in those groups.

    \b
    clew log
    clew log 'world=household return<0.5 steps>20'
    clew log 'tag:keep text:"open fridge"' --json
    clew log --zero-variance name=first/*
    """
    store = common.open_store(store_path)
    if zero_variance:
        _zero_variance(store, query, limit, as_json)
        return
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
        common.end_with_json(rows)
    if not rows:
        click.echo("no run matches; `clew log` without a query lists all" if query else "the store holds no runs yet")
        return
    _runs(rows)


def _runs(rows: list[dict[str, Any]]) -> None:
    from clew.view.terminal import short

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


def _zero_variance(store: Keeper, query: tuple[str, ...], limit: int, as_json: bool) -> None:
    from clew.audit.zero_variance import zero_variance

    names = dict.fromkeys(run.group for run in reversed(common.choose(store, query)) if run.group)
    lines = zero_variance(store, [store.group(name) for name in names])
    lines = lines[-limit:] if limit else lines
    if as_json:
        common.end_with_json([{**line._asdict(), "share": line.share} for line in lines])
    if not lines:
        click.echo("no group with two or more runs matches; `clew run -n 8` makes some")
        return
    components = sorted({name for line in lines for name in line.alike} - {"reward"})
    columns = ("collection", "groups", "runs each", "zero variance", "all lost", "all won", "undecided")
    rows = [
        (
            x.label or "-",
            x.groups,
            x.leaves,
            x.zero_variance,
            x.lost,
            x.won,
            x.undecided,
            *(x.informative.get(c, 0) for c in components),
        )
        for x in lines
    ]
    common.print_table((*columns, *(f"{c} differs" for c in components)), rows)
    total = sum(line.groups for line in lines)
    counts = ("zero_variance", "lost", "won", "undecided")
    flat, lost, won, open_ = (sum(getattr(x, f) for x in lines) for f in counts)
    click.echo(
        f"\n{flat / total:.0%} of {total} groups gave no signal: all runs failed in {lost} (too hard), all succeeded "
        f"in {won} (too easy), {open_} had fewer than two verdicts"
    )
