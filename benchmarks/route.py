"""What a router costs: the time of a decision, and the throughput of a pool behind it against its workers alone.

    python benchmarks/route.py [--decisions 500] [--requests 240] [--pairs 7] [--backbone FOLDER] [--json FILE]

Decision: process milliseconds of `Routed.plan` (transcript, features, scores, policy, classes of data) for
conversations of 2,000 and of 20,000 characters, in a pool of 5, with a policy that reads every label; p50 and p95 over
the decisions. With --backbone also those of a head over the hidden states of that model, which reads 1,024 tokens at
most; no conversation is read twice. --backbone tiny:WIDTHxLAYERS is an untrained Qwen3 made here, with a tokenizer of
bytes, so that each character is a token.

Throughput: a pool of 4 endpoints in a process of their own, each of which answers after 50 ms. One process sends the
same requests, by `--at-once` clients that ask again once they have their answer, (direct) to the workers' own clients
and (routed) to `Routed` over them, whose head names the same workers in turn. The two are taken in turn, in an order
that is turned each round, after a round that is not counted. Printed: requests a second of each, the median [quartiles]
over the rounds of what the router adds to the time, and the asking process's own time for a request.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

import clew
from clew.core.records import Request
from clew.core.values import Message
from clew.models.asking import request
from clew.models.compose.backbone import Backbone
from clew.models.compose.ngrams import Ngrams
from clew.models.compose.policy import Policy
from clew.models.compose.routed import Routed
from clew.models.compose.router import Head, Router, Worker
from clew.models.fakes import Echo

SLOW = 0.05  # seconds of a worker's answer
WORDS = ["please", "find", "the", "cheapest", "train", "from", "Lima", "to", "Cusco", "after", "nine", "add", "17"]


def conversation(size: int, number: int) -> Request:
    """User messages of ``size`` characters together, no two the same."""
    draw = np.random.default_rng(number)
    words = " ".join(draw.choice(WORDS, size // 4))[: size - 40]
    parts = [f"{number} {words[i : i + size // 4]}" for i in range(0, len(words), size // 4)]
    return request(Echo(), *parts)


def byte_model(sizes: str, folder: Path) -> Path:
    """An untrained Qwen3 over bytes, of WIDTHxLAYERS."""
    import tokenizers
    import torch
    import transformers

    width, layers = map(int, sizes.split("x"))
    words = tokenizers.ByteLevelBPETokenizer()
    words.train_from_iterator(["a"], 256)
    torch.manual_seed(0)
    config = transformers.Qwen3Config(
        vocab_size=words.get_vocab_size(), hidden_size=width, intermediate_size=3 * width, num_hidden_layers=layers,
        num_attention_heads=width // 32, num_key_value_heads=width // 64, head_dim=32, max_position_embeddings=4096,
    )  # fmt: skip
    model = transformers.Qwen3ForCausalLM(config)
    print(f"{model.num_parameters():,} parameters, of {width} by {layers} blocks; a token is a byte")
    model.save_pretrained(folder)
    transformers.PreTrainedTokenizerFast(tokenizer_object=words._tokenizer).save_pretrained(folder)
    return folder


def decisions(count: int, size: int, features: Any) -> dict[str, float]:
    """Process milliseconds of a decision."""
    labels: dict[str, Any] = {"region": "eu", "retention_days": 0, "seconds": 1, "clearance": ("notes",)}
    pool = tuple(Worker(f"w{i}", "echo", 1.0, 2.0, **labels) for i in range(5))
    weights = np.random.default_rng(0).normal(size=(5, features.dim)).astype(np.float32)
    policy = Policy(regions=("eu",), retention=7, data_class=("notes",), max_cost=10, max_latency=9)
    model = Routed(Router(pool, features, Head(weights)), [Echo()] * 5, policy=policy)
    asked = [conversation(size, i) for i in range(count + 20)]
    taken = []
    for one in asked:
        began = time.process_time()
        model.plan(one)
        taken.append(1000 * (time.process_time() - began))
    p50, p95 = np.quantile(taken[20:], [0.5, 0.95])
    return {"p50": float(p50), "p95": float(p95)}


def pool_process(ports: Any) -> None:
    """Endpoints that answer after 50 ms, on one event loop; their ports are sent once they listen."""
    told = {"choices": [{"index": 0, "message": {"role": "assistant", "content": "done"}, "finish_reason": "stop"}]}
    body = json.dumps(told | {"model": "m", "usage": {"prompt_tokens": 10, "completion_tokens": 1}}).encode()
    head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n".encode()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                lines = (await reader.readuntil(b"\r\n\r\n")).lower()
                size = int(lines.partition(b"content-length:")[2].split(b"\r\n")[0])
                await reader.readexactly(size)
                await asyncio.sleep(SLOW)
                writer.write(head + body)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def serve() -> None:
        servers = [await asyncio.start_server(answer, "127.0.0.1", 0) for _ in range(4)]
        ports.send([one.sockets[0].getsockname()[1] for one in servers])
        await asyncio.gather(*(one.serve_forever() for one in servers))

    asyncio.run(serve())


class Turn(Head):
    """A head that names the workers in turn, whatever is asked; it multiplies as any head does."""

    count = 0

    def scores(self, h: Any) -> Any:
        type(self).count += 1
        scores = super().scores(h)
        scores[(type(self).count - 1) % len(scores)] = 1e6
        return scores


async def spent(models: list[Any], asked: list[Request], at_once: int) -> tuple[float, float]:
    """Seconds, and process seconds, for all requests, of which so many are under way at once."""
    left = iter(range(len(asked)))

    async def client(slot: int) -> None:
        await asyncio.sleep(SLOW * slot / at_once)  # clients are not in step with each other
        for index in left:
            done = await models[index % len(models)].complete(asked[index])
            assert done.message == Message("assistant", "done")

    began, busy = time.perf_counter(), time.process_time()
    await asyncio.gather(*map(client, range(at_once)))
    return time.perf_counter() - began, time.process_time() - busy


async def throughput(ports: list[int], requests: int, pairs: int, at_once: int) -> dict[str, Any]:
    """Requests a second of the workers alone and behind the router, and the share of time that the router adds."""
    pool = tuple(Worker(f"w{i}", f"openai:m@http://127.0.0.1:{port}/v1") for i, port in enumerate(ports))
    direct = [clew.model(worker.ref) for worker in pool]
    router = Router(pool, Ngrams(), Turn(np.zeros((4, 2048), np.float32)))
    ways: list[tuple[str, list[Any]]] = [("direct", direct), ("routed", [Routed(router, direct)])]
    asked = [conversation(2000, i) for i in range(requests)]
    seconds: dict[str, list[float]] = {"direct": [], "routed": []}
    process: dict[str, list[float]] = {"direct": [], "routed": []}
    for round_ in range(pairs + 1):
        for name, models in ways[:: 1 if round_ % 2 else -1]:
            taken, busy = await spent(models, asked, at_once)
            if round_:
                seconds[name].append(taken)
                process[name].append(1000 * busy / requests)
    added = [b / a - 1 for a, b in zip(seconds["direct"], seconds["routed"], strict=True)]
    low, middle, high = statistics.quantiles(added, n=4)
    rates = {name: requests / statistics.median(taken) for name, taken in seconds.items()}
    each = {name: statistics.median(taken) for name, taken in process.items()}
    added_time = {"median": middle, "quartiles": [low, high]}
    return {"requests a second": rates, "added": added_time, "at once": at_once, "process ms a request": each}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--decisions", type=int, default=500)
    parser.add_argument("--requests", type=int, default=240)
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--at-once", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--backbone", default="")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found: dict[str, Any] = {"n": options.decisions, "pairs": options.pairs, "requests": options.requests}
    with tempfile.TemporaryDirectory() as room:
        ways: dict[str, Any] = {"n-grams": Ngrams()}
        if options.backbone:
            kind, _, sizes = options.backbone.partition(":")
            folder = byte_model(sizes, Path(room)) if kind == "tiny" else Path(options.backbone)
            ways["hidden states"] = Backbone.of(folder)
            ways["hidden states"].model()
        for name, features in ways.items():
            for size in (2000, 20_000):
                found[f"decision of {size} characters by {name}, ms"] = told = decisions(
                    options.decisions, size, features
                )
                print(
                    f"decision, {size:6,} characters, {name}: p50 {told['p50']:.2f} ms, p95 {told['p95']:.2f} ms "
                    "of process time"
                )
    if not options.pairs:
        return
    here, there = multiprocessing.get_context("spawn").Pipe()
    process = multiprocessing.get_context("spawn").Process(target=pool_process, args=(there,), daemon=True)
    process.start()
    try:
        ports = here.recv()
        found["throughput"] = []
        for at_once in options.at_once:
            count = options.requests if at_once > 1 else max(20, options.requests // 8)
            one = asyncio.run(throughput(ports, count, options.pairs, at_once))
            rates, added, each = one["requests a second"], one["added"], one["process ms a request"]
            low, high = added["quartiles"]
            print(f"{at_once:3} at once: direct {rates['direct']:.1f}/s, routed {rates['routed']:.1f}/s, "
                  f"added {100 * added['median']:.1f} % [{100 * low:.1f}, {100 * high:.1f}]; process time a request: "
                  f"{each['direct']:.2f} and {each['routed']:.2f} ms")  # fmt: skip
            found["throughput"].append(one)
    finally:
        process.terminate()
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
