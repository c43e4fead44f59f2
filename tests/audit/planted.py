"""A model whose chances are known: a Markov chain over a few scratchpads of one task of `sums`, two of them wrong."""

from __future__ import annotations

from typing import Any

from clew.harness import Runner
from clew.harness.fork.continuations import Continuations
from clew.models.markov import Markov
from clew.store import Run
from clew.worlds.sums import Sums, scratchpad

TASKS = Sums(low=3, high=3)
TASK = TASKS.sample(1, seed=5)[0]
A, B, C = TASKS.terms(TASK.id)
RIGHT = scratchpad((A, B, C))
FIRST = f"{A} + {B} = 19 , 19 + {C} = {19 + C} answer {19 + C}"  # a wrong first sum, carried on
LAST = f"{A} + {B} = {A + B} , {A + B} + {C} = 17 answer 17"  # a wrong second
CORPUS = "\n".join([*[RIGHT] * 12, *[FIRST] * 4, *[LAST] * 4])
WORD = {"right": 4, "last": 10}  # tokens of the first and the second sum in a reply


def runner(store: Any = ":memory:", taskset: Any = None, **more: Any) -> Runner:
    made = Runner("clew.harness.agents:player", taskset or TASKS, Markov(CORPUS, order=8, tokens=True), store, **more)
    made.sampling = {"max_tokens": 40}
    return made


def solutions(store: Any = ":memory:", n: int = 24, taskset: Any = None) -> tuple[Runner, list[Run]]:
    made = runner(store, taskset)
    return made, list(made.collect([TASK], n=n, seed=1)[0])


def said(run: Run) -> str:
    return run.calls[1].node_out and run.reply(1).message.text


def hands(made: Runner, **more: Any) -> Continuations:
    return Continuations(made, **more)
