"""Tables, pass marks and figure of tier ``clerk``, from its lines of results alone."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from papers.drawing import canvas, finish, whiskers
from papers.E173_progress.tier_clerk import HEADLINE
from papers.stats import Line, Lines, Mark, Report, Results, by_seed, document, mark, markdown, minutes, table, text

RESAMPLES = 1000
ARMS = (
    "pa", "pa sum/sum", "pa mean/mean", "pa sum/min", "pa min/min", "pa separate min/min", "pa, separate", "log pi",
    "log ref", "self-certainty", "prm", "length", "pa without length", "log pi without length",
)  # fmt: skip
LABELS = {
    "pa": "PA, chosen on dev",
    "pa min/min": "PA ratio-min, min over steps",
    "pa separate min/min": "PA separate-min, min over steps",
    "pa, separate": "PA separate, chosen on dev",
    "length": "shortness alone",
    "prm": "PRM (linear, 500 steps)",
    "mean": "(mean of 8)",
    "oracle": "(oracle of 8)",
}


class Pair:
    """One graded pair: its held-out runs, and bootstrap weights over their tasks."""

    def __init__(self, line: Line) -> None:
        self.line = line
        task = np.unique(line["task"], return_inverse=True)[1]
        n, count = len(task), task.max() + 1
        self.won, self.mine, self.kept_back = (_flags(line[k], n) for k in ("won", "mine", "kept_back"))
        self.ranks = {arm: np.array(r, float) for arm, r in line["ranks"].items()}
        drawn = np.random.default_rng(line["seed"]).integers(0, count, (RESAMPLES, count))
        self.tasks = np.concatenate([np.ones((1, count)), [np.bincount(d, minlength=count) for d in drawn]])
        self.weights, self.task = self.tasks[:, task], task

    def auroc(self, arm: str, rows: np.ndarray | None = None) -> np.ndarray:
        """[1 + RESAMPLES]: the estimate, then one value per resample of the tasks."""
        return aurocs(self.ranks[arm], self.won, self.weights if rows is None else self.weights * rows)

    def best(self, arm: str) -> np.ndarray:
        """Success of the best of each task's eight runs; ``mean`` and ``oracle`` are their mean and their maximum."""
        groups = [np.flatnonzero(self.task == t) for t in range(self.tasks.shape[1])]
        if arm in ("mean", "oracle"):
            each = np.array([(np.mean if arm == "mean" else np.max)(self.won[g]) for g in groups])
        else:
            each = np.array([self.won[g[np.argmax(self.ranks[arm][g])]] for g in groups])
        return np.asarray((self.tasks @ each) / self.tasks.sum(1))

    def blamed(self, kind: str, arm: str) -> float:
        """Share of injected mistakes found."""
        return float(np.mean(self.line["blame"][kind][arm]["hits"]))


def aurocs(score: np.ndarray, won: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Weighted AUROC for each row of ``weights`` [resamples, n]; ties count half."""
    order = np.argsort(score, kind="stable")
    starts = np.flatnonzero(np.diff(score[order], prepend=-np.inf))
    good = np.add.reduceat((weights * won)[:, order], starts, axis=1)
    bad = np.add.reduceat((weights * ~won)[:, order], starts, axis=1)
    below = np.cumsum(bad, axis=1) - bad
    with np.errstate(invalid="ignore"):
        return np.asarray((good * (below + bad / 2)).sum(1) / (good.sum(1) * bad.sum(1)))


def _flags(text: str, n: int) -> np.ndarray:
    return np.unpackbits(np.frombuffer(bytes.fromhex(text), np.uint8))[:n].astype(bool)


def pairs_of(t: Results, slips: str) -> list[Pair]:
    return [Pair(x) for x in t.of(kind="pair", slips=slips)]


def pooled(pairs: Sequence[Pair], of: Callable[[Pair], np.ndarray]) -> Report:
    """Mean over pairs; the interval resamples tasks within each."""
    draws = np.mean([of(pair) for pair in pairs], axis=0)
    low, high = np.nanpercentile(draws[1:], [2.5, 97.5])
    middle, design = float(draws[0]), f"bootstrap by task within {len(pairs)} seeds"
    low, high = min(float(low), middle), max(float(high), middle)
    return Report(claim="", estimate=middle, low=low, high=high, n=len(pairs), design=design)


def marks(pairs: Sequence[Pair]) -> list[Mark]:
    """B1 to B5 and C1, each condition on its own."""
    each = [p.line for p in pairs]
    noisy = [x["noisy"] for x in each]
    log, length = (pooled(pairs, lambda p, a=arm: p.auroc("pa") - p.auroc(a)) for arm in ("log pi", "length"))
    gain = pooled(pairs, lambda p: (p.best("pa") - p.best("mean")) / (p.best("oracle") - p.best("mean")))
    more = pooled(pairs, lambda p: p.best("pa") - p.best("log pi"))
    chance = by_seed([x["blame"]["random"]["chance"] for x in each]).estimate
    top = by_seed([p.blamed("random", "pa") for p in pairs])
    lead = by_seed([p.blamed("random", "pa") - p.blamed("random", "log pi") for p in pairs])
    same = by_seed([x["same"][0] for x in each])
    swap = max(abs(x - 1) for line in each for x in line["swapped"])
    fall = by_seed([quiet["pa"] - loud["pa"] for quiet, loud in noisy])
    blame = by_seed([np.mean(quiet["blame"]["pa"]) - np.mean(loud["blame"]["pa"]) for quiet, loud in noisy])
    rare = {arm: by_seed([float(p.auroc(arm)[0]) - p.line["rare"][arm] for p in pairs]) for arm in ("pa", "log pi")}
    return [
        mark("B1a", "AUROC of PA at least .75", pooled(pairs, lambda p: p.auroc("pa")), least=0.75),
        mark("B1b", "at least log pi + .08, above 0", log, least=0.08, above=0),
        mark("B1c", "at least shortness + .08, above 0", length, least=0.08, above=0),
        mark("B2a", "best of 8 gains 40 % of the gap to the best there is", gain, least=0.4),
        mark("B2b", "and 4 points on log pi", more, least=0.04),
        mark("B3a", f"attribution twice chance ({chance:.2f})", top, least=2 * chance),
        mark("B3b", "and 10 points above log pi", lead, least=0.10),
        mark("B4", "a pair of one model has AUROC .50", same, least=0.47, most=0.53),
        Mark("B4", "a swapped pair has 1 - AUROC", f"off by {swap:.0e} at most", swap < 1e-9),
        mark("B5", "noise 0 to .4 lowers AUROC, above 0", fall, above=0),
        mark("B5", "and attribution by at most 5 points", blame, most=0.05),
        mark("C1", "rare syntax costs log pi at least .05 of AUROC", rare["log pi"], least=0.05),
        mark("C1", "and PA at most .02", rare["pa"], most=0.02),
    ]


def report(lines: Lines) -> str:
    """Markdown, pass marks first."""
    t, parts = Results(lines), []
    for slips, told in (("random", "slips at random (as specified)"), ("habit", "slips by habit (ours)")):
        if pairs := pairs_of(t, slips):
            parts += _pairs(told, pairs)
    return document(
        "# E173 in a small transformer: the desk of `clerk`",
        f"{len(lines)} cells, {minutes(lines):.1f} CPU-minutes, models included. AUROC and best "
        "of 8: mean over seeds with 95 % bootstrap intervals by task, on tasks that chose no aggregation; all else: t "
        "intervals over seeds. Each task has 4 runs by the policy and 4 by the reference.",
        *parts,
        "## Checkpoints, and tasks in which nothing may be done (C4)",
        _points(t),
    )


def _pairs(title: str, pairs: Sequence[Pair]) -> list[Any]:
    good = [text(by_seed([p.line["success"][i] for p in pairs])) for i in (0, 1)]
    chosen = [f"{arm} {', '.join(p.line['chosen'][arm][0] for p in pairs)}" for arm in ("pa", "log pi", "log ref")]
    dev, choosing = (np.mean([p.line["chosen"]["pa"][i] for p in pairs]) for i in (1, 2))
    return [
        f"## Demonstrations with {title}: {len(pairs)} seeds, KL weight {pairs[0].line['kl']:g}",
        f"Success of the policy {good[0]}, of the reference {good[1]}; "
        f"{text(by_seed([p.line['drift'] for p in pairs]))} nats per token apart.",
        marks(pairs),
        _scores(pairs),
        f"Aggregations chosen on dev (by seed): {'; '.join(chosen)}. PA on dev {dev:.3f}, of which {choosing:.3f} by "
        "choosing.",
        "Whose fault: share of injected mistakes found, rule chosen on a third of them",
        table(
            ("random", "habit"),
            ("injected", str),
            ("chance", lambda kind: np.mean([p.line["blame"][kind]["chance"] for p in pairs]), ".3f"),
            ("PA", lambda kind: by_seed([p.blamed(kind, "pa") for p in pairs])),
            ("log pi", lambda kind: by_seed([p.blamed(kind, "log pi") for p in pairs])),
            ("log ref", lambda kind: by_seed([p.blamed(kind, "log ref") for p in pairs])),
            ("rules of PA", lambda kind: ", ".join(p.line["blame"][kind]["pa"]["rule"] for p in pairs)),
        ),
        "Controls",
        _controls(pairs),
    ]


def _scores(pairs: Sequence[Pair]) -> str:
    def graded(arm: str, rows: Callable[[Pair], Any] = lambda p: None) -> Report | str:
        return "" if arm in ("mean", "oracle") else pooled(pairs, lambda p: p.auroc(arm, rows(p)))

    return table(
        [arm for arm in (*ARMS, "mean", "oracle") if all(arm in (*p.ranks, "mean", "oracle") for p in pairs)],
        ("score", lambda arm: LABELS.get(arm, arm)),
        ("AUROC", graded),
        ("policy's own runs", lambda arm: graded(arm, lambda p: p.mine)),
        ("tasks to act in", lambda arm: graded(arm, lambda p: ~p.kept_back)),
        ("best of 8", lambda arm: pooled(pairs, lambda p: p.best(arm))),
    )


def _controls(pairs: Sequence[Pair]) -> str:
    def both(of: Callable[[Pair, str], float]) -> list[Report]:
        return [by_seed([of(p, arm) for p in pairs]) for arm in ("pa", "log pi")]

    rows: list[list[Any]] = [["as trained", *both(lambda p, arm: float(p.auroc(arm)[0]))]]
    for i, noise in enumerate((0.0, 0.4)):
        found = both(lambda p, arm, i=i: p.line["noisy"][i][arm])
        rows.append([f"B5: customer digresses with chance {noise:g}", *found])
    rows.append(["C1: rare syntax in half of the tasks", *both(lambda p, arm: p.line["rare"][arm])])
    for name, label in (("other data", "C2: reference of another seed"), ("untrained", "C3: untrained reference")):
        for i, how in enumerate(("same aggregation", "chosen anew")):
            rows.append([f"{label}, {how}", by_seed([p.line["other"][name][i] for p in pairs]), ""])
    return markdown(" | AUROC PA | AUROC log pi", rows)


SHOWN = {
    "success": ("success",), "success, must not act": ("kept_back_success",), "nats a token": ("drift",),
    "AUROC PA": ("all", "pa"), "log pi": ("all", "log pi"), "shortness": ("all", "length"),
    "PA, to act in": ("act", "pa"), "PA, must not act": ("kept_back", "pa"),
}  # fmt: skip


def _points(t: Results) -> str:
    settings = sorted({(x["kl"], x["at"]) for x in t.of(kind="checkpoint")}, key=lambda s: (-s[0], s[1]))

    def cell(at: tuple[float, int], path: Sequence[str]) -> str:
        found = t.get(*path, kind="checkpoint", kl=at[0], at=at[1])
        kept = found[np.isfinite(found)]
        return f"{np.nanmean(found):.3f} ± {kept.std(ddof=1) if len(kept) > 1 else 0.0:.3f}"

    return table(
        settings,
        ("KL", 0, "g"),
        ("iteration", 1),
        ("seeds", lambda at: len(t.of(kind="checkpoint", kl=at[0], at=at[1]))),
        *((head, partial(cell, path=path)) for head, path in SHOWN.items()),
    )


def figure(lines: Lines) -> object:
    """AUROC of each score for both kinds of demonstrations; AUROC of PA along training for each KL weight."""
    t = Results(lines)
    fig, (left, right) = canvas((8, 3.2), 1, 2)
    arms = {"pa": "PA", "pa sum/sum": "PA sum", "log pi": "log pi", "log ref": "log ref", "prm": "PRM"}
    arms["length"] = "shortness"
    for i, (slips, colour) in enumerate((("random", "#0072B2"), ("habit", "#D55E00"))):
        if pairs := pairs_of(t, slips):
            found = [pooled(pairs, lambda p, a=arm: p.auroc(a)) for arm in arms]
            at = np.arange(len(arms)) + 0.2 * i - 0.1
            whiskers(left, at, found, fmt="o", color=colour, label=f"{slips} slips", capsize=2)
    left.axhline(0.5, color="#999999", lw=0.8)
    left.set_xticks(range(len(arms)), list(arms.values()), rotation=20)
    left.set_ylabel("AUROC against success")
    for kl, colour in ((HEADLINE, "#0072B2"), (0.01, "#009E73"), (0.0, "#D55E00")):
        at = sorted({x["at"] for x in t.of(kind="checkpoint", kl=kl)})
        for field, style, name in (("pa", "-", "PA"), ("log pi", ":", "log pi")):
            values = [np.nanmean(t.get("all", field, kind="checkpoint", kl=kl, at=k)) for k in at]
            right.plot(at, values, style, color=colour, marker="o", ms=3, label=f"{name}, KL {kl:g}")
    right.set(xscale="log", xlabel="iteration of GRPO", ylabel="AUROC")
    finish(left, font=9, grid=False)
    finish(right, font=7, grid=False)
    return fig
