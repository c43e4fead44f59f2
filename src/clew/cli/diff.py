"""clew diff: where two runs begin to differ."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import click

from clew.cli.shared import common, option

if TYPE_CHECKING:
    from clew.core.records import Call
    from clew.store import Run


@click.command(short_help="Show where two runs begin to differ, and how each goes on.")
@click.argument("left")
@click.argument("right")
@option("-n", "--lines", default=8, help="Calls of each run to show from there on.")
@common.output_options
def command(left: str, right: str, lines: int, as_json: bool, store_path: str) -> None:
    """Compare two runs call by call and show the first call that differs.

    \b
    clew diff 4fzk2w 7ab3kd
    """
    from clew.core.printable import short
    from clew.view.terminal import headline

    store = common.open_store(store_path)
    a, b = common.one(store, left), common.one(store, right)
    place = a.diff(b)
    if as_json:
        common.end_with_json({"left": a.id, "right": b.id, "parts_at": place.seq if place else None})
    common.echo(headline(a))
    common.echo(headline(b))
    if place is None:
        common.echo(f"equal: all {len(a.calls)} calls are the same")
        return
    common.echo(f"equal up to call {place.seq}; from there:")
    for one, other in itertools.islice(itertools.zip_longest(a.calls[place.seq :], b.calls[place.seq :]), lines):
        for mark, run, call in (("<", a, one), (">", b, other)):
            if call is not None:
                common.echo(f"  {mark} {run.id}@{call.seq}  {call.kind:<5} {short(_said(run, call), 80)}")


def _said(run: Run, call: Call) -> str:
    from clew.view.terminal import did, replied

    if call.kind == "ask":
        return replied(run.store, call) if call.node_out else call.error or "(no reply)"
    return f"{did(call)} → {call.text}" if call.kind == "act" else call.text or call.action
