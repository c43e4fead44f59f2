"""The cells of tier ``tabular``: P1 to P6 of specs/E173, where the optimum is exact."""

from collections.abc import Iterator

import numpy as np

from clew.methods.grade import grade as g
from papers.E173_progress import tabular as mdps
from papers.experiment import Line, by_kind, grid

NOISES, STEPS = (0.0, 0.3, 0.8), (5, 20, 50, 200, 500, 2000)
TILTS = (0.0, 0.25, 0.5, 1.0)
TRAJECTORIES, GROUP = 800, 8
RATE = 4.0  # of the exact gradient; chosen on MDPs 1000 to 1004, none of which is reported
cost = {"exact": 0.1, "skilled": 0.1, "train": 0.7, "null": 1.0}


def cells(quick: bool) -> Iterator[Line]:
    """One line per (kind, setting, seed); a seed is an MDP, or a table of noise."""
    for seed in range(5 if quick else 20):
        yield from grid(kind="exact", noise=NOISES, seed=seed)
        yield from grid(kind="skilled", tilt=TILTS, seed=seed)
        yield from grid(kind="train", kl=(True, False), seed=seed)
    yield from grid(seed=range(2 if quick else 10), kind="null", n=(50, 100, 400))


def _exact(setting: Line, seed: int) -> Line:
    """One MDP at its optimum: the identities, and how well each score grades trajectories."""
    mdp = mdps.make(seed, setting["noise"])
    best = mdps.solve(mdp)
    ratio = np.log(best.policy) - np.log(mdp.ref)
    divergence = (best.policy * ratio).sum(-1)
    out: Line = {
        "identity": float(np.abs(mdps.BETA * ratio - best.advantage).max()),
        "t1": float(np.abs((mdp.ref * np.exp(ratio)).sum(-1) - 1).max()),
        "t1_advantage": float(np.abs((mdp.ref * np.exp(best.advantage / mdps.BETA)).sum(-1) - 1).max()),
        "t1_kl": float(np.abs((best.policy * best.advantage).sum(-1) - mdps.BETA * divergence).max()),
    }
    walks, group = _behaviour(mdp, best.policy, seed)
    layer = np.arange(mdps.LAYERS - 1)
    at = (layer, walks.state[:, :-1], walks.action)
    luck = best.value[1:][layer, walks.state[:, 1:]] - best.q[at]
    total = mdps.BETA * ratio[at].sum(1) + luck.sum(1) + best.value[0, walks.state[:, 0]]
    out["t2"] = float(np.abs(total - walks.reward).max())
    out["luck"] = float(np.abs(luck.sum(1)).mean())
    drawn = mdps.walk(mdp, mdp.ref, group[:, 1], np.random.default_rng([seed, 7]))
    out["beta"] = g.calibrate_beta(best.advantage[layer, drawn.state[:, :-1], drawn.action].ravel())
    return out | _graded(best.policy, mdp.ref, walks, group[:, 0], mdps.BETA)


def _skilled(setting: Line, seed: int) -> Line:
    """Not in the paper: a reference that is good at the task already, ref exp(tilt Q / beta), noise .3."""
    mdp = mdps.make(seed, 0.3)
    tilted = mdp.ref * np.exp(setting["tilt"] * mdps.solve(mdp).q / mdps.BETA)
    mdp = mdp._replace(ref=tilted / tilted.sum(-1, keepdims=True))
    best = mdps.solve(mdp)
    walks, group = _behaviour(mdp, best.policy, seed)
    return _graded(best.policy, mdp.ref, walks, group[:, 0], mdps.BETA)


def _behaviour(mdp: mdps.MDP, policy: np.ndarray, seed: int) -> tuple[mdps.Walks, np.ndarray]:
    """800 trajectories, half by the policy and half by the reference in each group of 8, which share their start.
    Also [n, 2]: group and start."""
    rng = np.random.default_rng([seed, 1])
    start = np.repeat(rng.integers(0, mdps.STATES, TRAJECTORIES // GROUP), GROUP)
    group, mine = np.repeat(np.arange(TRAJECTORIES // GROUP), GROUP), np.arange(TRAJECTORIES) % 2 == 0
    a, b = (mdps.walk(mdp, p, start, rng) for p in (policy, mdp.ref))
    chosen = [np.where(mine if x.ndim == 1 else mine[:, None], x, y) for x, y in zip(a, b, strict=True)]
    return mdps.Walks(*chosen), np.stack([group, start], 1)


def _graded(policy: np.ndarray, ref: np.ndarray, walks: mdps.Walks, group: np.ndarray, beta: float) -> Line:
    """AUROC and best of 8 of each score; a trajectory is one token a step."""
    n, steps = walks.action.shape
    at = (np.arange(steps), walks.state[:, :-1], walks.action)
    p, r = np.log(policy[at]).ravel(), np.log(ref[at]).ravel()
    spans, owner = np.stack([np.arange(n * steps), np.arange(n * steps) + 1], 1), np.repeat(np.arange(n), steps)
    nothing = np.zeros(n * steps)
    scores = {
        "pa": g.grade(p, r, spans, owner, beta=beta).run,
        "pa_min": g.grade(p, r, spans, owner, step_agg="min", beta=beta).run,
        "policy": g.grade(p, nothing, spans, owner).run,
        "ref": g.grade(r, nothing, spans, owner).run,
    }
    won = walks.reward > 0.5
    return {
        "auroc": {name: g.auroc(score, won) for name, score in scores.items()},
        "best": {name: float(won[g.pick(score, group)].mean()) for name, score in scores.items()},
        "success": float(won.mean()),
        "oracle": float(np.maximum.reduceat(won, np.flatnonzero(np.diff(group, prepend=-1))).mean()),
    }


def _train(setting: Line, seed: int) -> Line:
    """Exact policy gradient from the reference, noise .3; what the log-ratio is worth after so many steps."""
    mdp = mdps.make(seed, 0.3)
    best, logits = mdps.solve(mdp), np.log(mdp.ref)
    weight = mdps.visits(mdp, mdp.ref)[..., None] * mdp.ref
    out: Line = {"corr": [], "pa": [], "policy": []}
    for k in range(1, max(STEPS) + 1):
        logits = mdps.ascend(mdp, logits, mdps.BETA if setting["kl"] else 0.0, RATE)
        if k in STEPS:
            policy = np.maximum(mdps.softmax(logits), 1e-300)
            walks, group = _behaviour(mdp, policy, seed)
            found = _graded(policy, mdp.ref, walks, group[:, 0], mdps.BETA)["auroc"]
            out["corr"].append(mdps.correlation(np.log(policy) - np.log(mdp.ref), best.advantage, weight))
            out["pa"].append(found["pa"])
            out["policy"].append(found["policy"])
    return out


def _null(setting: Line, seed: int, repeats: int = 20) -> Line:
    """Scores without a signal: what the best of the 30 aggregations promises, and what ``select`` says of it."""
    rng, n = np.random.default_rng([seed, setting["n"]]), setting["n"]
    found, honest, optimism = [], [], []
    for repeat in range(repeats):
        steps = rng.integers(3, 9, n)
        tokens = rng.integers(2, 7, steps.sum())
        stops = tokens.cumsum()
        spans, owner = np.stack([stops - tokens, stops], 1), np.repeat(np.arange(n), steps)
        p, r = rng.normal(-1, 1, (2, int(stops[-1])))
        won = rng.permutation(n) < n // 2
        chosen = g.select(g.cells(p, r, spans, owner), won, np.arange(n), splits=10, seed=repeat)
        found.append(chosen.found)
        honest.append(chosen.honest)
        optimism.append(chosen.optimism)
    return {"found": found, "honest": honest, "optimism": optimism}


run = by_kind({"exact": _exact, "skilled": _skilled, "train": _train, "null": _null})
