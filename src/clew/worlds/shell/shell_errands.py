"""What is asked for in the shell world: the tree that a task begins with, its errands, and the tree they lead to.

The taskset reads it to make tasks, to judge, and to show how a task is done. A world must never hold an Errands: it is
what only the judge may know.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from clew.worlds.seeds import Dice
from clew.worlds.shell.shell_rules import Tree

FOLDERS = ("docs", "old", "tmp", "box", "lab", "art")
FILES = ("a.txt", "b.txt", "log.txt", "plan.txt", "note.txt", "list.txt", "memo.txt", "todo.txt")
WORDS = ("kiwi", "lemon", "fig", "plum", "pear", "lime", "date", "rice", "corn", "bean", "leek", "kale")


@dataclass(frozen=True, slots=True)
class Errands:
    """A task whole. ``start`` and ``goal``: absolute path -> content, None of a folder. ``asked``: sentences."""

    start: dict[str, str | None]
    goal: dict[str, str | None]
    asked: tuple[str, ...]


def errands_of(number: int, n: int) -> Errands:
    """What a task number stands for, with ``n`` errands that change something between them."""
    attempt = 0
    while True:
        dice = Dice(number, f"shell tree {attempt}")
        tree = _tree(dice)
        start, asked = dict(tree.nodes), list[str]()
        for i in range(n):
            asked.append(_errand(Dice(number, f"shell errand {attempt} {i}"), tree))
        if tree.nodes != start and len(set(asked)) == n:
            return Errands(start, tree.nodes, tuple(asked))
        attempt += 1


def _tree(dice: Dice) -> Tree:
    folders = [f"/{FOLDERS[i]}" for i in sorted(dice.order(len(FOLDERS), 2 + dice.below(2)))]
    nodes: dict[str, str | None] = dict.fromkeys(folders)
    for i in dice.order(len(FILES), 3 + dice.below(3)):
        nodes[f"{dice.pick(folders)}/{FILES[i]}"] = "".join(_line(dice) for _ in range(1 + dice.below(2)))
    return Tree(nodes)


def _line(dice: Dice) -> str:
    return " ".join(dice.pick(WORDS) for _ in range(1 + dice.below(3))) + "\n"


def _errand(dice: Dice, tree: Tree) -> str:
    """Ask for one thing that can be done to the tree as it is, and do it."""
    files = sorted(path for path, held in tree.nodes.items() if held is not None)
    folders = sorted(path for path, held in tree.nodes.items() if held is None and path != "/")
    kinds: list[Callable[..., str]] = [_write, _make]
    kinds += [_move, _move, _copy, _remove, _append, _purge] if files else []
    return dice.pick(kinds)(dice, tree, files, folders)


def _fresh(dice: Dice, tree: Tree, folders: list[str]) -> str:
    found = [f"{folder}/{name}" for folder in folders for name in FILES if f"{folder}/{name}" not in tree.nodes]
    return dice.pick(found)


def _move(dice: Dice, tree: Tree, files: list[str], folders: list[str]) -> str:
    path = dice.pick(files)
    folder = dice.pick([one for one in folders if f"{one}/{path.rpartition('/')[2]}" not in tree.nodes] or ["/"])
    tree.run(f"mv {path} {folder}")
    return f"Move {path} into {folder}."


def _copy(dice: Dice, tree: Tree, files: list[str], folders: list[str]) -> str:
    path, end = dice.pick(files), _fresh(dice, tree, folders)
    tree.run(f"cp {path} {end}")
    return f"Copy {path} to {end}."


def _remove(dice: Dice, tree: Tree, files: list[str], folders: list[str]) -> str:
    path = dice.pick(files)
    tree.run(f"rm {path}")
    return f"Remove {path}."


def _append(dice: Dice, tree: Tree, files: list[str], folders: list[str]) -> str:
    path, line = dice.pick(files), _line(dice).strip()
    tree.run(f"echo {line} >> {path}")
    return f"Append the line '{line}' to {path}."


def _write(dice: Dice, tree: Tree, files: list[str], folders: list[str]) -> str:
    path, line = _fresh(dice, tree, folders), _line(dice).strip()
    tree.run(f"echo {line} > {path}")
    return f"Write the line '{line}' into a new file {path}."


def _make(dice: Dice, tree: Tree, files: list[str], folders: list[str]) -> str:
    taken = [one for one in FOLDERS if f"/{one}" not in tree.nodes]
    path = f"/{dice.pick(taken)}" if taken else f"{dice.pick(folders)}/{dice.pick(FOLDERS)}"
    tree.run(f"mkdir {path}")
    return f"Make the folder {path}."


def _purge(dice: Dice, tree: Tree, files: list[str], folders: list[str]) -> str:
    word = dice.pick((tree.nodes[dice.pick(files)] or WORDS[0]).split())
    for path in files:
        if word in (tree.nodes[path] or "").split():
            tree.run(f"rm {path}")
    return f"Remove every file that holds the word {word}."


def next_command(tree: Tree, goal: dict[str, str | None]) -> str:
    """A command that brings a tree nearer to the goal; ``exit`` where it is there. In whatever state, it gets there."""
    now = tree.nodes
    extra = [path for path in sorted(now) if path not in goal]
    missing = [path for path in sorted(goal) if path not in now]
    for path in missing:
        if goal[path] is None:
            return f"mkdir {path}"
    clashing = [path for path in sorted(goal) if path in now and (goal[path] is None) != (now[path] is None)]
    if clashing:
        return _cleared(tree, clashing[0])
    for path in missing:
        alike = [one for one in extra if now[one] == goal[path]]
        if alike:
            return f"mv {alike[0]} {path}"
    if extra:
        return _cleared(tree, extra[0])
    for path in sorted(goal):
        want = goal[path]
        if want is not None and now.get(path) != want:
            alike = [one for one in sorted(now) if now[one] == want]
            return f"cp {alike[0]} {path}" if alike else _written(path, now.get(path), want)
    return "exit"


def _cleared(tree: Tree, path: str) -> str:
    if f"{tree.cwd}/".startswith(f"{path}/"):
        return "cd /"
    return f"rm -r {path}" if tree.is_folder(path) else f"rm {path}"


def _written(path: str, held: str | None, want: str) -> str:
    """The command that writes the next line of a file, or its first where what it holds is no beginning of it."""
    begun = held is not None and held.endswith("\n") and want.startswith(held)
    rest = want[len(held or "") :] if begun else want
    return f"echo {rest.partition(chr(10))[0]} {'>>' if begun else '>'} {path}"


def slip(dice_below: Callable[[int], int], tree: Tree) -> str:
    """Any of the commands, on paths that are there and some that are not. ``dice_below``: draws below a bound."""

    def pick(items: list[str]) -> str:
        return items[dice_below(len(items))]

    there = sorted(tree.nodes)
    odd = [f"/{FOLDERS[dice_below(len(FOLDERS))]}/{FILES[dice_below(len(FILES))]}", f"/{pick(list(FOLDERS))}"]
    shown = [*there, *odd, *tree.below(tree.cwd), ".."]
    path, other, word = pick(shown), pick(shown), pick(list(WORDS))
    return pick(
        [
            *(f"ls {path}", "ls", f"cat {path}", f"cat {path}", f"echo {word} > {path}", f"echo {word} >> {path}"),
            *(f"rm {path}", f"mv {path} {other}", f"mkdir {path}", f"cd {path}", "pwd", f"wc {path}"),
            *(
                f"grep {word} {path}",
                f"touch {path}",
                f"cp {path} {other}",
                f"cd {path}",
                f"grep {word} {path} {other}",
            ),
        ]
    )
