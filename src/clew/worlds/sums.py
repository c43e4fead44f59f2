"""Sums: add up a row of numbers on a written scratchpad; the judge reads the answer (specs/E162).

The world shows ``add 7 4 9``. It wants one reply such as ``7 + 4 = 11 , 11 + 9 = 20 answer 20``. The reply writes down
every step and carries an error on, so that each step is a place where a rollout can go wrong. The length of the row
sets how hard the task is. The reward must never depend on anything but the answer.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence

from clew.core.errors import BadInput, WorldError
from clew.core.keys import derive, state_key
from clew.core.registry import make_ref
from clew.core.values import Observation, Task, ToolCall
from clew.worlds.bases import Exact, Numbered
from clew.worlds.seeds import Dice


class SumsWorld(Exact):
    """Shows the row, takes one reply and ends. Knows the terms, not whether the reply is right."""

    def __init__(self, name: str, terms: Sequence[int]) -> None:
        self._name, self._terms, self._closed = name, tuple(terms), False
        self.reply: str | None = None

    @property
    def state_key(self) -> bytes:
        return state_key(self._name, json.dumps(self.reply))

    def observe(self) -> Observation:
        if self.reply is None:
            return Observation(f"add {' '.join(map(str, self._terms))}")
        return Observation("done", None, True)

    def step(self, action: str | ToolCall) -> Observation:
        """Take the reply.

        Raises:
            WorldError: there was one already, or the world is closed.
        """
        if self._closed or self.reply is not None:
            raise WorldError(f"step({str(action)[:40]!r}) after the end", remedy="Open a fresh world.")
        self.reply = action.arguments if isinstance(action, ToolCall) else str(action)
        return self.observe()._replace(call_id=action.id if isinstance(action, ToolCall) else None)

    def snapshot(self) -> bytes:
        return json.dumps([self._name, self.reply]).encode()

    def restore(self, snapshot: bytes) -> None:
        try:
            name, reply = json.loads(snapshot)
        except (ValueError, TypeError) as error:
            raise WorldError(f"not a snapshot of sums: {snapshot[:40]!r}") from error
        if name != self._name:
            raise WorldError(f"a snapshot of {name}, not of {self._name}", remedy="Open the world of that task.")
        self.reply = reply


class Sums(Numbered[SumsWorld]):
    """Add up ``low`` to ``high`` numbers of 0 to ``largest``.

    Args:
        low, high: how many terms a task has, both included.
        largest: of a term.
    """

    prefix, plays = "sums", SumsWorld

    def __init__(self, low: int = 3, high: int = 6, largest: int = 9) -> None:
        given = {"low": low, "high": high, "largest": largest}
        if not 2 <= low <= high <= 64 or not 1 <= largest <= 999:
            raise BadInput(f"sums({given})", remedy="Needs 2 <= low <= high <= 64 terms of 1 to 999 at most.")
        self.ref = make_ref("sums", given, Sums)
        self.low, self.high, self.largest = low, high, largest

    def terms(self, task_id: str) -> tuple[int, ...]:
        """The numbers to add.

        Raises:
            BadInput: the id is not of this set.
        """
        dice = Dice(self.number(task_id), "sums")
        count = self.low + dice.below(self.high - self.low + 1)
        return tuple(dice.below(self.largest + 1) for _ in range(count))

    def content(self, number: int) -> tuple[int, ...]:
        return self.terms(f"sums-{number}")

    def find(self, task_id: str) -> Task:
        terms = self.terms(task_id)
        prompt = f"Add {' + '.join(map(str, terms))}. Write every step, then: answer and the sum."
        return Task(task_id, prompt, secret={"answer": sum(terms)})

    def open(self, task: Task) -> SumsWorld:
        return SumsWorld(task.id, self.terms(task.id))

    def verdict(self, task: Task, last: SumsWorld) -> dict[str, float]:
        """Reward 1 where the answer is the sum; ``steps``: the share of the wanted steps that are written and right."""
        terms = self.terms(task.id)
        return {"reward": float(answer(last.reply or "") == sum(terms)), "steps": share(last.reply or "", terms)}

    def vocabulary(self) -> list[str]:
        """Every word that rows and right or wrong scratchpads of ``demonstrations`` contain, sorted."""
        return sorted({"add", "+", "=", ",", "answer", "done", *map(str, range(self.high * self.largest + 10))})

    def demonstrations(
        self, n: int, seed: int = 0, noise: float = 0.1, split: str = "train"
    ) -> list[tuple[Task, list[tuple[str, str]]]]:
        """Scratchpads in which each step is, with probability ``noise``, off by 1 to 9; the error is carried on.

        Returns (task, [(observation, reply)]) with failures kept.
        """
        out = []
        for i, task in enumerate(self.sample(n, seed, split)):
            rng = random.Random(derive(seed, "demonstrations", i))
            seen = self.open(task).observe().text
            out.append((task, [(seen, scratchpad(self.terms(task.id), rng, noise, self.high * self.largest + 9))]))
        return out


def scratchpad(terms: Sequence[int], rng: random.Random | None = None, noise: float = 0.0, most: int = 10**9) -> str:
    """The worked sum as text; with ``noise`` each step may be off by 1 to 9, kept within 0 and ``most``."""
    lines, total = [], terms[0]
    for term in terms[1:]:
        found = total + term
        if rng is not None and rng.random() < noise:
            found += rng.choice((-1, 1)) * rng.randint(1, 9)
            found = min(max(found, 0), most)
        lines.append(f"{total} + {term} = {found}")
        total = found
    return f"{' , '.join(lines)} answer {total}"


def answer(reply: str) -> int | None:
    """The number after the last ``answer``, if that is how the reply ends; None for anything else."""
    _, found, tail = reply.rpartition("answer")
    word = tail.strip().rstrip(".")
    return int(word) if found and word.isascii() and word.isdigit() and len(word) < 10 else None


def share(reply: str, terms: Sequence[int]) -> float:
    """Share of the len(terms) - 1 wanted steps that stand at their place and are right."""
    lines = [line.strip() for line in reply.partition("answer")[0].split(",")]
    wanted, total = [], terms[0]
    for term in terms[1:]:
        wanted.append(f"{total} + {term} = {total + term}")
        total += term
    return sum(a == b for a, b in zip(lines, wanted, strict=False)) / len(wanted)
