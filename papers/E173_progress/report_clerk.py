"""Tables, pass marks and figure of tier ``clerk``, from its lines of results alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from clew.core.records import Report
from papers.drawing import canvas
from papers.E173_progress.tier_clerk import HEADLINE
from papers.stats import Mark, markdown, t_interval

Line = dict[str, Any]
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
        weights = self.weights if rows is None else self.weights * rows
        return aurocs(self.ranks[arm], self.won, weights)

    def best(self, arm: str) -> np.ndarray:
        """Success of the best of each task's eight runs; ``mean`` and ``oracle`` are their mean and their maximum."""
        groups = [np.flatnonzero(self.task == t) for t in range(self.tasks.shape[1])]
        if arm in ("mean", "oracle"):
            each = np.array([(np.mean if arm == "mean" else np.max)(self.won[g]) for g in groups])
        else:
            each = np.array([self.won[g[np.argmax(self.ranks[arm][g])]] for g in groups])
        return np.asarray((self.tasks @ each) / self.tasks.sum(1))


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


class Lines:
    def __init__(self, lines: Sequence[Line]) -> None:
        self.all = sorted(lines, key=lambda line: line["seed"])
        self.pairs = {
            slips: [Pair(x) for x in self.all if x["kind"] == "pair" and x["slips"] == slips]
            for slips in ("random", "habit")
        }

    def points(self, kl: float, at: int) -> list[Line]:
        return [x for x in self.all if x["kind"] == "checkpoint" and (x["kl"], x["at"]) == (kl, at)]


def pooled(pairs: Sequence[Pair], of: Callable[[Pair], np.ndarray]) -> Report:
    """Mean over pairs; the interval resamples tasks within each."""
    draws = np.mean([of(pair) for pair in pairs], axis=0)
    low, high = np.nanpercentile(draws[1:], [2.5, 97.5])
    return _report(draws[0], low, high, len(pairs), f"bootstrap by task within {len(pairs)} seeds")


def _report(estimate: float, low: float, high: float, n: int, design: str) -> Report:
    return Report(claim="", estimate=float(estimate), low=min(float(low), float(estimate)),
                  high=max(float(high), float(estimate)), n=n, design=design)  # fmt: skip


def over(values: Sequence[float]) -> Report:
    """Mean over seeds with a t interval; with one seed the value alone."""
    x = np.array(values, float)
    return t_interval("", x) if len(x) > 1 else _report(x[0], x[0], x[0], 1, "one seed, no interval")


def text(found: Report) -> str:
    return f"{found.estimate:.3f} [{found.low:.3f}, {found.high:.3f}]"


def share(pair: Pair, kind: str, arm: str) -> float:
    return float(np.mean(pair.line["blame"][kind][arm]["hits"]))


def marks(pairs: Sequence[Pair]) -> list[Mark]:
    """B1 to B5 and C1, each condition on its own."""
    pa = pooled(pairs, lambda p: p.auroc("pa"))
    apart = {arm: pooled(pairs, lambda p, a=arm: p.auroc("pa") - p.auroc(a)) for arm in ("log pi", "length")}  # type: ignore[misc]
    gain = pooled(pairs, lambda p: (p.best("pa") - p.best("mean")) / (p.best("oracle") - p.best("mean")))
    more = pooled(pairs, lambda p: p.best("pa") - p.best("log pi"))
    chance = over([p.line["blame"]["random"]["chance"] for p in pairs])
    top = over([share(p, "random", "pa") for p in pairs])
    lead = over([share(p, "random", "pa") - share(p, "random", "log pi") for p in pairs])
    same = over([p.line["same"][0] for p in pairs])
    swap = max(abs(x - 1) for p in pairs for x in p.line["swapped"])
    quiet, loud = ([p.line["noisy"][i] for p in pairs] for i in (0, 1))
    fall = over([a["pa"] - b["pa"] for a, b in zip(quiet, loud, strict=True)])
    blame = over([np.mean(a["blame"]["pa"]) - np.mean(b["blame"]["pa"]) for a, b in zip(quiet, loud, strict=True)])
    rare = {arm: over([float(p.auroc(arm)[0]) - p.line["rare"][arm] for p in pairs]) for arm in ("pa", "log pi")}
    return [
        Mark("B1a", "AUROC of PA at least .75", pa, pa.estimate >= 0.75),
        Mark("B1b", "at least log pi + .08, above 0", apart["log pi"], _beyond(apart["log pi"], 0.08)),
        Mark("B1c", "at least shortness + .08, above 0", apart["length"], _beyond(apart["length"], 0.08)),
        Mark("B2a", "best of 8 gains 40 % of the gap to the best there is", gain, gain.estimate >= 0.4),
        Mark("B2b", "and 4 points on log pi", more, more.estimate >= 0.04),
        Mark("B3a", f"attribution twice chance ({chance.estimate:.2f})", top, top.estimate >= 2 * chance.estimate),
        Mark("B3b", "and 10 points above log pi", lead, lead.estimate >= 0.10),
        Mark("B4", "a pair of one model has AUROC .50", same, abs(same.estimate - 0.5) <= 0.03),
        Mark("B4", "a swapped pair has 1 - AUROC", f"off by {swap:.0e} at most", swap < 1e-9),
        Mark("B5", "noise 0 to .4 lowers AUROC, above 0", fall, fall.low > 0),
        Mark("B5", "and attribution by at most 5 points", blame, blame.estimate <= 0.05),
        Mark("C1", "rare syntax costs log pi at least .05 of AUROC", rare["log pi"], rare["log pi"].estimate >= 0.05),
        Mark("C1", "and PA at most .02", rare["pa"], rare["pa"].estimate <= 0.02),
    ]  # fmt: skip


def _beyond(found: Report, margin: float) -> bool:
    return found.estimate >= margin and found.low > 0


def report(lines: Sequence[Line]) -> str:
    """Markdown, pass marks first."""
    t = Lines(lines)
    parts = [
        "# E173 in a small transformer: the desk of `clerk`",
        f"{len(lines)} cells, {sum(x['cpu_s'] for x in lines) / 60:.1f} CPU-minutes, models included. AUROC and best "
        "of 8: mean over seeds with 95 % bootstrap intervals by task, on tasks that chose no aggregation; all else: t "
        "intervals over seeds. Each task has 4 runs by the policy and 4 by the reference.",
    ]
    told = {"random": "slips at random (as specified)", "habit": "slips by habit (ours)"}
    for slips, pairs in t.pairs.items():
        if pairs:
            parts += _pairs(told[slips], pairs)
    parts += ["## Checkpoints, and tasks in which nothing may be done (C4)", _points(t)]
    return "\n\n".join(parts) + "\n"


def _pairs(title: str, pairs: Sequence[Pair]) -> list[str]:
    good = [over([p.line["success"][i] for p in pairs]) for i in (0, 1)]
    drift = over([p.line["drift"] for p in pairs])
    return [
        f"## Demonstrations with {title}: {len(pairs)} seeds, KL weight {pairs[0].line['kl']:g}",
        f"Success of the policy {text(good[0])}, of the reference {text(good[1])}; {text(drift)} nats per token apart.",
        "\n".join(f"- {mark}" for mark in marks(pairs)),
        _scores(pairs),
        "Aggregations chosen on dev (by seed): "
        + "; ".join(
            f"{arm} {', '.join(p.line['chosen'][arm][0] for p in pairs)}" for arm in ("pa", "log pi", "log ref")
        )
        + f". PA on dev {np.mean([p.line['chosen']['pa'][1] for p in pairs]):.3f}, of which "
        f"{np.mean([p.line['chosen']['pa'][2] for p in pairs]):.3f} by choosing.",
        "Whose fault: share of injected mistakes found, rule chosen on a third of them",
        _blame(pairs),
        "Controls",
        _controls(pairs),
    ]


def _scores(pairs: Sequence[Pair]) -> str:
    rows = []
    for arm in ARMS:
        if all(arm in p.ranks for p in pairs):
            cells = [pooled(pairs, lambda p, a=arm: p.auroc(a)), pooled(pairs, lambda p, a=arm: p.auroc(a, p.mine)),  # type: ignore[misc]
                     pooled(pairs, lambda p, a=arm: p.auroc(a, ~p.kept_back)),  # type: ignore[misc]
                     pooled(pairs, lambda p, a=arm: p.best(a))]  # type: ignore[misc]  # fmt: skip
            rows.append([LABELS.get(arm, arm), *map(text, cells)])
    for arm in ("mean", "oracle"):
        rows.append([f"({arm} of 8)", "", "", "", text(pooled(pairs, lambda p, a=arm: p.best(a)))])  # type: ignore[misc]
    return markdown(["score", "AUROC", "policy's own runs", "tasks to act in", "best of 8"], rows)


def _blame(pairs: Sequence[Pair]) -> str:
    rows = []
    for kind in ("random", "habit"):
        chance = np.mean([p.line["blame"][kind]["chance"] for p in pairs])
        cells = [text(over([share(p, kind, arm) for p in pairs])) for arm in ("pa", "log pi", "log ref")]
        rules = ", ".join(p.line["blame"][kind]["pa"]["rule"] for p in pairs)
        rows.append([kind, f"{chance:.3f}", *cells, rules])
    return markdown(["injected", "chance", "PA", "log pi", "log ref", "rules of PA"], rows)


def _controls(pairs: Sequence[Pair]) -> str:
    rows = [
        [
            "as trained",
            text(over([float(p.auroc("pa")[0]) for p in pairs])),
            text(over([float(p.auroc("log pi")[0]) for p in pairs])),
        ]
    ]
    for i, noise in enumerate((0.0, 0.4)):
        rows.append(
            [
                f"B5: customer digresses with chance {noise:g}",
                *(text(over([p.line["noisy"][i][arm] for p in pairs])) for arm in ("pa", "log pi")),
            ]
        )
    rows.append(
        [
            "C1: rare syntax in half of the tasks",
            *(text(over([p.line["rare"][arm] for p in pairs])) for arm in ("pa", "log pi")),
        ]
    )
    for name, label in (("other data", "C2: reference of another seed"), ("untrained", "C3: untrained reference")):
        for i, how in enumerate(("same aggregation", "chosen anew")):
            rows.append([f"{label}, {how}", text(over([p.line["other"][name][i] for p in pairs])), ""])
    return markdown(["", "AUROC PA", "AUROC log pi"], rows)


def _points(t: Lines) -> str:
    rows = []
    settings = sorted({(x["kl"], x["at"]) for x in t.all if x["kind"] == "checkpoint"}, key=lambda s: (-s[0], s[1]))
    for kl, at in settings:
        found = t.points(kl, at)
        cells = [
            [x["success"] for x in found], [x["kept_back_success"] for x in found], [x["drift"] for x in found],
            *([x["all"][arm] for x in found] for arm in ("pa", "log pi", "length")),
            [x["act"]["pa"] for x in found], [x["kept_back"]["pa"] for x in found],
        ]  # fmt: skip
        rows.append([f"{kl:g}", str(at), str(len(found)), *(f"{np.nanmean(c):.3f} ± {_sd(c):.3f}" for c in cells)])
    head = ["KL", "iteration", "seeds", "success", "success, must not act", "nats a token", "AUROC PA", "log pi"]
    return markdown([*head, "shortness", "PA, to act in", "PA, must not act"], rows)


def _sd(values: Sequence[float]) -> float:
    kept = np.array(values, float)
    kept = kept[np.isfinite(kept)]
    return float(kept.std(ddof=1)) if len(kept) > 1 else 0.0


def figure(lines: Sequence[Line]) -> Any:
    """AUROC of each score for both kinds of demonstrations; AUROC of PA along training for each KL weight."""
    t = Lines(lines)
    fig, (left, right) = canvas((8, 3.2), 1, 2)
    arms = ("pa", "pa sum/sum", "log pi", "log ref", "prm", "length")
    for i, (slips, colour) in enumerate((("random", "#0072B2"), ("habit", "#D55E00"))):
        if pairs := t.pairs[slips]:
            found = [pooled(pairs, lambda p, a=arm: p.auroc(a)) for arm in arms]  # type: ignore[misc]
            middle = np.array([f.estimate for f in found])
            error = [middle - [f.low for f in found], [f.high for f in found] - middle]
            left.errorbar(
                np.arange(len(arms)) + 0.2 * i - 0.1,
                middle,
                error,
                fmt="o",
                color=colour,
                label=f"{slips} slips",
                capsize=2,
            )
    left.axhline(0.5, color="#999999", lw=0.8)
    left.set_xticks(range(len(arms)), ["PA", "PA sum", "log pi", "log ref", "PRM", "shortness"], rotation=20)
    left.set_ylabel("AUROC against success")
    left.legend(frameon=False)
    for kl, colour in ((HEADLINE, "#0072B2"), (0.01, "#009E73"), (0.0, "#D55E00")):
        at = sorted({x["at"] for x in t.all if x["kind"] == "checkpoint" and x["kl"] == kl})
        for field, style in (("pa", "-"), ("log pi", ":")):
            values = [np.nanmean([x["all"][field] for x in t.points(kl, k)]) for k in at]
            right.plot(
                at,
                values,
                style,
                color=colour,
                marker="o",
                ms=3,
                label=f"{'PA' if field == 'pa' else field}, KL {kl:g}",
            )
    right.set_xscale("log")
    right.set_xlabel("iteration of GRPO")
    right.set_ylabel("AUROC")
    right.legend(frameon=False, fontsize=7)
    return fig
