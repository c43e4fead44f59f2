"""clew checkout: the files of a recorded run as they were at one of its calls, put into a fresh folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from clew.cli.shared import common
from clew.cli.shared.data_options import shelf_beside
from clew.cli.shared.next_lines import command_line
from clew.core.errors import BadInput

if TYPE_CHECKING:
    from clew.core.protocols import Taskset
    from clew.serve.gateway.run_files import Files
    from clew.store import Run
    from clew.worlds.workspace import TreeShelf

MOST = 12  # changed paths that a line names


def shelf_of(store: str) -> TreeShelf:
    """The shelf of trees beside a store."""
    from clew.worlds.workspace import TreeShelf

    return TreeShelf(shelf_beside(store))


def check_shelf(taskset: Taskset | None, store: str) -> None:
    """Refuse to record runs in files whose snapshots lie elsewhere than where `clew checkout` and `clew store` look.

    Raises:
        BadInput: its shelf is not beside the store.
    """
    from clew.worlds.workspace import FileTasks

    wanted = shelf_beside(store)
    if isinstance(taskset, FileTasks) and taskset.shelf.folder.resolve() != wanted.resolve():
        told = f"the world keeps its files in {taskset.shelf.folder}, which is not beside the store {store}"
        name = taskset.ref.partition("(")[0]
        raise BadInput(told, remedy=f"Name the place beside it: {name}(shelf={str(wanted)!r}, ...).")


@click.command(short_help="Bring back the files of a run as they were at a call.")
@click.argument("place", metavar="RUN[@CALL]")
@click.argument("folder", metavar="[FOLDER]", required=False, type=click.Path(path_type=Path))
@common.output_options
def command(place: str, folder: Path | None, as_json: bool, store_path: str) -> None:
    """Put the files of a run of `clew gateway --workspace` into a fresh FOLDER; without one list what changed.

    Files are those that stood when the request at or before CALL arrived; without a call those at the end of the run.
    Nothing is ever restored in place, or over files that are there.

    \b
    clew checkout 4fzk2w
    clew checkout 4fzk2w@12 before
    """
    from clew.serve.gateway.run_files import exits_of, files_at, files_of
    from clew.serve.noted_files import METHOD, left_out
    from clew.worlds.workspace import restore

    store = common.open_store(store_path)
    run, cursor = common.cursor(store, place)
    found, shelf = files_at(run, cursor), shelf_of(store_path)
    if folder is None:
        _listed(run.id, files_of(run), exits_of(run), shelf, as_json)
        return
    gone = left_out(store.annotations(sorted({run.id, *(call.run for call in run.calls)}), METHOD))
    erased = list[str]()
    count = restore(shelf, found.tree, folder, root=found.root, erased=erased, lacking=gone)
    missing = sorted(path for path in _lacking(shelf, found.tree, gone))
    told = {"folder": str(folder), "entries": count, "state": found.state, "left_out": found.left, "erased": erased}
    told["scrubbed"] = missing
    if as_json:
        common.end_with_json(told)
    left = f"; {found.left} paths that no snapshot can hold are missing" if found.left else ""
    common.echo(f"{count} files, folders and links in {folder}{left}")
    if erased:
        more = f" and {len(erased) - MOST} more" if len(erased) > MOST else ""
        common.echo(f"erased from all snapshots, and missing here: {', '.join(erased[:MOST])}{more}")
    if missing:
        more = f" and {len(missing) - MOST} more" if len(missing) > MOST else ""
        common.say(f"left out when the run was exported, for a credential in them: {', '.join(missing[:MOST])}{more}")


def _lacking(shelf: TreeShelf, tree: str, gone: Mapping[str, str]) -> Iterator[str]:
    """The paths of a snapshot whose contents were left out of the file that its run came in, and are not here."""
    from clew.worlds.workspace.tree_shelf import FOLDER

    lacking = {key for key in gone if key not in shelf}
    if lacking:
        yield from (path for path, entry in shelf.walk(tree) if entry.kind != FOLDER and entry.key in lacking)


def _listed(run: str, known: list[Files], exits: Mapping[int, list[int]], shelf: TreeShelf, as_json: bool) -> None:
    """What changed from one request to the next, and how the commands between them ended, where that is known."""
    from clew.worlds.workspace.tree_changes import changes

    rows, before = list[dict[str, Any]](), known[0].tree
    for one in known:
        changed = changes(shelf, before, one.tree)
        marks = ["+" if a is None else "-" if b is None else "*" for a, b in changed.values()]
        paths = [f"{mark}{path}" for mark, path in zip(marks, changed, strict=True)]
        at = one.seq if one.seq >= 0 else "end"
        rows.append({"call": at, "state": one.state[:12], "exits": exits.get(one.seq, []), "changed": paths})
        before = one.tree
    if as_json:
        common.end_with_json(rows)
    shown = []
    for row in rows:
        more = f" and {len(row['changed']) - MOST} more" if len(row["changed"]) > MOST else ""
        codes = [" ".join(map(str, row["exits"]))] if exits else []
        shown.append([row["call"], row["state"], *codes, "  ".join(row["changed"][:MOST]) + more])
    common.print_table(["call", "state", *(["exit"] if exits else []), "changed before it"], shown)
    last = next((row["call"] for row in reversed(rows) if row["call"] != "end"), None)
    common.echo(f"Next: {command_line('checkout', run if last is None else f'{run}@{last}', 'files-before')}")


def show_files(runs: list[Run], store: str, as_json: bool) -> None:
    """What each step changed in the files of runs, as patches: what ``clew show --files`` prints.

    Raises:
        UnknownName: a run was recorded without its files.
    """
    from clew.serve.gateway.run_files import files_at, files_of

    shelf, found = shelf_of(store), list[dict[str, Any]]()
    for run in runs:
        files_at(run, None)  # refuses a run without any
        for one, other in pairwise(files_of(run)):
            until = other.seq if other.seq >= 0 else "end"
            changed = _patches(shelf, one.tree, other.tree)
            found.append({"run": run.id, "from": one.seq, "to": until, "changed": changed})
    if as_json:
        common.end_with_json(found)
    for row in found:
        common.echo(f"{row['run']}@{row['from']} to {row['to']}" + ("" if row["changed"] else ": nothing changed"))
        _print_patches(row["changed"])
    common.echo(f"Next: {command_line('checkout', runs[0].id)}")


def diff_files(left: tuple[Run, Files], right: tuple[Run, Files], store: str, as_json: bool) -> None:
    """How the files of two runs differ: what ``clew diff --files`` prints."""
    changed = _patches(shelf_of(store), left[1].tree, right[1].tree)
    if as_json:
        common.end_with_json({"left": left[0].id, "right": right[0].id, "changed": changed})
    _print_patches(changed)
    if not changed:
        common.echo("equal: both runs have the same files there")
    common.echo(f"Next: {command_line('checkout', right[0].id)}")


def _patches(shelf: TreeShelf, before: str, after: str) -> list[dict[str, str]]:
    from clew.worlds.workspace import patches

    return [patch._asdict() for patch in patches(shelf, before, after)]


def _print_patches(changed: list[dict[str, str]]) -> None:
    for patch in changed:
        common.echo(f"  {patch['sign']} {patch['path']}")
        for text in patch["text"].splitlines():
            common.echo(f"      {text}")
