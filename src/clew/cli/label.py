"""clew label: say something of a run, a call or a span of a reply: stars, a verdict, a note."""

from __future__ import annotations

import getpass
import time
from typing import TYPE_CHECKING, Any

import click

from clew.cli.shared import common, option
from clew.cli.shared.next_lines import command_line
from clew.core.errors import BadInput

if TYPE_CHECKING:
    from clew.store import Keeper
    from clew.store.labels import Label

STARS_HELP = "From 1 to 5, the most for the best."
BY_HELP = "who says it (or set CLEW_AUTHOR).  [default: your login name]"
CLEAR_HELP = "Take back what you said: stars, verdict, note or all. It stays in the record."


@click.command(short_help="Label runs, calls and spans of replies: stars, verdicts, notes.")
@click.argument("place", required=False)
@option("--stars", type=int, help=STARS_HELP)
@option("--verdict", default="", help="One word of --verdicts.")
@option("--note", default="", help="A text of up to 20,000 characters.")
@option("--by", envvar="CLEW_AUTHOR", only_with=("--stars", "--verdict", "--note", "--clear"), help=BY_HELP)
@option("--clear", multiple=True, type=click.Choice(["stars", "verdict", "note", "all"]), help=CLEAR_HELP)
@common.verdicts_of(only_with="--verdict")
@common.output_options
def command(
    place: str | None,
    by: str | None,
    clear: tuple[str, ...],
    verdicts: str,
    as_json: bool,
    store_path: str,
    **said: Any,
) -> None:
    """Label a run, a call (run@call) or a span of a reply (run@call+start:stop), or print the labels there are.

    Without --stars, --verdict, --note and --clear, the labels of PLACE are printed, or all labels of the store. What
    several people say lies side by side. What you say later of the same place stands; what you said earlier stays in
    the record. A span counts the tokens of the reply from 0, or characters where the reply has no tokens.

    \b
    clew label 4fzk2w --stars 4 --verdict good
    clew label 4fzk2w@12 --verdict bad --note 'the refund was not asked for'
    clew label 4fzk2w@12+3:9 --note 'made up' --by ann
    clew label 4fzk2w --clear stars
    clew label --json
    """
    from clew.store import labels

    known = labels.verdict_set(verdicts)
    store = common.open_store(store_path)
    if said["stars"] is None and not any((said["verdict"], said["note"], clear)):
        _print(store, place, as_json)
        return
    if place is None:
        raise BadInput("nothing is named that could be labelled", remedy="Name a run, or a place in one: run@call.")
    run, found, span = place.partition("@")
    whole = common.one(store, run).id + found + span
    withdraw = labels.ASPECTS if "all" in clear else clear
    entry = labels.put(store, whole, by=by or author(), withdraw=withdraw, verdicts=known, **said)
    stands = next((e for e in labels.current(store, [entry.run]) if (e.place, e.by) == (entry.place, entry.by)), None)
    if as_json:
        common.end_with_json(labels.as_json(stands or entry, stands is not None))
    common.echo(f"{entry.place}  {labels.said(stands) if stands else f'nothing by {entry.by}'}")
    common.echo(
        f"\nNext:\n  {command_line('log', 'has=label')}\n  {command_line('export', 'labels.jsonl', labels=True)}"
    )


def author() -> str:
    """The login name, for labels; where there is none, they must say who speaks.

    Raises:
        BadInput: nobody is logged in.
    """
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        raise BadInput("nobody knows who you are", remedy="Give a name with --by, or set CLEW_AUTHOR.") from None


def _print(store: Keeper, place: str | None, as_json: bool) -> None:
    """What stands of a run's labels, or of all."""
    from clew.store import labels

    if place is None:
        found = labels.current(store)
    elif "@" in place:
        at, run = labels.found(store, place), common.one(store, place.partition("@")[0])
        found = [e for e in run.labels if (e.run, e.seq) == (at.run, at.seq) and at.span in (None, e.span)]
    else:
        found = common.one(store, place).labels
    if as_json:
        common.end_with_json([labels.as_json(e, True) for e in found])
    if not found:
        where = f"{place} has" if place else "the store holds"
        common.echo(f"{where} no labels; what makes one: {command_line('label', place or 'RUN', verdict='good')}")
        return
    common.print_table(("place", "when", "by", "stars", "verdict", "note"), map(_row, found))


def _row(e: Label) -> tuple[object, ...]:
    return e.place, time.strftime("%m-%d %H:%M", time.localtime(e.at)), e.by, e.stars, e.verdict, e.note
