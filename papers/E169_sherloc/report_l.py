"""Tables and pass marks Q1 to Q8 and Q10 of specs/E169, from the lines of tier L alone.

What is fitted or cut is fitted on dev, the older commits of each project; every mark is of test, the newer ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from clew.audit.design import bootstrap
from clew.coding.diagnose.confidence import Calibration, fit
from clew.core.records import Report
from papers.drawing import canvas
from papers.stats import Mark, difference, markdown, mean, text

Line = dict[str, Any]
F64 = npt.NDArray[np.float64]
DESIGN = "paired bootstrap over commits"
SHOWN = ("largest", "tree", "search", "view", "plain bm25", "bm25", "all", "all, ungated")
PARTS = ("bm25", "view", "search", "tree", "connected")


def at(lines: Sequence[Line], chooser: str, k: int = 1) -> F64:
    """Whether a file of the fix is among a chooser's first k, (n,)."""
    return np.array([0 < x["rank"][chooser] <= k for x in lines], dtype=np.float64)


def share(claim: str, x: F64) -> Report:
    return bootstrap(claim, mean, x, unit="commits")


def gap(claim: str, x: F64, y: F64) -> Report:
    return bootstrap(claim, difference, x, y, design=DESIGN, unit="commits")


def among(claim: str, right: F64, chosen: F64) -> Report:
    """Share right among the chosen."""

    def statistic(r: F64, c: F64) -> F64:
        return (r * c).sum(axis=-1) / np.maximum(c.sum(axis=-1), 1e-9)

    return bootstrap(claim, statistic, right, chosen, unit="commits")


def split(lines: Sequence[Line], name: str) -> list[Line]:
    return sorted((x for x in lines if x["split"] == name), key=lambda x: (x["project"], x["seed"]))


def calibration(dev: Sequence[Line]) -> Calibration:
    source = ", ".join(sorted({x["project"] for x in dev}))
    return fit(
        np.array([x["features"] for x in dev]), at(dev, "all").astype(bool), f"{len(dev)} past fixes of {source}"
    )


def confidence(dev: Sequence[Line], lines: Sequence[Line]) -> F64:
    fitted = calibration(dev)
    return np.array([fitted(np.array(x["features"])) for x in lines])


def top(values: F64, share_: float) -> F64:
    """1 for the largest share of the values."""
    out = np.zeros(len(values))
    out[np.argsort(-values, kind="stable")[: round(share_ * len(values))]] = 1
    return out


def retrieval(test: list[Line]) -> list[Mark]:
    q1 = gap("acc@1, all - plain BM25", at(test, "all"), at(test, "plain bm25"))
    strong = gap("acc@1, all - BM25 that is told the identifiers", at(test, "all"), at(test, "bm25"))
    drops = {name: gap(f"all - without {name}", at(test, "all"), at(test, f"all - {name}")) for name in PARTS}
    most = max(PARTS[1:], key=lambda name: drops[name].estimate)
    gated = gap("gated search - no search", at(test, "all"), at(test, "all - search"))
    ungated = gap("ungated search - no search", at(test, "all, ungated"), at(test, "all - search"))
    told = f"{most} ({drops[most].estimate:+.3f}); view {text(drops['view'])}"
    return [
        Mark("Q1", "best configuration - file BM25 >= .05 in acc@1, interval above 0", q1,
             q1.estimate >= 0.05 and q1.low > 0),
        Mark("Q1b", "the same against BM25 that is told the identifiers (ours, harder)", strong,
             strong.estimate >= 0.05 and strong.low > 0),
        Mark("Q2", "removing view costs the most of the four tools", told, most == "view"),
        Mark("Q3", "gated literal search does not hurt", f"{text(gated)}, ungated {text(ungated)}",
             gated.estimate >= 0),
    ]  # fmt: skip


def confident(dev: list[Line], test: list[Line]) -> list[Mark]:
    p, right = confidence(dev, test), at(test, "all")
    overall = share("acc@1", right)
    sure = among("acc@1 of the surest 63 %", right, top(p, 0.63))
    surest = among("acc@1 of the surest 25 %", right, top(p, 0.25))
    brier = share("Brier score", (p - right) ** 2)
    constant = share("Brier score of the dev rate", (at(dev, "all").mean() - right) ** 2)
    agree = np.array([len({x["first"][c] for c in ("bm25", "view", "search")}) == 1 for x in test], dtype=np.float64)
    agreed, covered = among("acc@1 where three rankers agree", right, agree), share("coverage", agree)
    apart = among("acc@1 of the rest", right, 1 - agree)
    return [
        Mark("Q4", "surest 63 %: acc@1 >= overall + .10; surest 25 %: >= .80",
             f"{text(sure)} against {text(overall)}; {text(surest)}",
             sure.estimate >= overall.estimate + 0.1 and surest.estimate >= 0.8),
        Mark("Q4b", "calibrated: Brier score below that of the dev rate alone (ours)",
             f"{text(brier)} against {text(constant)}",
             brier.estimate < constant.estimate),
        Mark("Q5", "three rankers agree: coverage >= .35, acc@1 >= .75",
             f"coverage {text(covered)}, {text(agreed)}; the rest {text(apart)}",
             covered.estimate >= 0.35 and agreed.estimate >= 0.75),
    ]  # fmt: skip


def told(test: list[Line], reader: str, chosen: F64) -> F64:
    """A reader that opens one file: the finding of the view chooser where it is injected, else its own first."""
    finding = at(test, "view")
    return chosen * finding + (1 - chosen) * at(test, reader)


def spent(test: list[Line], reader: str) -> tuple[F64, F64]:
    """Tokens until the right file, without and with the finding read first."""
    own = np.array([x["read"][reader] for x in test], dtype=np.float64)
    first = np.array([x["tokens"][x["first"]["view"]] for x in test], dtype=np.float64)
    return own, np.where(at(test, "view") > 0, first, first + own)


def injected(dev: list[Line], test: list[Line]) -> list[Mark]:
    every, none = np.ones(len(test)), np.zeros(len(test))
    cut = float(np.quantile([x["margin"]["view"] for x in dev], 0.6))
    gate = np.array([x["margin"]["view"] >= cut for x in test], dtype=np.float64)
    weak = gap("weak, all - none", told(test, "tree", every), told(test, "tree", none))
    strong = gap("strong, all - none", told(test, "all", every), told(test, "all", none))
    own, helped = spent(test, "tree")

    def saving(x: F64, y: F64) -> F64:
        return 1 - y.sum(axis=-1) / x.sum(axis=-1)

    saved = bootstrap("tokens saved, weak", saving, own, helped, design=DESIGN, unit="commits")
    weak_gate = gap("weak, gated - none", told(test, "tree", gate), told(test, "tree", none))
    strong_gate = gap("strong, gated - none", told(test, "all", gate), told(test, "all", none))
    shuffled = gap("weak, shuffled - none", _shuffled(test), told(test, "tree", none))
    return [
        Mark("Q6", "inject all: weak reader gains >= .20 and >= 30 % of tokens, strong loses >= .05",
             f"weak {text(weak)}, tokens {text(saved)}; strong {text(strong)}",
             weak.estimate >= 0.2 and saved.estimate >= 0.3 and strong.estimate <= -0.05),
        Mark("Q7", "margin gate at 40 %: strong within .01 of its baseline, weak keeps >= .20",
             f"coverage {gate.mean():.2f}; strong {text(strong_gate)}, weak {text(weak_gate)}",
             strong_gate.estimate >= -0.01 and weak_gate.estimate >= 0.2),
        Mark("Q10", "shuffled findings: weak reader < own baseline + .03", shuffled, shuffled.estimate < 0.03),
    ]  # fmt: skip


def _shuffled(test: list[Line]) -> F64:
    """The weak reader told the finding of the next commit of the same project: a wrong file is read in its stead."""
    out = []
    for k, line in enumerate(test):
        same = [x for x in test if x["project"] == line["project"]]
        other = same[(same.index(line) + 1) % len(same)]["first"]["view"]
        out.append(float(other in line["gold"]))
        assert test[k] is line
    return np.array(out)


def validity(lines: list[Line]) -> Mark:
    count, wrong = sum(x["findings"] for x in lines), [w for x in lines for w in x["wrong"]]
    return Mark(
        "Q8",
        "every finding is as the schema says, its span, dependencies and tests exist",
        f"{len(wrong)} of {count} findings on {len(lines)} snapshots are not" + (f": {wrong[:3]}" if wrong else ""),
        not wrong,
    )


def pass_marks(lines: Sequence[Line]) -> list[Mark]:
    dev, test = split(lines, "dev"), split(lines, "test")
    return [*retrieval(test), *confident(dev, test), *injected(dev, test), validity([*dev, *test])]


def report(lines: Sequence[Line]) -> str:
    dev, test = split(lines, "dev"), split(lines, "test")
    if not test:
        return "Tier L did not run: give a folder with clones of pytest, pylint and sphinx by --clones.\n"
    rows = []
    for name in SHOWN:
        each = [f"{at([x for x in test if x['project'] == p], name).mean():.3f}" for p in _projects(test)]
        rows.append([name, *(text(share("acc", at(test, name, k))) for k in (1, 3, 5)), *each])
    removed = [[f"all - {n}", text(gap(n, at(test, f"all - {n}"), at(test, "all")))] for n in PARTS]
    table = markdown(["chooser", "acc@1", "acc@3", "acc@5", *_projects(test)], rows)
    fitted = calibration(dev)
    chunk: list[Callable[[Line], float]] = [lambda x: x["coverage"], lambda x: x["precision"]]
    cover, precise = (share("chunks", np.array([f(x) for x in test])) for f in chunk)
    days = [
        f"{p} {min(d)} to {max(d)}" for p in _projects(test) if (d := [x["day"] for x in test if x["project"] == p])
    ]
    weights = ", ".join(f"{w:+.2f}" for w in fitted.weights)
    parts = [
        f"# E169, tier L\n\n{len(dev)} dev and {len(test)} test commits; test: {'; '.join(days)}. "
        f"Candidates per snapshot: {np.mean([x['files'] for x in test]):.0f} on average.",
        table,
        "Change of acc@1 when a component is left out:",
        markdown(["configuration", "change"], removed),
        f"Two best chunks: coverage {text(cover)}, precision {text(precise)}.",
        f"Confidence fitted on dev: weights {weights}, bias {fitted.bias:+.2f}, cut at 40 % {fitted.cut:.3f}.",
        "\n".join(f"- {mark}" for mark in pass_marks(lines)),
    ]
    return "\n\n".join(parts) + "\n"


def _projects(lines: Sequence[Line]) -> list[str]:
    return sorted({x["project"] for x in lines})


def figure(lines: Sequence[Line]) -> Any:
    """Accuracy among the surest share of test reports, by share."""
    dev, test = split(lines, "dev"), split(lines, "test")
    if not test:
        return None
    order = np.argsort(-confidence(dev, test), kind="stable")
    right = at(test, "all")[order]
    shares = np.arange(1, len(right) + 1) / len(right)
    plot, axes = canvas((5, 3.2), font=10, backend="svg", layout=None)
    axes.plot(shares[9:], (np.cumsum(right) / np.arange(1, len(right) + 1))[9:])
    axes.axhline(right.mean(), color="grey", linewidth=0.8)
    axes.set(xlabel="share of reports, surest first", ylabel="acc@1", ylim=(0, 1.02))
    return plot
