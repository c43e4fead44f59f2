"""Bar 4: kill -9 at random moments of collection and of training.

    python benchmarks/kills.py [--kills 200] [--seed 0]

A third of the kills falls on a process that collects runs (household, and ``notepad``, a world of kind none whose
effects land in a file outside), a third on the same where two workers drive the runs, a third on one that trains a
small model in steady mode. After each kill the store is verified and every Call committed before is still there with
its key; at the end no line of the notepad stands twice and the resumed training's weights equal those of an
uninterrupted one bit for bit. ``tests`` do the same with fewer kills.
"""

from __future__ import annotations

import argparse
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from clew.core.errors import InDoubt
from clew.harness import Runner
from clew.store import Run, open_store
from clew.store.base import Keeper

COLLECT = """
from clew.harness import Runner
from clew.harness.agents import player
from clew.harness.executors import IN_LOOP
from clew.harness.workers.processes import local_workers
from clew.models.fakes import Markov, Scripted
from clew.worlds.household import Household
from clew.worlds.toys import Notepad

store, house, pad = {store!r}, Household(), Notepad(path={pad!r}, seconds=0.002, lines=6)
wanderer = Markov("go kitchen\\nopen fridge\\ntake apple\\ngo bedroom")
lines = Scripted([f"line {{i}}" for i in range(6)] + ["stop"])
where = local_workers({workers}) if {workers} else IN_LOOP
print("ready", flush=True)
Runner(player, house, wanderer, store, executor=where).collect(house.sample(8), n=8, name="killed")
Runner(player, pad, lines, store, executor=where).collect(pad.sample(6), n=1, name="pad")
if {workers}:
    where.close()
print("done", flush=True)
"""

TRAIN = """
import clew
from clew.fit.trainer import Trainer
from clew.harness import Runner
from clew.harness.agents import player
from clew.models.local import small
from clew.train.loop import Plan, Training
from clew.worlds.toys import Counter

words = "up down stop count the number is 0 1 2 3 4 5 6 7 8 9 -1 -2 -3 -4".split()
model = small(words, d=32, layers=1, heads=2, kv_heads=1, context=256, seed=1, ref="killed", steady=True)
runner = Runner(player, Counter(low=1, high=2, steps=4), model, {store!r}, sampling={{"max_tokens": 2}})
plan = Plan(name="killed", iterations={iterations}, tasks=4, rollouts=8, checkpoint_every=2)
training = Training(runner, Trainer(model, lr=1e-2, steady=True), clew.credit.g2po, plan, folder={folder!r})
print("ready", flush=True)
for iteration in training.run():
    print(iteration.number, iteration.success, iteration.step is not None, flush=True)
model.save({final!r})
print("done", flush=True)
"""


def start(code: str, env: dict[str, str] | None = None) -> subprocess.Popen[str]:
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=env)
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line == "ready\n", line
    return process


def kill(code: str, after: float) -> bool:
    """Start, kill -9 after some seconds; whether it had ended before."""
    process = start(code)
    time.sleep(after)
    ended = process.poll() is not None
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert process.stdout is not None
    process.stdout.close()
    return ended


def committed(store: Keeper) -> dict[str, dict[int, bytes]]:
    """Keys of all completed Calls; the store must be sound."""
    faults = store.verify()
    assert faults == [], faults
    return {run: {c.seq: c.key for c in store.calls(run) if c.done >= 0} for run in store.run_ids()}


def nothing_lost(before: dict[str, dict[int, bytes]], now: dict[str, dict[int, bytes]]) -> None:
    for run, keys in before.items():
        assert {seq: now[run].get(seq) for seq in keys} == keys, f"run {run} lost or changed a committed Call"


def collection(folder: Path, kills: int, dice: random.Random, workers: int = 0, longest: float = 0.5) -> dict[str, int]:
    """Kill a collection again and again, starting a new store whenever it has got to its end. With ``workers`` these
    drive its runs, and what is killed is the process that files them."""
    counts = {"kills": 0, "rounds": 0, "calls": 0, "in doubt": 0}
    while counts["kills"] < kills:
        place = folder / f"collect{counts['rounds']}"
        place.mkdir()
        code = COLLECT.format(store=str(place / "runs.db"), pad=str(place / "pad.txt"), workers=workers)
        known: dict[str, dict[int, bytes]] = {}
        ended = False
        while counts["kills"] < kills and not ended:
            ended = kill(code, dice.random() * longest)
            counts["kills"] += not ended
            store = open_store(place / "runs.db")
            now = committed(store)
            nothing_lost(known, now)
            known = now
            store.close()
        finished = start(code)
        finished.communicate(timeout=300)
        store = open_store(place / "runs.db")
        counts["calls"] += sum(map(len, committed(store).values()))
        for run in [r for r in store.run_ids() if Run(store, r).stop is None]:
            try:
                Runner.of(store, run).resume(run)
            except InDoubt:
                counts["in doubt"] += 1
            else:
                raise AssertionError(f"run {run} was left unfinished although nothing was in doubt")
        store.close()
        pad = place / "pad.txt"
        lines = pad.read_text().splitlines() if pad.exists() else []
        assert len(lines) == len(set(lines)), "a lasting effect was done twice"
        counts["rounds"] += 1
    return counts


def driven_by_workers(folder: Path, kills: int, dice: random.Random) -> dict[str, int]:
    """``collection`` whose runs two processes drive."""
    return collection(folder, kills, dice, workers=2, longest=3.0)


def training(
    folder: Path, kills: int, dice: random.Random, iterations: int = 12, longest: float = 2.0
) -> dict[str, int]:
    """Kill a training again and again; its last weights must be those of an uninterrupted one."""
    from safetensors.numpy import load_file

    def paths(name: str) -> dict[str, str]:
        place = folder / name
        place.mkdir()
        return {"store": str(place / "runs.db"), "folder": str(place / "training"), "final": str(place / "final")}

    whole = paths("whole")
    start(TRAIN.format(iterations=iterations, **whole)).communicate(timeout=600)
    wanted = load_file(Path(whole["final"]) / "model.safetensors")
    counts = {"kills": 0, "rounds": 0, "calls": 0}
    while counts["kills"] < kills:
        where = paths(f"train{counts['rounds']}")
        code = TRAIN.format(iterations=iterations, **where)
        known: dict[str, dict[int, bytes]] = {}
        ended = False
        while counts["kills"] < kills and not ended:
            ended = kill(code, dice.random() * longest)
            counts["kills"] += not ended
            store = open_store(where["store"])
            now = committed(store)
            nothing_lost(known, now)
            known = now
            store.close()
        if not ended:
            start(code).communicate(timeout=600)
        store = open_store(where["store"])
        counts["calls"] += sum(map(len, committed(store).values()))
        store.close()
        got = load_file(Path(where["final"]) / "model.safetensors")
        assert got.keys() == wanted.keys()
        for name, value in wanted.items():
            assert (got[name].view("u1") == value.view("u1")).all(), f"{name} differs after a resume"
        counts["rounds"] += 1
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    dice = random.Random(options.seed)
    kinds = (("collection", collection), ("driven by workers", driven_by_workers), ("training", training))
    for name, work in kinds:
        began = time.time()
        with tempfile.TemporaryDirectory() as folder:
            counts = work(Path(folder), options.kills // 3, dice)
        told = ", ".join(f"{value} {key}" for key, value in counts.items())
        print(f"{name}: {told}; {time.time() - began:.0f} s; nothing lost, nothing done twice", flush=True)


if __name__ == "__main__":
    main()
