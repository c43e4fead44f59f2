"""Which paths differ between two snapshots of a folder, by their listings: folders that are equal are not read.

``clew checkout``, patches, replays in a folder and the viewer ask here. No content is ever read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from clew.worlds.workspace.tree_shelf import FOLDER, Entry, TreeShelf

Difference = tuple[str, Entry | None, Entry | None]


def each_change(shelf: TreeShelf, before: str, after: str) -> Iterator[Difference]:
    """Paths that differ in content, kind or mode between two listings, with both entries; None where there is none.

    A folder comes before what it holds. Listings are read as the iteration gets there, so that whoever asks may stop
    at a bound: a hostile listing can name more entries than any disk holds.

    Args:
        before, after: keys of the listings of the roots; an empty key stands for an empty folder.

    Raises:
        UnknownName, BadRecord: the shelf lacks a listing, or it is damaged.
    """
    stack = [_differing(shelf, before, after, "")]
    while stack:
        found = next(stack[-1], None)
        if found is None:
            stack.pop()
            continue
        path, old, new = found
        was, now = (entry.key if entry is not None and entry.kind == FOLDER else "" for entry in (old, new))
        inside = bool(was or now)
        if not (inside and old is not None and new is not None and (old.kind, old.mode) == (new.kind, new.mode)):
            yield found
        if inside:
            stack.append(_differing(shelf, was, now, f"{path}/"))


def _differing(shelf: TreeShelf, before: str, after: str, path: str) -> Iterator[Difference]:
    """What differs between two folders, but for times; not what differs in the folders that they hold."""
    old, new = ({entry.name: entry for entry in shelf.listing(key)} if key else {} for key in (before, after))
    for name in sorted({*old, *new}):
        a, b = old.get(name), new.get(name)
        if a is None or b is None or (a.kind, a.mode, a.state) != (b.kind, b.mode, b.state):
            yield path + name, a, b


def changes(shelf: TreeShelf, before: str, after: str) -> Mapping[str, tuple[Entry | None, Entry | None]]:
    """All of ``each_change``, sorted by path."""
    return {path: (old, new) for path, old, new in sorted(each_change(shelf, before, after), key=lambda one: one[0])}
