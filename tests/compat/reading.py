"""What the fixture's maker wrote down of a store, and its test finds again: both by these functions."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
from click.testing import CliRunner

from clew import Edit
from clew.cli import verbs
from clew.harness import Runner
from clew.store import Run
from tests.compat import agents

TOOLS = [
    {"type": "function", "function": {"name": "add", "description": "adds", "parameters": {
        "type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}}}
]  # fmt: skip


def clew(*words: Any, code: int = 0) -> str:
    """What a line of the command line prints."""
    done = CliRunner().invoke(verbs, [str(word) for word in words])
    assert done.exit_code == code, done.output
    return done.stdout


def keys(run: Run) -> str:
    """The keys of all Calls in order, as hex, parted by blanks."""
    return " ".join(call.key.hex() for call in run.calls)


def replies(run: Run) -> list[str]:
    return [run.store.node(call.node_out).message.text for call in run.calls if call.kind == "ask" and call.node_out]


def fields(run: Run) -> dict[str, Any]:
    """A run as it is written down."""
    return {
        "agent": run.agent,
        "taskset": run.taskset,
        "model": run.model,
        "task": run.task_id,
        "config": run.config,
        "stop": run.stop and str(run.stop),
        "reward": run.reward,
        "parent": str(run.parent or ""),
        "spawned_by": run.row.spawned_by,
        "group": run.group,
        "tags": run.tags,
        "kinds": " ".join(call.kind for call in run.calls),
        "keys": keys(run),
    }


def calls(run: Run, start: int = 0) -> list[list[Any]]:
    """Calls from ``start`` on: kind, what was done, what was answered, its token ids, the key.

    No keys from a child on: its id is drawn anew, and is part of them.
    """
    out = []
    drawn = False
    for call in run.calls[start:]:
        drawn = drawn or call.kind == "spawn"
        node = run.store.node(call.node_out) if call.node_out else None
        ids = list(node.ids) if node is not None and node.ids is not None else None
        out.append(
            [call.kind, call.action, node.message.text if node else call.text, ids, "" if drawn else call.key.hex()]
        )
    return out


def forked(store: Any, asked: dict[str, Any]) -> list[list[list[Any]]]:
    """Fork as it is written down, and give each fork's new Calls.

    A child run is forked through its parents: what the outermost fork and the fork of the child did.
    """
    run = Run(store, asked["run"])
    model = agents.MODELS[asked["model"]]() if asked.get("model") else None
    changes = {name: tuple(value) if name == "prefix" else value for name, value in asked.get("changes", {}).items()}
    if "rewrite" in changes:
        changes["rewrite"] = {int(place): text for place, text in changes["rewrite"].items()}
    at = None if asked["seq"] is None else run.at(asked["seq"], token=asked.get("token", 0))
    try:
        made = Runner.of(store, run, model=model).fork(run, at, asked.get("n", 1), seed=asked["seed"], **changes)
    finally:
        if hasattr(model, "close"):
            model.close()
    out = []
    for fork in made:
        out.append(calls(fork, fork.shared))
        for call in fork.calls[fork.shared :]:
            if call.kind == "spawn" and run.row.spawned_by:
                kid = Run(store, call.child)
                out.append(calls(kid, kid.shared))
    return out


async def program(client: httpx.AsyncClient, base: str, sums: int = 2, cut: bool = False) -> list[str]:
    """A foreign agent behind the gateway: a tool loop that keeps its own history; ``cut``: it tells it anew once."""
    messages: list[Any] = [{"role": "system", "content": "use the tool"}]
    said = []
    for k in range(sums):
        messages.append({"role": "user", "content": f"add {k} {k + 1}"})
        while True:
            sent = messages
            if cut and len(messages) >= 6:
                sent = [messages[0], {"role": "user", "content": "so far: one sum"}, *messages[4:]]
            body = {"model": "m", "messages": sent, "tools": TOOLS, "temperature": 0.5}
            got = await client.post(f"{base}/chat/completions", json=body)
            assert got.status_code == 200, got.text
            message = got.json()["choices"][0]["message"]
            messages.append(message)
            if not message.get("tool_calls"):
                said.append(message["content"])
                break
            for call in message["tool_calls"]:
                given = json.loads(call["function"]["arguments"])
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": str(given["a"] + given["b"])})
    return said


def using(gateway: Any, work: Any) -> Any:
    """Run ``work(client)`` against a gateway in this process."""

    async def go() -> Any:
        transport = httpx.ASGITransport(gateway.application())
        async with gateway.running(), httpx.AsyncClient(transport=transport, base_url="http://gateway") as client:
            return await work(client)

    return asyncio.run(go())


def restarted(gateway: Any, run: Run) -> list[Any]:
    """What a program of the fixture is told where it is started again: from the record; in a fork at its third ask;
    in a fork whose reply there is another. And the Calls of the forks."""
    third = [call.seq for call in run.calls if call.kind == "ask"][2]
    edit = type(run.changes)((Edit("reply", third, "I would rather not"),))

    async def again(client: httpx.AsyncClient) -> list[Any]:
        gateway.replay(run.id)
        sessions = [gateway.fork(run.at(third), seed=5)[0], gateway.fork(run.at(third), 1, edit)[0]]
        said = [await program(client, f"/r/{name}/v1") for name in (run.id, *(s.run for s in sessions))]
        return [said, [s.run for s in sessions]]

    said, forks = using(gateway, again)
    return [said, [calls(fork, first_ask(fork)) for fork in (Run(run.store, name) for name in forks)]]


def first_ask(fork: Run) -> int:
    """Where a fork's own asks begin: it makes the request before it anew, which the forks of the fixture shared."""
    return next(call.seq for call in fork.calls if call.kind == "ask" and call.seq >= fork.shared)


def gone_on(gateway: Any, run: Run) -> list[Any]:
    """The killed program of the fixture asks on: what it is told, and what its run then holds."""
    asked = next(call for call in run.calls if call.kind == "ask")
    called = run.reply(asked.seq).message.calls[0]
    tool = {"type": "function", "id": called.id, "function": {"name": called.name, "arguments": called.arguments}}
    messages = [
        {"role": "system", "content": "use the tool"},
        {"role": "user", "content": "add 0 1"},
        {"role": "assistant", "content": "", "tool_calls": [tool]},
        {"role": "tool", "tool_call_id": called.id, "content": "1"},
    ]

    async def on(client: httpx.AsyncClient) -> str:
        body = {"model": "m", "messages": messages, "tools": TOOLS, "temperature": 0.5}
        return str((await client.post("/r/killed/v1/chat/completions", json=body)).json()["choices"][0]["message"])

    said = using(gateway, on)
    run = Run(run.store, run.id)
    return [said, run.stop, [[c.kind, c.action, c.text] for c in run.calls if c.kind != "act"], replies(run)]


def training(name: str, store: Any, iterations: int = 3) -> list[Any]:
    """The line of a training of the fixture: ``half`` of flat groups, or ``half-tree`` of one iteration of trees."""
    flat = ["--n", 3, "--iterations", iterations]
    how = ["--n", 5, "--iterations", 1, "--rollouts", "tree"] if name == "half-tree" else flat
    return ["train", "--name", name, "--world", "lenient", "--model", "policy", "--tasks", 2, "--max-tokens", 3,
            "--lr", 0.001, *how, "--store", store]  # fmt: skip


def trained(store: Any, name: str) -> list[list[Any]]:
    """Every run of a training in the order in which they are begun: what it was about, its reward, what was said."""
    runs = sorted((Run(store, found) for found in store.find(f"name={name}/*")), key=lambda run: run.row.order)
    return [[list(run.row.order), run.task_id, run.reward, replies(run)] for run in runs]


def weights(model: Any) -> list[float]:
    """Some numbers of each parameter, in order of their names."""
    found = sorted(model.module.state_dict().items())
    return [round(float(x), 6) for _, p in found for x in p.detach().flatten()[:: max(1, p.numel() // 12)]]


def tables(store: Any) -> dict[str, Any]:
    """Everything of a store that is no run: groups, tags, reports, annotations, outcomes, metrics."""
    groups = [store.group(name) for name in store.groups()]
    return {
        "groups": {g.id: [g.kind, g.task_id, g.name, list(g.runs)] for g in groups},
        "tags": store.tags(),
        "reports": {name: [r.claim, str(r), r.design] for name, r in store.reports().items()},
        "annotations": sorted(
            [a.target, a.run, a.seq, a.node.hex(), a.method, a.version, a.scope,
             None if a.value is None else round(a.value, 6), 0 if a.values is None else len(a.values)]
            for a in store.annotations()
        ),
        "outcomes": [[*where, *[column.tolist() for column in store.outcomes(*where)]]
                     for where in store.outcome_places()],
        "metrics": {
            name: {str(step): sorted(row) for step, row in store.metrics(name).items()} for name in store.trainings()
        },
        "tombstones": sorted(store.tombstones()),
        "nodes": sorted(key.hex() for key in store.node_keys()),
    }  # fmt: skip
