"""clew store: name runs, unite stores, check the record, erase content, and remove runs that nothing uses."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from clew.cli import store_files
from clew.cli.shared import common, option, run_options
from clew.cli.shared.next_lines import command_line
from clew.core.errors import BadInput, LeaseHeld
from clew.core.printable import visible

if TYPE_CHECKING:
    from clew.store.base import Keeper

HELP = """Keep the store, the file that holds all runs: name runs, unite stores, check, erase, clean up, let agents ask.

\b
clew store tag keep 4fzk2w
clew store merge laptop.db
clew store verify
clew store mcp
"""
SHORT = "Keep the store: tag, merge, verify, redact, clean up."
command = common.Ordered("store", help=HELP, short_help=SHORT)


@command.command(short_help="Give runs a name by which they are found and kept; list tags.")
@click.argument("name", required=False)
@click.argument("runs", nargs=-1)
@option("-d", "--delete", is_flag=True, only_with="NAME", help="remove the tag instead.")
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
    taken = {}
    for source in sources:
        size = store_files.taken(store, source)  # first, so that no run names files that are not there yet
        taken[source.path] = store.merge(source) | ({"bytes of files": size} if size else {})
    if as_json:
        common.end_with_json(taken)
    for path, counts in taken.items():
        new = ", ".join(f"{count} {kind}" for kind, count in counts.items() if count)
        common.echo(f"{path}: {new or 'nothing new'}")


@command.command(short_help="Check that nothing in the store was altered or lost.")
@option("--rebuild", is_flag=True, help="Rebuild the derived tables (lists, search, summaries) first.")
@common.output_options
def verify(rebuild: bool, as_json: bool, store_path: str) -> None:
    """Compute every key again and check every rule of the record, and the files that runs of `clew gateway
    --workspace` need. Exit code 1 if a fault is found.

    \b
    clew store verify
    clew store verify --store runs.db --rebuild
    """
    from clew.store.verify import guarded, keys_checked

    store = common.open_store(store_path)
    if rebuild:
        store.rebuild()
    faults = [*store.verify(), *guarded("files", partial(store_files.faults, store))]
    checked = keys_checked(store)
    runs, redacted = len(store.run_ids()), checked.made - checked.could_differ
    if as_json:
        told = {"runs": runs, "faults": [f._asdict() for f in faults]}
        common.print_json(told | {"redacted": redacted, "comparisons": checked.json()})
    else:
        for fault in faults:
            common.echo(f"{fault.where}: {fault.what}")
        many = f"{len(faults)} fault{'s' * (len(faults) != 1)}"
        common.echo(f"{runs} runs, {many if faults else checked.verdict('no faults')}")
        if redacted:
            common.echo(f"{redacted} calls and messages are redacted: their keys are there, and cannot be checked")
    if faults:
        raise SystemExit(1)


@command.command(short_help="Erase runs, calls, messages or a text for good.")
@click.argument("targets", nargs=-1, metavar="[TARGET]...")
@option("--text", "texts", multiple=True, metavar="TEXT", help="Erase TEXT wherever it stands; - reads it from stdin.")
@option("--files", "path", metavar="PATH", help="Erase the file or folder PATH out of the snapshots of the run TARGET.")
@option("--yes", is_flag=True, help="Do not ask for confirmation.")
@common.output_options
def redact(
    targets: tuple[str, ...], texts: tuple[str, ...], path: str | None, yes: bool, as_json: bool, store_path: str
) -> None:
    """Erase content for good. It is told first how much stands where. Each TARGET is a run, its tag or a query of runs
    (all that these runs say, were asked and were started with), a call (run@call), or a message (its node's hex key);
    every repetition of the same texts in related runs goes too.

    With --text, everything that holds TEXT in any run of the store: messages, calls, tasks, settings, labels, notes,
    reports, memories, snapshots, folders of forks. A message or call goes whole, elsewhere the text alone. A byte
    search of the store and of its side folders then proves that nothing is left; exit code 1 if something is.

    With --files all that PATH ever held is erased from the snapshots of its folder, wherever any run has the same
    content, also as git keeps it (packs of git and archives are not searched). Names and digests stay; `clew checkout`
    brings back the rest.

    A tombstone stays in each place and shows as "(redacted)". Keys stay, so `clew store verify` still checks the rest.
    A redacted run can be neither replayed nor forked at or behind what is gone. `clew store merge` of an older copy
    does not bring it back. Exports that were made before are not known to the store.

    \b
    clew store redact 4fzk2w@12
    clew store redact 4fzk2w 'tag:private'
    clew store redact --text 'Ada Lovelace'
    clew store redact 4fzk2w --files config/secrets.env
    """
    store = common.open_store(store_path)
    if sum((bool(texts), path is not None)) > 1 or (texts and targets):
        raise BadInput("--text erases in all runs", remedy="Leave out TARGET and --files, or --text.")
    if not texts and not targets:
        raise click.UsageError("name what to erase: a run, a query, run@call, a message's key, or --text TEXT")
    if path is not None:
        _redact_files(store, common.one(store, " ".join(targets)).id, path, yes, as_json)
        return
    if texts:
        _redact_text(store, [_typed(text) for text in texts], yes, as_json)
    else:
        _redact_targets(store, targets, yes, as_json)


def _typed(text: str) -> str:
    return sys.stdin.read().rstrip("\n") if text == "-" else text


def _redact_text(store: Keeper, texts: list[str], yes: bool, as_json: bool) -> None:
    """Erase texts wherever they stand, and prove by a byte search that they are gone."""
    from clew.store.redaction import done, of_words

    plan = of_words(store, texts)
    found = store_files.copies(store, plan.words)
    counts = {**plan.counts, **found.counts}
    _ask(store, "all that holds the text", counts, yes, as_json)
    places = done(store, plan)
    store_files.erase_copies(store, found)
    left = store.holding(plan.words) | dict.fromkeys(store_files.copies(store, plan.words).left, 1)
    if as_json:
        common.print_json({"erased": places, "counts": counts, "left": left})
    else:
        _say(places, counts)
        for where, count in left.items():
            common.echo(f"still there: {where}: {count}")
        if not left:
            common.echo("a byte search of the store, its log and its side folders finds nothing of it")
    if left:
        raise SystemExit(1)


def _redact_targets(store: Keeper, targets: tuple[str, ...], yes: bool, as_json: bool) -> None:
    """Erase runs, calls and messages with their repetitions."""
    from clew.store.redaction import done, of_place, of_runs

    runs, places = list[str](), list[str]()
    for target in targets:
        if "@" in target:
            _, place = common.cursor(store, target)
            assert place is not None
            places.append(str(place._replace(token=0)))
        elif re.fullmatch("[0-9a-f]{32}", target):
            places.append(target)
        else:
            runs += [run.id for run in common.some(store, [target])]
    folders = store_files.forks_of(store, runs)
    plans = [of_place(store, place) for place in places] + ([of_runs(store, runs)] if runs else [])
    counts = dict[str, int]()
    for plan in plans:
        counts = {name: counts.get(name, 0) + plan.counts.get(name, 0) for name in {**counts, **plan.counts}}
    counts |= {"folders of forks": len(folders)} if folders else {}
    _ask(store, ", ".join([*places, *runs][:20]), counts, yes, as_json)
    erased = list[str]()
    for target in places:  # each plan is made anew: one may hold what another erased
        erased += done(store, of_place(store, target))
    if runs:
        erased += done(store, of_runs(store, runs))
    for folder in folders:
        shutil.rmtree(folder)
    others = sum(count for name, count in store.holding(plans[-1].words).items() if not name.startswith("file"))
    if as_json:
        common.end_with_json({"erased": erased, "counts": counts, "elsewhere": others})
    _say(erased, counts)
    if others:
        common.echo(f"note: {others} rows of other runs hold one of the same texts; --text erases a text everywhere")


def _ask(store: Keeper, what: str, counts: Mapping[str, int], yes: bool, as_json: bool) -> None:
    """Say how much stands where, and ask whether to erase it.

    Raises:
        LeaseHeld: runs are being written, so that more of it may come.
    """
    if leased := store.leased():
        raise LeaseHeld(f"{len(leased)} runs are being written", remedy="Stop those processes first: `clew stop`.")
    told = ", ".join(f"{count} {name}" for name, count in counts.items()) or "nothing that is still there"
    if not as_json:
        common.echo(f"to be erased: {told}")
    if not yes:
        click.confirm(visible(f"Erase {what} in {store.path} for good?"), abort=True, err=True)


def _say(places: list[str], counts: Mapping[str, int]) -> None:
    for erased in places[:40]:
        common.echo(f"erased {erased}")
    if len(places) > 40:
        common.echo(f"and {len(places) - 40} more places")
    if not counts:
        common.echo("the content was erased before")
    common.echo(f"Next: {command_line('store verify')}")


def _redact_files(store: Keeper, run: str, path: str, yes: bool, as_json: bool) -> None:
    """Erase what a path held in the snapshots of a run."""
    from clew.worlds.workspace.tree_upkeep import erase

    found = store_files.held(store, run, path)
    if not as_json:
        for at in found.paths[:20]:
            common.echo(at)
        if len(found.paths) > 20:
            common.echo(f"and {len(found.paths) - 20} more paths with the same contents")
    if not yes:
        asked = f"Erase the {len(found.keys)} contents that these paths had in any snapshot, for good?"
        click.confirm(asked, abort=True, err=True)
    erased = erase(found.shelf, found.keys)
    if as_json:
        common.end_with_json({"erased": erased, "paths": found.paths, "packs": found.packs})
    common.echo(f"erased {len(erased)} contents" if erased else "the contents were erased before")
    if found.packs:
        common.echo("note: snapshots hold packs of git or archives called .pack, which may hold copies")
    common.echo(f"Next: {command_line('store verify')}")


@command.command(short_help="List, or remove, runs that nothing uses.")
@option("--yes", is_flag=True, help="Remove the runs; without --yes they are only listed.")
@common.output_options
def gc(yes: bool, as_json: bool, store_path: str) -> None:
    """List the runs that no tag, label, group, fork or report uses, and remove them with --yes.

    With them go the files of `clew gateway --workspace` that no run needs any more, of this store or of another one in
    its folder; snapshots of the last hour are kept. To keep a run, give it a tag, as in `clew store tag keep RUN`.

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
    count, size = store_files.sweep(store, garbage.runs, remove=False)
    if yes:
        store.gc(dry_run=False)
        count, size = store_files.sweep(store, [], remove=True)
    if as_json:
        sizes = {"calls": garbage.calls, "nodes": len(garbage.nodes), "blobs": len(garbage.blobs)}
        files = {"files": count, "bytes": size}
        common.end_with_json({"runs": garbage.runs, **sizes, **files, "removed": yes})
    remove = command_line("store gc", yes=True)
    told = f"{garbage}" + (f", {count:,} files of runs with {size:,} bytes" if count else "")
    common.echo(f"removed {told}" if yes else f"nothing reaches {told}; what removes it: {remove}")


@command.command(short_help="Let agents ask the store, by MCP on the standard streams.")
@option("--allow-fork", is_flag=True, help="Offer the tool fork too: it asks a model and runs agents' code.")
@option("--model", default="", only_with="--allow-fork", help="the model that forks ask.  [default: the run's own]")
@run_options.models_of(only_with="--allow-fork")
@common.store_option
def mcp(allow_fork: bool, model: str, store_path: str, **options: Any) -> None:
    """Serve the store to agents by the Model Context Protocol (extra mcp), on the standard streams until they close.

    Tools: find (as `clew log`), show, diff and, with --allow-fork, fork. Answers are bounded and paged. A fork costs
    what its model costs and runs the code of the recorded agent: without --allow-fork nothing is run and nothing is
    written.

    \b
    clew store mcp --store runs.db
    claude mcp add clew -- clew store mcp --store runs.db
    """
    import asyncio

    from clew.harness.tool_server import serve, server
    from clew.view.store_tools import ABOUT, StoreTools

    common.open_store(store_path).close()  # one that is not there is said now
    load = partial(run_options.load_model, options=options) if allow_fork else None
    offered = StoreTools(partial(common.open_store, store_path), load, model)
    asyncio.run(serve(server(offered, "clew-store", "mcp", ABOUT)))
