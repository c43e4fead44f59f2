"""A pool whose workers are programs, and its world: what the tier ``conductor`` plans for (specs/E166 7.1).

A task is a program of one or two operations of the types lookup, math and code, with the chances of ``pool``. Workers
read what ``orchestrator`` tells them and answer with a number. Whether an operation comes out right is a hash of
worker, question and place, so that a worker that is asked the same again says the same, and all arms meet equal luck.
"""

from __future__ import annotations

import random
import re

import numpy as np

from clew.core.keys import derive, uniforms, value_digest
from clew.core.records import Request
from clew.core.values import Completion, Message, Task, Usage
from clew.worlds.bases import Numbered
from clew.worlds.one_reply import Question
from papers.E166_route import pool

HERE = "papers/E166_route/conductor_pool.py"
NAMES = pool.WORKERS[:3]  # specialists alone: with one that can do a little of all, looks on seed 0 narrowed to it
SHARES = (0.6, 0.4)  # of programs of one operation and of two
SKILL = {name: dict(zip(pool.OPS, pool.SKILL[i].tolist(), strict=True)) for i, name in enumerate(NAMES)}
PEOPLE = ("ann", "bob", "cy")
SAID = {
    "L": (r"look up (\w+)", "look up {name}"),
    "M": (r"multiply by (\d)", "multiply by {k}"),
    "C": (r"rotate it (\d) times", "rotate it {k} times"),
}
STEP = re.compile(r"Do step ([1-9])\.")
RESULT = re.compile(r"\[(\w{8}) part (\d+): ([^\n]*)\]\n([^\n]*)\n\[\1 end\]")


def program(number: int) -> tuple[str, str]:
    """The text of a program and its types, as in ("table: ...", "LM")."""
    rng = random.Random(derive(number, "conductor"))
    ops = [rng.choice(pool.OPS)]
    for _ in range(rng.choices((0, 1), SHARES)[0]):
        ops.append(ops[-1] if rng.random() < pool.SAME else rng.choice([op for op in pool.OPS if op != ops[-1]]))
    table = ", ".join(f"{name}={rng.randrange(10, 100)}" for name in PEOPLE)
    steps = ", then ".join(SAID[op][1].format(name=rng.choice(PEOPLE), k=rng.randrange(2, 10)) for op in ops)
    return f"table: {table}. begin with {rng.randrange(10, 100)}, {steps}.", "".join(ops)


class Read:
    """A question as a worker reads it: the table, the number it begins with, and its operations."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.table = {name: int(value) for name, value in re.findall(r"(\w+)=(\d+)", text)}
        found = re.search(r"begin with (\d+), ([^\n]*)\.", text)
        self.begin, steps = (int(found[1]), found[2].split(", then ")) if found else (0, [])
        read = [(op, re.fullmatch(form, step)) for step in steps for op, (form, _) in SAID.items()]
        self.ops = [(op, match[1]) for op, match in read if match]

    def done(self, at: int, value: int) -> int:
        """The number after operation ``at``, from 0."""
        op, what = self.ops[at]
        if op == "L":
            return (value + self.table.get(what, 0)) % 100
        return value * int(what) % 100 if op == "M" else (value + 37 * int(what)) % 100

    @property
    def answer(self) -> int:
        value = self.begin
        for at in range(len(self.ops)):
            value = self.done(at, value)
        return value


class Programs(Numbered[Question]):
    """Programs as questions; the reply must be the number."""

    prefix, plays = "program", Question

    def __init__(self) -> None:
        self.ref = f"{HERE}:Programs"

    def content(self, number: int) -> str:
        return program(number)[0]

    def find(self, task_id: str) -> Task:
        return Task(task_id, program(self.number(task_id))[0])

    def open(self, task: Task) -> Question:
        return Question(task.id, task.prompt)

    def verdict(self, task: Task, last: Question) -> dict[str, float]:
        return {"reward": float((last.reply or "").strip() == str(Read(task.prompt).answer))}


class Skill:
    """A worker of one name in ``NAMES``. What it is asked in words that it does not know, it does not do."""

    version, renderer = 0, None

    def __init__(self, name: str) -> None:
        self.name, self.ref, self.calls = name, f"{HERE}:Skill(name={name!r})", 0

    async def complete(self, request: Request) -> Completion:
        self.calls += 1
        said = self.reply(request.path[-1].message.text)
        return Completion(Message("assistant", said), usage=Usage(1, 1))

    def reply(self, prompt: str) -> str:
        question, _, rest = prompt.partition("\n\nYour part of the work: ")
        part = rest.partition("\n")[0] or "Do the whole task."
        read = Read(question.strip())
        seen = [(m[3], m[4]) for m in RESULT.finditer(rest) if m[4].isdigit()]
        return str(self.work(read, part, seen)) if read.ops else "I see no program."

    def work(self, read: Read, part: str, seen: list[tuple[str, str]]) -> int | str:
        """Do a part in sight of results, given as (subtask, number)."""
        last = len(read.ops)
        if part in ("Do the whole task.", "Check the result and correct it."):
            return self.steps(read, 0, last, read.begin)
        if part == "Compare the results and give the right one.":
            given = [value for _, value in seen]
            return max(given, key=given.count) if given else "I see no results."
        step = STEP.fullmatch(part)
        if step is None:
            return "I do not understand."
        at = int(step[1])
        if at > last:
            return seen[-1][1] if seen else self.steps(read, 0, last, read.begin)
        before = [value for subtask, value in seen if subtask == f"Do step {at - 1}."]
        return self.steps(read, at - 1, at, int(before[-1])) if before else self.steps(read, 0, at, read.begin)

    def steps(self, read: Read, first: int, stop: int, value: int) -> int:
        """Do operations ``first`` up to but excluding ``stop``; one that goes wrong is off by 1 to 9."""
        for at in range(first, stop):
            value = read.done(at, value)
            seed = np.frombuffer(value_digest([self.name, read.text, at])[:8], np.uint64)
            luck, off = uniforms(seed, np.zeros(1, np.uint64))[0], uniforms(seed, np.ones(1, np.uint64))[0]
            if luck >= SKILL[self.name][read.ops[at][0]]:
                value = (value + 1 + int(off * 9)) % 100
        return value


def worker(ref: str) -> Skill:
    """A worker by its name."""
    return Skill(ref)


def alone(name: str, text: str) -> bool:
    """Whether a worker that is asked the whole question gets it right."""
    return Skill(name).reply(text) == str(Read(text).answer)
