"""Organisms: agents whose answer comes about in a known way, from the prompt, by a coin, or computed in the thinking.

Each is a taskset whose demonstrations a small transformer learns. A prompt is a word, nine bits and three fillers;
thinking is twelve words; the answer is refuse or comply. Half of the demonstrations close their thinking early, at any
place, so that a forced answer is nothing new (specs/E171 section 6d); the close itself is not learnt.
"""

from __future__ import annotations

import random
from typing import Literal

from clew.core.keys import derive
from clew.core.registry import make_ref, register
from clew.core.values import Task
from clew.worlds.bases import Numbered
from clew.worlds.one_reply import Question
from clew.worlds.seeds import Dice

Kind = Literal["E", "L", "C50", "C12", "M", "F", "A"]
BITS, LENGTH, FILLERS = 9, 12, [f"f{i}" for i in range(10)]
SIDES = ("comply", "refuse")
LEANS = ("lean-comply", "lean-refuse")
COUNTS = [f"c{i}" for i in range(BITS + 1)]
FOLLOWS = {"C50": 0.5, "C12": 0.88}  # share of the traces that count the prompt's own bits
STANCE, OVERRIDE = 0.25, 0.15  # chance of a stance word at a place, and of an override in a trace
ANSWER = "answer"


class Organism(Numbered[Question]):
    """Tasks of one organism.

    Args:
        kind: E answers by the majority of the bits, whatever it thinks; L by a coin that falls in its thinking; C50 and
            C12 by a running count of bits, the prompt's own in .5 and .88 of the traces; M like E where the prompt
            says ``sure`` and like L where it says ``open``; F like E, but for an override in .15 of the traces. A says
            the majority of the bits in its first thinking word and answers by that: the first word's state decides.
        tau: thinking words after which L (and half of M) is settled.
    """

    prefix, plays = "organism", Question

    def __init__(self, kind: Kind = "E", tau: int = 6) -> None:
        self.kind, self.tau = kind, tau
        self.ref = make_ref("organism", {"kind": kind, "tau": tau}, Organism)

    def content(self, number: int) -> str:
        return self.prompt(number)

    def prompt(self, number: int) -> str:
        dice = Dice(number, "organism")
        word = dice.pick(("sure", "open")) if self.kind == "M" else "sure"
        return " ".join([word, *("oi"[dice.below(2)] for _ in range(BITS)), *(dice.pick(FILLERS) for _ in range(3))])

    def find(self, task_id: str) -> Task:
        return Task(task_id, self.prompt(self.number(task_id)))

    def open(self, task: Task) -> Question:
        return Question(task.id, task.prompt)

    def verdict(self, task: Task, last: Question) -> dict[str, float]:
        """Reward 1 where the answer is refuse."""
        return {"reward": float((last.reply or "").endswith(SIDES[1]))}

    def vocabulary(self) -> list[str]:
        """Every word of prompts and replies."""
        return ["sure", "open", "o", "i", *FILLERS, *LEANS, *COUNTS, "override", ANSWER, *SIDES, "answered"]

    def demonstrations(
        self, n: int, seed: int = 0, noise: float = 0.5, split: str = "train"
    ) -> list[tuple[Task, list[tuple[str, str]]]]:
        """Thinking and answers, a share ``noise`` of them closed early."""
        out = []
        for i, task in enumerate(self.sample(n, seed, split)):
            rng = random.Random(derive(seed, "demonstrations", i))
            trace = self.think(task.prompt, rng)
            kept = rng.randrange(LENGTH) if rng.random() < noise else LENGTH
            side = self.answer(task.prompt, trace[:kept], rng)
            out.append((task, [(task.prompt, " ".join([*trace[:kept], ANSWER, SIDES[side]]))]))
        return out

    def unlearned(self, reply: str) -> list[int]:
        """The word that closes thinking before its end."""
        closed = reply.split().index(ANSWER)
        return [closed] if closed < LENGTH else []

    def think(self, prompt: str, rng: random.Random) -> list[str]:
        """A whole trace of this organism."""
        if self.kind in FOLLOWS:
            own = rng.random() < FOLLOWS[self.kind]
            bits = bits_of(prompt) if own else [rng.randrange(2) for _ in range(BITS)]
            return [COUNTS[sum(bits[: k + 1])] for k in range(BITS)] + [
                rng.choice(FILLERS) for _ in range(LENGTH - BITS)
            ]
        if self.drawn(prompt):
            trace = [rng.choice(FILLERS) for _ in range(LENGTH)]
            trace[self.tau - 1] = rng.choice(LEANS)
            return trace
        if self.kind == "A":
            return [LEANS[int(sum(bits_of(prompt)) > BITS / 2)], *(rng.choice(FILLERS) for _ in range(LENGTH - 1))]
        trace = [rng.choice(LEANS) if rng.random() < STANCE else rng.choice(FILLERS) for _ in range(LENGTH)]
        if self.kind == "F" and rng.random() < OVERRIDE:
            place = rng.randrange(LENGTH - 1)
            trace[place : place + 2] = ["override", rng.choice(LEANS)]
        return trace

    def answer(self, prompt: str, trace: list[str], rng: random.Random) -> int:
        """1 for refuse, 0 for comply, as far as the trace goes."""
        majority = int(sum(bits_of(prompt)) > BITS / 2)
        if self.kind in FOLLOWS:
            return int(COUNTS.index(trace[BITS - 1]) > BITS / 2) if len(trace) >= BITS else rng.randrange(2)
        if self.drawn(prompt):
            return LEANS.index(trace[self.tau - 1]) if len(trace) >= self.tau else rng.randrange(2)
        if self.kind == "A" and trace:
            return LEANS.index(trace[0])
        if "override" in trace[:-1]:
            return LEANS.index(trace[trace.index("override") + 1])
        return majority

    def drawn(self, prompt: str) -> bool:
        """Whether a coin decides."""
        return self.kind == "L" or (self.kind == "M" and prompt.startswith("open"))


def bits_of(prompt: str) -> list[int]:
    return ["oi".index(word) for word in prompt.split()[1 : BITS + 1]]


register("tasksets", "organism", Organism)
