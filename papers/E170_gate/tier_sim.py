"""The regime map (P1 to P4, P6, P7), the belief as a score (P5), misfit (P8), the fixture (P9), from ``bench``.

Functions are split into halves: the rates are counted on one, episodes are drawn from the other. An episode has three
candidates of one function, each good with chance ``prior``; all policies see the same 3,000.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from papers.E170_gate.controller import Controller
from papers.E170_gate.planner import VERIFY, Plan, Stakes, best_rule
from papers.E170_gate.policies import Candidate, all_rules, by_plan, greedy, play
from papers.E170_gate.rates import Evidence, Rates
from papers.E170_gate.tier_bench import CRITICS
from papers.experiment import Line, grid, load

RESULTS = Path(__file__).resolve().parent / "results" / "bench.jsonl"
PRIORS, VERIFIES = (0.1, 0.2, 0.4, 0.7, 0.9), (5, 15, 30, 60, 90)
COSTS = {"L0": 1.0, "L1": 1.0, "L2": 2.0, "L3": 5.0}
REFINE_COST, REWARD, HORIZON, EPISODES = 10.0, 100.0, 3, 3000
SETTINGS = ("as measured", "near-oracle", "degraded")
MISFITS = ("right", "prior x 0.5", "prior x 1.5", "gap - 0.4", "gap inverted")
SPLITS, LONG = 20, 1500


def cost(cell: Line) -> float:
    return {"map": 0.3, "score": 0.02, "misfit": 0.7, "fixture": 0.01}[cell["level"]]


def cells(quick: bool) -> Iterator[Line]:
    kinds = sorted({x["kind"] for x in functions()}, reverse=True)
    yield {"kind": "none", "level": "fixture", "seed": 0}
    yield from grid(kind=kinds, level="score", seed=range(4 if quick else SPLITS))
    settings = SETTINGS[:1] if quick else SETTINGS
    yield from grid(kind=kinds, level="map", program=settings, prior=PRIORS, verify=VERIFIES, seed=0)
    guards = [f"{name}, {g}" for name in (MISFITS[:2] if quick else MISFITS) for g in ("unguarded", "guarded")]
    yield from grid(kind=kinds, level="misfit", program=guards, seed=range(1 if quick else 3))


@lru_cache(maxsize=1)
def functions() -> list[Line]:
    """The usable functions of the committed candidates."""
    return [x for x in load(RESULTS) if "y" in x and {"0", "1"} <= set(x["y"])]


def candidates(line: Line) -> list[Candidate]:
    return [(line["y"][i] == "1", {c: line[c][i] == "1" for c in CRITICS}) for i in range(len(line["y"]))]


def halves(kind: str, seed: int) -> tuple[list[Line], list[Line]]:
    lines = sorted((x for x in functions() if x["kind"] == kind), key=lambda x: x["program"])
    random.Random(f"split {seed}").shuffle(lines)
    return lines[::2], lines[1::2]


def changed(candidate: Candidate, setting: str, rng: random.Random) -> Candidate:
    """L2 replaced: nearly the oracle (right in 95 %), or a coin in 80 %."""
    label, verdicts = candidate
    if setting == "near-oracle":
        return label, {**verdicts, "L2": label if rng.random() < 0.95 else not label}
    if setting == "degraded" and rng.random() < 0.8:
        return label, {**verdicts, "L2": rng.random() < 0.5}
    return candidate


def counted(lines: Sequence[Line], setting: str, rng: random.Random) -> Evidence:
    evidence = Evidence()
    for line in lines:
        for candidate in candidates(line):
            label, verdicts = changed(candidate, setting, rng)
            evidence.add("here", verdicts, label)
    return evidence


def with_prior(rates: Rates, prior: float) -> Rates:
    return Rates(prior, prior, 1 - prior, rates.passes, rates.joint)


def drawn(lines: Sequence[Line], setting: str, prior: float, n: int, rng: random.Random) -> list[list[Candidate]]:
    """Episodes: candidates of one function, good with chance ``prior``."""
    pools = []
    for line in lines:
        all_of = candidates(line)
        pools.append(([c for c in all_of if not c[0]], [c for c in all_of if c[0]]))
    out = []
    for _ in range(n):
        pool = rng.choice(pools)
        out.append([changed(rng.choice(pool[rng.random() < prior]), setting, rng) for _ in range(HORIZON)])
    return out


def run(setting: Line, seeds: list[int]) -> list[Line]:
    return [WORK[setting["level"]]({**setting, "seed": seed}) for seed in seeds]


def planned(cell: Line, rng: random.Random) -> tuple[Rates, Stakes, list[Line]]:
    """What a cell of the map is planned with, and the half of the functions that it is played on."""
    fit, held = halves(cell["kind"], 0)
    rates = with_prior(counted(fit, cell["program"], rng).rates(list(CRITICS), "here"), cell["prior"])
    return rates, Stakes(REFINE_COST, float(cell["verify"]), COSTS, REWARD, None, HORIZON), held


def drawing(cell: Line) -> random.Random:
    return random.Random(repr(sorted(cell.items())))


def chosen_rule(line: Line) -> str:
    """The one-line rule that the same rates choose: what one would have written down instead of the plan."""
    cell = {k: line[k] for k in ("kind", "level", "program", "prior", "verify", "seed")}
    return best_rule(*planned(cell, drawing(cell))[:2])[0]


def _map(cell: Line) -> Line:
    rng = drawing(cell)
    rates, stakes, held = planned(cell, rng)
    episodes = drawn(held, cell["program"], cell["prior"], EPISODES, rng)
    acts = {"plan": by_plan(Plan(rates, stakes)), "greedy": greedy(rates, stakes, False), **all_rules(stakes)}
    found: dict[str, list[Mapping[str, Any]]] = {
        n: [play(a, e, rates, stakes) for e in episodes] for n, a in acts.items()
    }
    released = greedy(rates, stakes, True)
    found["released"] = [play(released, e, rates, stakes, stale=True) for e in episodes]
    plan = np.array([x["utility"] for x in found["plan"]])
    out: Line = {"plan_se": float(plan.std(ddof=1) / len(plan) ** 0.5)}
    for name, plays in found.items():
        gained = np.array([x["utility"] for x in plays])
        out[name] = round(float(gained.mean()), 4)
        out[f"{name} se"] = round(float((plan - gained).std(ddof=1) / len(gained) ** 0.5), 4)
    out["L0 used"] = float(np.mean(["L0" in x["used"] for x in found["plan"]]))
    out["oracle"] = float(np.mean([x["oracle"] for x in found["plan"]]))
    out["linked"] = [list(pair) for pair in rates.joint]
    return out


def auroc(score: np.ndarray, label: np.ndarray) -> float:
    """Chance that a good candidate is scored above a broken one, ties one half."""
    good, bad = score[label == 1], score[label == 0]
    return float((good[:, None] > bad[None]).mean() + 0.5 * (good[:, None] == bad[None]).mean())


def _score(cell: Line) -> Line:
    rng = random.Random(f"score {cell['seed']}")
    fit, held = halves(cell["kind"], cell["seed"])
    rates = counted(fit, "as measured", rng).rates(list(CRITICS), "here")
    rows = [c for line in held for c in candidates(line)]
    label = np.array([int(y) for y, _ in rows])
    beliefs = []
    for _, verdicts in rows:
        belief, seen = rates.prior, dict[str, bool]()
        for name in CRITICS:
            belief, seen = rates.updated(belief, name, verdicts[name], seen), {**seen, name: verdicts[name]}
        beliefs.append(belief)
    single = {name: auroc(np.array([float(v[name]) for _, v in rows]), label) for name in CRITICS}
    lot = np.random.default_rng(cell["seed"]).permutation(label)
    out = {"belief": auroc(np.array(beliefs), label), "control": auroc(np.array(beliefs), lot), **single}
    return {
        **out,
        "brier": float(np.mean((np.array(beliefs) - label) ** 2)),
        "base": float(np.var(label)),
        "n": len(rows),
    }


def _misfit(cell: Line) -> Line:
    """A controller that begins with wrong rates, worth 300 candidates, lives through a long row of episodes."""
    rng = random.Random(f"misfit {cell['kind']} {cell['seed']}")
    name, guard = cell["program"].rsplit(", ", 1)
    fit, held = halves(cell["kind"], cell["seed"])
    prior = 0.4
    true = with_prior(counted(fit, "as measured", rng).rates(list(CRITICS), "here"), prior)
    stakes = Stakes(REFINE_COST, 30.0, COSTS, REWARD, None, HORIZON)
    episodes = drawn(held, "as measured", prior, LONG, rng)
    act = by_plan(Plan(true, stakes))
    right = np.mean([play(act, e, true, stakes)["utility"] for e in episodes])
    evidence = _believed(true, name)
    gate = Controller(
        stakes, evidence, "here", True, audit=0.05 if guard == "guarded" else 0.0, guard=guard == "guarded"
    )
    if guard == "unguarded":  # plans once, learns nothing
        wrong = gate.rates
        act = by_plan(gate.plan)
        gained = [play(act, e, wrong, stakes)["utility"] for e in episodes]
    else:
        gained = [_lived(gate, e, rng) for e in episodes]
    return {"utility": float(np.mean(gained)), "right": float(right), "late": float(np.mean(gained[LONG // 3 :])),
            "fallback": gate.fallback}  # fmt: skip


def _believed(true: Rates, name: str) -> Evidence:
    """Counts of 300 candidates that speak for wrong rates."""
    prior = true.prior * {"prior x 0.5": 0.5, "prior x 1.5": 1.5}.get(name, 1.0)
    counts = {"y/1": 300 * prior, "y/0": 300 * (1 - prior), "n label/0": 300 * (1 - prior)}
    for critic, (bad, good) in true.passes.items():
        if name == "gap - 0.4":
            bad, good = min(bad + 0.2, 0.99), max(good - 0.2, 0.01)
        if name == "gap inverted":
            bad, good = good, bad
        for y, rate, n in ((1, good, 300 * prior), (0, bad, 300 * (1 - prior))):
            counts[f"pass/{critic}/{y}"], counts[f"fail/{critic}/{y}"] = n * rate, n * (1 - rate)
    weights = {f"w {key}": value for key, value in counts.items() if not key.startswith("n ")}
    return Evidence({"here": counts | weights})


def _lived(gate: Controller, episode: Sequence[Candidate], rng: random.Random) -> float:
    """One episode with the controller that learns from it."""
    gate.begin()
    earned = 0.0
    for _ in range(64):
        action = gate.decide(rng.random()).action
        label, verdicts = episode[gate.state.t]
        if action in ("stop", "ship"):
            return earned
        if action == VERIFY:
            earned -= gate.stakes.verify
            gate.feedback(label)
            if label:
                return earned + gate.stakes.reward
        elif action == "refine":
            earned -= gate.stakes.refine
            gate.renew()
        else:
            earned -= gate.stakes.critics[action]
            gate.observe(action, verdicts[action])
    return earned


def _fixture(cell: Line) -> Line:
    """Three classes of bugs, a test for each: fails with chance .9 on its own class, .2 on others (published)."""
    reward, test, patch, verify = 200.0, 1.0, 3.0, 20.0

    def updated(p: tuple[float, ...], i: int, failed: bool) -> tuple[float, tuple[float, ...]]:
        like = [(0.9 if j == i else 0.2) if failed else (0.1 if j == i else 0.8) for j in range(3)]
        joint = [a * b for a, b in zip(p, like, strict=True)]
        return sum(joint), tuple(x / sum(joint) for x in joint)

    def best(p: tuple[float, ...], left: int) -> float:
        if left == 0:
            return reward * max(p) - patch - verify
        return (
            max(sum(c * best(q, left - 1) for c, q in (updated(p, i, f) for f in (True, False))) for i in range(3))
            - test
        )

    start = (1 / 3, 1 / 3, 1 / 3)
    return {"V1": best(start, 1), "V2": best(start, 2)}


WORK = {"map": _map, "score": _score, "misfit": _misfit, "fixture": _fixture}
