"""What it costs to drive runs through a worker, how fast bundles are filed, and what more workers give.

    python benchmarks/workers.py [--rounds 7] [--tasks 16] [--model FOLDER]

(cost) The same runs of `household` by a small local model in steady mode, filed in a SQLite file: driven in this
process, and by one worker whose records come back in bundles. Each round drives them four times on the same fresh
tasks: here, there, there, here. Process time is that of this process and of the worker together. (filing) Bundles of
the same runs, pickled, unpickled and filed in a SQLite file with a commit each, Calls per second of process time;
beside it the same Calls put one by one as a run does. (latency) Runs of `counter` by a model that takes 50 ms to
answer, one live run for each worker: wall time of four workers against one. Ratios are of one round, as median
[lowest, highest].
"""

from __future__ import annotations

import argparse
import os
import pickle
import statistics
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parent))

from latent import Latent

from clew.core.registry import build
from clew.harness import Runner
from clew.harness.workers.pool import Workers
from clew.harness.workers.processes import local_workers
from clew.store import open_store
from clew.store.base import Keeper
from clew.store.bundles.chosen import copy_run
from clew.store.bundles.travelling import Bundle, file_bundle, whole
from clew.store.memory import MemoryStore
from clew.train.warmstart import household_sft
from clew.worlds.household import Household

AGENT, MEMBERS = "clew.harness.agents:player", 8
TICKS = os.sysconf("SC_CLK_TCK")


def spent(workers: Workers | None = None) -> float:
    """Seconds of process time of this process and of the workers so far."""
    total = time.process_time()
    for link in workers.links.values() if workers is not None else ():
        fields = Path(f"/proc/{link.pid}/stat").read_text().rpartition(")")[2].split()  # type: ignore[attr-defined]
        total += (int(fields[11]) + int(fields[12])) / TICKS
    return total


def told(name: str, ratios: list[float], mark: str) -> None:
    print(f"{name}: {statistics.median(ratios):.3f} [{min(ratios):.3f}, {max(ratios):.3f}] ({mark})", flush=True)


def cost(folder: Path, model_folder: str, rounds: int, tasks: int) -> list[Keeper]:
    house, model = Household(), household_sft(model_folder)
    cpu, wall, stores = list[float](), list[float](), list[Keeper]()
    with local_workers(1) as one:
        for turn in range(rounds + 1):
            drawn, took = house.sample(tasks, seed=turn), {"alone": (0.0, 0.0), "worker": (0.0, 0.0)}
            for i, name in enumerate(("alone", "worker", "worker", "alone")):
                store = open_store(folder / f"{name}{turn}{i}.db")
                more = {"executor": one} if name == "worker" else {}
                runner = Runner(AGENT, house, model, store, sampling={"max_tokens": 8}, **more)
                began, clock = spent(one), time.perf_counter()
                groups = runner.collect(drawn, n=MEMBERS, seed=turn)
                store.commit()
                took[name] = took[name][0] + spent(one) - began, took[name][1] + time.perf_counter() - clock
                stores += [store] if i == 0 else []
            calls = sum(len(run.calls) for run in groups.runs)
            if turn:  # the first starts the worker
                cpu.append(took["worker"][0] / took["alone"][0])
                wall.append(took["worker"][1] / took["alone"][1])
                print(
                    f"  {calls} Calls: alone {took['alone'][0]:.2f} s, worker {took['worker'][0]:.2f} s of process time"
                )
    told("cost: process time through a worker / in one process", cpu, "mark: at most 1.06")
    told("cost: wall time through a worker / in one process", wall, "no mark")
    return stores


def filing(folder: Path, stores: list[Keeper]) -> None:
    rates, plain = list[float](), list[float]()
    for turn, store in enumerate(stores):
        made, n = list[Bundle](), 0
        for run in store.run_ids():
            copied = MemoryStore()
            copy_run(copied, store, run)
            bundle = whole(store, copied, [run])
            n += len(bundle.calls)
            made.append(bundle)
        into = open_store(folder / f"filed{turn}.db")
        began = time.process_time()
        for one in made:
            bundle: Bundle = pickle.loads(pickle.dumps(one))
            file_bundle(into, bundle)
            into.commit()
        rates.append(n / (time.process_time() - began))
        into.close()
        into = open_store(folder / f"plain{turn}.db")
        began = time.process_time()
        for bundle in made:
            for row in bundle.rows:
                into.put_run(row)
            for call in bundle.calls:
                into.put_call(*call)
            into.commit()
        plain.append(n / (time.process_time() - began))
        into.close()
    told("filing: Calls per second of process time", rates, "mark: at least 5,000")
    told("filing: the same Calls put without nodes or unpickling", plain, "no mark")


def latency(rounds: int) -> None:
    counter, model = build("tasksets", "counter(low=4, high=8, steps=10)"), Latent(0.05)
    gains = []
    with local_workers(1) as one, local_workers(4) as four:
        for turn in range(rounds + 1):
            took = {}
            for workers in (one, four):
                runner = Runner(AGENT, counter, model, executor=workers, concurrency=workers.n)
                clock = time.perf_counter()
                runner.collect(counter.sample(16, seed=turn), n=1, seed=turn)
                took[workers.n] = time.perf_counter() - clock
            if turn:
                gains.append(took[1] / took[4])
    told("latency of 50 ms: wall time of one worker / four", gains, "mark: at least 3.5")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--tasks", type=int, default=16)
    parser.add_argument(
        "--model", default=".clew/models/household-sft", help="folder of the policy; made where it is not"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        filing(Path(folder), cost(Path(folder), options.model, options.rounds, options.tasks))
    latency(min(options.rounds, 3))


if __name__ == "__main__":
    main()
