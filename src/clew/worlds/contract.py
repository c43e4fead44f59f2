"""The contract of tasksets and worlds, as plain functions that anyone can run on their own taskset.

    from clew.worlds.contract import check_taskset
    check_taskset(MyTaskset(), acts=lambda task: ["look", "take lamp"])

The tests of the bundled worlds call them. Each function raises AssertionError with a sentence on what is broken;
``check_taskset`` runs them all and returns the names of the checks that applied. A check must never pass without having
looked: a check that does not apply returns False.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

from clew.core.errors import ClewError, WorldError
from clew.core.keys import canonical
from clew.core.protocols import Restores, Snapshots, Taskset, World
from clew.core.records import Call, Intervention, action_text
from clew.core.registry import build, register
from clew.core.values import Observation, Task, ToolCall

Action = str | ToolCall
Acts = Callable[[Task], Sequence[Action]]
KINDS: tuple[Restores, ...] = ("exact", "reenact", "caller", "none")


def check_taskset(taskset: Taskset, acts: Acts | None = None, n: int = 4, seed: int = 0) -> list[str]:
    """Run the whole contract on ``n`` sampled tasks.

    Args:
        acts: actions to try on a task; default: the first, middle or last admissible action by turns, for as long
            as the world lists any. They need not succeed but must be allowed after one another.

    Returns:
        Names of the checks that were run; those that do not apply to the world's kind are absent.

    Raises:
        AssertionError: what is broken, naming the task.
    """
    tasks = taskset.sample(n, seed=seed)
    assert tasks, f"{taskset.ref}: sample({n}) gave no task"
    plans = {task.id: list(acts(task)) if acts else explore(taskset, task) for task in tasks}
    done = []
    for check in (check_ref, check_sampling, check_find):
        check(taskset, n)
        done.append(check.__name__)
    for applies in WORLD_CHECKS:
        if sum(applies(taskset, task, plans[task.id]) for task in tasks):
            done.append(applies.__name__)
    return done


def explore(taskset: Taskset, task: Task, steps: int = 12) -> list[Action]:
    """Actions picked from those the world lists, in a fixed pattern."""
    world = taskset.open(task)
    seen, actions = world.observe(), []
    for i in range(steps):
        if seen.done or not seen.legal:
            break
        actions.append(seen.legal[(0, len(seen.legal) // 2, -1)[i % 3]])
        seen = perform(world, actions[-1])
    world.close()
    return list(actions)


def perform(world: World, action: Action) -> Observation:
    """One step, awaited where the world answers later."""
    answer = world.step(action)
    if not inspect.isawaitable(answer):
        return answer

    async def wait() -> Observation:
        return await answer

    return asyncio.run(wait())


def walk(world: World, actions: Sequence[Action]) -> list[tuple[Observation, bytes]]:
    """Observation and state key at the start and after each action, up to the end of the episode."""
    trail = [(world.observe(), world.state_key)]
    for action in actions:
        if trail[-1][0].done:
            break
        trail.append((perform(world, action), world.state_key))
    return trail


# -- the taskset ------------------------------------------------------------------------------------------------------


def check_ref(taskset: Taskset, n: int = 4) -> None:
    """The ref is text that builds an equal taskset, as another process has to."""
    again = build("tasksets", taskset.ref)
    assert again.ref == taskset.ref, f"{taskset.ref} builds a taskset that calls itself {again.ref}"
    assert type(again) is type(taskset), f"{taskset.ref} builds a {type(again).__name__}"
    mine, other = taskset.sample(n, seed=0), again.sample(n, seed=0)
    assert mine == other, f"{taskset.ref}: the rebuilt taskset samples other tasks: {_ids(mine)} and {_ids(other)}"


def check_sampling(taskset: Taskset, n: int = 4) -> None:
    """Sampling depends on n, seed and split alone, gives distinct tasks, and the splits share none."""
    ref = taskset.ref
    assert _ids(taskset.sample(n, seed=0)) == _ids(taskset.sample(n, seed=0)), f"{ref}: sample differs for one seed"
    assert _ids(taskset.sample(0)) == [], f"{ref}: sample(0) is not empty"
    splits = {split: _ids(taskset.sample(n, seed=0, split=split)) for split in ("train", "eval", "test")}
    for split, ids in splits.items():
        assert len(set(ids)) == n, f"{ref}: sample({n}, split={split!r}) gave {ids}"
    together = [i for ids in splits.values() for i in ids]
    assert len(set(together)) == len(together), f"{ref}: splits share tasks: {splits}"


def check_find(taskset: Taskset, n: int = 4) -> None:
    """``find`` rebuilds an equal task; what is recorded of a task is JSON; an unknown id is refused."""
    for task in taskset.sample(n, seed=0):
        found = taskset.find(task.id)
        assert found == task, f"{task.id}: find gave {found}"
        assert found.secret == task.secret, f"{task.id}: find gave a task with another secret"
        canonical(dict(task.data))
        assert json.loads(json.dumps(dict(task.data))) == dict(task.data), f"{task.id}: data does not survive JSON"
    refused = False
    try:
        taskset.find("no such task")
    except ClewError:
        refused = True
    assert refused, f"{taskset.ref}: find of an unknown id raised no ClewError"


def _ids(tasks: Sequence[Task]) -> list[str]:
    return [task.id for task in tasks]


# -- its worlds; each gives whether it applied ------------------------------------------------------------------------


def check_opening(taskset: Taskset, task: Task, actions: Sequence[Action]) -> bool:
    """A fresh world can be observed before any step, twice alike, and says what it is."""
    world = taskset.open(task)
    assert world.restores in KINDS, f"{task.id}: restores is {world.restores!r}"
    first, key = world.observe(), world.state_key
    assert isinstance(first, Observation), f"{task.id}: observe gave a {type(first).__name__}"
    assert world.observe() == first, f"{task.id}: observing twice gives two observations"
    assert world.state_key == key, f"{task.id}: observing changes the state key"
    assert not first.done, f"{task.id}: the world is over before it began"
    has = isinstance(world, Snapshots)
    assert has == (world.restores == "exact"), (
        f"{task.id}: kind {world.restores} {'with' if has else 'without'} snapshots"
    )
    world.close()
    return True


def check_keys(taskset: Taskset, task: Task, actions: Sequence[Action]) -> bool:
    """State keys are 16 bytes; the same actions give the same observations and keys; two worlds do not touch."""
    one, two = taskset.open(task), taskset.open(task)
    trail = walk(one, actions)
    assert all(isinstance(k, bytes) and len(k) == 16 for _, k in trail), f"{task.id}: a state key is not 16 bytes"
    if one.restores in ("exact", "reenact"):
        again = walk(two, actions)
        assert len(trail) == len(again), f"{task.id}: the same actions end after {len(trail)} and {len(again)} steps"
        for i, ((seen, key), (seen2, key2)) in enumerate(zip(trail, again, strict=True)):
            assert key == key2, f"{task.id}: state keys differ after {i} equal actions"
            assert seen == seen2, f"{task.id}: observations differ after {i} equal actions: {seen} and {seen2}"
    one.close()
    two.close()
    return True


def check_movement(taskset: Taskset, task: Task, actions: Sequence[Action]) -> bool:
    """A new observation comes with a new key somewhere: the key is not a constant."""
    world = taskset.open(task)
    trail = walk(world, actions)
    world.close()
    if len({seen.text for seen, _ in trail}) < 2:
        return False
    assert len({key for _, key in trail}) > 1, f"{task.id}: the state key never changed though observations did"
    return True


def check_snapshots(taskset: Taskset, task: Task, actions: Sequence[Action]) -> bool:
    """A snapshot taken anywhere puts a fresh world there, and what follows is the same; it is not the world's alias."""
    world = taskset.open(task)
    if world.restores != "exact":
        return False
    assert isinstance(world, Snapshots)
    trail, kept = [(world.observe(), world.state_key)], [world.snapshot()]
    for action in actions:
        if trail[-1][0].done:
            break
        trail.append((perform(world, action), world.state_key))
        kept.append(world.snapshot())
    for i, snapshot in enumerate(kept):
        assert isinstance(snapshot, bytes), f"{task.id}: a snapshot is a {type(snapshot).__name__}"
        fresh = taskset.open(task)
        assert isinstance(fresh, Snapshots)
        fresh.restore(snapshot)
        assert fresh.state_key == trail[i][1], f"{task.id}: restored after {i} actions, the state key differs"
        assert fresh.snapshot() == snapshot, f"{task.id}: a restored world gives another snapshot (after {i} actions)"
        now = fresh.observe()
        assert (now.done, now.legal) == trail[i][0][2:4], f"{task.id}: restored after {i} actions, it shows {now}"
        rest = walk(fresh, actions[i:])[1:]
        assert rest == trail[i + 1 :], f"{task.id}: after a restore at {i} the same actions lead elsewhere"
        fresh.close()
    world.close()
    _refuses(taskset, task, kept[-1][:3])
    return True


def _refuses(taskset: Taskset, task: Task, broken: bytes) -> None:
    world = taskset.open(task)
    assert isinstance(world, Snapshots)
    try:
        world.restore(broken)
    except WorldError:
        return
    raise AssertionError(f"{task.id}: a snapshot cut to 3 bytes was restored without a WorldError")


def check_end(taskset: Taskset, task: Task, actions: Sequence[Action]) -> bool:
    """After the end, and after close, a step raises WorldError; close can be called twice."""
    world = taskset.open(task)
    ended = walk(world, actions)[-1][0].done
    if not ended:
        world.close()
    _step_refused(world, task, "the end" if ended else "close", actions)
    world.close()
    world.close()
    _step_refused(world, task, "close", actions)
    return True


def _step_refused(world: World, task: Task, when: str, actions: Sequence[Action]) -> None:
    key = world.state_key if when == "the end" else b""
    try:
        perform(world, actions[0] if actions else "anything")
    except WorldError:
        assert when == "close" or world.state_key == key, (
            f"{task.id}: a step after {when} was refused but changed the state"
        )
        return
    raise AssertionError(f"{task.id}: a step after {when} did not raise WorldError")


def check_rewards(taskset: Taskset, task: Task, actions: Sequence[Action]) -> bool:
    """A reward is None or a finite number; tool answers carry the id of their call."""
    world = taskset.open(task)
    for action, (seen, _) in zip(actions, walk(world, actions)[1:], strict=False):
        if seen.reward is not None:
            canonical(float(seen.reward))
        called = action.id if isinstance(action, ToolCall) else None
        assert seen.call_id == called, f"{task.id}: the answer to {action!r} carries call_id {seen.call_id!r}"
    world.close()
    return True


def check_secret(taskset: Taskset, task: Task, actions: Sequence[Action]) -> bool:
    """What only the judge may know is in no repr and in nothing that the world holds or saves."""
    if task.secret is None:
        return False
    world = taskset.open(task)
    for _ in walk(world, actions):
        pass
    held = list(_reach(world))
    assert not any(item is task.secret for item in held), f"{task.id}: the secret can be reached from the world"
    assert not any(isinstance(item, Task) and item.secret is not None for item in held), (
        f"{task.id}: the world holds a Task with its secret"
    )
    shown = [repr(task), repr(world), json.dumps(dict(task.data))]
    if isinstance(world, Snapshots):
        shown.append(repr(world.snapshot()))
    for text in shown:
        assert repr(task.secret) not in text, f"{task.id}: the secret is shown in {text}"
        assert json.dumps(task.secret, default=repr) not in text, f"{task.id}: the secret is shown in {text}"
    world.close()
    return True


def _reach(thing: object, depth: int = 6, seen: set[int] | None = None) -> Iterator[object]:
    """Objects that can be reached through attributes, slots and containers, classes, functions and modules apart."""
    seen = set() if seen is None else seen
    if id(thing) in seen or depth < 0 or isinstance(thing, (str, bytes, int, float, type(None), type, type(sys))):
        return
    if inspect.isroutine(thing):
        return
    seen.add(id(thing))
    yield thing
    inner: list[Any] = []
    if isinstance(thing, dict):
        inner = [*thing.keys(), *thing.values()]
    elif isinstance(thing, (list, tuple, set, frozenset)):
        inner = list(thing)
    else:
        inner = list(getattr(thing, "__dict__", {}).values())
        slots = [s for c in type(thing).__mro__ for s in getattr(c, "__slots__", ())]
        inner += [getattr(thing, s) for s in slots if hasattr(thing, s)]
    for item in inner:
        yield from _reach(item, depth - 1, seen)


def check_judge(taskset: Taskset, task: Task, actions: Sequence[Action]) -> bool:
    """The verdict from the record alone, later, is the verdict beside the living world, as often as one asks."""
    world = taskset.open(task)
    trail = walk(world, actions)
    record = as_run(trail, actions)

    async def judged() -> list[Any]:
        return [
            dict(await taskset.judge(task, record, world)),
            dict(await taskset.judge(task, record, None)),
            dict(await taskset.judge(taskset.find(task.id), record, None)),
        ]

    verdicts = asyncio.run(judged())
    world.close()
    assert all(v == verdicts[0] for v in verdicts), f"{task.id}: the verdict depends on who is asked when: {verdicts}"
    assert "reward" in verdicts[0], f"{task.id}: the judge gives no reward: {verdicts[0]}"
    canonical({k: float(v) for k, v in verdicts[0].items()})
    return True


def as_run(trail: Sequence[tuple[Observation, bytes]], actions: Sequence[Action]) -> SimpleNamespace:
    """The part of a run's record that a judge reads: an open Call, and an act Call for every step of ``walk``."""
    calls = []
    for i, (seen, key) in enumerate(trail):
        call = Call("contract", i, "act" if i else "open", b"", i, i, text=seen.text, reward=seen.reward, state=key)
        call = call._replace(terminal=seen.done, legal=seen.legal)
        if i:
            called = isinstance(actions[i - 1], ToolCall)
            call = call._replace(action=action_text(actions[i - 1]), finish="tool" if called else "")
        calls.append(call)
    return SimpleNamespace(id="contract", calls=calls, steps=calls[1:], changes=Intervention())


def check_other_process(taskset: Taskset, task: Task, actions: Sequence[Action]) -> bool:
    """Another process, with another hash seed, rebuilds the taskset from its ref and reaches the same states.

    It repeats the actions and, for ``exact`` worlds, restores this process's last snapshot. Not part of
    ``check_taskset``, as it starts a Python; the taskset's class must be importable there.
    """
    world = taskset.open(task)
    if world.restores not in ("exact", "reenact"):
        return False
    keys = [key for _, key in walk(world, actions)]
    taken = world.snapshot() if isinstance(world, Snapshots) else b""
    world.close()
    sent = pickle.dumps((type(taskset), taskset.ref, task.id, list(actions), taken))
    asked = [sys.executable, "-c", "from clew.worlds.contract import _elsewhere; _elsewhere()"]
    found = subprocess.run(asked, input=sent, capture_output=True, timeout=120, check=False)
    assert found.returncode == 0, f"{task.id}: another process failed: {found.stderr.decode()[-800:]}"
    theirs, restored = pickle.loads(found.stdout)
    assert theirs == keys, f"{task.id}: in another process the same actions lead to other states"
    assert restored == keys[-1:] * bool(taken), f"{task.id}: restored in another process, the state is another"
    return True


def _elsewhere() -> None:
    maker, ref, task_id, actions, taken = pickle.load(sys.stdin.buffer)
    register("tasksets", ref.partition("(")[0], maker)
    taskset: Taskset = build("tasksets", ref)
    keys = [key for _, key in walk(taskset.open(taskset.find(task_id)), actions)]
    restored = []
    if taken:
        world: Any = taskset.open(taskset.find(task_id))
        world.restore(taken)
        restored = [world.state_key]
    sys.stdout.buffer.write(pickle.dumps((keys, restored)))


WORLD_CHECKS = (
    *(check_opening, check_keys, check_movement, check_snapshots, check_end),
    *(check_rewards, check_secret, check_judge),
)
