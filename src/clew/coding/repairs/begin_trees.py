"""Snapshots that tasks of repairs begin with and are judged by, made of a local clone without ever checking one out.

``Repairs`` calls it. Contents go from git's objects onto the shelf of trees; patches are applied in the sandbox. The
repository that an agent finds has one commit, made here: no later commit, no ref and no log of the clone is in it, and
for a task that a mutation made none of what was before. The clone must never be written to or its configuration obeyed.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from clew.coding.repository.git import Entry as Blob
from clew.coding.repository.git import Git
from clew.core.errors import BadInput, WorldError
from clew.core.keys import digest, encode
from clew.sandbox.sandbox import Sandbox, own_folder
from clew.sandbox.scratch import Scratch
from clew.worlds.workspace import Bounds, Scan, TreeShelf, restore
from clew.worlds.workspace.tree_shelf import CONTENT, FILE, FOLDER, LINK, Entry
from clew.worlds.workspace.workspace import PINNED

VERSION = b"clew.begin.1"  # of what is made here; raised where it comes to be something else
MOMENT = "2026-01-01T00:00:00Z"  # of every file, so that equal files are one snapshot
NANOSECONDS = 1_767_225_600_000_000_000  # the same
KINDS = {b"100644": (FILE, 0o644), b"100664": (FILE, 0o644), b"100755": (FILE, 0o755), b"120000": (LINK, 0o777)}
WHO = {f"GIT_{one}_{what}": "base" for one in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
PATCH = "git apply --whitespace=nowarn -"
COMMIT = """
git init -q --template= -b main . && git add -A -f . && git commit -q --allow-empty -m base &&
git -c pack.threads=1 -c pack.window=0 repack -adq && rm -rf .git/logs .git/COMMIT_EDITMSG &&
rm -f .git/index && git read-tree HEAD"""
TOUCH = f"find . -print0 | xargs -0 touch -h -d {MOMENT}"

Leaves = Mapping[str, Entry]


def clone_of(repo: str, places: Iterable[Path]) -> Git:
    """The local repository ``owner/name``: a clone in one of these folders, bare or not, or one of these itself.

    Raises:
        BadInput: none of them holds it.
    """
    owner, _, name = repo.rpartition("/")
    wanted = [repo, f"{owner}__{name}", f"{owner}+{name}", name] if owner else [name]
    names = [one for one in (*wanted, *(f"{one}.git" for one in wanted)) if ".." not in one.split("/")]
    tried = list(places)
    for place in tried:
        for one in (*(place / one for one in names if not one.startswith("/")), place):
            if (one == place and place.name not in names) or not one.is_dir():
                continue
            found = Git(one)
            if one.resolve() in (found.folder.resolve(), found.home.resolve()):  # not one that lies around it
                return found
    where = " or ".join(str(place) for place in tried) or "nowhere"
    remedy = f"Clone it to one of these places: {', '.join(names[:4])}; or name its folder with clones='...'."
    raise BadInput(f"no clone of {repo} was found in {where}", remedy=remedy)


def leaves_of(git: Git, commit: str, shelf: TreeShelf) -> Leaves:
    """The files and links of a commit by path, their contents on the shelf; submodules are left out.

    Raises:
        BadInput: the clone lacks the commit or an object of it, or a path leads elsewhere.
    """
    try:
        listed = git.run("ls-tree", "-r", "-z", "--end-of-options", git.commit(commit)).split(b"\0")[:-1]
    except BadInput as error:
        remedy = f"Fetch it into {git.folder}, where the history may be cut short."
        raise BadInput(error.message, remedy=remedy) from None
    wanted, shapes = list[Blob](), dict[str, tuple[str, int]]()
    for line in listed:
        head, _, name = line.partition(b"\t")
        mode, kind, blob = head.split()
        path = name.decode("utf-8", "surrogateescape")
        if kind == b"blob" and mode in KINDS:
            if any(part in ("", ".", "..", ".git") for part in path.split("/")):
                raise BadInput(f"{git.folder}: commit {commit[:12]} names {path[:80]!r}", remedy="See `git fsck`.")
            wanted.append(Blob(path, blob.decode(), 0))
            shapes[path] = KINDS[mode]
    found = dict[str, Entry]()
    with shelf.writing():
        for one, content in git.contents(wanted):
            (kind_of, mode_of), key = shapes[one.path], shelf.put(content, CONTENT)
            found[one.path] = Entry(one.path.rpartition("/")[2], kind_of, mode_of, NANOSECONDS, key, key, len(content))
    if missing := shapes.keys() - found.keys():
        told = f"{git.folder} lacks the content of {min(missing)[:80]} at {commit[:12]}"
        raise BadInput(told, remedy="Clone it whole, without --filter.")
    return found


def leaves(shelf: TreeShelf, tree: str) -> dict[str, Entry]:
    """The files, links and empty folders of a snapshot by path."""
    every = dict(shelf.walk(tree))
    full = {path.rpartition("/")[0] for path in every}
    return {path: entry for path, entry in every.items() if entry.kind != FOLDER or path not in full}


def grown(shelf: TreeShelf, found: Leaves) -> str:
    """The snapshot of these files, links and empty folders; gives its key. Folders get plain modes and one time."""
    inner: dict[str, dict[str, Entry]] = {"": {}}
    for path, entry in found.items():
        above, _, name = path.rpartition("/")
        inner.setdefault(above, {})[name] = entry
        while above and above.rpartition("/")[0] not in inner:
            above = above.rpartition("/")[0]
            inner[above] = {}
    with shelf.writing():
        for path in sorted(inner, key=lambda one: one.count("/") + bool(one), reverse=True):
            key, state = shelf.put_listing([inner[path][name] for name in sorted(inner[path])])
            if not path:
                shelf.mark(key)
                return key
            above, _, name = path.rpartition("/")
            inner.setdefault(above, {})[name] = Entry(name, FOLDER, 0o755, NANOSECONDS, key, state, 0)
    raise AssertionError("the root comes last")


def committed(git: Git, commit: str, shelf: TreeShelf) -> str:
    """The snapshot of a commit's files, without a repository; gives its key. Raises as ``leaves_of`` does."""
    return _once(shelf, git.commit(commit), lambda: grown(shelf, leaves_of(git, commit, shelf)))


def begun(shelf: TreeShelf, sandbox: Sandbox, tree: str, patch: str = "") -> str:
    """The snapshot of these files with a patch applied, and a repository of one commit that holds them."""
    return changed(shelf, sandbox, tree, patch, COMMIT)


def changed(shelf: TreeShelf, sandbox: Sandbox, tree: str, patch: str, script: str = "") -> str:
    """The snapshot that a patch, and then a script, makes of another, by git in the sandbox; gives its key.

    Raises:
        BadInput: the patch does not apply. WorldError: git could not take the files, or a limit was reached.
    """
    if not patch.strip() and not script:
        return tree
    return _once(shelf, "\0".join((tree, patch, script)), lambda: _change(shelf, sandbox, tree, patch, script))


def _change(shelf: TreeShelf, sandbox: Sandbox, tree: str, patch: str, script: str) -> str:
    bound, env = Bounds(file=sandbox.limits.disk, total=sandbox.limits.disk), PINNED | WHO
    with Scratch("begin") as place:
        folder = place / "box"
        restore(shelf, tree, folder)
        own_folder(folder)
        if patch.strip():
            data = (patch if patch.endswith("\n") else f"{patch}\n").encode("utf-8", "surrogateescape")
            done = sandbox.run(PATCH, folder=folder, env=env, stdin=data)
            if not done.ok:
                raise BadInput(f"a patch does not apply: {_said(done.stderr) or done}", remedy="Mend the row.")
        done = sandbox.run(f"{{ {script.strip() or ':'}; }} && {TOUCH}", folder=folder, env=env)
        if not done.ok:
            raise WorldError(f"the files of a task could not be made ready: {_said(done.stderr) or done}")
        return Scan(folder, shelf, bound).snapshot().tree


def _once(shelf: TreeShelf, asked: str, make: Callable[[], str]) -> str:
    """A snapshot by what it is made of; what was made before is not made again while the shelf has it."""
    noted = shelf.folder / "begun" / digest(VERSION, encode(asked)).hex()
    if noted.is_file() and (known := noted.read_text()[:64]) in shelf:
        shelf.mark(known)
        return known
    made = make()
    noted.parent.mkdir(exist_ok=True)
    fresh = noted.with_name(f"{noted.name}.{secrets.token_hex(4)}")
    fresh.write_text(made)
    fresh.replace(noted)
    return made


def _said(data: bytes) -> str:
    lines = data.decode("utf-8", "replace").strip().splitlines()
    return "".join(c if c.isprintable() else "?" for c in lines[0])[:300] if lines else ""
