"""Rollouts at the quickstart's model and world against `transformers.generate` called once per turn.

    python benchmarks/rollouts.py [--model FOLDER] [--runs 64] [--rounds 7] [--steady] [--json FILE]

Each variant plays the same tasks of `household` with the same weights, sampling and reply limit, all runs at once, in
one process on one thread with malloc's trim and mmap thresholds raised: (sqlite) `Runner` with everything recorded in a
file; (memory) the same in the in-memory store; (engine) the same requests through the same engine by a bare loop that
records nothing; (generate) a loop that pads the histories of all live runs and calls `module.generate` each turn.
Rounds take the variants in turn, on fresh tasks. Printed: sampled tokens per second of process time (all threads) and
of wall time, ratios to `generate` of the same round as median [lowest, highest], and recording's share of process time.
`trained` is the pre-trained policy (made here once, about 80 CPU-s, unless --model names its folder), `untrained` has
random weights, so that replies run to the limit.
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import gc
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch

from clew.core.keys import derive
from clew.core.records import Node, Request
from clew.core.values import Message, Sampling, Task
from clew.harness import Runner
from clew.models.local import Local, small
from clew.train.warmstart import household_sft
from clew.worlds.household import Household

MEMBERS, LIMIT = 8, 8
SAMPLING = Sampling(max_tokens=LIMIT)
Variant = Callable[[Local, Household, list[Task], int], Callable[[], int]]  # plays; what it gives counts the tokens


def raise_malloc_thresholds() -> None:
    """Keep freed memory: for every variant alike."""
    libc = ctypes.CDLL(None)
    for option in (-1, -3):  # M_TRIM_THRESHOLD, M_MMAP_THRESHOLD
        libc.mallopt(option, 1 << 30)


def recorded(store: str) -> Variant:
    def play(model: Local, house: Household, tasks: list[Task], seed: int) -> Callable[[], int]:
        runner = Runner("clew.harness.agents:player", house, model, store, sampling={"max_tokens": LIMIT})
        groups = runner.collect(tasks, n=MEMBERS, seed=seed)
        runner.store.commit()
        return lambda: sum(len(c.logprobs) for run in groups.runs for c in run.calls if c.logprobs is not None)

    return play


def bare(model: Local, house: Household, tasks: list[Task], seed: int) -> Callable[[], int]:
    """The engine with nothing recorded: nodes without keys, worlds stepped in a loop."""
    renderer, head = model.renderer, model.renderer.head()

    async def play(task: Task, number: int) -> int:
        world, path, closed, tokens = house.open(task), [], True, 0
        seen = world.observe()
        while not seen.done:
            said = Message("user", seen.text)
            path.append(Node(b"", b"", said, renderer.delta(path[-1] if path else None, closed, said, ()), "", b""))
            request = Request(
                tuple(path), SAMPLING, derive(seed, number, len(path)), head=head, order=(number,), run=str(number)
            )
            reply = await model.complete(request)
            assert reply.tokens is not None
            tokens += len(reply.tokens)
            path.append(Node(b"", b"", reply.message, head + reply.tokens, "", b""))
            closed = reply.finish == "stop"
            seen = world.step(reply.message.text)
        model.release(str(number))
        return tokens

    async def everything() -> int:
        count = len(tasks) * MEMBERS
        model.seat(count)
        plays = [play(task, i * MEMBERS + j) for i, task in enumerate(tasks) for j in range(MEMBERS)]
        done = [asyncio.ensure_future(p) for p in plays]
        for task in done:
            task.add_done_callback(lambda _: model.seat(-1))
        return sum(await asyncio.gather(*done))

    tokens = asyncio.run(everything())
    return lambda: tokens


def generate(model: Local, house: Household, tasks: list[Task], seed: int) -> Callable[[], int]:
    """`generate` per turn over the left-padded histories of all runs that are not done."""
    renderer, module = model.renderer, model.module
    stop = min(renderer.stop)
    torch.manual_seed(seed)
    worlds = [house.open(task) for task in tasks for _ in range(MEMBERS)]
    seen = [world.observe() for world in worlds]
    ids: list[list[int]] = [[] for _ in worlds]
    last: list[Node | None] = [None] * len(worlds)
    tokens = 0
    live = list(range(len(worlds)))
    while live:
        for i in live:
            ids[i] += [*renderer.delta(last[i], True, Message("user", seen[i].text), ()), *renderer.head()]
        longest = max(len(ids[i]) for i in live)
        padded = torch.full((len(live), longest), stop)
        mask = torch.zeros(len(live), longest, dtype=torch.long)
        for row, i in enumerate(live):
            padded[row, longest - len(ids[i]) :] = torch.tensor(ids[i])
            mask[row, longest - len(ids[i]) :] = 1
        with torch.inference_mode():
            out = module.generate(
                input_ids=padded, attention_mask=mask, do_sample=True, temperature=1.0, top_k=0, top_p=1.0,
                max_new_tokens=LIMIT, eos_token_id=stop, pad_token_id=stop,
            )[:, longest:].tolist()  # fmt: skip
        for i, row in zip(live, out, strict=True):
            reply = row[: row.index(stop) + 1] if stop in row else row
            tokens += len(reply)
            ids[i] += reply
            last[i] = Node(b"", b"", Message("assistant", ""), tuple(reply), "", b"")
            seen[i] = worlds[i].step(renderer.parse(reply).text)
        live = [i for i in live if not seen[i].done]
    return lambda: tokens


def spread(values: list[float]) -> str:
    return f"{statistics.median(values):6.2f} [{min(values):.2f}, {max(values):.2f}]"


def measure(model: Local, runs: int, rounds: int) -> dict[str, list[tuple[int, float, float]]]:
    """(tokens, process seconds, wall seconds) of each variant in each round; a round before these warms up."""
    house, found = Household(), {name: [] for name in ("sqlite", "memory", "engine", "generate")}
    with tempfile.TemporaryDirectory() as folder:
        variants: dict[str, Variant] = {
            "sqlite": recorded(str(Path(folder) / "runs.db")), "memory": recorded(":memory:"), "engine": bare,
            "generate": generate,
        }  # fmt: skip
        for number in range(rounds + 1):
            tasks = house.sample(runs // MEMBERS, seed=100 + number)
            for name, play in variants.items():
                gc.collect()
                wall, cpu = time.perf_counter(), time.process_time()
                count = play(model, house, tasks, number)
                took = time.process_time() - cpu, time.perf_counter() - wall
                if number:
                    found[name].append((count(), *took))
    return found


def report(title: str, found: dict[str, list[tuple[int, float, float]]]) -> dict[str, object]:
    result: dict[str, object] = {}
    print(f"{title:30} {'tok per CPU-s':>26} {'tok per s':>26} {'x generate (CPU)':>22} {'x generate (wall)':>22}")
    base = [(tokens / cpu, tokens / wall) for tokens, cpu, wall in found["generate"]]
    for name, rows in found.items():
        cpu = [tokens / seconds for tokens, seconds, _ in rows]
        wall = [tokens / seconds for tokens, _, seconds in rows]
        over = [a / b for a, (b, _) in zip(cpu, base, strict=True)]
        over_wall = [a / b for a, (_, b) in zip(wall, base, strict=True)]
        result[name] = {"tok_per_cpu_s": cpu, "tok_per_s": wall, "ratio_cpu": over, "ratio_wall": over_wall}
        print(
            f"  {name:28} {spread([c / 1000 for c in cpu]) + 'k':>26} {spread([w / 1000 for w in wall]) + 'k':>26}"
            f" {spread(over):>22} {spread(over_wall):>22}"
        )
    cost = {name: np.array([seconds / tokens for tokens, seconds, _ in rows]) for name, rows in found.items()}
    for name in ("sqlite", "memory"):
        share = (1 - cost["engine"] / cost[name]).tolist()
        result[f"share_{name}"] = share
        print(f"  runner and recording, share of CPU with {name}: {spread(share)}")
    lengths = [tokens for tokens, _, _ in found["engine"]]
    print(f"  sampled tokens a round: {statistics.mean(lengths):.0f}")
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", help="folder of the pre-trained weights; trained here where not given")
    parser.add_argument("--runs", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steady", action="store_true", help="measure the engine's steady mode")
    parser.add_argument("--json", help="write every figure to this file")
    options = parser.parse_args()
    torch.set_num_threads(1)
    raise_malloc_thresholds()
    trained = Local(options.model, steady=options.steady) if options.model else household_sft(steady=options.steady)
    untrained = small(Household().vocabulary(), steady=options.steady)
    gc.collect()
    gc.freeze()  # as the command line does once weights are loaded; for every variant alike
    results = {}
    for title, model in (("trained", trained), ("untrained, to the limit", untrained)):
        results[title] = report(f"{title}, {options.runs} runs", measure(model, options.runs, options.rounds))
    if options.json:
        Path(options.json).write_text(json.dumps(results, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
