"""Toward 1,000 machines, on paper: where the one writer, the store and the push of weights saturate.

    python benchmarks/simulated_cluster.py [--calls 33000] [--bytes 610] [--seed 0]

A simulation, not a measurement. Each machine drives runs side by side, whose lengths are lognormal; a run's records
leave in one bundle when it ends, and one process files bundles in the order in which they come (``workers.py`` measures
how fast). An iteration ends when the last bundle is filed; then the weights go out: from the driver to each machine in
turn (as pipes do), or along a tree of machines that hand them on (as Ray's object store does with one object, which
``ray_workers`` makes of them).
Printed for 1 to 1,000 machines: how busy the writer is, how much later the iteration ends because of it, the gigabytes
that a day adds to the store, and how long a push takes both ways. The writer is called saturated where it is busy for
more than 90 % of the time.

Two users: `words`, whose small policy plays text worlds on every core, and `coder`, whose model of 8 billion weights in
bfloat16 works in repositories. Figures that are assumed and not measured stand in ``USERS``.
"""

from __future__ import annotations

import argparse
import math
from typing import NamedTuple

import numpy as np

MACHINES = (1, 3, 10, 30, 100, 300, 1000)
LINK = 25e9 / 8  # bytes a second that one machine sends: 25 Gb/s, assumed


class User(NamedTuple):
    """live: runs side by side on a machine. runs: of a machine in an iteration. turns: Calls of a run, median.
    call: seconds of each. spread: of the logarithm of a run's length. weights: bytes."""

    live: int
    runs: int
    turns: float
    call: float
    spread: float
    weights: float


USERS = {"words": User(64, 512, 24, 0.02, 0.3, 4e5), "coder": User(64, 256, 80, 4.0, 0.6, 16e9)}


def simulated(user: User, machines: int, rate: float, dice: np.random.Generator) -> tuple[float, float, float, float]:
    """(share of time that the writer is busy, seconds of an iteration, of these waiting for the writer, its Calls)."""
    calls = np.maximum(
        1, user.turns * np.exp(user.spread * dice.standard_normal((machines, user.live, user.runs // user.live)))
    )
    ends = np.cumsum(calls * user.call, axis=-1).reshape(-1)  # a free place takes the next run
    order = np.argsort(ends)
    arrives, takes = ends[order], calls.reshape(-1)[order] / rate
    before = np.concatenate([[0.0], np.cumsum(takes)[:-1]])
    filed = np.maximum.accumulate(arrives - before) + before + takes  # Lindley: one server, first come first served
    whole = float(filed[-1])
    return float(takes.sum()) / whole, whole, whole - float(arrives[-1]), float(calls.sum())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=float, default=33_000, help="Calls a second that the writer files (workers.py)")
    parser.add_argument("--bytes", type=float, default=610, help="of the store for each Call")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    for name, user in USERS.items():
        print(f"\n{name}: {user}")
        print("machines  writer busy  iteration s  of it waiting  GB a day  push in turn s  push by a tree s")
        saturated = 0
        for machines in MACHINES:
            busy, whole, waits, calls = simulated(user, machines, options.calls, np.random.default_rng(options.seed))
            turn = machines * user.weights / LINK
            tree = math.ceil(math.log2(machines + 1)) * user.weights / LINK
            daily = calls * options.bytes / whole * 86400 / 1e9
            print(f"{machines:8}  {busy:11.1%}  {whole:11.1f}  {waits:13.1f}  {daily:8.1f}  {turn:14.1f}  {tree:16.1f}")
            saturated = saturated or (machines if busy > 0.9 else 0)
        print(f"the writer is {f'saturated at {saturated} machines' if saturated else 'not saturated'}")


if __name__ == "__main__":
    main()
