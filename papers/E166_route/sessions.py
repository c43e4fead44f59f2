"""R9: conversations of five turns over the same files: without what tools gave in the turns before, with it, and with
it under a policy that tells who is cleared.

The orchestrator is served as a model (``AgentModel``); a client performs its tools and sends the conversation back.
With memory it sends the results of tools too, without it only what was said. Workers are scripted: they look for a fact
in what they are told, and read a file only where it is not there.
"""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

from clew.core.keys import derive
from clew.core.records import Request
from clew.core.values import Message, Task
from clew.harness import LiveRun, Runner, tool
from clew.harness.tools import Tool
from clew.harness.workflow import Part, written
from clew.models.fakes import Scripted, tool_call
from clew.serve.agent_model import AgentModel
from papers.E166_route.crews import OWN

TURNS, FILES, FACTS = 5, 6, 4  # turns of a session, files, facts of a file
SECRET = 2  # files that only the cleared worker may see: the last ones
SLIP = 0.03  # chance that a worker misreads a fact
FILLER = {"files": 300, "large files": 2200}  # characters of each file that say nothing
BARE = 5  # facts of a session whose tool gives a number and no name
CLEARED, OTHER = "cleared", "other"
LABELLED = [
    {"name": CLEARED, "ref": CLEARED, "data_class": "secret", "clearance": ["secret", "unknown"]},
    {"name": OTHER, "ref": OTHER},
]  # what the cleared worker writes, and what its tools gave, is secret
FACT = re.compile(r"\b[fs]\d+\b")
FOUND = re.compile(r"^it is (\d+)$", re.MULTILINE)
MEMORY = ("none", "shared", "under a policy")
KINDS = ("files", "large files", "bare numbers")


class Session(NamedTuple):
    """Files by name, the facts by name, in which file each is, and the two facts that each turn asks for."""

    name: str
    files: dict[str, str]
    facts: dict[str, int]
    place: dict[str, str]
    turns: tuple[tuple[str, str], ...]
    canaries: dict[str, str]


def session(kind: str, seed: int, number: int) -> Session:
    """Facts of open files are called f0, f1 and so on, those of secret ones s16 and so on; each file has a canary."""
    rng = random.Random(derive(seed, "session", kind, number))
    facts, place, files, canaries = dict[str, int](), dict[str, str](), dict[str, str](), dict[str, str]()
    for f in range(FILES):
        secret = f >= FILES - SECRET
        name = f"{'secret' if secret else 'open'}-{f}.txt"
        canaries[name] = f"canary-{rng.randrange(1 << 40):010x}"
        own = {f"{'s' if secret else 'f'}{FACTS * f + i}": rng.randrange(100, 1000) for i in range(FACTS)}
        facts |= own
        place |= dict.fromkeys(own, name)
        lines = "\n".join(f"{fact} = {value}" for fact, value in own.items())
        files[name] = f"file {name}\n{canaries[name]}\n{lines}\n{'-' * FILLER.get(kind, 0)}"
    if kind == "bare numbers":  # a file a fact, which holds its number alone
        facts = dict(rng.sample(sorted(facts.items()), BARE))
        place, files = {fact: fact for fact in facts}, {fact: str(value) for fact, value in facts.items()}
        canaries = {}
    else:
        files["index"] = "file index\n" + "\n".join(f"{fact} is in {name}" for fact, name in place.items())
    pairs = tuple(tuple(rng.sample(sorted(facts), 2)) for _ in range(TURNS))
    return Session(f"{kind}-{seed}-{number}", files, facts, place, pairs, canaries)


# ---- who works -----------------------------------------------------------------------------------------------------


def lead(request: Request) -> str:
    """A part for each fact, secret ones to the cleared worker, then the sum."""
    asked = [node.message.text for node in request.path if node.message.role == "user"][-1]
    both = FACT.findall(asked.rpartition("together")[0].rpartition("What do")[2])
    parts = [Part(int(not fact.startswith("s")), f"Find {fact}.") for fact in both]
    return written([*parts, Part(0, "Add what the parts found.", (0, 1))])


def worker(bare: bool) -> Callable[[Request], str | Message]:
    """Looks for its fact in all that it was told and read, and reads a file where that does not say it."""

    def says(request: Request) -> str | Message:
        prompt = [node.message.text for node in request.path if node.message.role == "user"][-1]
        own = OWN.findall(prompt)[-1]
        if own.startswith("Add"):
            return f"it is {sum(map(int, FOUND.findall(prompt)))}"
        (fact,) = FACT.findall(own)
        read = [node.message.text for node in request.path if node.message.role == "tool"]
        told = "\n".join([prompt, *read])
        value = re.search(rf"^{fact} = (\d+)$", told, re.MULTILINE)
        if bare:  # a number tells its fact only beside the call that gave it
            known = re.search(rf'read .*"{fact}".* gave: (\d+)', told)
            value = known or (re.match(r"(\d+)", read[-1]) if read else None)
        if value:
            slip = derive(0, "slip", told) / 2**63 < SLIP
            return f"it is {int(value[1]) + slip}"
        place = re.search(rf"^{fact} is in (\S+)$", told, re.MULTILINE)
        return tool_call("read", path=fact if bare else place[1] if place else "index")

    return says


async def client(run: LiveRun, memory: bool = True) -> str:
    """Asks turn by turn, performs the tools that are called, and sends the conversation back, with what the tools gave
    or without."""
    said, chat, answers = list[tuple[str, str]](), run.chat(tools=run.tools), list[str]()
    for turn, (a, b) in enumerate(run.task.data["turns"]):
        if turn and not memory:
            chat = run.chat(tools=run.tools)
            for role, text in said:
                chat.say(role, text)
        question = f"Question {turn}. What do {a} and {b} come to together?"
        reply = await chat.ask(question)
        while reply.calls:
            for observation in await run.act(reply):
                chat.say("tool", observation)
            reply = await chat.ask()
        said += [("user", question), ("assistant", reply.text)]
        answers.append(reply.text)
    run.note("answers", said=answers)
    return answers[-1]


def reader(one: Session) -> Tool:
    @tool(idempotent=True)
    def read(path: str) -> str:
        """Read a file.

        Args:
            path: its name.
        """
        return one.files.get(path, "error: there is no such file")

    return read


# ---- what came out -------------------------------------------------------------------------------------------------


def arm(kind: str, seed: int, n: int, memory: str) -> dict[str, Any]:
    """``n`` sessions through the orchestrator.

    Gives by session: share of turns with the right answer, calls of tools, and those that repeat an earlier call of the
    session with the same arguments. And counts over all: requests to the worker that is not cleared and those that held
    the canary of a secret file; requests that held a canary of another session; and requests of a session's first
    turn that held what only another part of that plan had read.
    """
    all_sessions = [session(kind, seed, number) for number in range(n)]
    heard: list[tuple[str, str]] = []
    current: list[str] = []

    def listening(name: str) -> Callable[[Request], str | Message]:
        says = worker(kind == "bare numbers")

        def listen(request: Request) -> str | Message:
            heard.append((name, "\n".join(node.message.text for node in request.path)))
            current.append(name)
            return says(request)

        return listen

    models = {name: Scripted({"": listening(name)}) for name in (CLEARED, OTHER)}
    config = {"workers": LABELLED if memory == "under a policy" else list(models)}
    served = AgentModel("orchestrator", Scripted({"": lead}), config=config, resolve_model=models.__getitem__)
    out: dict[str, Any] = {"success": [], "calls": [], "repeats": []}
    leaks = Counter[str]()
    everywhere = {canary: one.name for one in all_sessions for canary in one.canaries.values()}
    for one in all_sessions:
        heard.clear()

        runner = Runner(client, None, served, config={"memory": memory != "none"}, tools=[reader(one)])
        run = runner.collect([Task(one.name, "", {"turns": [list(pair) for pair in one.turns]})], n=1).runs[0]
        notes = {call.action: json.loads(call.text or "{}") for call in run.calls if call.kind == "note"}
        right = [f"it is {one.facts[a] + one.facts[b]}" for a, b in one.turns]
        out["success"].append(sum(a == b for a, b in zip(notes["answers"]["said"], right, strict=True)) / TURNS)
        made = Counter(json.dumps(json.loads(call.action)[1:]) for call in run.calls if call.kind == "act")
        out["calls"].append(made.total())
        out["repeats"].append(made.total() - len(made))
        secret = [canary for name, canary in one.canaries.items() if name.startswith("secret")]
        for name, text in heard:
            leaks["requests"] += 1
            leaks["other sessions"] += any(c in text and where != one.name for c, where in everywhere.items())
            if name == OTHER:
                leaks["uncleared"] += 1
                leaks["uncleared saw secret"] += any(canary in text for canary in secret)
                first = "Question 0." in text and "Question 1." not in text
                leaks["uncleared, first turn"] += first
                leaks["uncleared saw secret, first turn"] += first and any(canary in text for canary in secret)
    return out | {"leaks": dict(leaks)}
