"""The cells of E162: what is run, and how one line of results comes about."""

import time
from collections.abc import Iterator
from functools import partial

import numpy as np

from clew.harness.trees import allocator, selectors
from papers.E162_uucb import proxy
from papers.E162_uucb.chain import CLASSES, Chains, Forest, chains, grow
from papers.E162_uucb.learn import learn
from papers.experiment import Line, by_kind, grid

DEPTH, LEAVES, PROMPTS = 16, 8, 600
TOKENS = DEPTH * LEAVES
FIRST, GRANT, MOST = 5 * DEPTH, int(TOKENS * allocator.GRANT), 5 * TOKENS  # of tokens that may be moved


ARMS: dict[str, selectors.Selector] = {
    **selectors.SELECTORS,
    "uct, forks": partial(selectors.uct, floor=0.1),
    "random, forks": partial(selectors.random, floor=0.1),
    "uucb, anywhere": partial(selectors.uucb, floor=0.0),
    "uucb, n passed": partial(selectors.uucb, explored="visits"),
    "uucb, n passed, anywhere": partial(selectors.uucb, explored="visits", floor=0.0),
}
LEARNERS = ("flat", "uucb", "uucb, sibling", "uucb, leave-out")
cost = {"grow": 0.9, "move": 9.0, "proxy": 1.5, "bounds": 0.3, "learn": 0.6}


def cells(quick: bool) -> Iterator[Line]:
    """Every cell, one line of results each; ``quick``: one seed of the tables, five of the training."""
    for seed in range(1 if quick else 5):
        yield from grid(kind="grow", arm=ARMS, prompts=CLASSES, seed=seed)
        yield from grid(kind="move", arm=("flat", "uucb"), prompts=("mid", "all"), seed=seed)
        yield from grid(kind="proxy", depth=(8, 16, 32), seeds=(2, 4, 8), seed=seed)
        yield {"kind": "bounds", "seed": seed}
    yield from grid(kind="learn", arm=LEARNERS, seed=range(5 if quick else 20))


def bits(flags: np.ndarray) -> str:
    """Booleans as hex, one bit each; ``unbits`` reads them back."""
    return np.packbits(flags).tobytes().hex()


def unbits(text: str, n: int = PROMPTS) -> np.ndarray:
    return np.unpackbits(np.frombuffer(bytes.fromhex(text), np.uint8))[:n].astype(float)


def _grow(setting: Line, seed: int) -> Line:
    """One selector at equal tokens, at equal leaves, and flat sampling given the CPU time that the selector took."""
    how, prompts = ARMS[setting["arm"]], chains(PROMPTS, CLASSES[setting["prompts"]], DEPTH, seed)
    began = time.process_time()
    forest = grow(prompts, how, tokens=TOKENS, seed=seed)
    spent = time.process_time() - began
    fewer = grow(prompts, how, leaves=LEAVES, seed=seed)
    timed = _flat_for(prompts, spent, seed)
    out = _spread("tokens", forest) | _spread("leaves", fewer) | _spread("timed", timed)
    p = prompts.values[:, 0]
    exact = {str(n): float(np.mean(1 - p**n - (1 - p) ** n)) for n in (4, 8)}
    return out | {"cpu_tree": round(spent, 4), "exact": exact}


def _flat_for(prompts: Chains, seconds: float, seed: int, most: int = 8 * LEAVES) -> Forest:
    """Flat sampling of all prompts, leaf by leaf, until it has taken ``seconds`` of CPU time or ``most`` leaves."""
    forest = Forest(prompts, 1 + most * DEPTH, seed)
    began = time.process_time()
    lanes, root = np.arange(len(forest.used)), np.zeros(len(forest.used), np.int64)
    for leaf in range(most):
        forest.expand(lanes, root)
        if leaf and time.process_time() - began >= seconds:
            break
    return forest


def _spread(name: str, forest: Forest) -> Line:
    found = {"mixed": bits(forest.mixed), "std": round(float(forest.spread.mean()), 5)}
    return {name: found | {"used": float(forest.used.mean()), "n": float(forest.leaves.mean())}}


def _move(setting: Line, seed: int) -> Line:
    """All of the budget to each prompt, against 5 leaves' worth first and the rest to prompts still uniform (P5).

    moved: the rest in even shares. learned: by a forecast fitted on 600 other prompts. known: the same where 8 flat
    rollouts of each prompt were seen before.
    """
    how, prompts, others = ARMS[setting["arm"]], _prompts(setting, seed), _prompts(setting, 100 + seed)
    found = {"plain": grow(prompts, how, tokens=TOKENS, seed=seed), "moved": _moved(how, prompts, seed)}
    fresh = np.full(PROMPTS, 0.5)
    for name, past, theirs in (("learned", fresh, fresh), ("known", _past(prompts, seed), _past(others, 100 + seed))):
        forecast = _forecast(how, others, theirs, 100 + seed)
        found[name] = _allotted(how, prompts, forecast, past, seed)
    return {name: {"mixed": bits(f.mixed), "used": float(f.used.mean())} for name, f in found.items()}


def _prompts(setting: Line, seed: int) -> Chains:
    """Prompts of one class, or of all four in equal parts."""
    if setting["prompts"] != "all":
        return chains(PROMPTS, CLASSES[setting["prompts"]], DEPTH, seed)
    parts = [chains(PROMPTS // len(CLASSES), forks, DEPTH, seed) for forks in CLASSES.values()]
    return Chains(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _moved(how: selectors.Selector, prompts: Chains, seed: int) -> Forest:
    forest = Forest(prompts, 1 + 8 * TOKENS, seed).grow(how, tokens=FIRST)
    left, uniform = TOKENS * PROMPTS - int(forest.used.sum()), ~forest.mixed
    while uniform.any() and left >= DEPTH * uniform.sum() // 4:
        share = min(max(left // int(uniform.sum()), DEPTH), 3 * DEPTH)
        grant = uniform & (np.cumsum(uniform) * share <= left)
        before = int(forest.used.sum())
        forest.grow(how, tokens=forest.used + share, only=grant)
        left -= int(forest.used.sum()) - before
        uniform = ~forest.mixed
        if not grant.any() or before == int(forest.used.sum()):
            break
    return forest


def _past(prompts: Chains, seed: int) -> np.ndarray:
    """Smoothed share of successes in 8 rollouts of an earlier visit."""
    return (grow(prompts, selectors.flat, leaves=LEAVES, seed=1000 + seed).won + 0.5) / (LEAVES + 1)


def _forecast(how: selectors.Selector, prompts: Chains, past: np.ndarray, seed: int) -> allocator.Forecast:
    """Fitted to trees that get one grant after another while their outcomes are alike."""
    forest = Forest(prompts, 1 + MOST, seed).grow(how, tokens=FIRST)
    rows, mixed = [], []
    while (alike := ~forest.mixed & (forest.used + GRANT <= MOST)).any():
        rows.append([column[alike] for column in forest.standings(TOKENS, past)])
        forest.grow(how, tokens=forest.used + GRANT, only=alike)
        mixed.append(forest.mixed[alike])
    columns = allocator.Standings(*(np.concatenate(column) for column in zip(*rows, strict=True)))
    found = allocator.learn(columns, np.concatenate(mixed))
    assert found is not None
    return found


def _allotted(
    how: selectors.Selector, prompts: Chains, forecast: allocator.Forecast, past: np.ndarray, seed: int
) -> Forest:
    """What is left goes, grant by grant, to the uniform trees that are likeliest to become mixed by it."""
    forest = Forest(prompts, 1 + MOST, seed).grow(how, tokens=FIRST)
    left = TOKENS * PROMPTS - int(forest.used.sum())
    while left >= GRANT and len(alike := np.flatnonzero(~forest.mixed & (forest.used + GRANT <= MOST))):
        chance = forecast.chance(forest.standings(TOKENS, past))[alike]
        chosen = np.zeros(PROMPTS, bool)
        chosen[alike[allocator.favoured(chance, left, GRANT)]] = True
        before = int(forest.used.sum())
        forest.grow(how, tokens=forest.used + GRANT, only=chosen)
        left -= int(forest.used.sum()) - before
        if before == int(forest.used.sum()):
            break
    return forest


def _proxy(setting: Line, seed: int) -> Line:
    """F and its coverage term alone against the truth, on random multisets over prompts of all classes.

    ``all``: the truth is the chance of one more success. ``uniform``: only prompts whose seed rollouts ended alike, the
    truth is the chance that the tree becomes mixed. ``ratio``: greedy on F over the best, in truth.
    """
    depth, found = setting["depth"], {"all": Audit(), "uniform": Audit()}
    rng = np.random.default_rng([seed, depth, setting["seeds"]])
    for forks in CLASSES.values():
        prompts = chains(60, forks, depth, seed)
        forest = grow(prompts, selectors.flat, leaves=setting["seeds"], seed=seed)
        rates, values = selectors.rate(forest.candidates()), prompts.values
        for lane in range(len(values)):
            nodes = np.flatnonzero((forest.depth[lane] >= 0) & (forest.depth[lane] < depth))
            at = forest.depth[lane, nodes]
            true = np.where(forest.alive[lane, nodes], values[lane, at], 0.0)
            places = proxy.Places(rates[lane, nodes], forest.tries[lane, nodes], prompts.chance[lane, at])
            found["all"].add(places, true, rng)
            if not forest.mixed[lane]:
                if forest.won[lane] > 0:
                    places, true = places._replace(rate=1 - places.rate), 1 - true
                found["uniform"].add(places, true, rng)
    return {name: audit.result() for name, audit in found.items()}


class Audit:
    """Pairs of proxy and truth, pooled and by prompt."""

    def __init__(self, sets: int = 24, k: int = 4) -> None:
        self.sets, self.k = sets, k
        self.rows: list[np.ndarray] = []
        self.reached = self.best = 0.0

    def add(self, places: proxy.Places, true: np.ndarray, rng: np.random.Generator) -> None:
        counts = rng.multinomial(self.k, np.full(len(true), 1 / len(true)), self.sets).astype(float)
        kinds = (proxy.proxy(places, counts), proxy.truth(places.rate, counts), proxy.truth(true, counts))
        self.rows.append(np.stack(kinds))
        self.reached += float(proxy.truth(true, proxy.greedy(places, self.k)))
        self.best += float(1 - (1 - true.max()) ** self.k)

    def result(self) -> Line:
        pooled = np.corrcoef(np.concatenate(self.rows, axis=1))[2, :2]
        within = [np.corrcoef(r)[2, :2] for r in self.rows if r.std(axis=1).min() > 1e-12]
        names = ("proxy", "coverage")
        out: Line = {f"pooled {name}": round(float(x), 4) for name, x in zip(names, pooled, strict=True)}
        out |= {f"within {name}": round(float(x), 4) for name, x in zip(names, np.mean(within, axis=0), strict=True)}
        return out | {"prompts": len(self.rows), "ratio": round(self.reached / self.best, 4)}


def _bounds(setting: Line, seed: int) -> Line:
    rng = np.random.default_rng([seed, 7])
    violations, excess = proxy.diminishing(rng, 1000)
    p = 0.3
    mixed = [1 - p**n - (1 - p) ** n for n in (1, 2, 3)]
    return {"violations": violations, "excess": excess, "greedy": proxy.greedy_ratio(rng, 100), "raw": mixed}


KINDS = {"grow": _grow, "move": _move, "proxy": _proxy, "bounds": _bounds}
run = by_kind({**KINDS, "learn": lambda setting, seed: learn(setting["arm"], seed)})
