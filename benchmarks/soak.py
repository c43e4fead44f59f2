"""A `clew serve` under mixed load: no answer wrong, mixed or lost, memory flat, every refusal with a reason.

    python benchmarks/soak.py [--minutes 30] [--rate 3]

A tiny untrained model is served by a process of its own, which records what it serves. First every question is asked
once while nothing else is going on; the questions are seeded, and the model is loaded ``steady``, so that each has one
right answer. Then they come at random, whole and streamed, among clients that hang up, read slowly or not at all, send
broken bodies, prompts and bodies that are too large, a wrong key, or half a header, and bursts of twice what the queue
holds. In the middle the server is killed with SIGKILL and started again; clients ask again where a connection broke or
they were told to wait. When the load is over its sockets and rows must be free again. At the end SIGTERM comes while
streams are under way. Printed too: the median and the 99th percentile of the time from one event of a stream to the
next, over all streams that were read at once.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from scipy.stats import theilslopes

QUEUE, PROMPT, OUTPUT, BODY = 24, 200, 96, 1  # limits of the server: choices, tokens, tokens, MB
STALL = 8.0  # seconds; a busy machine may keep a client that reads from reading for a while
WORDS = [f"w{i}" for i in range(300)]
PATIENCE = 60.0  # seconds in which a server gives up a header, and is quiet again
TRIES = 400  # of one question, before its answer counts as lost


def make_model(folder: Path) -> None:
    import torch

    from clew.models.local import small

    torch.set_num_threads(1)
    small(WORDS, context=512).save(folder)


class Server:
    """`clew serve` in a process of its own, at one port over several lives."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.folder, self.key = folder, secrets.token_hex(16)
        self.process: subprocess.Popen[bytes] | None = None
        self.sizes: list[list[tuple[float, float]]] = []  # of each life: (seconds since its start, MB)
        self.work = 0.0  # CPU seconds of all lives

    def start(self) -> None:
        line = ["serve", str(self.folder / "model"), "--name", "tiny", "--record", str(self.folder / "served.db"),
                "--port", str(self.port), "--max-queue", str(QUEUE), "--max-prompt", str(PROMPT),
                "--max-output", str(OUTPUT), "--max-body", str(BODY), "--stall", str(STALL), "--timeout", "60",
                "--drain", "20", "--threads", "1", "--model-options", '{"steady": true}']  # fmt: skip
        env = {**os.environ, "CLEW_SERVE_KEYS": self.key, "OMP_NUM_THREADS": "1"}
        with (self.folder / "server.log").open("ab") as log:
            self.process = subprocess.Popen([sys.executable, "-m", "clew.cli", *line], env=env, stdout=log, stderr=log)
        self.sizes.append([])
        self.born = time.monotonic()

    def sample(self) -> None:
        """Note the resident memory and CPU time of the living process."""
        assert self.process is not None
        try:
            pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
            times = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        except (OSError, IndexError):
            return
        self.spent = (int(times[11]) + int(times[12])) / os.sysconf("SC_CLK_TCK")
        self.sizes[-1].append((time.monotonic() - self.born, pages * os.sysconf("SC_PAGE_SIZE") / 2**20))

    def sockets(self) -> int:
        """Open sockets of the server's process."""
        assert self.process is not None
        files = Path(f"/proc/{self.process.pid}/fd")
        return sum(os.readlink(files / name).startswith("socket:") for name in os.listdir(files))

    def end(self, how: int) -> int:
        assert self.process is not None
        self.sample()
        self.work += self.spent
        self.process.send_signal(how)
        return self.process.wait(60)


def questions() -> list[dict[str, Any]]:
    """Questions of every kind, each with a seed."""
    draw = random.Random(0)
    out: list[dict[str, Any]] = []
    for k in range(48):
        text = " ".join(draw.choices(WORDS, k=draw.randint(3, 40)))
        most = draw.choice((8, 24, OUTPUT))
        chat = [{"role": "system", "content": " ".join(WORDS[:20])}, {"role": "user", "content": text}]
        body = {"model": "tiny", "seed": k, "temperature": 1.0}
        kind = k % 4
        if kind < 2:
            body |= {"messages": chat, "max_tokens": most, "logprobs": kind == 1, "n": 1 + k % 3}
            body |= {"top_logprobs": 2} if kind == 1 else {"stop": [WORDS[k]]}
        elif kind == 2:
            body |= {"prompt": text, "max_tokens": most, "return_token_ids": True}
        else:
            body |= {"input": text, "max_output_tokens": most}
        out.append({"path": ("chat/completions", "chat/completions", "completions", "responses")[kind], "body": body})
    return out


def said(path: str, body: dict[str, Any]) -> Any:
    """What an answer says, without ids and times."""
    if path == "responses":
        return [
            body["status"],
            [[p["text"] for p in i["content"]] for i in body["output"]],
            body["usage"]["output_tokens"],
        ]
    choices = sorted(body["choices"], key=lambda c: c["index"])
    return [[c.get("message", {}).get("content", c.get("text")), c["finish_reason"], c.get("token_ids"),
             [e["logprob"] for e in (c.get("logprobs") or {}).get("content") or ()]] for c in choices]  # fmt: skip


def joined(path: str, lines: list[str]) -> Any:
    """What a stream says once it is joined; None where its end is missing, its error where it failed."""
    events = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    failed = next((e["error"] for e in events if e.get("error")), None)
    if failed:
        return failed
    if path == "responses":
        whole = next(
            (e["response"] for e in events if e["type"] in ("response.completed", "response.incomplete")), None
        )
        deltas = "".join(e["delta"] for e in events if e["type"] == "response.output_text.delta")
        if whole is not None and deltas != "".join(p["text"] for i in whole["output"] for p in i["content"]):
            return "the deltas are not the text"
        return said(path, whole) if whole is not None else None
    if "data: [DONE]" not in lines:
        return None
    found: dict[int, list[Any]] = {}
    for choice in (c for e in events for c in e["choices"]):
        it = found.setdefault(choice["index"], ["", None, None, []])
        it[0] += choice.get("delta", {}).get("content") or choice.get("text") or ""
        it[1] = choice["finish_reason"] or it[1]
        it[2] = (it[2] or []) + choice["token_ids"] if "token_ids" in choice else it[2]
        it[3] += [entry["logprob"] for entry in (choice.get("logprobs") or {}).get("content") or ()]
    return [found[i] for i in sorted(found)]


class Soak:
    """The load, and what came of it."""

    def __init__(self, server: Server, asked: list[dict[str, Any]]) -> None:
        self.server, self.asked = server, asked
        self.right: list[Any] = []
        self.counts: Counter[str] = Counter()
        self.faults: list[str] = []
        self.gaps: list[float] = []  # seconds between the events of streams
        self.draw = random.Random(1)
        self.client = httpx.AsyncClient(timeout=60, limits=httpx.Limits(max_connections=200))
        self.base = f"http://127.0.0.1:{server.port}/v1"
        self.headers = {"authorization": f"Bearer {server.key}"}

    def fault(self, what: str) -> None:
        self.faults.append(what)
        print(f"FAULT {what}"[:400], flush=True)

    async def ready(self) -> None:
        assert self.server.process is not None
        while self.server.process.poll() is None:
            try:
                if (await self.client.get(self.base.removesuffix("/v1") + "/health")).status_code == 200:
                    return
            except httpx.HTTPError:
                pass
            await asyncio.sleep(0.1)
        raise SystemExit(f"the server did not start: {(self.server.folder / 'server.log').read_text()[-2000:]}")

    async def once(self, k: int, stream: bool) -> Any:
        """One try of a question: what it said, or None where it must be asked again."""
        path, body = self.asked[k]["path"], self.asked[k]["body"]
        url = f"{self.base}/{path}"
        try:
            if not stream:
                reply = await self.client.post(url, json=body, headers=self.headers)
                return said(path, reply.json()) if reply.status_code == 200 else self.refused(reply)
            lines: list[str] = []
            async with self.client.stream("POST", url, json=body | {"stream": True}, headers=self.headers) as reply:
                if reply.status_code != 200:
                    await reply.aread()
                    return self.refused(reply)
                last = None
                async for line in reply.aiter_lines():
                    lines.append(line)
                    if line.startswith("data: {"):
                        now = time.monotonic()
                        self.gaps += [] if last is None else [now - last]
                        last = now
            return joined(path, lines)
        except httpx.HTTPError:
            self.counts["connections that broke"] += 1
            return None

    def refused(self, reply: httpx.Response) -> None:
        """A refusal of a good question: it must say why, be one that passes, and say when."""
        self.reason(reply)
        self.counts[f"told to wait ({reply.status_code})"] += 1
        if reply.status_code not in (429, 503) or not reply.headers.get("retry-after"):
            self.fault(f"a good question was answered {reply.status_code}: {reply.text}")

    def reason(self, reply: httpx.Response) -> None:
        try:
            told = reply.json()["error"]
        except (ValueError, KeyError, TypeError):
            told = {}
        self.counts["refusals"] += 1
        if not (told.get("message") and told.get("code") and told.get("type")):
            self.fault(f"a refusal without a reason: {reply.status_code} {reply.text!r}")

    async def ask(self) -> None:
        k, stream = self.draw.randrange(len(self.asked)), self.draw.random() < 0.5
        for _ in range(TRIES):
            found = await self.once(k, stream)
            if found is not None:
                self.counts["answers"] += 1
                if found != self.right[k]:
                    self.fault(f"question {k} (stream {stream}): {found} instead of {self.right[k]}")
                return
            await asyncio.sleep(0.5)
        self.fault(f"question {k} was never answered")

    async def hang_up(self) -> None:
        """A client that leaves in the middle of a stream, or before a whole answer."""
        k = self.draw.randrange(len(self.asked))
        body = self.asked[k]["body"] | {"stream": True}
        try:
            async with self.client.stream(
                "POST", f"{self.base}/{self.asked[k]['path']}", json=body, headers=self.headers
            ) as reply:
                if reply.status_code == 200:
                    async for _ in reply.aiter_lines():
                        break
        except httpx.HTTPError:
            pass
        self.counts["clients that hung up"] += 1

    async def bad(self, what: str) -> None:
        """A request that must be refused, with a reason."""
        good = {"model": "tiny", "messages": [{"role": "user", "content": "w1"}], "max_tokens": 4}
        body: Any = {
            "broken JSON": b'{"model": "tiny", ',
            "no object": b"[1, 2]",
            "a wrong type": json.dumps(good | {"temperature": "hot"}).encode(),
            "no messages": json.dumps(good | {"messages": 7}).encode(),
            "an unknown model": json.dumps(good | {"model": "huge"}).encode(),
            "a refused parameter": json.dumps(good | {"use_beam_search": True}).encode(),
            "a prompt too long": json.dumps(good | {"messages": [{"role": "user", "content": "w1 " * 900}]}).encode(),
            "a reply too long": json.dumps(good | {"max_tokens": OUTPUT + 1}).encode(),
            "a body too large": json.dumps(
                good | {"messages": [{"role": "user", "content": "x" * (BODY << 21)}]}
            ).encode(),
            "a wrong key": json.dumps(good).encode(),
        }[what]
        headers = {"authorization": "Bearer nobody-knows"} if what == "a wrong key" else self.headers
        try:
            reply = await self.client.post(f"{self.base}/chat/completions", content=body, headers=headers)
        except httpx.HTTPError:
            self.counts["connections that broke"] += 1
            return
        self.counts[what] += 1
        self.reason(reply)
        if not 400 <= reply.status_code < 500:
            self.fault(f"{what} was answered {reply.status_code}")

    async def half(self) -> None:
        """A client that sends the beginning of a header and nothing more: the server must end its connection."""
        raw, loop = socket.socket(), asyncio.get_running_loop()
        raw.setblocking(False)
        try:
            await loop.sock_connect(raw, ("127.0.0.1", self.server.port))
            await loop.sock_sendall(raw, b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthoriz")
            async with asyncio.timeout(PATIENCE):
                while await loop.sock_recv(raw, 1 << 14):
                    pass
            self.counts["half a header, let go"] += 1
        except TimeoutError:
            self.fault(f"half a header held its connection for {PATIENCE:g} s")
        except OSError:
            self.counts["connections that broke"] += 1
        finally:
            raw.close()

    async def quiet(self, before: int) -> None:
        """When nobody asks any more: sockets as before the load, and no request in work."""
        async with asyncio.timeout(PATIENCE):
            while (left := self.server.sockets()) > before + 1 or await self.busy():
                await self.client.aclose()
                self.client = httpx.AsyncClient(timeout=60, limits=httpx.Limits(max_connections=200))
                await asyncio.sleep(0.5)
        self.counts["sockets of the server before the load"] = before
        self.counts["sockets of the server after it"] = left

    async def busy(self) -> float:
        """Choices in work, and requests that hold a row, by the server's own metrics."""
        told = (await self.client.get(self.base.removesuffix("/v1") + "/metrics", headers=self.headers)).text
        found = re.findall(r"^clew_choices_in_work\S* (\S+)$", told, re.MULTILINE)
        found += re.findall(r'^clew_engine{.*what="running".*} (\S+)$', told, re.MULTILINE)
        assert len(found) == 2, found
        return sum(map(float, found))

    async def slow(self, pause: float) -> None:
        """A client that reads a long stream slowly, or stops reading for longer than the server allows."""
        body = {"model": "tiny", "messages": [{"role": "user", "content": "w1 w2"}], "max_tokens": OUTPUT, "n": 4}
        body |= {"stream": True, "logprobs": True, "top_logprobs": 20}
        data = json.dumps(body).encode()
        line = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {self.server.key}\r\n"
        line += f"content-type: application/json\r\ncontent-length: {len(data)}\r\nconnection: close\r\n\r\n"
        raw = socket.socket()
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        raw.setblocking(False)
        got, loop = b"", asyncio.get_running_loop()
        try:
            await loop.sock_connect(raw, ("127.0.0.1", self.server.port))
            await loop.sock_sendall(raw, line.encode() + data)
            await asyncio.sleep(pause)
            async with asyncio.timeout(50):
                while part := await loop.sock_recv(raw, 1 << 14):
                    got += part
                    await asyncio.sleep(0.01)
        except (OSError, TimeoutError):
            pass
        finally:
            raw.close()
        over = b"data: [DONE]" in got or b" 429 " in got[:40] or b" 503 " in got[:40]
        self.counts["slow readers" if pause < STALL else "readers that stopped"] += 1
        self.counts["of these served to the end"] += over
        if got and pause < STALL and not over and self.killed is False:
            self.fault(f"a slow reader lost the end of its stream after {len(got)} bytes: {got[:60]!r}")

    killed = False


BAD = ("broken JSON", "no object", "a wrong type", "no messages", "an unknown model", "a refused parameter",
       "a prompt too long", "a reply too long", "a body too large", "a wrong key")  # fmt: skip


def deed(soak: Soak) -> Callable[[], Any]:
    """What the next client does."""
    u = soak.draw.random()
    if u < 0.70:
        return soak.ask
    if u < 0.80:
        return soak.hang_up
    if u < 0.81:
        return soak.half
    if u < 0.97:
        what = soak.draw.choice(BAD)
        return lambda: soak.bad(what)
    pause = soak.draw.choice((0.3, 0.3, 2.5 * STALL))
    return lambda: soak.slow(pause)


async def load(soak: Soak, seconds: float, rate: float, every: float = 60.0) -> None:
    """Clients at random for a while, with bursts, a kill in the middle, and a line a minute."""
    began, burst, told, killed = time.monotonic(), time.monotonic() + min(every, seconds / 5), 0.0, False
    work: set[asyncio.Task[Any]] = set()

    def begin(what: Callable[[], Any]) -> None:
        task = asyncio.ensure_future(what())
        work.add(task)
        task.add_done_callback(work.discard)

    while (now := time.monotonic()) < began + seconds:
        await asyncio.sleep(soak.draw.expovariate(rate))
        if len(work) < 8 * QUEUE:
            begin(deed(soak))
        if now > burst:
            burst = now + every
            soak.counts["bursts"] += 1
            for _ in range(2 * QUEUE):
                begin(soak.ask)
        if not killed and now > began + seconds / 2:
            killed = soak.killed = True
            await asyncio.to_thread(soak.server.end, signal.SIGKILL)
            soak.server.start()
            soak.counts["kills"] += 1
        if now > told + min(2.0, seconds / 40):
            soak.server.sample()
            told = now
            minute = int((now - began) // 60)
            if soak.counts["minute"] != minute:
                soak.counts["minute"] = minute
                size = soak.server.sizes[-1][-1][1] if soak.server.sizes[-1] else 0.0
                print(f"{minute} min: {soak.counts['answers']} answers, {size:.0f} MB", flush=True)
    while work:
        await asyncio.wait(list(work))


async def run(seconds: float, rate: float, folder: Path) -> Soak:
    """A whole soak."""
    (folder / "model").mkdir()
    await asyncio.to_thread(make_model, folder / "model")
    server = Server(folder)
    server.start()
    soak = Soak(server, questions())
    try:
        await soak.ready()
        for k in range(len(soak.asked)):
            soak.right.append(await soak.once(k, stream=False))
        if None in soak.right:
            raise SystemExit("the quiet run failed")
        before = server.sockets()
        await load(soak, seconds, rate)
        try:
            await soak.quiet(before)
        except TimeoutError:
            soak.fault(f"{server.sockets()} sockets and {await soak.busy():g} choices stay; {before} sockets before")
        last = [asyncio.ensure_future(soak.once(k, stream=True)) for k in range(8)]
        await asyncio.sleep(0.1)
        code = await asyncio.to_thread(server.end, signal.SIGTERM)
        found = await asyncio.gather(*last)
        soak.counts["answers while it ended"] = sum(f is not None for f in found)
        if code or any(f is not None and f != soak.right[k] for k, f in enumerate(found)):
            soak.fault(f"the end: exit code {code}, {found}")
    finally:
        if server.process is not None and server.process.poll() is None:
            server.process.kill()
            server.process.wait()
        await soak.client.aclose()
    return soak


def slope(sizes: list[tuple[float, float]]) -> tuple[float, float, float, int]:
    """MB an hour, median of pairwise slopes with its 95 % interval (Theil and Sen), after the first quarter."""
    late = np.array(sizes[len(sizes) // 4 :])
    if len(late) < 8:
        return float("nan"), float("nan"), float("nan"), len(late)
    found = theilslopes(late[:, 1], late[:, 0] / 3600, 0.95)
    return float(found.slope), float(found.low_slope), float(found.high_slope), len(late)


def report(soak: Soak, seconds: float) -> int:
    from clew.store import open_store

    with_store = open_store(str(soak.server.folder / "served.db"))
    damaged, runs = with_store.verify(), len(with_store.find(""))
    with_store.close()
    if damaged:
        soak.fault(f"the store has {len(damaged)} faults, first {damaged[0]}")
    for name, value in soak.counts.most_common():
        if name != "minute":
            print(f"{value:7d} {name}")
    for life, sizes in enumerate(soak.server.sizes):
        rate, low, high, n = slope(sizes)
        if sizes:
            print(f"life {life}: {sizes[0][1]:.0f} to {sizes[-1][1]:.0f} MB in {sizes[-1][0]:.0f} s, "
                  f"{rate:+.1f} [{low:+.1f}, {high:+.1f}] MB/h (n={n} samples)")  # fmt: skip
    if soak.gaps:
        middle, late = np.quantile(soak.gaps, [0.5, 0.99]) * 1e3
        print(f"gap between two events of a stream: median {middle:.0f} ms, p99 {late:.0f} ms (n={len(soak.gaps)})")
    print(
        f"{soak.server.work:.0f} CPU s of the server in {seconds:.0f} s; {runs} runs recorded, {len(damaged)} damaged"
    )
    print(f"{len(soak.faults)} faults: wrong, mixed or lost answers, refusals without a reason")
    return 1 if soak.faults else 0


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--rate", type=float, default=3.0, help="clients a second")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        soak = asyncio.run(run(60 * given.minutes, given.rate, Path(folder)))
        raise SystemExit(report(soak, 60 * given.minutes))


if __name__ == "__main__":
    main()
