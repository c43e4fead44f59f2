"""clew tour: eighteen methods, one after another, on one store, each by lines that anybody can type."""

from __future__ import annotations

import shlex
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from clew.cli.shared import common, option, project, run_options
from clew.cli.shared.next_lines import command_line
from clew.core.errors import BadInput, UnknownName

FOLDER, QUICK = Path(".clew") / "tour", Path(".clew") / "tour-quick"
FOLDER_HELP = f"Folder of the store and of all that the tour makes.  [default: {FOLDER}; with --quick {QUICK}]"
PAGE = "tour.html"
COLUMNS = ("stop", "paper", "asks", "method", "arxiv")
ONLY_HELP = "Walk this stop alone, and what it builds on; may be repeated."


@click.command(short_help="Walk all eighteen methods on one store, in minutes.")
@option("--only", multiple=True, metavar="STOP", not_with="--list", help=ONLY_HELP)
@option("--list", "listed", is_flag=True, help="List the stops, and stop.")
@option("--quick", is_flag=True, not_with="--list", help="Make everything as small as still runs.")
@option("--folder", type=click.Path(path_type=Path, file_okay=False), not_with="--list", help=FOLDER_HELP)
@common.json_option
def command(only: tuple[str, ...], listed: bool, quick: bool, folder: Path | None, as_json: bool) -> None:
    """Walk all eighteen methods on one store, in a quarter of an hour on two cores.

    Each stop asks a question, prints the lines that answer it and runs them as printed, and says in one figure with n
    and interval what came out, what that means, and where the page of `clew view` shows more. At the end everything
    stands on one page. A tour that was interrupted goes on with the same line.

    \b
    clew tour
    clew tour --only cliffs
    clew tour --list
    """
    from clew.cli.touring.stops import STOPS, needed

    if listed:
        show_stops(as_json)
        return
    for name in only:
        if name not in STOPS:
            raise UnknownName(f"the tour has no stop {name!r}", remedy=f"Known: {', '.join(STOPS)}.")
    if (own := project.present()) is not None:
        remedy = "Walk the tour in a folder outside that project."
        raise BadInput(f"the tour's lines would take defaults from {own.path}", remedy=remedy)
    began, place = time.perf_counter(), folder or (QUICK if quick else FOLDER)
    with run_options.interruptible("the same line again"):
        said, lacking = walk(place, needed(only), quick)
    finish(place, said, lacking, time.perf_counter() - began, as_json)


def show_stops(as_json: bool) -> None:
    """List the stops: names, questions and sources."""
    from clew.cli.touring.stops import STOPS

    rows = [(stop.name, stop.paper, stop.asks, stop.method, stop.arxiv) for stop in STOPS.values()]
    if as_json:
        common.end_with_json([dict(zip(COLUMNS, row, strict=True)) for row in rows])
    common.print_table(COLUMNS, rows)


def walk(folder: Path, names: Sequence[str], quick: bool) -> tuple[list[Mapping[str, Any]], dict[str, str]]:
    """Walk stops in their order; gives what they said, and why others could not be walked."""
    from clew.cli.touring.journey import Failed, take, walked
    from clew.cli.touring.stops import STOPS

    said: list[Mapping[str, Any]] = []
    lacking: dict[str, str] = {}
    store = folder / "store.db"
    common.say(f"one store for all of it, where each line finds it:\n  $ export CLEW_STORE={shlex.quote(str(store))}")
    for number, name in enumerate(names, 1):
        stop = STOPS[name]
        common.say(f"\n{number}/{len(names)}  {stop.method}  ({stop.name}{', ' + stop.paper if stop.paper else ''})")
        common.say(f"  {stop.asks}")
        missing = next((other for other in stop.after if other in lacking), "")
        if missing or (program := stop.lacking()):
            lacking[name] = f"the stop {missing} was not walked" if missing else f"{program} is not installed"
            common.say(f"  did not run: {lacking[name]}")
            continue
        try:
            kept = walked(folder, stop, quick)
            told = kept if kept is not None else take(folder, stop, quick)
        except Failed as error:
            lacking[name] = " ".join(error.remedy.rpartition("clew: ")[2].split()) or error.message
            common.say(f"  failed: {error.message}\n{error.remedy}")
            continue
        tell(told, store)
        said.append(told)
    return said, lacking


def tell(said: Mapping[str, Any], store: Path) -> None:
    """Print what a stop said."""
    from clew.cli.touring.journey import figure_text

    for what in (said["figure"], said["control"]):
        if what is not None:
            common.say(f"  {figure_text(what, said['unit'])}  {what['claim']}")
    common.say(f"  {said['means']} ({said['seconds']:.0f} s)")
    common.say(f"  {command_line('view', page=said['place'], store_path=str(store))}")


def finish(
    folder: Path, said: Sequence[Mapping[str, Any]], lacking: Mapping[str, str], seconds: float, as_json: bool
) -> None:
    """Write the page, file the figures in the store, and say where both are; exit 1 where a stop failed."""
    from clew.cli.touring.filing import file_reports
    from clew.cli.touring.tour_page import page

    store = folder / "store.db"
    if said:
        with common.open_store(str(store), create=True) as kept:
            file_reports(kept, said)
        (folder / PAGE).write_text(page(said, lacking, str(store), onwards(said, str(store))))
    if as_json:
        common.print_json({"stops": list(said), "did not run": dict(lacking), "page": str(folder / PAGE)})
    else:
        common.echo(f"\n{len(said)} stops, {seconds:.0f} s; {len(lacking)} did not run")
        for name, why in lacking.items():
            common.echo(f"  {name}: {why}")
        if said:
            common.echo(f"page  {folder / PAGE}\n\nNext:")
            for typed, purpose in onwards(said, str(store)).items():
                common.echo(f"  {typed}\n      {purpose}")
    if lacking:
        raise click.exceptions.Exit(1)


def onwards(said: Sequence[Mapping[str, Any]], store: str) -> dict[str, str]:
    """Lines to type next, and what each is for."""
    names = {stop["stop"] for stop in said}
    lines = {
        command_line("view", page="reports?q=tour", store_path=store): "Look at the same figures, and at every run"
    }
    if names >= {"credit", "cliffs", "grade"}:
        asked = command_line("log", "g2po<-1 grade<0 steps>5", store_path=store)
        lines[asked] = "Ask for runs by the values of several methods"
        lines[command_line("audit methods", "name=flat/*", store_path=store)] = "See which methods agree on these runs"
    return lines
