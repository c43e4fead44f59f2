"""clew store: name runs, unite stores, check the record, erase content, and remove runs that nothing uses."""

from __future__ import annotations

import click

from clew.cli.shared import common, option
from clew.cli.shared.next_lines import command_line
from clew.core.printable import visible

HELP = """Keep the store, the file that holds all runs: name runs, unite stores, check, erase and clean up.

\b
clew store tag keep 4fzk2w
clew store merge laptop.db
clew store verify
"""
SHORT = "Keep the store: tag, merge, verify, redact, clean up."
command = common.Ordered("store", help=HELP, short_help=SHORT)


@command.command(short_help="Give runs a name by which they are found and kept; list tags.")
@click.argument("name", required=False)
@click.argument("runs", nargs=-1)
@option("-d", "--delete", is_flag=True, help="Remove the tag instead.")
@common.output_options
def tag(name: str | None, runs: tuple[str, ...], delete: bool, as_json: bool, store_path: str) -> None:
    """Give the chosen runs the tag NAME; without NAME, list all tags. `clew store gc` never removes a tagged run.

    \b
    clew store tag                         # lists tags
    clew store tag keep 4fzk2w 7ab3kd
    clew store tag solved 'return>0.5'
    clew store tag -d keep 4fzk2w
    """
    store = common.open_store(store_path)
    if name is not None:
        if not runs:
            raise click.UsageError("name the runs to tag, as in: clew store tag keep 4fzk2w")
        for run in common.some(store, runs):
            (store.untag if delete else store.tag)(run.id, name)
        store.commit()
    tags = store.tags()
    shown = {key: value for key, value in tags.items() if name is None or key == name}
    if as_json:
        common.print_json(shown)
    elif shown:
        common.print_table(("tag", "runs"), [(key, " ".join(value)) for key, value in shown.items()])
    else:
        common.echo("no tags" if name is None else f"no run has the tag {name!r} now")


@command.command(short_help="Copy everything that other stores hold into this one.")
@click.argument("others", nargs=-1, required=True)
@common.output_options
def merge(others: tuple[str, ...], as_json: bool, store_path: str) -> None:
    """Copy everything that the stores OTHERS hold into this one. Run ids are globally unique, so nothing collides; a
    second merge changes nothing.

    \b
    clew store merge laptop.db cluster.db
    """
    sources = [common.open_store(path) for path in others]
    store = common.open_store(store_path, create=True)
    taken = {source.path: store.merge(source) for source in sources}
    if as_json:
        common.end_with_json(taken)
    for path, counts in taken.items():
        new = ", ".join(f"{count} {kind}" for kind, count in counts.items() if count)
        common.echo(f"{path}: {new or 'nothing new'}")


@command.command(short_help="Check that nothing in the store was altered or lost.")
@option("--rebuild", is_flag=True, help="Rebuild the derived tables (lists, search, summaries) first.")
@common.output_options
def verify(rebuild: bool, as_json: bool, store_path: str) -> None:
    """Compute every key again and check every rule of the record. Exit code 1 if a fault is found.

    \b
    clew store verify
    clew store verify --store runs.db --rebuild
    """
    store = common.open_store(store_path)
    if rebuild:
        store.rebuild()
    faults = store.verify()
    if as_json:
        common.print_json({"runs": len(store.run_ids()), "faults": [f._asdict() for f in faults]})
    else:
        for fault in faults:
            common.echo(f"{fault.where}: {fault.what}")
        common.echo(f"{len(store.run_ids())} runs, {len(faults) or 'no'} fault{'s' * (len(faults) != 1)}")
    if faults:
        raise SystemExit(1)


@command.command(short_help="Erase a message, action or result for good.")
@click.argument("target")
@option("--yes", is_flag=True, help="Do not ask for confirmation.")
@common.output_options
def redact(target: str, yes: bool, as_json: bool, store_path: str) -> None:
    """Erase the content of TARGET, a call (run@call) or a message (its node's hex key), and every repetition of the
    same text in related runs. The content cannot be brought back.

    Keys stay, so `clew store verify` still checks the rest. An erased call can no longer be replayed or forked.
    Annotations are not searched for the text.

    \b
    clew store redact 4fzk2w@12
    """
    store = common.open_store(store_path)
    if "@" in target:
        _, place = common.cursor(store, target)
        assert place is not None
        target = str(place._replace(token=0))
    if not yes:
        asked = f"Erase the content of {target} and its repetitions in {store.path} for good?"
        click.confirm(visible(asked), abort=True, err=True)
    places = store.redact(target)
    if as_json:
        common.end_with_json(places)
    for erased in places:
        common.echo(f"erased {erased}")
    if not places:
        common.echo("the content was erased before")


@command.command(short_help="List, or remove, runs that nothing uses.")
@option("--yes", is_flag=True, help="Remove the runs; without --yes they are only listed.")
@common.output_options
def gc(yes: bool, as_json: bool, store_path: str) -> None:
    """List the runs that no tag, label, group, fork or report uses, and remove them with --yes.

    To keep a run, give it a tag, as in `clew store tag keep RUN`.

    \b
    clew store gc
    clew store gc --yes
    """
    from clew.store import Run
    from clew.view.terminal import headline

    store = common.open_store(store_path)
    garbage = store.gc(dry_run=True)
    if not as_json:
        for name in garbage.runs[:20]:
            common.echo(headline(Run(store, name)))
        if len(garbage.runs) > 20:
            common.echo(f"and {len(garbage.runs) - 20} more")
    if yes:
        store.gc(dry_run=False)
    if as_json:
        sizes = {"calls": garbage.calls, "nodes": len(garbage.nodes), "blobs": len(garbage.blobs)}
        common.end_with_json({"runs": garbage.runs, **sizes, "removed": yes})
    remove = command_line("store gc", yes=True)
    common.echo(f"removed {garbage}" if yes else f"nothing reaches {garbage}; what removes it: {remove}")
