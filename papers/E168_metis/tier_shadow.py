"""The cells of tier shadow: improvement 3 of specs/E168. Tools with planted flaws, and honest ones, before admission.

A tool is admitted where it comes to the same end states as the text path on so many tasks of its kind (``calls``).
25 tools a seed; what an admitted one gets wrong later is counted on 20 other tasks.
"""

from __future__ import annotations

from collections.abc import Iterator

from clew.core.keys import derive
from clew.core.values import Task
from clew.worlds.apps import Apps
from clew.worlds.seeds import NUMBERS
from papers.E168_metis.codify import BUGS, Draft, compiled, pattern, trajectory
from papers.E168_metis.errands import Played, bare, trial
from papers.E168_metis.player import Errand, Outcome, Tool, explore
from papers.E168_metis.reading import Asked, read
from papers.E168_metis.reflect import plan_of
from papers.experiment import Line, each, grid

SEEDS, TOOLS, CALLS, LATER, TRIES = range(20), 25, (3,), 20, 40
PLANTED = ("honest", *BUGS, "trajectory")
cost = 2.5


def cells(quick: bool) -> Iterator[Line]:
    seeds = list(SEEDS)[: 1 if quick else None]
    yield from grid(condition="honest", calls=3, seed=seeds)
    yield from grid(condition="planted", calls=3 if quick else CALLS, seed=seeds)


def of_kind(taskset: Apps, like: Asked, seed: int, n: int) -> list[Task]:
    """Tasks that ask the same of the same table."""
    found, tries, families = list[Task](), 0, {}
    while len(found) < n:
        number = derive(seed, "shadow", tries) % NUMBERS
        family = taskset.family(number)
        if families.setdefault(family, family[:3] == like[:3]):
            found.append(taskset.find(f"apps-{number}"))
        tries += 1
    return found


def draft(kind: str, number: int, text: Played) -> Draft:
    """A tool with the flaw, from a run by text."""
    query = text.task.prompt
    asked = read(query)
    assert asked is not None
    if kind == "trajectory":
        return trajectory(f"t{number}", query, text.steps, ())
    return pattern(f"t{number}", asked, plan_of(asked, text.steps), [query], bug="" if kind == "honest" else kind)


def _tools(setting: Line, seed: int, n: int = TOOLS) -> Line:
    """flaws: of each tool. seen: whether an end state differed before admission. later: end states that differ on 20
    other tasks, of those that it answers."""
    taskset = Apps(world=seed)
    found: Line = {"flaws": [], "seen": [], "admitted": [], "later": [], "answered": []}
    for number, first in enumerate(taskset.sample(n, derive(seed, "planted"))):
        kind = "honest" if setting["condition"] == "honest" else PLANTED[1:][number % 4]
        facts, asked = taskset.facts(first), read(first.prompt)
        assert asked is not None

        async def by_text(run: Errand, facts: list[str] = facts) -> Outcome:
            return await explore(run, facts)

        tool = compiled(draft(kind, number, bare(taskset, first, by_text, seed)), lambda facts=facts: facts)
        near = of_kind(taskset, asked, derive(seed, "near", number), TRIES)
        same, differ = shadowed(taskset, tool, near, by_text, setting["calls"], seed)
        later = of_kind(taskset, asked, derive(seed, "later", number), LATER)
        ends = [(trial(taskset, task, tool)[0], bare(taskset, task, by_text, seed).end) for task in later]
        answered = [(mine, his) for mine, his in ends if mine is not None]
        found["flaws"].append(kind)
        found["seen"].append(differ)
        found["admitted"].append(not differ and same >= setting["calls"])
        found["later"].append(sum(mine != his for mine, his in answered))
        found["answered"].append(len(answered))
    return found


def shadowed(taskset: Apps, tool: Tool, near: list[Task], by_text: object, calls: int, seed: int) -> tuple[int, bool]:
    """On how many tasks a tool came to the end state of the text path, up to ``calls``, and whether one differed."""
    same = 0
    for task in near:
        mine = trial(taskset, task, tool)[0]
        if mine is None:
            continue
        if mine != bare(taskset, task, by_text, seed).end:
            return same, True
        same += 1
        if same >= calls:
            break
    return same, False


run = each(_tools)
