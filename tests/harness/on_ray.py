"""What ``test_ray.py`` runs in a process of its own: runs on two raylets, a worker and a raylet killed meanwhile.

Prints one JSON line of what came out.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import ray
from ray.cluster_utils import Cluster

from clew.core.registry import build
from clew.harness import Runner
from clew.harness.agents import player
from clew.harness.trees import grow
from clew.harness.workers.cluster import ray_workers
from clew.models.local import small

FILE = f"{Path(__file__).parent / 'lenient.py'}:Lenient"
KILLS = int(os.environ.get("CLEW_KILLS", "1"))  # of raylets
SOON = {"health_check_initial_delay_ms": 500, "health_check_period_ms": 500, "health_check_failure_threshold": 3}


def told(runs: Any) -> list[Any]:
    numbers = [(c.key, c.seed, c.done, c.node_out, c.logprobs) for run in runs for c in run.calls]
    return [(*rest, None if logprobs is None else logprobs.tobytes()) for *rest, logprobs in numbers]


def main(folder: Path) -> None:
    head = {"num_cpus": 1, "include_dashboard": False, "_system_config": SOON}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    second = cluster.add_node(num_cpus=1)
    ray.init(cluster.address, logging_level="CRITICAL", log_to_driver=False)
    taskset: Any = build("tasksets", FILE)
    sizes = {"d": 16, "layers": 1, "heads": 2, "kv_heads": 1, "context": 256, "seed": 3}
    model = small(taskset.vocabulary(), ref="tiny", steady=True, **sizes)
    tasks, how = taskset.sample(4), {"sampling": {"max_tokens": 3}}
    alone = Runner(player, taskset, model, **how)  # type: ignore[arg-type]
    whole = alone.collect(tasks, n=4, seed=5).runs
    out: dict[str, Any] = {}
    dice = random.Random(3)
    with ray_workers(2) as workers:
        dealt = Runner(player, taskset, model, folder / "runs.db", executor=workers, **how)  # type: ignore[arg-type]
        got = dealt.collect(tasks, n=4, seed=5).runs
        place = ray.get([link.actor.__ray_call__.remote(lambda _: here()) for link in workers.links.values()])
        out["nodes"] = len({node for node, _ in place})
        out["groups"] = told(got) == told(whole)
        out["forks"] = told(alone.fork(whole[0], 3, n=3, seed=9)) == told(dealt.fork(got[0], 3, n=3, seed=9))
        growth = grow.Growth(leaves=6, seeds=2, places=2, together=2)
        trees = [told(grow.collect(r, tasks[:2], growth, seed=1).runs) for r in (alone, dealt)]
        out["trees"] = trees[0] == trees[1]
        slow: Any = build("tasksets", f"slow(of={FILE!r}, seconds=0.05)")
        lazy = Runner(player, slow, model, dealt.store, executor=workers, **how)  # type: ignore[arg-type]

        def kept(*kill: Any) -> bool:
            """Whether the runs are those of one process where this is called while they are driven."""
            timer = threading.Timer(0.05 + 0.3 * dice.random(), *kill)
            timer.start()
            found = lazy.collect(tasks, n=4, seed=5).runs
            timer.join()
            return told(found) == told(whole)

        out["a worker killed"] = kept(os.kill, (place[0][1], signal.SIGKILL))
        began, out["a raylet killed"] = time.monotonic(), True
        for _ in range(KILLS):
            lazy.collect(tasks[:1], n=1, seed=5)  # both workers are up again
            out["a raylet killed"] &= kept(cluster.remove_node, (second, False))
            second = cluster.add_node(num_cpus=1)
        out["seconds for each"] = (time.monotonic() - began) / KILLS
    out["faults"] = len(dealt.store.verify())
    out["judged"] = {len(dealt.store.annotations([run], "reward", "run")) for run in dealt.store.run_ids()} == {1}
    print(json.dumps(out), flush=True)
    cluster.remove_node(second, False)
    ray.shutdown()
    cluster.shutdown()


def here() -> tuple[str, int]:
    return ray.get_runtime_context().get_node_id(), os.getpid()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
