"""clew log: list runs."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from clew.cli.shared import common, option
from clew.cli.shared.next_lines import command_line

if TYPE_CHECKING:
    from clew.store import Keeper

FIELDS = (
    "run task model steps tokens reward stop cost parent group tags labels created stars verdicts labelled_by notes"
)
COLUMNS = "run when task model steps tokens reward stop from tags"


@click.command(short_help="List runs, newest first; a query filters them.")
@click.argument("query", nargs=-1)
@option("-n", "--limit", default=20, type=common.Amount(int, 0), help="Most lines to list; 0 lists all.")
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
    clew log has=label sort:-stars
    clew log --zero-variance name=first/*
    """
    from clew.store.labels import brief, by_run, columns

    store = common.open_store(store_path)
    if zero_variance:
        _zero_variance(store, query, limit, as_json)
        return
    runs = common.choose(store, query, limit=limit or None)
    tags: dict[str, list[str]] = {}
    for name, named in store.tags().items():
        for run in named:
            tags.setdefault(run, []).append(name)
    rows, told = [], by_run(store, [run.id for run in runs])
    for it in (store.summary(run.id)._asdict() for run in runs):
        known, said = {name: it[name] or None for name in ("stop", "parent", "group")}, told.get(it["run"], [])
        known |= {"tags": tags.get(it["run"], []), "labels": brief(said), **columns(said)}
        rows.append(common.pick(it | known, FIELDS))
    if as_json:
        common.end_with_json(rows)
    if not rows:
        every = f"no run matches; what lists all: {command_line('log')}"
        common.echo(every if query else "the store holds no runs yet")
        return
    _runs(rows)


def _runs(rows: list[dict[str, Any]]) -> None:
    from clew.core.printable import short

    lines, labelled = [], any(row["labels"] for row in rows)
    columns = f"{COLUMNS} labels" if labelled else COLUMNS
    for row in rows:
        when, tags = time.strftime("%m-%d %H:%M", time.localtime(row["created"])), " ".join(row["tags"])
        model = short(str(row["model"]).rstrip("/").rsplit("/", 1)[-1], 28)
        stop = row["stop"] or "unfinished"
        changed = {"when": when, "model": model, "stop": stop, "from": row["parent"], "tags": tags}
        changed["tokens"] = row["tokens"] or ""  # 0: nobody counted
        changed["labels"] = ", ".join(row["labels"])
        lines.append(common.pick(row | changed, columns).values())
    common.print_table(columns.split(), lines)


def _zero_variance(store: Keeper, query: tuple[str, ...], limit: int, as_json: bool) -> None:
    from clew.methods.compare.zero_variance import zero_variance

    names = dict.fromkeys(run.group for run in reversed(common.choose(store, query)) if run.group)
    lines = zero_variance(store, [store.group(name) for name in names])
    lines = lines[-limit:] if limit else lines
    if as_json:
        common.end_with_json([{**line._asdict(), "share": line.share} for line in lines])
    if not lines:
        common.echo("no group with two or more runs matches; `clew run -n 8` makes some")
        return
    components = sorted({name for line in lines for name in line.alike} - {"reward"})
    columns = ("collection", "groups", "runs each", "zero variance", "all lost", "all won", "undecided")
    rows = []
    for x in lines:
        counts = (x.groups, x.leaves, x.zero_variance, x.lost, x.won, x.undecided)
        rows.append((x.label or "-", *counts, *(x.informative.get(c, 0) for c in components)))
    common.print_table((*columns, *(f"{c} differs" for c in components)), rows)
    total = sum(line.groups for line in lines)
    fields = ("zero_variance", "lost", "won", "undecided")
    flat, lost, won, open_ = (sum(getattr(x, field) for x in lines) for field in fields)
    common.echo(
        f"\n{flat / total:.0%} of {total} groups gave no signal: all runs failed in {lost} (too hard), all succeeded "
        f"in {won} (too easy), {open_} had fewer than two verdicts"
    )
