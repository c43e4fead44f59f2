"""The cells of tier 8a: what is run, and how one line of results comes about."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from clew.credit import Steps, Term, advantages, aliasing, presets
from papers.E165_g2po import tabular
from papers.E165_g2po.tabular import ITERATIONS, LR
from papers.experiment import Line, grid

EP, NC, EC, _ = presets.g2po()
ARMS: dict[str, Sequence[Term]] = {
    "grpo": presets.grpo(),
    "gigpo": presets.gigpo(),
    "hgpo": presets.hgpo(),
    "gagpo": presets.gagpo(trace=0.9),
    "ep+nc": [EP, NC],
    "ep+ec": [EP, EC],
    "g2po": presets.g2po(),
    "g2po-released": presets.g2po(faithful=True),
    "g2po-undiscounted": presets.g2po(gamma=1.0),
    "g2po-others": [EP, NC._replace(value="others"), EC._replace(value="others")],
    "graphgpo": presets.graphgpo(),
    "bellman": presets.bellman(),
    "bellman-undiscounted": presets.bellman(gamma=1.0),
    "bellman-auto": presets.bellman(),  # knob set per learner by the aliasing detector, see Auto
}
VARIANTS = tuple(tabular.VARIANTS)
EPSILONS = (0.9, 0.7)
BATCHES = 16  # per seed and policy in the cosine cells


SEEDS, QUICK_SEEDS, WIDE_SEEDS = 24, 6, 240
DRAWN = ("grpo", "gigpo", "g2po", "g2po-undiscounted", "graphgpo", "bellman")  # arms whose curves are kept
WIDE = ("grpo", "gigpo", "g2po")  # arms also run on 240 houses, since a ratio from 24 is loose
SWEPT = ("grpo", "gigpo", "g2po", "graphgpo", "bellman")  # arms whose learning rate is varied


def cells(quick: bool) -> Iterator[Line]:
    """Every cell of the tier, one line of results each. ``quick``: fewer seeds, everything at unit RMS and one rate."""
    learn, rates = {"kind": "learn", "rescale": True, "lr": LR}, (0.5 * LR, 2.0 * LR, 4.0 * LR)
    if not quick:
        yield from grid(**learn, seed=range(SEEDS, WIDE_SEEDS), arm=WIDE, variant=("clean", "alias"))
    for seed in range(QUICK_SEEDS if quick else SEEDS):
        both = True if quick else (True, False)
        yield from grid(**{**learn, "rescale": both}, arm=ARMS, variant=VARIANTS, seed=seed)
        fixed = [arm for arm in ARMS if arm != "bellman-auto"]
        yield from grid(kind="control", arm=fixed, variant="clean", rescale=True, lr=LR, seed=seed)
        yield from grid(kind="cosine", arm=fixed, variant=("clean", "stoch"), eps=EPSILONS, seed=seed)
        if not quick:
            yield from grid(**{**learn, "lr": rates}, arm=SWEPT, variant="clean", seed=seed)
        yield from grid(kind="detector", variant=VARIANTS, eps=(1.0, 0.9, 0.7, 0.5), seed=seed)


def cost(setting: Line) -> float:
    """CPU-seconds of one cell, as measured; for the forecast only."""
    if setting["kind"] == "detector":
        return {"clean": 0.7, "stoch": 0.9, "alias": 0.4}[setting["variant"]]
    if setting.get("arm") == "bellman-auto":
        return {"clean": 2.5, "stoch": 4.5, "alias": 2.1}[setting["variant"]]
    return 0.004 if setting["kind"] == "cosine" else 0.018


class Auto:
    """Bellman solve whose knob each learner sets anew every ten iterations, by the detector on its last ten batches."""

    def __init__(self, lanes: int) -> None:
        self.lam, self.batches, self.calls = np.zeros(lanes), list[Steps](), 0

    def __call__(self, steps: Steps) -> np.ndarray:
        self.batches = [*self.batches[-9:], steps]
        if self.calls % 10 == 9 or self.calls == 0:
            self.lam = np.array([aliasing(tabular.lane_history(self.batches, i)).lam for i in range(len(self.lam))])
        self.calls += 1
        robust, solved = (advantages(steps, presets.bellman(lam=x))[0] for x in (0.0, 1.0))
        return np.where(self.lam[steps.group] == 1.0, solved, robust)


def estimate(arm: str, lanes: int) -> tabular.Estimate:
    if arm == "bellman-auto":
        return Auto(lanes)
    return lambda steps: advantages(steps, ARMS[arm], share=arm == "hgpo")[0]


def run(setting: Line, seeds: Sequence[int]) -> list[dict[str, Any]]:
    """Results of one setting for all seeds at once, in their order."""
    house = tabular.houses(seeds, setting["variant"])
    if setting["kind"] in ("learn", "control"):
        return _learn(house, setting)
    return _cosine(house, setting) if setting["kind"] == "cosine" else _detect(setting, seeds)


def _learn(house: tabular.Houses, setting: Line) -> list[Line]:
    how = estimate(setting["arm"], len(house.seeds))
    coin = setting["kind"] == "control"
    curve = tabular.learn(house, how, setting["rescale"], setting["lr"], ITERATIONS, coin)
    auc, first, final, shown = curve[:-1].mean(axis=0), curve[0], curve[-1], curve[::10].round(4)
    out = [{"auc": _short(auc[i]), "untrained": _short(first[i]), "final": _short(final[i])} for i in range(len(auc))]
    if coin or (setting["arm"] in DRAWN and setting["rescale"] and setting["lr"] == LR):
        for i, line in enumerate(out):
            line["curve"] = shown[:, i].tolist() if house.seeds[i] < SEEDS else []
    return out


def _short(x: float) -> float:
    return round(float(x), 5)


def eps_soft(seeds: Sequence[int], eps: float, variant: str) -> np.ndarray:
    """Logits of the policy that is random with ``eps`` and else takes a shortest way, of the clean house.

    Where states are aliased, the observation's action chances are the mean over its states.
    """
    clean = tabular.houses(seeds, "clean")
    kernel, value = clean.kernel(), np.zeros(clean.to.shape[:2])
    for _ in range(60):
        value[:, -1] = 1.0
        q = 0.95 * np.einsum("lsan,ln->lsa", kernel, value)
        value = q.max(axis=2)
    actions = q.shape[2]
    chance = (1 - eps) * np.eye(actions)[q.argmax(axis=2)] + eps / actions
    sees = tabular.houses(seeds[:1], variant).sees
    pooled = np.stack([chance[:, sees == o].mean(axis=1) for o in range(int(sees.max()) + 1)], axis=1)
    return np.log(pooled)


def _cosine(house: tabular.Houses, setting: Line) -> list[dict[str, Any]]:
    logits = eps_soft(house.seeds, setting["eps"], setting["variant"])
    truth, how = tabular.exact(house, logits), estimate(setting["arm"], len(house.seeds))
    lanes = len(house.seeds)
    cosines, hits, counted = np.full((BATCHES, lanes), np.nan), np.zeros(lanes), np.zeros(lanes)
    for b in range(BATCHES):
        batch = tabular.rollout(house, logits, b)
        s, advantage = batch.steps, how(batch.steps)
        found = tabular.ascent(house, s, advantage, logits).reshape(lanes, -1)
        exact = truth.gradient.reshape(lanes, -1)
        size = np.linalg.norm(found, axis=1) * np.linalg.norm(exact, axis=1)
        some = size > 0
        cosines[b, some] = (found * exact).sum(axis=1)[some] / size[some]
        true = truth.q[s.t, s.group, batch.true, s.action] - truth.v[s.t, s.group, batch.true]
        matters = (np.abs(true) > 1e-6) & some[s.group]
        hits += np.bincount(s.group[matters], np.sign(true[matters]) == np.sign(advantage[matters]), minlength=lanes)
        counted += np.bincount(s.group[matters], minlength=lanes)
    with_signal = np.isfinite(cosines)
    total = np.where(with_signal, cosines, 0.0).sum(axis=0)
    return [
        {
            "cosine": _short(total[i] / with_signal[:, i].sum()) if with_signal[:, i].any() else None,
            "sign": _short(hits[i] / counted[i]) if counted[i] else None,
            "batches": int(with_signal[:, i].sum()),
        }
        for i in range(lanes)
    ]


def _detect(setting: Line, seeds: Sequence[int]) -> list[dict[str, Any]]:
    """The detector on one batch of 24 houses per seed, so that evidence adds up as over the tasks of an iteration."""
    out = []
    for seed in seeds:
        pool = range(1000 + 24 * seed, 1000 + 24 * (seed + 1))
        house = tabular.houses(pool, setting["variant"])
        found = aliasing(tabular.rollout(house, eps_soft(pool, setting["eps"], setting["variant"]), 0).steps)
        out.append({"found": found.found, "p": found.p, "effect": round(found.effect, 4), "lam": found.lam})
    return out
