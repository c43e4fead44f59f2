"""The exact chain: which detector finds which cliffs, and what pairs of each kind teach (C1 to C5)."""

from collections.abc import Iterator, Sequence

import numpy as np

from clew.methods.cliffs import Counts, statistics
from papers.E172_cliffs.chain import OPTIONS, Chains, Traces, chains, chances, kinds, sample
from papers.experiment import Line, by_kind, grid

N, TRACES = 64, 300
BETA, RATE, PASSES, PROBLEMS, EACH = 0.1, 1.0, 40, 150, 6
KINDS = ("deterministic", "uncertain", "sampled-off")
FRESH = {"C": N, "C, fresh 256": 256}
cost = {"table": 0.5, "detect": 0.5, "dpo": 2.0}


def cells(quick: bool) -> Iterator[Line]:
    yield {"kind": "table", "seed": 0}
    yield from grid(kind=("detect", "dpo"), seed=range(2 if quick else 10))


def _table(setting: Line, seed: int) -> Line:
    """C3: M against the rule written out for every pair of counts, and the exact rates of section 7b."""
    grid, wrong = statistics.table(N), 0
    for k in range(N + 1):
        for j in range(N + 1):
            p, q = k / N, j / N
            error = (p * (1 - p) / N + q * (1 - q) / N) ** 0.5
            wrong += bool(grid[k, j]) != (k > 0 and p - q > 0.1 + 1.6448536269514722 * error)
    null = {str(v): statistics.fire_rate(v, v, N) for v in (0.1, 0.2, 0.3, 0.5, 0.9)}
    power = {str(d): statistics.fire_rate(0.6, 0.6 - d, N) for d in (0.2, 0.3, 0.4)}
    least = int(np.argwhere(grid)[:, 0].min())
    return {"differences": wrong, "least": least, "null": null, "power": power, "pass64": 1 - (1 - least / N) ** 64}


def screened(traces: Traces, rng: np.random.Generator) -> np.ndarray:
    """Right continuations, of N, after each token, [n, LENGTH], with the published early stop."""
    right = rng.binomial(N, np.clip(traces.value[:, 1:], 0, 1))
    return np.stack([statistics.early_stop(row) for row in right])


def _detect(setting: Line, seed: int) -> Line:
    """C1, C2, C5: three detectors on the same solutions; before and after are the places after tokens t - 1 and t."""
    made = chains(TRACES, seed)
    rng = np.random.default_rng([seed, 1])
    traces = sample(made, 1, rng)
    ahead = np.concatenate([made.mean[:, ::-1].cumprod(axis=1)[:, ::-1], np.ones((TRACES, 1))], axis=1)
    pi, kind, drop = chances(made, traces), kinds(made, traces), traces.drop
    # V_a = V_{t-1} factor_a / mean: what V would be had option a been said
    mixed = (made.chance * made.factor / made.mean[..., None]).sum(axis=2) * traces.value[:, :-1]
    assert np.allclose(ahead[:, 0], made.start)
    right = screened(traces, rng)
    before, after = Counts.all_decided(right[:, :-1], N), Counts.all_decided(right[:, 1:], N)
    fired = np.zeros(drop.shape, bool)
    fired[:, 1:] = statistics.fires(before, after)
    tested = statistics.can_fall(pi)
    tested[:, 0] = False
    flagged = {"A": fired, "B": fired & tested}
    places = tested | np.roll(tested, -1, axis=1)
    used = {"A": fired.size * N, "B": int(places.sum()) * N}
    for name, fresh in FRESH.items():
        where = np.argwhere(flagged["B"])
        pair = [rng.binomial(fresh, np.clip(traces.value[where[:, 0], where[:, 1] + i], 0, 1)) for i in (0, 1)]
        kept = statistics.confirmed(*(Counts.all_decided(k, fresh) for k in pair))
        flagged[name] = np.zeros_like(fired)
        flagged[name][tuple(where[kept].T)] = True
        used[name] = used["B"] + 2 * fresh * len(where)
    true = drop > statistics.MARGIN
    out: Line = {"martingale": float(np.abs(mixed - traces.value[:, :-1]).max())}
    out["sure drop"] = float(drop[pi >= 0.9].max())
    out["true"] = int(true[:, 1:].sum())
    out["false by kind"] = {k: int((fired & ~true & (kind == k)).sum()) for k in (*KINDS, "other")}
    for name, found in flagged.items():
        out[name] = {"tp": int((found & true).sum()), "fp": int((found & ~true).sum()), "rollouts": int(used[name])}
    # C5: fresh continuations from before (del) and after (keep) each position that A flags
    fresh = [rng.binomial(N, np.clip(traces.value[:, i : drop.shape[1] + i], 0, 1)) / N for i in (0, 1)]
    gap = fresh[0] - fresh[1]
    out["del - keep"] = {k: [round(float(x), 6) for x in gap[fired & (kind == k)]] for k in KINDS}
    out["first batch"] = {k: _first(before, after, fired & (kind == k)) for k in KINDS}
    return out


def _first(before: Counts, after: Counts, where: np.ndarray) -> list[float]:
    """The drops that made A fire: what selection makes of them."""
    gap = (before.potential - after.potential)[where[:, 1:]]
    return [round(float(x), 6) for x in gap]


def _dpo(setting: Line, seed: int) -> Line:
    """C4: pairs of A's cliffs by kind, tabular DPO of each position's logits, exact success before and after."""
    made = chains(PROBLEMS, 1000 + seed)
    rng = np.random.default_rng([seed, 2])
    traces = sample(made, EACH, rng)
    right, kind = screened(traces, rng), kinds(made, traces)
    before = Counts.all_decided(right[:, :-1], N)
    fired = np.zeros(kind.shape, bool)
    fired[:, 1:] = statistics.fires(before, Counts.all_decided(right[:, 1:], N))
    pairs: dict[str, list[tuple[int, int, int, int]]] = {k: [] for k in KINDS}
    for i, t in np.argwhere(fired).tolist():
        if kind[i, t] not in pairs:
            continue
        problem, said = int(traces.problem[i]), int(traces.token[i, t])
        for option in range(OPTIONS):
            if option == said or made.chance[problem, t, option] == 0:
                continue
            value = traces.value[i, t] * made.factor[problem, t, option] / made.mean[problem, t]
            k = rng.binomial(N, min(max(value, 0.0), 1.0))
            falls = statistics.fires(Counts.all_decided([right[i, t - 1]], N), Counts.all_decided([k], N))
            if not falls[0]:
                pairs[kind[i, t]].append((problem, t, option, said))
    least = min(map(len, pairs.values()))
    out: Line = {"base": float(made.start.mean()), "pairs": {k: len(v) for k, v in pairs.items()}}
    out["all"] = {k: _trained(made, v) for k, v in pairs.items()}
    picked = {k: [v[i] for i in rng.permutation(len(v))[:least]] for k, v in pairs.items()}
    out["matched"] = {k: _trained(made, v) for k, v in picked.items()}
    return out


def _trained(made: Chains, pairs: Sequence[tuple[int, int, int, int]]) -> float:
    """Mean success after PASSES passes of gradient descent on the DPO loss of the pairs, summed."""
    with np.errstate(divide="ignore"):
        logits = np.log(made.chance)
    if pairs:
        problem, place, chosen, rejected = np.array(pairs).T
        start = logits[problem, place, chosen] - logits[problem, place, rejected]
        for _ in range(PASSES):
            margin = logits[problem, place, chosen] - logits[problem, place, rejected] - start
            push = RATE * BETA / (1 + np.exp(BETA * margin))
            # the normaliser cancels between two tokens of one position, so the gradient touches these two alone
            np.add.at(logits, (problem, place, chosen), push)
            np.add.at(logits, (problem, place, rejected), -push)
    weight = np.exp(logits - logits.max(axis=2, keepdims=True))
    return float(made._replace(chance=weight / weight.sum(axis=2, keepdims=True)).start.mean())


run = by_kind({"table": _table, "detect": _detect, "dpo": _dpo})
