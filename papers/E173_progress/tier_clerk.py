"""The cells of tier ``clerk``: B1 to B5 and C1 to C4 of specs/E173 in a small transformer at a customer desk.

Fixed before any of the seeds below was looked at (on seed 0, which is not reported): 0.1M parameters instead of 0.85M,
6 turns instead of 8, 100 iterations of GRPO instead of 150, learning rate 7e-4. The headline is the policy with the
largest KL weight after all iterations. ``habit`` is an arm of our own: demonstrations whose slips are one plausible
habit instead of anything at random.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np
from scipy.stats import rankdata

from clew.methods.grade import grade as g
from clew.models.local import Local
from clew.worlds.clerk import Clerk
from papers.E173_progress import grading, making
from papers.experiment import Line, apart, by_kind

HEADLINE = 0.05
SEEDS, FEWER = (1, 2, 3, 4, 5), (1, 2, 3)
FORKS = 4  # Monte-Carlo continuations of a labelled step
portions = apart


def cells(quick: bool) -> Iterator[Line]:
    """What matters most first, and seed by seed, so that results cut short are balanced."""
    name = "quick" if quick else "full"
    pair = {"kind": "pair", "kl": HEADLINE, "at": making.size(name).at[-1], "size": name}
    for seed in SEEDS[:1] if quick else SEEDS:
        yield {**pair, "slips": "random", "seed": seed}
        yield from _points(HEADLINE, seed, name)
    for seed in () if quick else FEWER:
        yield from _points(0.0, seed, name)
        yield {**pair, "slips": "habit", "seed": seed}
    for seed in () if quick else FEWER:
        yield from _points(0.01, seed, name)


def _points(kl: float, seed: int, name: str) -> Iterator[Line]:
    for at in making.size(name).at:
        yield {"kind": "checkpoint", "slips": "random", "kl": kl, "at": at, "size": name, "seed": seed}


def cost(cell: Line) -> float:
    """CPU-seconds of one cell as measured, the making of its models included; for the forecast only."""
    if cell["size"] == "quick":
        return {"pair": 75.0, "checkpoint": 3.0}[cell["kind"]]
    first = cell["at"] == making.FULL.at[0] and cell["kl"] != HEADLINE
    return 230.0 if cell["kind"] == "pair" else 85.0 if first else 6.0


def _pair(setting: Line, seed: int) -> Line:
    """Everything about one pair of models."""
    size = making.size(setting["size"])
    ref = making.reference(setting["slips"], seed, setting["size"])
    policy = making.policy(setting["slips"], setting["kl"], setting["at"], seed, setting["size"])
    world = Clerk()
    panel = grading.panel(world, (policy, ref), size.tasks, 4, seed)
    found = grading.scored(panel.runs, policy, ref, more=True)
    head = grading.prm(world, policy, size.labels, FORKS, seed)
    found.options["prm"] = grading.prm_options(policy, head, panel, found.reading)
    chosen = grading.choose(found.options, panel)
    rest = ~grading.dev(panel.task)
    scores = {arm: found.options[arm][s.name] for arm, s in chosen.items()}
    pa, apart = found.options["pa"], found.options["pa, separate"]
    scores |= {f"pa {name}": pa[name] for name in ("sum/sum", "mean/mean", "sum/min", "min/min")}
    scores["pa separate min/min"] = apart["min/min"]
    scores["pa without length"] = g.residual(scores["pa"], found.reading.length)
    scores["log pi without length"] = g.residual(scores["log pi"], found.reading.length)
    out: Line = {
        "success": [float(panel.won[panel.mine].mean()), float(panel.won[~panel.mine].mean())],
        "drift": g.drift(*_own(panel, found.reading), budget=np.inf),
        "chosen": {arm: [s.name, s.found, s.optimism, s.honest] for arm, s in chosen.items()},
        "task": panel.task[rest].tolist(),
        "won": _bits(panel.won[rest]),
        "mine": _bits(panel.mine[rest]),
        "kept_back": _bits(panel.kept_back[rest]),
        "ranks": {arm: np.round(rankdata(s[rest])).astype(int).tolist() for arm, s in scores.items()},
    }
    out |= _identical(panel, policy, ref)
    out["other"] = _others(setting, seed, panel, policy, chosen["pa"].name)
    out["noisy"] = [_noisy(noise, size, policy, ref, chosen, seed) for noise in (0.0, 0.4)]
    out["rare"] = _auroc(grading.panel(Clerk(rare=0.5), (policy, ref), size.tasks, 4, seed), policy, ref, chosen)
    out["blame"] = {
        kind: grading.blamed(grading.mistakes(world, size.blames, kind, seed), policy, ref)
        for kind in ("random", "habit")
    }
    policy.close()
    return out


def _own(panel: grading.Panel, reading: Any) -> tuple[np.ndarray, np.ndarray]:
    """Logprobs of the tokens that the policy itself sampled."""
    mine = np.repeat(panel.mine[reading.owner], reading.spans[:, 1] - reading.spans[:, 0])
    return reading.policy[mine], reading.ref[mine]


def _bits(flags: np.ndarray) -> str:
    return np.packbits(flags).tobytes().hex()


def _identical(panel: grading.Panel, policy: Local, ref: Local) -> Line:
    """B4: a pair of one model, and the pair swapped."""
    same = grading.scored(panel.runs, ref, ref).options["pa"]
    there, back = (grading.scored(panel.runs, *pair).options["pa"] for pair in ((policy, ref), (ref, policy)))
    names = ("sum/sum", "mean/mean")
    return {
        "same": [g.auroc(same[name], panel.won) for name in names],
        "swapped": [g.auroc(there[name], panel.won) + g.auroc(back[name], panel.won) for name in names],
    }


def _others(setting: Line, seed: int, panel: grading.Panel, policy: Local, chosen: str) -> Line:
    """C2, C3: references trained on other data, and not trained at all."""
    other = FEWER[seed % len(FEWER)]
    refs = {
        "other data": making.reference(setting["slips"], other, setting["size"]),
        "untrained": making.untrained(seed),
    }
    rest = ~grading.dev(panel.task)
    out = {}
    for name, ref in refs.items():
        options = grading.scored(panel.runs, policy, ref).options["pa"]
        again = grading.choose({"pa": options}, panel)["pa"].name
        out[name] = [g.auroc(options[chosen][rest], panel.won[rest]), g.auroc(options[again][rest], panel.won[rest])]
    return out


def _auroc(panel: grading.Panel, policy: Local, ref: Local, chosen: dict[str, g.Selection]) -> Line:
    """AUROC of aggregations chosen before, on all but the dev tasks, and the success there."""
    found = grading.scored(panel.runs, policy, ref).options
    rest = ~grading.dev(panel.task)
    arms = ("pa", "log pi", "log ref", "length")
    out: Line = {arm: g.auroc(found[arm][chosen[arm].name][rest], panel.won[rest]) for arm in arms}
    return out | {"success": float(panel.won.mean())}


def _noisy(
    noise: float, size: making.Size, policy: Local, ref: Local, chosen: dict[str, g.Selection], seed: int
) -> Line:
    """B5: the same pair and aggregations where the customer digresses never, or often."""
    world = Clerk(noise=noise)
    out = _auroc(grading.panel(world, (policy, ref), size.tasks, 4, seed), policy, ref, chosen)
    found = grading.blamed(grading.mistakes(world, size.blames, "random", seed), policy, ref)
    return out | {"noise": noise, "blame": {arm: found[arm]["hits"] for arm in ("pa", "log pi")}}


@lru_cache(maxsize=1)
def _shared(slips: str, seed: int, name: str) -> grading.Panel:
    """The reference's runs, which the checkpoints of a seed have in common."""
    return grading.panel(Clerk(), (making.reference(slips, seed, name),), making.size(name).tasks, 4, seed)


def _checkpoint(setting: Line, seed: int) -> Line:
    """One checkpoint: how well it plays and grades, on tasks where nothing may be done as well (C4)."""
    name = setting["size"]
    ref = making.reference(setting["slips"], seed, name)
    policy = making.policy(setting["slips"], setting["kl"], setting["at"], seed, name)
    own, theirs = (
        grading.panel(Clerk(), (policy,), making.size(name).tasks, 4, seed),
        _shared(setting["slips"], seed, name),
    )
    runs = [*own.runs, *theirs.runs]
    whole = grading.Panel(runs, *(np.concatenate(pair) for pair in zip(own[1:], theirs[1:], strict=True)))
    whole.mine[len(own.runs) :] = False
    found = grading.scored(whole.runs[: len(own.runs)], policy, ref), grading.scored(theirs.runs, policy, ref)
    options = {
        arm: {k: np.concatenate([table[k], found[1].options[arm][k]]) for k in table}
        for arm, table in found[0].options.items()
    }
    chosen = grading.choose(options, whole)
    rest = ~grading.dev(whole.task)
    out: Line = {
        "success": float(own.won.mean()),
        "kept_back_success": float(own.won[own.kept_back].mean()),
        "drift": g.drift(found[0].reading.policy, found[0].reading.ref, budget=np.inf),
        "chosen": {arm: s.name for arm, s in chosen.items()},
    }
    for part, rows in (("all", rest), ("kept_back", rest & whole.kept_back), ("act", rest & ~whole.kept_back)):
        out[part] = {arm: g.auroc(options[arm][s.name][rows], whole.won[rows]) for arm, s in chosen.items()}
        out[part]["pa sum/sum"] = g.auroc(options["pa"]["sum/sum"][rows], whole.won[rows])
    policy.close()
    return out


run = by_kind({"pair": _pair, "checkpoint": _checkpoint})
