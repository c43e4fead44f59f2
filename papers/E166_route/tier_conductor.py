"""Tier conductor: R6 and a control of R7 of specs/E166, with a language model that writes the plans it is trained on.

See ``conductor_pool`` for the workers and the world, and ``lead`` for the model. A cell is a seed: weights, plans that
are shown, training tasks and samples are its own; the held-out programs are the same for all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from clew.core.keys import derive
from clew.harness.workflow.workplan import Part
from papers.E166_route import lead, pool
from papers.E166_route.conductor_pool import NAMES, Programs, Read, Skill
from papers.E166_route.lead import Outcome
from papers.experiment import Line, apart, each

SEEDS, QUICK = range(1, 4), 3  # iterations of --quick
SHOWN, EPOCHS, COLD_LR = 1024, 3, 4e-3  # of the cold start
ITERATIONS, TASKS, ROLLOUTS, LR = 130, 16, 8, 1e-3  # of GRPO
HELD = 500
ROUND = 5
SPECIALIST = {"L": 0, "M": 1, "C": 2}


def cells(quick: bool) -> Iterator[Line]:
    for seed in list(SEEDS)[: 1 if quick else None]:
        yield {"kind": "conductor", "iterations": QUICK if quick else ITERATIONS, "seed": seed}


def cost(cell: Line) -> float:
    """CPU-seconds."""
    return 40 + cell["iterations"] * 1.0


def performed(plan: Sequence[Part], text: str) -> bool:
    """Whether a plan comes to the right number, each part done in sight of what it reads; nobody is asked by a run."""
    read, results = Read(text), list[str]()
    for part in plan:
        seen = [(plan[j].subtask, results[j]) for j in part.reads if results[j].isdigit()]
        results.append(str(Skill(NAMES[part.worker]).work(read, part.subtask, seen)))
    return results[-1] == str(read.answer)


def best_plan(text: str) -> list[Part]:
    """Each operation to the specialist of its type."""
    ops = Read(text).ops
    return [Part(SPECIALIST[op], f"Do step {i + 1}.", (i - 1,) if i else ()) for i, (op, _) in enumerate(ops)]


def voted(text: str) -> bool:
    """Whether the number that most of the workers give to the whole question is right; the first among equals."""
    said = [Skill(name).reply(text) for name in NAMES]
    return max(said, key=said.count) == str(Read(text).answer)


def held_out(found: Sequence[Outcome], texts: Sequence[str], best: int) -> Line:
    """What came of the runs of the held-out programs, and of the same plans with every part forced to one worker."""
    plans = [one.plan for one in found]
    forced = [
        plan is not None and performed([part._replace(worker=best) for part in plan], text)
        for plan, text in zip(plans, texts, strict=True)
    ]
    single = [one.calls for one, text in zip(found, texts, strict=True) if one.plan and len(Read(text).ops) == 1]
    fit = [
        part.worker == SPECIALIST[read.ops[at][0]]
        for plan, read in zip(plans, map(Read, texts), strict=True)
        if plan is not None and len(plan) == len(read.ops)
        for at, part in enumerate(plan)
    ]
    return {
        "success": round(float(np.mean([one.right for one in found])), ROUND),
        "failures": sum(plan is None for plan in plans), "n": len(found),
        "calls": round(float(np.mean([one.calls for one in found])), ROUND),
        "calls of one": round(float(np.mean(single)), ROUND) if single else None,
        "forced": round(float(np.mean(forced)), ROUND),
        "specialists": round(float(np.mean(fit)), ROUND) if fit else None,
    }  # fmt: skip


def conductor(setting: Line, seed: int) -> Line:
    """Cold start, GRPO, and what both are worth on held-out programs: greedily, sampled, and sampled in the grammar."""
    tasks = Programs().sample(HELD, derive(0, "held"), "test")
    texts = [task.prompt for task in tasks]
    singles = [float(np.mean([Skill(name).reply(t) == str(Read(t).answer) for t in texts])) for name in NAMES]
    best = int(np.argmax(singles))
    model = lead.untrained(seed)
    loss = lead.cold_start(model, SHOWN, EPOCHS, COLD_LR, seed)
    ways: dict[str, Line] = {"greedy": {"temperature": 0.0}, "sampled": {}, "held": {"grammar": True}}

    def looked(at: str) -> Line:
        return {
            f"{at} {name}": held_out(lead.outcomes(model, tasks, derive(seed, at, name), **how), texts, best)
            for name, how in ways.items()
        }

    out = looked("cold")
    curve = lead.train(model, setting["iterations"], TASKS, ROLLOUTS, LR, seed)
    return {
        **out, **looked("trained"), "cold loss": round(loss, ROUND), "single": singles, "best": best,
        "oracle": round(float(np.mean([performed(best_plan(t), t) for t in texts])), ROUND),
        "voted": round(float(np.mean([voted(t) for t in texts])), ROUND),
        "rollouts": setting["iterations"] * TASKS * ROLLOUTS, "curve": curve, "operations": pool.OPS,
    }  # fmt: skip


portions = apart
run = each(conductor)
