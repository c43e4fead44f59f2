"""Makes the golden store: about 200 runs of all kinds, and what the code of the day says of them.

    python -m tests.golden.make            # makes them anew aside, and names what differs from the files here
    python -m tests.golden.make --write    # writes store.db.xz, facts.json.xz, pad.txt and trainings/

The files hold later code to what earlier code recorded. Writing them anew gives that up, so ``--write`` is permitted in
two cases alone: a release changes the record on purpose, its migration is tested on the files as they were, and the
changelog says what changes; or a kind of run is added, and the check without ``--write`` named no other difference
before. Never to make a failing test pass.

Needs git, bubblewrap, torch and the extras view, memory and coding. Ids and the clocks are fixed, so that equal code
records equal runs: those whose answers take some milliseconds, which come in another order on a busy machine, are left
out of the comparison (``steady``).
"""

from __future__ import annotations

import argparse
import json
import lzma
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

import clew
import clew.credit
from clew.credit.tree import tree as tree_credit
from clew.exchange import import_file
from clew.harness.memory import Memory
from clew.harness.trees import grow
from clew.methods.diagnose.localise import localise
from clew.methods.diagnose.repository_world import Diagnosis
from clew.methods.gate.candidates import Checks
from clew.models.fakes import Echo, Markov, Scripted
from clew.models.taps.tap import Tap
from clew.serve.gateway.proxy import Gateway
from clew.serve.programs.commanded import commanded
from clew.serve.programs.program_world import Programs
from clew.store.labels import put
from clew.worlds.household import Household
from clew.worlds.sums import Sums
from clew.worlds.toys import Counter, Notepad, Shop, Slow
from clew.worlds.workspace import Workspace
from tests.golden import agents, facts
from tests.models import pool

HERE = Path(__file__).resolve().parent
PLAYER, CHATTER = "clew.harness.agents:player", "clew.harness.agents:chatter"
OWN = "tests.golden.agents"
TALK = {"max_tokens": 8}
HOME = Household(**agents.SMALL, goals=("open", "put"))
FILES = {
    "shop/__init__.py": "",
    "shop/cart.py": "from shop import price\n\n\nclass Cart:\n    def __init__(self):\n        self.items = []\n\n"
    "    def apply_voucher(self, voucher):\n        return price.rounded(self.total() * (1 - voucher.share))\n\n"
    "    def total(self):\n        return sum(price.of(name) * count for name, count in self.items)\n",
    "shop/price.py": "TABLE = {'pen': 120}\n\n\ndef of(name):\n    return TABLE[name]\n\n\n"
    "def rounded(cents):\n    return int(cents)\n",
}
REPORT = "`Cart.apply_voucher` loses half a cent: the voucher's share is cut, not rounded"
PROGRAM = """
import json, os, sys, urllib.request
def ask(messages):
    body = {"model": "m", "messages": messages}
    request = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", json.dumps(body).encode())
    return json.load(urllib.request.urlopen(request))["choices"][0]["message"]["content"]
told = [{"role": "user", "content": sys.stdin.read()}]
for text in ("and then?", "go on", ""):
    told += [{"role": "assistant", "content": ask(told)}, {"role": "user", "content": text}]
open("answer.txt", "w").write(told[-2]["content"])
"""


def rooms(tokens: bool = True) -> Markov:
    return Markov(agents.ROOMS, tokens=tokens)


def task(name: str, prompt: str) -> clew.Task:
    return clew.Task(name, prompt)


def first_of(run: clew.Run, kind: str, index: int = 0) -> int:
    return [call.seq for call in run.calls if call.kind == kind][index]


# ---- runs ------------------------------------------------------------------------------------------------------------


def households(store: Any) -> None:
    """Groups with credit, forks inside them with every kind of change, forks of forks, limits."""
    runner = clew.Runner(PLAYER, HOME, rooms(), store, sampling=TALK)
    groups = runner.collect(HOME.sample(3), n=6, seed=1, name="house")
    for method in (clew.credit.g2po, clew.credit.grpo, clew.credit.gigpo):
        method(groups)
    store.put_report(groups.success(), "success-of-house")
    run = max(groups.runs, key=lambda r: len(r.steps))
    store.tag(run.id, "long")
    first = runner.fork(run, run.at(step=1), 3, seed=7)[0]
    runner.fork(first, first.at(step=3), 2, seed="same", reply="go kitchen")
    inside = next(c for c in run.calls if c.kind == "ask" and c.logprobs is not None and len(c.logprobs) > 2)
    runner.fork(run, run.at(inside.seq, token=2), 2, seed=3)
    runner.fork(run, run.at(inside.seq), prefix="go", seed=4)
    runner.fork(run, run.at(step=2), world=["go bathroom"], seed="same")
    runner.fork(run, rewrite={2: "you are nowhere"}, keep=True)
    runner.fork(run, run.at(step=0).seq + 1, result="nothing happened", seed=5)
    runner.fork(run, run.at(step=2), sampling={"temperature": 0.0}, model=Markov("go kitchen\nopen fridge"))
    runner.fork(run, run.at(step=2), model="echo")
    runner.fork(run, run.at(step=2), 2, sampling={"temperature": 0.2, "top_p": 0.5}, seed=9)
    runner.fork(run, edits=[clew.Edit("insert", value="be quick", index=2)], seed="same")
    runner.fork(run, edits=[clew.Edit("say", value="the hall is dark", index=0)], seed="same")
    runner.fork(run, edits=[clew.Edit("delete", index=2)], seed="same")
    store.put_outcomes("value", str(run.at(step=1)), [1, 2, 3], [0.0, 1.0, 0.5], [0.0, 0.0, 0.25])
    for limits in (clew.Limits(steps=3), clew.Limits(tokens=60)):
        clew.Runner(PLAYER, HOME, rooms(), store, limits=limits, sampling=TALK).collect(HOME.sample(1), n=2)
    shown = clew.Runner("clew.harness.agents:demonstrator", HOME, None, store, {"world": HOME.ref, "noise": 0.2})
    shown.collect(HOME.sample(2), n=2, name="shown")


def worlds(store: Any) -> None:
    """The toys, of every kind of restoring, and sums."""
    counting = Scripted(["up", "up", "down", "up", "up", "up", "stop"])
    for taskset, config in ((Counter(), {}), (Counter(restores="reenact"), {"window": 2}), (Slow(seconds=0.001), {})):
        runner = clew.Runner(PLAYER, taskset, counting, store, config)
        run = runner.collect(taskset.sample(1, seed=4), n=2, name=f"counting-{taskset.ref}").runs[0]
        runner.fork(run, run.at(step=3), reply="stop")
    pad = Notepad()
    clew.Runner(PLAYER, pad, Scripted(["a", "b", "c", "stop"]), store).collect(pad.sample(1), n=1, name="notes")
    sums = Sums(low=3, high=3)
    model = Markov("1 + 2 = 3 , 3 + 4 = 7 answer 7\nanswer 9", tokens=True)
    runner = clew.Runner(PLAYER, sums, model, store, sampling={"max_tokens": 12})
    run = runner.collect(sums.sample(2), n=5, seed=2, name="sums").runs[0]
    runner.fork(run, run.at(1, token=2), 3, seed=6)


def talks(store: Any) -> None:
    """Agents without a world, tools, all that a LiveRun offers, and a redaction."""
    kind = clew.Runner(CHATTER, None, Echo(), store, {"system": "Be kind."})
    run = kind.collect([task("echo", "hello"), task("echo2", "grüß dich, \U0001f9f6 \x1b[31mred")], n=1, name="echoed")
    words = clew.Runner(CHATTER, None, Markov(tokens=True), store, sampling={"max_tokens": 12})
    run = words.collect([task("words", "the thread")], n=3, name="talk").runs[0]
    words.fork(run, run.at(1, token=3), 2, seed=11)
    shop = Shop()
    runner = clew.Runner("clew.harness.agents:tool_user", shop, agents.shopper(), store, {"system": "Buy."})
    run = runner.collect(shop.sample(1), n=2, name="shop").runs[0]
    runner.fork(run, run.at(first_of(run, "act")), result="pen: 100 coins")
    for model, config in ((Markov(), {"other": "echo"}), (Markov(tokens=True), {})):
        runner = clew.Runner(f"{OWN}:everything", None, model, store, config, sampling=TALK)
        run = runner.collect([task("all", "tell a story")], n=2, name=f"all-{model.ref}").runs[0]
        runner.fork(run, run.at(first_of(run, "ask")), seed=2)
    secret = clew.Runner(CHATTER, None, Echo(), store).collect([task("secret", "the word is swordfish")], n=1).runs[0]
    store.tag(secret.id, "redacted")
    store.redact(f"{secret.id}@1")
    runner = clew.Runner(f"{OWN}:two_turns", None, Markov(tokens=True), store, sampling=TALK)
    run = runner.collect([task("seconds", "go")], n=2, name="two").runs[0]
    runner.fork(run, run.at(first_of(run, "ask", 1)), 2, seed=3, reply="no")


def side_by_side(store: Any) -> None:
    """Agents that do several things at once: gather, task groups, timeouts, sleeps; and forks of these."""
    for name, config in (("together", {}), ("together", {"parts": 6}), ("impatient", {}), ("rests", {})):
        runner = clew.Runner(f"{OWN}:{name}", None, agents.Paced(), store, config, sampling=TALK)
        run = runner.collect([task(name, "side by side")], n=3, name=f"{name}-{len(config)}").runs[0]
        runner.fork(run, run.at(first_of(run, "ask", 1)), 2, seed=4)
    counter = Counter()
    for config in ({}, {"fails": True}):
        runner = clew.Runner(f"{OWN}:grouped", counter, agents.Paced(), store, config, sampling=TALK)
        run = runner.collect(counter.sample(1, seed=2), n=3, name=f"grouped-{len(config)}").runs[0]
        runner.fork(run, run.at(first_of(run, "act")), seed=5)


def families(store: Any) -> None:
    """Children, children of children, and forks inside them."""
    runner = clew.Runner(f"{OWN}:parent", None, Markov(tokens=True), store, {"depth": 2}, sampling=TALK)
    run = runner.collect([task("plan", "plan the day")], n=2, name="family").runs[0]
    kid = clew.Run(store, next(c for c in run.calls if c.kind == "spawn").child)
    runner.fork(kid, kid.at(first_of(kid, "ask", -1)), reply="changed")
    deep = clew.Run(store, next(c for c in kid.calls if c.kind == "spawn").child)
    runner.fork(deep, deep.at(1, token=2), seed=4)
    runner = clew.Runner(f"{OWN}:foreman", HOME, rooms(), store, sampling=TALK)
    run = runner.collect(HOME.sample(1, seed=2), n=1, name="foreman").runs[0]
    kid = clew.Run(store, next(c for c in run.calls if c.kind == "spawn").child)
    runner.fork(kid, kid.at(step=2), 2, seed=6)


def faults(store: Any) -> None:
    """Runs that ended in an error of the agent, of the model, or at a limit."""
    with suppress(Exception):
        clew.Runner(f"{OWN}:broken", None, Echo(), store).collect([task("fault", "break")], n=2, name="fault")
    failing = Scripted(["one", clew.core.errors.ModelError("the endpoint is gone"), "three"])
    clew.Runner(f"{OWN}:endless", None, failing, store).collect([task("gone", "ask")], n=1, name="gone")
    for limits in (clew.Limits(tokens=40), clew.Limits(steps=2)):
        runner = clew.Runner(f"{OWN}:endless", None, Markov(tokens=True), store, limits=limits)
        if limits.tokens:
            runner.collect([task("endless", "ask")], n=2, name="endless")
    shop = Shop()
    wrong = Scripted([agents.tool_call("price", id="a", item="a unicorn"), "no more"])
    clew.Runner("clew.harness.agents:tool_user", shop, wrong, store).collect(shop.sample(1), n=1, name="wrong")


def imports(store: Any) -> None:
    """Runs of other programs: messages in OpenAI's format, a trajectory in ATIF with a sub-agent; and their forks."""
    line = {"task_id": "door", "reward": 1.0, "model": "gpt-4o", "scores": {"style": 0.5}, "note": "kept", "messages": [
        {"role": "system", "content": "be brief"}, {"role": "user", "content": "what do you see?"},
        {"role": "assistant", "content": "", "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"at":"door"}'}}]},
        {"role": "tool", "tool_call_id": "c1", "content": "a door"}, {"role": "assistant", "content": "a door"},
        {"role": "user", "content": "and behind it?"}, {"role": "assistant", "content": "a garden"}],
        "tools": [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]}  # fmt: skip
    Path("talk.jsonl").write_text(json.dumps(line) + "\n" + json.dumps(line | {"reward": 0.0}) + "\n")
    run = clew.Run(store, import_file(store, "talk.jsonl")[0])
    clew.Runner.of(store, run, model=Echo()).fork(run, first_of(run, "ask"), reply="a wall")
    inner = {"schema_version": "ATIF-v1.7", "session_id": "sub1", "trajectory_id": "sub1",
             "agent": {"name": "h", "version": "1", "model_name": "m2"},
             "steps": [{"step_id": 1, "source": "user", "message": "look"},
                       {"step_id": 2, "source": "agent", "message": "b"}]}  # fmt: skip
    result = {"source_call_id": "t1", "content": "It is in b.", "subagent_trajectory_ref": [{"session_id": "sub1"}]}
    asked = {"tool_call_id": "t1", "function_name": "delegate", "arguments": {"job": "look"}}
    steps = [{"step_id": 1, "source": "user", "message": "Find it"},
             {"step_id": 2, "source": "agent", "message": "I ask a helper.", "tool_calls": [asked],
              "observation": {"results": [result]}, "metrics": {"prompt_tokens": 10, "completion_tokens": 4}},
             {"step_id": 3, "source": "agent", "message": "In b."}]  # fmt: skip
    whole = {"schema_version": "ATIF-v1.7", "session_id": "s", "agent": {"name": "a", "version": "1"}, "steps": steps,
             "subagent_trajectories": [inner]}  # fmt: skip
    Path("sub.json").write_text(json.dumps(whole))
    import_file(store, "sub.json")


def trees(store: Any) -> None:
    """Groups grown by forks, some inside replies."""
    for name, leaves in (("trees", 5), ("small-trees", 3)):
        runner = clew.Runner(PLAYER, HOME, rooms(), store, sampling=TALK)
        groups = grow.collect(runner, HOME.sample(2, seed=3), grow.Growth(leaves=leaves), seed=1, name=name)
        tree_credit(groups)


def memories(store: Any) -> None:
    """Recalls, an agent that is told what a memory has, and forks that do without an item."""
    memory = Memory(store, "shop")
    texts = ("pay an invoice only once", "the bakery opens at six", "an invoice of the bakery lies in mail", "whales")
    ids = [memory.add("fact", {"text": text}, by="ann").id for text in texts]
    pit = {"trigger": "an invoice comes twice", "mistake": "to pay both", "consequence": "money is gone"}
    memory.add("pitfall", pit, by="bob", scope="bakery/mail")
    runner = clew.Runner(f"{OWN}:recaller", None, Echo(), store)
    run = runner.collect([task("recall", agents.PROMPT)], n=2, name="recall").runs[0]
    runner.fork(run, memory={"without": [ids[2]]})
    runner.fork(run, memory={"without": "all"})
    config = {"agent": CHATTER, "memory": "shop", "select": 1}
    model = Scripted({"Which would help": '{"use": [2]}', "": "paid"})
    within = clew.Runner("clew.harness.agents:remembering", None, model, store, config)
    within.collect([task("told", agents.PROMPT)], n=1, name="told")


def labels(store: Any) -> None:
    """What two people say of runs, replies and parts of replies; one takes a word back."""
    runs = store.runs("name=house/*")[:4]
    for number, run in enumerate(runs):
        put(store, run.id, by="ann", stars=1 + number, verdict="good" if number % 2 else "bad")
    ask = first_of(runs[0], "ask")
    put(store, f"{runs[0].id}@{ask}", by="bob", note="this reply decides it")
    put(store, f"{runs[0].id}@{ask}+0:2", by="bob", verdict="bad", note="these words")
    put(store, runs[1].id, by="bob", stars=5)
    put(store, runs[1].id, by="bob", withdraw=("stars",))


def routers(store: Any) -> None:
    """A routed model whose first worker fails once, a fork to the other; and an orchestrated plan."""
    with pool.servers("small", "large") as (small, large):
        pool.folder(Path("router"), [pool.worker(small), pool.worker(large)])
        down = (500, {"error": "down"})
        small.answer = lambda body: pool.said("small talk") if len(body["messages"]) == 1 else down
        runner = clew.Runner(f"{OWN}:two_turns", None, clew.model("route:router"), store, sampling={"max_tokens": 16})
        run = runner.collect([task("routed", "go")], n=1, name="routed").runs[0]
        runner.fork(run, run.at(first_of(run, "ask")), model="route:router#large")
    plan = 'model_id: [0, 1, 0]\nsubtasks: ["left", "right", "join"]\naccess_list: [[], [], [0, 1]]'
    crew = {name: Scripted({"": f"{name} answers"}) for name in "ab"}
    for name, model in crew.items():
        model.ref = name
    lead = Scripted({"": plan})
    runner = clew.Runner("clew.harness.agents:orchestrator", None, lead, store, {"workers": ["a", "b"]},
                         resolve_model=lambda ref: crew[ref])  # fmt: skip
    runner.collect([task("plan2", "What is it?")], n=1, name="orchestrated")


def taps(store: Any) -> None:
    """Writes into hidden states of a local model, and forks that end them."""
    model = agents.steered()
    runner = clew.Runner(f"{OWN}:talker", None, model, store)
    run = runner.collect([task("steer", "x")], n=2, name="steer").runs[0]
    vector = np.random.default_rng(1).normal(size=16).astype(np.float32)
    written = Tap(1, add=vector * 3, part="reply"), Tap(0, along=vector, clamp=2.0)
    (fork,) = runner.fork(run, run.at(first_of(run, "ask", 1)), tap=written)
    runner.fork(fork, fork.at(first_of(run, "ask", 2)), tap=())
    model.close()


def repository(folder: Path) -> None:
    """A small git repository that is the same wherever it is made, of one commit."""
    for name, text in FILES.items():
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    when = {"GIT_AUTHOR_DATE": "1700000000 +0000", "GIT_COMMITTER_DATE": "1700000000 +0000"}
    env = {**os.environ, **when, "GIT_CONFIG_GLOBAL": "/dev/null"}
    who = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main")
    for words in (("init", "-q"), ("add", "-A"), ("commit", "-qm", "The shop")):
        subprocess.run(["git", "-C", str(folder), *who, *words], check=True, capture_output=True, env=env)


def coding(store: Any) -> None:
    """The localiser, the gate, a coder in a workspace, and a program that knows nothing of Clew."""
    repository(Path("repo"))
    localise(Diagnosis("repo"), REPORT, store=store, name="diagnosis")
    localise(Diagnosis("repo"), REPORT, agents.looker(), store=store, name="looked", turns=4)
    critic = "grep -q total {file}"
    for oracle, ships in (("true", False), ("false", False), ("true", True)):
        checks = Checks(oracle, [critic], "true", folder="repo", outside=True)
        config = {"rule": [critic], "critics": [critic], "oracle": oracle, "ships": ships, "horizon": 2, "cell": "here"}
        gate = clew.Runner("clew.coding.gate_agent:keep", checks, None, store, config, concurrency=1)
        gate.collect([checks.find("shop/cart.py")], n=1, seed=3, name=f"gate-{oracle}-{ships}")
    Path("project").mkdir()
    Path("project/total.py").write_text("def total(xs):\n    return sum(xs) + 1\n")
    Path("project/program.py").write_text(PROGRAM)
    space = Workspace("project", verify="python3 -c 'import total; assert total.total([1]) == 1'", shelf="files")
    work = Scripted([agents.tool_call("bash", id="b", command="sed -i 's/ + 1//' total.py"), "It is mended."])
    coder = clew.Runner("clew.harness.agents:coder", space, work, store)
    coder.collect([space.find("mend total")], n=1, name="coder")
    world = Programs(space, "python3 program.py")
    runner = clew.Runner(commanded, world, Scripted(["one", "two", "three"]), store)
    runner.collect([world.find("say three things")], n=1, name="program")


def gateways(store: Any) -> None:
    """Foreign programs: named, unnamed, in three dialects, streamed, with a drift, with scores, killed half way."""
    it = Gateway(store, lambda dialect, name, extra: agents.adder())

    async def all_of(client: Any) -> None:
        await facts.program(client, "/r/one/v1")
        await facts.program(client, "/r/drifts/v1", cut=True)
        await facts.program(client, "/v1", sums=1)
        body = {"input": "add 1 2", "model": "m"}
        first = (await client.post("/r/answers/v1/responses", json=body)).json()
        await client.post("/r/answers/v1/responses", json=body | {"previous_response_id": first["id"]})
        body = {"messages": [{"role": "user", "content": "add 3 4"}], "max_tokens": 9, "model": "m", "stream": True}
        await client.post("/r/letters/v1/messages", json=body)
        await client.post("/r/streamed/v1/chat/completions", json=body | {"stream_options": {"include_usage": True}})
        await client.post("/r/letters/end", json={"reward": 0.5, "style": 1.0})

    async def killed(client: Any) -> None:
        with suppress(AssertionError):
            await facts.program(Dying(client, it), "/r/killed/v1")

    for work in (all_of, killed):
        facts.using(it, work)


class Dying:
    """A client whose gateway dies after the first answer, as if killed: its runs do not end."""

    def __init__(self, client: Any, gateway: Gateway) -> None:
        self.client, self.gateway, self.sent = client, gateway, 0

    async def post(self, *words: Any, **more: Any) -> Any:
        self.sent += 1
        if self.sent == 2:
            for work in self.gateway.work.values():
                work.cancel()
            raise AssertionError("killed")
        return await self.client.post(*words, **more)


# ---- what was interrupted --------------------------------------------------------------------------------------------


class Dies(Markov):
    """Interrupted at its 17th request, as by Ctrl-C."""

    left = 16

    async def complete(self, request: Any) -> Any:
        self.left -= 1
        if self.left < 0:
            raise KeyboardInterrupt
        return await super().complete(request)


def cut(store: Any, model: Any) -> Any:
    """A collection of a name, one run after the other."""
    runner = clew.Runner(PLAYER, HOME, model, store, sampling=TALK, concurrency=1)
    return runner.collect(HOME.sample(2, seed=9), n=3, seed=3, name="cut")


def stopped(store: Any) -> None:
    """A collection that was interrupted, and a run that died while it wrote a line: the line is in the file, the answer
    is in nobody's record."""
    with suppress(KeyboardInterrupt):
        cut(store, Dies(agents.ROOMS, tokens=True))

    class Pad(Notepad):
        def open(self, task: Any) -> Any:
            world = super().open(task)
            step, count = world.step, [0]

            def dies(action: Any) -> Any:
                count[0] += 1
                if count[0] == 2:
                    raise KeyboardInterrupt
                return step(action)

            world.step = dies
            return world

    pad = Pad("pad.txt")
    with suppress(KeyboardInterrupt):
        runner = clew.Runner(PLAYER, pad, Scripted(["a", "b", "c", "stop"]), store)
        runner.collect(pad.sample(1, seed=8), n=1, name="doubt")


def training(store: Any) -> None:
    """A training that was interrupted in the second of three iterations."""

    class Dying(agents.Lenient):
        left = 3

        async def judge(self, task: Any, run: Any, world: Any) -> Any:
            Dying.left -= 1
            if Dying.left < 0:
                raise KeyboardInterrupt
            return await super().judge(task, run, world)

    facts.said(*facts.training(store.path, 1))
    clew.register("tasksets", "lenient", Dying)
    with suppress(AssertionError):
        facts.said(*facts.training(store.path))
    agents.register()


STEPS: tuple[Callable[[Any], None], ...] = (
    households, worlds, talks, side_by_side, families, faults, imports, trees, memories, labels, routers, taps, coding,
    gateways, stopped, training,
)  # fmt: skip


# ---- what is expected ------------------------------------------------------------------------------------------------


def places(store: Any) -> Iterator[dict[str, Any]]:
    """Places to fork again, with the seed that makes the same forks."""

    def place(query: str, kind: str = "ask", index: int = 0) -> dict[str, Any]:
        run = clew.Run(store, store.find(query)[-1])
        return {"run": run.id, "seq": first_of(run, kind, index)}

    long = place("tag:long", index=2)
    yield {**long, "n": 2, "seed": 7}
    yield {**long, "seed": "same", "changes": {"reply": "go bathroom"}}
    yield {**long, "seed": 5, "changes": {"world": ["go bathroom"]}}
    yield {**long, "seed": 9, "changes": {"sampling": {"temperature": 0.3}}}
    yield {**long, "seed": "same", "changes": {"model": "echo"}}
    yield {**long, "seq": long["seq"] + 1, "seed": "same", "changes": {"result": "nothing happened"}}
    yield {**long, "seq": None, "seed": "same", "changes": {"rewrite": {"2": "you are nowhere"}, "keep": True}}
    for kind, value in (("say", "the hall is dark"), ("insert", "be quick"), ("delete", None)):
        edit = {"kind": kind, "value": value, "index": 2}
        yield {**long, "seq": None, "seed": "same", "changes": {"edits": [edit]}}
    yield {**long, "token": 1, "n": 2, "seed": 3}
    view = clew.Run(store, long["run"])
    head = view.call(long["seq"]).head
    yield {**long, "seed": 4, "changes": {"prefix": list(view.reply(long["seq"]).ids[head : head + 1])}}
    yield {**place("name=house/* origin=collect -tag:long", index=1), "seed": 1}
    for n, name in enumerate(("house", "trees")):  # a fork of a fork, inside a group
        fork = next(r for r in store.runs("origin=fork world=household")
                    if r.parent and r.shared and (name == "trees") == bool(r.row.group and "trees" in store.group(
                        r.row.group).name) and any(c.kind == "ask" for c in r.calls[r.shared + 1 :]))  # fmt: skip
        yield {"run": fork.id, "seq": first_of(fork, "ask", -1), "n": 2, "seed": 20 + n}
    for query in ("world=counter agent=player", "world=slow"):
        for run in store.runs(f"{query} origin=collect"):
            yield {"run": run.id, "seq": run.at(step=4).seq, "seed": "same", "changes": {"reply": "down"}}
    yield {**place("world=sums origin=collect"), "token": 2, "n": 2, "seed": 6}
    yield {**place("task=words origin=collect"), "token": 4, "n": 3, "seed": 8}
    yield {**place("world=shop origin=collect -name=wrong/*", "act"), "seed": "same", "model": "shopper",
           "changes": {"result": "pen: 9 coins"}}  # fmt: skip
    yield {**place("agent=everything origin=collect model=markov"), "seed": 5}
    yield {**place("agent=everything origin=collect model=markov", index=1), "seed": "same", "changes": {"reply": "no"}}
    yield {**place("agent=parent origin=collect", "spawn", -1), "seed": 2}
    kids = [r for r in store.runs("agent=helper origin=spawn") if any(c.kind == "spawn" for c in r.calls)]
    kid = next(r for r in reversed(kids) if not r.shared)
    yield {"run": kid.id, "seq": 1, "seed": 12}
    deep = next(clew.Run(store, c.child) for c in kid.calls if c.kind == "spawn")
    yield {"run": deep.id, "seq": 1, "token": 2, "n": 2, "seed": 13}
    player = next(r for r in reversed(store.runs("agent=player origin=spawn")) if not r.shared)
    yield {"run": player.id, "seq": player.at(step=1).seq, "seed": 14}
    for name in ("together", "grouped", "rests"):
        yield {**place(f"agent={name} origin=collect", index=2), "seed": "same", "timed": True,
               "changes": {"reply": "changed"}}  # fmt: skip
    yield {**place("agent=transcript origin=import task=door"), "seed": "same", "model": "echo",
           "changes": {"reply": "a wall"}}  # fmt: skip
    yield {**place("agent=transcript origin=import task=door", index=1), "seed": 3, "model": "echo"}
    yield {**place("agent=demonstrator", "act", 1), "seed": 2}
    recalled = store.runs("agent=recaller origin=collect")[-1]
    yield {"run": recalled.id, "seq": None, "seed": "same", "changes": {"memory": {"without": "all"}}}
    yield {**place("name=half/0/*", index=0), "token": 1, "n": 2, "seed": 3, "model": "policy"}
    yield {**place("agent=talker origin=fork", index=-1), "seed": 3, "model": "steered"}


@contextmanager
def copied(folder: Path) -> Iterator[Any]:
    """A copy of the store and what lies beside it, in a folder of its own, since what is tried on it writes."""
    with tempfile.TemporaryDirectory() as other:
        shutil.copytree(folder, Path(other) / "copy")
        with inside(Path(other) / "copy"):
            store = clew.open_store("golden.db")
            yield store
            store.close()


@contextmanager
def inside(folder: str | Path) -> Iterator[None]:
    before = os.getcwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def replays(run: clew.Run) -> bool:
    try:
        done = clew.Runner.of(run.store, run, model=agents.Silent()).replay(run)
    except clew.core.errors.ClewError as error:
        print("does not replay:", run.id, run.agent, error, file=sys.stderr)
        return False
    return done.calls == len(run.calls) > 0


def expected(folder: Path) -> dict[str, Any]:
    """What this code says of the finished store, from a copy in a folder that holds nothing else of its making."""
    out: dict[str, Any] = {}
    with copied(folder) as store:
        assert store.verify() == []
        out |= {"runs": facts.run_facts(store), "tables": facts.tables(store), "drawings": facts.drawings(store)}
        out["exports"] = facts.exports(store, Path())
        todo = list(places(store))
    with copied(folder) as store:
        out["cannot replay"] = sorted(name for name in store.run_ids() if not replays(clew.Run(store, name)))
    out["forks"] = []
    for asked in todo:
        with copied(folder) as store:
            out["forks"].append({**asked, "made": facts.forked(store, asked)})
            assert store.verify() == [], asked
    out["gateway"] = {}
    for name, work in (("one", facts.restarted), ("killed", facts.gone_on)):
        with copied(folder) as store:
            it = Gateway(store, lambda dialect, name, extra: agents.adder())
            out["gateway"][name] = work(it, store.runs(f"tag:{name}")[-1])
    twin = clew.open_store(":memory:")
    out["resumed"] = facts.ends(cut(twin, rooms()).runs)
    with tempfile.TemporaryDirectory() as other, inside(other):
        pad = Notepad("pad.txt")
        runner = clew.Runner(PLAYER, pad, Scripted(["a", "b", "c", "stop"]))
        run = runner.collect(pad.sample(1, seed=8), n=1, name="doubt").runs[0]
        out["doubt"] = [str(run.stop), run.reward, facts.keys(run)]
        facts.said(*facts.training(Path(other) / "whole.db"))
        out["training"] = facts.trained(clew.open_store("whole.db"))
    return json.loads(json.dumps(out))


def made(folder: Path) -> dict[str, Any]:
    """The store, made in ``folder``, and its facts; only what is kept is left there."""
    agents.register()
    with inside(folder):
        store = clew.open_store("golden.db")
        with facts.fixed("golden"):
            for step in STEPS:
                print(step.__name__, file=sys.stderr)
                step(store)
        store.close()
        base = sqlite3.connect("golden.db")
        base.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        base.execute("VACUUM")
        base.close()
        (folder / "trainings" / "half" / "report.html").unlink(missing_ok=True)
        for path in folder.iterdir():
            if path.name not in ("golden.db", "pad.txt", "trainings"):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
    return expected(folder)


TIMED = ("paced", "policy", "steered", "route:router")  # models whose answers take as long as they take
BOXED = ("coder", "commanded", "keep")  # agents whose commands take as long as they take


def steady(found: dict[str, Any]) -> dict[str, Any]:
    """The runs that equal code records equally, however busy the machine."""
    shown = {name: run["show"] for name, run in found["runs"].items()}
    timed = {name for name, run in shown.items() if run["model"] in TIMED or run["agent"].endswith(BOXED)}
    return {name: run for name, run in found["runs"].items() if name not in timed}


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    words.add_argument("--write", action="store_true", help="write the files anew; see above when that is permitted")
    write = words.parse_args().write
    folder = Path(tempfile.gettempdir()) / "clew-golden"  # always the same: some records name it
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    try:
        found = made(folder)
        if not write:
            kept = json.loads(lzma.decompress((HERE / "facts.json.xz").read_bytes()))
            told = list(facts.differences(*({"runs": steady(it), "forks": it["forks"]} for it in (kept, found))))
            print("\n".join(told[:200]) or "no difference")
            sys.exit(bool(told))
        (HERE / "store.db.xz").write_bytes(lzma.compress((folder / "golden.db").read_bytes(), preset=9))
        (HERE / "facts.json.xz").write_bytes(lzma.compress(json.dumps(found).encode(), preset=9))
        shutil.copy(folder / "pad.txt", HERE / "pad.txt")
        shutil.rmtree(HERE / "trainings", ignore_errors=True)
        shutil.copytree(folder / "trainings", HERE / "trainings")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
