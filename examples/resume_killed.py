"""Kills a collection with kill -9 and resumes it: nothing committed is lost, and nothing is sampled twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import clew

STORE = Path(".clew/killed.db")


def collect() -> None:
    world = clew.taskset("slow(of='counter(low=5, high=9)', seconds=0.05)")
    model = clew.model("markov", corpus="up\nup\nup\nup\ndown\nstop", order=1, tokens=True)
    runner = clew.Runner("player", world, model, STORE)
    groups = runner.collect(world.sample(4), n=4, name="killed")
    print(
        len(groups.runs),
        "runs,",
        sum(run.stop is not None for run in groups.runs),
        "ended; asked the model",
        model.calls,
    )


def main() -> None:
    worker = subprocess.Popen([sys.executable, __file__, "collect"])
    while not STORE.exists() or len(clew.open_store(STORE).runs("calls>3")) < 4:
        time.sleep(0.05)
    os.kill(worker.pid, signal.SIGKILL)
    worker.wait()

    store = clew.open_store(STORE)
    before = {run.id: [call.key for call in run.calls if call.done >= 0] for run in store.runs()}
    print(
        "killed with",
        sum(map(len, before.values())),
        "Calls committed,",
        len(store.runs("stop=open")),
        "runs unfinished",
    )

    collect()  # the collection has a name, so the same line resumes it

    kept = sum([call.key for call in store.run(run).calls][: len(keys)] == keys for run, keys in before.items())
    print(kept, "of", len(before), "records begin as they were;", len(store.verify()), "faults")


if __name__ == "__main__":
    collect() if sys.argv[1:] == ["collect"] else main()
