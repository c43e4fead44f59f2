"""What a pair of models is tried on in tier ``clerk``: runs to grade, scores, injected mistakes, a trained PRM."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from clew.core.keys import derive
from clew.harness import Runner, scoring
from clew.methods.grade import grade as g
from clew.methods.grade import graded
from clew.models.local import Local
from clew.store import Run
from clew.train.rows import render
from clew.train.warmstart import conversation
from clew.worlds.clerk import Clerk, ClerkWorld, oracle
from papers.E173_progress.making import PLAYER, SAMPLING

DEV = 0.2  # share of the tasks on which aggregations are chosen
TOKENS: tuple[g.TokenAgg, ...] = ("sum", "mean", "min")


class Panel(NamedTuple):
    """Runs of some tasks, those of one task side by side. task, mine (by the policy): [n]; won, kept_back: bool [n]."""

    runs: list[Run]
    task: np.ndarray
    mine: np.ndarray
    won: np.ndarray
    kept_back: np.ndarray

    def of(self, chosen: np.ndarray) -> Panel:
        picked = [run for run, yes in zip(self.runs, chosen, strict=True) if yes]
        return Panel(picked, *(x[chosen] for x in self[1:]))


def panel(world: Clerk, models: Sequence[Local], tasks: int, each: int, seed: int) -> Panel:
    """``each`` runs of every task by every model; the first is the policy."""
    drawn = world.sample(tasks, derive(seed, "panel"), "eval")
    runs, store = list[tuple[int, bool, Run]](), None
    for i, model in enumerate(models):
        runner = Runner(PLAYER, world, model, ":memory:" if store is None else store, sampling=SAMPLING)  # type: ignore[arg-type]
        store = runner.store
        groups = runner.collect(drawn, each, derive(seed, "panel", i), name=f"panel{i}")
        runs += [(t, i == 0, run) for t, group in enumerate(groups) for run in group]
    runs.sort(key=lambda item: item[0])
    found = [run for _, _, run in runs]
    return Panel(
        found,
        np.array([t for t, _, _ in runs]),
        np.array([mine for _, mine, _ in runs]),
        np.array([(run.reward or 0.0) > 0.5 for run in found]),
        np.array([bool(drawn[t].data["must_not_act"]) for t, _, _ in runs]),
    )


class Certainty:
    """Scores a token by how certain the model was there: KL(uniform || next token), nats (self-certainty)."""

    def __init__(self, model: Local) -> None:
        self.ref, self.renderer, self._model = f"certainty of {model.ref}", model.renderer, model

    @torch.no_grad()
    def score(self, ids: Sequence[Sequence[int]], temperature: float = 1.0) -> list[np.ndarray]:
        out = []
        for row in ids:
            logp = (self._model.module(torch.tensor([row])).logits[0, :-1].float() / temperature).log_softmax(-1)
            out.append((-np.log(logp.shape[-1]) - logp.mean(-1)).numpy())
        return out


class Scored(NamedTuple):
    """A panel read under a pair; options: arm -> aggregation -> score per run."""

    reading: graded.Reading
    options: dict[str, dict[str, np.ndarray]]


def scored(runs: Sequence[Run], policy: Any, ref: Any, more: bool = False) -> Scored:
    """Every arm's 30 aggregations; ``more``: self-certainty and the separate form as well."""
    plan = scoring.plan(runs)
    mine, theirs = (scoring.score(runs, model, store=False, found=plan) for model in (policy, ref))
    x = graded.read(runs, mine, theirs)
    zero, where = np.zeros(len(x.ref)), (x.spans, x.owner)
    options = {
        "pa": g.cells(x.policy, x.ref, *where),
        "log pi": g.cells(x.policy, zero, *where),
        "log ref": g.cells(x.ref, zero, *where),
    }
    if more:
        options["pa, separate"] = g.cells(x.policy, x.ref, *where, mode="separate")
        sure = scoring.score(runs, Certainty(policy), store=False, found=plan)
        flat = graded.read(runs, sure, {ask: np.zeros_like(v) for ask, v in sure.items()})
        options["self-certainty"] = g.cells(flat.policy, np.zeros(len(flat.policy)), flat.spans, flat.owner)
    options["length"] = {"tokens": -x.length.astype(float), "steps": -np.bincount(x.owner).astype(float)}
    return Scored(x, options)


def dev(task: np.ndarray) -> np.ndarray:
    """The runs of the first fifth of the tasks."""
    return np.asarray(task < round(DEV * (task.max() + 1)))


def choose(options: dict[str, dict[str, np.ndarray]], of: Panel) -> dict[str, g.Selection]:
    """Each arm's aggregation, chosen by AUROC on the dev tasks."""
    first = dev(of.task)
    return {
        arm: g.select({k: v[first] for k, v in table.items()}, of.won[first], of.task[first])
        for arm, table in options.items()
    }


# -- whose fault was it -----------------------------------------------------------------------------------------------


class Mistake(NamedTuple):
    """A conversation that failed by one forced action: [(screen, action)] and which."""

    steps: list[tuple[str, str]]
    at: int


def mistakes(world: Clerk, n: int, kind: str, seed: int) -> list[Mistake]:
    """Oracle conversations of held-out tasks with one wrong action, without which they would have succeeded.

    kind: ``random``, any action that can be understood; ``habit``, a wish that the card forbids is granted.
    """
    out: list[Mistake] = []
    for task in world.sample(3 * n, derive(seed, "mistakes"), "eval"):
        rng = random.Random(derive(seed, "mistake", task.id))
        whole, good = _play(world, task, -1, "")
        if not good or len(out) == n:
            continue
        for _ in range(12):
            at = rng.randrange(len(whole))
            plan = world.plan(int(task.id.split("-")[1]))
            pool = [plan.calls(w) for w in plan.wishes if plan.rule(w)]
            if kind == "random":
                pool = list(_at(world, task, whole, at).observe().legal)
            wrong = rng.choice(pool) if pool else whole[at][1]
            steps, good = _play(world, task, at, wrong)
            if not good and wrong != whole[at][1]:
                out.append(Mistake(steps, at))
                break
    return out


def _at(world: Clerk, task: Any, steps: list[tuple[str, str]], at: int) -> ClerkWorld:
    desk = world.open(task)
    for _, action in steps[:at]:
        desk.step(action)
    return desk


def _play(world: Clerk, task: Any, at: int, wrong: str) -> tuple[list[tuple[str, str]], bool]:
    desk, steps = world.open(task), list[tuple[str, str]]()
    seen = desk.observe()
    while not seen.done:
        steps.append((seen.text, wrong if len(steps) == at else oracle(desk)))
        seen = desk.step(steps[-1][1])
    return steps, desk.success


def blamed(found: Sequence[Mistake], policy: Local, ref: Local) -> dict[str, Any]:
    """Share of mistakes found by each arm's rule, chosen on the first third and counted on the rest."""
    ids, spans, owner = list[list[int]](), list[tuple[int, int]](), list[int]()
    total = 0
    for i, mistake in enumerate(found):
        row = list[int]()
        for piece, own in render(conversation(mistake.steps), policy.renderer):
            if own:
                spans.append((total + len(row), total + len(row) + len(piece)))
                owner.append(i)
            row += piece
        ids.append(row)
        total += len(row)
    p, r = (np.concatenate([np.append(0, x) for x in model.score(ids)]) for model in (policy, ref))
    true, first = np.array([m.at for m in found]), np.arange(len(found)) < len(found) // 3
    chance = np.mean([1 / len(m.steps) for m, dev_ in zip(found, first, strict=True) if not dev_])
    out: dict[str, Any] = {"n": int((~first).sum()), "chance": float(chance)}
    zero = np.zeros(len(p))
    cut = np.flatnonzero(np.diff(owner)) + 1
    for arm, (a, b) in {"pa": (p, r), "log pi": (p, zero), "log ref": (r, zero)}.items():
        hits = {}
        for token in TOKENS:
            step = g.grade(a, b, spans, owner, token_agg=token).step
            if b is zero:  # a logprob is never positive, so that the rules would always blame something: centre it
                step = step - step.mean()
            for rule in g.RULES:
                hits[f"{token}/{rule}"] = np.array([g.blame(s, rule) for s in np.split(step, cut)]) == true
        best = max(hits, key=lambda k: hits[k][first].mean())
        out[arm] = {"rule": best, "hits": hits[best][~first].astype(int).tolist()}
        out[arm]["all"] = {k: round(float(v[~first].mean()), 4) for k, v in hits.items()}
    return out


# -- a process reward model -------------------------------------------------------------------------------------------


def prm(world: Clerk, policy: Local, labels: int, forks: int, seed: int) -> np.ndarray:
    """Weights of a linear head on the policy's last hidden state, fitted to Monte-Carlo values of steps (ridge)."""
    found = panel_of_steps(world, policy, labels, forks, seed)
    x, y = _hidden(policy, [run for run, _ in found], [calls for _, calls in found])
    x = np.concatenate([x, np.ones((len(x), 1))], 1)
    penalty = np.eye(x.shape[1]) * 0.1 * len(x)
    penalty[-1, -1] = 0
    return np.asarray(np.linalg.solve(x.T @ x + penalty, x.T @ y))


def panel_of_steps(
    world: Clerk, policy: Local, labels: int, forks: int, seed: int
) -> list[tuple[Run, dict[tuple[str, int], float]]]:
    """Runs on training tasks with, for each step's ask, the mean reward of ``forks`` continuations by the policy."""
    runner = Runner(PLAYER, world, policy, ":memory:", sampling=SAMPLING)  # type: ignore[arg-type]
    tasks = world.sample(labels, derive(seed, "prm"), "train")
    out, left = [], labels
    for group in runner.collect(tasks[: labels // 3], 1, derive(seed, "prm"), name="prm"):
        run, values = group[0], dict[tuple[str, int], float]()
        steps = run.steps
        for step, after in zip(steps, [*steps[1:], None], strict=True):
            if left <= 0:
                break
            reward = run.reward or 0.0
            if after is not None:
                more = runner.fork(run, at=after.asks[0].seq, n=forks, seed=derive(seed, run.task_id, step.index))
                reward = float(np.nanmean(more.rewards))
            values[step.asks[0].run, step.asks[0].seq] = reward
            left -= 1
        out.append((run, values))
    return out


def _hidden(
    model: Local, runs: Sequence[Run], values: Sequence[dict[tuple[str, int], float]]
) -> tuple[np.ndarray, np.ndarray]:
    wanted = {ask: v for each in values for ask, v in each.items()}
    states, y = [], []
    for ask, state in hidden(model, runs).items():
        if ask in wanted:
            states.append(state)
            y.append(wanted[ask])
    return np.array(states), np.array(y)


@torch.no_grad()
def hidden(model: Local, runs: Sequence[Run]) -> dict[tuple[str, int], np.ndarray]:
    """The last layer's state at the last token of each ask's reply."""
    plan, out = scoring.plan(runs), {}
    body: Any = model.module.base_model
    for row in plan.rows:
        states = body(torch.tensor([row.ids]), use_cache=False)[0][0].float().numpy()
        for reply in row.replies:
            out |= dict.fromkeys(plan.asks[reply.node], states[reply.stop - 1])
    return out


def prm_options(model: Local, head: np.ndarray, of: Panel, x: graded.Reading) -> dict[str, np.ndarray]:
    """The PRM's step values, aggregated to runs."""
    states = hidden(model, of.runs)
    step = np.array([float(np.append(states[parts[-1][0]], 1.0) @ head) for parts in x.asks])
    return {how: g.over_steps(step, x.owner, how) for how in g.STEP_AGGS}
