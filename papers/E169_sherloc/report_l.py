"""Tables and pass marks Q1 to Q8 and Q10 of specs/E169, from the lines of tier L alone.

What is fitted or cut is fitted on dev, the older commits of each project; every mark is of test, the newer ones.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from clew.methods.diagnose.confidence import Calibration, fit
from papers.drawing import canvas
from papers.stats import Line, Lines, Mark, Report, document, interval, mark, over, table, text
from papers.stats import gap as difference

F64 = npt.NDArray[np.float64]
SHOWN = ("largest", "tree", "past", "search", "view", "plain bm25", "bm25", "all - past", "all", "all, ungated")
TOOLS = ("view", "search", "tree", "connected")  # the paper's four, as components
PARTS = ("bm25", *TOOLS, "past")


def at(lines: Lines, chooser: str, k: int = 1) -> F64:
    """Whether a file of the fix is among a chooser's first k, (n,)."""
    return np.array([0 < x["rank"][chooser] <= k for x in lines], dtype=np.float64)


def share(x: F64) -> Report:
    return over(x, unit="commits")


def gap(x: F64, y: F64) -> Report:
    return difference(x, y, unit="commits")


def among(right: F64, chosen: F64) -> Report:
    """Share right among the chosen."""

    def statistic(r: F64, c: F64) -> F64:
        return (r * c).sum(axis=-1) / np.maximum(c.sum(axis=-1), 1e-9)

    return interval("", statistic, right, chosen, unit="commits")


def split(lines: Lines, name: str) -> list[Line]:
    return sorted((x for x in lines if x["split"] == name), key=lambda x: (x["project"], x["seed"]))


def calibration(dev: Lines) -> Calibration:
    source = f"{len(dev)} past fixes of {', '.join(sorted({x['project'] for x in dev}))}"
    return fit(np.array([x["features"] for x in dev]), at(dev, "all").astype(bool), source)


def confidence(dev: Lines, lines: Lines) -> F64:
    fitted = calibration(dev)
    return np.array([fitted(np.array(x["features"])) for x in lines])


def top(values: F64, share_: float) -> F64:
    """1 for the largest share of the values."""
    out = np.zeros(len(values))
    out[np.argsort(-values, kind="stable")[: round(share_ * len(values))]] = 1
    return out


def retrieval(test: list[Line]) -> list[Mark]:
    best, without = at(test, "all"), at(test, "all - search")
    drops = {name: gap(best, at(test, f"all - {name}")) for name in PARTS}
    most = max(TOOLS, key=lambda name: drops[name].estimate)
    gated, ungated = gap(best, without), gap(at(test, "all, ungated"), without)
    told = f"{most} ({drops[most].estimate:+.3f}); view {text(drops['view'])}"
    plain = "best configuration - file BM25 >= .05 in acc@1, interval above 0"
    harder = "the same against BM25 that is told the identifiers (ours, harder)"
    literal = f"{text(gated)}, ungated {text(ungated)}"
    return [
        mark("Q1", plain, gap(best, at(test, "plain bm25")), least=0.05, above=0),
        mark("Q1b", harder, gap(best, at(test, "bm25")), least=0.05, above=0),
        Mark("Q2", "removing view costs the most of the four tools", told, most == "view"),
        mark("Q3", "gated literal search does not hurt", gated, least=0, told=literal),
    ]


def confident(dev: list[Line], test: list[Line]) -> list[Mark]:
    p, right = confidence(dev, test), at(test, "all")
    overall, sure, surest = share(right), among(right, top(p, 0.63)), among(right, top(p, 0.25))
    brier, constant = share((p - right) ** 2), share((at(dev, "all").mean() - right) ** 2)
    agree = np.array([len({x["first"][c] for c in ("bm25", "view", "search")}) == 1 for x in test], dtype=np.float64)
    agreed, covered, apart = among(right, agree), share(agree), among(right, 1 - agree)
    met = (
        sure.estimate >= overall.estimate + 0.1 and surest.estimate >= 0.8,
        brier.estimate < constant.estimate,
        covered.estimate >= 0.35 and agreed.estimate >= 0.75,
    )
    return [
        Mark("Q4", "surest 63 %: acc@1 >= overall + .10; surest 25 %: >= .80",
             f"{text(sure)} against {text(overall)}; {text(surest)}", met[0]),
        Mark("Q4b", "calibrated: Brier score below that of the dev rate alone (ours)",
             f"{text(brier)} against {text(constant)}", met[1]),
        Mark("Q5", "three rankers agree: coverage >= .35, acc@1 >= .75",
             f"coverage {text(covered)}, {text(agreed)}; the rest {text(apart)}", met[2]),
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
    cut = float(np.quantile([x["margin"]["view"] for x in dev], 0.6))
    gate = np.array([x["margin"]["view"] >= cut for x in test], dtype=np.float64)

    def gains(chosen: F64) -> list[Report]:
        """Of the weak and of the strong reader, told the findings of these reports."""
        return [gap(told(test, reader, chosen), told(test, reader, 0 * gate)) for reader in ("tree", "all")]

    def saving(x: F64, y: F64) -> F64:
        return 1 - y.sum(axis=-1) / x.sum(axis=-1)

    saved = interval("", saving, *spent(test, "tree"), unit="commits")
    (weak, strong), (weak_gate, strong_gate) = gains(np.ones(len(test))), gains(gate)
    shuffled = gap(_shuffled(test), told(test, "tree", 0 * gate))
    met = weak.estimate >= 0.2 and saved.estimate >= 0.3 and strong.estimate <= -0.05
    return [
        Mark("Q6", "inject all: weak reader gains >= .20 and >= 30 % of tokens, strong loses >= .05",
             f"weak {text(weak)}, tokens {text(saved)}; strong {text(strong)}", met),
        Mark("Q7", "margin gate at 40 %: strong within .01 of its baseline, weak keeps >= .20",
             f"coverage {gate.mean():.2f}; strong {text(strong_gate)}, weak {text(weak_gate)}",
             strong_gate.estimate >= -0.01 and weak_gate.estimate >= 0.2),
        mark("Q10", "shuffled findings: weak reader < own baseline + .03", shuffled, under=0.03),
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
    promise = "every finding is as the schema says, its span, dependencies and tests exist"
    told = f"{len(wrong)} of {count} findings on {len(lines)} snapshots are not" + (f": {wrong[:3]}" if wrong else "")
    return Mark("Q8", promise, told, not wrong)


def pass_marks(lines: Lines) -> list[Mark]:
    dev, test = split(lines, "dev"), split(lines, "test")
    return [*retrieval(test), *confident(dev, test), *injected(dev, test), validity([*dev, *test])]


def report(lines: Lines) -> str:
    dev, test = split(lines, "dev"), split(lines, "test")
    if not test:
        return "Tier L did not run: give a folder with clones of pytest, pylint and sphinx by --clones.\n"
    of = {p: [x for x in test if x["project"] == p] for p in sorted({x["project"] for x in test})}
    days = [f"{p} {min(x['day'] for x in some)} to {max(x['day'] for x in some)}" for p, some in of.items()]
    fitted, (cover, precise) = calibration(dev), (share([x[f] for x in test]) for f in ("coverage", "precision"))
    weights = ", ".join(f"{w:+.2f}" for w in fitted.weights)
    return document(
        "# E169, tier L",
        f"{len(dev)} dev and {len(test)} test commits; test: {'; '.join(days)}. "
        f"Candidates per snapshot: {np.mean([x['files'] for x in test]):.0f} on average.",
        table(
            SHOWN,
            ("chooser", str),
            *((f"acc@{k}", lambda name, k=k: share(at(test, name, k))) for k in (1, 3, 5)),
            *((p, lambda name, some=some: at(some, name).mean(), ".3f") for p, some in of.items()),
        ),
        "Change of acc@1 when a component is left out:",
        table(
            PARTS,
            ("configuration", lambda name: f"all - {name}"),
            ("change", lambda name: gap(at(test, f"all - {name}"), at(test, "all"))),
        ),
        f"Two best chunks: coverage {text(cover)}, precision {text(precise)}.",
        f"Confidence fitted on dev: weights {weights}, bias {fitted.bias:+.2f}, cut at 40 % {fitted.cut:.3f}.",
        pass_marks(lines),
    )


def figure(lines: Lines) -> Any:
    """Accuracy among the surest share of test reports, by share."""
    dev, test = split(lines, "dev"), split(lines, "test")
    if not test:
        return None
    right = at(test, "all")[np.argsort(-confidence(dev, test), kind="stable")]
    count = np.arange(1, len(right) + 1)
    fig, axes = canvas((5, 3.2), font=10, backend="svg", layout=None)
    axes.plot((count / len(right))[9:], (np.cumsum(right) / count)[9:])
    axes.axhline(right.mean(), color="grey", linewidth=0.8)
    axes.set(xlabel="share of reports, surest first", ylabel="acc@1", ylim=(0, 1.02))
    return fig
