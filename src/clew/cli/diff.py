"""clew diff: where two runs begin to differ, or how the runs of two queries do, paired by task."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from clew.cli.shared import common, option
from clew.cli.shared.next_lines import command_line
from clew.core.errors import BadInput
from clew.core.printable import short

if TYPE_CHECKING:
    from clew.core.records import Call
    from clew.store import Keeper, Run

LINES_HELP = "Calls of each run to show from there on, or tasks that flipped either way."
KEPT = 60  # characters of a stretch of words that both prompts have


@click.command(short_help="Show where two runs begin to differ, or how two queries do.")
@click.argument("left")
@click.argument("right")
@option("-n", "--lines", default=8, not_with=("--files", "--json"), help=LINES_HELP)
@option("--files", is_flag=True, help="Compare the files of two runs instead, at their ends or each at RUN@CALL.")
@common.output_options
def command(left: str, right: str, lines: int, files: bool, as_json: bool, store_path: str) -> None:
    """Compare two runs call by call, or the runs of two queries task by task.

    A word with =, <, > or : in it is a query, as `clew log` takes it; any other word names a run: its id, the start of
    it, or a tag.

    Of two runs the first call that differs is shown. Of two queries, such as two checkpoints, prompts or models: the
    means and the difference of success, return, length and cost over the tasks that both have, with a 95 % interval,
    where a task counts once; the tasks that succeed on one side alone; and what differs in prompts and settings, where
    [-words-] stand on the left alone and {+words+} on the right.

    \b
    clew diff 4fzk2w 7ab3kd
    clew diff 4fzk2w@12 7ab3kd --files
    clew diff model=old model=new
    clew diff 'name=first.eval0/*' 'name=first.eval20/*' --json
    """
    from clew.store.names import is_query

    store = common.open_store(store_path)
    if files:
        _files(store, left, right, as_json)
        return
    meant = [is_query(word) for word in (left, right)]
    if all(meant):
        _queries(store, left, right, lines, as_json)
        return
    if any(meant):
        query, run = (left, right) if meant[0] else (right, left)
        remedy = f"Name two runs or two queries; a query of this run alone is id={common.one(store, run).id}."
        raise BadInput(f"{query!r} is a query, and {run!r} names a run", remedy=remedy)
    _runs(common.one(store, left), common.one(store, right), lines, as_json)


def _runs(a: Run, b: Run, lines: int, as_json: bool) -> None:
    from clew.view.terminal import headline

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


def _files(store: Keeper, left: str, right: str, as_json: bool) -> None:
    from clew.cli.checkout import diff_files
    from clew.serve.gateway.run_files import files_at

    sides = [common.cursor(store, word) for word in (left, right)]
    a, b = [(run, files_at(run, place)) for run, place in sides]
    diff_files(a, b, store.path, as_json)


def _said(run: Run, call: Call) -> str:
    from clew.store.run import did
    from clew.view.terminal import replied

    if call.kind == "ask":
        return replied(run.store, call) if call.node_out else call.error or "(no reply)"
    return f"{did(call)} → {call.text}" if call.kind == "act" else call.text or call.action


# ---- two queries -----------------------------------------------------------------------------------------------------


def _queries(store: Keeper, left: str, right: str, lines: int, as_json: bool) -> None:
    from clew.view.pages.compare import compare

    found = compare(store, left, right)
    for query, side in zip((left, right), found["sides"], strict=True):
        if not side["runs"]:
            raise BadInput(f"no run matches {query!r}", remedy="`clew log` lists the runs of the store.")
    if as_json:
        common.end_with_json({"left": left, "right": right, **found})
    for mark, query, side in zip("<>", (left, right), found["sides"], strict=True):
        read = f", of which the newest {side['read']:,} are compared" if side["read"] < side["runs"] else ""
        told = f"{side['runs']:,} runs of {side['tasks']:,} tasks{read}, {side['judged']:,} judged"
        common.echo(f"{mark} {query}: {told}, {side['runs'] and _crashed(side)} crashed")
    if found["same"]:
        common.echo(f"note: {found['same']:,} runs are on both sides")
    if not found["paired"]:
        common.echo("no task is on both sides, so that nothing can be paired")
    else:
        common.echo(f"\n{found['paired']:,} tasks on both sides, each counted once:")
        rows = [_figure(row) for row in found["metrics"] if row["n"]]
        common.print_table(("", "tasks", "<", ">", "difference", "95 % interval"), rows)
    for name, way, count in zip(("better", "worse"), (">", "<"), found["flipped"], strict=True):
        if count:
            common.echo(f"\n{count:,} tasks succeed on {way} alone:")
            common.print_table(("task", "<", ">", "run of <", "run of >"), map(_flip, found[name][:lines]))
    _told(found)
    flipped = [*found["worse"], *found["better"]]
    following = command_line("diff", *flipped[0]["runs"]) if flipped else command_line("view")
    common.echo(f"\nNext:\n  {following}")


def _crashed(side: Mapping[str, Any]) -> int:
    """How many of a side's ended runs crashed: ``compare`` gives their share."""
    return round(side["crashed"]["estimate"] * side["ended"]) if side["crashed"] else 0


def _figure(row: Mapping[str, Any]) -> tuple[object, ...]:
    gap = row["difference"]
    between = f"[{gap['low']:.3g}, {gap['high']:.3g}]" if gap["low"] is not None else gap["how"]
    return row["metric"], row["n"], row["a"], row["b"], f"{gap['estimate']:+.3g}", between


def _flip(row: Mapping[str, Any]) -> tuple[object, ...]:
    return row["task"], row["a"], row["b"], *row["runs"]


def _told(found: Mapping[str, Any]) -> None:
    """What differs in the first messages and in the settings."""
    if found["settings"]:
        common.echo("\nsettings that differ:")
        rows = [(row["name"], short(row["a"], KEPT), short(row["b"], KEPT)) for row in found["settings"]]
        common.print_table(("", "<", ">"), rows)
    other = [message for message in found["prompts"] if not message["equal"]]
    if other:
        common.echo(f"\nfirst messages that differ (of runs {' and '.join(runs[0] for runs in found['runs_read'])}):")
    for message in other:
        common.echo(f"  {message['role']}: {_words(message['words'])}")
    if any(found.get("prompts_vary", ())):
        common.echo("note: the system prompt is not the same in all runs of a side")


def _words(pieces: Sequence[tuple[str, str]]) -> str:
    """A difference by words on one line; long stretches that both have are cut in their middle."""
    out = []
    for op, text in pieces:
        if op == "=":
            cut = text if len(text) <= KEPT else f"{text[: KEPT // 2]} … {text[-KEPT // 2 :]}"
            out.append(cut)
        else:
            out.append(f"[-{text}-]" if op == "-" else f"{{+{text}+}}")
    return "".join(out).replace("\n", "⏎")
