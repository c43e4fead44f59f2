"""What is held to be true of the golden store: its maker writes it down, its test finds it again, both by this file.

A text is kept as it is where it is short and as a digest where it is long. Each has a place of its own, such as
``runs / RUN / show / calls / 3``, so that a difference names the run and the field.
"""

from __future__ import annotations

import asyncio
import json
import re
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Any
from unittest.mock import patch

import httpx
from click.testing import CliRunner

import clew
from clew.cli import verbs
from tests.golden import agents

SHORT = 48  # characters of a text that is kept as it is
QUERIES = (
    "", "world=household", "world=lenient", "agent=player", "agent=relay", "agent=demonstrator origin=collect",
    "agent=transcript", "origin=fork", "origin=spawn", "origin=import", "stop=open", "-stop=done sort:-steps",
    "reward>0.5 sort:tokens", "reward<0.5 steps>3", 'text:"fridge"', "tag:long", "tag:one", "tag:guessed",
    "name=house/*", "name=trees/*", "name=half/1/*", "has=g2po", "has=label", "has=reward sort:-reward",
    "model:markov sort:seed", "task:house sort:task", "calls>20", "-world:house sort:calls",
)  # fmt: skip
EXPORTS = ("openai.jsonl", "runs.atif.jsonl", "runs.csv", "spans.otlp.jsonl")
TOOLS = [
    {"type": "function", "function": {"name": "add", "description": "adds", "parameters": {
        "type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}}}
]  # fmt: skip


@contextmanager
def fixed(name: str) -> Iterator[None]:
    """Ids are drawn from ``name``, and the clocks move by a second with each id alone."""
    drawn = 0

    def token(size: int | None = None) -> bytes:
        nonlocal drawn
        drawn += 1
        return blake2b(f"{name} {drawn}".encode(), digest_size=size or 32).digest()

    def now() -> float:
        return 1_800_000_000.0 + drawn

    clocks = patch.object(time, "time", now), patch.object(time, "perf_counter", now)
    with patch.object(secrets, "token_bytes", token), clocks[0], clocks[1]:
        yield


def said(*words: Any, code: int = 0) -> str:
    """What a line of the command line prints."""
    done = CliRunner().invoke(verbs, [str(word) for word in words])
    assert done.exit_code == code, (words[:3], done.output, done.exception)
    return done.stdout


# ---- digests ---------------------------------------------------------------------------------------------------------


def digest(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return "~" + blake2b(text.encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()


def brief(value: Any) -> Any:
    """The value where it is short, else its digest."""
    return value if len(json.dumps(value)) <= SHORT else digest(value)


def fields(data: dict[str, Any]) -> dict[str, Any]:
    return {name: brief(value) for name, value in data.items()}


def columns(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """A list of records of the same fields: a digest of each record, and one of each field over all of them."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    each = {str(number): digest(row) for number, row in enumerate(rows)}
    return {"each": each, "fields": {name: digest([row.get(name) for row in rows]) for name in names}}


def differences(wanted: Any, found: Any, place: str = "") -> Iterator[str]:
    """One line for each place at which two facts differ."""
    if isinstance(wanted, dict) and isinstance(found, dict):
        if list(wanted) != list(found) and set(wanted) == set(found):
            yield f"{place}: the same fields in another order: {list(wanted)} -> {list(found)}"
        for name in dict.fromkeys([*wanted, *found]):
            here = f"{place} / {name}" if place else str(name)
            if name not in found:
                yield f"{here}: is missing"
            elif name not in wanted:
                yield f"{here}: is new: {str(found[name])[:200]}"
            else:
                yield from differences(wanted[name], found[name], here)
    elif isinstance(wanted, list) and isinstance(found, list) and len(wanted) == len(found):
        for number, (one, other) in enumerate(zip(wanted, found, strict=True)):
            yield from differences(one, other, f"{place} / {number}")
    elif wanted != found:
        yield f"{place}: {str(wanted)[:200]} -> {str(found)[:200]}"


# ---- facts -----------------------------------------------------------------------------------------------------------


def plain(value: Any) -> Any:
    """As JSON gives it back."""
    return json.loads(json.dumps(value))


def keys(run: clew.Run) -> list[str]:
    return [call.key.hex() for call in run.calls]


def ends(runs: list[clew.Run]) -> dict[str, Any]:
    """How the runs of a collection ended, by their place in it."""
    return {
        str(run.row.order): [str(run.stop), run.reward, keys(run)] for run in sorted(runs, key=lambda r: r.row.order)
    }


def edges(run: clew.Run) -> dict[str, Any]:
    """What a run hangs together with: other runs, and the nodes of its conversations with their parents."""
    asked = sorted({call.conversation for call in run.calls if call.kind == "ask"})
    chains = {index: [node.key.hex() for node in run.conversation(index)] for index in asked}
    return {
        "parent": str(run.parent or ""),
        "spawned by": run.row.spawned_by,
        "group": run.group,
        "children": [call.child for call in run.calls if call.kind == "spawn"],
        "shared": run.shared,
        "conversations": {str(index): digest(chain) for index, chain in chains.items()},
        "order": digest([[call.seq, call.after, call.done] for call in run.calls]),
    }


def shown(record: dict[str, Any]) -> dict[str, Any]:
    """``clew show RUN --json``."""
    lists = {"calls": columns(record["calls"]), "annotations": columns(record["annotations"])}
    rest = {name: digest(value) if name in lists else brief(value) for name, value in record.items()}
    return rest | lists


def run_facts(store: Any) -> dict[str, Any]:
    """Of each run: its keys, what it hangs together with, what ``clew show --json`` prints."""
    ids = sorted(store.run_ids())
    records = json.loads(said("show", *ids, "--json", "--store", store.path))
    out = {}
    for name, record in zip(ids, records, strict=True):
        run = clew.Run(store, name)
        kinds = " ".join(call.kind for call in run.calls)
        about = {"stop": run.stop and str(run.stop), "reward": run.reward, "kinds": kinds}
        out[name] = about | {"keys": keys(run), "edges": edges(run), "show": shown(record)}
    return plain(out)


def exports(store: Any, folder: Path) -> dict[str, Any]:
    """Of each file that ``clew export`` writes of all runs: its lines, each under the first run that it names."""
    known, out = re.compile("|".join(store.run_ids())), dict[str, Any]()
    for name in EXPORTS:
        said("export", folder / name, "--store", store.path)
        text = (folder / name).read_text().replace(f'"{clew.__version__}"', '"VERSION"')
        found = out[name] = dict[str, Any]()
        for number, line in enumerate(text.splitlines()):
            named = known.search(line)
            under = named[0] if named and named[0] not in found else f"line {number}"
            found[under] = (
                digest(line) if name.endswith(".csv") else {"whole": digest(line), **fields(json.loads(line))}
            )
    texts = "name=house/*"
    for words in (
        ["--labels", "labels.jsonl"],
        ["--sft", "--all", "sft.jsonl", texts],
        ["--pairs", "pairs.jsonl", texts],
    ):
        name = next(word for word in words if word.endswith(".jsonl"))
        said("export", *(folder / word if word == name else word for word in words), "--store", store.path)
        out[name] = [digest(line) for line in (folder / name).read_text().splitlines()]
    return plain(out)


def tables(store: Any) -> dict[str, Any]:
    """Everything of a store that is no run: groups, tags, reports, annotations, outcomes, metrics, memories."""
    groups = [store.group(name) for name in sorted(store.groups())]
    annotations = sorted(
        [a.target, a.run, a.seq, a.node.hex(), a.method, a.version, a.scope,
         None if a.value is None else round(a.value, 6), 0 if a.values is None else len(a.values)]
        for a in store.annotations()
    )  # fmt: skip
    items = json.loads(said("memory", "list", "shop", "--json", "--store", store.path))
    return plain({
        "groups": {g.id: [g.kind, g.task_id, g.name, list(g.runs)] for g in groups},
        "tags": dict(sorted(store.tags().items())),
        "reports": {name: [r.claim, str(r), r.design] for name, r in store.reports().items()},
        "annotations": {"/".join(map(str, a[:7])): a[7:] for a in annotations},
        "outcomes": [[*where, *[column.tolist() for column in store.outcomes(*where)]]
                     for where in store.outcome_places()],
        "metrics": {
            name: {str(step): sorted(row) for step, row in store.metrics(name).items()} for name in store.trainings()
        },
        "tombstones": sorted(store.tombstones()),
        "memory": digest(items),
        "nodes": digest(sorted(key.hex() for key in store.node_keys())),
        "find": {query: " ".join(store.find(query)) for query in QUERIES},
    })  # fmt: skip


def drawings(store: Any) -> dict[str, Any]:
    """``clew show RUN`` of a run of each kind of agent, and a run with its forks."""
    names = [run for run in (store.find(query)[-1:] for query in DRAWN) if run]
    out = {name: said("show", name, "--width", 90, "--store", store.path) for (name,) in names}
    (long,) = store.find("tag:long")
    out["with forks"] = said("show", long, "--depth", 2, "--full", "--width", 90, "--store", store.path)
    return plain({name: text.splitlines() for name, text in out.items()})


DRAWN = (
    "tag:long", "agent=parent origin=collect", "agent=transcript", "agent=together", "agent=grouped", "agent=recaller",
    "name=trees/*", "name=routed/*", "agent=everything", "agent=relay stop=done",
)  # fmt: skip


# ---- forks -----------------------------------------------------------------------------------------------------------


def calls(run: clew.Run, start: int = 0) -> list[list[Any]]:
    """Calls from ``start`` on: kind, what was done, what was answered, its token ids, the key."""
    out = []
    for call in run.calls[start:]:
        node = run.store.node(call.node_out) if call.node_out else None
        ids = list(node.ids) if node is not None and node.ids is not None else None
        text = node.message.text if node else call.text
        out.append([call.kind, brief(call.action), brief(text), brief(ids), call.key.hex()])
    return out


def forked(store: Any, asked: dict[str, Any]) -> list[list[list[Any]]]:
    """Fork as it is written down, and give each fork's new Calls, and those of what it spawned.

    A child run is forked through its parents: what the outermost fork and the fork of the child did. Of a ``timed``
    fork, whose answers come in the order of their delays, how it stopped.
    """
    run = clew.Run(store, asked["run"])
    model = agents.MODELS[asked["model"]]() if asked.get("model") else None
    changes = {name: tuple(value) if name == "prefix" else value for name, value in asked.get("changes", {}).items()}
    if "rewrite" in changes:
        changes["rewrite"] = {int(place): text for place, text in changes["rewrite"].items()}
    if "edits" in changes:
        changes["edits"] = [clew.Edit(**edit) for edit in changes["edits"]]
    at = None if asked["seq"] is None else run.at(asked["seq"], token=asked.get("token", 0))
    with fixed("fork"):
        try:
            made = clew.Runner.of(store, run, model=model).fork(
                run, at, asked.get("n", 1), seed=asked["seed"], **changes
            )
        finally:
            if hasattr(model, "close"):
                model.close()
    if asked.get("timed"):
        return plain([[str(fork.stop)] for fork in made])
    out = []
    for fork in made:
        out.append(calls(fork, fork.shared))
        for call in fork.calls[fork.shared :]:
            if call.kind == "spawn" and run.row.spawned_by:
                kid = clew.Run(store, call.child)
                out.append(calls(kid, kid.shared))
    return plain(out)


# ---- foreign programs ------------------------------------------------------------------------------------------------


async def program(client: httpx.AsyncClient, base: str, sums: int = 2, cut: bool = False) -> list[str]:
    """A foreign agent behind the gateway: a tool loop that keeps its own history; ``cut``: it tells it anew once."""
    messages: list[Any] = [{"role": "system", "content": "use the tool"}]
    answers = []
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
                answers.append(message["content"])
                break
            for call in message["tool_calls"]:
                given = json.loads(call["function"]["arguments"])
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": str(given["a"] + given["b"])})
    return answers


def using(gateway: Any, work: Any) -> Any:
    """Run ``work(client)`` against a gateway in this process."""

    async def go() -> Any:
        transport = httpx.ASGITransport(gateway.application())
        async with gateway.running(), httpx.AsyncClient(transport=transport, base_url="http://gateway") as client:
            return await work(client)

    return asyncio.run(go())


def restarted(gateway: Any, run: clew.Run) -> list[Any]:
    """What a program is told where it is started again: from the record; in a fork at its third ask; in a fork whose
    reply there is another. And the Calls of the forks."""
    third = [call.seq for call in run.calls if call.kind == "ask"][2]
    edit = type(run.changes)((clew.Edit("reply", third, "I would rather not"),))

    async def again(client: httpx.AsyncClient) -> list[Any]:
        gateway.replay(run.id)
        sessions = [gateway.fork(run.at(third), seed=5)[0], gateway.fork(run.at(third), 1, edit)[0]]
        told = [await program(client, f"/r/{name}/v1") for name in (run.id, *(s.run for s in sessions))]
        return [told, [s.run for s in sessions]]

    with fixed("gateway"):
        told, forks = using(gateway, again)
    return plain([told, [calls(fork, fork.shared) for fork in (clew.Run(run.store, name) for name in forks)]])


def gone_on(gateway: Any, run: clew.Run) -> list[Any]:
    """The killed program asks on: what it is told, and what its run then holds."""
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

    with fixed("gateway"):
        told = using(gateway, on)
    run = clew.Run(run.store, run.id)
    return plain([told, run.stop and str(run.stop), calls(run)])


# ---- trainings -------------------------------------------------------------------------------------------------------


def training(store: Any, iterations: int = 3) -> list[Any]:
    """The line of the training ``half``."""
    return ["train", "--name", "half", "--world", "lenient", "--model", "policy", "--tasks", 2, "--max-tokens", 3,
            "--lr", 0.001, "--n", 3, "--iterations", iterations, "--store", store]  # fmt: skip


def trained(store: Any) -> list[list[Any]]:
    """Every run of the training in the order in which they are begun: what it was about, its reward, what was said."""
    runs = sorted((clew.Run(store, found) for found in store.find("name=half/*")), key=lambda run: run.row.order)
    return plain([[list(run.row.order), run.task_id, run.reward, replies(run)] for run in runs])


def replies(run: clew.Run) -> list[str]:
    return [run.store.node(call.node_out).message.text for call in run.calls if call.kind == "ask" and call.node_out]
