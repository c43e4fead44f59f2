"""The cells of tier worth: `clew memory audit` on planted memories (specs/E168, 10: "proof that it helps").

    python -m papers.E168_metis.tier_worth --store FILE

writes a planted memory and its runs to FILE, for `clew memory audit apps`. ``planted``: in the world of a seed the
player of ``apps`` plays a stream of errands with a memory in which items of known kinds were planted; each stored run
is forked without each item, and the verdicts are set beside what was planted, for several numbers of pairs. ``noisy``:
the same, and the player gives up one time in ten, by a lot that any change of what it reads draws anew, as a model's
samples are. ``idle``: noisy, with items that say nothing to the player, so that every call of helpful or harmful is
false. ``simulated``: verdicts on pairs drawn from known chances, no run made, many audits, for the rate of false calls.

What is planted in an app, in its own words: ``helpful``, a true fact that no answer of the app tells (cents, pending
rows); ``harmful``, the same fact where it is false; ``hasty``, a plan that reads one page, which is cheap always and
wrong where there is another; ``redundant``, a helpful fact in two copies; ``cheaper``, the endpoint, which saves turns
and changes no answer; ``useless``, what the player cannot use.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator

import numpy as np

from clew.core.keys import derive, value_digest
from clew.core.registry import register
from clew.core.values import Task
from clew.harness import LiveRun, Runner
from clew.harness.memory import Memory
from clew.methods.memory.worth import worth_audit
from clew.methods.memory.worth.left_out import Forks
from clew.methods.memory.worth.worth_verdict import Pair, Subject, judged
from clew.store import Keeper, MemoryStore, open_store
from clew.worlds.apps import Apps
from papers.E168_metis.player import explore
from papers.E168_metis.reading import read
from papers.experiment import Line, apart, each, grid

SEEN = range(6)  # seeds that were looked at while the rule for cost was made; reported apart
SEEDS = range(20)
APPS, TASKS, SHOWN = 3, 120, 8  # apps with a memory; errands of each; items of a recall
SIZES = (4, 8, 16, 32, 60, 120)  # pairs of forks of each item, as far as there are errands
SLIP = 0.1  # chance that a noisy player gives up at once
TOLD_AT = 16  # pairs at which it is compared how many more would decide
AUDITS, ITEMS = 60, 12  # simulated audits of a cell; items of each
KINDS = ("helpful", "harmful", "hasty", "redundant", "cheaper", "useless")
RIGHT = {"helpful": "helpful", "harmful": "harmful", "hasty": "harmful", "redundant": "redundant", "cheaper": "helpful",
         "useless": "no effect shown"}  # fmt: skip
WORDS = ["opened in spring", "has a red door", "was named by its owner", "is loved in the north", "moved house twice"]
portions = apart


def cells(quick: bool) -> Iterator[Line]:
    """The new seeds come after those that were looked at; ``--quick`` has one memory and a third of the errands."""
    seeds = list(SEEDS)[: 1 if quick else None]
    yield from grid(kind=("planted", "noisy", "idle"), errands=40 if quick else TASKS, seed=seeds)
    yield from grid(kind="simulated", errands=40 if quick else TASKS, seed=seeds)


def cost(cell: Line) -> float:
    """CPU-seconds of a cell."""
    return (8.0 if cell["kind"] == "simulated" else 12.0) * cell["errands"] / TASKS


def sizes(line: Line) -> list[int]:
    """Pairs of forks of each item: as many as there are errands at most."""
    return [n for n in SIZES if n <= line["errands"]]


async def remembering(run: LiveRun, slip: float = 0.0) -> None:
    """The player, told what the memory recalls of the app of its task; it trusts a plan blindly.

    Its luck changes with anything that it reads, as a model's samples do: so many lots are drawn and thrown away.
    """
    asked = read(run.task.prompt)
    found = await run.memory("apps").recall(run.task.prompt, k=SHOWN, scope=asked.app if asked else ())
    for _ in range(value_digest(found.text)[0] % 8 if slip else 0):
        await run.draw("luck")
    if slip and await run.draw("slip") < slip:
        return
    await explore(run, [f"{item.kind}: {item.text}" for item in found.items], override=0.0)


# ---- planted memories ------------------------------------------------------------------------------------------------


def planted(world: Apps, app: str, at: int) -> list[tuple[str, str, str]]:
    """What is planted in an app: (kind of plant, kind of item, text). ``at``: its place among the apps of a seed."""
    habits = world.apps(0)[app]
    cents, pending = habits.face.unit == 100, habits.leaves_out
    facts = [(cents, "amounts are in cents"), (pending, "pending rows are left out")]
    found = []
    for true, text in facts:
        found.append(("helpful" if true else "harmful", "fact", f"app {app}: {text}"))
    if at == 0:  # one app of each seed has a copy of its first helpful fact, and one a plan that stops too early
        mine = next((i for i, (kind, _, _) in enumerate(found) if kind == "helpful"), None)
        if mine is not None:
            _, kind, text = found[mine]
            found[mine : mine + 1] = [("redundant", kind, text), ("redundant", kind, f"{text} ")]
    if at == 1:
        found.append(("hasty", "plan", f"app {app}: fetch {habits.face.fetch}; pages 1"))
    else:
        found.append(("cheaper", "fact", f"app {app}: endpoint is {habits.face.fetch}"))
    found += [("useless", "fact", f"app {app}: the house of {app} {WORDS[(at + i) % len(WORDS)]}") for i in range(2)]
    return found


def idle(world: Apps, app: str, at: int) -> list[tuple[str, str, str]]:
    """Items that say nothing to the player."""
    return [("useless", "fact", f"app {app}: the house of {app} {word}") for word in WORDS]


def _filled(seed: int, kind: str, store: Keeper, errands: int = TASKS) -> dict[str, str]:
    """Put a memory into a store, and runs that were given it; gives what each item is."""
    register("tasksets", "apps", Apps)
    world = Apps(288, 0.0, seed)
    kinds = dict[str, str]()
    memory = Memory(store, "apps")
    tasks: dict[str, list[Task]] = {}
    for task in world.sample(9 * errands, derive(seed, "errands")):
        tasks.setdefault(world.goal(task.id).app, []).append(task)
    apps = sorted(tasks, key=lambda app: -(sum((world.apps(0)[app].face.unit == 100, world.apps(0)[app].leaves_out))))
    some = [apps[0], apps[-1], apps[len(apps) // 2]][:APPS]  # those that hide most, least, and in between
    for at, app in enumerate(some):
        for what, item_kind, text in (idle if kind == "idle" else planted)(world, app, at):
            made = memory.add(item_kind, {"text": text}, by="planted", scope=app)
            kinds[made.id] = what
    runner = Runner(remembering, world, None, store, {} if kind == "planted" else {"slip": SLIP})
    runner.collect([task for app in some for task in tasks[app][:errands]], 1, seed)
    return kinds


def _audited(line: Line, seed: int) -> Line:
    store = MemoryStore()
    kinds = _filled(seed, line["kind"], store, line["errands"])
    forks, memory = Forks(store, seed=seed), Memory(store, "apps")
    found: Line = {"items": dict(Counter(kinds.values())), "verdicts": {}, "worth": {}, "forks": 0, "wrong": {}}
    foreseen: dict[str, int] = {}  # item -> pairs that it was said to take, at 16 pairs
    for n in sizes(line):
        done = worth_audit.carry_out(worth_audit.plan(memory, forks, n=n, budget=10**6), forks)
        found["forks"] += done.cost.forks
        calls: dict[str, Counter[str]] = {}
        for it in done.worth:
            if it.subject.kind == "item":
                calls.setdefault(kinds[it.subject.items[0]], Counter())[it.verdict] += 1
        found["verdicts"][str(n)] = {what: dict(count) for what, count in calls.items()}
        found["wrong"][str(n)] = sum(wrong(what, count) for what, count in calls.items())
        of_items = {it.subject.items[0]: it for it in done.worth if it.subject.kind == "item"}
        if n == TOLD_AT:
            foreseen = {one: n + it.more for one, it in of_items.items() if it.more is not None}
        if n == sizes(line)[-1]:
            soon = [one for one, pairs in foreseen.items() if pairs <= n]
            decided = {one for one, it in of_items.items() if it.verdict != "cannot tell"}
            late = [one for one in foreseen if one not in soon]
            found["foreseen"] = [len(soon), len(decided.intersection(soon)), len(late), len(decided.intersection(late))]
            for what in KINDS:
                mine = [it for it in done.worth if it.subject.kind == "item" and kinds[it.subject.items[0]] == what]
                effects = [(it.success.estimate, it.turns.estimate) for it in mine]
                found["worth"][what] = [round(float(v), 4) for v in np.mean(effects, 0)] if effects else None
    return found


def wrong(what: str, calls: Counter[str]) -> int:
    """Items that were called helpful or harmful and are not."""
    return sum(calls[verdict] for verdict in ("helpful", "harmful") if verdict != RIGHT[what])


# ---- simulated audits ------------------------------------------------------------------------------------------------


def _simulated(line: Line, seed: int) -> Line:
    """Verdicts on pairs whose chances are known: items that do nothing while pairs differ by chance (``noise``), and
    items that change success by 0.3 either way."""
    draw = np.random.default_rng(derive(seed, "worth simulated"))
    found: Line = {"noise": {}, "effect": {}}
    for n in sizes(line):
        false = calls = audits = bad = right = 0
        for _ in range(AUDITS):
            pairs: dict[Subject, list[Pair]] = {}
            for i in range(ITEMS):
                up, down = (0.15, 0.15) if i < ITEMS - 2 else (0.35, 0.05) if i == ITEMS - 1 else (0.05, 0.35)
                pairs[Subject("item", (str(i),))] = _pairs(draw, n, up, down)
            done = {int(it.subject.items[0]): it.verdict for it in judged(pairs, dict.fromkeys(pairs, "x"))}
            mine = sum(done[i] in ("helpful", "harmful") for i in range(ITEMS - 2))
            false, calls, audits = false + mine, calls + ITEMS - 2, audits + (mine > 0)
            right += (done[ITEMS - 1] == "helpful") + (done[ITEMS - 2] == "harmful")
            bad += (done[ITEMS - 1] == "harmful") + (done[ITEMS - 2] == "helpful")
        found["noise"][str(n)] = [false, calls, audits, AUDITS]
        found["effect"][str(n)] = [right, bad, 2 * AUDITS]
    return found


def _pairs(draw: np.random.Generator, n: int, up: float, down: float) -> list[Pair]:
    luck = draw.random(n)
    pairs = []
    for i in range(n):
        present, without = (1.0, 0.0) if luck[i] < up else (0.0, 1.0) if luck[i] < up + down else (1.0, 1.0)
        turns = 8.0 + draw.integers(0, 3)
        pairs.append(Pair(str(i), (present, turns + draw.integers(-1, 2), 0.0), (without, turns, 0.0)))
    return pairs


def _one(line: Line, seed: int) -> Line:
    return _simulated(line, seed) if line["kind"] == "simulated" else _audited(line, seed)


run = each(_one)


if __name__ == "__main__":
    with open_store(sys.argv[sys.argv.index("--store") + 1]) as made:
        for plant in _filled(0, "planted", made).items():
            print(*plant)
